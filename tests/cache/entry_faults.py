"""python -m tests.cache.entry_faults FOLDER: what goes wrong with the disk while programs compile.

Enters: faults by their names. Leaves: a line of JSON for each: what processes did that met it, and
one after it: answers that differ from eager's, warnings, what the cache did. Each process is forked
from this one, which has torch and windfall loaded and has compiled none of these programs.
"""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import windfall
from tests.cache import forking
from windfall.cache import store as stores

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Model(nn.Module):
    """A module and a function beside it: entries, graphs, a backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).tanh() * 2


def beside(x: torch.Tensor) -> torch.Tensor:
    return (x * 3 + 1).sin().sum(-1)


def work(folder: Path, **options: Any) -> dict[str, Any]:
    """Compile and run; what was wrong, what was warned of, what the cache did."""
    records: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("windfall").addHandler(handler)
    chosen = {"cache": "on", "cache_dir": str(folder), "verify": False, **options}
    torch.manual_seed(0)
    model, wrong, how = Model(), [], []
    for target in (model, beside):
        call = windfall.compile(target, options=chosen)
        gradients = []
        for one in (call, target):
            x = X.clone().requires_grad_()
            answer = one(x)
            answer.sum().backward()
            gradients.append((answer.detach(), x.grad))
        if not all(map(torch.allclose, *gradients)):
            wrong.append(str(target))
        told = windfall.explanation(call)
        how += [event.facts["how"] for event in told.events if event.kind == "cache"]
        wrong += [str(event.facts) for event in told.events if event.kind == "fallback"]
    return {"wrong": wrong, "warned": records, "how": how}


def begun(task: Callable[[], dict[str, Any]]) -> tuple[int, int]:
    """A process that does a task, and where its answer is read."""
    reads, writes = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(reads)
        try:
            told = task()
        except BaseException as error:
            told = {"wrong": [f"{type(error).__name__}: {error}"], "warned": [], "how": []}
        os.write(writes, json.dumps(told).encode())
        os._exit(0)
    os.close(writes)
    return number, reads


def ended(number: int, reads: int) -> dict[str, Any]:
    """What it answered; `killed` where it did not."""
    with os.fdopen(reads, "rb") as file:
        text = file.read()
    os.waitpid(number, 0)
    found: dict[str, Any] = json.loads(text or '{"wrong": [], "warned": [], "how": ["killed"]}')
    return found


def forked(task: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return ended(*begun(task))


def plainly(folder: Path) -> dict[str, Any]:
    return forked(lambda: work(folder))


# --------------------------------------------------------------------------------------- faults


def full_disk(folder: Path) -> Iterator[dict[str, Any]]:
    """No file may grow past a few kilobytes: writes fail in the middle."""

    def task(limit: int) -> dict[str, Any]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return work(folder)

    for limit in (0, 1000, 20_000, 40_000):
        yield forked(lambda limit=limit: task(limit))


def read_only(folder: Path) -> Iterator[dict[str, Any]]:
    """Somebody else fills it; this process may only read."""
    yield forked(lambda: work(folder, cache="read"))
    yield plainly(folder)
    yield forked(lambda: work(folder, cache="read"))


def killed(folder: Path) -> Iterator[dict[str, Any]]:
    """By nobody's leave, before, between and behind all statements that the database is sent."""

    def task(steps: int) -> dict[str, Any]:
        left = [steps]
        write = stores.DiskStore._write

        def counted(self: Any, connection: Any, *statements: tuple[str, Any]) -> None:
            def step() -> None:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            step()
            connection.execute("begin immediate")
            for statement, values in statements:
                connection.execute(statement, values)
                step()
            connection.execute("rollback")
            write(self, connection, *statements)
            step()

        stores.DiskStore._write = counted  # type: ignore[method-assign]
        return work(folder)

    for steps in range(1, 60):
        told = forked(lambda steps=steps: task(steps))
        yield told
        if told["how"] != ["killed"]:
            break
        yield plainly(folder) if steps % 4 == 0 else {"wrong": [], "warned": [], "how": []}


def bits(folder: Path) -> Iterator[dict[str, Any]]:
    """Flipped all over the file."""
    chance = random.Random(0)
    for flips in (1, 3, 30, 3000):
        yield plainly(folder)
        file = folder / stores.NAME
        data = bytearray(file.read_bytes())
        for _ in range(flips):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        yield plainly(folder)


def truncated(folder: Path) -> Iterator[dict[str, Any]]:
    for part in (0.0, 0.1, 0.5, 0.9):
        yield plainly(folder)
        file = folder / stores.NAME
        os.truncate(file, int(file.stat().st_size * part))
        yield plainly(folder)


def many_at_once(folder: Path) -> Iterator[dict[str, Any]]:
    """32 processes, cold."""
    children = [begun(lambda: work(folder)) for _ in range(32)]
    yield from (ended(*child) for child in children)


def fork_in_the_middle(folder: Path) -> Iterator[dict[str, Any]]:
    """A process with an open cache forks; both go on with it at once."""

    def task() -> dict[str, Any]:
        first = work(folder)
        child = begun(lambda: work(folder))
        second = work(folder)
        third = ended(*child)
        return {name: first[name] + second[name] + third[name] for name in first}

    yield forked(task)


def clock_goes_back(folder: Path) -> Iterator[dict[str, Any]]:
    real = time.time

    def task(now: float) -> dict[str, Any]:
        time.time = lambda: now
        return work(folder)

    for now in (real(), real() - 1e9, 0.0, real() + 1e9):
        yield forked(lambda now=now: task(now))


def two_instruction_sets(folder: Path) -> Iterator[dict[str, Any]]:
    """Each with code of its own, in one folder."""
    for target in ("x86-64-v2", "x86-64-v3", "x86-64-v2", "x86-64-v3"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.cache.entry_faults", "work", str(folder)],
            capture_output=True,
            text=True,
            env={**os.environ, "WINDFALL_TARGET": target},
        )
        yield json.loads(done.stdout or json.dumps({"wrong": [done.stderr[-500:]]}))


def no_execution(folder: Path) -> Iterator[dict[str, Any]]:
    """A file system whose files may not be executed: nothing is."""
    folder.mkdir(mode=0o700)
    options = "noexec,nosuid,nodev,size=8m,mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        return
    try:
        yield plainly(folder)
        yield plainly(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def small_disk(folder: Path) -> Iterator[dict[str, Any]]:
    """A disk that is really full."""
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        return
    try:
        yield plainly(folder)
        yield plainly(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


FAULTS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    one.__name__: one
    for one in (
        full_disk, small_disk, read_only, no_execution, killed, bits, truncated, many_at_once,
        fork_in_the_middle, clock_goes_back, two_instruction_sets,
    )
}  # fmt: skip


def main(folder: Path) -> None:
    forking.load()
    for name, fault in FAULTS.items():
        place = folder / name
        seen = list(fault(place))
        after = [plainly(place) for _ in range(2)] if place.exists() else []
        print(json.dumps([name, seen, after]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        torch.set_num_threads(1)
        print(json.dumps(work(Path(sys.argv[2]))))
    else:
        main(Path(sys.argv[1]))
