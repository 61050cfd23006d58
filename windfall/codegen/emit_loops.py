"""One kernel → one LLVM function: loops, vectors, tails, accumulators, stores.

Enters: the statements of a `Kernel`. Leaves: the text of
`void name(ptr p0, …, ptr error, i64 begin, i64 end)`, where `begin` and `end` bound the parallel
loop. Invariant: a loop runs whole vectors first, then what is left over under a mask; folds are
carried in registers from one iteration to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch

from windfall.codegen import scalar_code
from windfall.codegen.emit_values import Scope, ValueText, full_extent, lane_atom
from windfall.codegen.scalar_code import COMBINE, TYPES, identity
from windfall.ir.loop import Axis, Buffer, Fold, Loop, Scalar, Statement, Store, walk
from windfall.ir.symint import Atom, Size, coefficient_of
from windfall.llvm import NULL, Assembly, CountedLoop, Value, align_of, integer, mangled, vector

Accumulators = dict[Scalar, tuple[Value, ...]]
STACK_BYTES = 1 << 16  # a row of scratch whose size varies is on the stack up to here


class KernelText(ValueText):
    """The function of one kernel under construction."""

    def __init__(
        self,
        name: str,
        buffers: Mapping[str, Buffer],
        order: Sequence[str],
        assembly: Assembly,
        errors: dict[tuple[object, ...], int],
        sizes: Mapping[Atom, int],
    ) -> None:
        super().__init__(buffers, order, assembly, errors, sizes)
        self.name = name
        self.order = list(order)
        self.accumulators: Accumulators = {}
        self.heaps: list[Value] = []  # memory to be given back at the end, or null

    # ------------------------------------------------------------------------------- function

    def text(self, body: Sequence[Statement]) -> str:
        """The whole function."""
        self.written = stored_in(body)
        self._reserve(body)
        self._statements(body)
        self._free()
        self.code.ret()
        parameters = [f"ptr noalias %b{place}" for place in range(len(self.order))]
        parameters += ["ptr %error", *(["ptr %sizes"] if self.uses_sizes else [])]
        parameters += ["i64 %begin", "i64 %end"]
        return self.code.text(f"internal void @{self.name}({', '.join(parameters)}) #0")

    def _reserve(self, body: Sequence[Statement]) -> None:
        for name in sorted(_mentioned(body)):
            buffer = self.buffers[name]
            if buffer.place == "scratch":
                kind = TYPES[buffer.type.dtype][1]
                count = buffer.type.elements
                if isinstance(count, int):
                    text = f"alloca [{count} x {kind}], align 64"
                    self.pointers[name] = self.code.write(text, "ptr")
                else:
                    self.pointers[name] = self._reserve_varying(count * align_of(kind))

    def _reserve_varying(self, count: Size) -> Value:
        """So many bytes: on the stack if they are few, else from the heap until the kernel ends."""
        code = self.code
        here = code.reserve(f"[{STACK_BYTES} x i8]", 64)
        need = self.size(count)
        many = code.compare("icmp ugt", need, integer(STACK_BYTES))
        names = ("heap", "", "reserved")
        self.heaps.append(code.either(many, lambda: code.call("malloc", "ptr", need), NULL, names))
        return code.select(many, self.heaps[-1], here)

    def _free(self) -> None:
        for heap in self.heaps:
            self.code.call("free", "void", heap)

    # ----------------------------------------------------------------------------- statements

    def _statements(self, body: Sequence[Statement]) -> None:
        """One after the other; before an input is written in place, whatever is stored beside it
        is computed, from what the input holds."""
        for place, statement in enumerate(body):
            if isinstance(statement, Store) and self.buffers[statement.buffer].place == "input":
                for other in itertools.takewhile(lambda one: isinstance(one, Store), body[place:]):
                    self.deep_value(other.value)  # type: ignore[union-attr]
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """Write one statement."""
        if isinstance(statement, Loop):
            self._loop(statement)
        elif isinstance(statement, Store):
            self._store(statement)
        else:
            self._fold(statement)

    def _store(self, statement: Store) -> None:
        dtype = self.buffers[statement.buffer].type.dtype
        value = self.deep_value(statement.value)
        scope = self.lane_scope()
        stored = scalar_code.to_memory(self.code, value, dtype)
        if scope is None:
            self._store_scalar(statement, stored)
            return
        step = coefficient_of(statement.offset, lane_atom(scope))
        if self.is_wide(statement.buffer):
            address = self.wide_address(statement.buffer, statement.offset, scope)
            stored = self.code.splat(stored, scope.lanes)
            self.code.store(stored, address)
        elif step == 0:
            # Every lane would write the same place: the value does not depend on the lane.
            self._store_scalar(
                statement, self.code.part(stored, 0, 1) if stored.lanes > 1 else stored
            )
        elif step == 1:
            self._store_vector(statement, self.code.splat(stored, scope.lanes))
        else:
            self._scatter(statement, self.code.splat(stored, scope.lanes), scope)

    def _store_scalar(self, statement: Store, value: Value) -> None:
        address = self.address(statement.buffer, statement.offset)
        self.code.store(value, address)

    def _store_vector(self, statement: Store, value: Value) -> None:
        address = self.address(statement.buffer, statement.offset)
        if self.tail is None:
            self.code.store(value, address)
            return
        name = f"llvm.masked.store.{mangled(value.type, value.lanes)}.p0"
        mask = vector("i1", value.lanes)
        self.code.assembly.declare(name, "void", [value.full, "ptr", mask])
        place = f"ptr align {align_of(value.type)} {address.text}"
        self.code.line(f"call void @{name}({value}, {place}, {self.tail})")

    def _scatter(self, statement: Store, value: Value, scope: Scope) -> None:
        for lane, address in enumerate(self.addresses(statement.buffer, statement.offset, scope)):
            part = self.code.part(value, lane, 1)
            if self.tail is not None:
                safe = self.safe_address()
                inside = self.code.part(self.tail, lane, 1)
                address = self.code.select(inside, address, safe)
            self.code.store(part, address)

    # ---------------------------------------------------------------------------------- folds

    def _fold(self, statement: Fold) -> None:
        node = statement.value
        kind, axes = node.attribute
        body = self.deep_value(node.arguments[0])
        current = self.accumulators[node]
        lanes = current[0].lanes
        body = self.code.splat(body, lanes)
        parts: tuple[Value, ...] = (body,)
        if kind.startswith("arg"):
            parts = (body, self._position(axes, lanes))
        mask = self.tail if self._folds_open_lanes(axes) else None
        self.accumulators[node] = self._combined(node, current, parts, mask)

    def _folds_open_lanes(self, axes: Sequence[Axis]) -> bool:
        scope = self.lane_scope()
        return scope is not None and any(each.atom is scope.atom for each in axes)

    def _position(self, axes: Sequence[Axis], lanes: int) -> Value:
        """The row-major position in the reduced axes."""
        total: Size = 0
        for each in axes:
            total = total * full_extent(each) + each.symbol
        return self.code.splat(self.size(total), lanes)

    def _combined(
        self,
        node: Scalar,
        left: tuple[Value, ...],
        right: tuple[Value, ...],
        mask: Value | None = None,
    ) -> tuple[Value, ...]:
        code = self.code
        kind, _ = node.attribute
        dtype = node.arguments[0].dtype
        if kind.startswith("arg"):
            return self._combined_position(kind, node, left, right, mask)
        if mask is not None:
            start = code.like(identity(kind, dtype), right[0])
            right = (code.select(mask, right[0], start),)
        if kind == "sum" and dtype.is_floating_point:
            return (code.binary("fadd contract", left[0], right[0]),)
        return (scalar_code.apply(code, COMBINE[kind], dtype, (left[0], right[0])),)

    def _combined_position(
        self,
        kind: str,
        node: Scalar,
        left: tuple[Value, ...],
        right: tuple[Value, ...],
        mask: Value | None,
    ) -> tuple[Value, ...]:
        """The better of two (value, position) pairs; of equals, the first; NaN beats all."""
        code = self.code
        dtype = node.arguments[0].dtype
        name = "gt" if kind == "argmax" else "lt"
        better = scalar_code.apply(code, name, dtype, (right[0], left[0]))
        equal = scalar_code.apply(code, "eq", dtype, (right[0], left[0]))
        if dtype.is_floating_point:
            nan_left = scalar_code.apply(code, "isnan", dtype, (left[0],))
            nan_right = scalar_code.apply(code, "isnan", dtype, (right[0],))
            fresh = code.binary(
                "and", nan_right, scalar_code.apply(code, "logical_not", torch.bool, (nan_left,))
            )
            better = code.binary("or", better, fresh)
            equal = code.binary("or", equal, code.binary("and", nan_left, nan_right))
        earlier = code.compare("icmp slt", right[1], left[1])
        take = code.binary("or", better, code.binary("and", equal, earlier))
        if mask is not None:
            take = code.binary("and", take, mask)
        return code.select(take, right[0], left[0]), code.select(take, right[1], left[1])

    def _start(self, node: Scalar, lanes: int) -> tuple[Value, ...]:
        kind, _ = node.attribute
        dtype = node.arguments[0].dtype
        first = self.code.constant(identity(kind, dtype), TYPES[dtype][0], lanes)
        if kind.startswith("arg"):
            return first, self.code.constant((1 << 63) - 1, "i64", lanes)
        return (first,)

    def _finished(self, node: Scalar, parts: tuple[Value, ...], across: bool) -> Value:
        """The value of a fold whose loops have ended; `across` lanes, if these were folded too."""
        while across and parts[0].lanes > 1:
            half = parts[0].lanes // 2
            low = tuple(self.code.part(part, 0, half) for part in parts)
            high = tuple(self.code.part(part, half, half) for part in parts)
            parts = self._combined(node, low, high)
        result = parts[-1]
        if node.dtype.itemsize == 2 and node.dtype.is_floating_point:
            result = scalar_code.round_half(self.code, result, node.dtype)
        return result

    # ---------------------------------------------------------------------------------- loops

    def _loop(self, loop: Loop) -> None:
        if loop.unrolled:
            self._unrolled(loop)
            return
        folds = list(_folds_over(loop))
        start: Accumulators = {
            node: self._start(node, self._fold_lanes(node, loop)) for node in folds
        }
        outer = {node: self.accumulators.get(node) for node in folds}
        results = self._iterate(loop, start)
        for node in folds:
            before = outer[node]
            if before is None:
                self.accumulators.pop(node, None)
                value = self._finished(node, results[node], _folds_lanes(node, loop))
                self.scopes[-1].values[node] = value
                self.folded_at[node] = len(self.scopes) - 1
            else:
                self.accumulators[node] = self._combined(node, before, results[node])

    def _unrolled(self, loop: Loop) -> None:
        assert isinstance(loop.axis.extent, int)
        for index in range(loop.axis.extent):
            self.code.push()
            self.scopes.append(Scope(loop.axis.atom, Value(str(index), "i64"), unrolled=index))
            self._statements(loop.body)
            self.scopes.pop()
            self.code.put(self.code.pop())

    def _fold_lanes(self, node: Scalar, loop: Loop) -> int:
        """Accumulators have the lanes of the vector loop that they are in, or that is in them."""
        scope = self.lane_scope()
        return scope.lanes if scope is not None else max(_lanes_in(loop), 1)

    def _iterate(self, loop: Loop, start: Accumulators) -> Accumulators:
        begin, end = self._range(loop)
        lanes = loop.lanes
        extent = loop.axis.extent
        static = isinstance(extent, int) and not loop.parallel
        if lanes == 1:
            certain = static and isinstance(extent, int) and extent > 0
            return self._repeat(loop, begin, end, 1, start, certain)[1]
        left = extent % lanes if isinstance(extent, int) else None
        if static and isinstance(extent, int):
            whole = extent - extent % lanes
            last, results = begin, start
            if whole:
                stop = Value(str(whole), "i64")
                _, results = self._repeat(loop, begin, stop, lanes, start, True)
                last = stop
        else:
            last, results = self._repeat(loop, begin, end, lanes, start, False)
        if left == 0:
            return results
        certain = static
        return self._last(loop, last, end, results, left, certain)

    def _range(self, loop: Loop) -> tuple[Value, Value]:
        if loop.parallel:
            return Value("%begin", "i64"), Value("%end", "i64")
        return Value("0", "i64"), self.size(loop.axis.extent)

    def _repeat(
        self, loop: Loop, begin: Value, end: Value, step: int, start: Accumulators, certain: bool
    ) -> tuple[Value, Accumulators]:
        """Run the body while a whole step fits; the index after that, and the accumulators."""
        with self.code.repeat(begin, end, step, _flat(start), certain) as repeat:
            self._body(loop, repeat, Scope(loop.axis.atom, repeat.index, loop.lanes), start)
        return repeat.after, _like(start, repeat.results)

    def _body(self, loop: Loop, repeat: CountedLoop, scope: Scope, start: Accumulators) -> None:
        """The statements of a loop, from the accumulators that it carries to those after them."""
        self.accumulators.update(_like(start, repeat.carried))
        self.scopes.append(scope)
        self._statements(loop.body)
        self.scopes.pop()
        repeat.carry(*_flat({node: self.accumulators[node] for node in start}))

    def _last(
        self,
        loop: Loop,
        begin: Value,
        end: Value,
        start: Accumulators,
        left: int | None,
        certain: bool,
    ) -> Accumulators:
        """What is left over after the whole vectors: one more, masked."""
        code = self.code
        lanes = loop.lanes
        if left is not None and not start:
            lanes = 1 << (left - 1).bit_length()
        with code.once(begin, end, _flat(start), certain) as repeat:
            before_tail = self.tail
            self.tail = None if left == lanes else self._inside(begin, end, lanes, left)
            code.active = self.tail
            self._body(loop, repeat, Scope(loop.axis.atom, begin, lanes), start)
            self.tail = before_tail
            code.active = self.tail
        return _like(start, repeat.results)

    def _inside(self, begin: Value, end: Value, lanes: int, left: int | None) -> Value:
        if left is not None:
            flags = ", ".join(f"i1 {'true' if lane < left else 'false'}" for lane in range(lanes))
            return Value(f"<{flags}>", "i1", lanes)
        rest = self.code.binary("sub", end, begin)
        count = self.code.convert("trunc", rest, "i32")
        return self.code.compare("icmp ult", self.code.iota("i32", lanes), count)


def _flat(accumulators: Accumulators) -> list[Value]:
    return [part for parts in accumulators.values() for part in parts]


def _like(start: Accumulators, values: Sequence[Value]) -> Accumulators:
    """The values as accumulators of the same folds."""
    rest = iter(values)
    return {node: tuple(next(rest) for _ in parts) for node, parts in start.items()}


def stored_in(body: Sequence[Statement]) -> set[str]:
    """The buffers that statements write."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, Loop):
            found |= stored_in(statement.body)
        elif isinstance(statement, Store):
            found.add(statement.buffer)
    return found


