"""Distances at which a sequence repeats itself.

Enters: one number for each element; equal ones do the same. Leaves: `periods`, the likeliest first,
for whoever looks for equal blocks (`autograd/repeats.py` in what was captured, `codegen/regions.py`
in what is lowered). Invariant: these are guesses; who takes one up compares element by element.

    >>> periods([7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8], gram=2)
    [3]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

CANDIDATES = 6  # distances with the most votes that are looked at


def periods(tokens: Sequence[int], gram: int) -> list[int]:
    """Distances between equal runs of `gram` elements, those with the most votes first."""
    last: dict[tuple[int, ...], int] = {}
    votes: Counter[int] = Counter()
    for place in range(len(tokens) - gram + 1):
        run = tuple(tokens[place : place + gram])
        if run in last:
            votes[place - last[run]] += 1
        last[run] = place
    return [one for one, _ in votes.most_common(CANDIDATES)]
