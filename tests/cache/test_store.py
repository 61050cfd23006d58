"""The store: what is answered is what was put, whatever happened to the file in between."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windfall.cache import DiskStore, StoreError, UnsafeDirectory, private_directory
from windfall.cache import store as stores

KEYS = [f"{number:048x}" for number in range(1, 40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return private_directory(tmp_path / "cache")


@pytest.fixture
def store(folder: Path) -> DiskStore:
    return DiskStore(folder, 1 << 20)


def content(number: int, size: int = 1000) -> bytes:
    return bytes((number * 7 + place) % 251 for place in range(size))


def raw(folder: Path, statement: str, *values: Any) -> None:
    with sqlite3.connect(folder / stores.NAME) as connection:
        connection.execute(statement, values)
    connection.close()


def test_what_is_put_is_found(store: DiskStore, folder: Path) -> None:
    assert store.get(KEYS[0]) is None
    store.put(KEYS[0], b"one", "first")
    store.put(KEYS[0], b"two", "again")
    assert store.get(KEYS[0]) == b"two"
    assert DiskStore(folder, 1 << 20).get(KEYS[0]) == b"two"
    (row,) = store.rows()
    assert (row.key, row.about, row.bytes) == (KEYS[0], "again", 3)
    store.clear()
    assert store.get(KEYS[0]) is None and store.rows() == []


def test_few_files_and_all_private(store: DiskStore, folder: Path) -> None:
    for number, key in enumerate(KEYS):
        store.put(key, content(number), "")
        with store.claim(key, 0) as waited:
            assert not waited
    files = list(folder.iterdir())
    assert len(files) <= 10
    assert {oct(os.stat(one).st_mode & 0o777) for one in files} == {"0o600"}
    assert oct(os.stat(folder).st_mode & 0o777) == "0o700"


# ------------------------------------------------------------------------------------- damage


def flipped(folder: Path) -> None:
    data = bytearray(content(0))
    data[500] ^= 4
    raw(folder, "update entries set data = ? where key = ?", bytes(data), KEYS[0])


def swapped(folder: Path) -> None:
    """The content of another entry, with its own digest: whole, and not what was asked for."""
    raw(
        folder,
        "update entries set (digest, data) = (select digest, data from entries where key = ?)"
        " where key = ?",
        KEYS[1],
        KEYS[0],
    )


def cut(folder: Path) -> None:
    raw(folder, "update entries set data = ? where key = ?", content(0)[:-1], KEYS[0])


ENTRIES = {"a bit": flipped, "another's": swapped, "cut": cut}


@pytest.mark.parametrize("damage", ENTRIES)
def test_a_damaged_entry_is_a_miss_and_moved_aside(
    damage: str, store: DiskStore, folder: Path
) -> None:
    for number in (0, 1):
        store.put(KEYS[number], content(number), f"entry {number}")
    ENTRIES[damage](folder)
    assert store.get(KEYS[0]) is None
    assert store.get(KEYS[1]) == content(1)
    ((key, about, reason),) = store.quarantined()
    assert key == KEYS[0] and about == "entry 0" and "not what was written" in reason
    store.put(KEYS[0], content(0), "anew")
    assert store.get(KEYS[0]) == content(0) and store.verify() == []


def truncated(path: Path) -> None:
    os.truncate(path, 5000)


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def every_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), 97):
        data[place] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncated, overwritten, emptied, every_page])
def test_a_damaged_file_is_begun_anew(
    damage: Callable[[Path], None], store: DiskStore, folder: Path
) -> None:
    for number, key in enumerate(KEYS):
        store.put(key, content(number, 3000), "")
    store.close()
    damage(folder / stores.NAME)
    for _ in range(3):  # the first may find out, and say so
        try:
            found = [store.get(key) for key in KEYS]
        except StoreError:
            continue
        break
    assert all(one in (None, content(at, 3000)) for at, one in enumerate(found))
    store.put(KEYS[0], b"new", "")
    assert store.get(KEYS[0]) == b"new"


def test_bits_that_flip_anywhere(folder: Path) -> None:
    """Whatever byte of the file is wrong, what is answered is right, or there is no answer."""
    store = DiskStore(folder, 1 << 20)
    store.put(KEYS[0], content(0, 3000), "")
    store.close()
    path = folder / stores.NAME
    whole = path.read_bytes()
    for place in range(0, len(whole), 41):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        path.chmod(0o600)
        store = DiskStore(folder, 1 << 20)
        try:
            assert store.get(KEYS[0]) in (None, content(0, 3000))
        except StoreError:
            pass
        finally:
            store.close()
        for left in folder.glob(stores.DAMAGED):
            left.unlink()


# ------------------------------------------------------------------------------------- limits


def test_the_least_recently_used_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    store = DiskStore(folder, 10_000)
    for number in range(9):
        clock[0] += 10_000
        store.put(KEYS[number], content(number), "")
    clock[0] += 10_000
    assert store.get(KEYS[0]) is not None  # used just now
    for number in range(9, 14):
        clock[0] += 10_000
        store.put(KEYS[number], content(number), "")
    left = {row.key for row in store.rows()}
    assert sum(row.bytes for row in store.rows()) <= 10_000
    assert KEYS[0] in left and KEYS[1] not in left and KEYS[13] in left
    store.put(KEYS[20], content(1, 5000), "larger than a quarter")
    assert store.get(KEYS[20]) is None


def steps(store: DiskStore, work: Callable[[], object]) -> int:
    """How many instructions SQLite's machine takes for something."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    with store._session() as connection:
        connection.set_progress_handler(count, 1)
    work()
    with store._session() as connection:
        connection.set_progress_handler(None, 0)
    return taken


