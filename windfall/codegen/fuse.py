"""Which definitions share a kernel: groups over one outer index, each a list of inner nests.

Enters: the items of `Loops`. Leaves: `Group`s and calls, in an order in which they can run.

A group counts its outer iterations with one linear index `o`, and each nest its inner iterations
with one linear index `v`; the axes of a definition are the digits of these. So shapes that differ
only by a reshape fuse like equal ones, and contiguous axes have collapsed by themselves. A nest of
extent 1 is done once for each `o`.

Invariant: what a member reads from a buffer that its own group writes was written in the same
outer iteration: by an earlier nest, or by the same nest at the same `v`. What writes an input in
place (`Buffer.over`) comes after all that reads what was there and after all that may fail; in one
group with a reader only where each element is read by the very iteration that writes it, before.

    softmax:  o<1000:  [v<1024: fold max]  [v<1024: fold sum]  [v<1024: store]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import MappingProxyType

from windfall.dataclass import dataclass
from windfall.ir.loop import (
    Axis,
    Call,
    Definition,
    Fold,
    Scalar,
    Scalars,
    Store,
    axis,
    extent_of,
    walk,
)
from windfall.ir.passes import Row, Table
from windfall.ir.symint import (
    Atom,
    Size,
    coefficient_of,
    expression_of,
    hint_of,
    known_at_least,
    product,
    substitute,
    symbols_of,
)

ROW_BYTES = 1 << 18  # a row larger than this does not stay in cache between nests
MOST_BUFFERS = 24  # different buffers in one kernel
MOST_NODES = 400  # scalar nodes in one kernel
FEW_ROWS = 8  # with fewer outer iterations, long rows are better split over threads
LOOK_BACK = 12  # how many groups before the last are tried
EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Nest:
    """Statements over the same inner iterations."""

    inner: Axis
    statements: list[Store | Fold] = field(default_factory=list)


@dataclass(slots=True)
class Written:
    """A buffer that a group writes: by which nest, where, and with what value."""

    nest: int
    offset: Size
    value: Scalar
    reduced: bool


@dataclass(slots=True)
class Group:
    """Definitions that become one kernel."""

    outer: Axis
    members: list[Definition] = field(default_factory=list)
    nests: list[Nest] = field(default_factory=list)
    written: dict[str, Written] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    nodes: int = 0
    moved: dict[tuple[Size, Size], Size] = field(default_factory=dict)  # a memo of `tile.py`

    leaning: int = 0  # of its reductions: above 0 along the inner index, below 0 across it

    @property
    def reduces(self) -> bool:
        """Whether a member is a reduction."""
        return any(member.value.op == "reduce" for member in self.members)

    @property
    def fails(self) -> bool:
        """Whether a member may refuse its data."""
        return any(may_fail(member.value) for member in self.members)


def fuse(
    scalars: Scalars, items: Sequence[Definition | Call], storage: Mapping[str, str] = EMPTY
) -> list[Group | Call]:
    """Group the definitions among `items`. `storage`: of buffers that are inputs, written in place,
    those inputs."""
    return _Fusion(scalars, storage).run(items)


class _Fusion:
    def __init__(self, scalars: Scalars, storage: Mapping[str, str]) -> None:
        self.scalars = scalars
        self.storage = storage
        self.done: list[Group | Call] = []
        self.made_at: dict[str, int] = {}  # buffer -> position of the item that makes it
        self.read_at: dict[str, int] = {}  # memory that is written in place -> of its last reader
        self.safe_from = 0  # the position from which on nothing before may fail

    def run(self, items: Iterable[Definition | Call]) -> list[Group | Call]:
        for item in items:
            if isinstance(item, Call):
                self.made_at.update(dict.fromkeys(item.results, len(self.done)))
                self.done.append(item)
                self.safe_from = len(self.done)
            else:
                self._add(item)
        return self.done

    def _add(self, member: Definition) -> None:
        reads = loads_of(member.value)
        earliest = max((self.made_at[name] for name in reads if name in self.made_at), default=-1)
        memory = self.storage.get(member.buffer)
        if memory is not None:
            before = (self.safe_from, self.read_at.get(memory, -1), self.made_at.get(memory, -1))
            earliest = max(earliest, *before)
        first = max(earliest, len(self.done) - LOOK_BACK, 0)
        # Inputs are written at the end of a graph, far from what is computed with them.
        places = [earliest] if earliest >= (first if memory is None else 0) else []
        places += [place for place in range(first, len(self.done)) if place != earliest]
        for place in places:
            group = self.done[place] if place < len(self.done) else None
            if isinstance(group, Group):
                joined = self._join(group, member, reads)
                if joined is not None:
                    self.done[place] = joined
                    self._note(member, reads, place)
                    return
        self.done.append(self._alone(member))
        self._note(member, reads, len(self.done) - 1)

    def _note(self, member: Definition, reads: set[str], place: int) -> None:
        """A definition has found its place."""
        self.made_at[member.buffer] = place
        if not self.storage:
            return
        memory = self.storage.get(member.buffer)
        if memory is not None:
            self.made_at[memory] = max(self.made_at.get(memory, -1), place)
        for name in reads:
            inside = self.storage.get(name, name)
            self.read_at[inside] = max(self.read_at.get(inside, -1), place)
        if may_fail(member.value):
            self.safe_from = max(self.safe_from, place + 1)

    def _alone(self, member: Definition) -> Group:
        group = self._build([member], _natural(member))
        assert group is not None
        return group

    def _join(self, group: Group, member: Definition, reads: set[str]) -> Group | None:
        """`group` with one more member, if that is legal and pays."""
        linked = not group.written.keys().isdisjoint(reads)
        if not linked and group.reads.isdisjoint(reads):
            return None
        buffers = group.reads | reads | group.written.keys()
        if len(buffers) > MOST_BUFFERS or group.nodes > MOST_NODES:
            return None
        natural = _natural(member)
        for outer in dict.fromkeys((group.outer.extent, natural)):
            if not pays(Candidate(group, member, outer, linked)):
                continue
            if outer == group.outer.extent:
                if self._place(group, member):  # or leaves the group as it is
                    return group
            else:
                joined = self._build([*group.members, member], outer)
                if joined is not None:
                    return joined
        return None

    # --------------------------------------------------------------------------------- placing

    def _build(self, members: list[Definition], outer: Size) -> Group | None:
        group = Group(axis("o", outer))
        for member in members:
            if not self._place(group, member):
                return None
        return group

    def _place(self, group: Group, member: Definition) -> bool:
        placed = place_axes(member, group.outer)
        if placed is None:
            return False
        places, inner = placed
        offset = substitute(member.offset, places)
        value = member.value
        reduced = value.op == "reduce"
        if reduced:
            body = self.scalars.substitute(value.arguments[0], places)
            attribute = (value.attribute[0], (inner,))
            value = self.scalars.make("reduce", value.dtype, (body,), attribute)
        else:
            value = self.scalars.substitute(value, places)
        position = self._position(group, value, inner)
        if position is None:
            return False
        if self.storage and not self._in_place(group, member, offset, value, position, inner):
            return False
        value = self._forward(group, value, position)
        if position == len(group.nests):
            group.nests.append(Nest(inner))
        nest = group.nests[position]
        statement = Fold(value) if reduced else Store(member.buffer, offset, value)
        # Two reductions of the same elements, seen with other sizes, are one here: done once, for a
        # second one would go on from where the first is.
        if not reduced or statement not in nest.statements:
            nest.statements.append(statement)
        if reduced:
            position = self._store_fold(group, position, member, offset, value)
        group.written[member.buffer] = Written(position, offset, value, reduced)
        group.members.append(member)
        group.leaning += _leaning(member)
        group.reads |= loads_of(member.value)
        group.nodes += sum(1 for _ in walk(value))
        return True

    def _in_place(
        self,
        group: Group,
        member: Definition,
        offset: Size,
        value: Scalar,
        position: int,
        inner: Axis,
    ) -> bool:
        """Whether a member may be placed here, as far as inputs are concerned that are written in
        place, by it or by the group."""
        written = {self.storage[name] for name in group.written if name in self.storage}
        memory = self.storage.get(member.buffer)
        if memory is None and not written:
            return True
        if memory in written or (group.members and (group.fails or may_fail(value))):
            return False
        if not all(
            self._is_given(group, load, value, position)
            for load in _loads(value)
            if self.storage.get(load[0], load[0]) in written
        ):
            return False
        return memory is None or self._reads_before(group, memory, offset, value, position, inner)

    def _is_given(self, group: Group, load: tuple[str, Size], value: Scalar, position: int) -> bool:
        """Whether a load is of what the same iteration has written in place: then it is given that
        value (`_forward`), and does not look into memory, which may have been read before."""
        name, place = load
        found = group.written.get(name)
        here = found is not None and found.nest == position and place == found.offset
        return here and value.op != "reduce"

    def _reads_before(
        self,
        group: Group,
        memory: str,
        offset: Size,
        value: Scalar,
        position: int,
        inner: Axis,
    ) -> bool:
        """Whether each element of memory that is written at `offset` is read by no iteration but
        the one that writes it, and by no later nest."""
        own = (place for name, place in _loads(value) if self.storage.get(name, name) == memory)
        if any(place != offset for place in own):
            return False
        return all(
            place == offset and nest.inner.extent == inner.extent and number <= position
            for number, nest in enumerate(group.nests)
            for statement in nest.statements
            for name, place in _loads(statement.value)
            if self.storage.get(name, name) == memory
        )

    def _store_fold(
        self, group: Group, position: int, member: Definition, offset: Size, value: Scalar
    ) -> int:
        """A fold's result is stored once for each `o`, after its nest."""
        single = axis("v", 1)
        for later in range(position + 1, len(group.nests)):
            if group.nests[later].inner.extent == 1:
                group.nests[later].statements.insert(0, Store(member.buffer, offset, value))
                return position
        group.nests.append(Nest(single, [Store(member.buffer, offset, value)]))
        return position

    def _position(self, group: Group, value: Scalar, inner: Axis) -> int | None:
        """The first nest in which `value` can be computed; None: not in this group."""
        earliest = 0
        for node in walk(value):
            if node.op != "load":
                continue
            buffer, offset = node.attribute
            found = group.written.get(buffer)
            if found is None:
                continue
            same = _same_place(found, offset, group, inner)
            if same is None:
                return None
            earliest = max(earliest, found.nest + (0 if same else 1))
        for position in range(earliest, len(group.nests)):
            if group.nests[position].inner.extent == inner.extent:
                return position
        return len(group.nests)

    def _forward(self, group: Group, value: Scalar, position: int) -> Scalar:
        """Use the value itself instead of loading what this iteration has just stored."""
        known: dict[Scalar, Scalar] = {}
        for node in walk(value):
            if node.op == "load":
                buffer, offset = node.attribute
                found = group.written.get(buffer)
                if found is None or offset != found.offset:
                    continue
                if found.reduced or found.nest == position or not _depends_on_inner(found):
                    known[node] = found.value
        return self.scalars.substitute(value, {}, known) if known else value


