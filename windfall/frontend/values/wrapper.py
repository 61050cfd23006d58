"""Tensors of classes that are made of other tensors (`__tensor_flatten__`).

Enters: such tensors of the user, results of torch functions on them. Leaves: nodes of the graph, as
of any tensor. Invariant: what the class does with an operation was read beforehand and is relied
upon (`protocols.py`), and so is all that the tensor is made of: the types of its parts, and every
other attribute of it, which are constants. What writes the parts of one from outside is done
natively, as is all that the class would be asked for by the name of a method of its own.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import types
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.frontend.breaks import ATTRIBUTE_WRITE, SUBCLASS, TENSOR_BRANCH, stop
from windfall.frontend.name_tables import words
from windfall.frontend.protocols import rely_on_protocol
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.constant import BINARY, COMPARE, IN_PLACE, UNARY
from windfall.frontend.values.tensor import (
    METADATA,
    METADATA_METHODS,
    METHOD_RULES,
    NATIVE_METHODS,
    VIEWS,
    ForeignTensor,
    TensorMethod,
    is_untouched,
    of_graph,
)
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.dtype import TensorType, WrappedType
from windfall.ir.guard import IdentityIs, KeysAre, TensorIs
from windfall.ir.reading import dict_of, is_a
from windfall.ir.source import DictOf, Item, Source
from windfall.ops.fake import fake, is_fake, storage_of
from windfall.ops.wrapped import fake_of, is_wrapper, leaves_of, structure_of

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class Wrapper(ForeignTensor):
    """A tensor that is made of others. `real` is the user's; None: a result."""

    __slots__ = ("_fake", "_node", "_structure")

    def __init__(
        self,
        source: Source | None,
        real: Any = None,
        node: torch.fx.Node | None = None,
        fake: Any = None,
    ) -> None:
        super().__init__(real, source)
        self._node = node
        self._fake = fake
        self._structure: TensorType | None = None

    def python_type(self) -> type:
        """The user's class."""
        return type(self.real if self._fake is None else self._fake)

    def guard_type(self, machine: Machine) -> None:
        """All that it is made of."""
        self.fake(machine)

    def guard_attributes(self, machine: Machine) -> None:
        """All are relied upon; a result has none of the user's."""
        self.fake(machine)

    def fake(self, machine: Machine) -> Any:
        """A tensor of its class, made of fakes; relies on what one from outside is made of."""
        if self._fake is None:
            assert self.source is not None
            rely_on_protocol(machine, type(self.real))
            self._structure = _relied(machine, self.real, self.source)
            try:
                made = fake_of(self._structure, fake)
                again = structure_of(made)
            except Exception as error:  # of the user's class
                first = (str(error).splitlines() or [""])[0]
                stop(SUBCLASS, f"{self.describe()}: {type(error).__name__}: {first}")
            if again != self._structure:
                stop(SUBCLASS, f"{self.describe()} is put together as {again}")
            self._fake = made
            machine.graph.fakes[made] = self
            machine.graph.wrapped |= {storage_of(one) for one in leaves_of(made, again)}
        return self._fake

    def node(self, machine: Machine) -> torch.fx.Node:
        """The node of the graph; a placeholder for one from outside."""
        if self._node is None:
            assert self.source is not None
            self.fake(machine)
            assert self._structure is not None
            self._node = machine.graph.placeholder(self.source, self._structure)
        return self._node

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The node, the tensor made of fakes."""
        plain = self.fake(machine)
        return self.node(machine), plain

    def key(self, machine: Machine) -> Any:
        """Tensors are hashed by identity."""
        return machine.guards.told_apart(self)

    # ------------------------------------------------------------------------------- operations

    def _is_torchs(self, machine: Machine, name: str) -> bool:
        """Whether an operator or attribute is torch's own, relied upon."""
        return is_untouched(name, machine.guards.rely_on_answer(self.python_type(), name))

    def _call(self, machine: Machine, name: str, target: Any, *arguments: Value) -> Value:
        if not self._is_torchs(machine, name):
            stop(SUBCLASS, f"{self.describe()}.{name}")
        return machine.values.torch_call("call_function", target, list(arguments), {})

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Metadata, views, methods; of one from outside, what it is made of."""
        held = dict_of(self.real) if self.real is not None else {}
        if name in held and self.source is not None:
            self.fake(machine)
            return machine.values.wrap(held[name], Item(DictOf(self.source), name))
        if not self._is_torchs(machine, name):
            found = machine.guards.rely_on_answer(self.python_type(), name)
            if isinstance(found, types.FunctionType):
                self.fake(machine)
                return machine.values.class_attribute(self, self.python_type(), name)
            stop(SUBCLASS, f"{self.describe()}.{name}")
        if name in METADATA and name not in ("is_leaf", "output_nr"):
            return machine.values.literal(getattr(self.fake(machine), name))
        if name in VIEWS:
            return self._call(machine, name, getattr, self, machine.values.literal(name))
        if callable(getattr(torch.Tensor, name, None)):
            return TensorMethod(self, name)  # type: ignore[arg-type]
        stop(SUBCLASS, f"{self.describe()}.{name}")

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """Natively."""
        stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A method of `torch.Tensor`."""
        if name in NATIVE_METHODS or name in METHOD_RULES or name in _NATIVE_HERE:
            stop(SUBCLASS, f"{self.describe()}.{name}()")
        if name in METADATA_METHODS:
            plain = [one.as_constant(machine) for one in arguments]
            named = {key: one.as_constant(machine) for key, one in keywords.items()}
            return machine.values.literal(getattr(self.fake(machine), name)(*plain, **named))
        return machine.values.torch_call("call_method", name, [self, *arguments], keywords)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph."""
        target = BINARY[operation]
        return self._call(
            machine, _special(target), target, self, other.operand(machine, self, operation)
        )

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph."""
        if issubclass(other.python_type(), str | bytes | bytearray):
            stop(SUBCLASS, f"text {operation} {self.describe()}")
        target = BINARY[operation]
        given = other.operand(machine, self)
        return self._call(machine, _special(target, "r"), target, given, self)

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph."""
        target = IN_PLACE[operation]
        return self._call(
            machine, _special(target), target, self, other.operand(machine, self, operation)
        )

    def unary(self, machine: Machine, operation: str) -> Value:
        """In the graph; `not` reads data."""
        if operation == "not":
            stop(TENSOR_BRANCH, f"not {self.describe()}")
        return self._call(machine, _special(UNARY[operation]), UNARY[operation], self)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph."""
        target = COMPARE[operation]
        return self._call(machine, _special(target), target, self, other.operand(machine, self))

    def get_item(self, machine: Machine, key: Value) -> Value:
        """In the graph, where the place is constant."""
        if not key.is_constant():
            stop(SUBCLASS, f"{self.describe()}[{key.describe()}]")
        return self._call(machine, "__getitem__", operator.getitem, self, key)

    def truth(self, machine: Machine) -> bool | Value:
        """Depends on the data."""
        stop(TENSOR_BRANCH, self.describe())

    def rebuild(self, recipe: Recipe) -> str:
        """A result of the graph."""
        assert self._node is not None
        return recipe.graph_output(self._node)


