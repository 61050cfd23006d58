"""The folder of the cache: machine code is read from it, so nobody else may be able to write there.

Enters: a path. Leaves: the same path, of a folder that belongs to this user, closed to others, made
where it was missing; or `UnsafeDirectory`, with the reason. Invariant: no folder on the way to it
can be changed by another user (root aside), and none of them, nor the folder, is followed through a
link that another user owns.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from windfall.errors import WindfallError

PRIVATE = 0o700
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectory(WindfallError):
    """The cache cannot be used; the text says why."""


def private_directory(path: Path) -> Path:
    """The folder at `path`, made if need be, resolved; `UnsafeDirectory` where others could write
    to it."""
    if not path.is_absolute():
        raise UnsafeDirectory(f"the cache's folder must be an absolute path, not {path}")
    try:
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
        found = path.resolve(strict=True)
        if path.is_symlink():
            _must_be_ours(path, os.lstat(path))
        _look_over(found)
    except OSError as error:
        raise UnsafeDirectory(f"{path}: {error.strerror or error}") from error
    return found


def _look_over(folder: Path) -> None:
    state = os.lstat(folder)
    if not stat.S_ISDIR(state.st_mode):
        raise UnsafeDirectory(f"{folder} is not a folder")
    _must_be_ours(folder, state)
    if stat.S_IMODE(state.st_mode) & 0o077:
        raise UnsafeDirectory(f"{folder} is open to other users; run: chmod 700 {folder}")
    for parent in folder.parents:
        state = os.lstat(parent)
        if state.st_uid not in (0, os.geteuid()):
            raise UnsafeDirectory(f"{parent}, above the cache, belongs to another user")
        shared = state.st_mode & OTHERS_WRITE
        if shared and not state.st_mode & stat.S_ISVTX:  # as /tmp: only owners may rename
            raise UnsafeDirectory(f"{parent}, above the cache, can be written by other users")


def _must_be_ours(path: Path, state: os.stat_result) -> None:
    if state.st_uid != os.geteuid():
        raise UnsafeDirectory(f"{path} belongs to another user")


def look_over_file(path: Path) -> None:
    """`UnsafeDirectory` unless this is a file of our own, closed to others, or nothing."""
    try:
        state = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnsafeDirectory(f"{path}: {error.strerror or error}") from error
    if not stat.S_ISREG(state.st_mode):
        raise UnsafeDirectory(f"{path} is not a plain file")
    _must_be_ours(path, state)
    if stat.S_IMODE(state.st_mode) & 0o077:
        raise UnsafeDirectory(f"{path} is open to other users; run: chmod 600 {path}")
