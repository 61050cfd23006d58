"""A captured graph that reads data on its way, as pieces around the reads.

Enters: a captured graph some of whose nodes say only when they run what (or how much) they answer
(`NodeInfo.reads`), and whoever compiles a graph without such nodes. Leaves: a callable that runs
piece, read, piece. Invariant: each node runs once, in program order, under the modes of the
program; a number that was read is an ordinary size (or a constant) of the pieces behind it, which
are compiled when they are first reached; whatever cannot be compiled runs op by op, and is counted.

    y = x * 2            piece
    n = count.item()     read
    z = y[:n] + 1        piece, of y and the size n
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from windfall import locks, runtime, torch_abi
from windfall.errors import GraphFailed, Specialise, Unsupported
from windfall.events import Eager, EventKind, EventLog
from windfall.ir.dtype import TensorType
from windfall.ir.guard import SYMBOLS, Binds, Check, Equals, Guard, Holds, TensorIs
from windfall.ir.node import NodeInfo, constant, copy_into, info, set_info
from windfall.ir.relation import Relation
from windfall.ir.source import Slot
from windfall.ir.symint import (
    Atom,
    Expression,
    Size,
    evaluate,
    expression_of,
    size_symbol,
    substitute,
    symbol_atom,
    symbols_of,
)

Call = Callable[..., tuple[Any, ...]]

# An integer beyond these is a constant: products of two would not fit 64 bits.
_SMALLEST, _LARGEST = -(1 << 31), (1 << 31) - 1
_SINGLE = 1  # operations of a piece that is not worth compiling


@dataclass(frozen=True, slots=True)
class Compiled:
    """A piece as native code: what it assumes of numbers, and whether it writes its inputs."""

    call: Call
    relations: tuple[Relation, ...]
    writes: bool


# (graph, types of its inputs, name, what is known of sizes) -> native code.
Compile = Callable[
    [torch.fx.Graph, Sequence[TensorType | Expression], str, Sequence[Relation]], Compiled
]


@dataclass(frozen=True, slots=True)
class Piece:
    """Nodes that run without a read among them. `numbers` are the integers that they depend on:
    inputs of the graph, or reads."""

    nodes: tuple[torch.fx.Node, ...]
    numbers: tuple[torch.fx.Node, ...]
    tensors: tuple[torch.fx.Node, ...]
    results: tuple[torch.fx.Node, ...]
    switches: tuple[torch.fx.Node, ...]  # of modes

    def __str__(self) -> str:
        takes = ", ".join(node.name for node in (*self.numbers, *self.tensors))
        return f"piece of {', '.join(node.name for node in self.nodes)}, given {takes}"

    @property
    def operations(self) -> int:
        """How many calls it does."""
        return len(self.nodes) - len(self.switches)


def reads_data(graph: torch.fx.Graph) -> bool:
    """Whether a captured graph has to be divided."""
    return any(info(node).reads for node in graph.nodes)


# ------------------------------------------------------------------------------------- dividing


def _is_number(node: torch.fx.Node) -> bool:
    """Integer arithmetic: done wherever it is needed."""
    return (
        node.op == "call_function"
        and not info(node).reads
        and isinstance(info(node).type, Expression | int)
    )


def _is_free(node: torch.fx.Node) -> bool:
    return node.op == "get_attr" or _is_number(node)


def divide(graph: torch.fx.Graph) -> list[Piece | torch.fx.Node]:
    """Pieces and the reads between them, in program order."""
    steps: list[list[torch.fx.Node] | torch.fx.Node] = []
    behind: set[torch.fx.Node] = set()  # parts of what reads answer
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or _is_free(node):
            continue
        part = (
            node.op == "call_function"
            and node.target is operator.getitem
            and node.args[0] in behind
        )
        if info(node).reads or part:
            steps.append(node)
            if not isinstance(info(node).type, TensorType | Expression):
                behind.add(node)
        elif steps and isinstance(steps[-1], list):
            steps[-1].append(node)
        else:
            steps.append([node])
    return [one if isinstance(one, torch.fx.Node) else _piece(one) for one in steps]


def _roots(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """What a node takes that is no arithmetic."""
    for one in node.all_input_nodes:
        if _is_number(one):
            yield from _roots(one)
        elif one.op != "get_attr":
            yield one


def _piece(nodes: Sequence[torch.fx.Node]) -> Piece:
    inside = set(nodes)
    taken = dict.fromkeys(root for node in nodes for root in _roots(node) if root not in inside)
    results = [node for node in nodes if any(user not in inside for user in _users(node))]
    for node in (*taken, *results):
        if not isinstance(info(node).type, TensorType | Expression):
            raise Unsupported(104, f"{node} is read in parts that stand apart")
    return Piece(
        tuple(nodes),
        tuple(one for one in taken if isinstance(info(one).type, Expression)),
        tuple(one for one in taken if isinstance(info(one).type, TensorType)),
        tuple(results),
        tuple(node for node in nodes if torch_abi.is_mode_switch(node.target)),
    )


def _users(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    for one in node.users:
        if _is_number(one):
            yield from _users(one)
        else:
            yield one


# ------------------------------------------------------------------------------ one piece, compiled

_MISS: Any = object()  # what a variant answers that does not fit


@dataclass(frozen=True, slots=True)
class Variant:
    """A piece for some values of its numbers. `numbers` are those that vary in it: of the piece, or
    sizes of its tensors (`places`: tensor, dimension); the others are fixed. `guards` say for which
    numbers and tensors, the slots of a call, it was compiled."""

    numbers: tuple[Expression, ...]
    places: tuple[int | tuple[int, int], ...]  # where each is: a number of the piece, a size
    guards: tuple[Guard, ...]
    compiled: Compiled

    def _values(self) -> list[str]:
        """How each number that varies is read."""
        return [
            f"n{place}" if isinstance(place, int) else f"t{place[0]}.shape[{place[1]}]"
            for place in self.places
        ]

    def function(self, piece: Piece, shares: Callable[..., bool], native: bool) -> Call:
        """`(numbers, tensors)` → the results, or `_MISS`."""
        numbers = [f"n{index}" for index in range(len(piece.numbers))]
        tensors = [f"t{index}" for index in range(len(piece.tensors))]
        slots = [*numbers, *tensors]
        check = runtime.compile_check(self.guards, len(slots), native=native)
        lines = [
            "def variant(numbers, tensors):",
            *_unpacked("numbers", numbers),
            *_unpacked("tensors", tensors),
            f"    if not check({', '.join(slots)}):",
            "        return MISS",
        ]
        if self.compiled.writes:
            lines += ["    if shares(tensors):", "        return MISS"]
        lines.append(f"    return call({', '.join([*self._values(), *tensors])})")
        namespace = {
            "MISS": _MISS,
            "call": self.compiled.call,
            "shares": shares,
            "check": check.call,
        }
        return _defined("variant", lines, namespace)


def _tuple(parts: Iterable[str]) -> str:
    return f"({''.join(f'{one}, ' for one in parts)})"


def _unpacked(held: str, names: Sequence[str]) -> list[str]:
    return [f"    {_tuple(names)} = {held}"] if names else []


def _defined(name: str, lines: Sequence[str], namespace: dict[str, Any]) -> Call:
    exec(compile("\n".join(lines), __file__, "exec"), namespace)
    made: Call = namespace[name]
    return made


class Runner:
    """One piece with its variants. Any number of threads may call it; one compiles at a time."""

    def __init__(self, piece: Piece, name: str, graphs: Pieces) -> None:
        self.piece = piece
        self.name = name
        self._shared = graphs
        self._variants: tuple[Call, ...] = ()  # the one that was used last first
        self._lock = locks.recursive_lock()
        self._compiled = 0  # so often
        self._natively: Call | None = None
        self._refused = piece.operations <= _SINGLE
        self.writes = False  # whether a variant is known to write its inputs

    def __call__(
        self, numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]
    ) -> tuple[Any, ...]:
        """The results of the piece."""
        tried = self._variants
        try:
            for one in tried:
                results = one(numbers, tensors)
                if results is not _MISS:
                    if one is not tried[0]:
                        self._move_to_front(one)
                    return results
            return self._missed(tried, numbers, tensors)
        except GraphFailed:
            pass
        return self._op_by_op(*numbers, *tensors)  # which says what is wrong

    def _move_to_front(self, variant: Call) -> None:
        if self._lock.acquire(blocking=False):
            try:
                others = [one for one in self._variants if one is not variant]
                self._variants = (variant, *others)
            finally:
                self._lock.release()

    def _missed(
        self, tried: tuple[Call, ...], numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]
    ) -> tuple[Any, ...]:
        """No variant fits: compile one, unless another thread just did."""
        failure: Exception | None = None
        mine = False
        while not self._refused and not mine:
            try:
                fresh, mine = self._added(tried, numbers, tensors)
            except Exception as error:  # any torch function may raise any exception
                failure = error
                break
            for one in fresh:
                results = one(numbers, tensors)
                if results is not _MISS:
                    return results
            tried += fresh
        try:
            results = self._op_by_op(*numbers, *tensors)  # what the program raises, this raises
            if failure is not None:
                self._give_up(failure)
            return results
        finally:
            del failure  # which holds this very frame, and that the tensors

    def _added(
        self, tried: tuple[Call, ...], numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]
    ) -> tuple[tuple[Call, ...], bool]:
        """New variants, and whether they are made for this call; none: this call runs op by op.
        What it raises may be the program's to see."""
        shared = self._shared
        with self._lock:
            fresh = tuple(one for one in self._variants if one not in tried)
            if fresh:
                return fresh, False
            reason = None
            if self._compiled >= _ROUNDS * shared.limit:
                reason = _TOO_MANY
            elif any(one.is_conj() or one.is_neg() for one in tensors):  # types do not say
                reason = _LAZY
            elif self.writes and _share_memory(tensors):
                reason = _SHARED
            if reason is not None:
                shared.log.count(EventKind.FALLBACK, self.name, reason=reason, what=Eager.GRAPH)
                return (), True
            self._compiled += 1
            variant = self._made(numbers, tensors)
            self.writes = self.writes or variant.compiled.writes
            made = variant.function(self.piece, _share_memory, shared.native)
            self._variants = (made, *self._variants[: shared.limit - 1])
            return (made,), True

    def _give_up(self, reason: Exception) -> None:
        """It cannot be compiled, and the program is not to blame."""
        if self._shared.strict and not isinstance(reason, Unsupported):
            raise reason
        # As of entries: these say nothing of the next call.
        passing = (RecursionError, MemoryError)
        self._refused = not isinstance(reason.__cause__ or reason, passing)
        text = f"{type(reason).__name__}: {reason}"
        self._shared.log.count(EventKind.FALLBACK, self.name, reason=text, what=Eager.GRAPH)

    def _made(self, numbers: Sequence[int], tensors: Sequence[torch.Tensor]) -> Variant:
        """Compiled for these values; what turns out to be needed as a value is fixed."""
        fixed: set[str] = set()
        while True:
            plan = _Plan(self.piece, numbers, tensors, fixed)
            try:
                compiled = self._shared.compile(
                    plan.graph(), [*plan.numbers, *plan.types], self.name, plan.given(self._shared)
                )
            except Specialise as reason:
                new = reason.names & {str(one) for one in plan.numbers} - fixed
                if not new:
                    raise Unsupported(103, str(reason)) from reason
                fixed |= new
                continue
            guards = plan.guards(tensors, compiled.relations)
            return Variant(tuple(plan.numbers), tuple(plan.places), guards, compiled)

    @property
    def _op_by_op(self) -> Call:
        if self._natively is None:
            piece = self.piece
            graph = torch.fx.Graph(owning_module=piece.nodes[0].graph.owning_module)
            taken = (*piece.numbers, *piece.tensors)
            known = {node: set_info(graph.placeholder(node.name), info(node)) for node in taken}
            _filled(graph, piece, known)
            module = torch.fx.GraphModule(graph.owning_module or torch.nn.Module(), graph)
            self._natively = module.forward
        return self._natively


