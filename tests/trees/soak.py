"""For long: `python -m tests.trees.soak [REPLAYS] [RERECORDS] [THREADS SECONDS]`.

Replays of a program with breaks, then re-records (a result is held at ever other times), then
threads; all of it with recordings, then with regions that are too small for that and recycle
objects (ADR 76). Values are compared; resident memory after the first tenth and at the end is
printed, and must not have grown by more than a tenth and 32 MB.
"""

from __future__ import annotations

import gc
import resource
import sys
import threading
import time
from typing import Any

import torch

import windfall
from windfall.options import TreeOptions

OPTIONS = TreeOptions(minimum_bytes=0, recordings=64)
HELD: list[Any] = []


@windfall.disable
def maybe_hold(t: torch.Tensor) -> None:
    if HELD and HELD[0] is not None:
        HELD.append(t)


def program(x: torch.Tensor) -> torch.Tensor:
    h = torch.sin(x) + 1
    maybe_hold(h)
    h = h * 2
    windfall.graph_break()
    return h.sum(-1)


def resident() -> int:
    """Bytes now; the peak where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_memory(what: str, before: int) -> None:
    gc.collect()
    after = resident()
    print(f"{what}: {before >> 20} MB, then {after >> 20} MB", flush=True)
    assert after <= before * 1.1 + (32 << 20), what


def replays(f: Any, count: int) -> None:
    x = torch.randn(16, 16)
    expected, before = program(x), 0
    for number in range(count):
        result = f(x)
        if number % 97 == 0:
            torch.testing.assert_close(result, expected)
        if number == count // 10:
            before = resident()
    check_memory(f"{count} replays", before)


def rerecords(f: Any, count: int) -> None:
    before = 0
    for number in range(count):
        HELD[:] = [True] if number % 3 else [None]
        x = torch.full((4 + number % 7, 16), float(number % 5))
        torch.testing.assert_close(f(x), (torch.sin(x) + 1).mul(2).sum(-1))
        if number % 11 == 0:
            HELD[:] = [None]
        if number == count // 10:
            before = resident()
    HELD.clear()
    check_memory(f"{count} calls that hold and re-record", before)


def threads(f: Any, count: int, seconds: float) -> None:
    wrong: list[str] = []
    end = time.monotonic() + seconds

    def run(number: int) -> None:
        x = torch.full((8, 16), float(number))
        expected = program(x)
        while time.monotonic() < end:
            if not torch.allclose(f(x), expected, atol=1e-4):
                wrong.append(f"thread {number}")
                return

    some = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    before = resident()
    for one in some:
        one.start()
    for one in some:
        one.join()
    assert not wrong, wrong
    check_memory(f"{count} threads, {seconds} s", before + count * (4 << 20))


def main(arguments: list[str]) -> None:
    numbers = [int(one) for one in arguments] + [100_000, 1_000, 32, 60][len(arguments) :]
    for trees in (OPTIONS, TreeOptions()):
        print(f"minimum_bytes={trees.minimum_bytes}", flush=True)
        options: dict[str, Any] = {"trees": trees, "strict": True}
        f = windfall.compile(program, mode="reduce-overhead", options=options, dynamic=True)
        g = windfall.compile(program, mode="reduce-overhead", options=options, dynamic=False)
        replays(g, numbers[0])
        rerecords(f, numbers[1])
        threads(g, numbers[2], numbers[3])


if __name__ == "__main__":
    main(sys.argv[1:])
