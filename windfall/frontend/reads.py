"""What one capture reads from data: numbers without a value, and the nodes that answer them.

Enters: `item()` of an integer, operators whose results have as many elements as the data say.
Leaves: a symbol for each such number, and the node of the graph that is its value when the program
runs. Invariant: nothing is known of such a number but its range and what the program made sure of;
whoever needs more raises `Specialise`, and the capture begins again with that read as a break.

    n = mask.sum().item()    u0 = item(sum)
    x[mask]                  f32[u1, 4], u1 = size(getitem, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall.errors import Specialise, Unsupported
from windfall.frontend.breaks import DATA_SIZE, stop
from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ir.reading import is_among
from windfall.ir.relation import Relation
from windfall.ir.symint import Expression, Size, bounds, evaluate, reads_of
from windfall.ops.fake import FakeMode, Storage, fake, is_fake, storage_of
from windfall.ops.overrides import standing_for
from windfall.ops.shape_rule_check import confirmed
from windfall.ops.symbolic import at, from_torch

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


class Reads:
    """The reads of one graph."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.nodes: dict[str, torch.fx.Node] = {}  # what answers each number
        self.any = False  # whether there is a number that is read
        self.running = False  # whether the call that runs on fakes now has read something
        self._fresh: list[Expression] = []  # by that call
        self._asked: list[Size] = []  # by that call, known ones too
        # What was counted in a tensor, or read from it, while nobody has written it.
        self._known: dict[tuple[str, int], tuple[torch.Tensor, Expression]] = {}

    def begin(self) -> None:
        """A call starts to run on fakes."""
        self.running = False
        self._fresh.clear()
        self._asked.clear()

    def taken(self) -> bool:
        """Whether the call that has just run is one that reads; it is told once."""
        found, self.running = self.running, False
        return found

    def count(self, counted: torch.Tensor | None, low: int, high: int | None) -> Size:
        """How many elements an operator answers; `counted` is the mask that tells."""
        if low == high:
            self.running = True
            self._asked.append(low)
            return low
        if counted is not None:
            known = self._remembered("count", counted)
            if known is not None:
                self.running = True
                self._asked.append(known)
                return known
        made = self.number(low, high)
        if made is None:
            stop(DATA_SIZE, f"a mask or a count{self._machine.symbols.needed}")
        self.running = True
        self._fresh.append(made)
        self._asked.append(made)
        if counted is not None:
            self._known["count", id(counted)] = (counted, made)
        return made

    def item(self, tensor: torch.Tensor, node: torch.fx.Node) -> tuple[Expression | None, bool]:
        """The integer that a tensor holds (None: the program needs its value), and whether it was
        read before."""
        known = self._remembered("item", tensor)
        if known is not None:
            return known, True
        limits = torch.iinfo(tensor.dtype)
        low, high = limits.min, limits.max
        if storage_of(tensor) not in self._machine.graph.written:
            low, high = _limits(node) or (low, high)
        made = self.number(low, high)
        if made is not None:
            self._known["item", id(tensor)] = (tensor, made)
        return made, False

    def _remembered(self, how: str, tensor: torch.Tensor) -> Expression | None:
        found = self._known.get((how, id(tensor)))
        if found is None or not (str(found[1]) in self.nodes or found[1] in self._fresh):
            return None
        return found[1]

    def number(self, low: int, high: int | None) -> Expression | None:
        """A new number; None: the program turned out to need its value."""
        machine = self._machine
        if machine.frames.is_one_operation:
            return None
        found = machine.symbols.read(machine.frames.where(), low, high)
        self.any = self.any or found is not None
        return found

    def wrote(self, target: torch.Tensor, storage: Storage) -> None:
        """A tensor is written: masks over that memory may count otherwise now. Of a tensor whose
        sizes are read from data it is not sure whose memory it has."""
        if any(isinstance(one, torch.SymInt) for one in target.shape):
            self._known.clear()
            return
        for key, (held, _) in list(self._known.items()):
            if storage_of(held) is storage:
                del self._known[key]

    def confirm(
        self,
        function: Callable[..., Any],
        asked: tuple[Any, Any],
        given: Sequence[Any],
        result: Any,
        granted: bool,
    ) -> None:
        """Try a function at known sizes: at each, it must answer what it answered of types in which
        numbers stand that are read from data. (Where nothing was taken for `granted` on the way,
        that is sure: then the rules of its operators were tried, and it asked nothing itself.)"""
        name = getattr(function, "__name__", str(function))
        if name in _SHOW_STRIDES or not _may_run_again(function):
            raise Specialise(_names(sizes_in(given)), name, self._machine.frames.where())
        if not granted:
            return
        numbers = list(self._asked)
        machine = self._machine

        def ask(values: Mapping[str, int]) -> Any:
            left = iter(numbers)

            def count(counted: Any, low: int, high: int | None) -> Any:
                return evaluate(next(left), values)

            arguments, keywords = _fakes_at(asked, values)
            try:
                with FakeMode(count=count):
                    return arguments_as_types(standing_for(function)(*arguments, **keywords))
            except Unsupported as reason:
                raise Specialise(_names(sizes_in(given)), name, machine.frames.where()) from reason
            except Exception as error:  # any torch function may raise any exception
                expected(machine, f"{name} raises {error}", _names(sizes_in(given)))
                return NotImplemented

        confirmed(name, given, arguments_as_types(result), ask)

    # ---------------------------------------------------------------------------------- nodes

    def define(self, node: torch.fx.Node, result: Any) -> None:
        """Let the sizes of a result answer what the call has read."""
        for one in self._fresh:
            place = _place(result, one)
            if place is None:
                continue
            path, dimension = place
            held = node
            for index in path:
                held = self._machine.graph.item(held, index, None)
            self.answer(one, self._machine.graph.read("size", (held, dimension), one))
        self._fresh.clear()

    def answer(self, number: Expression, node: torch.fx.Node) -> None:
        """`node` is the number when the program runs."""
        self.nodes[str(number)] = node

    def node(self, name: str) -> torch.fx.Node:
        """What answers a number."""
        found = self.nodes.get(name)
        if found is None:
            raise Specialise(frozenset((name,)), "a number inside of an operator")
        return found

    def forget(self, gone: set[torch.fx.Node]) -> None:
        """These nodes were taken back."""
        self.nodes = {name: node for name, node in self.nodes.items() if node not in gone}


