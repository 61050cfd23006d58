"""Code objects as data: instructions, jump targets, exception table, lines.

Enters: a code object. Leaves: a `Listing` of `Instruction`s by index (caches and EXTENDED_ARG
folded away), its exception table by index, its variables. All that differs between CPython versions
stands here and in the `since`/`until` fields of the opcode table. Invariant: an index names one
real instruction, jumps and handlers are indices; a `Listing` does not keep its code alive.

    >>> [one.name for one in decode((lambda x: x).__code__).instructions]
    ['RESUME', 'LOAD_FAST', 'RETURN_VALUE']
"""

from __future__ import annotations

import dis
import inspect
import sys
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from windfall.errors import SourceLine

VERSION = sys.version_info[:2]

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap["CACHE"]
_CACHES: list[int] = list(getattr(dis, "_inline_cache_entries", [0] * 256))
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_BACKWARD = frozenset(op for name, op in dis.opmap.items() if "BACKWARD" in name)
_CONSTANTS = frozenset(dis.hasconst) | {dis.opmap.get("KW_NAMES", -1)}
_NAMES = frozenset(dis.hasname)
_VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree) | {dis.opmap.get("MAKE_CELL", -1)}

# The low bit of LOAD_GLOBAL's argument asks for a NULL under the result; the name is above it.
_SHIFTED_NAMES = {dis.opmap["LOAD_GLOBAL"]}
if VERSION >= (3, 12):
    _SHIFTED_NAMES.add(dis.opmap["LOAD_ATTR"])


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `argument` as encoded, `value` what it names (a constant, a name, a
    variable), `target` the index it may jump to (-1: none)."""

    index: int
    name: str
    argument: int
    value: Any
    target: int
    line: int
    offset: int
    start: int  # where its EXTENDED_ARGs start

    def __str__(self) -> str:
        shown = f" ({self.value!r})" if self.value is not None else ""
        return f"{self.index:4} {self.name} {self.argument}{shown}"


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the exception table: instructions [start, end) unwind to `target` with the stack cut
    to `depth`, the index of the raising instruction pushed first where `lasti`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """A decoded code object. Variables are numbered as the interpreter does: locals, then cells
    that are not arguments, then free variables."""

    instructions: tuple[Instruction, ...]
    handlers: tuple[Handler, ...]
    variables: tuple[str, ...]
    cells: frozenset[int]  # variables that hold a cell (free ones included)
    free: tuple[int, ...]  # the free variables, in order of the closure
    is_generator: bool
    is_coroutine: bool
    lines: Mapping[int, SourceLine]  # by number: guards and nodes of one line share its record

    def handler_at(self, index: int) -> Handler | None:
        """The innermost handler that covers an instruction."""
        for handler in self.handlers:
            if handler.start <= index < handler.end:
                return handler
        return None


_DECODED: dict[int, tuple[weakref.ref[CodeType], Listing]] = {}


def decode(code: CodeType) -> Listing:
    """The program of a code object, decoded once."""
    known = _DECODED.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    program = _decode(code)
    key = id(code)
    _DECODED[key] = (weakref.ref(code, lambda _: _DECODED.pop(key, None)), program)
    return program


def _decode(code: CodeType) -> Listing:
    variables, cells, free = _variables(code)
    raw = list(_raw(code.co_code))
    index_of = {offset: index for index, (_, _, offset, _, _) in enumerate(raw)}
    # A jump may land on the EXTENDED_ARG in front of its instruction.
    for index, (_, _, _, start, _) in enumerate(raw):
        index_of.setdefault(start, index)
    lines = _lines(code)
    line = code.co_firstlineno
    instructions = []
    for index, (op, argument, offset, start, after) in enumerate(raw):
        target = -1
        if op in _JUMPS:
            distance = -2 * argument if op in _BACKWARD else 2 * argument
            target = index_of[after + distance]
        value = _value(code, variables, op, argument)
        line = lines.get(offset, line)  # a generated instruction belongs to the line before it
        instructions.append(
            Instruction(index, dis.opname[op], argument, value, target, line, offset, start)
        )
    flags = code.co_flags
    return Listing(
        tuple(instructions),
        tuple(_handlers(code.co_exceptiontable, index_of, len(code.co_code), len(raw))),
        variables,
        cells,
        free,
        bool(flags & inspect.CO_GENERATOR),
        bool(flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)),
        {
            number: SourceLine(code.co_filename, number, code.co_qualname)
            for number in {one.line for one in instructions}
        },
    )


def _raw(code: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """(opcode, argument, offset, where its EXTENDED_ARGs start, offset after its caches)."""
    argument, start, offset = 0, 0, 0
    while offset < len(code):
        op = code[offset]
        argument |= code[offset + 1]
        if op == _EXTENDED_ARG:
            argument <<= 8
            offset += 2
            continue
        after = offset + 2 + 2 * _CACHES[op]
        if op != _CACHE:
            yield op, argument, offset, start, after
        argument, start, offset = 0, after, after


def _variables(code: CodeType) -> tuple[tuple[str, ...], frozenset[int], tuple[int, ...]]:
    names = list(code.co_varnames)
    cells = set()
    for name in code.co_cellvars:
        if name in code.co_varnames:
            cells.add(names.index(name))
        else:
            cells.add(len(names))
            names.append(name)
    free = tuple(range(len(names), len(names) + len(code.co_freevars)))
    names.extend(code.co_freevars)
    return tuple(names), frozenset(cells | set(free)), free


def _value(code: CodeType, variables: tuple[str, ...], op: int, argument: int) -> Any:
    if op in _CONSTANTS:
        return code.co_consts[argument]
    if op in _NAMES:
        return code.co_names[argument >> 1 if op in _SHIFTED_NAMES else argument]
    if op in _VARIABLES:
        return variables[argument]
    return None


def _lines(code: CodeType) -> dict[int, int]:
    found: dict[int, int] = {}
    for start, end, line in code.co_lines():
        if line is not None:
            for offset in range(start, end, 2):
                found[offset] = line
    return found


def _handlers(table: bytes, index_of: dict[int, int], length: int, count: int) -> Iterator[Handler]:
    """The table's rows; they never overlap: of nested ranges only the innermost is written."""
    numbers = varints(table)
    for start in numbers:
        size, target, info = next(numbers), next(numbers), next(numbers)
        begin, end = 2 * start, 2 * (start + size)
        yield Handler(
            _index_at(index_of, begin, length, count),
            _index_at(index_of, end, length, count),
            index_of[2 * target],
            info >> 1,
            bool(info & 1),
        )


def _index_at(index_of: dict[int, int], offset: int, length: int, count: int) -> int:
    """The first instruction at or after an offset (ranges end after caches)."""
    while offset < length:
        if offset in index_of:
            return index_of[offset]
        offset += 2
    return count


def varints(table: bytes) -> Iterator[int]:
    position = 0
    while position < len(table):
        byte = table[position]
        number = byte & 63
        while byte & 64:
            position += 1
            byte = table[position]
            number = number << 6 | byte & 63
        position += 1
        yield number
