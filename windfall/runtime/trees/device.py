"""What a tree knows of the device that its recordings run on.

Enters: nothing. Leaves: `GraphDevice`, the protocol between the manager, which says *what* runs and
*when* (`manager.py`), and a device, which knows memory and calls; and the records that both name:
`GraphRegion`, what is recorded; `PoolBlock`, the memory of one pooled result; `Made`, what a run
answered.

Invariant: a device writes into memory of its pool only where no live `PoolBlock` is that the
manager told it of; a block is dead exactly when nothing can read its memory any more (tensor, view,
`detach()`, a value that autograd has saved, an array). Whether a recording may be replayed is asked
(`obstacle`) before anything is consumed, and answered without a change.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any, Protocol

from windfall.dataclass import dataclass

_NUMBERS = itertools.count()


class Skip(enum.Enum):
    """Why a call ran without a recording; and what to do about it."""

    SMALL = (
        "it is too small: its results and intermediate values take less than minimum_bytes",
        "nothing: a place in the pool would cost more. TreeOptions(minimum_bytes=0) records it all "
        "the same",
    )
    REENTERED = (
        "it was called while another region of this thread ran (a hook, a finaliser, a custom op)",
        "nothing, if it is rare; else call it outside of the hook",
    )
    SIZES = (
        "its sizes are not among TreeOptions(sizes=…)",
        "add the size to the list, or leave the list out",
    )
    LIMIT = (
        "rerecord_limit is reached: each call found other results of earlier regions alive",
        "drop results before the next call, clone() what is kept, or mark steps with "
        "windfall.mark_step_begin()",
    )
    FULL = ("the pool has no room for it", "reset() gives the pool back; use a smaller batch")
    NO_STORAGE = (
        "this build of torch gives no storages over foreign memory that behave as its own",
        "torch_abi.report()['storage_layout'] says what is missing",
    )
    FOREIGN = (
        "an input is on no device that records this",
        "graph_trees records CUDA tensors; for the CPU: windfall.compile(mode='reduce-overhead')",
    )
    OVERLAP = (
        "an input that it writes shares memory with another input",
        "pass tensors that do not overlap",
    )
    LEAK = (
        "it keeps a tensor that it made in a recording, where the next replay would overwrite it",
        "return the tensor instead of keeping it, or clone() it behind the call",
    )
    REFUSED = (
        "the device could not record it",
        "the reason says what happened; move that operation out of the function",
    )

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy


class NotRecordable(Exception):
    """A device cannot record this call; nothing has run."""

    def __init__(self, skip: Skip, detail: str = "") -> None:
        super().__init__(detail or skip.reason)
        self.skip = skip
        self.detail = detail


class PoolBlock:
    """The memory of one pooled result. `alive` is set by whoever drops the memory last, in any
    thread: it only ever goes from true to false."""

    __slots__ = ("alive", "generation", "is_saved", "owner", "size", "start", "storage", "watch")

    def __init__(self, start: int, size: int, owner: GraphRegion, is_saved: bool = False) -> None:
        self.start = start
        self.size = size
        self.owner = owner
        self.is_saved = is_saved  # for backward: while it lives, a backward pass may come
        self.alive = True
        self.generation = 0
        self.watch: Any = None  # what calls `died`
        self.storage: Any = None  # of a device that moves blocks: a weak reference

    def died(self, _: Any = None) -> None:
        """Nothing reads this memory any more."""
        self.alive = False

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.start + self.size

    def __repr__(self) -> str:
        state = "alive" if self.alive else "dead"
        return f"PoolBlock({self.start:#x}, {self.size} bytes of {self.owner.name}, {state})"


@dataclass(slots=True)
class Counters:
    """How often a region ran how."""

    warmed: int = 0
    recorded: int = 0
    replayed: int = 0
    rerecorded: int = 0  # of those recorded: because none that was there fitted
    evicted: int = 0
    skipped: dict[Skip, int] = field(default_factory=dict)
    why: dict[str, int] = field(default_factory=dict)  # why recordings did not fit, in words

    def __str__(self) -> str:
        parts = [
            f"{name} {count}"
            for name in ("warmed", "recorded", "replayed", "rerecorded", "evicted")
            if (count := getattr(self, name))
        ]
        parts += [f"unrecorded {count} ({skip.reason})" for skip, count in self.skipped.items()]
        return ", ".join(parts) or "never called"


class GraphRegion:
    """Something that can be recorded. `payload` is the device's to read."""

    def __init__(
        self,
        name: str,
        payload: Any,
        *,
        starts: bool = False,
        where: str = "",
        note: Callable[[GraphRegion, str, Skip | None, str], None] | None = None,
    ) -> None:
        self.name = name
        self.payload = payload
        self.starts = starts  # a call of the user's begins with it
        self.where = where  # the user's line
        self.number = next(_NUMBERS)
        self.counters = Counters()
        self._note = note

    def noted(self, what: str, skip: Skip | None = None, detail: str = "") -> None:
        """Tell whoever listens; what happens on every call is only counted."""
        if self._note is not None:
            self._note(self, what, skip, detail)

    def skipped(self, skip: Skip, detail: str = "") -> bool:
        """A call runs unrecorded; whether it is the first for this reason, which is told."""
        counted = self.counters.skipped
        first = skip not in counted
        if first:
            self.noted("unrecorded", skip, detail)
        counted[skip] = counted.get(skip, 0) + 1
        return first