# Of a whole tensor: what answers a count of its elements, and what answers a place among them.
_COUNTS = ("sum", "count_nonzero", torch.sum, torch.count_nonzero)
_PLACES = ("argmax", "argmin", torch.argmax, torch.argmin)


def _limits(node: torch.fx.Node) -> tuple[int, int] | None:
    """Between which numbers the result of a call lies, where that is known."""
    if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], torch.fx.Node):
        return None
    counted = info(node.args[0]).type
    if not isinstance(counted, TensorType):
        return None
    high = bounds(counted.elements)[1]
    if high is None or high > torch.iinfo(torch.int64).max:
        high = torch.iinfo(torch.int64).max
    if node.target in _COUNTS and (counted.dtype is torch.bool or "count" in str(node.target)):
        return 0, high
    return (0, max(high - 1, 0)) if node.target in _PLACES else None


def needs_mask_for_gradient(operation: Any, arguments: Sequence[Any]) -> bool:
    """Whether an operation writes where a mask says, such that its gradient has as many elements as
    the mask selects."""
    if not str(operation).startswith("aten.index_put") or not torch.is_grad_enabled():
        return False
    target, positions, values = arguments[:3]
    masks = any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in positions)
    return masks and (target.requires_grad or values.requires_grad)


def _place(result: Any, number: Expression) -> tuple[tuple[int, ...], int] | None:
    """Where a number stands as a size of a result: the parts that lead there, the dimension."""
    if is_fake(result):
        sizes = result._fake_type.sizes
        return ((), sizes.index(number)) if number in sizes else None
    if isinstance(result, tuple | list):
        for index, one in enumerate(result):
            found = _place(one, number)
            if found is not None:
                return (index, *found[0]), found[1]
    return None


