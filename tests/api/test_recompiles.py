"""Compiling again: why, told with source, expected, actual and line; least recently used entries go
instead of everything falling back to eager."""

from __future__ import annotations

import gc
import math
import re
import weakref
from typing import Any

import pytest
import torch

import windfall


def program(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def sizes(compiled: Any) -> list[int]:
    """The first sizes of the inputs for which there are entries, in the order they are tried."""
    found = []
    for entry in windfall.cache_entries(compiled):
        text = next(guard for guard in entry.guards if guard.startswith("L['x'] is Tensor"))
        found.append(int(re.findall(r"\[(\d+)", text)[-1]))
    return found


BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "python"])


@BOTH
def test_the_least_recently_used_entry_goes(native: bool) -> None:
    compiled = windfall.compile(
        program, dynamic=False, recompile_limit=3, options={"native": native}
    )

    def call(size: int) -> None:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x))

    for size in (4, 5, 6):
        call(size)
    call(4)  # now 5 is the one that was used longest ago
    call(7)
    assert sorted(sizes(compiled)) == [4, 6, 7]
    call(6)
    call(4)
    call(8)
    assert sorted(sizes(compiled)) == [4, 6, 8]
    made = windfall.explanation(compiled)
    assert len(made.captures) == 5 and made.evictions == 2 and not made.fallbacks


@BOTH
def test_what_stays_is_tried_in_the_order_of_last_use(native: bool) -> None:
    compiled = windfall.compile(program, dynamic=False, options={"native": native})
    for size in (4, 5, 6, 4, 7):
        compiled(torch.randn(size))
    assert sizes(compiled) == [7, 4, 6, 5]


def test_an_entry_that_went_is_freed_and_compiled_again_when_needed() -> None:
    compiled = windfall.compile(program, dynamic=False, recompile_limit=1)
    compiled(torch.randn(4))
    (entry,) = compiled.entries().values()
    seen = weakref.ref(entry[0].call)
    del entry
    compiled(torch.randn(5))
    compiled.log._events.clear()  # reports hold the last compilations
    gc.collect()
    assert seen() is None
    assert compiled(torch.randn(4)).shape == (4,)


def test_more_shapes_than_entries_never_run_eagerly() -> None:
    runs = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        if not windfall.is_compiling():
            runs.append(x.shape)
        return x + 1

    compiled = windfall.compile(counted, dynamic=False, recompile_limit=4)
    for size in range(1, 12):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), x + 1)
    assert not runs and not windfall.explanation(compiled).fallbacks
    assert len(windfall.cache_entries(compiled)) == 4


def test_objects_do_not_share_their_entries() -> None:
    first = windfall.compile(program, dynamic=False)
    second = windfall.compile(program, dynamic=False)
    for size in (3, 4, 5):
        first(torch.randn(size))
    second(torch.randn(3))
    assert len(windfall.cache_entries(first)) == 3 and len(windfall.cache_entries(second)) == 1


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


def uses(box: Box, x: torch.Tensor, items: list[Any], flag: str) -> torch.Tensor:
    if flag == "plus":  # the flag's line
        x = x + 1
    for item in items:
        x = x * item
    return x - box.value if box.value is not None else x


