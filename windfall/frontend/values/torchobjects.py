"""Callables of torch that are objects of their own: overloads of ops, scripted functions, the
methods of `torch.Tensor` that are written in Python, and questions of the override protocol.

Enters: such a callable, met as a value. Leaves: a node of the graph, or the Python function that a
script was made from, inlined. Invariant: what is relied upon is the identity of the object.

    torch.ops.aten.relu(x)          a node, as torch.relu(x) is
    torch.jit.script(f)(x)          f, interpreted
    torch.Tensor.__rsub__(x, 1)     the node of the method
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from windfall import torch_abi
from windfall.frontend.breaks import UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import CALLS, calls
from windfall.frontend.values.python_module import PythonModule
from windfall.frontend.values.sequence import Size
from windfall.frontend.values.tensor import METHOD_RULES, Tensor
from windfall.frontend.values.torchapi import Builtin, torch_call
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.guard import IdentityIs
from windfall.ir.reading import dict_of, is_a
from windfall.ir.source import DictOf, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


class Operation(Builtin):
    """`torch.ops.aten.relu` or one of its overloads: always a node."""

    __slots__ = ()

    def describe(self) -> str:
        """Its name."""
        return f"torch.ops.{self.real}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """Into the graph."""
        self.rely(machine)
        return torch_call(machine, "call_function", self.real, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """An overload of a packet."""
        found = None if name.startswith("_") else getattr(self.real, name, None)
        if not torch_abi.is_operation(found):
            return super().get_attribute(machine, name)
        self.rely(machine)
        if self.source is not None and dict_of(self.real).get(name) is found:
            # A packet keeps the overloads that it was asked for: there they are replaced.
            names = machine.guards.names
            known = (one for one in names if isinstance(one, DictOf) and one.of is self.source)
            names.setdefault(next(known, None) or DictOf(self.source), {})[name] = found
        return machine.values.known(found, str(found))


class CustomOperation(Builtin):
    """A function of `torch.library.custom_op`: it calls its op and does nothing else."""

    __slots__ = ()

    def describe(self) -> str:
        """The op's name."""
        return f"custom op {torch_abi.custom_operation(self.real)}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """The op, into the graph."""
        self.rely(machine)
        operation = torch_abi.custom_operation(self.real)
        return torch_call(machine, "call_function", operation, arguments, keywords)


class Scripted(Builtin):
    """A function that torch.jit made of a Python function: that one is interpreted."""

    __slots__ = ()

    def describe(self) -> str:
        """What it was made from."""
        return f"scripted function {_name(self.real)}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """As the Python function it was made from."""
        original = torch_abi.scripted_from(self.real)
        if not isinstance(original, types.FunctionType):
            stop(UNKNOWN_CALL, self.describe())
        self.rely(machine)
        return machine.values.known(original, original.__qualname__).call(
            machine, arguments, keywords
        )


class FunctionSpace(PythonModule):
    """`torch._VF`, which gives functions of torch by name, as `nn.GRUCell` asks for them."""

    __slots__ = ()

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """One of torch's own functions: they are there for good."""
        found = getattr(self.real, name, None)
        if not isinstance(found, types.BuiltinFunctionType):
            return super().get_attribute(machine, name)
        self.guard(machine, "identity", IdentityIs(self.real))
        return machine.values.known(found, name)


@wraps_if(25, lambda value: value is torch_abi.function_space)
def _wrap_space(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(value, FunctionSpace(value, source or Known(value, "torch._VF")))


@wraps_if(45, torch_abi.is_operation)
def _wrap_operation(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(value, Operation(value, source or Known(value, str(value))))


@wraps_if(46, lambda value: torch_abi.custom_operation(value) is not None)
def _wrap_custom(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(
        value, CustomOperation(value, source or Known(value, "custom op"))
    )


@wraps_if(47, lambda value: is_a(value, torch.jit.ScriptFunction))
def _wrap_scripted(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(value, Scripted(value, source or Known(value, _name(value))))


def _name(scripted: Any) -> str:
    original = torch_abi.scripted_from(scripted)
    return getattr(original, "__qualname__", type(scripted).__name__)


def _tensor_methods() -> None:
    """A row for each method of `torch.Tensor` that is a Python function, called unbound."""
    for name, function in vars(torch.Tensor).items():
        if not isinstance(function, types.FunctionType) or function in CALLS:
            continue

        def rule(
            machine: Machine, arguments: Arguments, keywords: Keywords, name: str = name
        ) -> Value:
            if not arguments or not isinstance(arguments[0], Tensor):
                stop(UNKNOWN_CALL, f"Tensor.{name}")
            return arguments[0].call_method(machine, name, arguments[1:], keywords)

        calls(function)(rule)


_tensor_methods()


def _new(tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """`x.new(2, 3)`, `x.new(x.shape)`: sizes, where a tuple would be data. A graph holds tuples."""
    tensor.rely_on(machine, "new")
    sizes = [one for each in arguments for one in _sizes(machine, each)]
    if keywords or not all(one.python_type() is int for one in sizes):
        if any(isinstance(one, Size | Tensor) for one in arguments):
            stop(UNKNOWN_CALL, "Tensor.new of a tensor, or with keywords")
        return machine.values.torch_call("call_method", "new", [tensor, *arguments], keywords)
    made = [tensor, machine.values.tuple(sizes if arguments else [machine.values.literal(0)])]
    return machine.values.torch_call("call_method", "new_empty", made, {})


def _sizes(machine: Machine, argument: Value) -> list[Value]:
    return argument.unpack(machine) if isinstance(argument, Size) else [argument]


METHOD_RULES["new"] = _new


def _plain_arguments(machine: Machine, arguments: Arguments) -> Value:
    """Whether one of these overrides torch's functions: one that might is asked natively."""
    for one in arguments:
        one.refuse_override(machine)
    return machine.values.literal(False)


@calls(torch.overrides.has_torch_function)
def _has_torch_function(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return _plain_arguments(machine, [item for one in arguments for item in one.unpack(machine)])


@calls(
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)
def _has_torch_function_each(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return _plain_arguments(machine, arguments)