_SHARED = "what is written shares memory with another tensor of the piece"
_TOO_MANY = "compiled for too many different values"
_LAZY = "a conjugate or negative view that is not computed"
_ROUNDS = 4  # times the limit of variants that one piece is compiled


def _share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    places = [one.untyped_storage().data_ptr() for one in tensors if one.numel()]
    return len(set(places)) < len(places)


class _Plan:
    """How a piece is compiled for values that are known now."""

    def __init__(
        self,
        piece: Piece,
        numbers: Sequence[int],
        tensors: Sequence[torch.Tensor],
        fixed: set[str],
    ) -> None:
        self._piece = piece
        self.numbers: list[Expression] = []
        self.places: list[int | tuple[int, int]] = []
        self._now: dict[str, int] = {}
        self._places: dict[Atom, Size] = {}  # what stands for each symbol of the whole graph
        constant: list[tuple[int, int]] = []
        for index, (node, value) in enumerate(zip(piece.numbers, numbers, strict=True)):
            atom = symbol_atom(_size(node))
            made = None if atom.key in fixed else _varying(atom, value)
            self._places[atom] = value if made is None else made
            if made is None:
                constant.append((index, value))
            else:
                self._add(made, index, value)
        self.fixed = tuple(constant)
        self.types = [
            self._type(index, _type(node), tensor, fixed)
            for index, (node, tensor) in enumerate(zip(piece.tensors, tensors, strict=True))
        ]

    def _add(self, number: Expression, place: int | tuple[int, int], value: int) -> None:
        self.numbers.append(number)
        self.places.append(place)
        self._now[str(number)] = value

    def _type(
        self, index: int, captured: TensorType, tensor: torch.Tensor, fixed: set[str]
    ) -> TensorType:
        """The type of an input: as captured, where that is what the tensor is."""
        real = TensorType.of(tensor)
        if len(captured.sizes) != len(real.sizes):
            return real
        sizes = []
        for dimension, (size, have) in enumerate(zip(captured.sizes, real.sizes, strict=True)):
            assert isinstance(have, int)
            sizes.append(self._size(size, have, (index, dimension), fixed))
        strides = [self._stride(*pair) for pair in zip(captured.strides, real.strides, strict=True)]
        return replace(real, sizes=tuple(sizes), strides=tuple(strides))

    def _size(self, size: Size, have: int, place: tuple[int, int], fixed: set[str]) -> Size:
        """A size as captured; of what stands nowhere else, the tensor itself tells."""
        for atom in sorted(symbols_of(size), key=lambda one: one.key):
            if atom not in self._places and size is expression_of(atom):
                made = None if atom.key in fixed else _varying(atom, have)
                self._places[atom] = have if made is None else made
                if made is not None:
                    self._add(made, place, have)
        return self._stride(size, have)

    def _stride(self, size: Size, have: Size) -> Size:
        if isinstance(size, int) or not symbols_of(size) <= self._places.keys():
            return have
        found = substitute(size, self._places)
        return found if evaluate(found, self._now) == have else have

    def guards(
        self, tensors: Sequence[torch.Tensor], relations: Sequence[Relation]
    ) -> tuple[Guard, ...]:
        """For which numbers and tensors it is compiled."""
        checks: dict[int, Check] = {index: Equals(value) for index, value in self.fixed}
        for number, place in zip(self.numbers, self.places, strict=True):
            if isinstance(place, int):
                checks[place] = Binds(number)
        first = len(checks)
        for index, (seen, one) in enumerate(zip(self.types, tensors, strict=True)):
            checks[first + index] = TensorIs(seen, type(one), torch_abi.dispatch_keys(one))
        return (
            *(Guard(Slot(index, f"v{index}"), checks[index], "") for index in sorted(checks)),
            *(Guard(SYMBOLS, Holds(one), "") for one in relations),
        )

    def graph(self) -> torch.fx.Graph:
        """The piece as a graph of its own."""
        piece = self._piece
        known: dict[torch.fx.Node, Any] = {}
        graph = torch.fx.Graph(owning_module=piece.nodes[0].graph.owning_module)
        for number, place in zip(self.numbers, self.places, strict=True):
            made = set_info(graph.placeholder(str(number)), NodeInfo(number))
            if isinstance(place, int):
                known[piece.numbers[place]] = made
        for index, value in self.fixed:
            known[piece.numbers[index]] = value
        for node, type in zip(piece.tensors, self.types, strict=True):
            known[node] = set_info(graph.placeholder(node.name), NodeInfo(type))
        return _filled(graph, piece, known)

    def given(self, shared: Pieces) -> list[Relation]:
        """What is known of the numbers, as far as it is about these."""
        found = []
        for one in shared.given:
            if symbols_of(one.left) | symbols_of(one.right) <= self._places.keys():
                left, right = (substitute(each, self._places) for each in (one.left, one.right))
                if isinstance(left - right, Expression):
                    found.append(Relation(one.operation, left, right))
        return [one for one in found if one.holds(self._now)]


