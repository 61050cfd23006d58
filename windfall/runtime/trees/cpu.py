"""The CPU as a device of graph trees: the real one.

Enters: programs (`ir/stages.py`), as regions. Leaves: runs of their one native call, in an arena
that all regions of a thread share. A *recording* is a plan: at which offset of the arena each
pooled result and the intermediate values stand. Inputs, and results that are not pooled, go through
the arguments of the call: nothing else is baked in, so parameters may be swapped, inputs written,
and a new size is a new plan without a compilation.

Invariant: a plan is carried out only while its ground is clear of live blocks. A block that
somebody holds keeps its place (an array may have its address), and plans go around it: nothing is
ever moved, copied or overwritten.

Results that are pooled: what is saved for backward, new contents of inputs on their way to be
copied, and results that cross a break. What the user is given, and gradients, are fresh.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.ir.role import RoleKind
from windfall.ir.stages import NativeStep, Program
from windfall.ir.symint import evaluate, symbol_atom
from windfall.options import TreeOptions
from windfall.runtime.bind import Bound, bind, placed_run
from windfall.runtime.results import result_buffers, result_types, span_bytes
from windfall.runtime.trees.cpu_pool import CpuPool, footprint
from windfall.runtime.trees.device import GraphRegion, Made, NotRecordable, PoolBlock, Skip
from windfall.runtime.trees.live_intervals import Interval
from windfall.variants import Variants

_SIZES = 256  # of one program: sizes that vary, whose layouts are kept
_HIDDEN = {RoleKind.SAVED, RoleKind.WRITTEN}

Shape = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a program needs at given sizes: bytes and shapes of the results that are pooled (by
    their position among its result buffers), bytes of its intermediate values."""

    pooled: tuple[tuple[int, int, Shape, bool], ...]  # position, bytes, shape, is it saved
    scratch: int

    @property
    def bytes(self) -> int:
        """In all."""
        return self.scratch + sum(one[1] for one in self.pooled)


@dataclass(frozen=True, slots=True)
class CpuRecording:
    """Where everything stands: offsets of pooled results, then of intermediate values."""

    layout: Layout
    offsets: tuple[int, ...]
    ground: tuple[Interval, ...]
    places: tuple[None, ...]


class ProgramPayload:
    """A program, as a region has it."""

    def __init__(
        self,
        program: Program,
        *,
        crosses: bool,
        options: TreeOptions,
        native: bool = True,
        verify: bool = False,
        keep: bool = False,
    ) -> None:
        self.program = program
        self.options = options
        self.plain: Bound = bind(program, native=native, verify=verify, keep=keep)
        self.placed, self.is_native = placed_run(program, native=native, verify=verify, keep=keep)
        self.symbols = len(program.symbols)
        self._names = [symbol_atom(one).key for one in program.symbols]
        self._pooled = poolable(program, crosses)
        self._types = result_types(program)
        self._layouts = Variants[tuple[int, ...], Layout](_SIZES)
        self._fixed = None if self.symbols else self._laid_out(())
        self.places = (None,) * len(self._types)
        self.partitions = sum(not isinstance(one, NativeStep) for one in program.steps)

    @property
    def fixed_bytes(self) -> int | None:
        """What it needs in all; None: that varies."""
        return None if self._fixed is None else self._fixed.bytes

    def layout(self, sizes: tuple[int, ...]) -> Layout:
        """What it needs at these sizes."""
        if self._fixed is not None:
            return self._fixed
        found = self._layouts.get(sizes)
        if found is None:
            found = self._laid_out(sizes)
            self._layouts.add(sizes, found)
        return found

    def _laid_out(self, sizes: tuple[int, ...]) -> Layout:
        values = dict(zip(self._names, sizes, strict=True))
        pooled = []
        for position, is_saved in self._pooled.items():
            type = self._types[position]
            shape = tuple(evaluate(one, values) for one in type.sizes)
            strides = tuple(evaluate(one, values) for one in type.strides)
            bytes = 0 if 0 in shape else evaluate(span_bytes(type), values)
            if bytes:
                pooled.append((position, bytes, (shape, strides, type.dtype), is_saved))
        # Steps in Python are given tensors, which they might keep: their values stand elsewhere.
        scratch = evaluate(self.program.arena_bytes, values) if self.is_native else 0
        return Layout(tuple(pooled), scratch)


