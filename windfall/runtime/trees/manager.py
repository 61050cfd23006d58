"""One tree of recordings: which of them runs, when a path ends, what stays alive.

Enters: calls of regions, of one thread. Leaves: what each region answers, by a replay, a recording,
a warm-up, or without any. Invariant: all is checked before an input is consumed or a byte is
written; a recording that does not fit is passed by for a sibling, for a new one, or for a plain
run: a correct program never gets an error (but under `strict`), and no live block is written.

    root ── encode ── attend ── attend ── head        nodes: (region, sizes) behind a path
              │                   └────── head'       the same, with more results alive
              └────── loss ── loss backward

The *path* leads from the root to what ran last. A *generation* is a step of the program: it ends
where a region begins a call of the user's and no backward pass can come any more (nothing saved is
alive), at a mark, or where nothing of the path is left alive. What lives on over its end keeps its
memory: it is moved out of the pool where the device can do that unseen, else recordings keep clear
of it.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from windfall.dataclass import dataclass
from windfall.directives import STEP_MARKS, StepMarks
from windfall.errors import InternalError, UserError
from windfall.options import TreeOptions
from windfall.runtime.trees.device import (
    GraphDevice,
    GraphRegion,
    Made,
    NotRecordable,
    PoolBlock,
    Skip,
)

HISTORY = 256  # events of a manager that are kept


class Node:
    """A recording behind the path to its parent."""

    __slots__ = (
        "__weakref__",
        "children",
        "depth",
        "key",
        "parent",
        "recording",
        "region",
        "replays",
        "state",
        "used",
    )

    def __init__(
        self, parent: Node | None, region: GraphRegion | None, key: Hashable, recording: Any
    ) -> None:
        self.parent = parent
        self.region = region
        self.key = key
        self.recording = recording
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.children: dict[Hashable, list[Node]] = {}
        self.replays = 0
        self.used = 0
        self.state: Any = None  # of the pool, right behind it

    def path(self) -> Iterator[Node]:
        """Itself and all before it, but for the root."""
        node: Node | None = self
        while node is not None and node.region is not None:
            yield node
            node = node.parent

    def below(self) -> Iterator[Node]:
        """All nodes behind it, parents first."""
        for siblings in list(self.children.values()):
            for one in siblings:
                yield one
                yield from one.below()


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a tree."""

    number: int
    generation: int
    what: str
    region: str
    detail: str = ""


