"""One portable file with the entries of a store: to be put into an image, or copied to workers.

Enters: a store, a path. Leaves: a file; or its entries in another store. Invariant: a file is read
as a whole and every entry is checked against its digest before the first one is taken; nothing in
it is run by reading it. It holds machine code all the same: whoever imports a file trusts the one
who made it.

    magic, length of the header, header (JSON), the entries' contents one behind the other, digest
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from windfall.cache.key import surroundings
from windfall.cache.store import DiskStore, digest
from windfall.dataclass import dataclass
from windfall.errors import UserError

MAGIC = b"windfall cache 1\n"
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a file holds. `fits`: it was made by such a windfall, torch and processor as these."""

    entries: tuple[tuple[str, str, bytes], ...]  # key, about, content
    fits: bool

    def __str__(self) -> str:
        size = sum(len(data) for _, _, data in self.entries)
        where = "" if self.fits else "; of another windfall, torch or processor: none will be found"
        return f"{len(self.entries)} entries, {size:,} bytes{where}"


def export(store: DiskStore, path: Path) -> Bundle:
    """Write all entries of a store to one file, which appears whole or not at all."""
    found = ((row, store.get(row.key)) for row in store.rows())
    entries = tuple((row.key, row.about, data) for row, data in found if data is not None)
    rows = [[key, about, len(data)] for key, about, data in entries]
    header = json.dumps({"surroundings": _told(), "entries": rows}).encode()
    body = b"".join([MAGIC, len(header).to_bytes(8, "little"), header, *(e[2] for e in entries)])
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        part.write_bytes(body + hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"{path}: {error.strerror or error}") from error
    return Bundle(entries, True)


def read(path: Path) -> Bundle:
    """The content of a file; `UserError` where it is damaged or something else."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    body, told = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if not body.startswith(MAGIC):
        raise UserError(f"{path} is not a file that windfall.save_cache has written")
    if hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest() != told:
        raise UserError(f"{path} is damaged, or was not written to its end")
    start = len(MAGIC) + 8
    length = int.from_bytes(body[len(MAGIC) : start], "little")
    header: dict[str, Any] = json.loads(body[start : start + length])
    place, entries = start + length, []
    for key, about, size in header["entries"]:
        entries.append((str(key), str(about), body[place : place + size]))
        place += size
    return Bundle(tuple(entries), header["surroundings"] == _told())


def load(store: DiskStore, path: Path) -> Bundle:
    """Put the entries of a file into a store."""
    bundle = read(path)
    for key, about, data in bundle.entries:
        store.put(key, data, about)
    return bundle


def _told() -> str:
    return digest("surroundings", surroundings().encode()).hex()
