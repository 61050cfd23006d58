"""Devices whose recordings have addresses baked in: what CUDA and a fake of it have in common.

Enters: callables on tensors, as regions. Leaves: recordings with everything that surrounds a
captured graph: which inputs are copied to buffers of the recording and which are read where they
stand, how results are made again, which of them are inputs, aliases, constants. A device adds the
primitives below.

Invariant: a recording is launched only if every address in it means what it meant: inputs that were
baked in stand where they stood, and what is alive in the pool now was alive when it was recorded.
Results never look at a buffer of the recording: an alias of an input is an alias of the caller's.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.runtime.trees.device import GraphRegion, Made, NotRecordable, PoolBlock, Skip


@dataclass(slots=True)
class CallablePayload:
    """A function of tensors and constants. `static`: inputs (by position) that stay where they are,
    such as parameters; `written`: those that it writes, as far as that is known: those whose
    versions move in a warm-up or in a recording are added."""

    call: Callable[..., Any]
    static: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()


class InputKind(enum.Enum):
    """How a recording gets an input."""

    COPIED = "copied to a buffer of the recording"
    STATIC = "read where it stands"
    POOLED = "read where an earlier region put it"
    CONSTANT = "no tensor"


@dataclass(frozen=True, slots=True)
class InputRow:
    """One input of a recording."""

    kind: InputKind
    address: int = 0
    buffer: Any = None  # of one that is copied


class OutputKind(enum.Enum):
    """What a result of a recording is."""

    NEW = "memory of the pool"
    INPUT = "a view of an input"
    SAME = "the very input"
    EMPTY = "a tensor without elements"
    CONSTANT = "an object that was there before"


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One result: `index` is that of an input, or of a storage of the recording."""

    kind: OutputKind
    index: int = -1
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype | None = None
    value: Any = None


@dataclass(slots=True)
class CapturedRecording:
    """A captured graph and what surrounds it."""

    graph: Any
    inputs: tuple[InputRow, ...]
    outputs: tuple[OutputRow, ...]
    storages: tuple[tuple[int, int], ...]  # address and bytes, one for each block
    structure: Any
    around: frozenset[tuple[int, int]]  # what was alive when it was recorded
    written: tuple[int, ...]
    keep: list[Any] = field(default_factory=list)  # what the graph reads, and nobody else owns


