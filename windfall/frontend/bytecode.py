"""Code objects as data: instructions, jump targets, exception table, lines.

Enters: a code object. Leaves: a `Listing` of `Instruction`s by index (caches and EXTENDED_ARG
folded away), its exception table by index, its variables. All that differs between CPython versions
stands here and in the `since`/`until` fields of the opcode table. Invariant: an index names one
real instruction, or one half of a fused one; jumps and handlers are indices; a `Listing` does not
keep its code alive.

An instruction's `name` says what it does, its `op` how this CPython writes it: where a later
version folded an instruction of an earlier one into another (a bit of LOAD_ATTR, an intrinsic), it
keeps the earlier name, and with it its handler. An exhausted FOR_ITER jumps behind the END_FOR.

    >>> [one.name for one in decode((lambda x: x).__code__).instructions]
    ['RESUME', 'LOAD_FAST', 'RETURN_VALUE']
"""

from __future__ import annotations

import dis
import inspect
import opcode
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from windfall.dataclass import dataclass
from windfall.errors import SourceLine

VERSION = sys.version_info[:2]

# The versions whose bytecode is known. On another one everything runs eagerly.
SUPPORTED = frozenset({(3, 11), (3, 12), (3, 13)})

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap["CACHE"]
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_BACKWARD = frozenset(op for name, op in dis.opmap.items() if "BACKWARD" in name)
_CONSTANTS = frozenset(dis.hasconst) | {dis.opmap.get("KW_NAMES", -1)}
_NAMES = frozenset(dis.hasname)
_VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree) | {dis.opmap.get("MAKE_CELL", -1)}


def _caches() -> tuple[int, ...]:
    """How many words follow each opcode (a table by number, or by name from 3.13 on)."""
    table: Any = getattr(dis, "_inline_cache_entries", ())
    if isinstance(table, dict):
        return tuple(table.get(name, 0) for name in dis.opname[:256])
    return tuple(table[:256])


CACHES = _caches()

# The low bits of these arguments ask for something else, the name is above them: a NULL under the
# result; that `super` was called with arguments.
_NAME_SHIFTS = {dis.opmap["LOAD_GLOBAL"]: 1}
# Likewise the operator of a comparison.
_OPERATOR_SHIFT = 0
if VERSION >= (3, 12):
    _NAME_SHIFTS |= {dis.opmap["LOAD_ATTR"]: 1, dis.opmap["LOAD_SUPER_ATTR"]: 2}
    _OPERATOR_SHIFT = 4
if VERSION >= (3, 13):
    _OPERATOR_SHIFT = 5
_COMPARE, _FOR_ITER = dis.opmap["COMPARE_OP"], dis.opmap["FOR_ITER"]
_CALL_KW = dis.opmap.get("CALL_KW", -1)

# What stands where an exhausted FOR_ITER is said to jump to, and is jumped over: only a generator
# that returns inside of the interpreter's loop runs it.
AFTER_LOOP: tuple[str, ...] = ()
if VERSION >= (3, 12):
    AFTER_LOOP = ("END_FOR",)
if VERSION >= (3, 13):
    AFTER_LOOP = ("END_FOR", "POP_TOP")

# Two instructions in one: (the opcode and argument of each), given the argument of both.
_FUSED: dict[int, Callable[[int], tuple[tuple[int, int], ...]]] = {}


def _fuse(name: str, first: str, second: str) -> None:
    one, other = dis.opmap[first], dis.opmap[second]
    _FUSED[dis.opmap[name]] = lambda argument: ((one, argument >> 4), (other, argument & 15))


if VERSION >= (3, 12):
    _RETURN = (dis.opmap["RETURN_VALUE"], 0)
    _FUSED[dis.opmap["RETURN_CONST"]] = lambda argument: (
        (dis.opmap["LOAD_CONST"], argument),
        _RETURN,
    )
if VERSION >= (3, 13):
    _TO_BOOL, _AS_BOOL = (dis.opmap["TO_BOOL"], 0), 16
    _FUSED[_COMPARE] = lambda argument: (
        ((_COMPARE, argument & ~_AS_BOOL), _TO_BOOL)
        if argument & _AS_BOOL
        else ((_COMPARE, argument),)
    )
    _fuse("LOAD_FAST_LOAD_FAST", "LOAD_FAST", "LOAD_FAST")
    _fuse("STORE_FAST_LOAD_FAST", "STORE_FAST", "LOAD_FAST")
    _fuse("STORE_FAST_STORE_FAST", "STORE_FAST", "STORE_FAST")

