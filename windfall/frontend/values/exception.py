"""Exceptions: raised, caught and asked about inside the interpreted program.

Enters: exceptions that the program creates, that folded operations raise, or that a native step
raised. Leaves: for one that leaves the segment, its reconstruction. Invariant: an exception that no
frame handles is never made here: the raising instruction runs natively instead.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from windfall.errors import set_exception_field, traceback_of
from windfall.frontend.breaks import UNKNOWN_ATTRIBUTE, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.effects import restore
from windfall.frontend.tracebacks import TracebackPlace, through
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import IMMUTABLE, Class, find
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.unseen import same
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.reading import class_name, flags_of, is_a, mro_of
from windfall.ir.source import Attribute, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_LINKS = ("__cause__", "__context__", "__suppress_context__", "__traceback__")


class Exception_(Object):
    """An exception object. `links` are cause, context and whether the context is shown."""

    __slots__ = ("arguments", "fields", "lines", "links")

    def __init__(
        self,
        cls: Class,
        arguments: Tuple | None,
        source: Source | None = None,
        real: BaseException | None = None,
    ) -> None:
        super().__init__(cls, source, real)
        self.arguments = arguments
        self.links: dict[str, Value] = {}
        self.fields: dict[str, Value] = {}  # `name`, `obj` of what the interpreter raised
        self.lines: tuple[TracebackPlace, ...] = ()  # of the frames that it has passed

    def attributes(self, machine: Machine) -> Dict | None:
        """Created ones have a dictionary of their own."""
        if self._attributes is None and self.source is None:
            self._attributes = machine.values.instance_dict(None, None, self)
        return super().attributes(machine)

    def describe(self) -> str:
        """The class."""
        return class_name(self.cls.real)

    def args(self, machine: Machine) -> Tuple:
        """`args`."""
        if self.arguments is None:
            assert self.real is not None and self.source is not None
            found = machine.values.wrap(self.real.args, Attribute(self.source, "args"))
            assert isinstance(found, Tuple)
            self.arguments = found
        return self.arguments

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`args`, the links, then as any object."""
        if self._is_ours(machine, name):
            if name != "args":
                return self._link(machine, name)
            self.guard_type(machine)
            return self.args(machine)
        if name == "value" and self.source is None and self._is_stop(machine):
            items = self.args(machine).items(machine)
            return items[0] if items else machine.values.literal(None)
        if name in self.fields:
            return self.fields[name]
        unwritten = self.source is None and name not in self.slots
        if unwritten and _is_field(self.cls.find(machine, name)):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        return super().get_attribute(machine, name)

    def _is_ours(self, machine: Machine, name: str) -> bool:
        """Whether it is one of what every exception has, and no class says otherwise."""
        known = name == "args" or name in _LINKS
        return known and self.cls.find(machine, name) is find(BaseException, name)

    def _is_stop(self, machine: Machine) -> bool:
        """Whether its `value` is what `StopIteration.__init__` made of its arguments."""
        return issubclass(self.cls.real, StopIteration) and all(
            self.cls.find(machine, name) is find(StopIteration, name)
            for name in ("value", "__init__")
        )

    def _link(self, machine: Machine, name: str) -> Value:
        if name in self.links:
            return self.links[name]
        if name == "__traceback__" and self.lines:
            if self.source is not None:  # it has grown, behind what can be read of it
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
            return Traceback(self)
        if self.source is not None and self.real is not None:
            return machine.values.wrap(getattr(self.real, name), Attribute(self.source, name))
        return machine.values.literal(False if name == "__suppress_context__" else None)

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """Links of created exceptions are noted; all else as of any object."""
        ours = self._is_ours(machine, name)
        fixed = ours and name == "args" and _keeps_fields(self.cls.real)
        if fixed or name in self.fields or (not ours and _is_field(self.cls.find(machine, name))):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name} = ...")
        elif not ours:
            super().set_attribute(machine, name, value)
        elif name == "args" and self.source is None:
            self.set_args(machine, Tuple(value.unpack(machine)))
        elif name == "__traceback__" and isinstance(value, Traceback) and value.owner is self:
            self._set_lines(machine, value.lines)
        elif self.source is not None or name in ("__traceback__", "args"):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name} = ...")
        else:
            self.link(machine, name, value)

    def set_args(self, machine: Machine, args: Tuple) -> None:
        """`args` of a created exception."""
        before = self.arguments

        def restore() -> None:
            self.arguments = before

        machine.effects.undo(restore)
        self.arguments = args

    def link(self, machine: Machine, name: str, value: Value) -> None:
        """Set cause or context."""
        before = self.links.get(name)
        machine.effects.undo(lambda: restore(self.links, name, before))
        self.links[name] = value
        if self.source is not None:
            machine.effects.add(f"{{}}.{name} = {{}}", self, value)

    def passed(self, machine: Machine, lines: tuple[TracebackPlace, ...]) -> None:
        """It was raised, or goes on, through frames that stand there, outermost first."""
        self._set_lines(machine, (*lines, *self.lines))
        if self.source is not None and lines:
            places = machine.values.opaque(lines, Known(lines, "places"))
            known = machine.values.known(through, "through")
            machine.effects.add("{}({}, {})", known, self, places)

    def _set_lines(self, machine: Machine, lines: tuple[TracebackPlace, ...]) -> None:
        before = self.lines

        def restore() -> None:
            self.lines = before

        machine.effects.undo(restore)
        self.lines = lines

    def set_context(self, machine: Machine) -> None:
        """It is raised while another one is handled."""
        handled = machine.frames.handled
        if handled is None or handled is self or self.source is not None:
            return
        if self.lines or "__context__" in self.links:  # it was raised before
            self._cut_cycle(machine, handled)
        self.link(machine, "__context__", handled)

    def _cut_cycle(self, machine: Machine, handled: Value) -> None:
        """What is to be its context must not lead back to it."""
        one = handled
        while isinstance(one, Exception_) and one.source is None:
            following = one.links.get("__context__")
            if following is None:
                return
            if same(following, self):
                one.link(machine, "__context__", machine.values.literal(None))
                return
            one = following
        if isinstance(one, Exception_):
            stop(UNKNOWN_OPERATION, f"{self.describe()} is raised again, in another context")

    def rebuild(self, recipe: Recipe) -> str:
        """Made without an `__init__` that has been interpreted; then its links."""
        assert self.arguments is not None and self.arguments._items is not None
        cls = recipe.name(self.cls)
        items = ", ".join(recipe.name(one) for one in self.arguments._items)
        if _is_made_by_c(self.cls.real):
            name = recipe.bind(self, f"{cls}({items})")
        else:
            name = recipe.bind(self, f"{cls}.__new__({cls}{', ' if items else ''}{items})")
        if self.lines:
            function, lines = recipe.known(through, "through"), recipe.known(self.lines, "lines")
            recipe.line(f"{function}({name}, {lines})")
        for link, value in self.links.items():
            write = recipe.known(set_exception_field, "set_exception_field")
            recipe.later(f"{write}({name}, {link!r}, {{}})", value)
        for field, value in self.fields.items():
            recipe.later(f"{name}.{field} = {{}}", value)
        self.fill_attributes(recipe, name)
        self.fill_slots(recipe, name)
        return name


