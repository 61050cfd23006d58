"""Entries on disk: one SQLite file in a private folder, and a file for claims.

Enters: keys (hexadecimal digests) and bytes. Leaves: the bytes of a key, or None. Invariant: what
is answered is what was put, to the bit: each entry carries a digest of its key and content, and one
that does not fit is moved aside (`quarantined`) and is a miss. Writing is one transaction, so a
process that dies leaves nothing half written. No more than `limit` bytes are kept: the least
recently used go. Every process of the user shares the file, so nobody has it for long: no
transaction waits for the disk, or goes through all entries. (Only a system that dies may leave the
file damaged, and that is found.)

A file that SQLite itself cannot read is moved aside and begun anew. Whatever else the system
refuses (a full disk, a folder that is read-only) raises `StoreError`: the caller does without.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from windfall import locks
from windfall.cache.directory import look_over_file, private_directory
from windfall.dataclass import dataclass
from windfall.errors import WindfallError

NAME = "cache-2.sqlite3"  # the number is that of the tables below
FORMER = ("cache-1.sqlite3", "cache-1.sqlite3-journal")
CLAIMS = "claims"
DAMAGED = "damaged.sqlite3"
BUSY_SECONDS = 2.0  # the file is locked for microseconds: longer, and whoever has it is stopped
FRESH_SECONDS = 3600.0  # a use is written down if the last one is older
KEPT_OF_LIMIT = 0.9  # eviction makes some room at once
DROPPED_AT_ONCE = 500  # others get their turn in between
QUARANTINED = 16  # of each file, those moved aside last

TABLES = """
create table if not exists entries (
    key text primary key, about text not null, bytes integer not null,
    made real not null, used real not null, digest blob not null, data blob not null
) without rowid;
create index if not exists by_use on entries (used);
create table if not exists total (bytes integer not null);
insert into total select 0 where not exists (select 1 from total);
create table if not exists quarantine (
    key text not null, about text not null, reason text not null, moved real not null,
    data blob not null
);
"""


COUNTED = "update total set bytes = (select coalesce(sum(bytes), 0) from entries)"


class StoreError(WindfallError):
    """The store cannot be read or written just now; the text says why."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """What is known of an entry without its content."""

    key: str
    about: str
    bytes: int
    made: float
    used: float


def digest(key: str, data: bytes) -> bytes:
    """What an entry's content is checked by: an entry under another key does not pass."""
    return hashlib.blake2b(data, digest_size=32, key=key.encode()[:64]).digest()


