"""`__torch_function__` of what is no tensor: torch's C code asks each argument for it.

It reads that as `getattr` does. Each place where it may stand (the class, the instance, a
`__getattr__`) × each operator, in both orders, and each kind of argument that goes into a graph,
before and after it is there.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import has_torch_function, has_torch_function_unary

from tests.programs.subjects import Windfall

BINARY = ("+", "-", "*", "/", "//", "**", "%", "@", "&", "|", "^", "<<", ">>")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
NAMES = ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "matmul", "and", "or", "xor")
SPECIAL = (*NAMES, "lshift", "rshift")


def _answer(*args: Any, **kwargs: Any) -> str:
    return "overridden"


def _operator(symbol: str, order: str) -> Callable[[Any, Any], Any]:
    text = f"x {symbol} q" if order == "tensor first" else f"q {symbol} x"
    found: Callable[[Any, Any], Any] = eval(f"lambda x, q: {text}")
    return found


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        found = function(*args)
    except Exception as error:
        return type(error), str(error)
    return found.tolist() if isinstance(found, torch.Tensor) else found


def _class(answers: bool) -> type:
    """With the methods of every operator, which answer or decline."""
    told = "own" if answers else NotImplemented
    names = [f"__{side}{name}__" for name in SPECIAL for side in ("", "r")]
    names += [f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    made: dict[str, Any] = {name: lambda self, other: told for name in names}
    return type("Operand", (), {**made, "__hash__": None})


def _on_class(cls: type, one: Any) -> None:
    cls.__torch_function__ = classmethod(_answer)  # type: ignore[attr-defined]


def _on_instance(cls: type, one: Any) -> None:
    one.__torch_function__ = _answer


def _by_hook(cls: type, one: Any) -> None:
    cls.__getattr__ = lambda self, name: _answer  # type: ignore[attr-defined]


PLACES = (_on_class, _on_instance, _by_hook)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("order", ["tensor first", "object first"])
def test_operators_ask_before_the_object_does(place: Any, answers: bool, order: str) -> None:
    x = torch.arange(1, 4)
    for symbol in (*BINARY, *COMPARISONS):
        cls = _class(answers)
        one = cls()
        program = _operator(symbol, order)
        compiled = Windfall("eager").compile(program)
        assert _outcome(compiled, x, one) == _outcome(program, x, one), symbol
        place(cls, one)
        expected = _outcome(program, x, one)
        assert _outcome(compiled, x, one) == expected, symbol
        assert _outcome(Windfall("eager").compile(program), x, one) == expected, symbol


def test_objects_that_override_nothing_are_followed() -> None:
    for symbol in (*BINARY, *COMPARISONS):
        subject = Windfall("eager")
        compiled = subject.compile(_operator(symbol, "tensor first"))
        assert compiled(torch.ones(3), _class(True)()) == "own"
        assert not subject.explanation.breaks, (symbol, subject.notes())


class Scaling(nn.Module):
    """A module that is an operand: its `__getattr__` is torch's and asks nobody."""

    def __rmul__(self, other: Any) -> Any:
        return other * 3


def test_a_module_beside_a_tensor_is_followed() -> None:
    module = Scaling()
    subject = Windfall("eager")
    compiled = subject.compile(lambda x: x * module)
    assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert not subject.explanation.breaks
    module.__dict__["__torch_function__"] = _answer
    assert compiled(torch.ones(2)) == "overridden"


class Numbers(list[int]):
    """A list of the user's."""


class Pair(collections.namedtuple("Pair", "first second")):
    """A named tuple with a dictionary."""


def _size() -> type:
    class Size(enum.IntEnum):
        TWO = 2

    return Size


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: type("Numbers", (Numbers,), {})([2, 2]),
    "named tuple": lambda: type("Pair", (Pair,), {})(2, 2),
    "number": lambda: _size()(2),
}
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "method": lambda x, q: x.reshape(q, -1) if isinstance(q, int) else x.reshape(q),
    "factory": lambda x, q: torch.ones(q),
    "function": lambda x, q: torch.mul(x, q) if isinstance(q, int) else torch.reshape(x, q),
}


@pytest.mark.parametrize("place", PLACES[:2])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_torch_functions(kind: str, call: str, place: Any) -> None:
    one, x, program = KINDS[kind](), torch.ones(4), CALLS[call]
    subject = Windfall("eager")
    compiled = subject.compile(program)
    assert _outcome(compiled, x, one) == _outcome(program, x, one)
    assert not subject.explanation.breaks, subject.notes()
    place(type(one), one)
    expected = _outcome(program, x, one)
    assert _outcome(compiled, x, one) == expected
    assert expected == "overridden" or (call, kind != "number") == ("function", True)


ASKED: dict[str, Callable[[], Any]] = {
    **KINDS,
    "object": lambda: _class(True)(),
    "function": lambda: lambda: None,
    "class": lambda: type("Plain", (), {}),
    "module": lambda: types.ModuleType("plain"),
    "nn.Module": nn.Identity,
}


@pytest.mark.parametrize("kind", ASKED)
def test_torch_says_whether_one_overrides(kind: str) -> None:
    def program(x: Any, q: Any) -> Any:
        return has_torch_function_unary(q), has_torch_function((x, q)), x + 1

    one, x = ASKED[kind](), torch.ones(2)
    compiled = Windfall("eager").compile(program)
    assert compiled(x, one)[:2] == (False, False)
    one.__torch_function__ = _answer
    assert compiled(x, one)[:2] == program(x, one)[:2] == (True, True)
    del one.__torch_function__
    assert compiled(x, one)[:2] == (False, False)
