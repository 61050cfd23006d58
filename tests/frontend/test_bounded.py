"""A capture's size depends on the program and not on the numbers in it: `bounded_programs.py`.

Each program runs with a small number, where nothing is left to CPython for its size, and with a
large one, where something is, with its reason, and few instructions were interpreted. No time is
measured here (`python -m tests.conformance.bounded` does); the alarm only ends what hangs.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.conformance.bounded_programs import PROGRAMS, Program
from tests.frontend.driver import EagerCompiled, same
from windfall.frontend import bounds
from windfall.frontend.breaks import BUDGET, HOT_RECURSION, IDLE_LOOP, LARGE_GRAPH, TOO_LARGE

BOUNDS = {row.number for row in (BUDGET, HOT_RECURSION, IDLE_LOOP, LARGE_GRAPH, TOO_LARGE)}
MOST_OPERATIONS = 80_000  # interpreted, in all captures of one call
MOST_CAPTURES = 60
# With the large number too these need no bound: what they compute is small.
SMALL_ANYWAY = {"contained_in_range", "integer_of_text", "power_modulo"}


class Counting(EagerCompiled):
    """Tells why it was left to CPython, and how much was interpreted."""

    def reasons(self) -> set[int]:
        """The numbers of all breaks, also of those that the driver of segments counted."""
        found = {one.number for one in self.breaks}
        for event in self.log.snapshot("fallback"):
            assert event.facts["reason"].startswith(f"W{IDLE_LOOP.number:04d}"), event.facts
            found.add(IDLE_LOOP.number)
        return found

    def operations(self) -> int:
        return sum(one.operations for one in self.captures)


@pytest.fixture(autouse=True)
def hang_guard() -> Iterator[None]:
    """What never ends fails, and does not stop the other tests."""
    signal.alarm(120)
    yield
    signal.alarm(0)


def outcome(function: Any, given: Any) -> Any:
    """The answer, or the class and text of what is raised."""
    try:
        return function(given)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_small_programs_are_captured(program: Program) -> None:
    compiled = Counting(program.function)
    expected = outcome(program.function, program.make(program.small))
    assert same(outcome(compiled, program.make(program.small)), expected)
    assert not compiled.reasons() & BOUNDS


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_large_programs_run_natively(program: Program) -> None:
    compiled = Counting(program.function)
    expected = outcome(program.function, program.make(program.medium))
    assert same(outcome(compiled, program.make(program.medium)), expected)
    assert bool(compiled.reasons() & BOUNDS) == (program.name not in SMALL_ANYWAY)
    assert compiled.operations() < MOST_OPERATIONS
    assert len(compiled.captures) < MOST_CAPTURES


@pytest.mark.parametrize("name", ["list_of_range", "plain_loop", "callee_breaks", "fibonacci"])
def test_tensor_work_around_is_captured(name: str) -> None:
    program = PROGRAMS[name]

    def between(x: torch.Tensor, n: int) -> Any:
        y = torch.sin(x) + 1
        found = program.function(n)
        return found, torch.cos(y) * 2

    compiled = Counting(between)
    x = torch.linspace(0, 1, 5)
    assert same(compiled(x, program.medium), between(x, program.medium))
    targets = [str(node.target) for one in compiled.graphs for node in one.graph.nodes]
    assert any("sin" in one for one in targets) and any("cos" in one for one in targets)


def test_a_large_argument_after_a_small_one() -> None:
    def total(items: Any) -> Any:
        return len(items), sum(items), [*items][-1], items[0]

    compiled = Counting(total)
    for count in (3, 10_000, 3, 4, 10_000, 5_000):
        for kind in (list, tuple):
            assert compiled(kind(range(count))) == total(kind(range(count)))
    assert TOO_LARGE.number in compiled.reasons()


def test_one_item_of_a_long_list() -> None:
    """Only that one is looked at; the length is relied upon."""

    def item(items: list[int], x: torch.Tensor) -> Any:
        return x + items[-1], items[2]

    compiled = Counting(item)
    x = torch.ones(2)
    for items in (list(range(9_000)), list(range(9_001)), [7, *range(9_000)]):
        assert same(compiled(items, x), item(items, x))
    assert not compiled.reasons() & BOUNDS
    with pytest.raises(IndexError, match="list index out of range"):
        Counting(lambda items: items[9_000])(list(range(9_000)))


def test_an_item_that_varies_is_no_iterator() -> None:
    """A round of `for` that ends natively after its generator has answered takes the answer."""

    def differences(n: int) -> int:
        return sum(b - a for a, b in itertools.pairwise(range(n)))

    assert Counting(differences)(5_000) == 4_999


def test_large_constants_of_the_code() -> None:
    text = f"def member(x):\n    return x in {tuple(range(5_000))}, len({tuple(range(5_000))})"
    space: dict[str, Any] = {}
    exec(text, space)
    for given in (3, -1):
        assert Counting(space["member"])(given) == space["member"](given)


@pytest.mark.parametrize("name", ["format_width", "string_justified", "string_times", "list_times"])
def test_widths_that_vary(name: str) -> None:
    """What is tried at extreme numbers is not tried at a width."""
    program = PROGRAMS[name]
    compiled = Counting(program.function)
    for n in (5, 6, 7, 100_000, 100_001):
        assert same(compiled(n), program.function(n))


def test_integers_that_python_does_not_print() -> None:
    def power(n: int) -> Any:
        return 3**n + 1

    for n in (9_000, 20_000):  # of more than 4,300 digits, below and above the bound
        assert Counting(power)(n) == power(n)


@pytest.mark.parametrize(
    ("name", "count", "length"),
    [
        *((name, n, r) for name in ("permutations", "combinations") for n in range(7)
          for r in (None, 0, 1, 2, 3, 6, 8)),
        *(("combinations_with_replacement", n, r) for n in range(5) for r in (0, 1, 2, 3, 5)),
    ],
)  # fmt: skip
def test_counts_of_choices(name: str, count: int, length: int | None) -> None:
    if name == "combinations" and length is None:
        return
    given = (count,) if length is None else (count, length)
    made = getattr(itertools, name)(range(given[0]), *given[1:])
    assert bounds.chosen_count(name, count, length) == sum(1 for _ in made)


@pytest.mark.parametrize(
    "plain",
    [range(0), range(5), range(5, 0), range(5, 0, -2), range(0, 7, 3), range(-3, 9, 4)],
    ids=repr,
)
def test_length_of_ranges(plain: range) -> None:
    assert bounds.range_length(plain) == len(plain)
    assert bounds.range_length(range(2**70)) == 2**70