def _depends_on_inner(found: Written) -> bool:
    return any(atom.key == "v" for atom in found.value.free)


def _same_place(found: Written, offset: Size, group: Group, inner: Axis) -> bool | None:
    """True: read where this very iteration writes. False: read from what this outer iteration
    has written before. None: neither, so not in one group."""
    inner_atoms = {atom for atom in symbols_of(found.offset) if atom.key == "v"}
    if offset == found.offset:
        # The same expression of `o` and `v`; a fold is complete only after its nest.
        same_nest = group.nests[found.nest].inner.extent == inner.extent
        return not found.reduced and same_nest
    if not inner_atoms:
        return None
    atom = next(iter(inner_atoms))
    start = substitute(found.offset, {atom: 0})
    if found.offset - start != expression_of(atom):
        return None  # the row is not contiguous: what it covers is not known
    place = offset - start
    inside = known_at_least(place, 0) and known_at_least(extent_of(atom) - place, 1)
    return False if inside else None


def _leaning(member: Definition) -> int:
    """Above 0 if most of what a reduction loads is contiguous along what it reduces, below 0 if it
    is so along what it keeps."""
    if member.value.op != "reduce":
        return 0
    inner = member.value.attribute[1][-1].atom
    leaning = 0
    for node in walk(member.value.arguments[0]):
        if node.op == "load":
            _, offset = node.attribute
            along = coefficient_of(offset, inner) == 1
            across = any(coefficient_of(offset, each.atom) == 1 for each in member.axes)
            # What spans few axes is small beside what spans all, and stays in cache.
            leaning += (along - across) * 10 ** len(node.free)
    return leaning


