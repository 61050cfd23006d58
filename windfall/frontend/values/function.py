"""Python functions, bound methods and closure cells.

Enters: functions of the user (with a source) and those that the program defines (created). Leaves:
a pushed frame for each call. Invariant: what an inlined function's behaviour depends on is relied
upon: its code, globals, and those defaults and cells that are read.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from windfall.directives import directive_of
from windfall.frontend.breaks import (
    ARGUMENTS,
    FRAME_BOUND,
    GENERATOR,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_OPERATION,
    WATCHER,
    stop,
)
from windfall.frontend.bytecode import decode
from windfall.frontend.effects import restore
from windfall.frontend.name_tables import words
from windfall.frontend.policy import Treatment, looks_at_frames, treatment
from windfall.frontend.values.base import OVERRIDE, Arguments, Keywords, Value
from windfall.frontend.values.calls import BY_CODE, rule_of
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.directed import follow
from windfall.frontend.values.mapping import InstanceDict
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.unseen import look, same
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import ABSENT, Equals, IdentityIs
from windfall.ir.node import Region
from windfall.ir.reading import resolve
from windfall.ir.source import Attribute, CellContents, Item, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine
    from windfall.frontend.values.mapping import Dict


class Cell(Value):
    """A closure cell. `contents` None: empty, or not looked into yet."""

    __slots__ = ("contents", "loaded", "real")
    made_of = types.CellType

    def __init__(
        self,
        contents: Value | None,
        source: Source | None = None,
        real: types.CellType | None = None,
    ) -> None:
        super().__init__(source)
        self.contents = contents
        self.real = real
        self.loaded = source is None

    def get(self, machine: Machine) -> Value | None:
        """What it holds; None: nothing."""
        if not self.loaded:
            assert self.source is not None and self.real is not None
            self.loaded = True
            try:
                # Looked at even if nobody uses it: one that is emptied later is an error.
                held = machine.values.wrap(self.real.cell_contents, CellContents(self.source))
                self.contents = look(held)
            except ValueError:  # an empty cell
                stop(UNKNOWN_ATTRIBUTE, f"empty cell {self.source}")
        return self.contents

    def set(self, machine: Machine, value: Value | None) -> None:
        """Write it (None: empty it)."""
        before, loaded = self.contents, self.loaded

        def restore() -> None:
            self.contents, self.loaded = before, loaded

        machine.effects.undo(restore)
        self.contents, self.loaded = value, True
        if self.source is not None:
            self.guard_type(machine)
            if before is not None and value is not None:
                machine.effects.count(before, value)
            if value is None:
                machine.effects.add("del {}.cell_contents", self)
            else:
                machine.effects.add("{}.cell_contents = {}", self, value)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`cell_contents`."""
        found = self.get(machine) if name == "cell_contents" else None
        return found if found is not None else super().get_attribute(machine, name)

    def rebuild(self, recipe: Recipe) -> str:
        """Made empty, then filled: a function in it may close over it."""
        name = recipe.bind(self, f"{recipe.known(types.CellType, 'Cell')}()")
        if self.contents is not None:
            recipe.later(f"{name}.cell_contents = {{}}", self.contents)
        return name


