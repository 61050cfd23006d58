"""Scalar expressions, addresses and index expressions at one point of a kernel, as LLVM values.

Enters: `Scalar`s and `Size`s. Leaves: `Value`s. Invariant: every value is computed in the outermost
open loop that it can be computed in, once; a load that may be out of bounds is done under the mask
that guards it.

Each loop's body is a block of lines of its own while it is written; what does not depend on the
loop's axis goes to a block further out, which is still open and stands before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

import torch

from windfall.codegen import scalar_code
from windfall.codegen.scalar_code import TYPES
from windfall.dataclass import dataclass
from windfall.ir.loop import Axis, Buffer, Scalar, children, indirect_in, is_size
from windfall.ir.symint import (
    Atom,
    Expression,
    IndexBound,
    Size,
    coefficient_of,
    expression_of,
    growth_of,
    known_at_least,
    product,
    substitute,
    symbols_of,
)
from windfall.llvm import BITS, Assembly, Code, Value, align_of, mangled, vector


@dataclass(slots=True)
class Scope:
    """One open loop: its axis, the value of it, what has been computed in it."""

    atom: Atom | None
    index: Value
    lanes: int = 1
    unrolled: int | None = None  # which iteration this is, of a loop that is written out
    values: dict[object, Value] = field(default_factory=dict)
    tiles: dict[object, list[Value]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What decides where a value may be computed."""

    pinned: bool  # it reads what the kernel itself writes
    loads: bool
    folds: frozenset[Scalar]  # the finished folds that it uses


