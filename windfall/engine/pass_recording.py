"""What a pass does, noted while it is done.

Enters: nodes that are run for real, their gradients and what they have saved. Leaves: a
`PassRecording`: operations on registers, live calls between them, where each gradient was
delivered. Invariant: an operation is noted only if each of its tensors is known to be a gradient
that arrived, a saved value of the same node, or the result of another one; a node with any other
one is called live from then on. Nothing is kept of the tensors once their node has run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.engine.backward_graph import geometry
from windfall.engine.steps import (
    CallKind,
    Gradients,
    LeafUpdate,
    LiveCall,
    RecordedOp,
    Register,
    Registers,
    SavedValue,
    Traced,
)
from windfall.ir.dtype import TensorType


@dataclass(slots=True)
class PassRecording:
    """What was noted. `types` has one for each register; None: no plain tensor. `delivered` has an
    entry for each node that has run, in order: what stood at the end of each of its edges then."""

    types: list[TensorType | None] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    saved: dict[int, SavedValue] = field(default_factory=dict)
    steps: list[RecordedOp | LiveCall | LeafUpdate] = field(default_factory=list)
    delivered: list[tuple[int, Registers]] = field(default_factory=list)
    captured: dict[int, int | None] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)  # why nodes are called live, in words


class _Unknown(Exception):
    """An operation that cannot be noted; the text says why."""


class PassRecorder:
    """Notes what is run."""

    def __init__(self) -> None:
        self.recording = PassRecording()

    def root(self, tensor: torch.Tensor) -> Traced:
        """A gradient that the pass begins with."""
        made = self._new(tensor)
        self.recording.roots.append(_number(made))
        return made

    def _new(self, tensor: torch.Tensor) -> Traced:
        types = self.recording.types
        types.append(TensorType.of(tensor).without_grad() if is_plain(tensor) else None)
        return Traced(tensor, len(types) - 1)

    def compute(
        self,
        kind: CallKind,
        node: int,
        call: Callable[..., Any],
        given: Gradients,
        saved: Mapping[str, Any] | None = None,
    ) -> Gradients:
        """What `call` answers for these gradients, its operations noted; as a live call of this
        kind where they cannot be."""
        scope = _Scope(self, node, given, saved or {})
        with scope:
            results = call(*[None if one is None else one.tensor for one in given])
        results = list(results) if isinstance(results, tuple | list) else [results]
        try:
            if scope.reason:
                raise _Unknown(scope.reason)
            found = [None if one is None else Traced(one, scope.register(one)) for one in results]
        except _Unknown as reason:
            self.recording.opaque.append(f"{kind} {node}: {reason}")
            return self.live(kind, node, given, results)
        self.recording.steps.extend(scope.operations)
        return found

    def live(
        self,
        kind: CallKind,
        node: int,
        given: Gradients,
        results: Sequence[torch.Tensor | None],
        made: Gradients | None = None,
    ) -> Gradients:
        """Something was called, and will be each time: its results are new, whatever they are."""
        found = [None if one is None else self._new(one) for one in results]
        self.recording.steps.append(
            LiveCall(
                kind,
                node,
                registers(given),
                registers(made or []),
                registers(found),
                len(self.recording.delivered),
            )
        )
        return found

    def leaf(self, node: int, value: Traced, hooked: bool) -> None:
        """A gradient was accumulated."""
        self.recording.steps.append(LeafUpdate(node, _number(value), hooked))

    def captured(self, position: int, value: Traced | None) -> None:
        """A gradient that is asked for."""
        self.recording.captured[position] = None if value is None else value.register

    def delivered(self, node: int, buffers: Gradients) -> None:
        """A node has run, and this stands at the ends of its edges."""
        self.recording.delivered.append((node, registers(buffers)))


class Unrecorded:
    """A recorder that notes nothing: the rest of a pass that went another way than recorded."""

    def root(self, tensor: torch.Tensor) -> Traced:
        """As of `PassRecorder`."""
        return Traced(tensor, None)

    def compute(
        self,
        kind: CallKind,
        node: int,
        call: Callable[..., Any],
        given: Gradients,
        saved: Mapping[str, Any] | None = None,
    ) -> Gradients:
        """As of `PassRecorder`."""
        results = call(*[None if one is None else one.tensor for one in given])
        results = results if isinstance(results, tuple | list) else [results]
        return [None if one is None else Traced(one, None) for one in results]

    def live(
        self,
        kind: CallKind,
        node: int,
        given: Gradients,
        results: Sequence[torch.Tensor | None],
        made: Gradients | None = None,
    ) -> Gradients:
        """As of `PassRecorder`."""
        return [None if one is None else Traced(one, None) for one in results]

    def leaf(self, node: int, value: Traced, hooked: bool) -> None:
        """As of `PassRecorder`."""

    def captured(self, position: int, value: Traced | None) -> None:
        """As of `PassRecorder`."""

    def delivered(self, node: int, buffers: Gradients) -> None:
        """As of `PassRecorder`."""


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a graph may take it."""
    return type(tensor) in (
        torch.Tensor,
        torch.nn.Parameter,
    ) and torch_abi.is_plain_tensor(tensor)