def test_what_a_use_costs_does_not_grow_with_what_is_kept(folder: Path) -> None:
    """All processes of a user share the file: who goes through all of it holds up the others."""
    store = DiskStore(folder, 1 << 30)
    store.put(KEYS[0], content(0), "")
    few = steps(store, lambda: (store.put(KEYS[1], content(1), ""), store.get(KEYS[0])))
    for number in range(100, 1100):
        store.put(f"{number:048x}", content(number, 10), "")
    many = steps(store, lambda: (store.put(KEYS[2], content(2), ""), store.get(KEYS[0])))
    assert 0 < many <= 2 * few
    with store._session() as connection:
        assert connection.execute("pragma synchronous").fetchone() == (0,)  # the disk is no one's


def test_room_is_made_in_few_transactions(folder: Path) -> None:
    store = DiskStore(folder, 1 << 30)
    for number in range(1200):
        store.put(f"{number:048x}", content(number, 10), "")
    store._limit = 1000
    texts: list[str] = []
    with store._session() as connection:
        connection.set_trace_callback(texts.append)
    store.put(KEYS[0], content(0, 10), "")
    left = store.rows()
    assert sum(row.bytes for row in left) <= 1000 and KEYS[0] in {row.key for row in left}
    assert sum(one.lower().startswith("commit") for one in texts) <= 5


def test_the_total_is_that_of_the_entries(folder: Path) -> None:
    """Whatever is done to them: put, put again, moved aside, dropped, all dropped."""
    store = DiskStore(folder, 3000)

    def agree() -> None:
        with store._session() as connection:
            total = stores._total(connection)
        assert total == sum(row.bytes for row in store.rows())

    for number in (0, 1, 2, 1, 3, 4):
        store.put(KEYS[number], content(number, 500 + 10 * number), "")
        store.put(KEYS[number], content(number, 700), "")
        agree()
    store.quarantine(KEYS[4], "not usable")
    agree()
    store.shrink(800)
    agree()
    store.clear()
    agree()
    store.put(KEYS[0], content(0), "")
    agree()


def test_files_of_an_earlier_form_go(folder: Path) -> None:
    for name in stores.FORMER:
        (folder / name).write_bytes(b"old")
    DiskStore(folder, 1 << 20).put(KEYS[0], b"x", "")
    assert not [name for name in stores.FORMER if (folder / name).exists()]


def test_a_clock_that_goes_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(folder, 1 << 20)
    store.put(KEYS[0], b"x", "")
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert store.get(KEYS[0]) == b"x"
    store.put(KEYS[1], b"y", "")
    assert store.get(KEYS[1]) == b"y"


def test_a_full_disk(store: DiskStore) -> None:
    store.put(KEYS[0], b"x", "")
    assert store._connection is not None
    (pages,) = store._connection.execute("pragma page_count").fetchone()
    store._connection.execute(f"pragma max_page_count = {pages + 1}")
    with pytest.raises(StoreError, match="full"):
        for key in KEYS:
            store.put(key, content(1, 50_000), "")
    assert store.get(KEYS[0]) == b"x"


def test_read_only(store: DiskStore, folder: Path) -> None:
    store.put(KEYS[0], content(0), "")
    before = (folder / stores.NAME).read_bytes()
    reader = DiskStore(folder, 1 << 20, writable=False)
    assert reader.get(KEYS[0]) == content(0)
    reader.put(KEYS[1], b"not kept", "")
    assert reader.get(KEYS[1]) is None
    with reader.claim(KEYS[1], 0) as waited:
        assert not waited
    reader.close()
    flipped(folder)
    assert reader.get(KEYS[0]) is None
    assert len(before) == len((folder / stores.NAME).read_bytes())


