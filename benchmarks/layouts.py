"""What a convolution costs in each layout: the measurements behind `codegen/arrange.py`.

Enters: nothing. Leaves: a table: what each convolution takes of one thread row-major, channels-last
with the weights where they are, and what the rule of `arrange` expects to be gained.
Invariant: the least of many rounds, contenders in turn.

    python -m benchmarks.layouts [--rounds 15]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from windfall import torch_abi
from windfall.codegen.layout_assignment import gain_of

# Channels of input and result, window, stride, groups, width of the image, dimensions of the image.
SHAPES = (
    (3, 64, 7, 2, 1, 224, 2),
    (3, 64, 3, 1, 1, 224, 2),
    (3, 32, 3, 2, 1, 224, 2),
    (64, 64, 3, 1, 1, 56, 2),
    (64, 128, 3, 2, 1, 56, 2),
    (64, 128, 1, 2, 1, 56, 2),
    (128, 128, 3, 1, 1, 28, 2),
    (256, 256, 3, 1, 1, 14, 2),
    (256, 512, 1, 2, 1, 14, 2),
    (512, 512, 3, 1, 1, 7, 2),
    (512, 512, 3, 1, 1, 14, 2),
    (3, 64, 3, 1, 1, 32, 2),
    (64, 64, 3, 1, 1, 32, 2),
    (128, 128, 3, 1, 1, 16, 2),
    (256, 256, 3, 1, 1, 8, 2),
    (512, 512, 3, 1, 1, 4, 2),
    (64, 64, 3, 1, 1, 16, 2),
    (32, 128, 1, 1, 1, 112, 2),
    (128, 32, 1, 1, 1, 56, 2),
    (384, 64, 1, 1, 1, 14, 2),
    (160, 1280, 1, 1, 1, 7, 2),
    (128, 128, 3, 1, 128, 112, 2),
    (128, 128, 3, 2, 128, 56, 2),
    (384, 384, 3, 1, 384, 14, 2),
    (64, 64, 3, 1, 4, 56, 2),
    (1, 6, 5, 1, 1, 28, 2),
    (6, 16, 5, 1, 1, 14, 2),
    (3, 16, 3, 1, 1, 28, 3),
    (16, 32, 3, 1, 1, 28, 3),
    (64, 64, 3, 1, 1, 14, 3),
)


def fastest(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Nanoseconds of each, the least of many rounds."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            start = time.thread_time_ns()
            call()
            best[place] = min(best[place], time.thread_time_ns() - start)
    return best


def measured(rounds: int) -> Iterator[tuple[str, float, float, float]]:
    """Each convolution: its name, ns row-major, ns channels-last, ns that should be gained."""
    for batch in (1, 2, 8):
        for shape in SHAPES:
            yield one(batch, *shape, rounds=rounds)


def one(
    batch: int,
    given: int,
    made: int,
    window: int,
    stride: int,
    groups: int,
    width: int,
    rank: int,
    *,
    rounds: int,
) -> tuple[str, float, float, float]:
    """One row of the table."""
    overload = torch_abi.described_convolution()
    steps, pads, ones, zeros = ([each] * rank for each in (stride, window // 2, 1, 0))
    x = torch.randn(batch, given, *[width] * rank)
    last = x.contiguous(memory_format=torch.channels_last if rank == 2 else torch.channels_last_3d)
    weight = torch.randn(made, given // groups, *[window] * rank)
    described = weight.to_mkldnn()

    def row_major() -> torch.Tensor:
        return torch.convolution(x, weight, None, steps, pads, ones, False, zeros, groups)

    def channels_last() -> object:
        return overload(last, described, None, pads, steps, ones, groups, "none", [], None)

    out = row_major()
    plain, other = fastest([row_major, channels_last], rounds)
    name = f"{batch} x {given}>{made} {window}/{stride} g{groups} {width}^{rank}"
    return name, plain, other, gain_of(x.numel(), out.numel(), weight.shape, groups)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with torch.no_grad():
        for name, plain, other, expected in measured(rounds):
            print(
                f"{name:34} row-major {plain / 1e6:9.3f} ms, channels-last {other / 1e6:9.3f} ms, "
                f"ratio {other / plain:.2f}, gained {(plain - other) / 1e6:8.3f}, "
                f"expected {expected / 1e6:8.3f}"
            )


if __name__ == "__main__":
    main()