class TreeManager:
    """The tree of one thread on one device."""

    def __init__(
        self, device: GraphDevice, options: TreeOptions | None = None, marks: StepMarks = STEP_MARKS
    ) -> None:
        self.device = device
        self.options = options if options is not None else TreeOptions()
        self.pool = device.create_pool()
        self.root = Node(None, None, None, None)
        self.current = self.root
        self.generation = 0
        self.live: list[PoolBlock] = []
        self.history: deque[Moment] = deque(maxlen=HISTORY)
        self.owner = threading.get_ident()
        self.closed = False
        self._marks = marks
        self._marked = marks.count
        self._busy = False
        self._clock = 0
        self._nodes = 0
        self._warmed: set[tuple[int, Hashable]] = set()
        self._leaky: set[int] = set()  # regions that keep what they make
        self._leaked: set[int] = set()  # addresses of what they kept

    # ------------------------------------------------------------------------------------ calling

    def call(
        self, region: GraphRegion, args: Sequence[Any], options: TreeOptions | None = None
    ) -> Any:
        """What the region answers. `options`: those of this region, if they are its own."""
        if self._busy or self.closed or threading.get_ident() != self.owner:
            return self._plain(region, args, Skip.REENTERED)
        self._busy = True
        try:
            return self._call(region, args, options or self.options)
        finally:
            self._busy = False

    def _call(self, region: GraphRegion, args: Sequence[Any], options: TreeOptions) -> Any:
        self._clock += 1
        live = self._alive()
        if region.starts or self._marks.count != self._marked:
            live = self._maybe_new_step(region, args, live, options)
        if not live:
            self.current = self.root  # nothing of the path is left: it has ended
        elif self.current.depth >= options.depth:
            live = self._new_step(live)
        try:
            key = self.device.key(region, args)
        except NotRecordable as refused:
            return self._plain(region, args, refused.skip, refused.detail)
        place = (region.number, key)
        known = self.current.children.get(place, ())
        why = ""
        for node in known:
            obstacle = self.device.obstacle(self.pool, node.recording, region, args, live)
            if obstacle is None:
                return self._replayed(node, region, args)
            why = obstacle
        if len(known) > options.rerecord_limit:
            return self._plain(region, args, Skip.LIMIT)
        return self._unmatched(region, place, args, live, why, options)

    def _unmatched(
        self,
        region: GraphRegion,
        place: tuple[int, Hashable],
        args: Sequence[Any],
        live: list[PoolBlock],
        why: str,
        options: TreeOptions,
    ) -> Any:
        """No recording fits: warm up, or record another one."""
        if region.number in self._leaky:
            return self._plain(region, args, Skip.LEAK)
        if self.device.needs_warmup and place not in self._warmed:
            return self._warm(region, place, args, live)
        return self._recorded(region, place, args, live, why, options)

    def _replayed(self, node: Node, region: GraphRegion, args: Sequence[Any]) -> Any:
        made = self.device.replay(self.pool, node.recording, region, args)
        node.replays += 1
        region.counters.replayed += 1
        return self._arrive(node, made)

    def _arrive(self, node: Node, made: Made) -> Any:
        self.current = node
        node.used = self._clock
        for block in made.blocks:
            block.generation = self.generation
        self.live.extend(made.blocks)
        return made.results

    def _recorded(
        self,
        region: GraphRegion,
        place: tuple[int, Hashable],
        args: Sequence[Any],
        live: list[PoolBlock],
        why: str,
        options: TreeOptions,
    ) -> Any:
        parent = self.current
        try:
            self.device.restore(self.pool, parent.state, live)
            recording, made = self.device.record(self.pool, region, place[1], args, live)
        except NotRecordable as refused:
            return self._plain(region, args, refused.skip, refused.detail)
        if self._leaks(live, made):
            # What it kept stays allocated, and holds what this one launch wrote.
            self._leaky.add(region.number)
            self._count_skip(region, Skip.LEAK)
            self.live.extend(made.blocks)
            return made.results
        node = Node(parent, region, place[1], recording)
        node.state = self.device.state(self.pool)
        parent.children.setdefault(place, []).append(node)
        self._nodes += 1
        region.counters.recorded += 1
        if why:
            region.counters.rerecorded += 1
            region.counters.why[why] = region.counters.why.get(why, 0) + 1
        self._remember("record", region, why)
        region.noted("recorded", None, why)
        results = self._arrive(node, made)
        if self._nodes > options.recordings:
            self._drop_oldest()
        return results

    def _leaks(self, live: Sequence[PoolBlock], made: Made) -> bool:
        """Whether memory of the pool is held that no result accounts for."""
        held = self.device.live_blocks(self.pool)
        if held is None:
            return False
        known = {one.start for one in (*live, *made.blocks)} | self._leaked
        new = held.keys() - known
        self._leaked = (self._leaked | new) & held.keys()
        return bool(new)

    def _warm(
        self,
        region: GraphRegion,
        place: tuple[int, Hashable],
        args: Sequence[Any],
        live: list[PoolBlock],
    ) -> Any:
        self.device.restore(self.pool, self.current.state, live)
        made = self.device.warm_up(self.pool, region, args, live)
        self._warmed.add(place)
        region.counters.warmed += 1
        self._remember("warm up", region)
        for block in made.blocks:
            block.generation = self.generation
        self.live.extend(made.blocks)
        return made.results

    def _plain(self, region: GraphRegion, args: Sequence[Any], skip: Skip, detail: str = "") -> Any:
        """Without a recording."""
        self._count_skip(region, skip, detail)
        return self.device.run(region, args)

    def _count_skip(self, region: GraphRegion, skip: Skip, detail: str = "") -> None:
        if region.skipped(skip, detail):
            self._remember("skip", region, detail or skip.reason)

    # -------------------------------------------------------------------------------- generations

    def _alive(self) -> list[PoolBlock]:
        self.live = [one for one in self.live if one.alive]
        return self.live

    def _maybe_new_step(
        self, region: GraphRegion, args: Sequence[Any], live: list[PoolBlock], options: TreeOptions
    ) -> list[PoolBlock]:
        marks = self._marks.count
        marked, self._marked = marks != self._marked, marks
        if not marked:
            if any(one.is_saved and one.generation == self.generation for one in live):
                return live  # a backward pass may come: this is another forward before it
            seen = any(one.region is region for one in self.current.path())
            if not seen and self.device.feeds(self.pool, args, live):
                return live  # it goes on with what came before
        if options.strict:
            self._refuse_held(live)
        return self._new_step(live)

    def _refuse_held(self, live: list[PoolBlock]) -> None:
        held = next((one for one in live if not one.is_saved), None)
        if held is not None:
            where = f" ({held.owner.where})" if held.owner.where else ""
            raise UserError(
                f"a result of {held.owner.name}{where} that stands in the pool of graph trees is "
                "still held where the next step begins. Return it from the compiled function (such "
                "results are not pooled), or clone() it in a function with windfall.disable, or "
                "drop it; TreeOptions(strict=False) lets it keep its memory"
            )

    def _new_step(self, live: list[PoolBlock]) -> list[PoolBlock]:
        self.generation += 1
        self.current = self.root
        if not self.device.evicts:
            return live
        for block in live:
            if block.alive and self.device.evict(self.pool, block):
                block.owner.counters.evicted += 1
                self._remember("evict", block.owner, f"{block.size} bytes are still held")
        return self._alive()

    # ------------------------------------------------------------------------------------ keeping

    def _drop_oldest(self) -> None:
        """The least recently used recording that nothing stands behind."""
        path = {*self.current.path()}
        leaves = [one for one in self.root.below() if not one.children and one not in path]
        if leaves:
            self._drop(min(leaves, key=lambda one: one.used))

    def _drop(self, node: Node) -> None:
        for one in [*node.below(), node]:
            self.device.release(self.pool, one.recording)
            self._nodes -= 1
        assert node.parent is not None and node.region is not None
        siblings = node.parent.children[(node.region.number, node.key)]
        siblings.remove(node)
        if not siblings:
            del node.parent.children[(node.region.number, node.key)]

    def forget(self, number: int) -> None:
        """A region is gone, and with it its recordings and what stands behind them."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            for child in [one for some in node.children.values() for one in some]:
                if child.region is not None and child.region.number == number:
                    if child in {*self.current.path()}:
                        self.current = self.root
                    self._drop(child)
                else:
                    waiting.append(child)
        self._warmed = {one for one in self._warmed if one[0] != number}

    def shutdown(self) -> None:
        """Let go of all recordings and of the pool; results that are alive stay readable."""
        if self.closed:
            return
        self.closed = True
        self.device.fence(self.pool)
        for node in [*self.root.below()]:
            self.device.release(self.pool, node.recording)
        self.root = self.current = Node(None, None, None, None)
        self._nodes = 0
        self._warmed.clear()
        self.live = []
        self.device.destroy_pool(self.pool)

    # ---------------------------------------------------------------------------------- accounting

    def _remember(self, what: str, region: GraphRegion, detail: str = "") -> None:
        self.history.append(Moment(self._clock, self.generation, what, region.name, detail))

    @property
    def is_busy(self) -> bool:
        """Whether a region of it runs."""
        return self._busy

    @property
    def nodes(self) -> int:
        """How many recordings there are."""
        return self._nodes

    @property
    def bytes(self) -> int:
        """How far the pool was ever used."""
        return self.device.pool_bytes(self.pool)

    def check(self) -> None:
        """Compare the books with the pool's own, and the tree with itself; `InternalError`."""
        live = self._alive()
        ordered = sorted(live, key=lambda one: one.start)
        for one, other in itertools.pairwise(ordered):
            if one.end > other.start:
                raise InternalError(f"two live results share memory: {one} and {other}")
        counted = sum(1 for _ in self.root.below())
        if counted != self._nodes:
            raise InternalError(f"{counted} recordings in a tree of {self._nodes}")
        held = self.device.live_blocks(self.pool)
        if held is None:
            return
        tracked = {one.start for one in live}
        for address, size in held.items():
            if address not in tracked:
                raise InternalError(f"{size} bytes at {address:#x} of the pool belong to nobody")
        for one in live:
            if one.start not in held:
                raise InternalError(f"{one} is not in the pool")
