"""The graph under construction: placeholders, calls, and what they answer on fake tensors.

Enters: torch functions and methods with symbolic arguments. Leaves: nodes of a `torch.fx.Graph`,
each with its `NodeInfo`, and the fake result. Invariant: no operation runs on user data;
placeholders stand before all other nodes; nodes added by an instruction that fails are taken back.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.fx

from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.frontend.breaks import BODY, CHECKPOINT, OPERATION_FAILS, SUBCLASS, stop
from windfall.frontend.contents import Contents
from windfall.frontend.reads import (
    Reads,
    arguments_as_types,
    given_in,
    needs_mask_for_gradient,
    sizes_in,
)
from windfall.identity_map import IdentityMap
from windfall.ir.check import DataCheck
from windfall.ir.dtype import TensorType
from windfall.ir.generators import StandIns, using
from windfall.ir.node import Checkpoint, NodeInfo, ValueType, add_node, info, set_info
from windfall.ir.source import Source
from windfall.ir.stages import GraphInput
from windfall.ir.symint import Expression, Size, expression_of, reads_of
from windfall.ops.fake import FakeMode, Storage, is_fake, storage_of, type_of, writes_of
from windfall.ops.overrides import standing_for
from windfall.ops.symbolic import from_torch, trying_reads
from windfall.ops.wrapped import is_wrapper, structure_of
from windfall.torch_abi import Buckets

if TYPE_CHECKING:
    from windfall.frontend.services import Machine
    from windfall.frontend.values.base import Value


class Lanes(Protocol):
    """Tensors of all places at once, that stand for one place each (`values/attention.py`)."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is such a one."""

    def note(self, operation: Any, arguments: Any, keywords: Any, result: Any) -> None:
        """An operator was dispatched."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An ATen op that a call came to: how many calls there were before that one, and the op with
    fakes in its arguments and its result."""

    call: int
    operation: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any