class Traceback(Value):
    """The traceback of an exception that was raised inside the interpreted program, as it was when
    it was asked for: later frames come before these."""

    __slots__ = ("lines", "owner")
    made_of = types.TracebackType

    def __init__(self, owner: Exception_) -> None:
        super().__init__()
        self.owner = owner
        self.lines = owner.lines

    def truth(self, machine: Machine) -> bool | Value:
        """It is true."""
        return True

    def rebuild(self, recipe: Recipe) -> str:
        """Read from the exception when that exists."""
        later = len(self.owner.lines) - len(self.lines)
        read = recipe.known(traceback_of, "traceback_of")
        return f"{read}({recipe.name(self.owner)})" + ".tb_next" * later


def builtin_base(cls: type[BaseException]) -> type[BaseException]:
    """The class of C whose memory, and whose fields, its objects have."""
    return next(
        one for one in mro_of(cls) if flags_of(one) & IMMUTABLE and issubclass(one, BaseException)
    )


def _is_made_by_c(cls: type[BaseException]) -> bool:
    """Whether `cls(*args)` runs no user code: C sets the fields (`SystemExit.code`) then."""
    init = find(cls, "__init__")
    return find(type(cls), "__call__") is find(type, "__call__") and init is find(
        builtin_base(cls), "__init__"
    )


def _plainly_made(cls: type) -> bool:
    """Whether it is a class of C."""
    return all(flags_of(base) & IMMUTABLE for base in mro_of(cls))


def _is_field(raw: Any) -> bool:
    """Whether a class attribute is a field that a builtin exception keeps (`OSError.errno`)."""
    if not is_a(raw, types.MemberDescriptorType | types.GetSetDescriptorType):
        return False
    return issubclass(raw.__objclass__, BaseException) and _plainly_made(raw.__objclass__)


def _keeps_fields(cls: type) -> bool:
    """Whether a builtin exception keeps more of its arguments than `args`, which may be written."""
    builtin = (base for base in mro_of(cls) if flags_of(base) & IMMUTABLE)
    return any(
        is_a(raw, types.MemberDescriptorType)
        for base in builtin
        if base is not BaseException
        for raw in vars(base).values()
    )


# Builtin exceptions that refuse arguments or read them: `OSError(2, "")` is a FileNotFoundError.
_READ_ALL = (BaseExceptionGroup, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)
_READ_SEVERAL = (OSError, SyntaxError)


def looks_at_arguments(cls: type[BaseException], count: int) -> bool:
    """Whether an exception of so many arguments is more than its `args`."""
    return issubclass(cls, _READ_ALL) or (count > 1 and issubclass(cls, _READ_SEVERAL))


@calls(BaseException.__init__, Exception.__init__)
def _init(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """`super().__init__(...)` in an exception class of the user."""
    owner = arguments[0] if arguments else None
    if keywords or not isinstance(owner, Exception_) or owner.source is not None:
        stop(UNKNOWN_CALL, "BaseException.__init__")
    owner.set_args(machine, Tuple(arguments[1:]))
    return machine.values.literal(None)


@wraps_if(60, lambda value: is_a(value, BaseException))
def _wrap_exception(machine: Machine, value: BaseException, source: Source | None) -> Value:
    cls = machine.values.known(type(value), class_name(type(value)))
    assert isinstance(cls, Class)
    if source is None:
        args = machine.values.wrap(value.args, None)
        assert isinstance(args, Tuple)
        return Exception_(cls, args)
    return machine.values.remember(value, Exception_(cls, None, source, value))