@dataclass(slots=True)
class Made:
    """What a run answered, and the memory of those results that are pooled."""

    results: Any
    blocks: Sequence[PoolBlock] = ()


class GraphDevice(Protocol):
    """A kind of device. Pools, recordings and states are the device's own."""

    name: str
    needs_warmup: bool  # the first call of a region must run outside of a recording
    evicts: bool  # a live block can be moved to memory of its own, unseen by whoever holds it

    def create_pool(self) -> Any:
        """Memory that recordings share."""

    def destroy_pool(self, pool: Any) -> None:
        """The manager needs it no more; live blocks stay readable until they die."""

    def pool_bytes(self, pool: Any) -> int:
        """How far its memory was ever used."""

    def key(self, region: GraphRegion, args: Sequence[Any]) -> Hashable:
        """What tells calls apart that need recordings of their own; `NotRecordable`."""

    def feeds(self, pool: Any, args: Sequence[Any], live: Sequence[PoolBlock]) -> bool:
        """Whether one of the live blocks is among the inputs, where that matters."""

    def obstacle(
        self,
        pool: Any,
        recording: Any,
        region: GraphRegion,
        args: Sequence[Any],
        live: Sequence[PoolBlock],
    ) -> str | None:
        """Why a recording may not be replayed now; None: it may."""

    def run(self, region: GraphRegion, args: Sequence[Any]) -> Any:
        """The results, without a recording and outside of the pool."""

    def warm_up(
        self, pool: Any, region: GraphRegion, args: Sequence[Any], live: Sequence[PoolBlock]
    ) -> Made:
        """Run it outside of a recording; its results are fresh, or have their blocks."""

    def record(
        self,
        pool: Any,
        region: GraphRegion,
        key: Hashable,
        args: Sequence[Any],
        live: Sequence[PoolBlock],
    ) -> tuple[Any, Made]:
        """A recording that leaves the live blocks alone, and what this call answers;
        `NotRecordable` where it cannot be, and then nothing has run."""

    def replay(self, pool: Any, recording: Any, region: GraphRegion, args: Sequence[Any]) -> Made:
        """Run a recording that has no obstacle."""

    def state(self, pool: Any) -> Any:
        """What is allocated now: taken behind a recording."""

    def restore(self, pool: Any, state: Any, live: Sequence[PoolBlock]) -> None:
        """Let the pool be as then, but for what has died since. (Replays tell it nothing.)"""

    def evict(self, pool: Any, block: PoolBlock) -> bool:
        """Move a live block out of the pool, contents and all; false: it cannot be moved."""

    def release(self, pool: Any, recording: Any) -> None:
        """A recording is not needed any more."""

    def live_blocks(self, pool: Any) -> dict[int, int] | None:
        """What the pool itself takes for allocated, address to bytes; None: it keeps no books but
        the manager's."""

    def fence(self, pool: Any) -> None:
        """Everything that was begun has ended."""