class CapturingDevice:
    """Records by capturing. A subclass says how memory is had and graphs are made."""

    name = "capturing"
    needs_warmup = True
    evicts = True

    # ------------------------------------------------------------------------------- primitives

    def create_pool(self) -> Any:
        """Memory that recordings share."""
        raise NotImplementedError

    def allocating(self, pool: Any, live: Sequence[PoolBlock]) -> AbstractContextManager[None]:
        """While it lasts, tensors that are made stand in the pool, clear of what is alive."""
        raise NotImplementedError

    def capture(
        self, pool: Any, body: Callable[[], Any], live: Sequence[PoolBlock]
    ) -> tuple[Any, Any]:
        """A graph of what the body does, which has not run, and what the body answered."""
        raise NotImplementedError

    def launch(self, pool: Any, graph: Any) -> None:
        """Run a graph, behind all that was begun before."""
        raise NotImplementedError

    def storage(self, pool: Any, address: int, bytes: int) -> tuple[Any, Any]:
        """A storage over memory of the pool, and an object that dies with that memory's last
        reader."""
        raise NotImplementedError

    def watch(self, pool: Any, block: PoolBlock, token: Any, storage: Any) -> None:
        """Let a block die with its token."""
        raise NotImplementedError

    def tensor(self, storage: Any, row: OutputRow) -> torch.Tensor:
        """A tensor over a storage."""
        raise NotImplementedError

    def copy(self, pool: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy contents, behind all that was begun before."""
        raise NotImplementedError

    def inside(self, pool: Any, address: int) -> bool:
        """Whether an address is one of the pool's."""
        raise NotImplementedError

    def is_ours(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor stands on this device."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------- what is called

    def key(self, region: GraphRegion, args: Sequence[Any]) -> Hashable:
        """Types of tensors, values of all else."""
        written, parts = region.payload.written, list[Any]()
        for one in args:
            if not isinstance(one, torch.Tensor):
                parts.append((type(one), one))
                continue
            if not self.is_ours(one):
                raise NotRecordable(Skip.FOREIGN, f"an input on {one.device}")
            if one.requires_grad and torch.is_grad_enabled():
                raise NotRecordable(Skip.REFUSED, "an input needs a gradient")
            if one.is_inference():
                raise NotRecordable(Skip.REFUSED, "an input of inference mode has no version")
            parts.append((one.dtype, tuple(one.shape), one.stride()))
        if written and _overlap(args, written):
            raise NotRecordable(Skip.OVERLAP)
        try:
            hash(key := tuple(parts))
        except TypeError as error:
            raise NotRecordable(Skip.REFUSED, f"an input has no hash: {error}") from None
        return key

    def feeds(self, pool: Any, args: Sequence[Any], live: Sequence[PoolBlock]) -> bool:
        """Whether a result of the path is an input."""
        given = {_base(one) for one in args if isinstance(one, torch.Tensor)}
        return any(one.start in given for one in live)

    def obstacle(
        self,
        pool: Any,
        recording: CapturedRecording,
        region: GraphRegion,
        args: Sequence[Any],
        live: Sequence[PoolBlock],
    ) -> str | None:
        """An address that means something else now."""
        for block in live:
            if block.alive and (block.start, block.size) not in recording.around:
                return f"a result of {block.owner.name} is alive that was not"
        standing = {block.start for block in live if block.alive}
        for row, one in zip(recording.inputs, args, strict=True):
            if row.kind in (InputKind.STATIC, InputKind.POOLED):
                if one.data_ptr() != row.address:
                    return f"an input that is {row.kind.value} stands elsewhere"
                if row.kind is InputKind.POOLED and _base(one) not in standing:
                    return "an input is of the pool no more"
        return None

    def run(self, region: GraphRegion, args: Sequence[Any]) -> Any:
        """As it is."""
        return region.payload.call(*args)

    def warm_up(
        self, pool: Any, region: GraphRegion, args: Sequence[Any], live: Sequence[PoolBlock]
    ) -> Made:
        """Run it once as it is: libraries set themselves up. Its results are its own."""
        before = _versions(args)
        results = self.run(region, args)
        region.payload.written |= _moved(before, args)
        return Made(results)

    def record(
        self,
        pool: Any,
        region: GraphRegion,
        key: Hashable,
        args: Sequence[Any],
        live: Sequence[PoolBlock],
    ) -> tuple[CapturedRecording, Made]:
        """Capture, and launch once."""
        payload: CallablePayload = region.payload
        standing = {block.start for block in live}
        with self.allocating(pool, live):
            rows = [self._input(payload, at, one, standing) for at, one in enumerate(args)]
        given = [
            one if row.kind is not InputKind.COPIED else row.buffer
            for row, one in zip(rows, args, strict=True)
        ]
        before = _versions(given)
        graph, results = self.capture(pool, functools.partial(payload.call, *given), live)
        payload.written |= _moved(before, given)
        leaves: list[Any] = []
        structure = flattened(results, leaves)
        storages: dict[int, tuple[int, int]] = {}
        outputs = tuple(self._output(pool, one, given, storages) for one in leaves)
        recording = CapturedRecording(
            graph,
            tuple(rows),
            outputs,
            tuple(storages.values()),
            structure,
            frozenset((block.start, block.size) for block in live),
            tuple(
                at
                for at in sorted(payload.written)
                if isinstance(args[at], torch.Tensor) and rows[at].kind is InputKind.COPIED
            ),
        )
        del results, leaves, given, rows
        recording.inputs = tuple(self._unowned(pool, row) for row in recording.inputs)
        return recording, self.replay(pool, recording, region, args)

    def replay(
        self, pool: Any, recording: CapturedRecording, region: GraphRegion, args: Sequence[Any]
    ) -> Made:
        """Copy inputs, launch, write back, make results."""
        for row, one in zip(recording.inputs, args, strict=True):
            if row.kind is InputKind.COPIED:
                self.copy(pool, _once(row.buffer), _once(one))
        self.launch(pool, recording.graph)
        for at in recording.written:
            self.copy(pool, args[at], recording.inputs[at].buffer)
        blocks, storages = [], []
        for address, size in recording.storages:
            storage, token = self.storage(pool, address, size)
            block = PoolBlock(address, size, region)
            self.watch(pool, block, token, storage)
            blocks.append(block)
            storages.append(storage)
        leaves = iter([self._result(row, args, storages) for row in recording.outputs])
        return Made(built(recording.structure, leaves), blocks)

    # ------------------------------------------------------------------------- inputs and results

    def _input(self, payload: CallablePayload, at: int, one: Any, standing: set[int]) -> InputRow:
        if not isinstance(one, torch.Tensor):
            return InputRow(InputKind.CONSTANT)
        if _base(one) in standing:
            return InputRow(InputKind.POOLED, one.data_ptr())
        if at in payload.static:
            return InputRow(InputKind.STATIC, one.data_ptr())
        if _overlaps_itself(one):
            raise NotRecordable(Skip.REFUSED, "an input overlaps itself")
        return InputRow(InputKind.COPIED, buffer=self._buffer_like(one))

    def _unowned(self, pool: Any, row: InputRow) -> InputRow:
        """The memory of a buffer is the recording's while it runs; then others may have it."""
        if row.kind is not InputKind.COPIED or row.buffer.numel() == 0:
            return row
        held = row.buffer.untyped_storage()
        storage, _ = self.storage(pool, held.data_ptr(), held.nbytes())
        shape = (tuple(row.buffer.shape), row.buffer.stride(), 0, row.buffer.dtype)
        made = self.tensor(storage, OutputRow(OutputKind.NEW, -1, *shape))
        return InputRow(row.kind, buffer=made)

    def _buffer_like(self, one: torch.Tensor) -> torch.Tensor:
        """Memory for an input, laid out alike; dimensions that it repeats are there once."""
        made = torch.empty_strided(
            [1 if stride == 0 else size for size, stride in _dimensions(one)],
            one.stride(),
            dtype=one.dtype,
            device=one.device,
        )
        return made.expand(one.shape)

    def _output(
        self,
        pool: Any,
        one: Any,
        given: Sequence[Any],
        storages: dict[int, tuple[int, int]],
    ) -> OutputRow:
        if not isinstance(one, torch.Tensor):
            return OutputRow(OutputKind.CONSTANT, value=one)
        shape = (tuple(one.shape), one.stride())
        for at, other in enumerate(given):
            if one is other:
                return OutputRow(OutputKind.SAME, at)
            if isinstance(other, torch.Tensor) and _base(one) == _base(other) != 0:
                moved = int(one.storage_offset()) - int(other.storage_offset())
                return OutputRow(OutputKind.INPUT, at, *shape, moved)
        address = _base(one)
        if address == 0 or one.numel() == 0:
            return OutputRow(OutputKind.EMPTY, -1, *shape, 0, one.dtype, one.device)
        if not self.inside(pool, address):
            return OutputRow(OutputKind.CONSTANT, value=one)
        storages.setdefault(address, (address, one.untyped_storage().nbytes()))
        index = list(storages).index(address)
        return OutputRow(OutputKind.NEW, index, *shape, int(one.storage_offset()), one.dtype)

    def _result(self, row: OutputRow, args: Sequence[Any], storages: Sequence[Any]) -> Any:
        if row.kind is OutputKind.CONSTANT:
            return row.value
        if row.kind is OutputKind.SAME:
            return args[row.index]
        if row.kind is OutputKind.INPUT:
            one = args[row.index]
            return one.as_strided(row.sizes, row.strides, int(one.storage_offset()) + row.offset)
        if row.kind is OutputKind.EMPTY:
            made = (row.sizes, row.strides)
            return torch.empty_strided(*made, dtype=row.dtype, device=row.value)
        return self.tensor(storages[row.index], row)


def _versions(args: Sequence[Any]) -> list[int]:
    return [
        torch_abi.versions_of((one,))[0] if isinstance(one, torch.Tensor) else 0 for one in args
    ]


def _moved(before: Sequence[int], args: Sequence[Any]) -> frozenset[int]:
    """The inputs that were written since."""
    after = _versions(args)
    return frozenset(
        at for at, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1
    )


def _base(one: torch.Tensor) -> int:
    """Where a tensor's storage begins; 0: it has none."""
    return int(one.untyped_storage().data_ptr())


def _dimensions(one: torch.Tensor) -> Iterator[tuple[int, int]]:
    return zip(one.shape, one.stride(), strict=True)


def _once(one: torch.Tensor) -> torch.Tensor:
    """Each element once, of a tensor that repeats some."""
    if 0 not in one.stride():
        return one
    sizes = [min(size, 1) if stride == 0 else size for size, stride in _dimensions(one)]
    return one.as_strided(sizes, one.stride(), one.storage_offset())


def _overlaps_itself(one: torch.Tensor) -> bool:
    kept = [(size, stride) for size, stride in _dimensions(one) if stride != 0 and size > 1]
    reach = 0
    for size, stride in sorted(kept, key=lambda pair: pair[1]):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _overlap(args: Sequence[Any], written: frozenset[int]) -> bool:
    """Whether a written input shares its storage with another one, or repeats itself."""
    bases = [_base(one) if isinstance(one, torch.Tensor) else 0 for one in args]
    for at in written:
        one = args[at]
        if not isinstance(one, torch.Tensor):
            continue
        if bases[at] and bases.count(bases[at]) > 1:
            return True
        if any(stride == 0 and size > 1 for size, stride in _dimensions(one)):
            return True
    return False


_LEAF = "*"


def flattened(value: Any, leaves: list[Any]) -> Any:
    """The structure of a value, whose leaves are appended."""
    if type(value) in (tuple, list):
        return type(value), [flattened(one, leaves) for one in value]
    if type(value) is dict:
        return dict, {name: flattened(one, leaves) for name, one in value.items()}
    leaves.append(value)
    return _LEAF


def built(structure: Any, leaves: Iterator[Any]) -> Any:
    """A value of this structure with these leaves."""
    if structure == _LEAF:
        return next(leaves)
    kind, parts = structure
    if kind is dict:
        return {name: built(one, leaves) for name, one in parts.items()}
    return kind(built(one, leaves) for one in parts)
