"""Instances of classes that derive from builtin containers; sets; partials; copies; messages."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import logging
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tests.frontend.driver import compile_eager, same


class Output(collections.OrderedDict[str, Any]):
    """As model libraries have them: fields are attributes and items."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name: str, value: Any) -> None:
        names = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        if name in names and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[key] for key in self.keys())


@dataclasses.dataclass
class Pair(Output):
    first: Any = None
    second: Any = None
    third: Any = None


class Point(NamedTuple):
    x: Any
    y: Any = 2

    def total(self) -> Any:
        return self.x + self.y


class Stack(list[Any]):
    """A list that counts what is pushed."""

    pushed = 0

    def push(self, item: Any) -> None:
        self.append(item)
        self.pushed += 1


class Upper(dict[str, Any]):
    """A dict with keys of its own making, and a default."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.upper(), value)

    def __missing__(self, key: str) -> str:
        return f"no {key}"


def contents(value: Any) -> Any:
    """Type, items and attributes, past the methods of the class."""
    if isinstance(value, dict):
        kind = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        items: Any = [(key, contents(one)) for key, one in kind.items(value)]
    elif isinstance(value, list | tuple):
        items = [contents(one) for one in value]
    else:
        return value
    return [type(value), items, [contents(one) for one in getattr(value, "__dict__", {}).items()]]


def one_graph(function: Any, *arguments: Any) -> Any:
    """The result as eager's, from one graph."""
    compiled = compile_eager(function)
    for _ in range(2):
        actual, expected = compiled(*arguments), function(*arguments)
        assert same(contents(actual), contents(expected))
    assert compiled.breaks == [] and len(compiled.captures) == 1
    assert compiled.log.snapshot("fallback") == ()
    return actual


def agree(function: Any, make: Any) -> Any:
    """Results and arguments after two calls are eager's; breaks are allowed."""
    compiled = compile_eager(function)
    ours, theirs = make(), make()
    for _ in range(2):
        actual, expected = compiled(*ours), function(*theirs)
        assert same(contents(actual), contents(expected))
        assert same(contents(ours), contents(theirs))
    assert compiled.log.snapshot("fallback") == ()
    return compiled


def ones() -> torch.Tensor:
    return torch.ones(3)


def test_an_output_record_is_made_and_returned() -> None:
    result = one_graph(lambda a: Pair(first=a + 1, third=(a, a * 2)), ones())
    assert type(result) is Pair and list(result) == ["first", "third"]
    assert result.first is result["first"] and result.second is None


def test_an_output_record_is_read() -> None:
    def f(a: Any) -> Any:
        made = Pair(a + 1, None, a * 3)
        made.second = a - 1
        made["first"] = made.first * made[0]
        kinds = isinstance(made, dict), isinstance(made, Pair), dataclasses.is_dataclass(made)
        named = {key: value.sum() for key, value in made.items()}
        return made[:2], made["second"], len(made), list(made), kinds, named, "third" in made

    one_graph(f, ones())


def test_an_output_record_is_passed_on() -> None:
    def inner(a: Any) -> Any:
        return Pair(first=a * 2)

    def f(a: Any) -> Any:
        made = inner(a)
        return Pair(first=made.first + 1, second=made), (*made.to_tuple(), a)

    result, _ = one_graph(f, ones())
    assert type(result.second) is Pair


def test_an_output_record_from_outside_is_read_and_written() -> None:
    def f(a: Any, record: Any) -> Any:
        record["second"] = record.first * a
        return record[1] + 1, record.to_tuple(), record.second

    compiled = agree(f, lambda: (ones(), Pair(first=ones() * 2)))
    assert compiled.breaks == []


def test_another_set_of_keys_is_another_entry() -> None:
    def f(record: Any) -> Any:
        return sum(record.to_tuple())

    compiled = compile_eager(f)
    for record in (Pair(ones()), Pair(ones(), ones()), Pair(ones() * 5)):
        assert same(compiled(record), f(record))
    assert len(compiled.captures) == 2


def test_a_record_lives_through_a_break() -> None:
    def f(a: Any) -> Any:
        made = Pair(first=a + 1)
        print("", end="")
        made.second = made.first * 2
        return made

    compiled = agree(f, lambda: (ones(),))
    assert len(compiled.breaks) == 1


def test_named_tuples() -> None:
    def f(a: Any, point: Any) -> Any:
        made = Point(a + 1, point.x)
        x, y = made
        return made, made.total(), x * y, point.y, made[0], len(made), Point(1) == (1, 2)

    result = one_graph(f, ones(), Point(ones() * 4))
    assert type(result[0]) is Point


