"""One run of a captured graph on fake tensors, under the real autograd engine.

Enters: a graph of torch functions and the types of its inputs. Leaves: a `Trace`: every ATen op
that was dispatched, in order, mutations included; first those of the forward pass, then those that
the engine ran for the gradients.

Invariant: torch's own rules decided everything (promotion, decomposition, views, grad mode,
derivative formulas); nothing was computed, no random number was drawn.

Sizes may vary: inputs that are symbols (they come first) are given to the graph as `torch.SymInt`s,
so are sizes of tensors; what is recorded holds expressions. Whoever runs a recorder enters the
`Assumptions` under which questions about sizes are answered.

Inputs that need a gradient reach the graph as results of one `_Enter` node, so that in-place ops on
them are legal here; where the user's tensor is a leaf, the write-back raises as eager does.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import SourceLine, Specialise, Unsupported
from windfall.ir import node as node_info
from windfall.ir.backward_pass import backward_pass
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.generators import StandIns, given, using
from windfall.ir.node import Checkpoint, NodeInfo, Policy, Region, constant
from windfall.ir.symint import Expression, Size
from windfall.ops import fake as fakes
from windfall.ops.history import entered
from windfall.ops.layout import preserved_strides
from windfall.ops.overrides import standing_for
from windfall.ops.registry import lookup
from windfall.ops.symbolic import as_torch, asking, wants_integers

# The numbered reasons of this room (see `frontend/breaks.py` for the table's shape).
REASONS = {
    200: "an op that writes through this view cannot be made functional",
    201: "the sizes or strides of an input are changed in place",
    202: "autograd refuses the gradient of this graph",
    203: "memory of an input is addressed from outside of that input",
    204: "inputs that share memory are written",
    205: "a tensor that needs a gradient is a constant of the graph",
    206: "whether an input needs a gradient is changed inside the graph",
    207: "an input is written while gradients are computed",
    208: "a detached view is written such that it has a history of its own",
    209: "inference mode is switched inside of the graph",
    210: "a hook is registered on a tensor that the graph computes",
    211: "a view that an autograd.Function made is returned beside what it is a view of",
    212: "an op reads what it writes, at other places",
    213: "the policy of a checkpoint was asked about an op that is not there",
    214: "gradients of gradients need a value that was not saved",
    215: "a body of a control flow operation is no function of its operands alone",
    216: "a view is returned, or an input written, whose history a backward pass has freed",
    217: "a tensor subclass makes something that a graph of plain tensors cannot show",
    218: "ways around a result and through it cannot be told apart",
    219: "the real numbers of a lazy conjugate are returned",
    220: "a view is returned that was made before what it looks at had a history",
    221: "a view is returned that was made before the sizes of its base were changed in place",
    222: "the derivative of complex eigenvectors looks at data",
    223: "a function with a gradient of its own may be given gradients of some results alone",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The captured node that a step belongs to, if known, and what is known of that."""

    node: torch.fx.Node | None = None
    origin: SourceLine | None = None
    region: Region | None = None
    checkpoint: Checkpoint | None = None


_NO_ORIGIN = Origin()
_UNKNOWN = NodeInfo(None)
_READS_DATA = "its data is not allocated yet"


@dataclass(slots=True)
class Step:
    """One dispatched op. `types` describes its results when it had just run: a fake may change
    its sizes later. `origin` is the captured node it belongs to, if known."""

    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    types: Any
    origin: Origin


@dataclass(slots=True)
class Trace:
    """What a run of a graph did. Tensors in it are fakes (or constants)."""

    inputs: tuple[torch.Tensor, ...]  # tensors alone
    entered: tuple[torch.Tensor, ...]  # the leaves behind `inputs`
    needs: tuple[bool, ...] = ()  # which of them needed a gradient, before any was written
    door: Any = None  # the autograd node that stands between them
    outputs: tuple[Any, ...] = ()
    steps: list[Step] = field(default_factory=list)
    forward_steps: int = 0
    versions: tuple[int, ...] = ()  # how often the version of each input was bumped
    visible: tuple[bool, ...] = ()  # autograd saw the input being written
    tangents: tuple[torch.Tensor, ...] = ()
    gradients: tuple[torch.Tensor | None, ...] = ()
    fallbacks: Mapping[str, int] = field(default_factory=dict)


# Told of each captured node before it runs, and of what those before it answered.
Watch = Callable[[torch.fx.Node, Mapping[torch.fx.Node, Any]], None]