def registers(values: Gradients) -> Registers:
    """Which registers these are."""
    return tuple(None if one is None else one.register for one in values)


def _number(value: Traced) -> int:
    assert value.register is not None
    return value.register


class _Scope(torch_abi.DispatchMode):  # type: ignore[no-untyped-call]
    """The operations of one node, as they are dispatched."""

    def __init__(
        self, recorder: PassRecorder, node: int, given: Gradients, saved: Mapping[str, Any]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[RecordedOp] = []
        self.reason = ""
        self._recorder, self._node = recorder, node
        self._known: dict[int, tuple[torch.Tensor, int]] = {}
        self._saved: dict[Any, SavedValue] = {}
        self._numbers: set[Any] = set()  # saved tensors without dimensions that nobody took
        self._lifted: dict[SavedValue, int] = {}
        for one in given:
            if one is not None:
                self._know(one.tensor, _number(one))
        for name, value in saved.items():
            for position, tensor in _tensors(value):
                if tensor.dim() or not torch_abi.is_wrapped_number(tensor):
                    self._saved.setdefault(geometry(tensor), SavedValue(node, name, position))
                    if not tensor.dim():
                        self._numbers.add(geometry(tensor))

    def _know(self, tensor: torch.Tensor, register: int) -> None:
        known = self._known.setdefault(id(tensor), (tensor, register))
        if known[1] != register:
            # One object in two roles: which of them an operation means cannot be told.
            self.reason = self.reason or "one tensor arrives as two gradients"

    def register(self, tensor: torch.Tensor) -> int:
        """The register of a tensor; `_Unknown` where it is none."""
        known = self._known.get(id(tensor))
        if known is not None and self._recorder.recording.types[known[1]] is not None:
            return known[1]
        if not is_plain(tensor):
            raise _Unknown(f"a tensor that is not plain: {type(tensor).__name__}, {tensor.layout}")
        place = geometry(tensor)
        value = self._saved.get(place)
        if value is None:
            raise _Unknown(f"a tensor of unknown origin: {TensorType.of(tensor)}")
        self._numbers.discard(place)
        if value not in self._lifted:
            self._lifted[value] = _number(self._recorder._new(tensor))
            self._recorder.recording.saved[self._lifted[value]] = value
        return self._lifted[value]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        taken: tuple[Any, Any] = ((), ())
        if not self.reason:
            try:
                taken = self._taken(args), tuple((k, self._taken(v)) for k, v in kwargs.items())
            except _Unknown as reason:
                self.reason = f"{func}: {reason}"
        result = func(*args, **kwargs)
        if not self.reason:
            try:
                results = self._results(result)
                self.operations.append(RecordedOp(func, *taken, results, self._node))
            except _Unknown as reason:
                self.reason = f"{func}: {reason}"
        return result

    def _taken(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Register(self.register(value))
        if type(value) in (tuple, list):
            return type(value)(self._taken(one) for one in value)
        return value

    def _results(self, result: Any) -> int | Registers:
        if isinstance(result, torch.Tensor):
            return self._result(result)
        if isinstance(result, tuple | list):
            return tuple(None if one is None else self._result(one) for one in result)
        raise _Unknown("it answers what is no tensor")

    def _result(self, tensor: Any) -> int:
        if not isinstance(tensor, torch.Tensor) or not is_plain(tensor):
            raise _Unknown("it answers what is no plain tensor")
        known = self._known.get(id(tensor))
        if known is None:
            made = self._recorder._new(tensor)
            known = self._known[id(tensor)] = (tensor, _number(made))
        return known[1]

    def __exit__(self, *raised: Any) -> Any:
        if self._numbers and not self.reason:
            # It may have reached an operation as a number, which a recording would repeat.
            self.reason = "a saved tensor without dimensions may have been read as a number"
        return super().__exit__(*raised)  # type: ignore[no-untyped-call]


def _tensors(value: Any) -> list[tuple[int | None, torch.Tensor]]:
    """The tensors of a saved value, with their places in a list."""
    if isinstance(value, torch.Tensor):
        return [(None, value)]
    if isinstance(value, tuple | list):
        return [(at, one) for at, one in enumerate(value) if isinstance(one, torch.Tensor)]
    return []