class GraphBuilder:
    """Nodes in program order."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.graph = torch.fx.Graph()
        self.inputs: list[tuple[torch.fx.Node, GraphInput]] = []
        self.calls: list[torch.fx.Node] = []
        self.scalars = 0  # of these, how many are arithmetic of numbers that vary
        self.idle = 0  # jumps backward since the last of these
        self._symbols: dict[str, torch.fx.Node] = {}
        self.fakes: IdentityMap[torch.Tensor, Value] = IdentityMap()  # values by their fake
        self.written: set[Storage] = set()  # memory that some operation wrote
        self.wrapped: set[Storage] = set()  # memory of what tensor subclasses from outside hold
        self.lanes: Lanes | None = None  # while a function is called on all places at once
        self.late: set[Storage] = set()  # memory that an effect writes, behind the graph
        self.contents = Contents()
        self.reads = Reads(machine)
        self.checkpoint: Checkpoint | None = None  # that of `torch.utils.checkpoint` we are in
        self.hides_grad = False  # eager runs what we are in with gradients, without, or first so
        self.hidden_by = CHECKPOINT  # why a program that asks for the mode there is no graph
        self.levels = 0  # transforms of `torch.func` that we are in
        self.regions = 0  # how many of these there were
        self.dispatched: list[list[Dispatched]] = []  # ops in each of these, the innermost last
        self.buckets: Buckets | None = None  # of the wrapper that we are in, if any
        self.stand_ins = StandIns()
        self.generators: list[Source] = []  # that the program draws from
        self._mode = FakeMode(self._observe, self.reads.count)

    # ------------------------------------------------------------------------------ rolling back

    def mark(self) -> int:
        """How many calls there are."""
        return len(self.calls)

    def roll_back(self, mark: int) -> None:
        """Take back the calls after a mark."""
        gone = self.calls[mark:]
        for node in reversed(gone):
            self.graph.erase_node(node)
        del self.calls[mark:]
        if self.reads.nodes and gone:
            self.reads.forget(set(gone))

    def write_late(self, tensors: Sequence[torch.Tensor]) -> None:
        """An effect writes these: from here on the graph cannot look at them."""
        new = {storage_of(one) for one in tensors} - self.late

        def take_back() -> None:
            self.late -= new

        self._machine.effects.undo(take_back)
        self.late |= new

    def cut(self, mark: int) -> None:
        """Take the calls after a mark out for good: something else does what they do."""
        self.roll_back(mark)

    # -------------------------------------------------------------------------------------- nodes

    def placeholder(self, source: Source, type: TensorType | Expression) -> torch.fx.Node:
        """A new input."""
        name = placeholder_name(source)
        if self.calls:
            with self.graph.inserting_before(self.calls[0]):
                node = self.graph.create_node("placeholder", name)
        else:
            node = self.graph.create_node("placeholder", name)
        node.target = node.name  # of several that are called alike each has its own
        set_info(node, NodeInfo(type))
        self.inputs.append((node, GraphInput(node.name, source, type)))
        return node

    def call(
        self,
        kind: str,
        target: str | Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        type: ValueType,
    ) -> torch.fx.Node:
        """A node for one call; `kind` is "call_function" or "call_method"."""
        frames = self._machine.frames
        node = add_node(self.graph, kind, target, arguments, keywords)
        where, region = frames.where(), frames.region
        set_info(node, NodeInfo(type, where, region, self.reads.taken(), self.checkpoint))
        self.calls.append(node)
        self.idle = 0
        return node

    def read(self, method: str, arguments: tuple[Any, ...], number: Expression) -> torch.fx.Node:
        """A node for a method that reads a number from data."""
        node = self.call("call_method", method, arguments, {}, number)
        set_info(node, replace(info(node), reads=True))
        return node

    def check(self, condition: DataCheck, arguments: tuple[Any, ...]) -> torch.fx.Node:
        """A node for a condition on numbers that are read from data."""
        node = self.call("call_function", condition, arguments, {}, None)
        return set_info(node, replace(info(node), reads=True))

    def symbol(self, name: str) -> torch.fx.Node:
        """The input that is the value of a symbol. These stand before all tensors."""
        found = self._symbols.get(name)
        if found is None:
            known = self._machine.symbols.by_name.get(name)
            if known is None or known.is_read:
                return self.reads.node(name)
            assert known.expression is not None
            first = next(iter(self.graph.nodes), None)
            with self.graph.inserting_before(first):
                found = self.graph.create_node("placeholder", name)
            set_info(found, NodeInfo(known.expression))
            self._symbols[name] = found
            self.inputs.insert(0, (found, GraphInput(found.name, known.source, known.expression)))
        return found

    def size_node(self, size: Size) -> torch.fx.Node | int:
        """A size as a node: an input, or integer arithmetic on inputs."""
        if isinstance(size, int):
            return size
        atom = size.atom
        if atom is not None:
            if not atom.operation:
                return self.symbol(atom.key)
            parts = tuple(self.size_node(one) for one in atom.arguments)
            return self.call("call_function", _INTEGER[atom.operation], parts, {}, size)
        total: torch.fx.Node | int | None = None
        for part in size.parts:
            node = self._product(part)
            if total is None:
                total = node
            else:
                total = self.call("call_function", operator.add, (total, node), {}, size)
        if size.constant:
            total = self.call("call_function", operator.add, (total, size.constant), {}, size)
        assert total is not None
        return total

    def _product(self, part: Size) -> torch.fx.Node | int:
        """One term of a sum: a coefficient and atoms."""
        assert isinstance(part, Expression)
        ((monomial, coefficient),) = part.terms
        node: torch.fx.Node | int = coefficient
        for atom in monomial.atoms:
            factor = self.size_node(expression_of(atom))
            if node == 1:
                node = factor
            else:
                node = self.call("call_function", operator.mul, (node, factor), {}, part)
        return node

    def generator(self, source: Source) -> int:
        """The place of a generator."""
        if source not in self.generators:
            self.generators.append(source)

            def take_back() -> None:
                self.generators.remove(source)

            self._machine.effects.undo(take_back)
        return self.generators.index(source)

    def item(self, node: torch.fx.Node, index: int, type: ValueType) -> torch.fx.Node:
        """One part of a result that is a tuple or list."""
        return self.call("call_function", operator.getitem, (node, index), {}, type)

    # -------------------------------------------------------------------------------------- fakes

    def look_at_sizes(self, tensor: torch.Tensor) -> None:
        """Refuse, if the program asks for sizes that a tensor has here and not in eager."""
        if self.lanes is not None and self.lanes.holds(tensor):
            stop(BODY, "a function of one score asks for sizes of its arguments")

    def _observe(
        self, operation: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any], result: Any
    ) -> None:
        # A fake is dense. (Kernels that back-propagate may make what is not: it is only handed on.)
        if keywords.get("layout") not in (None, torch.strided):
            raise Unsupported(101, f"{operation} of layout {keywords['layout']}")
        if self.lanes is not None:
            self.lanes.note(operation, arguments, keywords, result)
        for inside in self.dispatched:
            inside.append(Dispatched(len(self.calls), operation, arguments, keywords, result))
        for index, name in writes_of(operation):
            target = arguments[index] if index < len(arguments) else keywords.get(name)
            for one in target if isinstance(target, list | tuple) else (target,):
                if is_fake(one):
                    self.reads.running |= needs_mask_for_gradient(operation, arguments)
                    self.written.add(storage_of(one))
                    self.reads.wrote(one, storage_of(one))

    def _refuse_writes_inside(self) -> None:
        """What a tensor subclass from outside is made of is written natively: who counts that is
        the tensor around it."""
        if self.wrapped and not self.wrapped.isdisjoint(self.written):
            stop(SUBCLASS, "a tensor subclass from outside is written")

    def on_fakes(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Any:
        """The answer of a torch function on fake tensors. What it raises is the user's to see: the
        call is then made natively."""
        self.reads.begin()
        given = given_in((arguments, keywords)) if self.reads.any else []
        about_data = any(reads_of(one) for one in sizes_in(given))
        try:
            with self._mode, using(self.stand_ins):
                if not about_data:
                    result = standing_for(function)(*arguments, **keywords)
                    self._refuse_writes_inside()
                    return result
                asked = (arguments_as_types(arguments), arguments_as_types(keywords))
                with trying_reads() as granted:
                    result = standing_for(function)(*arguments, **keywords)
                self._refuse_writes_inside()
            self.reads.confirm(function, asked, given, result, granted())
            return result
        except Unsupported:
            raise
        except Exception as error:  # any torch function may raise any exception
            name = getattr(function, "__name__", str(function))
            first = (str(error).splitlines() or [""])[0]
            stop(OPERATION_FAILS, f"{name}: {type(error).__name__}: {first}")


def value_type(result: Any) -> ValueType:
    """The typed description of a fake result."""
    if is_wrapper(result):
        return structure_of(result)
    if is_fake(result):
        return type_of(result)
    if isinstance(result, tuple | list):
        return tuple(value_type(one) for one in result)
    if isinstance(result, torch.SymInt):
        size: Size = from_torch(result)
        return size
    return result if isinstance(result, int) else None


_INTEGER: dict[str, Callable[..., Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": torch.sym_min,
    "max": torch.sym_max,
}
# What is no word of a name: how a table is reached, where an object lies (in this process).
_NOISE = re.compile(r"\.__dict__|\['(_parameters|_buffers|_modules)'\]| at 0x[0-9a-f]+")
_OTHER = re.compile(r"\W+")


def placeholder_name(source: Source) -> str:
    """An identifier derived from a source: `L['self'].linear.weight` is `L_self_linear_weight`."""
    return _OTHER.sub("_", _NOISE.sub("", str(source))).strip("_") or "input"
