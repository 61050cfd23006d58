"""Raising, handling, and `with`."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from windfall.frontend.breaks import (
    CONTEXT_MANAGER,
    EXCEPTION_GROUP,
    UNKNOWN_CALL,
    UNKNOWN_OPERATION,
    stop,
)
from windfall.frontend.bytecode import Instruction
from windfall.frontend.opcodes.operators import push
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.values.base import PENDING, Raised, Value
from windfall.frontend.values.class_value import Class, find
from windfall.frontend.values.exception import Exception_
from windfall.frontend.values.sequence import Tuple
from windfall.ir.reading import class_name, is_among, mro_of

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


@opcode("PUSH_EXC_INFO")
def push_exc_info(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    exception = frame.stack.pop()
    own = (
        machine.frames.handled
        if machine.frames.handled is not machine.frames.handled_outside()
        else None
    )
    frame.stack.append(own or machine.values.literal(None))
    frame.stack.append(exception)
    machine.frames.handled = exception


@opcode("POP_EXCEPT")
def pop_except(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    before = frame.stack.pop()
    outside = machine.frames.handled_outside()
    machine.frames.handled = before if isinstance(before, Exception_) else outside


@opcode("CHECK_EXC_MATCH")
def check_exc_match(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    classes = frame.stack.pop()
    exception = frame.stack[-1]
    exception.guard_type(machine)
    wanted = classes.items(machine) if isinstance(classes, Tuple) else [classes]
    # By the MRO: `__subclasscheck__` of a metaclass is not asked.
    order = mro_of(exception.python_type())
    found = [is_among(_exception_class(machine, one), order) for one in wanted]
    frame.stack.append(machine.values.literal(any(found)))


def _exception_class(machine: Machine, value: Value) -> type:
    if not isinstance(value, Class) or not is_among(BaseException, mro_of(value.real)):
        stop(UNKNOWN_OPERATION, f"except {value.describe()}")
    value.rely(machine)
    return value.real


@opcode("RERAISE")
def reraise(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """The same exception goes on; its context is not set anew."""
    raise Raised(frame.stack.pop())


@opcode("RAISE_VARARGS")
def raise_varargs(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """A class is called first: its instance is raised when this is done again."""
    if instruction.argument == 0:
        if machine.frames.handled is None:
            raise machine.values.raised(RuntimeError("No active exception to reraise"))
        raise Raised(machine.frames.handled)
    cause = frame.stack.pop() if instruction.argument == 2 else None
    value = frame.stack.pop()
    if isinstance(value, Class) and issubclass(value.real, BaseException):
        made = value.call(machine, [], {})
        push(frame, made)
        if cause is not None:
            if made is PENDING:
                stop(UNKNOWN_OPERATION, "raise ... from with an exception class of the user")
            frame.stack.append(cause)
        frame.retry()
        return
    if not isinstance(value, Exception_):
        stop(UNKNOWN_OPERATION, f"raise {value.describe()}")
    if value.source is not None:  # its own traceback grows
        stop(UNKNOWN_OPERATION, f"raise {value.describe()}, which was there before")
    if cause is not None:
        _set_cause(machine, value, cause)
    value.set_context(machine)
    raise Raised(value)


_OF_PYTHON = (types.FunctionType, staticmethod)


def _set_cause(machine: Machine, value: Exception_, cause: Value) -> None:
    if isinstance(cause, Class) and issubclass(cause.real, BaseException):
        if any(type(find(cause.real, name)) in _OF_PYTHON for name in ("__init__", "__new__")):
            stop(UNKNOWN_CALL, f"raise ... from {cause.describe()}, which has code of its own")
        cause = cause.call(machine, [], {})
    if not isinstance(cause, Exception_) and cause.python_type() is not type(None):
        stop(UNKNOWN_OPERATION, f"raise ... from {cause.describe()}")
    value.link(machine, "__cause__", cause)
    value.link(machine, "__suppress_context__", machine.values.literal(True))


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.append(machine.values.known(AssertionError, "AssertionError"))


# ------------------------------------------------------------------------------------------ with


@opcode("BEFORE_WITH")
def before_with(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    manager = frame.stack.pop()
    enter_exit = machine.values.context_methods(manager)
    if enter_exit is None:
        stop(CONTEXT_MANAGER, manager.describe())
    enter, leave = enter_exit
    frame.stack.append(leave)
    push(frame, enter.call(machine, [], {}))


@opcode("WITH_EXCEPT_START")
def with_except_start(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """`__exit__` gets the exception; what it answers decides whether it goes on."""
    exception, leave = frame.stack[-1], frame.stack[-4]
    exception.guard_type(machine)
    kind = exception.python_type()
    trace = exception.get_attribute(machine, "__traceback__")
    arguments = [machine.values.known(kind, class_name(kind)), exception, trace]
    push(frame, leave.call(machine, arguments, {}))


@opcode("INTRINSIC_STOPITERATION_ERROR", since=(3, 12))
def stopiteration_error(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """An exception leaves a generator."""
    frame.stack.append(machine.frames.leaving(frame.stack.pop()))


@opcode("CHECK_EG_MATCH", "PREP_RERAISE_STAR")
def exception_groups(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    stop(EXCEPTION_GROUP, instruction.name)
