"""A store that machines share: found by another machine (another folder), and whatever is wrong
with it costs one warning. Against a Redis server (the machine's, or that of `redis_server.py`), and
files by their URL."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

import windfall
from windfall.cache import key, remote
from windfall.cache import store as stores
from windfall.cache.remote import RemoteStore
from windfall.commands import doctor
from windfall.options import Options

X = torch.linspace(-2, 2, 12).reshape(3, 4)
SECRET = "known to the whole team"
PATIENT = 60.0  # the machine may be busy; tests of latency set their own


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x * 2 + 1).sum(-1)


def other(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 3


def compiled(body: Callable[..., Any], folder: Path, url: str, **options: Any) -> Any:
    chosen = {"cache": "on", "cache_dir": str(folder), "remote_cache": url, **options}
    chosen = {"remote_cache_key": SECRET, "remote_cache_seconds": PATIENT, **chosen}
    return windfall.compile(body, options=chosen)


def happened(function: Any) -> list[str]:
    events = windfall.explanation(function).events
    return [event.facts["how"] for event in events if event.kind == "cache"]


def answered(body: Callable[..., Any], folder: Path, url: str, **options: Any) -> list[str]:
    """Compile and call as a new process would; what the cache did. The answer is eager's."""
    remote._opened.cache_clear()
    windfall.cache.cache._opened.cache_clear()
    function = compiled(body, folder, url, **options)
    torch.testing.assert_close(function(X), body(X))
    return happened(function)


# ------------------------------------------------------------------------------------------- stores


