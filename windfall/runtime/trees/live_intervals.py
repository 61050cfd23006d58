"""Places in a pool: where something fits around what is alive.

Enters: intervals that are taken, bytes that are wanted. Leaves: offsets. Invariant: what is placed
overlaps nothing that is taken; the lowest place that fits is taken, so that a pool grows no further
than it must. The state of a pool is the set of its live intervals, and nothing else: to restore it
is to pass another set.

    >>> place([(0, 64), (128, 192)], [64, 100])
    ([64, 192], [(0, 64), (64, 128), (128, 192), (192, 292)])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ALIGNMENT = 64

Interval = tuple[int, int]


def aligned(offset: int) -> int:
    """The next offset that something may start at."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def place(taken: Iterable[Interval], wanted: Sequence[int]) -> tuple[list[int], list[Interval]]:
    """An offset for each of these sizes, in order, and all that is taken then."""
    held = sorted(taken)
    offsets = []
    for size in wanted:
        start = 0
        for first, last in held:
            if start + size <= first:
                break
            start = max(start, aligned(last))
        offsets.append(start)
        if size:
            held = sorted([*held, (start, start + size)])
    return offsets, held


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The same ground in as few intervals as can be."""
    found: list[Interval] = []
    for first, last in sorted(one for one in intervals if one[0] < one[1]):
        if found and first <= aligned(found[-1][1]):
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)