# ------------------------------------------------------------------------------- what is worth it


@dataclass(frozen=True)
class Candidate:
    """A definition that may join a group over `outer` iterations. `linked`: it reads what the group
    writes; else both read the same."""

    group: Group
    member: Definition
    outer: Size
    linked: bool

    @property
    def same_iterations(self) -> bool:
        """Whether both have these outer iterations by themselves."""
        return self.outer == _natural(self.member) == self.group.outer.extent

    @cached_property
    def widest(self) -> int:
        """The most inner iterations of any member."""
        members = (*self.group.members, self.member)
        return max(hint_of(_inner(each, self.outer)) for each in members)

    @property
    def reduces(self) -> bool:
        """Whether a reduction is among them."""
        return self.group.reduces or self.member.value.op == "reduce"


def _lean_apart(one: Candidate) -> bool | None:
    """One wants vectors along its rows, the other across them."""
    return False if one.group.leaning * _leaning(one.member) < 0 else None


def _side_by_side(one: Candidate) -> bool | None:
    """What only reads the same joins over the same iterations."""
    if one.linked:
        return None
    inner = {nest.inner.extent for nest in one.group.nests}
    return one.same_iterations and _inner(one.member, one.outer) in inner


def _pointwise(one: Candidate) -> bool | None:
    """Element by element there is nothing to lose."""
    return True if one.same_iterations and not one.reduces else None


