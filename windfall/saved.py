"""The cache as one file: `save_cache`, `load_cache`.

Enters: a path. Leaves: a file with all that the cache on disk holds; or a cache that holds what a
file does. Invariant: what the options and the environment say of the cache is what is used here.
"""

from __future__ import annotations

import os
from pathlib import Path

from windfall.cache import DiskStore, StoreError, UnsafeDirectory, export, load, private_directory
from windfall.errors import UserError
from windfall.options import Options


def opened_store(*, writable: bool) -> DiskStore:
    """The store that the environment chooses; `UserError` where there is none to be used."""
    options = Options.checked()
    if not options.cache_dir:
        raise UserError("there is no folder for the cache: set WINDFALL_CACHE_DIR")
    try:
        folder = private_directory(Path(options.cache_dir))
        store = DiskStore(folder, options.cache_bytes, writable=writable)
        store.rows() if writable else None
    except (UnsafeDirectory, StoreError) as error:
        raise UserError(f"the cache cannot be used: {error}") from error
    return store


def save_cache(path: str | os.PathLike[str]) -> str:
    """Write what the cache on disk holds to one file, to be loaded elsewhere; answers what is in
    it."""
    return str(export(opened_store(writable=True), Path(path)))


def load_cache(path: str | os.PathLike[str]) -> str:
    """Take the entries of a file that `save_cache` wrote into the cache on disk; answers what was
    in it. They are checked to be what was written. They are machine code: load files only of those
    whom you would let run programs here."""
    return str(load(opened_store(writable=True), Path(path)))
