"""Pickles, copies and `torch.save`: the original's state travels, the machine code does not."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.api import things

X = torch.linspace(-1, 1, 20).reshape(5, 4)


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def through_torch(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": through_pickle,
    "torch.save": through_torch,
    "deepcopy": copy.deepcopy,
}
EACH_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@EACH_WAY
def test_a_compiled_function(way: Callable[[Any], Any]) -> None:
    compiled = windfall.compile(things.plain, fullgraph=True)
    compiled(X)
    again = way(compiled)
    assert torch.equal(again(X), things.plain(X))
    assert again.__wrapped__ is things.plain and again.options.fullgraph


@EACH_WAY
def test_a_function_that_was_decorated_is_found_by_its_name(way: Callable[[Any], Any]) -> None:
    assert way(things.decorated) is things.decorated
    assert way([things.decorated, X])[0] is things.decorated


@EACH_WAY
def test_a_compiled_method_brings_its_object(way: Callable[[Any], Any]) -> None:
    compiled = windfall.compile(things.Scaled(3.0).method)
    again = way(compiled)
    assert torch.equal(again(X), X * 3)
    again.__wrapped__.__self__.by = 4.0
    assert torch.equal(again(X), X * 4) and torch.equal(compiled(X), X * 3)


@EACH_WAY
def test_a_compiled_module(way: Callable[[Any], Any]) -> None:
    compiled = windfall.compile(things.Net().eval(), backend=things.eager_backend)
    expected = compiled(X)
    again = way(compiled)
    assert torch.equal(again(X), expected)
    assert isinstance(again, things.Net) and not again.training
    assert windfall.explanation(again).graphs, "the copy is compiled too"
    with torch.no_grad():
        again.last.bias += 1
    torch.testing.assert_close(again(X), expected + 1)
    assert torch.equal(compiled(X), expected)


@EACH_WAY
def test_a_compiled_part_of_a_module(way: Callable[[Any], Any]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    expected = model(X)
    model[0] = windfall.compile(model[0])
    again = way(model)
    torch.testing.assert_close(again(X), expected)
    assert list(again.state_dict()) == ["0.weight", "0.bias"]


def test_a_shallow_copy_of_a_module_shares_its_parameters() -> None:
    compiled = windfall.compile(torch.nn.Linear(4, 2))
    again = copy.copy(compiled)
    assert again.weight is compiled.weight and again is not compiled
    torch.testing.assert_close(again(X), compiled(X))
    assert copy.copy(things.decorated) is things.decorated


def test_a_state_dict_goes_both_ways_between_original_and_compiled() -> None:
    original, other = things.Net(), things.Net()
    compiled = windfall.compile(other)
    assert list(compiled.state_dict()) == list(original.state_dict())
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    original.load_state_dict(torch.load(file))
    torch.testing.assert_close(original.eval()(X), compiled.eval()(X))
    compiled.load_state_dict(things.Net().state_dict())
    torch.testing.assert_close(other(X), compiled(X))


def _spawned(compiled: Any, module: Any) -> tuple[Any, Any]:
    return compiled(X).tolist(), module(X).tolist()


@pytest.mark.filterwarnings("ignore")
def test_a_spawned_process_gets_them_as_arguments() -> None:
    compiled = windfall.compile(things.plain)
    module = windfall.compile(torch.nn.Linear(4, 2))
    expected = _spawned(compiled, module)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        function, linear = pool.apply(_spawned, (things.decorated, module))
    assert linear == expected[1]
    torch.testing.assert_close(torch.tensor(function), X.exp() - 1)


def test_errors_travel_too() -> None:
    with pytest.raises(windfall.BreakError) as raised:
        windfall.compile(lambda x: print(x), fullgraph=True)(X)
    again = through_pickle(raised.value)
    assert str(again) == str(raised.value) and again.number == raised.value.number
