"""What a function passes on is the very object that it got: containers that are chosen among,
sorted, joined or copied keep their identity, and what is written to one is seen in the other.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.frontend.ways import way


def largest(a: Any, b: Any) -> Any:
    return max([a, b]), max(a, b), max((a, b), key=len)


def smallest(a: Any, b: Any) -> Any:
    return min([a, b]), min(a, b), min((a, b), key=len)


def in_order(a: Any, b: Any) -> Any:
    return sorted([b, a])[0], sorted((b, a), key=len)[0], sorted([b, a], reverse=True)[0]


def sorted_in_place(a: Any, b: Any) -> Any:
    items = [b, a]
    items.sort()
    return items[0], items[1]


def summed(a: Any, b: Any) -> Any:
    return sum([[a], [b]], [])[0], operator.concat([a], [b])[1]  # noqa: RUF017


def picked(a: Any, b: Any) -> Any:
    return operator.getitem([a, b], 1), operator.itemgetter(0)([a, b])


CHOICES = [largest, smallest, in_order, sorted_in_place, summed, picked]


@pytest.mark.parametrize("choose", CHOICES)
def test_a_list_that_is_chosen_is_the_same_list(choose: Callable[[Any, Any], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        a, b = [1], [2]
        found = choose(a, b)
        which = []
        for one in found:
            which.append((one is a, one is b))
            one.append(len(one) + 5)
        return which, a, b, found, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))


@pytest.mark.parametrize("choose", [largest, smallest, in_order, sorted_in_place])
def test_a_tuple_that_is_chosen_is_the_same_tuple(choose: Callable[[Any, Any], Any]) -> None:
    def program(n: int, x: torch.Tensor) -> Any:
        a, b = (n,), (n, n)
        found = choose(a, b)
        windfall.graph_break()
        which = []
        for one in found:
            which.append((one is a, one is b))
        return which, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(3, x)) == str(program(3, x))


def test_numbers_are_chosen_among_without_a_break() -> None:
    def program(x: torch.Tensor) -> Any:
        sizes = [3, 1, 2]
        return x * max(sizes) + min(3, 4) + sorted(sizes)[0] + sorted({5: 1, 4: 2})[0]

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert torch.equal(compiled(x), program(x))
    assert way(compiled) == "compiled"


def test_a_tuple_that_a_list_in_it_holds_is_copied_once() -> None:
    def program(x: torch.Tensor) -> Any:
        made: Any = ([], x)
        made[0].append(made)
        copied = copy.deepcopy(([made[0]],))
        return copied[0][0][0][0] is copied[0][0], x + 1

    compiled = windfall.compile(program, backend="eager")
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))


def test_lists_that_change_while_they_are_compared() -> None:
    def program(x: torch.Tensor) -> Any:
        class Clearing:
            def __init__(self, name: str) -> None:
                self.name = name

            def __eq__(self, other: object) -> Any:
                lists[self.name].clear()
                return NotImplemented

        lists: dict[str, list[Any]] = {}
        lists["a"], lists["b"] = [Clearing("b")], [Clearing("a")]
        first = lists["a"] == lists["b"]
        lists["a"], lists["b"] = [Clearing("a")], [1]
        second = lists["a"] == lists["b"]
        lists["a"], lists["b"] = [Clearing("a")], [1]
        third = lists["a"] < lists["b"]
        return first, second, third, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))


def test_fields_of_exceptions_are_not_their_args() -> None:
    def program(x: torch.Tensor) -> Any:
        stopped, failed, missing = StopIteration(3), OSError(2, "two"), KeyError(1)
        stopped.args, failed.args, missing.args = (4,), (5, "five"), (6,)
        written = StopIteration(7)
        written.value = 8
        return (
            stopped.value, stopped.args, failed.errno, failed.args, missing.args, written.value,
            written.args, x + 1,
        )  # fmt: skip

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))


def test_a_function_that_closes_over_nothing_has_no_closure() -> None:
    def program(x: torch.Tensor) -> Any:
        def plain() -> int:
            return 1

        windfall.graph_break()
        return plain.__closure__, plain.__defaults__, plain.__kwdefaults__, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))
