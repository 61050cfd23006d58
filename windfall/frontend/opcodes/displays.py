"""Displays, unpacking, formatting."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.bytecode import Instruction
from windfall.frontend.opcodes.operators import push
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.values.base import Value
from windfall.frontend.values.calls import CALLS
from windfall.frontend.values.class_value import Class, find, relied
from windfall.frontend.values.constant import fold
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object
from windfall.frontend.values.ranges import Slice
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.sets import Set
from windfall.ir.guard import ABSENT
from windfall.ir.reading import flags_of

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


def take(frame: Frame, count: int) -> list[Value]:
    """Pop `count` values, in the order in which they were pushed."""
    start = len(frame.stack) - count
    items = frame.stack[start:]
    del frame.stack[start:]
    return items


@opcode("BUILD_TUPLE")
def build_tuple(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(Tuple(take(frame, instruction.argument)))


@opcode("BUILD_LIST")
def build_list(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(List(take(frame, instruction.argument)))


@opcode("BUILD_MAP")
def build_map(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    items = take(frame, 2 * instruction.argument)
    made = Dict({})
    for key, value in zip(items[::2], items[1::2], strict=True):
        made.set_item(machine, key, value)
    frame.stack.append(made)


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    keys = frame.stack.pop().unpack(machine)
    made = Dict({})
    for key, value in zip(keys, take(frame, instruction.argument), strict=True):
        made.set_item(machine, key, value)
    frame.stack.append(made)


@opcode("BUILD_SLICE")
def build_slice(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    parts = take(frame, instruction.argument)
    step = parts[2] if len(parts) == 3 else machine.values.literal(None)
    frame.stack.append(Slice((parts[0], parts[1], step)))


@opcode("BUILD_STRING")
def build_string(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    items = take(frame, instruction.argument)
    frame.stack.append(fold(machine, _joined, items, {}))


def _joined(*parts: str) -> str:
    return "".join(parts)


@opcode("FORMAT_VALUE", until=(3, 13))
def format_value(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    flags = instruction.argument
    value = frame.stack[-2 if flags & 4 else -1]
    if isinstance(value, Object) and not value.is_constant() and not flags & 4:
        _format_object(machine, frame, value, flags & 3)
        return
    items = take(frame, 2 if flags & 4 else 1)
    converted = {0: None, 1: str, 2: repr, 3: ascii}[flags & 3]

    def formatted(value: object, specification: str = "") -> str:
        return format(converted(value) if converted else value, specification)

    frame.stack.append(fold(machine, formatted, items, {}))


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value, conversion = frame.stack[-1], instruction.argument
    if isinstance(value, Object) and not value.is_constant():
        _format_object(machine, frame, value, conversion)
        return
    frame.stack.append(fold(machine, _CONVERSIONS[conversion], take(frame, 1), {}))


_CONVERSIONS: dict[int, Callable[[object], str]] = {1: str, 2: repr, 3: ascii}


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.stack[-1]
    if isinstance(value, Object) and not value.is_constant():
        _format_object(machine, frame, value, 0)
        return
    frame.stack.append(fold(machine, format, take(frame, 1), {}))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(fold(machine, format, take(frame, 2), {}))


def _format_object(machine: Machine, frame: Frame, value: Object, conversion: int) -> None:
    """Through the methods of its class, as `str` and `repr` go."""
    if conversion == 3:
        stop(UNKNOWN_OPERATION, f"ascii of {value.describe()}")
    if conversion == 0 and value.cls.find(machine, "__format__") is not find(object, "__format__"):
        if not isinstance(value.cls.find(machine, "__format__"), types.FunctionType):
            stop(UNKNOWN_OPERATION, f"format of {value.describe()}")
        frame.stack.pop()
        push(frame, machine.values.ask_special(value, "__format__", machine.values.literal("")))
        return
    frame.stack.pop()
    push(frame, CALLS[repr if conversion == 2 else str](machine, [value], {}))


# ------------------------------------------------------------------------------------ into displays


@opcode("LIST_APPEND")
def list_append(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    item = frame.stack.pop()
    target = frame.stack[-instruction.argument]
    if not isinstance(target, List):
        stop(UNKNOWN_OPERATION, f"LIST_APPEND to {target.describe()}")
    target.append(machine, item)


@opcode("MAP_ADD")
def map_add(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value, key = frame.stack.pop(), frame.stack.pop()
    frame.stack[-instruction.argument].set_item(machine, key, value)


def demand_iterable(machine: Machine, value: Value) -> None:
    """Each instruction has words of its own for what is no iterable: it says them natively."""
    kind = value.python_type()
    value.guard_type(machine)
    if all(relied(machine, kind, name) is ABSENT for name in ("__iter__", "__getitem__")):
        stop(UNKNOWN_OPERATION, f"{value.describe()} is not iterable")


def spread(machine: Machine, frame: Frame, how: str, *count: int) -> bool:
    """Make the top of the stack something that can be unpacked; False: interpreted code has to run
    first, the polyfill `how`, then the instruction is done again. `count`: for so many names."""
    top = frame.stack[-1]
    demand_iterable(machine, top)
    if not isinstance(top, Object) and not machine.values.is_generator(top):
        return True
    frame.stack.pop()
    push(frame, machine.values.polyfill(how, [top, *map(machine.values.literal, count)]))
    frame.retry()
    return False


@opcode("LIST_EXTEND")
def list_extend(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    if spread(machine, frame, "tuple"):
        items = frame.stack.pop()
        target = frame.stack[-instruction.argument]
        if not isinstance(target, List):
            stop(UNKNOWN_OPERATION, f"LIST_EXTEND of {target.describe()}")
        target.extend(machine, items)


@opcode("DICT_UPDATE", "DICT_MERGE")
def dict_update(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    other = frame.stack.pop()
    target = frame.stack[-instruction.argument]
    if not isinstance(target, Dict) or not isinstance(other, Dict):
        stop(UNKNOWN_OPERATION, f"{instruction.name} of {other.describe()}")
    if (
        instruction.name == "DICT_MERGE"
        and target.load(machine).keys() & other.load(machine).keys()
    ):
        stop(UNKNOWN_OPERATION, "a keyword is given twice")
    target.update(machine, other)


@opcode("LIST_TO_TUPLE")
def list_to_tuple(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(Tuple(frame.stack.pop().unpack(machine)))


# ------------------------------------------------------------------------------------- unpacking


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    if not spread(machine, frame, "unpacked", instruction.argument):
        return
    items = frame.stack.pop().unpack(machine)
    _expect(machine, len(items), instruction.argument)
    frame.stack.extend(reversed(items))


def _expect(machine: Machine, found: int, wanted: int) -> None:
    if found > wanted:
        raise machine.values.raised(ValueError(f"too many values to unpack (expected {wanted})"))
    if found < wanted:
        text = f"not enough values to unpack (expected {wanted}, got {found})"
        raise machine.values.raised(ValueError(text))


@opcode("UNPACK_EX")
def unpack_ex(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    if not spread(machine, frame, "unpacked_rest", instruction.argument & 0xFF):
        return
    items = frame.stack.pop().unpack(machine)
    before, after = instruction.argument & 0xFF, instruction.argument >> 8
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        raise machine.values.raised(ValueError(text))
    middle = List(items[before : len(items) - after])
    parts = [*items[:before], middle, *items[len(items) - after :]]
    frame.stack.extend(reversed(parts))


@opcode("BUILD_SET")
def build_set(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    made = Set(set())
    made.update(machine, Tuple(take(frame, instruction.argument)))
    frame.stack.append(made)


@opcode("SET_ADD")
def set_add(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    item = frame.stack.pop()
    target = frame.stack[-instruction.argument]
    assert isinstance(target, Set), "a comprehension adds to the set that it made"
    target.add(machine, item)


@opcode("SET_UPDATE")
def set_update(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    if spread(machine, frame, "gathered"):
        items = frame.stack.pop()
        target = frame.stack[-instruction.argument]
        assert isinstance(target, Set), "a display updates the set that it made"
        target.update(machine, items)


# ----------------------------------------------------------------------------------------- match

_SEQUENCE, _MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING


@opcode("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_kind(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    subject = frame.stack[-1]
    subject.guard_type(machine)
    flag = _SEQUENCE if instruction.name == "MATCH_SEQUENCE" else _MAPPING
    frame.stack.append(machine.values.literal(bool(flags_of(subject.python_type()) & flag)))


@opcode("MATCH_KEYS")
def match_keys(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """Both operands stay; on them the values, or None."""
    keys, subject = frame.stack[-1], frame.stack[-2]
    if not isinstance(subject, Dict):
        stop(UNKNOWN_OPERATION, f"match of keys in {subject.describe()}")
    found = []
    plain = [key.key(machine) for key in keys.unpack(machine)]
    if len(set(plain)) < len(plain):
        stop(UNKNOWN_OPERATION, "a mapping pattern that asks for one key twice")
    for key in plain:
        value = subject.lookup(machine, key)
        if value is None:
            frame.stack.append(machine.values.literal(None))
            return
        found.append(value)
    frame.stack.append(Tuple(found))


@opcode("MATCH_CLASS")
def match_class(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    names, cls, subject = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    if not isinstance(cls, Class):
        stop(UNKNOWN_OPERATION, f"a pattern of {cls.describe()}")
    count = machine.values.literal(instruction.argument)
    push(frame, machine.values.polyfill("match_class", [subject, cls, count, names]))