def test_read_only_without_a_file(folder: Path) -> None:
    with pytest.raises(StoreError):
        DiskStore(folder, 1 << 20, writable=False).get(KEYS[0])
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------------------------- processes

forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def forked(work: Callable[[], None]) -> int:
    """Run in a child, and answer its process's number; it ends whatever happens."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


@forking
def test_killed_at_every_step_of_writing(folder: Path) -> None:
    """A process that dies in the middle leaves the old content, the new one, or none."""
    DiskStore(folder, 1 << 20).put(KEYS[0], b"old", "")
    finished = False
    for steps in range(1, 200):

        def dies(steps: int = steps) -> None:
            store, left = DiskStore(folder, 1 << 20), [steps]
            with store._session() as connection:

                def count() -> int:
                    left[0] -= 1
                    if not left[0]:
                        os._exit(9)
                    return 0

                connection.set_progress_handler(count, 1)
            store.put(KEYS[0], content(steps, 20_000), "")

        _, status = os.waitpid(forked(dies), 0)
        finished = os.waitstatus_to_exitcode(status) == 0
        found = DiskStore(folder, 1 << 20).get(KEYS[0])
        assert found in (b"old", *(content(one, 20_000) for one in range(1, steps + 1)))
        if finished:
            break
    assert finished and found == content(steps, 20_000)


@forking
def test_many_processes_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long one waits for its turn is the machine's matter: here they all have their turn."""
    monkeypatch.setattr(stores, "BUSY_SECONDS", 600.0)

    def work() -> None:
        store = DiskStore(folder, 1 << 20)
        for number, key in enumerate(KEYS):
            if store.get(key) not in (None, content(number)):
                raise AssertionError("torn")
            store.put(key, content(number), "")

    children = [forked(work) for _ in range(16)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children]
    assert codes == [0] * 16
    store = DiskStore(folder, 1 << 20)
    assert [store.get(key) for key in KEYS] == [content(at) for at in range(len(KEYS))]


@forking
def test_a_fork_gets_a_connection_of_its_own(store: DiskStore) -> None:
    store.put(KEYS[0], b"parent's", "")

    def work() -> None:
        assert store.get(KEYS[0]) == b"parent's"
        store.put(KEYS[1], b"child's", "")

    _, status = os.waitpid(forked(work), 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.get(KEYS[1]) == b"child's"


@forking
def test_a_claim_is_waited_for_and_ends_with_its_process(store: DiskStore) -> None:
    read, write = os.pipe()

    def holds() -> None:
        with store.claim(KEYS[0], 0):
            os.write(write, b"x")
            time.sleep(60)

    child = forked(holds)
    assert os.read(read, 1) == b"x"
    with store.claim(KEYS[1], 0) as waited:
        assert not waited  # another key
    with store.claim(KEYS[0], 0.1) as waited:
        assert waited  # patience is over
    os.kill(child, 9)
    os.waitpid(child, 0)
    with store.claim(KEYS[0], 60) as waited:
        assert not waited


# ------------------------------------------------------------------------------------- folders


def test_a_folder_that_others_could_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnsafeDirectory, match="absolute"):
        private_directory(Path("cache"))
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with pytest.raises(UnsafeDirectory, match="open to other users; run: chmod 700"):
        private_directory(shared)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnsafeDirectory):
        private_directory(tmp_path / "file")
    open_parent = tmp_path / "open"
    open_parent.mkdir()
    open_parent.chmod(0o777)
    with pytest.raises(UnsafeDirectory, match="can be written by other users"):
        private_directory(open_parent / "cache")
    open_parent.chmod(0o1777)
    private_directory(open_parent / "sticky")
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    with pytest.raises(UnsafeDirectory, match="another user"):
        private_directory(open_parent / "sticky")


@pytest.mark.parametrize("name", [stores.NAME, stores.NAME + "-journal", stores.CLAIMS])
def test_a_file_that_is_not_ours_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (folder / name).symlink_to(elsewhere)
    with pytest.raises((UnsafeDirectory, StoreError)):
        DiskStore(folder, 1 << 20).put(KEYS[0], b"x", "")
        with DiskStore(folder, 1 << 20).claim(KEYS[0], 0):
            raise AssertionError("a claim through a link")
    assert elsewhere.read_text() == "precious"
    (folder / name).unlink()
    (folder / name).write_bytes(b"")
    (folder / name).chmod(0o644)
    with pytest.raises(UnsafeDirectory, match="chmod 600"):
        DiskStore(folder, 1 << 20).put(KEYS[0], b"x", "")
        with DiskStore(folder, 1 << 20).claim(KEYS[0], 0):
            raise AssertionError("a claim in an open file")