# What changes how a tensor looks, in place (torch's own help for classes that do this leaves the
# thread's dispatch keys changed), and where it begins in its memory, which no type says.
_NATIVE_HERE = words("""
    t_ transpose_ swapaxes_ swapdims_ unsqueeze_ squeeze_ as_strided_ sparse_resize_ storage_offset
""")


def _special(operation: Any, side: str = "") -> str:
    return f"__{side}{operation.__name__.strip('_')}__"


def wrapper_result(node: torch.fx.Node, result: Any) -> Wrapper:
    """The value of a result that is made of other tensors."""
    return Wrapper(None, None, node, result)


def _relied(machine: Machine, real: Any, source: Source) -> TensorType:
    """What a tensor is made of, relied upon in all its parts."""
    cls = type(real)
    if not is_wrapper(real):
        plain = cls in (torch.Tensor, torch.nn.Parameter) and torch_abi.is_plain_tensor(real)
        if not plain or real.requires_grad:
            stop(SUBCLASS, f"{source} inside of a tensor")
        type_ = TensorType.of(real)
        _rely_on_type(machine, real, source, type_)
        return type_
    sizes = (*real.shape, *real.stride())
    if not all(isinstance(one, int) for one in sizes) or real.device.type != "cpu":
        stop(SUBCLASS, f"{source}, whose sizes are no plain integers")
    names, context = real.__tensor_flatten__()
    held = dict_of(real)
    place = DictOf(source)
    machine.guards.add(place, KeysAre(tuple(held)), "a tensor is made of it")
    for name, value in held.items():
        if name not in names:
            _rely_on_constant(machine, value, Item(place, name))
    parts = []
    for name in names:
        if name not in held:
            stop(SUBCLASS, f"{source}.{name} is no attribute of its own")
        if is_wrapper(held[name]):
            rely_on_protocol(machine, type(held[name]))
        parts.append(_relied(machine, held[name], Item(place, name)))
    outer = TensorType.of(real)
    _rely_on_type(machine, real, source, outer)
    return WrappedType(
        *(outer.dtype, outer.sizes, outer.strides, outer.device, outer.requires_grad),
        *(cls, tuple(names), tuple(parts), context),
    )


def _rely_on_type(machine: Machine, real: Any, source: Source, type_: TensorType) -> None:
    check = TensorIs(type_, type(real), torch_abi.dispatch_keys(real))
    machine.guards.add(source, check, "a tensor is made of it")


def _rely_on_constant(machine: Machine, value: Any, source: Source) -> None:
    """An attribute beside the parts: what its class makes of it depends on it."""
    params = getattr(type(value), "__dataclass_params__", None)
    frozen = params is not None and params.frozen and dataclasses.is_dataclass(value)
    if isinstance(value, enum.Enum | type) or frozen:
        machine.guards.add(source, IdentityIs(value), "a tensor is made of it")
        return
    seen = machine.values.wrap(value, source)
    if not _is_constant(value):
        stop(SUBCLASS, f"{source} is a {type(value).__name__}")
    seen.as_constant(machine)


_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, (*_PLAIN, torch.layout, torch.memory_format))


@wraps_if(20, lambda value: is_a(value, torch.Tensor))
def _wrap_subclass(machine: Machine, value: Any, source: Source | None) -> Value:
    if is_fake(value) or value in machine.graph.fakes:  # of the graph, never the program's
        return of_graph(machine, value)
    made = Wrapper(source, value) if is_wrapper(value) and source is not None else None
    return machine.values.remember(value, made or ForeignTensor(value, source))