class Function(Value):
    """A Python function."""

    __slots__ = (
        "_attributes",
        "_closure",
        "_defaults",
        "_keyword_defaults",
        "annotations",
        "code",
        "fields",
        "globals",
        "name",
        "qualname",
        "real",
    )
    made_of = types.FunctionType

    def __init__(
        self,
        code: types.CodeType,
        globals: dict[str, Any],
        source: Source | None = None,
        real: types.FunctionType | None = None,
    ) -> None:
        super().__init__(source)
        self.code = code
        self.globals = globals
        self.real = real
        self.name = code.co_name
        self.qualname = code.co_qualname
        self._defaults: list[Value] | None = None if real else []
        self._keyword_defaults: Keywords | None = None if real else {}
        self._closure: list[Cell] | None = None if real else []
        self._attributes: Dict | None = None
        self.annotations: Value | None = None
        self.fields: dict[str, Value] = {}  # that were written, of a function made here

    @classmethod
    def created(
        cls,
        code: types.CodeType,
        globals: dict[str, Any],
        defaults: list[Value],
        keyword_defaults: Keywords,
        closure: list[Cell],
    ) -> Function:
        """A function that the program defines."""
        made = cls(code, globals)
        made._defaults = defaults
        made._keyword_defaults = keyword_defaults
        made._closure = closure
        return made

    def describe(self) -> str:
        """Its name."""
        return f"function {self.qualname}"

    def key(self, machine: Machine) -> Any:
        """Hashed by identity."""
        return machine.guards.told_apart(self)

    def truth(self, machine: Machine) -> bool | Value:
        """A function is true."""
        self.guard_type(machine)
        return True

    def attributes(self, machine: Machine) -> Dict:
        """The function's own dictionary."""
        if self._attributes is None:
            self._attributes = machine.values.instance_dict(self.real, self.source, self)
        return self._attributes

    def refuse_override(self, machine: Machine) -> None:
        """One may stand in its dictionary."""
        self.guard_type(machine)
        if self.attributes(machine).lookup(machine, OVERRIDE) is not None:
            stop(UNKNOWN_OPERATION, f"{self.describe()}, which torch asks for {OVERRIDE}")

    # ------------------------------------------------------------------------- what calls rely on

    def rely(self, machine: Machine) -> None:
        """Rely on code and globals."""
        if self.source is None or (self.guarded is not None and "code" in self.guarded):
            return
        if self.guarded is None:
            self.guarded = set()
        self.guarded.add("code")
        reason = f"{self.qualname} is inlined"
        machine.guards.add(Attribute(self.source, "__code__"), IdentityIs(self.code), reason)
        if not isinstance(self.source, Known):
            where = Attribute(self.source, "__globals__")
            machine.guards.add(where, IdentityIs(self.globals), reason)

    def defaults(self, machine: Machine) -> list[Value]:
        """Defaults of the last positional parameters."""
        if self._defaults is None:
            assert self.real is not None and self.source is not None
            found = machine.values.wrap(
                self.real.__defaults__, Attribute(self.source, "__defaults__")
            )
            if self.real.__defaults__ is None:
                found.as_constant(machine)  # relies on there being none
            self._defaults = found.unpack(machine) if isinstance(found, Tuple) else []
        return self._defaults

    def keyword_defaults(self, machine: Machine) -> Keywords:
        """Defaults of keyword-only parameters."""
        if self._keyword_defaults is None:
            assert self.real is not None and self.source is not None
            source = Attribute(self.source, "__kwdefaults__")
            found = machine.values.wrap(self.real.__kwdefaults__, source)
            self._keyword_defaults = machine.values.string_keyed(found)
        return self._keyword_defaults

    def closure(self, machine: Machine) -> list[Cell]:
        """The cells of its free variables."""
        if self._closure is None:
            assert self.real is not None and self.source is not None
            source = Attribute(self.source, "__closure__")
            cells = self.real.__closure__ or ()
            self._closure = []
            for index, cell in enumerate(cells):
                value = machine.values.wrap_certain(cell, Item(source, index))
                assert isinstance(value, Cell)
                self._closure.append(value)
        return self._closure

    # ------------------------------------------------------------------------------- operations

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """A special rule, the graph, or inlined."""
        if self.real is not None:
            said = directive_of(self.real)
            if said is not None:
                self.guard(machine, "identity", IdentityIs(self.real))
                return follow(machine, said, self.real, arguments, keywords)
            rule = rule_of(self.real)
            if rule is not None:
                self.guard(machine, "identity", IdentityIs(self.real))
                return rule(machine, arguments, keywords)
        by_code = BY_CODE.get(id(self.code))
        if by_code is not None:
            return by_code(machine, self, arguments, keywords)
        if self.real is not None:
            how = treatment(self.real)
            if how is not Treatment.INLINE:
                self.guard(machine, "identity", IdentityIs(self.real))
                return machine.values.treated(how, self.real, arguments, keywords)
        return self.inline(machine, arguments, keywords)

    def inline(
        self,
        machine: Machine,
        arguments: Arguments,
        keywords: Keywords,
        *,
        discard: bool = False,
        region: Region | None = None,
    ) -> Value:
        """Push a frame; the result lands on the stack of the caller."""
        listing = decode(self.code)
        if listing.is_coroutine:
            stop(GENERATOR, self.qualname)
        if listing.is_generator:
            self._demand_written_name(machine)
        if machine.frames.stack and not _CALLER_NAMES.isdisjoint(self.code.co_names):
            stop(FRAME_BOUND, f"{self.qualname} looks at its caller's frame")
        if self.real is None and machine.frames.stack and looks_at_frames(self.code):
            stop(WATCHER, self.qualname)
        self.rely(machine)
        variables: list[Value | None] = [None] * len(listing.variables)
        self._bind(machine, variables, arguments, keywords)
        for index, cell in zip(listing.free, self.closure(machine), strict=True):
            variables[index] = cell
        return machine.frames.call(
            self.code, self.globals, variables, discard=discard, region=region
        )

    def _demand_written_name(self, machine: Machine) -> None:
        """Generators are named as their function is when it is called: ours as the code is."""
        named = (self.name, self.qualname) == (self.code.co_name, self.code.co_qualname)
        if not named or not self.fields.keys().isdisjoint(("__name__", "__qualname__")):
            stop(GENERATOR, f"{self.qualname}, which was given another name")
        if self.source is not None:
            for name, text in (("__name__", self.name), ("__qualname__", self.qualname)):
                reason = f"{self.qualname} names its generators"
                machine.guards.add(Attribute(self.source, name), Equals(text), reason)

    def _bind(
        self,
        machine: Machine,
        variables: list[Value | None],
        arguments: Arguments,
        keywords: Keywords,
    ) -> None:
        """Arguments to parameters, as the interpreter does; misfits are raised natively."""
        code = self.code
        count = code.co_argcount
        total = count + code.co_kwonlyargcount
        variables[: min(count, len(arguments))] = arguments[:count]
        extra = arguments[count:]
        flags = code.co_flags
        if flags & inspect.CO_VARARGS:
            variables[total] = Tuple(list(extra))
        elif extra:
            stop(ARGUMENTS, f"{self.qualname} takes {count} positional arguments")
        rest = self._bind_keywords(variables, keywords, total)
        if flags & inspect.CO_VARKEYWORDS:
            at = total + bool(flags & inspect.CO_VARARGS)
            variables[at] = machine.values.created_dict(rest)
        elif rest:
            stop(ARGUMENTS, f"{self.qualname} got unexpected {', '.join(rest)}")
        self._fill_defaults(machine, variables, count, total)

    def _bind_keywords(
        self, variables: list[Value | None], keywords: Keywords, total: int
    ) -> Keywords:
        if not keywords:
            return {}
        code = self.code
        names = code.co_varnames[:total]
        rest: Keywords = {}
        for name, value in keywords.items():
            try:
                index = names.index(name, code.co_posonlyargcount)
            except ValueError:
                rest[name] = value
                continue
            if variables[index] is not None:
                stop(ARGUMENTS, f"{self.qualname} got multiple values for {name}")
            variables[index] = value
        return rest

    def _fill_defaults(
        self, machine: Machine, variables: list[Value | None], count: int, total: int
    ) -> None:
        if None in variables[:count]:
            defaults = self.defaults(machine)
            first = count - len(defaults)
            for index in range(count):
                if variables[index] is None:
                    if index < first:
                        stop(ARGUMENTS, f"{self.qualname} misses {self.code.co_varnames[index]}")
                    variables[index] = defaults[index - first]
        for index in range(count, total):
            if variables[index] is None:
                name = self.code.co_varnames[index]
                found = self.keyword_defaults(machine).get(name)
                if found is None:
                    stop(ARGUMENTS, f"{self.qualname} misses {name}")
                variables[index] = found

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Plain fields, then the function's dictionary."""
        values = machine.values
        if name == "__dict__":
            return self.attributes(machine)
        if name in _FIELDS:
            if self.real is None or self.source is None:
                return self._created_field(machine, name)
            return values.wrap(getattr(self.real, name), Attribute(self.source, name))
        found = self.attributes(machine).lookup(machine, name)
        if found is not None:
            return found
        raw = resolve(types.FunctionType, name)  # not what its metaclass has
        if raw is not ABSENT:
            if isinstance(raw, _DESCRIPTORS):
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
            return values.class_attribute(self, types.FunctionType, name)
        raise values.no_attribute(self, name, f"'function' object has no attribute '{name}'")

    def _created_field(self, machine: Machine, name: str) -> Value:
        """A field of a function that the program defines."""
        if name in self.fields:
            return self.fields[name]
        consts = self.code.co_consts
        text = consts[0] if consts and isinstance(consts[0], str) else None
        plain = {
            "__name__": self.name,
            "__qualname__": self.qualname,
            "__code__": self.code,
            "__doc__": text,
            "__module__": self.globals.get("__name__"),
            "__type_params__": (),  # one with type parameters is made natively
        }
        if name in plain:
            return machine.values.literal(plain[name])
        if name == "__annotations__":
            if self.annotations is None:
                self.annotations = machine.values.created_dict({})
            return self.annotations
        if name == "__defaults__":
            if not self._defaults:
                return machine.values.literal(None)
            found = self.fields[name] = Tuple(list(self._defaults))  # seen again, the same one
            return found
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")

    def _set_created_field(self, machine: Machine, name: str, value: Value) -> None:
        fields, before = self.fields, self.fields.get(name)
        machine.effects.undo(lambda: restore(fields, name, before))
        fields[name] = value

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """In the function's dictionary; its fields are written natively."""
        if self.source is None and name in _WRITABLE:
            self._set_created_field(machine, name, value)
            return
        if resolve(types.FunctionType, name) is not ABSENT:
            super().set_attribute(machine, name, value)
        self.attributes(machine).store(machine, name, value)

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew from code, globals, defaults and cells."""
        cells = self._closure or []
        closure = ", ".join(recipe.name(one) for one in cells)
        defaults = ", ".join(recipe.name(one) for one in self._defaults or [])
        made = recipe.bind(
            self,
            f"{recipe.known(types.FunctionType, 'Function')}("
            f"{recipe.known(self.code, self.code.co_name + '_code')}, "
            f"{recipe.known(self.globals, 'globals_of_' + self.code.co_name)}, "
            f"{Constant(self.name).rebuild(recipe)}, "
            f"({defaults + ',' if defaults else ''}) or None, "
            f"{f'({closure},)' if closure else None})",
        )
        if self._keyword_defaults:
            parts = ", ".join(f"{k!r}: {recipe.name(v)}" for k, v in self._keyword_defaults.items())
            recipe.line(f"{made}.__kwdefaults__ = {{{parts}}}")
        if self.qualname != self.code.co_qualname:
            recipe.line(f"{made}.__qualname__ = {self.qualname!r}")
        if self.annotations is not None:
            recipe.line(f"{made}.__annotations__ = {recipe.name(self.annotations)}")
        for name, value in self.fields.items():
            recipe.later(f"{made}.{name} = {{}}", value)
        if isinstance(self._attributes, InstanceDict):
            self._attributes.fill(recipe, f"{made}.__dict__")
        return made


_CALLER_NAMES = words("_getframe _getframemodulename currentframe")
_WRITABLE = words("__name__ __qualname__ __doc__ __module__ __annotations__")
_FIELDS = words("""
    __code__ __defaults__ __kwdefaults__ __closure__ __globals__ __name__ __qualname__
    __module__ __doc__ __annotations__