def test_a_list_with_methods_of_its_own() -> None:
    def f(a: Any) -> Any:
        stack = Stack([a])
        stack.push(a + 1)
        stack.extend([a, 3])
        return stack, stack[-1], stack.pushed, len(stack), [type(one) for one in stack][:1]

    one_graph(f, ones())


def test_a_dict_with_methods_of_its_own() -> None:
    def f(a: Any) -> Any:
        table = Upper(kept=a)
        table["Key"] = a + 1
        return table, table["KEY"] * 2, table["nothing"], table.get("nothing"), list(table)

    one_graph(f, ones())


def test_methods_that_raise_and_keys_that_are_missing() -> None:
    def f(a: Any) -> Any:
        record = Pair(first=a)
        try:
            return record["nothing"]
        except KeyError:
            return a + len(record)

    one_graph(f, ones())


@pytest.mark.parametrize("name", ["nothing", "shape"])
def test_attributes_that_tensors_do_not_have(name: str) -> None:
    def f(a: Any) -> Any:
        return a + int(hasattr(a, name)) + int(hasattr(a * 2, name)), getattr(a, "jax", None)

    one_graph(f, ones())


def test_an_attribute_that_a_tensor_gets_later() -> None:
    def f(a: Any) -> Any:
        return a + (1 if hasattr(a, "mark") else 2)

    compiled = compile_eager(f)
    tensor = ones()
    assert same(compiled(tensor), tensor + 2)
    tensor.mark = True  # type: ignore[attr-defined]
    assert same(compiled(tensor), tensor + 1)


def test_sets() -> None:
    def f(a: Any, names: Any) -> Any:
        made = {name + "s" for name in names}
        numbers = {3, 1, 2}
        numbers.add(8)
        numbers |= {9}
        numbers.discard(1)
        joined = {*made, "x"} & {"as", "x"}
        flags = "as" in made, 3 in numbers, made <= {"as", "bs"}, numbers - {2}, joined
        return a * len(made), flags, [one for one in numbers], frozenset(numbers)

    one_graph(f, ones(), ["a", "b"])


def test_sets_from_outside_are_written() -> None:
    def f(a: Any, seen: Any) -> Any:
        seen.add(len(seen))
        seen.discard("gone")
        seen |= {"new"}
        return a + len(seen), 1 in seen

    compiled = compile_eager(f)
    ours, theirs = {"gone", 5}, {"gone", 5}
    for _ in range(3):
        assert same(compiled(ones(), ours), f(ones(), theirs))
        assert ours == theirs


HALF = functools.partial(torch.nn.functional.gelu, approximate="tanh")


def test_partials() -> None:
    def scaled(a: Any, factor: Any, *, shift: Any = 0) -> Any:
        return a * factor + shift

    def f(a: Any) -> Any:
        made = functools.partial(functools.partial(scaled, a), shift=2)
        return made(3), made.keywords["shift"], HALF(a)

    one_graph(f, ones())
    returned = compile_eager(lambda a: functools.partial(scaled, a + 1))(ones())
    assert same(returned(2), (ones() + 1) * 2)


class Settings:
    """Something to copy."""

    def __init__(self) -> None:
        self.size = 4
        self.names = ["a", "b"]
        self.inner = {"names": self.names}


def test_deep_copies() -> None:
    def f(a: Any, settings: Any) -> Any:
        made = copy.deepcopy(settings)
        made.size += 1
        made.names.append("c")
        return a * made.size, made.inner["names"] is made.names, made.inner, settings.names

    one_graph(f, ones(), Settings())


class Registers(nn.Module):
    """A slice of a module list, and a loss made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, a: Any, labels: Any) -> Any:
        for layer in self.layers[:2]:
            a = layer(a)
        return nn.CrossEntropyLoss()(a, labels)


def test_modules_made_by_the_program() -> None:
    one_graph(Registers(), torch.ones(2, 3), torch.tensor([0, 1]))


def test_messages_are_logged_as_often_as_by_eager(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("windfall.test")

    def f(a: Any) -> Any:
        logger.warning("size %s", a.shape[0])
        return a + 1

    compiled = compile_eager(f)
    with caplog.at_level(logging.WARNING, logger="windfall.test"):
        compiled(ones())
        compiled(ones())
    assert [record.getMessage() for record in caplog.records] == ["size 3", "size 3"]
    assert compiled.breaks == []