class Server:
    """A Redis server of our own on the loopback device."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        words += ["--dir", str(folder)]
        if shutil.which("redis-server") is None:
            words = [sys.executable, "-I", str(Path(__file__).with_name("redis_server.py"))]
            words += [str(self.port)]
        self._process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = importlib.import_module("redis").Redis(port=self.port)
        end = time.monotonic() + 60
        while True:
            try:
                self.client.ping()
                return
            except Exception:
                if time.monotonic() > end:
                    self.stop()
                    raise
                time.sleep(0.02)

    def values(self) -> dict[str, bytes]:
        return {name.decode(): self.client.get(name) for name in self.client.scan_iter()}

    def write(self, name: str, data: bytes) -> None:
        self.client.set(name, data)

    def stop(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()


class Files:
    """A folder behind a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._files, self._root = fsspec.core.url_to_fs(url)

    def values(self) -> dict[str, bytes]:
        found = self._files.find(self._root) if self._files.exists(self._root) else []
        return {
            one.removeprefix(self._root).lstrip("/"): self._files.cat_file(one) for one in found
        }

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", data)

    def stop(self) -> None:
        if self._files.exists(self._root):
            self._files.rm(self._root, recursive=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


@pytest.fixture(params=["redis", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server | Files]:
    if request.param == "redis":
        yield request.getfixturevalue("server")
        return
    where = {"file": f"file://{tmp_path}/shared", "memory": f"memory://{tmp_path.name}/shared"}
    made = Files(where[request.param])
    yield made
    made.stop()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """What was said in the log of windfall, as it comes."""
    said: list[logging.LogRecord] = []
    logger = logging.getLogger("windfall")
    monkeypatch.setattr(logger, "handle", lambda one: said.append(one))
    return said


# -------------------------------------------------------------------------------------------- found


def test_what_one_machine_made_another_finds(
    store: Server | Files, tmp_path: Path, warnings: list[logging.LogRecord]
) -> None:
    assert answered(program, tmp_path / "here", store.url) == ["stored"]
    (name,) = store.values()
    assert name.startswith(f"{remote.FOLDER}/") and SECRET not in name
    assert answered(program, tmp_path / "there", store.url) == ["found"]
    # And from now on on its own disk.
    assert answered(program, tmp_path / "there", "") == ["found"]
    assert not warnings


def test_a_training_step_is_found(store: Server | Files, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    seen = []
    for machine in ("here", "there"):
        function = compiled(model, tmp_path / machine, store.url)
        model.zero_grad()
        function(X).square().sum().backward()
        seen.append([one.grad.clone() for one in model.parameters() if one.grad is not None])
        assert set(happened(function)) == {"stored" if machine == "here" else "found"}
    assert len(seen[0]) == 4 and all(map(torch.equal, *seen))


def test_a_process_of_its_own_finds_it(server: Server, tmp_path: Path) -> None:
    """By the environment alone, as workers are told; and it needs no LLVM."""
    code = (
        "import torch, windfall\n"
        "f = windfall.compile(torch.nn.functional.softsign)\n"
        "f(torch.ones(3))\n"
        "print(windfall.explanation(f).cached)\n"
    )
    for machine, expected in (("here", "{'stored': 1}"), ("there", "{'found': 1}")):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
            cwd=Path(__file__).parents[2],
            env={
                **os.environ, "WINDFALL_CACHE": "on", "WINDFALL_CACHE_DIR": str(tmp_path / machine),
                "WINDFALL_REMOTE_CACHE": server.url, "WINDFALL_REMOTE_CACHE_KEY": SECRET,
                "WINDFALL_REMOTE_CACHE_SECONDS": "60",
            },
        )  # fmt: skip
        assert done.stdout.strip() == expected, done.stderr
        assert done.stderr == ""


def test_a_worker_that_only_reads(store: Server | Files, tmp_path: Path) -> None:
    for reader in ({"remote_cache_write": False}, {"cache": "read"}):
        answered(program, tmp_path / "reader", store.url, **reader)
        assert store.values() == {}
    answered(program, tmp_path / "writer", store.url)
    before = store.values()
    worker = tmp_path / "worker"
    assert answered(program, worker, store.url, remote_cache_write=False) == ["found"]
    assert answered(other, worker, store.url, remote_cache_write=False) == ["stored"]  # on disk
    assert store.values() == before
    assert (worker / stores.NAME).exists()


def test_off_is_off(store: Server | Files, tmp_path: Path) -> None:
    assert answered(program, tmp_path / "here", store.url, cache="off") == []
    assert store.values() == {}


# ---------------------------------------------------------------------------------- what is refused


def damaged(value: bytes, place: int) -> bytes:
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]


BODY = len(remote.MAGIC) + remote.MAC_BYTES
POISON: dict[str, Callable[[bytes], bytes]] = {
    "junk": lambda value: b"junk" * 100,
    "pickle": lambda value: b"\x80\x04cos\nsystem\n(S'false'\ntR.",
    "another format": lambda value: value.replace(b"remote 1", b"remote 2", 1),
    "cut off": lambda value: value[:-1],
    "cut to its head": lambda value: value[: len(remote.MAGIC) + 3],
    "longer": lambda value: value + b"x",
    "too long by far": lambda value: value + bytes(1 << 20),
    "a bit of the MAC": lambda value: damaged(value, len(remote.MAGIC)),
    "a bit of what it is about": lambda value: damaged(value, BODY + 5),
    "a bit of the content": lambda value: damaged(value, len(value) - 1),
    "no MAC": lambda value: remote.MAGIC + bytes(remote.MAC_BYTES) + value[BODY:],
}


@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_value_is_a_miss(
    poison: str,
    store: Server | Files,
    tmp_path: Path,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = {"cache_bytes": 1 << 20}  # so that "too long by far" is
    answered(program, tmp_path / "here", store.url, **limit)
    ((name, value),) = store.values().items()
    store.write(name, POISON[poison](value))
    read: list[bytes] = []
    with monkeypatch.context() as watched:
        watched.setattr("windfall.caching.loads", lambda data: read.append(data))
        assert answered(program, tmp_path / "there", store.url, **limit) == ["stored"]
    assert not read  # nothing of it got as far as the codec
    assert len(warnings) == 1 and "was refused" in warnings[0].getMessage()
    assert store.values() == {name: value}  # made anew, and what others find is whole again
    assert answered(program, tmp_path / "third", store.url, **limit) == ["found"]
    assert len(warnings) == 1


def test_a_value_under_another_name_is_refused(
    store: Server | Files, tmp_path: Path, warnings: list[logging.LogRecord]
) -> None:
    """Whole, with a right MAC, of another program: it would give wrong answers."""
    answered(program, tmp_path / "here", store.url)
    ((first, value),) = store.values().items()
    answered(other, tmp_path / "here", store.url)
    (second,) = store.values().keys() - {first}
    store.write(second, value)
    assert answered(other, tmp_path / "there", store.url) == ["stored"]
    assert len(warnings) == 1 and "was not made with the key" in warnings[0].getMessage()


def test_many_poisoned_values_are_one_warning(
    store: Server | Files, tmp_path: Path, warnings: list[logging.LogRecord]
) -> None:
    for body in (program, other):
        compiled(body, tmp_path / "here", store.url)(X)
    for name in store.values():
        store.write(name, b"poison")
    for body in (program, other):
        function = compiled(body, tmp_path / "there", store.url)
        torch.testing.assert_close(function(X), body(X))
        assert happened(function) == ["stored"]
    assert len(warnings) == 1


def test_another_version_is_apart(
    store: Server | Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another windfall, torch or processor has values under names of its own, and so has another
    shared key: none disturbs the other, and there is nothing to warn of."""
    answered(program, tmp_path / "here", store.url)
    ours = store.values()
    real = key.surroundings
    for place in (key, remote):
        monkeypatch.setattr(place, "surroundings", lambda: real() + "\nanother version")
    assert answered(program, tmp_path / "there", store.url) == ["stored"]
    monkeypatch.undo()
    theirs = {one for one in store.values() if one not in ours}
    assert len(theirs) == 1
    assert theirs.pop().split("/")[1] != next(iter(ours)).split("/")[1]
    assert answered(program, tmp_path / "third", store.url) == ["found"]
    another = {"remote_cache_key": "the key of another team"}
    assert answered(program, tmp_path / "fourth", store.url, **another) == ["stored"]
    assert len(store.values()) == 3


def test_a_value_of_another_version_under_our_name(
    store: Server | Files, tmp_path: Path, warnings: list[logging.LogRecord]
) -> None:
    """Its machine code would be for another torch: the name is in the MAC, so it is refused."""
    answered(program, tmp_path / "here", store.url)
    (name,) = store.values()
    folder, room, last = name.split("/")
    elsewhere = RemoteStore(store.url, SECRET, seconds=PATIENT, limit=1 << 29, writable=True)
    elsewhere.__dict__["_room"] = room[::-1]  # as another version's is
    elsewhere.put(last, b"code of another version", "graph")
    written = store.values()[f"{folder}/{room[::-1]}/{last}"]
    store.write(name, written)
    assert answered(program, tmp_path / "there", store.url) == ["stored"]
    assert len(warnings) == 1


# ---------------------------------------------------------------------------------- what goes wrong


def test_an_outage(server: Server, tmp_path: Path, warnings: list[logging.LogRecord]) -> None:
    assert answered(program, tmp_path / "here", server.url) == ["stored"]
    server.stop()
    for body in (other, program):  # the second one asks nobody
        function = compiled(body, tmp_path / "there", server.url)
        torch.testing.assert_close(function(X), body(X))
        assert happened(function) == ["stored"]
    assert len(warnings) == 1
    assert "is not used any more: ConnectionError" in warnings[0].getMessage()


def test_a_server_that_goes_away_in_between(
    server: Server, tmp_path: Path, warnings: list[logging.LogRecord]
) -> None:
    first = compiled(program, tmp_path / "here", server.url)
    first(X)
    server.stop()
    second = compiled(other, tmp_path / "here", server.url)
    torch.testing.assert_close(second(X), other(X))
    assert happened(second) == ["stored"] and len(warnings) == 1


def test_two_seconds_of_latency(
    server: Server, tmp_path: Path, warnings: list[logging.LogRecord]
) -> None:
    """The server itself holds every command back. One request waits for its time-out; then nobody
    is asked, so that ten compilations do not wait ten times."""
    server.client.client_pause(20_000)
    store = RemoteStore(server.url, SECRET, seconds=0.25, limit=1 << 20, writable=True)
    start = time.monotonic()
    for number in range(10):
        assert store.get(f"{number:048x}") is None
        store.put(f"{number:048x}", b"data", "about")
    assert time.monotonic() - start < 2  # 20 requests of 2 s each, else
    assert len(warnings) == 1 and "remote_cache_seconds" in warnings[0].getMessage() + store.off
    assert answered(program, tmp_path / "here", server.url, remote_cache_seconds=0.25) == ["stored"]
    assert len(warnings) == 2  # of another process, as it were


class Slow:
    """A client without any time-out of its own."""

    def __init__(self, url: str, seconds: float) -> None:
        self.asked = 0

    def get(self, name: str, most: int) -> bytes | None:
        self.asked += 1
        time.sleep(2)
        return b"too late"

    def put(self, name: str, data: bytes) -> None:
        raise AssertionError("nobody asks any more")


def test_a_client_without_time_outs(
    monkeypatch: pytest.MonkeyPatch, warnings: list[logging.LogRecord]
) -> None:
    slow = Slow("", 0)
    monkeypatch.setattr(remote, "FileTransport", lambda url, seconds: slow)
    store = RemoteStore("slow://x", SECRET, seconds=0.1, limit=1 << 20, writable=True)
    start = time.monotonic()
    assert store.get("0") is None
    assert store.get("0") is None
    store.put("0", b"", "")
    assert time.monotonic() - start < 2 and slow.asked == 1
    assert [one.getMessage() for one in warnings] == [
        "the remote cache slow://x is not used any more: RemoteError: no answer in 0.1 s"
        " (remote_cache_seconds)"
    ]


def test_files_that_cannot_be_written(tmp_path: Path, warnings: list[logging.LogRecord]) -> None:
    (tmp_path / "shared").write_text("a file, where a folder should be")
    url = f"file://{tmp_path}/shared"
    assert answered(program, tmp_path / "here", url) == ["stored"]
    assert len(warnings) == 1


def test_a_package_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[logging.LogRecord]
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    assert answered(program, tmp_path / "here", "redis://127.0.0.1:1") == ["stored"]
    assert len(warnings) == 1 and "pip install windfall[redis]" in warnings[0].getMessage()
    assert answered(program, tmp_path / "there", "no-such-scheme://x") == ["stored"]
    assert len(warnings) == 2 and "no-such-scheme" in warnings[1].getMessage()


def test_a_child_after_a_fork_has_connections_of_its_own(server: Server, tmp_path: Path) -> None:
    store = RemoteStore(server.url, SECRET, seconds=PATIENT, limit=1 << 20, writable=True)
    store.put("1", b"of the parent", "graph")
    child = os.fork()
    if child == 0:
        fine = store.get("1") == ("graph", b"of the parent") and len(store._transports) == 2
        store.put("2", b"of the child", "graph")
        os._exit(0 if fine and not store.off else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("1") == ("graph", b"of the parent")
    assert store.get("2") == ("graph", b"of the child")


# ------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("given", "about"),
    [
        ({"remote_cache": "redis://h"}, "WINDFALL_REMOTE_CACHE_KEY"),
        ({"remote_cache": "redis://h", "remote_cache_key": "short"}, "at least 16 characters"),
        ({"remote_cache": "/mnt/x", "remote_cache_key": SECRET}, "must be a URL"),
        ({"remote_cache": 3}, "remote_cache must be a str"),
        ({"remote_cache_key": b"bytes"}, "remote_cache_key must be a str"),
        ({"remote_cache_seconds": 0}, "number of seconds"),
        ({"remote_cache_seconds": float("nan")}, "number of seconds"),
        ({"remote_cache_seconds": "soon"}, "number of seconds"),
        ({"remote_cache_write": "maybe"}, "remote_cache_write"),
    ],
)
def test_what_is_refused_at_once(given: dict[str, Any], about: str) -> None:
    with pytest.raises(windfall.UserError, match=about):
        windfall.compile(program, options=given)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE", "redis://user:hidden@host:1/2?password=hidden")
    with pytest.raises(windfall.UserError, match="WINDFALL_REMOTE_CACHE_KEY"):
        Options.checked()
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE_KEY", SECRET)
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE_WRITE", "0")
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE_SECONDS", "1.5")
    chosen = Options.checked()
    assert (chosen.remote_cache_write, chosen.remote_cache_seconds) == (False, 1.5)
    assert "hidden" not in repr(chosen) and SECRET not in repr(chosen)
    assert remote.without_password(chosen.remote_cache) == "redis://…@host:1/2"
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE_SECONDS", "soon")
    with pytest.raises(windfall.UserError, match="seconds"):
        Options.checked()


def test_the_doctor(store: Server | Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "none" in doctor.examined()["remote cache"].what
    monkeypatch.setenv("WINDFALL_CACHE", "on")
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE", store.url)
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE_KEY", SECRET)
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE_SECONDS", str(PATIENT))
    assert doctor.examined()["remote cache"].what == "it answers"
    remote._opened.cache_clear()
    monkeypatch.setenv("WINDFALL_REMOTE_CACHE", "no-such-scheme://x")
    found = doctor.examined()["remote cache"]
    assert "not used" in found.what and "unset WINDFALL_REMOTE_CACHE" in found.advice
