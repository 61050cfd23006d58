"""Native forms of imports and of variables: global, local, of cells.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from windfall.frontend.bytecode import Instruction
from windfall.frontend.steps.calls import push_callable
from windfall.frontend.steps.writer import NULL_NAME, StepWriter, native


@native("IMPORT_NAME")
def _import_name(writer: StepWriter, instruction: Instruction) -> None:
    names, level = writer.pop(), writer.pop()
    space = writer.globals
    writer.result(f"__import__({instruction.value!r}, {space}, None, {names}, {level})")


@native("IMPORT_FROM")
def _import_from(writer: StepWriter, instruction: Instruction) -> None:
    name = instruction.value
    module = writer.stack[-1]
    writer.result(f"{writer.known(_imported, 'imported')}({module}, {name!r})")


def _imported(module: Any, name: str) -> Any:
    """`from module import name`."""
    import sys

    with suppress(AttributeError):  # and not in an `except`: eager's error has no context
        return getattr(module, name)
    full = f"{module.__name__}.{name}"
    if full in sys.modules:
        return sys.modules[full]
    where = getattr(module, "__file__", None) or "unknown location"
    text = f"cannot import name {name!r} from {module.__name__!r} ({where})"
    raise ImportError(text, name=module.__name__, path=where)


@native("LOAD_BUILD_CLASS")
def _load_build_class(writer: StepWriter, instruction: Instruction) -> None:
    writer.result("__build_class__")


@native("LOAD_GLOBAL")
def _load_global(writer: StepWriter, instruction: Instruction) -> None:
    """Only where the name is missing: it raises."""
    push = push_callable if instruction.argument & 1 else StepWriter.result
    look = writer.known(_global, "read_global")
    push(writer, f"{look}({writer.globals}, {instruction.value!r})")


def _global(space: dict[str, Any], name: str) -> Any:
    """A global or builtin by name."""
    import builtins

    if name in space:
        return space[name]
    found = vars(builtins).get(name, NULL_NAME)
    if found is NULL_NAME:
        raise NameError(f"name {name!r} is not defined", name=name)
    return found


@native("DELETE_GLOBAL")
def _delete_global(writer: StepWriter, instruction: Instruction) -> None:
    look = writer.known(_global, "read_global")
    writer.line(f"{look}({writer.globals}, {instruction.value!r})")
    writer.line(f"del {writer.globals}[{instruction.value!r}]")


@native("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST")
def _unbound_local(writer: StepWriter, instruction: Instruction) -> None:
    """Where the variable is unbound it raises. Deleting one that is bound is nothing: no way on has
    a slot for it."""
    name = instruction.value
    if instruction.name == "DELETE_FAST" and instruction.argument in writer.variables:
        del writer.variables[instruction.argument]
        writer.line("pass")
        return
    text = f"cannot access local variable {name!r} where it is not associated with a value"
    writer.raises = True
    writer.line(f"raise UnboundLocalError({text!r})")


@native("STORE_FAST")
def _store_fast(writer: StepWriter, instruction: Instruction) -> None:
    """What the variable held has no slot behind this."""
    value = writer.pop()
    if value == NULL_NAME:  # a comprehension gives back a variable that was unbound
        writer.variables.pop(instruction.argument, None)
    else:
        writer.variables[instruction.argument] = value
    writer.line("pass")


@native("LOAD_DEREF", "DELETE_DEREF")
def _load_deref(writer: StepWriter, instruction: Instruction) -> None:
    """A cell that may be empty."""
    cell = writer.variables[instruction.argument]
    own = instruction.argument not in writer.free
    look = writer.known(_own_cell_contents if own else _cell_contents, "read_cell")
    text = f"{look}({cell}, {instruction.value!r})"
    if instruction.name == "LOAD_DEREF":
        writer.result(text)
    else:
        writer.line(text)
        writer.line(f"del {cell}.cell_contents")


def _own_cell_contents(cell: Any, name: str) -> Any:
    """The same, of a variable of the frame itself."""
    with suppress(ValueError):  # and not in an `except`: eager's error has no context
        return cell.cell_contents
    text = f"cannot access local variable {name!r} where it is not associated with a value"
    raise UnboundLocalError(text)


def _cell_contents(cell: Any, name: str) -> Any:
    """What a cell holds, or the error that reading it raises."""
    with suppress(ValueError):
        return cell.cell_contents
    text = f"cannot access free variable {name!r} where it is not associated with a value"
    raise NameError(text + " in enclosing scope", name=name)
