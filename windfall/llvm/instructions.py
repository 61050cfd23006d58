"""Instructions of one function, line by line, in blocks that nest like the loops they are for.

Enters: calls such as `code.binary("fadd", x, code.constant(1.0, "float", 8))`. Leaves: a `Value`
for each, and lines of text (`%v4 = fadd <8 x float> %v3, splat (float 1.0)`). Invariant: a value is
written once, before every use of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from windfall.dataclass import dataclass
from windfall.llvm.values import NULL, Value, align_of, integer, literal, mangled, vector

if TYPE_CHECKING:
    from windfall.llvm.code import Assembly


@dataclass(slots=True)
class Block:
    """Lines that run together; `label` is that of the last basic block among them, `ended` whether
    nothing more can be reached in it."""

    label: str
    lines: list[str] = field(default_factory=list)
    ended: bool = False


# Rounds of `Code.transpose`: lanes for the first and the second of a pair, and how far it is apart.
_TRANSPOSE = (
    ((0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15), 1),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15), 2),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15), 4),
)


class Instructions:
    """Straight code of a function under construction: a stack of blocks, the innermost last."""

    def __init__(self, assembly: Assembly, parameters: Sequence[str] = ()) -> None:
        self.assembly = assembly
        self.parameters = tuple(Value(f"%p{n}", type) for n, type in enumerate(parameters))
        self.blocks: list[Block] = [Block("entry")]
        self.at = 0  # the block that is written to
        self.active: Value | None = None  # lanes that count; None: all of them
        self._count = 0

    # ------------------------------------------------------------------------------- writing

    def fresh(self) -> str:
        """A name not used yet."""
        self._count += 1
        return f"%v{self._count}"

    def label(self, hint: str) -> str:
        """A label not used yet."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """One line at the end of the block."""
        self.blocks[self.at].lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin a basic block."""
        block = self.blocks[self.at]
        block.lines.append(f"{label}:")
        block.label, block.ended = label, False

    def write(self, text: str, type: str, lanes: int = 1) -> Value:
        """An instruction with a result."""
        self._count += 1
        name = f"%v{self._count}"
        self.blocks[self.at].lines.append(f"  {name} = {text}")
        return Value(name, type, lanes)

    def push(self) -> None:
        """Write inside: into a block that is put where it belongs by `pop`."""
        self.blocks.append(Block(""))
        self.at = len(self.blocks) - 1

    def pop(self) -> Block:
        """The innermost block; what follows is written outside it."""
        block = self.blocks.pop()
        self.at = len(self.blocks) - 1
        return block

    def put(self, block: Block) -> None:
        """Write a finished block here."""
        here = self.blocks[self.at]
        here.lines.extend(block.lines)
        if block.label:
            here.label, here.ended = block.label, block.ended

    # ------------------------------------------------------------------------------ operands

    def constant(self, value: float | int | bool, type: str, lanes: int = 1) -> Value:
        """A number, in every lane."""
        text = literal(value, type)
        return Value(text if lanes == 1 else f"splat ({type} {text})", type, lanes)

    def like(self, value: float | int | bool, other: Value) -> Value:
        """A number of the type of `other`."""
        return self.constant(value, other.type, other.lanes)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, f"{value} has lanes already"
        if not value.text.startswith("%"):
            return Value(f"splat ({value.type} {value.text})", value.type, lanes)
        one = self.write(
            f"insertelement {vector(value.type, lanes)} poison, {value}, i64 0",
            value.type,
            lanes,
        )
        return self.write(
            f"shufflevector {one}, {one.full} poison, <{lanes} x i32> zeroinitializer",
            value.type,
            lanes,
        )

    def _pair(self, left: Value, right: Value | int) -> tuple[Value, Value]:
        if isinstance(right, int):
            return left, self.like(right, left)
        if left.lanes == right.lanes:
            return left, right
        lanes = max(left.lanes, right.lanes)
        return self.splat(left, lanes), self.splat(right, lanes)

    def same_lanes(self, *values: Value) -> tuple[Value, ...]:
        """The values, scalars spread to the lanes of the others."""
        lanes = max(value.lanes for value in values)
        return tuple(self.splat(value, lanes) for value in values)

    # -------------------------------------------------------------------------- instructions

    def binary(self, name: str, left: Value, right: Value | int) -> Value:
        """`name left, right`."""
        left, right = self._pair(left, right)
        return self.write(f"{name} {left}, {right.text}", left.type, left.lanes)

    def unary(self, name: str, value: Value) -> Value:
        """`name value`."""
        return self.write(f"{name} {value}", value.type, value.lanes)

    def add(self, left: Value, right: Value) -> Value:
        """A floating sum that may contract with a product."""
        return self.binary("fadd contract", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        """A floating difference that may contract with a product."""
        return self.binary("fsub contract", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        """A floating product that may contract with a sum."""
        return self.binary("fmul contract", left, right)

    def div(self, left: Value, right: Value) -> Value:
        """A floating quotient."""
        return self.binary("fdiv", left, right)

    def compare(self, name: str, left: Value, right: Value | int) -> Value:
        """`fcmp olt`, `icmp slt` and so on."""
        left, right = self._pair(left, right)
        return self.write(f"{name} {left}, {right.text}", "i1", left.lanes)

    def equal(self, left: Value, right: Value | int) -> Value:
        """Whether two integers, or two addresses, are the same."""
        return self.compare("icmp eq", left, right)

    def different(self, left: Value, right: Value | int) -> Value:
        """Whether they are not."""
        return self.compare("icmp ne", left, right)

    def is_null(self, address: Value) -> Value:
        """Whether an address is none."""
        return self.compare("icmp eq", address, NULL)

    def both(self, *conditions: Value) -> Value:
        """Whether all of them hold."""
        return functools.reduce(functools.partial(self.binary, "and"), conditions)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where the condition holds, else `no`."""
        lanes = max(condition.lanes, yes.lanes, no.lanes)
        yes, no = self.splat(yes, lanes), self.splat(no, lanes)
        if condition.lanes not in (1, lanes):
            raise AssertionError(f"{condition} selects from {yes}")
        return self.write(f"select {condition}, {yes}, {no}", yes.type, lanes)

    def convert(self, name: str, value: Value, type: str) -> Value:
        """`sext`, `fptosi`, `bitcast` and so on."""
        return self.write(f"{name} {value} to {vector(type, value.lanes)}", type, value.lanes)

    def intrinsic(self, name: str, *values: Value, result: str = "") -> Value:
        """An overloaded LLVM intrinsic of its first argument's type."""
        values = self.same_lanes(*values)
        first = values[0]
        type = result or first.type
        full = f"llvm.{name}.{mangled(first.type, first.lanes)}"
        arguments = [value.full for value in values]
        self.assembly.declare(full, vector(type, first.lanes), arguments)
        text = ", ".join(map(str, values))
        flags = "contract " if first.type in ("float", "double") and name == "fma" else ""
        return self.write(
            f"call {flags}{vector(type, first.lanes)} @{full}({text})", type, first.lanes
        )

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def call(
        self, function: str | Value, result: str, *values: Value | int, lanes: int = 1
    ) -> Value:
        """Call a function, by its name or its address."""
        full = vector(result, lanes)
        given = [integer(value) if isinstance(value, int) else value for value in values]
        if isinstance(function, str):
            function = self.assembly.declare(function, full, [value.full for value in given])
        text = f"call {full} {function.text}({', '.join(map(str, given))})"
        if result == "void":
            self.line(text)
            return Value("", "void")
        return self.write(text, result, lanes)

    # -------------------------------------------------------------------------------- memory

    def element(self, base: Value, place: Value | int, type: str = "i8") -> Value:
        """The address of an element of a row."""
        if isinstance(place, int):
            place = integer(place)
        return self.write(f"getelementptr {type}, ptr {base.text}, {place}", "ptr")

    def offset(self, base: Value, bytes: int | Value) -> Value:
        """An address so many bytes further on."""
        return base if bytes == 0 else self.element(base, bytes)

    def load(self, type: str, address: Value, lanes: int = 1) -> Value:
        """What stands in memory; it is aligned as one element is."""
        full = vector(type, lanes)
        return self.write(f"load {full}, ptr {address.text}, align {align_of(type)}", type, lanes)

    def store(self, value: Value, address: Value) -> None:
        """Write to memory."""
        self.line(f"store {value}, ptr {address.text}, align {align_of(value.type)}")

    def word(self, base: Value, place: Value | int, type: str = "i64") -> Value:
        """An element of a row of words: a number or an address."""
        return self.load(type, self.element(base, place, type) if place != 0 else base)

    def field(self, object: Value, bytes: int | Value, type: str = "i64") -> Value:
        """What stands so many bytes behind an address."""
        return self.load(type, self.offset(object, bytes))

    def reserve(self, type: str, align: int = 8) -> Value:
        """Memory on the stack, for as long as the function runs."""
        name = self.fresh()
        self.blocks[0].lines.insert(0, f"  {name} = alloca {type}, align {align}")
        return Value(name, "ptr")

    # --------------------------------------------------------------------------------- lanes

    def part(self, value: Value, start: int, count: int) -> Value:
        """Some neighbouring lanes of a vector; one lane gives a scalar."""
        if value.lanes == count:
            return value
        if count == 1:
            return self.write(f"extractelement {value}, i64 {start}", value.type)
        mask = ", ".join(f"i32 {start + lane}" for lane in range(count))
        return self.write(
            f"shufflevector {value}, {value.full} poison, <{count} x i32> <{mask}>",
            value.type,
            count,
        )

    def join(self, parts: list[Value]) -> Value:
        """Vectors (or scalars) of one size one after the other; their number is a power of 2."""
        if len(parts) > 1 and parts[0].lanes == 1:
            result = Value("poison", parts[0].type, len(parts))
            for lane, part in enumerate(parts):
                result = self.write(
                    f"insertelement {result}, {part}, i64 {lane}", part.type, len(parts)
                )
            return result
        while len(parts) > 1:
            lanes = parts[0].lanes * 2
            mask = ", ".join(f"i32 {lane}" for lane in range(lanes))
            parts = [
                self.write(f"shufflevector {a}, {b}, <{lanes} x i32> <{mask}>", a.type, lanes)
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def shuffle(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        """Chosen lanes of two vectors, those of the second counted after those of the first."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {left}, {right}, <{len(lanes)} x i32> <{mask}>"
        return self.write(text, left.type, len(lanes))

    def transpose(self, rows: list[Value]) -> list[Value]:
        """Eight vectors of eight lanes, rows made columns: three rounds that x86 has instructions
        for."""
        for low, high, distance in _TRANSPOSE:
            made: dict[int, Value] = {}
            for place in range(8):
                if not place & distance:
                    pair = rows[place], rows[place | distance]
                    made[place] = self.shuffle(*pair, low)
                    made[place | distance] = self.shuffle(*pair, high)
            rows = [made[place] for place in range(8)]
        return rows

    def reverse(self, value: Value) -> Value:
        """The lanes in opposite order."""
        mask = ", ".join(f"i32 {lane}" for lane in reversed(range(value.lanes)))
        return self.write(
            f"shufflevector {value}, {value.full} poison, <{value.lanes} x i32> <{mask}>",
            value.type,
            value.lanes,
        )

    def iota(self, type: str, lanes: int, step: int = 1) -> Value:
        """`0, step, 2 * step, …`."""
        if lanes == 1:
            return Value("0", type)
        numbers = ", ".join(f"{type} {lane * step}" for lane in range(lanes))
        return Value(f"<{numbers}>", type, lanes)