""")
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
if hasattr(types.FunctionType, "__type_params__"):  # from 3.12 on
    _WRITABLE |= {"__type_params__"}
    _FIELDS |= {"__type_params__"}


def _bound_of_c(recipe: Recipe, method: Method) -> str:
    """With the class: some descriptors of C take it for given, and CPython dies without it."""
    owner, kind = recipe.name(method.owner), recipe.known(type, "type_")
    return f"{recipe.name(method.function)}.__get__({owner}, {kind}({owner}))"


class Method(Value):
    """A function bound to an object."""

    __slots__ = ("function", "owner")
    made_of = types.MethodType

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.owner = owner

    def describe(self) -> str:
        """As its function."""
        return f"method {self.function.describe()}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """The function, with the object before the other arguments."""
        self.guard_type(machine)
        return self.function.call(machine, [self.owner, *arguments], keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Its parts, else as the function."""
        self.guard_type(machine)
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        if name == "__class__":
            return machine.values.known(self.python_type(), self.python_type().__name__)
        if name != "__doc__" and hasattr(types.MethodType, name):  # its own class goes first
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        return self.function.get_attribute(machine, name)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Equal where function and object are the same."""
        if isinstance(other, Method) and operation in ("==", "!="):
            alike = same(self.function, other.function) and same(self.owner, other.owner)
            return machine.values.literal(alike == (operation == "=="))
        return None

    def rebuild(self, recipe: Recipe) -> str:
        """Bound anew."""
        if self.python_type() is not types.MethodType:
            return _bound_of_c(recipe, self)
        bind = recipe.known(types.MethodType, "Method")
        return f"{bind}({recipe.name(self.function)}, {recipe.name(self.owner)})"


def bound_class(descriptor: type) -> type:
    """The class of what binding gives, by that of what stands in the dictionary of the class."""
    if descriptor is types.FunctionType:
        return types.MethodType
    is_slot = descriptor is types.WrapperDescriptorType
    return types.MethodWrapperType if is_slot else types.BuiltinMethodType


class BuiltinMethod(Method):
    """A method of a class of C, bound: no `types.MethodType`."""

    __slots__ = ()

    def python_type(self) -> type:
        """A method wrapper, of what stands for a slot of the class (`__len__`)."""
        return bound_class(self.function.python_type())

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """It names its owner, but no function."""
        if name != "__self__":
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        return self.owner

    def rebuild(self, recipe: Recipe) -> str:
        """Bound anew."""
        return _bound_of_c(recipe, self)


@wraps(types.FunctionType)
def _wrap_function(machine: Machine, value: types.FunctionType, source: Source | None) -> Value:
    source = source or Known(value, value.__qualname__)
    made = Function(value.__code__, value.__globals__, source, value)
    made.name, made.qualname = value.__name__, value.__qualname__
    return machine.values.remember(value, made)


@wraps(types.CellType)
def _wrap_cell(machine: Machine, value: types.CellType, source: Source | None) -> Value:
    source = source or Known(value, "cell")
    return machine.values.remember(value, Cell(None, source, value))


@wraps(types.MethodType)
def _wrap_method(machine: Machine, value: types.MethodType, source: Source | None) -> Value:
    source = source or Known(value, value.__qualname__)
    function = machine.values.wrap(value.__func__, Attribute(source, "__func__"))
    owner = machine.values.wrap(value.__self__, Attribute(source, "__self__"))
    return machine.values.remember(value, Method(function, owner, source))