class ValueText:
    """The open loops of a kernel, and the values that are known in each of them."""

    def __init__(
        self,
        buffers: Mapping[str, Buffer],
        order: Sequence[str],
        assembly: Assembly,
        errors: dict[tuple[object, ...], int],
        sizes: Mapping[Atom, int],
    ) -> None:
        self.buffers = buffers
        self.errors = errors
        self.places = sizes  # where the sizes that vary stand in the table of sizes
        self.uses_sizes = False
        self.code = Code(assembly)
        self.scopes = [Scope(None, Value("0", "i64"))]
        self.pointers = {name: Value(f"%b{place}", "ptr") for place, name in enumerate(order)}
        self.written: set[str] = set()
        self.tail: Value | None = None  # lanes inside the extent, in a tail
        self.condition: Value | None = None  # lanes whose loads are allowed, in `masked`
        self.folded_at: dict[Scalar, int] = {}  # finished fold -> the level of its value
        self._facts: dict[Scalar, _Facts] = {}
        self._safe: Value | None = None

    def safe_address(self) -> Value:
        """Somewhere to read or write where nothing real may be touched."""
        if self._safe is None:
            self._safe = self.code.reserve("[64 x i8]", 64)
        return self._safe

    # --------------------------------------------------------------------------------- scopes

    def lane_scope(self) -> Scope | None:
        """The open vector loop, if there is one."""
        return next((scope for scope in reversed(self.scopes) if scope.lanes > 1), None)

    def _level(self, free: frozenset[Atom]) -> int:
        """The outermost loop in which everything in `free` has a value."""
        for level in range(len(self.scopes) - 1, 0, -1):
            if self.scopes[level].atom in free:
                return level
        return 0

    @contextmanager
    def inside_level(self, level: int) -> Iterator[None]:
        """Write into the block of an open loop further out."""
        before, hidden = self.code.at, self.scopes[level + 1 :]
        tail, active, condition = self.tail, self.code.active, self.condition
        self.code.at = level
        del self.scopes[level + 1 :]
        if self.lane_scope() is None:
            self.tail = None
        if hidden:  # what goes further out loads nothing under the condition, which stays here
            self.condition = None
            self.code.active = self.tail
        yield
        self.scopes.extend(hidden)
        self.code.at = before
        self.tail, self.code.active, self.condition = tail, active, condition

    # --------------------------------------------------------------------------------- values

    def deep_value(self, root: Scalar) -> Value:
        """The value of an expression of any depth: its operands come first, so that no recursion
        goes deep."""
        seen: set[Scalar] = set()
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                self.value(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                # What a mask guards is computed where the mask is known; a fold is finished.
                count = {"masked": 1, "reduce": 0}.get(node.op, len(node.arguments))
                stack.extend((part, False) for part in node.arguments[:count])
        return self.value(root)

    def value(self, node: Scalar) -> Value:
        """The value of a scalar expression at this point."""
        facts = self._facts_of(node)
        guarded = self.condition is not None and facts.loads
        key: object = (node, self.condition) if guarded else node
        for scope in reversed(self.scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        level = len(self.scopes) - 1
        if not facts.pinned and not guarded:
            level = max([self._level(node.free), *(self.folded_at[r] for r in facts.folds)])
        if level == len(self.scopes) - 1:
            result = self._compute(node)
        else:
            with self.inside_level(level):
                result = self._compute(node)
        self.scopes[level].values[key] = result
        return result

    def _facts_of(self, node: Scalar) -> _Facts:
        """Filled in operands first as well: `deep_value` comes by every node."""
        found = self._facts.get(node)
        if found is None:
            if node.op == "reduce":
                found = _Facts(False, False, frozenset((node,)))
            else:
                parts = [self._facts_of(child) for child in children(node)]
                own = node.op == "load" and node.attribute[0] in self.written
                found = _Facts(
                    own or any(part.pinned for part in parts),
                    node.op in ("load", "checked") or any(part.loads for part in parts),
                    frozenset[Scalar]().union(*(part.folds for part in parts)),
                )
            self._facts[node] = found
        return found

    def _compute(self, node: Scalar) -> Value:
        special = _SPECIAL.get(node.op)
        if special is not None:
            return special(self, node)
        if node.op in _COMPARED:
            found = self._compare_lanes(node)
            if found is not None:
                return found
        values = tuple(self.value(argument) for argument in node.arguments)
        dtype = node.arguments[-1].dtype
        return scalar_code.apply(self.code, node.op, dtype, values)

    def _compare_lanes(self, node: Scalar) -> Value | None:
        """A comparison of indices that differ by one from lane to lane: of the lane's number with
        how far it is to the point where the answer changes."""
        scope = self.lane_scope()
        if scope is None or scope.atom not in node.free:
            return None
        sides = [each.attribute for each in node.arguments if each.op in ("index", "constant")]
        if len(sides) != 2 or node.arguments[0].dtype is not torch.int64 or node.indices:
            return None
        away = sides[1] - sides[0]
        if any(each.indices for each in node.arguments):
            return None
        growth = coefficient_of(away, lane_atom(scope))
        if growth not in (1, -1):
            return None
        name, shift = _COMPARED[node.op][growth]
        code = self.code
        far = self.size(shift - away if growth == 1 else away + shift, first_lane=True)
        far = code.select(code.compare("icmp slt", far, ZERO), ZERO, far)
        most = Value(str(scope.lanes), "i64")
        far = code.select(code.compare("icmp slt", far, most), far, most)
        return code.compare(name, code.iota("i32", scope.lanes), code.convert("trunc", far, "i32"))

    def _constant(self, node: Scalar) -> Value:
        return self.code.constant(node.attribute, TYPES[node.dtype][0])

    def _cast(self, node: Scalar) -> Value:
        (argument,) = node.arguments
        return scalar_code.cast(self.code, self.value(argument), argument.dtype, node.dtype)

    def _index(self, node: Scalar) -> Value:
        value = self.size(node.attribute)
        return scalar_code.cast(self.code, value, torch.int64, node.dtype)

    def _masked(self, node: Scalar) -> Value:
        condition, body, otherwise = node.arguments
        allowed = self.value(condition)
        before = self.condition
        active = self.code.active
        self.condition = allowed if before is None else self.code.binary("and", before, allowed)
        self.code.active = allowed if active is None else self.code.binary("and", active, allowed)
        inner = self.value(body)
        self.condition, self.code.active = before, active
        return self.code.select(allowed, inner, self.value(otherwise))

    def _checked(self, node: Scalar) -> Value:
        code = self.code
        size, wrap = node.attribute
        value = self.value(node.arguments[0])
        limit = code.splat(self.size(size), value.lanes)
        if wrap:
            negative = code.compare("icmp slt", value, code.like(0, value))
            value = code.select(negative, code.binary("add", value, limit), value)
        bad = code.compare("icmp uge", value, limit)
        number = self.errors.setdefault(("index", str(size)), len(self.errors) + 2)
        scalar_code.raise_error(code, bad, number)
        return code.select(bad, code.like(0, value), value)

    def _reduce(self, node: Scalar) -> Value:
        raise AssertionError(f"a reduction is used before it is folded: {node.attribute}")

    # ---------------------------------------------------------------------------------- loads

    def _load(self, node: Scalar) -> Value:
        buffer, offset = node.attribute
        stored = TYPES[node.dtype][1]
        if self.buffers[buffer].type.elements == 0:
            return self.code.constant(0, TYPES[node.dtype][0])
        scope = self.lane_scope()
        if scope is not None and self.is_wide(buffer):
            place = self.wide_address(buffer, offset, scope)
            raw = self.code.load(stored, place, scope.lanes)
            return scalar_code.from_memory(self.code, raw, node.dtype)
        step = 0 if scope is None else self._step(offset, scope)
        if step == 0 and not (self.condition is not None and self.condition.lanes > 1):
            raw = self._load_scalar(buffer, offset, stored)
        elif step == 1:
            assert scope is not None
            raw = self._load_vector(buffer, offset, stored, scope.lanes)
        else:
            assert scope is not None
            tile = self._tile(buffer, offset, stored, scope, step)
            raw = tile or self._gather(buffer, offset, stored, scope)
        return scalar_code.from_memory(self.code, raw, node.dtype)

    def _step(self, offset: Size, scope: Scope) -> Size | None:
        """How an offset grows along the lanes; None: not evenly."""
        atom = lane_atom(scope)
        masked = self.condition is not None and self.condition.lanes > 1
        for each in indirect_in(offset):
            # Under a mask an index that is loaded is a vector: lanes that are off have none.
            if masked or atom in each.payload.free:
                return None
        growth = growth_of(offset, atom)
        return growth if all(map(is_size, symbols_of(growth or 0))) else None

    def _load_scalar(self, buffer: str, offset: Size, type: str) -> Value:
        address = self.address(buffer, offset)
        if self.condition is not None:
            address = self.code.select(self.condition, address, self.safe_address())
        return self.code.load(type, address)

    def _load_vector(self, buffer: str, offset: Size, type: str, lanes: int) -> Value:
        address = self.address(buffer, offset)
        mask = self._allowed(lanes)
        if mask is None:
            return self.code.load(type, address, lanes)
        full = vector(type, lanes)
        name = f"llvm.masked.load.{mangled(type, lanes)}.p0"
        self.code.assembly.declare(name, full, ["ptr", mask.full, full])
        place = f"ptr align {align_of(type)} {address.text}"
        text = f"call {full} @{name}({place}, {mask}, {full} zeroinitializer)"
        return self.code.write(text, type, lanes)

    def _allowed(self, lanes: int) -> Value | None:
        """The lanes that may be loaded; None: all."""
        masks = [mask for mask in (self.tail, self.condition) if mask is not None]
        if not masks:
            return None
        masks = [self.code.splat(mask, lanes) for mask in masks]
        return masks[0] if len(masks) == 1 else self.code.binary("and", *masks)

    def _tile(
        self, buffer: str, offset: Size, type: str, scope: Scope, step: Size | None
    ) -> Value | None:
        """A strided load whose neighbours in memory the other iterations of an unrolled loop load:
        all of them at once, as a square block that is transposed."""
        inner = self.scopes[-1]
        if inner.unrolled is None or inner.atom is None or step is None or BITS[type] != 32:
            return None
        masked = self.tail is not None or self.condition is not None
        if masked or scope.lanes != 8 or coefficient_of(offset, inner.atom) != 1:
            return None
        first = substitute(offset, {inner.atom: 0})
        key = (buffer, first)
        found = scope.tiles.get(key)
        if found is None:
            with self.inside_level(self.scopes.index(scope)):
                rows = [
                    self.code.load(type, self.address(buffer, first + step * lane), 8)
                    for lane in range(8)
                ]
                found = scope.tiles[key] = self.code.transpose(rows)
        return found[inner.unrolled]

    def _gather(self, buffer: str, offset: Size, type: str, scope: Scope) -> Value:
        mask = self._allowed(scope.lanes)
        parts = []
        for lane, address in enumerate(self.addresses(buffer, offset, scope)):
            if mask is not None:
                inside = self.code.part(mask, lane, 1)
                address = self.code.select(inside, address, self.safe_address())
            parts.append(self.code.load(type, address))
        return self.code.join(parts)

    # ------------------------------------------------------------------------------ addresses

    def is_wide(self, buffer: str) -> bool:
        """Whether a buffer is scratch with one element for each lane at each place."""
        found = self.buffers[buffer]
        return found.place == "scratch" and found.type.rank == 2

    def wide_address(self, buffer: str, offset: Size, scope: Scope) -> Value:
        """Where the lanes of an element of such a buffer stand; all of them, in a tail too."""
        return self.address(buffer, offset * scope.lanes)

    def address(self, buffer: str, offset: Size) -> Value:
        """Where an element stands; for a vector, its first lane."""
        type = TYPES[self.buffers[buffer].type.dtype][1]
        return self._pointer(buffer, type, offset)

    def _pointer(self, buffer: str, type: str, offset: Size) -> Value:
        key = (buffer, offset, self._guard_of(offset))
        for scope in reversed(self.scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        level = self._size_level(offset)
        with self.inside_level(level):
            inner, rest = self._parted(offset, level)
            base = self.pointers[buffer] if rest == 0 else self._pointer(buffer, type, rest)
            result = base
            if inner != 0:
                result = self.code.element(base, self.size(inner, first_lane=True), type)
            self.scopes[level].values[key] = result
        return result

    def _parted(self, offset: Size, level: int) -> tuple[Size, Size]:
        """The part of an offset that belongs to this loop, and what is known outside it."""
        if isinstance(offset, int) or level == 0:
            return offset, 0
        inner: Size = 0
        rest: Size = offset.constant
        for term in offset.parts:
            if self._size_level(term) == level:
                inner = inner + term
            else:
                rest = rest + term
        return inner, rest

    def _guard_of(self, size: Size) -> Value | None:
        """The condition under which an index that is loaded is known: lanes that are off have none,
        so what is made of it serves nobody else."""
        return self.condition if self.condition is not None and indirect_in(size) else None

    def _size_level(self, size: Size) -> int:
        free: set[Atom] = set()
        for atom in symbols_of(size):
            if not isinstance(atom.payload, Scalar):
                if not is_size(atom):
                    free.add(atom)
            elif self._facts_of(atom.payload).pinned or self.condition is not None:
                return len(self.scopes) - 1
            else:
                free |= atom.payload.free
        return self._level(frozenset(free))

    def addresses(self, buffer: str, offset: Size, scope: Scope) -> list[Value]:
        """The address of each lane."""
        type = TYPES[self.buffers[buffer].type.dtype][1]
        step = self._step(offset, scope)
        if step is not None:
            base = self.address(buffer, offset)
            places = [self.size(step * lane) for lane in range(scope.lanes)]
        else:
            base = self.pointers[buffer]
            whole = self.size(offset)
            whole = self.code.splat(whole, scope.lanes)
            places = [self.code.part(whole, lane, 1) for lane in range(scope.lanes)]
        return [self.code.element(base, place, type) for place in places]

    # ---------------------------------------------------------------------------------- sizes

    def size(self, size: Size, first_lane: bool = False) -> Value:
        """An integer expression; a vector where it depends on the lanes, unless only the first
        lane is asked for."""
        if isinstance(size, int):
            return Value(str(size), "i64")
        key = ("size", size, first_lane, self._guard_of(size))
        for scope in reversed(self.scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        level = self._size_level(size)
        with self.inside_level(level):
            result = self._size_here(size, first_lane)
            self.scopes[level].values[key] = result
        return result

    def _size_here(self, size: Expression, first_lane: bool) -> Value:
        def factors(atoms: tuple[Atom, ...]) -> list[Value]:
            fixed = [atom for atom in atoms if is_size(atom)]
            if not fixed:
                return [self._atom_value(atom, first_lane) for atom in atoms]
            known = product(map(expression_of, fixed))
            found = [self._atom_value(a, first_lane) for a in atoms if not is_size(a)]
            if known is size:
                return [*found, *(self._atom_value(atom, first_lane) for atom in fixed)]
            return [*found, self.size(known)]  # before all loops

        return size_text(self.code, size, factors)

    def _atom_value(self, atom: Atom, first_lane: bool) -> Value:
        if isinstance(atom.payload, Scalar):
            return self.value(atom.payload)
        if is_size(atom):
            self.uses_sizes = True
            place = self.places[atom]
            return self.code.load("i64", self.code.element(Value("%sizes", "ptr"), place, "i64"))
        if not atom.operation:
            for scope in reversed(self.scopes):
                if scope.atom is atom:
                    if scope.lanes == 1 or first_lane:
                        return scope.index
                    spread = self.code.splat(scope.index, scope.lanes)
                    return self.code.binary("add", spread, self.code.iota("i64", scope.lanes))
            raise AssertionError(f"axis {atom} has no loop")
        values = [self.size(argument, first_lane) for argument in atom.arguments]
        return size_operation(self.code, atom, *values)


# ------------------------------------------------------------------------------------- tables


SizeOperation = Callable[..., Value]
ZERO = Value("0", "i64")
# For a comparison `a op b`, by how `b - a` grows along the lanes: how a lane's number compares with
# that difference at the first lane (turned round where it grows), and what is added to it.
_COMPARED: dict[str, dict[int, tuple[str, int]]] = {
    "lt": {-1: ("icmp ult", 0), 1: ("icmp uge", 1)},
    "le": {-1: ("icmp ult", 1), 1: ("icmp uge", 0)},
    "gt": {-1: ("icmp uge", 1), 1: ("icmp ult", 0)},
    "ge": {-1: ("icmp uge", 0), 1: ("icmp ult", 1)},
}


def size_text(
    code: Code, size: Expression, factors: Callable[[tuple[Atom, ...]], Sequence[Value]]
) -> Value:
    """A sum of products; `factors` answers the values of the atoms of one product."""
    total: Value | None = None
    for monomial, coefficient in size.terms:
        term: Value | None = None
        for factor in factors(monomial.atoms):
            term = factor if term is None else code.binary("mul", term, factor)
        assert term is not None
        if coefficient != 1:
            term = code.binary("mul", term, code.like(coefficient, term))
        total = term if total is None else code.binary("add", total, term)
    assert total is not None
    if size.constant:
        total = code.binary("add", total, code.like(size.constant, total))
    return total


def _division(signed: str, unsigned: str) -> SizeOperation:
    def divide(code: Code, atom: Atom, value: Value, divisor: Value) -> Value:
        if not known_at_least(atom.arguments[1], 1):
            # Computed before a loop that may not run at all, then with a divisor of 0.
            some = code.compare("icmp ne", divisor, code.like(0, divisor))
            divisor = code.select(some, divisor, code.like(1, divisor))
        value, divisor = code.same_lanes(value, divisor)
        if known_at_least(atom.arguments[0], 0):
            return code.binary(unsigned, value, divisor)
        quotient = code.binary("sdiv", value, divisor)
        rest = code.binary("srem", value, divisor)
        negative = code.compare("icmp slt", rest, code.like(0, rest))
        if signed == "sdiv":
            less = code.binary("sub", quotient, code.like(1, quotient))
            return code.select(negative, less, quotient)
        return code.select(negative, code.binary("add", rest, divisor), rest)

    return divide


def _extreme(name: str) -> SizeOperation:
    def choose(code: Code, atom: Atom, *values: Value) -> Value:
        result = values[0]
        for value in values[1:]:
            result, value = code.same_lanes(result, value)
            result = code.select(code.compare(f"icmp {name}", result, value), result, value)
        return result

    return choose


_SIZE_OPERATIONS: dict[str, SizeOperation] = {
    "//": _division("sdiv", "udiv"),
    "%": _division("srem", "urem"),
    "min": _extreme("slt"),
    "max": _extreme("sgt"),
}


def size_operation(code: Code, atom: Atom, *values: Value) -> Value:
    """A quotient, remainder, minimum or maximum of integers."""
    return _SIZE_OPERATIONS[atom.operation](code, atom, *values)


_SPECIAL: dict[str, Callable[[ValueText, Scalar], Value]] = {
    "constant": ValueText._constant,
    "cast": ValueText._cast,
    "index": ValueText._index,
    "masked": ValueText._masked,
    "checked": ValueText._checked,
    "reduce": ValueText._reduce,
    "load": ValueText._load,
}


def lane_atom(scope: Scope) -> Atom:
    """The axis along which a vector runs."""
    assert scope.atom is not None
    return scope.atom


def full_extent(each: Axis) -> Size:
    """How far an axis reaches where its extent depends on others: the size of a whole block."""
    if isinstance(each.extent, int) or isinstance(each.atom.payload, IndexBound):
        return each.extent
    high = each.atom.high
    return each.extent if high is None else high + 1