# Intrinsics that were instructions of their own; the others are called by their own names.
FORMER = {
    "INTRINSIC_IMPORT_STAR": "IMPORT_STAR",
    "INTRINSIC_UNARY_POSITIVE": "UNARY_POSITIVE",
    "INTRINSIC_LIST_TO_TUPLE": "LIST_TO_TUPLE",
    "INTRINSIC_ASYNC_GEN_WRAP": "ASYNC_GEN_WRAP",
    "INTRINSIC_PREP_RERAISE_STAR": "PREP_RERAISE_STAR",
}
INTRINSICS: dict[int, tuple[str, ...]] = {
    dis.opmap[name]: tuple(FORMER.get(one, one) for one in getattr(opcode, table))
    for name, table in (
        ("CALL_INTRINSIC_1", "_intrinsic_1_descs"),
        ("CALL_INTRINSIC_2", "_intrinsic_2_descs"),
    )
    if name in dis.opmap
}


def _name(op: int, argument: int) -> str:
    """What an instruction does."""
    table = INTRINSICS.get(op)
    if table is not None:
        return table[argument]
    if op == dis.opmap["LOAD_ATTR"] and op in _NAME_SHIFTS and argument & 1:
        return "LOAD_METHOD"
    return dis.opname[op]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `argument` as encoded, `value` what it names (a constant, a name, a
    variable, an operator), `target` the index it may jump to (-1: none)."""

    index: int
    name: str
    op: int
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
    to `depth`, the index of the raising instruction pushed first where `lasti`. Where it `leaves`,
    it is none of the program's: what comes there goes on out of the frame (from 3.12 on: a
    comprehension gives a variable back, a generator tells StopIteration from its end)."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool
    leaves: bool = False


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
        """The innermost handler that covers an instruction, if the program wrote it."""
        found = _row_at(self.handlers, index)
        return None if found is None or found.leaves else found


def _row_at(rows: Sequence[Handler], index: int) -> Handler | None:
    for row in rows:
        if row.start <= index < row.end:
            return row
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
    index_of: dict[int, int] = {}
    # A jump may land on the EXTENDED_ARG in front of its instruction.
    for index, (_, _, offset, start, _) in enumerate(raw):
        index_of.setdefault(offset, index)
        index_of.setdefault(start, index)
    lines = _lines(code)
    line = code.co_firstlineno
    instructions: list[Instruction] = []
    for index, (op, argument, offset, start, after) in enumerate(raw):
        target = -1
        if op in _JUMPS:
            distance = -2 * argument if op in _BACKWARD else 2 * argument
            target = index_of[after + distance]
            if op == _FOR_ITER:
                target += len(AFTER_LOOP)
        value = _value(code, variables, op, argument)
        if op == _CALL_KW:  # the names were loaded before it
            value = instructions[-1].value
        line = lines.get(offset, line)  # a generated instruction belongs to the line before it
        instructions.append(
            Instruction(
                index, _name(op, argument), op, argument, value, target, line, offset, start
            )
        )
    flags = code.co_flags
    rows = list(_handlers(code.co_exceptiontable, index_of, len(code.co_code), len(raw)))
    return Listing(
        tuple(instructions),
        tuple(replace(row, leaves=_leaves(rows, row, instructions)) for row in rows),
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
        after = offset + 2 + 2 * CACHES[op]
        if op in _FUSED:
            for half, part in _FUSED[op](argument):
                yield half, part, offset, start, after
        elif op != _CACHE:
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
        return code.co_names[argument >> _NAME_SHIFTS.get(op, 0)]
    if op in _VARIABLES:
        return variables[argument]
    if op == _COMPARE:
        return dis.cmp_op[argument >> _OPERATOR_SHIFT]
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


# What a handler consists of that gives a comprehension's variables back.
_GIVES_BACK = frozenset({"SWAP", "POP_TOP", "STORE_FAST"})


def _leaves(rows: Sequence[Handler], row: Handler, instructions: Sequence[Instruction]) -> bool:
    """Whether whatever comes to a handler goes on out of the frame, which sees nothing of it."""
    if VERSION < (3, 12):
        return False
    index = row.target
    if instructions[index].name == "INTRINSIC_STOPITERATION_ERROR":
        return True
    if instructions[index].name not in _GIVES_BACK:
        return False
    while instructions[index].name in _GIVES_BACK:
        index += 1
    if instructions[index].name != "RERAISE":
        return False
    outer = _row_at(rows, index)
    return outer is None or _leaves(rows, outer, instructions)


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