# What answers for an operation with bodies: `control_flow.py`.
RecordBodies = Callable[["Tracer", Subgraphs, Sequence[Any]], tuple[torch.Tensor, ...]]


class Tracer:
    """Runs a graph and notes what is dispatched. One tracer makes one `Trace`."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        bodies: RecordBodies | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._graph = graph
        self._watch = watch
        self._bodies = bodies
        self.symbols: tuple[Expression, ...] = ()  # of whoever calls the whole
        self._origin = _NO_ORIGIN
        self._said: tuple[tuple[str, Policy], ...] = ()  # of ops that its node comes to
        self._backward = False
        self._first_sequences: list[int] = []  # sequence number at each captured node's start
        self._origins: list[Origin] = []
        self._generators = StandIns()
        self.frees = False  # whether a pass inside of the graph has freed its history
        self.mode = fakes.FakeMode(self._observe)
        self.recording = Trace((), ())

    def run(
        self,
        types: Sequence[TensorType],
        symbols: Sequence[Size] = (),
        *,
        grad_enabled: bool,
        offsets: Mapping[int, int] = MappingProxyType({}),
    ) -> Trace:
        """The forward pass. `offsets`: inputs that begin so many elements behind the start of the
        memory that they lie in."""
        leaves = tuple(
            fakes.fake(one, offset=offsets.get(index, 0)) for index, one in enumerate(types)
        )
        recording = self.recording
        recording.entered = leaves
        recording.needs = tuple(one.requires_grad for one in leaves)
        recording.inputs = entered(leaves)
        functions = [one.grad_fn for one in recording.inputs]
        recording.door = next((one for one in functions if one is not None), None)
        before = torch_abi.versions_of(recording.inputs)
        modes = torch_abi.modes()
        try:
            with torch.set_grad_enabled(grad_enabled), self.mode, using(self._generators):
                recording.outputs = self._interpret([*map(as_torch, symbols), *recording.inputs])
        except RuntimeError as error:
            if _READS_DATA in str(error):  # a composite op in C++, past any dispatch
                raise fakes.DataDependent(str(error).splitlines()[0]) from error
            _if_symbolic(error, symbols, self._origin.origin)
            raise
        except Specialise as reason:
            reason.where = reason.where or self._origin.origin
            raise
        finally:
            torch_abi.set_modes(modes)  # which nodes of the graph may have switched
        after = torch_abi.versions_of(recording.inputs)
        recording.versions = tuple(b - a for a, b in zip(before, after, strict=True))
        recording.visible = tuple(
            _visible(one, function)
            for one, function in zip(recording.inputs, functions, strict=True)
        )
        recording.forward_steps = len(recording.steps)
        recording.fallbacks = self.mode.fallbacks
        return recording

    def differentiate(
        self,
        results: Sequence[torch.Tensor],
        symbols: Sequence[Expression] = (),
        stops: Sequence[int] = (),
        views: Sequence[torch.Tensor] = (),
    ) -> None:
        """The gradients of `results` with respect to the inputs that need one, then to the results
        at `stops`: what arrives there ends there, and their tangents go on in its place; then to
        `views`, where it ends and nothing goes on."""
        recording = self.recording
        self._check_phases()
        wanted = list(itertools.compress(recording.entered, recording.needs))
        recording.tangents = tuple(_tangent(one) for one in results)
        arrived: dict[int, torch.Tensor] = {}

        def stop(index: int, gradient: torch.Tensor) -> torch.Tensor:
            arrived[index] = gradient
            return recording.tangents[index]

        def end(view: int, place: int, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
            if gradients[place] is not None:
                arrived[~view] = gradients[place]
            return (*gradients[:place], None, *gradients[place + 1 :])

        hooks = [results[one].register_hook(partial(stop, one)) for one in stops]  # type: ignore[no-untyped-call]
        nodes: list[Any] = [one.grad_fn for one in views]
        hooks += [
            node.register_prehook(partial(end, index, one.output_nr))
            for index, (node, one) in enumerate(zip(nodes, views, strict=True))
        ]
        last = [one for one in range(len(results)) if one not in stops]
        self._backward = True
        asking.where = lambda: self._backward_origin().origin
        try:
            with self.mode, autocast(None):
                found = torch_abi.gradients(
                    [results[one] for one in last],
                    wanted,
                    [recording.tangents[one] for one in last],
                )
            at_views = (arrived.get(~index) for index in range(len(views)))
            recording.gradients = (*found, *(arrived[one] for one in stops), *at_views)
        except RuntimeError as error:
            _if_symbolic(error, symbols, None)
            # Eager would raise at backward(), if that is ever called: then let eager do it.
            raise Unsupported(202, str(error).splitlines()[0]) from error
        finally:
            self._backward = False
            asking.where = None
            for hook in hooks:
                hook.remove()

    def pull_back(
        self,
        results: Sequence[torch.Tensor],
        tangents: Sequence[torch.Tensor],
        wanted: Sequence[torch.Tensor],
        stops: Sequence[torch.Tensor] = (),
        cast: torch.dtype | None = None,
        *,
        again: bool,
    ) -> tuple[torch.Tensor | None, ...]:
        """One backward pass of several, in the autocast that it is asked for in: the gradients of
        leaves, then of the results at `stops`, at which they end. `again`: they have a history."""
        if not wanted and not stops:
            return ()  # none at all means all leaves, to the engine
        self._check_phases()

        def stop(result: int, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
            return (*gradients[:result], None, *gradients[result + 1 :])

        nodes: list[Any] = [one.grad_fn for one in stops]
        hooks = [
            node.register_prehook(partial(stop, one.output_nr))
            for node, one in zip(nodes, stops, strict=True)
        ]
        try:
            with self.mode, autocast(cast):
                return torch_abi.gradients(results, [*wanted, *stops], tangents, again)
        finally:
            for hook in hooks:
                hook.remove()

    # ---------------------------------------------------------------------------- internals

    def _check_phases(self) -> None:
        """Of fakes, torch does not check what it checks of tensors with data (`Op.phases`)."""
        for step in self.recording.steps:
            if isinstance(step.func, Subgraphs) or not lookup(step.func).phases:
                continue
            _, vectors = step.result
            if vectors.requires_grad and vectors.is_complex() and 0 not in vectors.shape:
                raise Unsupported(222, str(step.func))

    def note(self, target: Subgraphs, arguments: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Note an operation with bodies of ATen overloads; what it answers."""
        made = tuple(fakes.fake(one, requires_grad=False) for one in target.result_types)
        self._observe(target, tuple(arguments), {}, made)
        return made

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is dispatched inside is none of this recording."""
        self.mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self.mode.__enter__()  # type: ignore[no-untyped-call]

    def _observe(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        if self._backward:
            origin = self._backward_origin()
        else:
            origin = self._said_of(func) if self._said else self._origin
        named = self._generators.named
        args = tuple(map(named, args))
        kwargs = {name: named(one) for name, one in kwargs.items()} if kwargs else kwargs
        step = Step(func, args, kwargs, result, _types(result), origin)
        self.recording.steps.append(step)
        if not isinstance(func, Subgraphs) and fakes.counts_writes(func):
            for one in written_by(step):
                torch_abi.raise_version(one, 1)

    def _enter(self, node: torch.fx.Node) -> None:
        """The next captured node, and what was said of the ops that it comes to."""
        found = node.meta.get(node_info.KEY, _UNKNOWN)
        checkpoint = found.checkpoint
        if self._said:
            raise Unsupported(213, f"{self._said[0][0]} at {self._origin.origin}")
        if checkpoint is not None:
            self._said = checkpoint.policies
            checkpoint = replace(checkpoint, policies=())
        self._origin = Origin(node, found.origin, found.region, checkpoint)

    def _said_of(self, func: Any) -> Origin:
        """The present node, with what was said of this op of it."""
        (op, policy), *rest = self._said
        if op != str(func):
            return self._origin  # torch asks no policy about it
        self._said = tuple(rest)
        assert self._origin.checkpoint is not None
        checkpoint = replace(self._origin.checkpoint, policies=((op, policy),))
        return replace(self._origin, checkpoint=checkpoint)

    def _backward_origin(self) -> Origin:
        """The captured node that made the autograd node which the engine runs now."""
        sequence = torch_abi.running_autograd_sequence()
        position = bisect.bisect_right(self._first_sequences, sequence) - 1 if sequence >= 0 else -1
        return self._origins[position] if position >= 0 else _NO_ORIGIN

    def _pass(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
        """A backward pass that the graph holds: its ops belong to what they are gradients of."""
        self._check_phases()
        self._backward, before = True, self._origin
        asking.where = lambda: self._backward_origin().origin
        try:
            return call(node, values)
        finally:
            self._backward, self._origin = False, before
            asking.where = None
            self.frees |= not node.args[3]

    def _interpret(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        values: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        for node in self._graph.nodes:
            if self._watch is not None:
                self._watch(node, values)
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "output":
                result = substitute(node.args[0], values)
                return tuple(result) if isinstance(result, list | tuple) else (result,)
            elif node.op == "get_attr":
                values[node] = constant(node)
            else:
                self._enter(node)
                self._first_sequences.append(torch_abi.next_autograd_sequence())
                self._origins.append(self._origin)
                if node.target is torch_abi.hooked:
                    raise Unsupported(210, "a hook on an intermediate tensor")
                if node.target in (torch_abi.enter_inference, torch_abi.leave_inference):
                    raise Unsupported(209, "inference mode is switched inside of the graph")
                if node.target is backward_pass:
                    values[node] = self._pass(node, values)
                elif isinstance(node.target, Subgraphs) and not (
                    self._bodies is None or node.target.is_followed
                ):
                    arguments = [substitute(one, values) for one in node.args]
                    values[node] = self._bodies(self, node.target, arguments)
                else:
                    values[node] = call(node, values, standing_for)
        raise AssertionError("the graph has no output node")


def written_by(step: Step) -> list[torch.Tensor]:
    """The tensors that a step writes."""
    found: list[torch.Tensor] = []
    for index, name in fakes.writes_of(step.func):
        one = step.args[index] if index < len(step.args) else step.kwargs.get(name)
        found.extend(one if isinstance(one, list | tuple) else [one] if one is not None else [])
    return found


def _if_symbolic(error: RuntimeError, symbols: Sequence[Size], where: SourceLine | None) -> None:
    """Kernels in C++ that want plain integers say so."""
    names = frozenset(str(one) for one in symbols if isinstance(one, Expression))
    if names and wants_integers(error):
        raise Specialise(names, str(error).splitlines()[0], where) from error


def substitute(value: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    """`value` with what nodes stand for in place of nodes."""
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, tuple):
        made = [substitute(one, values) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, list):
        return [substitute(one, values) for one in value]
    if isinstance(value, dict):
        return {key: substitute(one, values) for key, one in value.items()}
    if isinstance(value, slice):
        return slice(*(substitute(one, values) for one in (value.start, value.stop, value.step)))
    return given(value)


def call(
    node: torch.fx.Node,
    values: Mapping[torch.fx.Node, Any],
    standing_for: Callable[[Any], Any] | None = None,
) -> Any:
    """What a function or method node answers; `standing_for` may know another function for it."""
    args = [substitute(one, values) for one in node.args]
    kwargs = {key: substitute(one, values) for key, one in node.kwargs.items()}
    if node.op == "call_method":
        receiver, name = args[0], str(node.target)
        if standing_for is None:
            return getattr(receiver, name)(*args[1:], **kwargs)
        return standing_for(getattr(type(receiver), name))(*args, **kwargs)
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    if standing_for is not None:
        target = standing_for(target)
    return target(*args, **kwargs)


def autocast(dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """CPU autocast to `dtype`, or none, whatever it is now. (Backward is recorded without: eager
    runs it in the state of whoever calls it, which a backward variant checks.)"""
    if dtype is None and not torch.is_autocast_enabled("cpu"):
        return nullcontext()
    return torch.autocast("cpu", dtype=dtype, enabled=dtype is not None)


def ambient_autocast() -> torch.dtype | None:
    """The dtype that CPU autocast casts to now; None if it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def _visible(entered: torch.Tensor, function: Any) -> bool:
    """Whether autograd's history of an input changed: it was written where autograd sees it."""
    if entered.grad_fn is function:
        if function is None and entered.requires_grad and not fakes.type_of(entered).requires_grad:
            raise Unsupported(206, "requires_grad_() of an input")
        return False
    if entered.grad_fn is None:
        raise Unsupported(206, "detach_() of an input")
    return True


def _tangent(result: torch.Tensor) -> torch.Tensor:
    return fakes.fake(dense_like(fakes.type_of(result)), requires_grad=False)


def dense_like(type: TensorType) -> TensorType:
    """The type that a tangent is expected to have: dense, in the same order of dimensions."""
    strides = preserved_strides(type.sizes, type.strides)
    return TensorType(type.dtype, type.sizes, strides, type.device)


def _types(result: Any) -> Any:
    if fakes.is_fake(result):
        return result._fake_type
    if isinstance(result, tuple | list):
        return tuple(_types(one) for one in result)
    return None
