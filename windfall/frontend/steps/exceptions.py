"""Native forms of what raises and catches, and of `with`.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

from typing import Any

from windfall.errors import InternalError, set_traceback, traceback_of
from windfall.frontend.bytecode import Instruction
from windfall.frontend.steps.writer import StepWriter, native
from windfall.frontend.values.class_value import find
from windfall.ir.guard import ABSENT
from windfall.ir.reading import is_a, is_among, mro_of


@native("RAISE_VARARGS")
def _raise_varargs(writer: StepWriter, instruction: Instruction) -> None:
    writer.raises = True
    if instruction.argument == 0:
        if writer.handled:
            _again(writer, writer.handled)
        else:
            writer.line("raise")
        return
    cause = f" from {writer.pop()}" if instruction.argument == 2 else ""
    writer.line(f"raise {writer.pop()}{cause}")


@native("RERAISE")
def _reraise(writer: StepWriter, instruction: Instruction) -> None:
    """The same exception goes on: this frame does not appear in its traceback once more."""
    writer.raises = True
    _again(writer, writer.pop())


def _again(writer: StepWriter, error: str) -> None:
    before = writer.fresh("r")
    read, write = (writer.known(one, one.__name__) for one in (traceback_of, set_traceback))
    writer.line(f"{before} = {read}({error})")
    writer.line("try:")
    writer.line(f"    raise {error}")
    writer.line("except BaseException:")
    writer.line(f"    {write}({error}, {before})")
    writer.line("    raise")


@native("CHECK_EXC_MATCH")
def _check_exc_match(writer: StepWriter, instruction: Instruction) -> None:
    classes = writer.pop()
    function = writer.known(_is_caught, "is_caught")
    writer.result(f"{function}(type({writer.stack[-1]}), {classes})")


def _is_caught(kind: type, classes: Any) -> bool:
    """Whether `except classes` takes an exception: by the MRO, and classes of exceptions only."""
    # The items themselves: a subclass of tuple that iterates over others is not asked.
    wanted = tuple(tuple.__iter__(classes)) if is_a(classes, tuple) else (classes,)
    for one in wanted:
        if not issubclass(type(one), type) or not is_among(BaseException, mro_of(one)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            raise TypeError(text)
    return any(is_among(one, mro_of(kind)) for one in wanted)


@native("BEFORE_WITH")
def _before_with(writer: StepWriter, instruction: Instruction) -> None:
    manager = writer.pop()
    enter, leave = writer.fresh("r"), writer.fresh("r")
    methods = writer.known(_context_methods, "context_methods")
    writer.line(f"{enter}, {leave} = {methods}({manager})")
    writer.push(leave)
    writer.result(f"{enter}()")


def _context_methods(manager: Any) -> tuple[Any, Any]:
    """`__enter__` and `__exit__` as `with` finds them: on the class."""
    kind = type(manager)
    enter, leave = find(kind, "__enter__"), find(kind, "__exit__")
    if enter is ABSENT or leave is ABSENT:
        with manager:  # says what is missing before it enters
            raise InternalError("a context manager without its methods was entered")
    return _bind(enter, manager), _bind(leave, manager)


def _bind(raw: Any, owner: Any) -> Any:
    """A special method as an instance binds it."""
    getter = find(type(raw), "__get__")
    return raw if getter is ABSENT else getter(raw, owner, type(owner))


@native("WITH_EXCEPT_START")
def _with_except_start(writer: StepWriter, instruction: Instruction) -> None:
    exception, leave = writer.stack[-1], writer.stack[-4]
    read = writer.known(traceback_of, "traceback_of")
    writer.result(f"{leave}(type({exception}), {exception}, {read}({exception}))")