# Strides of dimensions of size 1 are not what eager has, and no place in memory is sure.
_SHOW_STRIDES = ("stride", "dim_order", "storage_offset")


def _may_run_again(function: Any) -> bool:
    """Torch's own functions have no effects on fakes; others may have."""
    module = getattr(function, "__module__", None) or getattr(
        getattr(function, "__objclass__", None), "__module__", None
    )
    return str(module).split(".")[0] in ("torch", "_operator", "windfall", "builtins")


def _names(sizes: Iterable[Expression]) -> frozenset[str]:
    return frozenset[str]().union(*(reads_of(one) for one in sizes))


def arguments_as_types(value: Any) -> Any:
    """`value` with types in place of fakes and sizes in place of torch's."""
    if is_fake(value):
        return value._fake_type
    if isinstance(value, torch.SymInt):
        return from_torch(value)
    return _mapped(value, arguments_as_types)


def _fakes_at(value: Any, values: Mapping[str, int]) -> Any:
    """The opposite, at known sizes."""
    if isinstance(value, TensorType):
        return fake(at(value, values))
    if isinstance(value, Expression):
        return value.evaluate(values)
    return _mapped(value, lambda one: _fakes_at(one, values))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [function(one) for one in value]
    if isinstance(value, tuple):
        return tuple(function(one) for one in value)
    if isinstance(value, dict):
        return {name: function(one) for name, one in value.items()}
    if isinstance(value, slice):
        return slice(*(function(one) for one in (value.start, value.stop, value.step)))
    return value


def given_in(value: Any) -> list[TensorType | Expression]:
    """The types and sizes that stand anywhere in arguments."""
    if is_fake(value):
        return [value._fake_type]
    if isinstance(value, torch.SymInt):
        return [from_torch(value)]
    if isinstance(value, list | tuple):
        return [found for one in value for found in given_in(one)]
    if isinstance(value, dict):
        return given_in(list(value.values()))
    return given_in([value.start, value.stop, value.step]) if isinstance(value, slice) else []


def sizes_in(given: Iterable[TensorType | Expression]) -> Iterator[Expression]:
    """The sizes that vary in these."""
    for one in given:
        for size in (*one.sizes, *one.strides) if isinstance(one, TensorType) else (one,):
            if isinstance(size, Expression):
                yield size


def expected(machine: Machine, relation: Relation | str, names: frozenset[str]) -> None:
    """Something in the graph raises unless `relation` holds. Only where that is what the program
    does too: nobody handles the exception (but to switch modes), and nothing that comes before it
    is done after the graph."""
    handled = any(
        _is_handled(frame, frame.ip if frame is machine.frames.stack[-1] else frame.last)
        for frame in machine.frames.stack
    )
    if handled or machine.effects.entries:
        raise Specialise(names, f"whether {relation}", machine.frames.where())


# What these do when an exception passes is done by whoever runs the graph: modes are put back.
_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)


def _is_handled(frame: Frame, index: int) -> bool:
    """Whether a frame would see an exception that an instruction raises: any `try` would, and a
    `with` unless it is one that only switches the grad mode, entered in this segment."""
    listing = frame.listing
    handler = listing.handler_at(index)
    while handler is not None:
        names = [one.name for one in frame.instructions[handler.target : handler.target + 2]]
        leave = frame.stack[handler.depth - 1] if handler.depth else None
        manager = getattr(leave, "owner", None)
        if names != ["PUSH_EXC_INFO", "WITH_EXCEPT_START"] or manager is None:
            return True
        if manager.source is not None or not is_among(manager.python_type(), _MODES):
            return True
        cleaning = listing.handler_at(handler.target)
        handler = listing.handler_at(cleaning.target) if cleaning is not None else None
    return False
