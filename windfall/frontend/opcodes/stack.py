"""Loads, stores, and moving things about on the stack."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from windfall.frontend.breaks import (
    GENERATOR,
    IMPORT,
    TYPE_PARAMETERS,
    UNKNOWN_OPCODE,
    WATCHED_DEATH,
    stop,
)
from windfall.frontend.bytecode import VERSION, Instruction
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.values.base import NULL, PENDING, Value
from windfall.frontend.values.function import Cell
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.unseen import (
    is_held_by,
    is_let_go,
    is_missed_variable,
    look,
    made_here,
    settled,
)
from windfall.ir.source import Item, Known

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


@opcode("NOP", "RESUME", "CACHE", "COPY_FREE_VARS", moves=True)
@opcode("PRECALL", until=(3, 12), moves=True)
def nothing(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """Free variables are in place from the start; the rest is for the real interpreter."""


@opcode("POP_TOP", moves=True)
def pop_top(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """A loop that is left drops its iterator; only a real generator knows when it is the last."""
    value = frame.stack[-1]
    if made_here(value, Generator) and value.sees_its_end:
        stop(GENERATOR, "a generator is left before its end")
    if is_missed_variable(value) and not is_held_by(machine.frames.stack, value):
        stop(WATCHED_DEATH, "a result that nobody keeps")
    frame.stack.pop()


@opcode("PUSH_NULL", moves=True)
def push_null(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(NULL)


@opcode("COPY", moves=True)
def copy(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(frame.stack[-instruction.argument])


@opcode("SWAP", moves=True)
def swap(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    stack, depth = frame.stack, instruction.argument
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@opcode("LOAD_CONST", moves=True)
def load_const(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = instruction.value
    if type(value) in _DISPLAYS and len(value) > machine.facts.elements:
        frame.stack.append(machine.values.known(value, "constant"))  # not taken apart
    elif type(value) is tuple and value:
        frame.stack.append(machine.values.constant_tuple(value))
    else:
        frame.stack.append(machine.values.literal(value))


_DISPLAYS = (tuple, frozenset)


# ------------------------------------------------------------------------------------- variables


@opcode("LOAD_FAST", moves=True)
@opcode("LOAD_FAST_CHECK", since=(3, 12))
def load_fast(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.variables[instruction.argument]
    if value is None:
        _unbound(machine, instruction)
    frame.stack.append(settled(value))


def _unbound(machine: Machine, instruction: Instruction) -> NoReturn:
    name = instruction.value
    text = f"cannot access local variable '{name}' where it is not associated with a value"
    raise machine.values.raised(UnboundLocalError(text))


@opcode("LOAD_FAST_AND_CLEAR", since=(3, 12))
def load_fast_and_clear(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """A comprehension puts a variable aside whose name it uses: NULL where it is unbound."""
    value = frame.variables[instruction.argument]
    frame.stack.append(NULL if value is None else value)
    frame.variables[instruction.argument] = None


@opcode("STORE_FAST", moves=True)
def store_fast(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    before = frame.variables[instruction.argument]
    goes = before is not None and before is not frame.stack[-1] and is_missed_variable(before)
    if goes and not is_held_by(machine.frames.stack[:-1], before):
        stop(WATCHED_DEATH, instruction.value)
    value = frame.stack.pop()
    frame.variables[instruction.argument] = None if value is NULL else value


@opcode("DELETE_FAST")
def delete_fast(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.variables[instruction.argument]
    if value is None:
        _unbound(machine, instruction)
    if is_let_go(value):
        stop(WATCHED_DEATH, instruction.value)
    frame.variables[instruction.argument] = None


@opcode("MAKE_CELL")
def make_cell(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.variables[instruction.argument] = Cell(frame.variables[instruction.argument])


def _cell(frame: Frame, instruction: Instruction) -> Cell:
    cell = frame.variables[instruction.argument]
    assert isinstance(cell, Cell), f"{instruction} on something else than a cell"
    return cell


@opcode("LOAD_CLOSURE")
def load_closure(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(_cell(frame, instruction))


@opcode("LOAD_DEREF")
def load_deref(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = _cell(frame, instruction).get(machine)
    if value is None:
        name = instruction.value
        if instruction.argument in frame.listing.free:
            text = f"cannot access free variable '{name}' where it is not associated with a value"
            raise machine.values.raised(
                NameError(text + " in enclosing scope"), name=machine.values.literal(name)
            )
        _unbound(machine, instruction)
    frame.stack.append(value)


@opcode("STORE_DEREF")
def store_deref(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    _cell(frame, instruction).set(machine, frame.stack.pop())


@opcode("DELETE_DEREF")
def delete_deref(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    cell = _cell(frame, instruction)
    if cell.get(machine) is None:
        _unbound(machine, instruction)
    cell.set(machine, None)


# --------------------------------------------------------------------------------------- globals


def _undefined(machine: Machine, name: str) -> NoReturn:
    text = f"name '{name}' is not defined"
    raise machine.values.raised(NameError(text), name=machine.values.literal(name))


def global_value(machine: Machine, frame: Frame, name: str) -> Value:
    """A global, or a builtin."""
    space = machine.values.globals_dict(frame.globals, frame.globals.get("__name__", "globals"))
    found = space.lookup(machine, name)
    if found is None:
        builtins = frame.builtins
        assert isinstance(builtins, dict)
        found = machine.values.globals_dict(builtins, "builtins").lookup(machine, name)
        if found is None:
            _undefined(machine, name)
    return found


@opcode("LOAD_GLOBAL")
def load_global(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = global_value(machine, frame, instruction.value)
    found = [NULL, value] if instruction.argument & 1 else [value]
    frame.stack.extend(reversed(found) if VERSION >= (3, 13) else found)


@opcode("STORE_GLOBAL")
def store_global(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    space = machine.values.globals_dict(frame.globals, frame.globals.get("__name__", "globals"))
    space.store(machine, instruction.value, frame.stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    space = machine.values.globals_dict(frame.globals, frame.globals.get("__name__", "globals"))
    if space.lookup(machine, instruction.value) is None:
        _undefined(machine, instruction.value)
    space.store(machine, instruction.value, None)


# ---------------------------------------------------------------------------------- class bodies


@opcode("LOAD_BUILD_CLASS")
def load_build_class(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    builtins = frame.builtins
    assert isinstance(builtins, dict)
    found = machine.values.globals_dict(builtins, "builtins").lookup(machine, "__build_class__")
    if found is None:
        stop(UNKNOWN_OPCODE, instruction.name)
    frame.stack.append(found)


def _names(frame: Frame, instruction: Instruction) -> Dict:
    if frame.names is None:
        stop(UNKNOWN_OPCODE, instruction.name)
    return frame.names


@opcode("LOAD_NAME")
def load_name(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    found = _names(frame, instruction).lookup(machine, instruction.value)
    if found is None:
        found = global_value(machine, frame, instruction.value)
    frame.stack.append(found)


@opcode("STORE_NAME")
def store_name(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    _names(frame, instruction).store(machine, instruction.value, frame.stack.pop())


@opcode("DELETE_NAME")
def delete_name(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    names = _names(frame, instruction)
    if names.lookup(machine, instruction.value) is None:
        _undefined(machine, instruction.value)
    names.store(machine, instruction.value, None)


@opcode("LOAD_CLASSDEREF", until=(3, 12))
def load_classderef(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    found = _names(frame, instruction).lookup(machine, instruction.value)
    if found is None:
        load_deref(machine, frame, instruction)
    else:
        frame.stack.append(found)


@opcode("LOAD_LOCALS", since=(3, 12))
def load_locals(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(_names(frame, instruction))


def _in_names(machine: Machine, frame: Frame, instruction: Instruction) -> Value | None:
    names = frame.stack[-1]
    if not isinstance(names, Dict):
        stop(UNKNOWN_OPCODE, instruction.name)
    found = names.lookup(machine, instruction.value)
    frame.stack.pop()
    return found


@opcode("LOAD_FROM_DICT_OR_DEREF", since=(3, 12))
def load_from_dict_or_deref(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    found = _in_names(machine, frame, instruction)
    if found is None:
        load_deref(machine, frame, instruction)
    else:
        frame.stack.append(found)


@opcode("LOAD_FROM_DICT_OR_GLOBALS", since=(3, 12))
def load_from_dict_or_globals(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    found = _in_names(machine, frame, instruction)
    frame.stack.append(found or global_value(machine, frame, instruction.value))


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    names = _names(frame, instruction)
    if names.lookup(machine, "__annotations__") is None:
        names.store(machine, "__annotations__", machine.values.created_dict({}))


@opcode("IMPORT_STAR")
@opcode("PRINT_EXPR", until=(3, 12))
@opcode("INTRINSIC_PRINT", since=(3, 12))
def only_outside_functions(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """Modules are run natively."""
    stop(UNKNOWN_OPCODE, instruction.name)


@opcode(
    "INTRINSIC_TYPEVAR",
    "INTRINSIC_PARAMSPEC",
    "INTRINSIC_TYPEVARTUPLE",
    "INTRINSIC_SUBSCRIPT_GENERIC",
    "INTRINSIC_TYPEALIAS",
    "INTRINSIC_TYPEVAR_WITH_BOUND",
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS",
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS",
    since=(3, 12),
)
@opcode("INTRINSIC_SET_TYPEPARAM_DEFAULT", since=(3, 13))
def type_parameters(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """They stand in a function of their own, which CPython's compiler made."""
    stop(TYPE_PARAMETERS, frame.code.co_name)


# --------------------------------------------------------------------------------------- imports


@opcode("IMPORT_NAME")
def import_name(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """A module that is loaded already is only looked up."""
    names, level = frame.stack[-1], frame.stack[-2]
    name = instruction.value
    if level.as_constant(machine) != 0 or sys.modules.get(name) is None:
        stop(IMPORT, f"import {name}")
    wanted = names.as_constant(machine)
    found = name if wanted else name.partition(".")[0]
    for attribute in wanted or ():
        if not hasattr(sys.modules[found], attribute):
            stop(IMPORT, f"from {name} import {attribute}")
    if sys.modules.get(found) is None:
        stop(IMPORT, f"import {name}")
    del frame.stack[-2:]
    source = Item(Known(sys.modules, "sys.modules"), found)
    # Looked at even if nobody uses it: a module that is gone is an error.
    frame.stack.append(look(machine.values.wrap(sys.modules[found], source)))


@opcode("IMPORT_FROM")
def import_from(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.stack[-1].get_attribute(machine, instruction.value)
    assert value is not PENDING, "a module's attributes are plain"
    frame.stack.append(value)