def _size(node: torch.fx.Node) -> Expression:
    found = info(node).type
    assert isinstance(found, Expression)
    return found


def _type(node: torch.fx.Node) -> TensorType:
    found = info(node).type
    assert isinstance(found, TensorType)
    return found


def _varying(atom: Atom, value: int) -> Expression | None:
    """The symbol of a number for values like this one; None: it is a constant. 0 and 1 decide what
    operators do."""
    if value in (0, 1) or not _SMALLEST <= value <= _LARGEST:
        return None
    if value < 0:
        return size_symbol(atom.key, value, _SMALLEST, -1)
    high = _LARGEST if atom.high is None else min(atom.high, _LARGEST)
    return size_symbol(atom.key, value, max(atom.low or 2, 2), high)


def _filled(graph: torch.fx.Graph, piece: Piece, known: dict[torch.fx.Node, Any]) -> torch.fx.Graph:
    """A graph with placeholders (in `known`), and the nodes of a piece in it."""

    def copy(node: torch.fx.Node) -> Any:
        if node not in known:
            known[node] = copy_into(graph, node, copy)
        return known[node]

    for node in piece.nodes:
        copy(node)
    results = tuple(known[node] for node in piece.results)
    set_info(graph.output(results), NodeInfo(tuple(info(one).type for one in piece.results)))
    return graph