class DiskStore:
    """The entries of one folder; for any number of threads and processes, before and after a
    fork."""

    def __init__(self, folder: Path, limit: int, *, writable: bool = True) -> None:
        self._folder = folder
        self._limit = limit
        self._writable = writable
        self._lock = locks.lock()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0  # the process that opened it: SQLite's connections do not survive a fork
        self._inherited: list[sqlite3.Connection] = []  # not to be closed here: they are a parent's

    # ------------------------------------------------------------------------------- entries

    def get(self, key: str) -> bytes | None:
        """The content of a key; None: there is none that can be trusted."""
        with self._session() as connection:
            found = connection.execute(
                "select digest, data, used, about from entries where key = ?", (key,)
            ).fetchone()
            if found is None:
                return None
            expected, data, used, about = found
            if expected != digest(key, data):
                self._quarantine(connection, key, about, "its content is not what was written")
                return None
            now = time.time()
            if self._writable and abs(now - used) > FRESH_SECONDS:  # clocks go back, too
                self._write(connection, ("update entries set used = ? where key = ?", (now, key)))
        return bytes(data)

    def put(self, key: str, data: bytes, about: str) -> bool:
        """Keep `data` under a key, instead of what was there; whether it is kept."""
        if not self._writable or len(data) > self._limit // 4:
            return False
        now = time.time()
        row = (key, about, len(data), now, now, digest(key, data), data)
        with self._session() as connection:
            self._write(
                connection,
                *_drop(key),
                ("insert into entries values (?,?,?,?,?,?,?)", row),
                ("update total set bytes = bytes + ?", (len(data),)),
            )
            self._shrink(connection)
        return True

    def quarantine(self, key: str, reason: str) -> None:
        """Take an entry out of use: it was whole, and yet could not be used."""
        with self._session() as connection:
            self._quarantine(connection, key, "", reason)

    def rows(self) -> list[StoredEntry]:
        """All entries, the latest used first."""
        with self._session() as connection:
            found = connection.execute(
                "select key, about, bytes, made, used from entries order by used desc, key"
            ).fetchall()
        return [StoredEntry(*one) for one in found]

    def quarantined(self) -> list[tuple[str, str, str]]:
        """What was moved aside: key, what it was about, why."""
        with self._session() as connection:
            return connection.execute("select key, about, reason from quarantine").fetchall()

    def verify(self) -> list[str]:
        """Check every entry; the keys of those that were moved aside."""
        return [one.key for one in self.rows() if self.get(one.key) is None]

    def clear(self) -> None:
        """Drop everything."""
        with self._session() as connection:
            self._write(
                connection,
                *(("delete from entries", ()), ("delete from quarantine", ())),
                ("update total set bytes = 0", ()),
            )
            connection.execute("vacuum")

    def shrink(self, limit: int | None = None) -> None:
        """Drop the least recently used entries past the limit (or another one)."""
        with self._session() as connection:
            self._shrink(connection, limit)
            connection.execute("vacuum")

    def close(self) -> None:
        """Give the file back; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    # -------------------------------------------------------------------------------- claims

    @contextlib.contextmanager
    def claim(self, key: str, patience: float) -> Iterator[bool]:
        """While entered, this process is the one that makes what is missing under a key, as far as
        others ask too. True: another one had been at it (and is done, or dead, or `patience`
        seconds are over): look again. Such a claim ends with its process, however that ends."""
        path = self._folder / CLAIMS
        if not self._writable:
            yield False
            return
        try:
            look_over_file(path)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        try:
            yield _locked(file, int(key[-12:], 16), patience)
        finally:
            os.close(file)  # and with it the lock

    # --------------------------------------------------------------------------------- SQLite

    @contextlib.contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; a file that is no database is begun anew."""
        with self._lock:
            try:
                yield self._opened()
            except sqlite3.OperationalError as error:  # locked, full, read-only, gone
                self._forget()
                raise StoreError(f"{self._folder / NAME}: {error}") from error
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite quotes the file
                self._move_aside()
                raise StoreError(f"{self._folder / NAME} was damaged ({error})") from error
            except OSError as error:
                raise StoreError(f"{self._folder / NAME}: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._owner == os.getpid():
            return self._connection
        if self._connection is not None:
            self._inherited.append(self._connection)
            self._connection = None
        private_directory(self._folder)
        path = self._folder / NAME
        for suffix in ("", "-journal"):
            look_over_file(path.with_name(NAME + suffix))
        if self._writable:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        how = "rw" if self._writable else "ro"
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={how}",
            uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        try:
            if self._writable:
                connection.execute("pragma synchronous = off")
                connection.execute("pragma journal_mode = truncate")
                if connection.execute("select 1 from sqlite_master").fetchone() is None:
                    # One transaction: else two processes that begin at once hold each other up.
                    connection.executescript(f"begin immediate; {TABLES} commit;")
                    for name in FORMER:
                        (self._folder / name).unlink(missing_ok=True)
        except BaseException:
            connection.close()
            raise
        self._connection, self._owner = connection, os.getpid()
        return connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _move_aside(self) -> None:
        self._forget()
        if self._writable:
            path = self._folder / NAME
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, path.with_name(DAMAGED))
                os.unlink(path.with_name(NAME + "-journal"))

    def _write(
        self, connection: sqlite3.Connection, *steps: tuple[str, tuple[object, ...]]
    ) -> None:
        """All of the statements, or none."""
        connection.execute("begin immediate")
        try:
            for statement, values in steps:
                connection.execute(statement, values)
        except BaseException:
            connection.execute("rollback")
            raise
        connection.execute("commit")

    def _quarantine(
        self, connection: sqlite3.Connection, key: str, about: str, reason: str
    ) -> None:
        if not self._writable:
            return
        found = connection.execute(
            "select about, data from entries where key = ?", (key,)
        ).fetchone()
        if found is None:
            return
        row = (key, about or found[0], reason, time.time(), found[1])
        self._write(
            connection,
            ("insert into quarantine values (?,?,?,?,?)", row),
            *_drop(key),
            (
                "delete from quarantine where moved not in"
                f" (select moved from quarantine order by moved desc limit {QUARANTINED})",
                (),
            ),
        )

    def _shrink(self, connection: sqlite3.Connection, limit: int | None = None) -> None:
        limit = self._limit if limit is None else limit
        if _total(connection) <= limit:
            return
        self._write(connection, (COUNTED, ()))  # once in a long while: whatever was wrong ends here
        while (total := _total(connection)) > limit * KEPT_OF_LIMIT:  # others put and drop, too
            oldest = connection.execute(
                f"select key, bytes from entries order by used limit {DROPPED_AT_ONCE}"
            ).fetchall()
            gone: list[str] = []
            for key, size in oldest:
                if total <= limit * KEPT_OF_LIMIT:
                    break
                gone.append(key)
                total -= size
            if not gone:
                break
            self._write(connection, *(step for key in gone for step in _drop(key)))


def _drop(key: str) -> tuple[tuple[str, tuple[object, ...]], ...]:
    """The statements that take an entry away, if it is there."""
    size = "coalesce((select bytes from entries where key = ?), 0)"
    return (
        (f"update total set bytes = bytes - {size}", (key,)),
        ("delete from entries where key = ?", (key,)),
    )


def _total(connection: sqlite3.Connection) -> int:
    """The bytes of all entries."""
    (found,) = connection.execute("select bytes from total").fetchone()
    return int(found)


def _locked(file: int, place: int, patience: float) -> bool:
    """Lock one byte far behind the end of an empty file; whether it had to be waited for."""
    waited, end = False, time.monotonic() + patience
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            return waited
        except OSError:  # another process has it, or the file system has no locks
            waited = True
            if time.monotonic() >= end:
                return waited
            time.sleep(0.02)