BASE: tuple[Any, ...] = (Box(None), torch.ones(3, 2), [2], "plus")
CHANGES: dict[str, tuple[int, Any, list[str]]] = {
    "a size": (1, torch.ones(4, 2), ["L['x']", r"expected .*\[3, 2\]", r"got .*\[4, 2\]"]),
    "a dtype": (1, torch.ones(3, 2).double(), ["L['x']", "expected f32", "got f64"]),
    "a stride": (1, torch.ones(2, 3).t(), ["L['x']", "got "]),
    "a gradient": (1, torch.ones(3, 2, requires_grad=True), ["L['x']", "got "]),
    "no tensor": (1, 3.0, ["L['x']", "expected f32", "got 3.0"]),
    "a length": (2, [2, 3], ["L['items']", "expected is list of length 1", "got length 2"]),
    "a class": (2, (2,), ["L['items']", "expected is list of length 1", "got type tuple"]),
    "a string": (3, "minus", ["L['flag']", "expected == 'plus'", "got 'minus'", "in uses"]),
    "an attribute": (0, Box(2.0), ["value", "expected ", "got 2.0"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_reason_has_source_expected_actual_and_line(name: str) -> None:
    position, value, wanted = CHANGES[name]
    compiled = windfall.compile(uses, dynamic=False)
    compiled(*BASE)
    changed = list(BASE)
    changed[position] = value
    torch.testing.assert_close(compiled(*changed), uses(*changed))
    (reason,) = windfall.explanation(compiled).recompiles
    for part in wanted:
        assert re.search(part if "\\" in part or "*" in part else re.escape(part), reason), reason


def test_the_reason_names_the_line_that_made_it_a_condition() -> None:
    compiled = windfall.compile(uses, dynamic=False)
    compiled(*BASE)
    compiled(*BASE[:3], "minus")
    (reason,) = windfall.explanation(compiled).recompiles
    found = re.search(r"test_recompiles\.py:(\d+) in uses", reason)
    assert found is not None, reason
    with open(__file__) as file:
        assert "# the flag's line" in file.readlines()[int(found[1]) - 1]


def test_the_mode_of_the_thread() -> None:
    compiled = windfall.compile(program)
    x = torch.randn(3)
    compiled(x)
    with torch.no_grad():
        compiled(x)
    (reason,) = windfall.explanation(compiled).recompiles
    assert "expected ambient grad=True" in reason and "got ambient grad=False" in reason


def test_explain_and_the_log_tell_it(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = windfall.compile(
        program, dynamic=False, name="mine", recompile_limit=1,
        options={"logs": ("recompiles", "evictions")},
    )  # fmt: skip
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    error = capsys.readouterr().err
    assert "[windfall mine] recompiles of call program(x)" in error
    assert re.search(r"L\['x'\]: expected .*\[3\].*, got .*\[4\]", error)
    assert "the entry that was used longest ago went" in error
    explained = windfall.explanation(compiled)
    assert "compiled again: call program(x)" in str(explained)
    assert "1 entry went" in str(explained)
    assert explained.to_dict()["recompiles"] == explained.recompiles
    assert explained.to_dict()["evictions"] == 1


def test_printing_a_reason_runs_no_user_code() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("printed")

        __str__ = __repr__

    def function(x: torch.Tensor, other: Any) -> torch.Tensor:
        return x + 1 if isinstance(other, int) else x - 1

    compiled = windfall.compile(function)
    compiled(torch.ones(2), 3)
    compiled(torch.ones(2), Loud())
    assert "Loud" in windfall.explanation(compiled).recompiles[0]


def test_the_log_of_an_object_that_compiles_for_ever_is_bounded() -> None:
    compiled = windfall.compile(program)
    for _ in range(3 * compiled.log.KEPT):
        compiled.log.add("note", "nothing")
    assert len(compiled.log.snapshot()) == compiled.log.KEPT


# Ten values each: how many compilations they may take.
VARIED: dict[str, tuple[list[Any], int]] = {
    "ints": ([3, 4, 5, -6, 7, 80, 9, 10, 11, 12], 2),
    "ints with 0 and 1": ([0, 1, 2, 3, 4, 5, 6, 7, 1, 0], 2),
    "floats": ([0.5, 1.5, -2.0, 3e9, 4.0, 5.5, 6.25, 7.0, 0.1, 9.0], 2),
    "strange floats": ([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, math.nan, 2.0, 3.0, 4.0], 3),
    "bools": ([True, False] * 5, 2),
    "None": ([None, 2] * 5, 2),
    "strings": (["a", "bb"] * 5, 2),
    "complex": ([1j, 2j] * 5, 2),
    "kinds": ([1, 1.0, True, "a", None, 1j, 1, 1.0, True, "a"], 6),
    "large ints": ([2**40, 2**62, 3, -(2**62), 5, 6, 7, 8, 9, 10], 4),
}


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("kind", VARIED)
def test_numbers_and_words_that_vary(kind: str, native: bool) -> None:
    def varied(x: torch.Tensor, value: Any) -> torch.Tensor:
        if value is None:
            return x
        return x + len(value) if isinstance(value, str) else x * value

    values, most = VARIED[kind]
    compiled = windfall.compile(varied, options={"native": native})
    x = torch.linspace(-1, 1, 5)
    for value in values:
        ours, theirs = compiled(x, value), varied(x, value)
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=0, atol=0)
        assert torch.equal(torch.signbit(ours.real), torch.signbit(theirs.real))
    made = windfall.explanation(compiled)
    assert len(made.captures) <= most and not made.fallbacks