# ------------------------------------------------------------------------------------ all of them


class Pieces:
    """A captured graph in pieces, and what they share."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        name: str,
        compile: Compile,
        given: Sequence[Relation],
        log: EventLog,
        limit: int,
        strict: bool,
        native: bool = True,
    ) -> None:
        self.compile = compile
        self.given = given
        self.log = log
        self.limit = limit
        self.strict = strict
        self.native = native
        self.graph = graph  # whose constants the steps use
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]
        (output,) = (node for node in graph.nodes if node.op == "output")
        self._results: tuple[torch.fx.Node, ...] = tuple(output.args[0])
        self.steps = divide(graph)
        self._runners = [
            Runner(one, f"{name} piece {index}", self) if isinstance(one, Piece) else None
            for index, one in enumerate(self.steps)
        ]
        self._switches = any(isinstance(one, Piece) and one.switches for one in self.steps)
        self._dropped = self._last_uses()

    def _last_uses(self) -> list[list[torch.fx.Node]]:
        """For each step, what nobody needs after it."""
        last: dict[torch.fx.Node, int] = {}
        for index, step in enumerate(self.steps):
            if isinstance(step, Piece):
                used = (*step.numbers, *step.tensors, *step.results)
            else:
                used = (step, *_roots(step))
            last |= dict.fromkeys(used, index)
        kept = set(self._results)
        dropped: list[list[torch.fx.Node]] = [[] for _ in self.steps]
        for node, index in last.items():
            if node not in kept:
                dropped[index].append(node)
        return dropped

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def call(self) -> Call:
        """What runs the graph."""
        run = self._function()
        if not self._switches:
            return run

        def restoring(*inputs: Any) -> tuple[Any, ...]:
            modes = torch_abi.modes()
            try:
                return run(*inputs)
            finally:  # as of native code: what comes after the graph sets them
                torch_abi.set_modes(modes)

        return restoring

    def _function(self) -> Call:
        """The steps as a Python function."""
        text = _Text()
        inputs = [text.name(one) for one in self._inputs]
        lines = [f"def run({', '.join(inputs)}):"]
        for index, (step, runner, dropped) in enumerate(
            zip(self.steps, self._runners, self._dropped, strict=True)
        ):
            if isinstance(step, Piece):
                text.namespace[f"p{index}"] = runner
                results = _tuple(text.name(one) for one in step.results)
                numbers = _tuple(text.name(one) for one in step.numbers)
                tensors = _tuple(text.name(one) for one in step.tensors)
                to = f"{results} = " if step.results else ""
                lines.append(f"    {to}p{index}({numbers}, {tensors})")
                lines += [f"    {text.call(node)}" for node in step.switches]
            else:
                lines.append(f"    {text.name(step)} = {text.call(step)}")
            if dropped:
                lines.append(f"    del {', '.join(text.name(one) for one in dropped)}")
        lines.append(f"    return {_tuple(map(text.value, self._results))}")
        return _defined("run", lines, text.namespace)


class _Text:
    """Nodes as Python text."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._names: dict[torch.fx.Node, str] = {}

    def name(self, node: torch.fx.Node) -> str:
        """The variable of a node."""
        return self._names.setdefault(node, f"v{len(self._names)}")

    def value(self, one: Any) -> str:
        """An argument."""
        if isinstance(one, torch.fx.Node):
            if one.op == "get_attr":
                return self._constant(constant(one))
            return self.call(one) if _is_number(one) else self.name(one)
        if one is None or type(one) in (int, bool, str):
            return repr(one)
        if type(one) in (tuple, torch.fx.immutable_collections.immutable_list, list):
            parts = _tuple(map(self.value, one))
            return parts if type(one) is tuple else f"[*{parts}]"
        if isinstance(one, dict):
            return f"{{{', '.join(f'{key!r}: {self.value(each)}' for key, each in one.items())}}}"
        if isinstance(one, slice):
            return f"slice({', '.join(map(self.value, (one.start, one.stop, one.step)))})"
        return self._constant(one)

    def call(self, node: torch.fx.Node) -> str:
        """What a node does."""
        arguments = [self.value(one) for one in node.args]
        named = [f"{name}={self.value(one)}" for name, one in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{node.target}({', '.join([*arguments[1:], *named])})"
        return f"{self._constant(node.target)}({', '.join([*arguments, *named])})"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        return name