def _statements(body: Sequence[Statement]) -> Iterator[Store | Fold]:
    for statement in body:
        if isinstance(statement, Loop):
            yield from _statements(statement.body)
        else:
            yield statement


def _mentioned(body: Sequence[Statement]) -> set[str]:
    found: set[str] = set()
    for statement in _statements(body):
        if isinstance(statement, Store):
            found.add(statement.buffer)
        found |= {n.attribute[0] for n in walk(statement.value) if n.op == "load"}
    return found


def _folds_over(loop: Loop) -> Iterator[Scalar]:
    """The folds inside a loop that fold its axis."""
    for statement in _statements(loop.body):
        if isinstance(statement, Fold):
            axes = statement.value.attribute[1]
            if any(each.symbol is loop.axis.symbol for each in axes):
                yield statement.value


def _lanes_in(loop: Loop) -> int:
    if loop.lanes > 1:
        return loop.lanes
    return max((_lanes_in(s) for s in loop.body if isinstance(s, Loop)), default=1)


def _folds_lanes(node: Scalar, loop: Loop) -> bool:
    """Whether the vector loop inside `loop` is one of the fold's own axes."""
    if loop.lanes > 1:
        return any(each.symbol is loop.axis.symbol for each in node.attribute[1])
    return any(_folds_lanes(node, s) for s in loop.body if isinstance(s, Loop))
