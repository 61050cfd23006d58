"""What reports of a whole process tell of: the logs of its compiled objects.

Enters: the log of each compiled object, when it is made. Leaves: a report or a timeline of all of
them, or of those that are asked for. Invariant: a log lives as long as its object, unless a report
at the end of the process was asked for (`WINDFALL_REPORT`): then until that is written. A file is
there whole or not at all.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

from windfall import locks
from windfall.errors import UserError
from windfall.events import EventLog, subscribe
from windfall.reporting.explain import explanation_of
from windfall.reporting.progress import Progress
from windfall.version import VERSION

_logs: weakref.WeakKeyDictionary[EventLog, str] = weakref.WeakKeyDictionary()
_kept: dict[str, list[EventLog]] = {}  # by the file that they are written to at the end
_lock = locks.lock()
_progress = Progress()
subscribe(_progress.ended, _progress.began)


def register(log: EventLog, title: str, path: str = "") -> None:
    """A compiled object has this log. `path`: where it is to be reported when the process ends."""
    with _lock:
        _logs[log] = title
        if path and path not in _kept:
            atexit.register(_at_the_end, path)
        if path:
            _kept.setdefault(path, []).append(log)


def title_of(target: Any) -> str:
    """What a compiled object is called, if its user has not said."""
    return getattr(target, "__qualname__", None) or type(target).__qualname__


def _chosen(logs: Sequence[EventLog]) -> list[tuple[str, EventLog]]:
    """Those that are asked for (all), in the order in which something was done with them."""
    with _lock:
        known = dict(_logs.items())
    chosen = list(dict.fromkeys(logs)) if logs else [log for log in known if log.snapshot()]
    return [(known.get(log, "compiled"), log) for log in chosen]


def write_report(path: str | os.PathLike[str], logs: Sequence[EventLog] = ()) -> str:
    """Write the report; answers where it is."""
    from windfall.reporting.compilations import history_of  # most processes write none
    from windfall.reporting.page import Page

    histories = [history_of(title, explanation_of(log)) for title, log in _chosen(logs)]
    return _written(path, Page(histories, VERSION).text())


def write_timeline(path: str | os.PathLike[str], logs: Sequence[EventLog] = ()) -> str:
    """Write the trace; answers where it is."""
    from windfall.reporting.timeline import trace_of

    trace = trace_of([(title, log.snapshot()) for title, log in _chosen(logs)])
    return _written(path, json.dumps(trace))


def _written(path: str | os.PathLike[str], text: str) -> str:
    """`%p` in a path is the number of the process: those of one program then write one each."""
    place = os.path.abspath(os.fspath(path).replace("%p", str(os.getpid())))
    try:
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(place), prefix=".windfall-")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, place)
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror or error}") from error
    return place


def _at_the_end(path: str) -> None:
    """Of a process that was told to: whatever goes wrong now is one line, not a traceback."""
    try:
        print(f"[windfall] report: {write_report(path, _kept[path])}", file=sys.stderr)
    except Exception as error:
        print(f"[windfall] no report: {type(error).__name__}: {error}", file=sys.stderr)