def poolable(program: Program, crosses: bool) -> dict[int, bool]:
    """The result buffers (by position) that may be pooled, and whether each is saved for backward.
    `crosses`: results go to a break, and on from there."""
    allowed = _HIDDEN | {RoleKind.RESULT} if crosses else _HIDDEN
    roles = program.roles.results
    kinds: dict[int, set[RoleKind]] = {}
    if len(roles) != len(program.results):
        return {}
    for note, role in zip(program.results, roles, strict=True):
        if note.buffer is not None:
            kinds.setdefault(note.buffer, set()).add(role.kind)
    return {
        position: RoleKind.SAVED in kinds[buffer]
        for position, buffer in enumerate(result_buffers(program))
        if buffer in kinds and kinds[buffer] <= allowed
    }


class CpuDevice:
    """Native programs in an arena."""

    name = "cpu"
    needs_warmup = False
    evicts = False  # an array may have the address: live blocks stay where they are

    def create_pool(self) -> CpuPool:
        """Address space."""
        return CpuPool()

    def destroy_pool(self, pool: CpuPool) -> None:
        """Tensors keep what they need of it."""

    def pool_bytes(self, pool: CpuPool) -> int:
        """The largest path."""
        return pool.high

    def key(self, region: GraphRegion, args: Sequence[Any]) -> Hashable:
        """The sizes that vary."""
        payload: ProgramPayload = region.payload
        sizes = tuple(args[: payload.symbols])
        allowed = payload.options.sizes
        if allowed is not None and any(one not in allowed for one in sizes):
            raise NotRecordable(Skip.SIZES)
        if payload.layout(sizes).bytes < max(payload.options.minimum_bytes, 1):
            raise NotRecordable(Skip.SMALL)
        return sizes

    def feeds(self, pool: CpuPool, args: Sequence[Any], live: Sequence[PoolBlock]) -> bool:
        """Inputs are given by pointer, wherever they stand."""
        return False

    def obstacle(
        self,
        pool: CpuPool,
        recording: CpuRecording,
        region: GraphRegion,
        args: Sequence[Any],
        live: Sequence[PoolBlock],
    ) -> str | None:
        """Whether a live block stands where the plan would write."""
        for first, last in recording.ground:
            for block in live:
                if block.start < last and first < block.start + block.size and block.alive:
                    return f"a result of {block.owner.name} is alive where it would write"
        return None

    def run(self, region: GraphRegion, args: Sequence[Any]) -> Any:
        """As without trees."""
        return region.payload.plain(*args)

    def warm_up(
        self, pool: CpuPool, region: GraphRegion, args: Sequence[Any], live: Sequence[PoolBlock]
    ) -> Made:
        """There is nothing to warm up: a plan is made without running."""
        return Made(self.run(region, args))

    def record(
        self,
        pool: CpuPool,
        region: GraphRegion,
        key: Hashable,
        args: Sequence[Any],
        live: Sequence[PoolBlock],
    ) -> tuple[CpuRecording, Made]:
        """Plan around what is alive, and run."""
        if torch_abi.storage_layout() is None:
            raise NotRecordable(Skip.NO_STORAGE)
        payload: ProgramPayload = region.payload
        assert isinstance(key, tuple)
        layout = payload.layout(key)
        wanted = [one[1] for one in layout.pooled] + [layout.scratch]
        offsets, _ = pool.place(live, wanted)
        recording = CpuRecording(
            layout, tuple(offsets), footprint(offsets, wanted), (None,) * len(payload.places)
        )
        return recording, self.replay(pool, recording, region, args)

    def replay(
        self, pool: CpuPool, recording: CpuRecording, region: GraphRegion, args: Sequence[Any]
    ) -> Made:
        """One native call."""
        payload: ProgramPayload = region.payload
        places: list[torch.Tensor | None] = list(recording.places)
        blocks = []
        for (position, size, shape, is_saved), offset in zip(
            recording.layout.pooled, recording.offsets, strict=False
        ):
            places[position], block = pool.tensor(offset, size, shape, region, is_saved)
            blocks.append(block)
        address: Any = None
        if payload.is_native:
            address = pool.base + recording.offsets[-1] if recording.layout.scratch else 0
        return Made(payload.placed(address, tuple(places), *args), blocks)

    def state(self, pool: CpuPool) -> None:
        """The live intervals are all there is."""

    def restore(self, pool: CpuPool, state: Any, live: Sequence[PoolBlock]) -> None:
        """They are passed with each recording."""

    def evict(self, pool: CpuPool, block: PoolBlock) -> bool:
        """It stays."""
        return False

    def release(self, pool: CpuPool, recording: CpuRecording) -> None:
        """A plan is a few numbers."""

    def live_blocks(self, pool: CpuPool) -> None:
        """The manager's books are the only ones."""

    def fence(self, pool: CpuPool) -> None:
        """Nothing runs on."""
