"""How often memory is asked for between kernels, and between segments, of a replay: never."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trees.interposed import counted

SEGMENTS = """
import json, sys
mode = {mode!r}
seen, place = [0] * 10000, [0]

@windfall.disable
def look():
    seen[place[0]] = allocations()  # a list that grows would ask for memory
    place[0] += 1

def program(x):
    for _ in range(8):
        x = torch.relu(x * 1.5) - 0.25
        x = x - x.mean(-1, keepdim=True)
        look()
    return x.sum()

f = windfall.compile(program, mode=mode)
x = torch.randn(8, 32)
gc.disable()
with torch.no_grad():
    for _ in range(50):
        f(x)
    first = place[0]
    for _ in range(100):
        f(x)
seen = seen[first : place[0]]
steps = [b - a for a, b in zip(seen, seen[1:])]
inside = [one for place, one in enumerate(steps) if place % 8 != 7]
print(json.dumps([sum(inside), len(inside)]))
"""


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_between_the_segments_of_a_call(mode: str, tmp_path: Path) -> None:
    asked, segments = json.loads(counted(SEGMENTS.format(mode=mode), tmp_path))
    assert segments == 700
    if mode == "default":  # the counter counts: storage, memory and TensorImpl of each result
        assert asked >= 3 * segments
    else:
        assert asked == 0


KERNELS = """
import json
def program(x, count):
    for _ in range(count):
        x = torch.softmax(x * 1.5, -1) @ x.mT @ x
    windfall.graph_break()
    return x.sum()

found = []
for count in (1, 6):
    options = {"trees": windfall.TreeOptions(minimum_bytes=0)}
    f = windfall.compile(program, mode="reduce-overhead", options=options)
    x = torch.randn(16, 16)
    gc.disable()
    with torch.no_grad():
        for _ in range(30):
            f(x, count)
        told = windfall.explanation(f)
        kernels = len(told.kernels())
        before = allocations()
        for _ in range(100):
            f(x, count)
        found.append([kernels, allocations() - before, "replayed" in str(told.trees)])
print(json.dumps(found))
"""


def test_between_the_kernels_of_a_replay(tmp_path: Path) -> None:
    """A replay of many kernels asks for as much memory as one of few: for its results alone."""
    (few, some, first), (many, more, second) = json.loads(counted(KERNELS, tmp_path))
    assert first and second
    assert many >= few + 5
    assert more == some
