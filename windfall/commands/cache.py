"""`windfall cache ls|show|verify|gc|clear|export|import`: what the cache on disk holds.

Enters: an action. Leaves: what it says. Invariant: only `gc`, `clear`, `import` and the finding of
a damaged entry change anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from windfall.cache import StoreError, export, load
from windfall.cache.store import DiskStore, StoredEntry
from windfall.commands.verb import Answer, Verb
from windfall.errors import UserError
from windfall.ir.codec import decode, loads
from windfall.ir.stages import Executable, Program
from windfall.saved import opened_store
from windfall.whole_entries import ASKED, StoredSegment


def _line(row: StoredEntry) -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.used))
    return f"{row.key[:12]}  {row.bytes:>10,}  {used}  {row.about}"


def _ls(store: DiskStore, given: argparse.Namespace) -> Answer:
    rows = store.rows()
    aside = store.quarantined()
    lines = [_line(row) for row in rows]
    lines.append(f"{len(rows)} entries, {sum(row.bytes for row in rows):,} bytes")
    lines += [f"moved aside: {key[:12]} {about}: {why}" for key, about, why in aside]
    entries = [
        {"key": row.key, "about": row.about, "bytes": row.bytes, "made": row.made, "used": row.used}
        for row in rows
    ]
    return Answer("\n".join(lines), {"entries": entries, "moved_aside": aside})


def _show(store: DiskStore, given: argparse.Namespace) -> Answer:
    found = [row for row in store.rows() if row.key.startswith(given.argument)]
    if len(found) != 1:
        raise UserError(f"{given.argument!r} is the beginning of {len(found)} keys; give one's")
    data = store.get(found[0].key)
    if data is None:
        return Answer("it is damaged, and was moved aside", {"damaged": True}, 1)
    if data.startswith(ASKED):
        text = "a process has asked for it; the next one that does keeps it whole"
        return Answer(f"{_line(found[0])}\n{text}", {"about": found[0].about})
    record = decode(loads(data))
    if isinstance(record, StoredSegment):
        return _show_entry(found[0], record)
    program = record.program if isinstance(record, Executable) else record
    kernels = program.kernels if isinstance(program, Program) else ()
    text = "\n\n".join(f"{one.name} ({one.kind})\n{one.text}" for one in kernels)
    told = [{"name": one.name, "kind": one.kind, "text": one.text} for one in kernels]
    return Answer(f"{_line(found[0])}\n\n{text}", {"about": found[0].about, "kernels": told})


def _show_entry(row: StoredEntry, entry: StoredSegment) -> Answer:
    """Its source, and what it relies on by name; nothing of it is linked."""
    source = entry.source()
    names = [name for _, name, _ in entry.names]
    text = f"{_line(row)}\n\n{source}\nrelies on {len(names)} names:\n" + "\n".join(names)
    return Answer(text, {"about": row.about, "source": source, "names": names})


def _verify(store: DiskStore, given: argparse.Namespace) -> Answer:
    bad = store.verify()
    lines = [f"{key[:12]} is damaged: moved aside" for key in bad]
    lines.append(f"{len(store.rows())} entries are whole")
    return Answer("\n".join(lines), {"damaged": bad}, int(bool(bad)))


def _gc(store: DiskStore, given: argparse.Namespace) -> Answer:
    text = given.argument
    if text is not None and not text.isdecimal():
        raise UserError(f"gc takes a number of bytes to keep, not {text!r}")
    before = len(store.rows())
    store.shrink(None if text is None else int(text))
    gone = before - len(store.rows())
    return Answer(f"{gone} entries went", {"gone": gone})


def _clear(store: DiskStore, given: argparse.Namespace) -> Answer:
    gone = len(store.rows())
    store.clear()
    return Answer(f"{gone} entries went", {"gone": gone})


def _export(store: DiskStore, given: argparse.Namespace) -> Answer:
    made = export(store, _path(given))
    return Answer(f"{given.argument}: {made}", {"entries": len(made.entries)})


def _import(store: DiskStore, given: argparse.Namespace) -> Answer:
    path = _path(given)
    if not given.trust:
        raise UserError(
            f"{path} holds machine code that will be run: add --trust if you trust who made it"
        )
    made = load(store, path)
    return Answer(f"{path}: {made}", {"entries": len(made.entries), "fits": made.fits})


def _path(given: argparse.Namespace) -> Path:
    return Path(given.argument)


ACTIONS: dict[str, Callable[[DiskStore, argparse.Namespace], Answer]] = {
    "ls": _ls,
    "show": _show,
    "verify": _verify,
    "gc": _gc,
    "clear": _clear,
    "export": _export,
    "import": _import,
}


# What an action takes besides: its name for people, what it is, whether it may be left out.
_TAKES: dict[str, tuple[str, str, bool]] = {
    "show": ("KEY", "the beginning of a key, as `ls` tells it", False),
    "gc": ("BYTES", "how much to keep (without: what the options say)", True),
    "export": ("FILE", "where to write", False),
    "import": ("FILE", "what to read", False),
}


def _arguments(parser: argparse.ArgumentParser) -> None:
    """Each action has a parser of its own, so that options may stand anywhere behind it."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="|".join(ACTIONS))
    for name in ACTIONS:
        one = actions.add_parser(name)
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
        one.set_defaults(argument=None)
        if name in _TAKES:
            title, about, optional = _TAKES[name]
            count = "?" if optional else None
            one.add_argument("argument", nargs=count, metavar=title, help=about)
        if name == "import":
            one.add_argument("--trust", action="store_true", help="run what is in the file")


def _run(given: argparse.Namespace) -> Answer:
    try:
        return ACTIONS[given.action](opened_store(writable=True), given)
    except StoreError as error:
        raise UserError(str(error)) from error


VERB = Verb("cache", "look at the cache on disk, clear it, move it", _arguments, _run)
