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
    found = [row for row in store.rows() if row.key.startswith(given.argument or "-")]
    if len(found) != 1:
        raise UserError(f"{given.argument!r} is the beginning of {len(found)} keys; give one's")
    data = store.get(found[0].key)
    if data is None:
        return Answer("it is damaged, and was moved aside", {"damaged": True}, 1)
    record = decode(loads(data))
    program = record.program if isinstance(record, Executable) else record
    kernels = program.kernels if isinstance(program, Program) else ()
    text = "\n\n".join(f"{one.name} ({one.kind})\n{one.text}" for one in kernels)
    told = [{"name": one.name, "kind": one.kind, "text": one.text} for one in kernels]
    return Answer(f"{_line(found[0])}\n\n{text}", {"about": found[0].about, "kernels": told})


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
    if not given.argument:
        raise UserError(f"{given.action} needs the path of a file")
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


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("argument", nargs="?", help="a key, a file, a number of bytes")
    parser.add_argument("--trust", action="store_true", help="import: run what is in the file")


def _run(given: argparse.Namespace) -> Answer:
    try:
        return ACTIONS[given.action](opened_store(writable=True), given)
    except StoreError as error:
        raise UserError(str(error)) from error


VERB = Verb("cache", "look at the cache on disk, clear it, move it", _arguments, _run)
