"""The cache as compilations see it: it answers, or it is not there; it never fails a program.

Enters: keys, and what is kept under them as bytes. Leaves: the same bytes, or None. Invariant: what
goes wrong with the disk is told once, in the log `windfall`, and the program compiles for itself.
A store that machines share (`remote.py`) is asked for what the disk has not.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from pathlib import Path

from windfall import locks
from windfall.cache.directory import UnsafeDirectory, private_directory
from windfall.cache.remote import RemoteStore, remote_for
from windfall.cache.store import DiskStore, StoreError
from windfall.options import Options

PATIENCE = 60.0  # seconds that another process is given for one graph
MOST_FAILURES = 3  # then it is left alone

_logger = logging.getLogger("windfall")


class Cache:
    """A store that may fail."""

    def __init__(
        self, folder: Path, limit: int, writable: bool, remote: RemoteStore | None = None
    ) -> None:
        self.remote = remote
        self.store: DiskStore | None = None
        self._failures = 0
        self._lock = locks.lock()
        try:
            self.store = DiskStore(private_directory(folder), limit, writable=writable)
        except UnsafeDirectory as reason:
            self._told(str(reason))

    def get(self, key: str) -> bytes | None:
        """What is kept under a key."""
        found: bytes | None = None
        with self._failing_unseen() as store:
            if store is not None:
                found = store.get(key)
        if found is None and self.remote is not None:
            found = self._fetched(self.remote, key)
        return found

    def _fetched(self, remote: RemoteStore, key: str) -> bytes | None:
        fetched = remote.get(key)
        if fetched is None:
            return None
        about, data = fetched
        self._keep(key, data, about)
        _logger.debug("%s was found in the remote cache", about)
        return data

    def put(self, key: str, data: bytes, about: str) -> bool:
        """Keep something, and let others find it; whether it is kept anywhere."""
        kept = self._keep(key, data, about)
        sent = self.remote is not None and self.remote.put(key, data, about)
        return kept or sent

    def _keep(self, key: str, data: bytes, about: str) -> bool:
        kept = False
        with self._failing_unseen() as store:
            if store is not None:
                kept = store.put(key, data, about)
        return kept

    def quarantine(self, key: str, reason: str) -> None:
        """Keep it no longer: it could not be used."""
        with self._failing_unseen() as store:
            if store is not None:
                store.quarantine(key, reason)

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """As `DiskStore.claim`; where that fails nobody is waited for."""
        with contextlib.ExitStack() as entered:
            waited = False
            with self._failing_unseen() as store:
                if store is not None:
                    waited = entered.enter_context(store.claim(key, PATIENCE))
            yield waited

    @contextlib.contextmanager
    def _failing_unseen(self) -> Iterator[DiskStore | None]:
        try:
            yield self.store
        except (StoreError, UnsafeDirectory) as reason:
            self._told(str(reason))

    def _told(self, reason: str) -> None:
        with self._lock:
            self._failures += 1
            first = self._failures == 1
            if self._failures >= MOST_FAILURES:
                self.store = None
        if first:
            _logger.warning("the cache on disk is not used: %s", reason)


@functools.cache
def _opened(folder: Path, limit: int, writable: bool, remote: RemoteStore | None) -> Cache:
    return Cache(folder, limit, writable, remote)


def cache_for(options: Options) -> Cache | None:
    """The cache that these options choose: one object for each folder."""
    if options.cache == "off" or not options.cache_dir:
        return None
    folder, writable = Path(options.cache_dir), options.cache == "on"
    return _opened(folder, options.cache_bytes, writable, remote_for(options))
