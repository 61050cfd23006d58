"""LLVM text, line by line: values with a type, instructions, constants, declarations.

Enters: calls such as `code.binary("fadd", a, b)`. Leaves: lines of text in blocks that nest like
the loops they are written for. Invariant: a value is written once, before every use of it; a value
has one element type and a number of lanes, 1 standing for a plain scalar.

    >>> code.binary("fadd", x, code.constant(1.0, "float", 8))
    Value("%4", "float", 8)          # %4 = fadd <8 x float> %x, splat (float 1.0)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

# dtype -> (type while computed with, type in memory). Half floats are computed with as float.
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float64: ("double", "double"),
    torch.float32: ("float", "float"),
    torch.bfloat16: ("float", "i16"),
    torch.float16: ("float", "half"),
    torch.int64: ("i64", "i64"),
    torch.int32: ("i32", "i32"),
    torch.int16: ("i16", "i16"),
    torch.int8: ("i8", "i8"),
    torch.uint8: ("i8", "i8"),
    torch.bool: ("i1", "i8"),
}
# Numbers that are only moved: as many bits, whatever they mean.
TYPES.update(
    {
        torch.complex64: ("i64", "i64"),
        torch.complex128: ("i128", "i128"),
        torch.uint16: ("i16", "i16"),
        torch.uint32: ("i32", "i32"),
        torch.uint64: ("i64", "i64"),
    }
)
BITS = {
    "double": 64,
    "float": 32,
    "half": 16,
    "i128": 128,
    "i64": 64,
    "i32": 32,
    "i16": 16,
    "i8": 8,
    "i1": 1,
}
SUFFIX = {"double": "f64", "float": "f32", "half": "f16", "ptr": "p0"}


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its text, its element type, its lanes."""

    text: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        """The type as written in LLVM."""
        return vector(self.type, self.lanes)

    def __str__(self) -> str:
        return f"{self.full} {self.text}"


def vector(type: str, lanes: int) -> str:
    """The type of `lanes` elements."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def mangled(type: str, lanes: int) -> str:
    """The type inside the name of an intrinsic."""
    short = SUFFIX.get(type, type)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: float | int | bool, type: str) -> str:
    """A number as LLVM writes it."""
    if type == "i1":
        return "true" if value else "false"
    if type in ("float", "double"):
        if type == "float":
            value = _rounded(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


def _rounded(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


@dataclass(slots=True)
class Block:
    """Lines that run together; `label` is that of the last basic block among them."""

    label: str
    lines: list[str] = field(default_factory=list)


# Rounds of `Code.transpose`: lanes for the first and the second of a pair, and how far it is apart.
_TRANSPOSE = (
    ((0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15), 1),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15), 2),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15), 4),
)


class Declarations:
    """The external functions that a module mentions, each declared once."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def intrinsic(self, name: str, result: str, arguments: list[str]) -> str:
        """Declare a function and return its name."""
        self.lines.setdefault(name, f"declare {result} @{name}({', '.join(arguments)})")
        return name


class Code:
    """A function under construction: a stack of blocks, the innermost loop's last."""

    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
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
        self.blocks[self.at].lines.append(f"{label}:")
        self.blocks[self.at].label = label

    def write(self, text: str, type: str, lanes: int = 1) -> Value:
        """An instruction with a result."""
        name = self.fresh()
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
        self.blocks[self.at].lines.extend(block.lines)
        if block.label:
            self.blocks[self.at].label = block.label

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

    def same_lanes(self, *values: Value) -> tuple[Value, ...]:
        """The values, scalars spread to the lanes of the others."""
        lanes = max(value.lanes for value in values)
        return tuple(self.splat(value, lanes) for value in values)

    # -------------------------------------------------------------------------- instructions

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """`name left, right`."""
        left, right = self.same_lanes(left, right)
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

    def compare(self, name: str, left: Value, right: Value) -> Value:
        """`fcmp olt`, `icmp slt` and so on."""
        left, right = self.same_lanes(left, right)
        return self.write(f"{name} {left}, {right.text}", "i1", left.lanes)

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
        self.declarations.intrinsic(full, vector(type, first.lanes), arguments)
        text = ", ".join(map(str, values))
        flags = "contract " if first.type in ("float", "double") and name == "fma" else ""
        return self.write(
            f"call {flags}{vector(type, first.lanes)} @{full}({text})", type, first.lanes
        )

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def call(self, name: str, result: str, *values: Value, lanes: int = 1) -> Value:
        """A C function."""
        full = vector(result, lanes)
        self.declarations.intrinsic(name, full, [value.full for value in values])
        return self.write(f"call {full} @{name}({', '.join(map(str, values))})", result, lanes)

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