def _long_rows(one: Candidate) -> bool | None:
    """A row that does not stay in cache is read again from memory."""
    return one.widest == 1 if one.widest * 4 > ROW_BYTES else None


def _few_rows(one: Candidate) -> bool | None:
    """Few rows leave threads without work."""
    rows = hint_of(one.outer)
    return False if rows < FEW_ROWS and one.widest * rows > 1 << 15 else None


def _whole_vectors(one: Candidate) -> bool | None:
    """Rows shorter than a vector are worth it only around a reduction."""
    return one.widest == 1 or one.widest >= 8 or one.reduces


# The first rule that does not answer None decides whether a fusion pays. Whether it is legal is for
# `_Fusion._place` to say: no rule can make a wrong kernel.
RULES: Table[Callable[[Candidate], bool | None]] = Table(
    Row("lean_apart", _lean_apart),
    Row("side_by_side", _side_by_side, after=("lean_apart",), reason="it has the last word"),
    Row("pointwise", _pointwise, after=("side_by_side",), reason="it is about what is linked"),
    Row("long_rows", _long_rows, after=("pointwise",), reason="that needs no cache"),
    Row("few_rows", _few_rows, after=("long_rows",), reason="one iteration each is no row"),
    Row("whole_vectors", _whole_vectors, after=("few_rows",), reason="it always answers"),
)


def pays(one: Candidate) -> bool:
    """Whether a fusion is worth it."""
    answers = (rule.run(one) for rule in RULES)
    return next((answer for answer in answers if answer is not None), False)


# ------------------------------------------------------------------------------------- indices


def _natural(member: Definition) -> Size:
    return product(each.extent for each in member.axes)


def _inner(member: Definition, outer: Size) -> Size:
    """The inner iterations of a member over `outer` outer ones."""
    free = _natural(member)
    reduced = (
        product(each.extent for each in member.value.attribute[1])
        if member.value.op == "reduce"
        else 1
    )
    if isinstance(free, int) and isinstance(outer, int):
        return max(free // outer, 1) * reduced if outer > 0 else reduced
    return free // outer * reduced if free % outer == 0 else reduced


def place_axes(member: Definition, outer: Axis) -> tuple[dict[Atom, Size], Axis] | None:
    """The member's axes as digits of the outer index and of an inner one, if they fit."""
    count = 0
    covered: Size = 1
    while covered != outer.extent:
        if count == len(member.axes):
            return None
        covered = covered * member.axes[count].extent
        count += 1
    rest = list(member.axes[count:])
    if member.value.op == "reduce":
        if rest:
            return None
        rest = list(member.value.attribute[1])
    inner = axis("v", product(each.extent for each in rest))
    places = digits(outer, member.axes[:count])
    places.update(digits(inner, rest))
    return places, inner


def digits(linear: Axis, axes: Sequence[Axis]) -> dict[Atom, Size]:
    """Each of `axes` as a digit of `linear`, which counts them in row-major order."""
    places: dict[Atom, Size] = {}
    step: Size = 1
    for place, each in enumerate(reversed(axes)):
        value = linear.symbol // step
        places[each.atom] = value if place == len(axes) - 1 else value % each.extent
        step = step * each.extent
    return places


def may_fail(value: Scalar) -> bool:
    """Whether an expression has an index that may be out of bounds."""
    return any(node.op == "checked" for node in walk(value))


def _loads(value: Scalar) -> Iterator[tuple[str, Size]]:
    return (node.attribute for node in walk(value) if node.op == "load")


def loads_of(*values: Scalar) -> set[str]:
    """The buffers that expressions read."""
    return {node.attribute[0] for node in walk(*values) if node.op == "load"}
