"""From a list of items to a code object: jumps, caches, exception table, line table.

Enters: `BytecodeWriter` calls: instructions with whole arguments, labels, each one's location and
handler. Leaves: the bytes of `co_code`, `co_exceptiontable` and `co_linetable`, and each item's
offset in code units. Invariant: labels are resolved and EXTENDED_ARGs inserted only here;
a jump goes in the direction that its opcode says.

    writer = BytecodeWriter(first_line=1, locations=[(1, b"")])
    end = writer.label()
    writer.jump(JUMP_FORWARD, end)
    writer.place(end)
"""

from __future__ import annotations

import dis
from itertools import accumulate
from typing import NamedTuple

from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.frontend.bytecode import CACHES

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_BACKWARD = frozenset(op for name, op in dis.opmap.items() if "BACKWARD" in name)
_ZEROS = tuple(bytes(2 * count) for count in CACHES)

# (line, the bytes behind the line delta): `None` as bytes means no columns, line -1 no line at all.
Location = tuple[int, bytes | None]


class ExceptionRow(NamedTuple):
    """Where an exception goes: a label, the depth to which the stack is cut, lasti or not."""

    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Assembled:
    """The bytes, and where each item stands (in code units; one more for the end)."""

    code: bytes
    exceptions: bytes
    lines: bytes
    offsets: list[int]


class BytecodeWriter:
    """Items in order. An item is (opcode, argument, label or -1, location, row)."""

    __slots__ = ("_labels", "first_line", "items", "locations")

    def __init__(self, first_line: int, locations: list[Location]) -> None:
        self.first_line = first_line
        self.locations = locations
        self.items: list[tuple[int, int, int, int, ExceptionRow | None]] = []
        self._labels: list[int] = []

    def label(self) -> int:
        """A new label, to be placed once."""
        self._labels.append(-1)
        return len(self._labels) - 1

    def labels(self, count: int) -> int:
        """The first of `count` consecutive new labels."""
        self._labels.extend([-1] * count)
        return len(self._labels) - count

    def place(self, label: int) -> None:
        """The label stands before the next item."""
        self._labels[label] = len(self.items)

    def placed(self, first: int, count: int) -> list[int]:
        """The items before which `count` labels stand (-1: not placed)."""
        return self._labels[first : first + count]

    def emit(self, op: int, argument: int, location: int, row: ExceptionRow | None = None) -> None:
        """An instruction that does not jump."""
        self.items.append((op, argument, -1, location, row))

    def jump(self, op: int, label: int, location: int, row: ExceptionRow | None = None) -> None:
        """An instruction that jumps to a label."""
        self.items.append((op, 0, label, location, row))

    def assemble(self) -> Assembled:
        """All labels resolved."""
        offsets, arguments, prefixes = self._layout()
        code = self._code(arguments, prefixes)
        return Assembled(code, self._exceptions(offsets), self._lines(offsets), offsets)

    # ----------------------------------------------------------------------------------- layout

    def _layout(self) -> tuple[list[int], list[int], list[int]]:
        """Offsets, arguments and EXTENDED_ARGs, which only ever grow: so this ends."""
        items, labels = self.items, self._labels
        arguments = [item[1] for item in items]
        prefixes = [_prefixes(argument) if argument > 0xFF else 0 for argument in arguments]
        sizes = [1 + CACHES[item[0]] + more for item, more in zip(items, prefixes, strict=True)]
        jumps = [(index, item[0], item[2]) for index, item in enumerate(items) if item[2] >= 0]
        while True:
            offsets = [0, *accumulate(sizes)]
            grown = False
            for index, op, label in jumps:
                distance = offsets[labels[label]] - offsets[index + 1]
                if op in _BACKWARD:
                    distance = -distance
                if distance < 0 or labels[label] < 0:
                    raise InternalError(f"{dis.opname[op]} goes the wrong way")
                arguments[index] = distance
                if distance > 0xFF and _prefixes(distance) > prefixes[index]:
                    sizes[index] += _prefixes(distance) - prefixes[index]
                    prefixes[index] = _prefixes(distance)
                    grown = True
            if not grown:
                return offsets, arguments, prefixes

    def _code(self, arguments: list[int], prefixes: list[int]) -> bytes:
        code = bytearray()
        for (op, *_), argument, count in zip(self.items, arguments, prefixes, strict=True):
            for shift in range(8 * count, 0, -8):
                code.append(_EXTENDED_ARG)
                code.append(argument >> shift & 0xFF)
            code.append(op)
            code.append(argument & 0xFF)
            code += _ZEROS[op]
        return bytes(code)

    # ----------------------------------------------------------------------------------- tables

    def _exceptions(self, offsets: list[int]) -> bytes:
        """Rows of (start, length, target, depth and lasti), each number in big-endian sextets."""
        table = bytearray()
        items, count = self.items, len(self.items)
        index = 0
        while index < count:
            row = items[index][4]
            begin = index
            index += 1
            while index < count and items[index][4] == row:
                index += 1
            if row is None:
                continue
            start, length = offsets[begin], offsets[index] - offsets[begin]
            target = offsets[self._labels[row.target]]
            position = len(table)
            for number in (start, length, target, row.depth << 1 | row.lasti):
                _sextets(table, number)
            table[position] |= 0x80
        return bytes(table)

    def _lines(self, offsets: list[int]) -> bytes:
        """Entries of at most eight units: form and length, the line's delta, the columns."""
        table = bytearray()
        previous = self.first_line
        items, locations, count = self.items, self.locations, len(self.items)
        index = 0
        while index < count:
            place = items[index][3]
            begin = index
            index += 1
            while index < count and items[index][3] == place:
                index += 1
            units = offsets[index] - offsets[begin]
            line, columns = locations[place]
            form = 0xF8 if line < 0 else 0xE8 if columns is None else 0xF0
            while units > 0:
                size = 8 if units > 8 else units
                units -= size
                table.append(form | size - 1)
                if line >= 0:
                    delta = line - previous
                    previous = line
                    signed = -delta << 1 | 1 if delta < 0 else delta << 1
                    if signed < 64:
                        table.append(signed)
                    else:
                        table += varint(signed)
                    if columns is not None:
                        table += columns
        return bytes(table)


def _prefixes(argument: int) -> int:
    """How many EXTENDED_ARGs an argument needs."""
    return (argument.bit_length() - 1) // 8


def _sextets(table: bytearray, number: int) -> None:
    """Big-endian, six bits a byte, as the exception table has them."""
    for shift in range((max(number.bit_length(), 1) - 1) // 6 * 6, 0, -6):
        table.append(0x40 | number >> shift & 0x3F)
    table.append(number & 0x3F)


def varint(number: int) -> bytes:
    """Little-endian, six bits a byte, as the line table has them."""
    result = bytearray()
    while number >= 64:
        result.append(0x40 | number & 0x3F)
        number >>= 6
    result.append(number)
    return bytes(result)


def location(
    line: int | None, end_line: int | None, column: int | None, end_column: int | None
) -> Location:
    """A position as `co_positions` gives it, ready to be written."""
    if line is None:
        return -1, None
    if column is None or end_column is None or end_line is None or end_line < line:
        return line, None
    if end_line == line and column < 63 and end_column < 63:
        return line, bytes((0, column + 1, end_column + 1))
    return line, varint(end_line - line) + varint(column + 1) + varint(end_column + 1)
