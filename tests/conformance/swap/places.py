"""Where the operand comes from: how a function of an operation is built, and how it is handed over.

Enters: an operation, a place, whether it stands between two tensor operations. Leaves: a `Program`:
the function, and `call(function or its compiled form, operands)`. Invariant: building the same
program twice gives functions of equal code, so eager and compiled runs differ in nothing else.
"""

from __future__ import annotations

import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance.swap.operations import NAMESPACE, Operation

Call = Callable[[Any, tuple[Any, ...]], Any]


@dataclass(frozen=True)
class Program:
    """A function with an operand, how to give it one, and whether it answers the tensor around
    the operation too."""

    function: Any
    call: Call
    between: bool


@dataclass(frozen=True)
class Place:
    """`parameters` of the function, the statement that fetches the operand, and, given the
    function and its globals, how one is handed over."""

    parameters: str
    fetch: str
    bind: Callable[[Any, dict[str, Any]], Call]


class Holder:
    """An object with an attribute."""

    a: Any


class Layer(torch.nn.Module):
    """A module of torch with an attribute."""


def build(operation: Operation, place: str, between: bool, operands: int = 1) -> Program:
    """The program of an operation at a place."""
    chosen = PLACES[place]
    parameters = chosen.parameters if operands == 1 else "a, b"
    lines = [chosen.fetch] if operands == 1 and chosen.fetch else []
    lines += (
        ["y = X + 1", operation.text, "return y * 2, r"]
        if between
        else [operation.text, "return r"]
    )
    body = textwrap.indent("\n".join(lines), "        ")
    source = f"def maker(cell):\n    def f({parameters}):\n{body}\n    return f\n"
    namespace = {**NAMESPACE, "X": torch.ones(2), "OPERAND": None, "__name__": __name__}
    exec(compile(source, f"<swap {operation.name}>", "exec"), namespace)
    function = namespace["maker"](None)
    if operands > 1:
        return Program(function, _spread, between)
    return Program(function, chosen.bind(function, namespace), between)


def _spread(callee: Any, operands: tuple[Any, ...]) -> Any:
    return callee(*operands)


def _argument(function: Any, namespace: dict[str, Any]) -> Call:
    return _spread


def _keyword(function: Any, namespace: dict[str, Any]) -> Call:
    return lambda callee, operands: callee(a=operands[0])


def _global(function: Any, namespace: dict[str, Any]) -> Call:
    def call(callee: Any, operands: tuple[Any, ...]) -> Any:
        namespace["OPERAND"] = operands[0]
        return callee()

    return call


def _closure(function: Any, namespace: dict[str, Any]) -> Call:
    cell = function.__closure__[function.__code__.co_freevars.index("cell")]

    def call(callee: Any, operands: tuple[Any, ...]) -> Any:
        cell.cell_contents = operands[0]
        return callee()

    return call


def _default(function: Any, namespace: dict[str, Any]) -> Call:
    def call(callee: Any, operands: tuple[Any, ...]) -> Any:
        function.__defaults__ = operands
        return callee()

    return call


def _attribute_of(holder: Any) -> Callable[[Any, dict[str, Any]], Call]:
    """The operand is an attribute of one object that is passed again and again."""

    def bind(function: Any, namespace: dict[str, Any]) -> Call:
        owner = holder()

        def call(callee: Any, operands: tuple[Any, ...]) -> Any:
            if "a" in vars(owner) or hasattr(owner, "a"):
                delattr(owner, "a")
            owner.a = operands[0]
            return callee(owner)

        return call

    return bind


def _module_attribute(function: Any, namespace: dict[str, Any]) -> Call:
    module = namespace["MODULE"] = types.ModuleType("a_swapped_module")

    def call(callee: Any, operands: tuple[Any, ...]) -> Any:
        module.a = operands[0]  # type: ignore[attr-defined]
        return callee()

    return call


def _class_attribute(function: Any, namespace: dict[str, Any]) -> Call:
    holder = namespace["HOLDER"] = type("Holding", (), {})

    def call(callee: Any, operands: tuple[Any, ...]) -> Any:
        holder.a = operands[0]  # type: ignore[attr-defined]
        return callee()

    return call


def _property(function: Any, namespace: dict[str, Any]) -> Call:
    class Computing:
        kept: Any = None

        @property
        def a(self) -> Any:
            return self.kept

    owner = Computing()

    def call(callee: Any, operands: tuple[Any, ...]) -> Any:
        owner.kept = operands[0]
        return callee(owner)

    return call


def _within(make: Callable[[Any], Any]) -> Callable[[Any, dict[str, Any]], Call]:
    """The operand is an element of a fresh container."""

    def bind(function: Any, namespace: dict[str, Any]) -> Call:
        return lambda callee, operands: callee(make(operands[0]))

    return bind


PLACES: dict[str, Place] = {
    "argument": Place("a", "", _argument),
    "global": Place("", "a = OPERAND", _global),
    "closure": Place("", "a = cell", _closure),
    "attribute": Place("holder", "a = holder.a", _attribute_of(Holder)),
    "module_attribute": Place("", "a = MODULE.a", _module_attribute),
    "layer_attribute": Place("holder", "a = holder.a", _attribute_of(Layer)),
    "class_attribute": Place("", "a = HOLDER.a", _class_attribute),
    "property": Place("holder", "a = holder.a", _property),
    "list_element": Place("items", "a = items[0]", _within(lambda one: [one, 1])),
    "tuple_element": Place("items", "a, _ = items", _within(lambda one: (one, 1))),
    "dict_value": Place("items", "a = items['k']", _within(lambda one: {"k": one})),
    "default": Place("a=None", "", _default),
    "keyword": Place("a", "", _keyword),
    "star": Place("*given", "a = given[0]", _argument),
}
