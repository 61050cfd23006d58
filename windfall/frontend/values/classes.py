"""Classes that the program defines, and the descriptors in their bodies.

Enters: `class` statements inside captured functions. Leaves: `CreatedClass` values; where one lives
on, the segment makes a real class. Invariant: no user code runs: the body is interpreted, and the
class that the interpreter looks into (a stand-in) is made by `type` of functions that are never
called. Whatever else a class statement can do (metaclasses, `__init_subclass__`, `__set_name__`)
is left to CPython: the whole statement is then one native step.

    class Derived(Base):        CreatedClass(stand-in, {"shift": Constant, "apply": Function})
        shift = k
        def apply(self): ...
"""

from __future__ import annotations

import builtins
import contextlib
import types
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_ATTRIBUTE, UNKNOWN_CALL, stop
from windfall.frontend.polyfills import core
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, Placeholder, find, is_data_descriptor
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.function import Cell, Function
from windfall.frontend.values.mapping import Dict
from windfall.ir.guard import ABSENT

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class CreatedClass(Class):
    """A class without a source. `real` is the stand-in, `namespace` what the body left."""

    __slots__ = ("bases", "namespace")

    def __init__(self, real: type, bases: list[Value], namespace: Dict) -> None:
        super().__init__(real, None)
        self.bases = bases
        self.namespace = namespace

    def rely(self, machine: Machine) -> None:
        """Nothing: it is made anew on each call."""

    def rebuild(self, recipe: Recipe) -> str:
        """Made with its names in their order, then filled with what may lead back to it."""
        bases = "".join(f"{recipe.name(one)}, " for one in self.bases)
        first, later = [], []
        for key, value in self.namespace.present():
            if key == "__classcell__":
                continue
            plain = isinstance(value, Constant) or _leads_nowhere(value)
            first.append(f"{key!r}: {recipe.name(value) if plain else None}")
            if not plain:
                later.append((key, value))
        text = f"type({self.real.__name__!r}, ({bases}), {{{', '.join(first)}}})"
        name = recipe.bind(self, text)
        for key, value in later:
            recipe.later(f"setattr({name}, {key!r}, {{}})", value)
        return name


def _leads_nowhere(value: Value) -> bool:
    """A function that can be made before its class: the cells that it closes over are filled later.
    (What is made of instances, an iterator for one, may ask for these methods at once.)"""
    if isinstance(value, Descriptor):
        return all(isinstance(one, Constant) or _leads_nowhere(one) for one in value.parts)
    if not isinstance(value, Function) or value.source is not None or value._attributes:
        return False
    defaults = (*(value._defaults or ()), *(value._keyword_defaults or {}).values())
    return all(isinstance(one, Constant) for one in defaults)


# ------------------------------------------------------------------------------- class statements


@calls(builtins.__build_class__)
def _build_class(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """The body may not break half-way: then the statement is run natively, whole."""
    body, name, *bases = arguments
    if keywords or not isinstance(body, Function) or body.source is not None:
        stop(UNKNOWN_CALL, "a class with a metaclass or keywords")
    if (
        machine.frames.stack[-1].names is not None
    ):  # the statement around it is held together already
        stop(UNKNOWN_CALL, "a class in the body of a class")
    for base in bases:
        if not isinstance(base, Class) or type(base.real) is not type:
            stop(UNKNOWN_CALL, f"a class derived from {base.describe()}")
        base.rely(machine)
        if base.find(machine, "__init_subclass__") is not find(object, "__init_subclass__"):
            stop(UNKNOWN_CALL, f"{base.describe()} has __init_subclass__")
    machine.frames.hold_together()
    return machine.values.polyfill("build_class", [body, name, machine.values.tuple(bases)])


@calls(core.run_body)
def _run_body(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    body, namespace = arguments
    assert isinstance(body, Function) and isinstance(namespace, Dict)
    pending = body.inline(machine, [], {})
    machine.frames.stack[-1].names = namespace
    return pending


_LEFT_TO_CPYTHON = (
    "__del__",
    "__new__",
    "__init_subclass__",
    "__class_getitem__",
    "__slots__",
    "__set_name__",
)


@calls(core.finish_class)
def _finish_class(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    name, bases, namespace, cell = arguments
    assert isinstance(namespace, Dict)
    for special in _LEFT_TO_CPYTHON:
        if special in namespace.entries:
            stop(UNKNOWN_CALL, f"a class with {special}")
    for key, value in namespace.present():
        if not isinstance(value, Constant) and _is_of_type(key):
            stop(UNKNOWN_CALL, f"a class with {key}")
    contents = {
        key: _stand_in(machine, value)
        for key, value in namespace.present()
        if key != "__classcell__"
    }
    parents = bases.unpack(machine)
    reals = tuple(one.real for one in parents if isinstance(one, Class))
    try:
        real = type(name.as_constant(machine), reals, contents)
    except TypeError as error:  # no order of the bases, and the like
        stop(UNKNOWN_CALL, str(error))
    made = CreatedClass(real, parents, namespace)
    machine.values.remember(real, made)
    machine.values.stand_ins.append(real)
    if isinstance(cell, Cell):
        cell.set(machine, made)
    machine.frames.let_go()
    return made


class _Nobody:
    """What stand-ins derive from at last."""


def leave_bases(stand_in: type) -> None:
    """A stand-in is not to be found among the subclasses of its bases any more: it lives until the
    collector comes. (One that derives from a class of C alone is bound to its layout.)"""
    with contextlib.suppress(TypeError):
        stand_in.__bases__ = (_Nobody,)


def _is_of_type(name: str) -> bool:
    """Whether setting an attribute of that name on a class does something else than to store it."""
    return name != "__annotations__" and is_data_descriptor(find(type, name))


def _stand_in(machine: Machine, value: Value) -> Any:
    """What stands for a value in the dictionary of the stand-in class."""
    if isinstance(value, Constant) and value.source is None:
        return value.value
    if isinstance(value, Function):
        if value.real is not None:
            return value.real
        cells = tuple(types.CellType() for _ in value.code.co_freevars)
        stub = types.FunctionType(value.code, value.globals, value.name, None, cells)
        machine.values.remember(stub, value)
        return stub
    if isinstance(value, Descriptor):
        return value.stand_in(machine)
    if find(value.python_type(), "__set_name__") is not ABSENT:
        stop(UNKNOWN_CALL, f"{value.describe()} has __set_name__")
    if find(value.python_type(), "__get__") is not ABSENT:
        stop(UNKNOWN_CALL, f"{value.describe()} is a descriptor")
    return Placeholder(value)


# ------------------------------------------------------------------------------------ descriptors


class Descriptor(Value):
    """A `property`, `staticmethod` or `classmethod` that the program makes."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: Any, parts: list[Value]) -> None:
        super().__init__()
        self.kind = kind
        self.parts = parts

    def python_type(self) -> type:
        """Its class."""
        made: type = self.kind
        return made

    def stand_in(self, machine: Machine) -> Any:
        """One of stand-ins; where it is read from the class, it is this one again."""
        made = self.kind(*(_stand_in(machine, one) for one in self.parts))
        machine.values.remember(made, self)
        return made

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """A static method can be called."""
        if self.kind is not staticmethod:
            return super().call(machine, arguments, keywords)
        return self.parts[0].call(machine, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`setter` and its like; what it holds."""
        if name == "__func__" and self.kind is not property:
            return self.parts[0]
        if self.kind is property and name in _PARTS:
            return machine.values.method(self, name)
        if self.kind is property and name in ("fget", "fset", "fdel"):
            place = ("fget", "fset", "fdel").index(name)
            return self.parts[place] if place < len(self.parts) else machine.values.literal(None)
        stop(UNKNOWN_ATTRIBUTE, f"{self.kind.__name__}.{name}")

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A property with one more function."""
        if keywords or len(arguments) != 1:
            stop(ARGUMENTS, name)
        parts = [*self.parts, *[machine.values.literal(None)] * (3 - len(self.parts))]
        parts[_PARTS.index(name)] = arguments[0]
        while isinstance(parts[-1], Constant):
            parts.pop()
        return Descriptor(property, parts)

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        parts = ", ".join(recipe.name(one) for one in self.parts)
        return f"{self.kind.__name__}({parts})"


_PARTS = ("getter", "setter", "deleter")


def _maker(kind: Any, most: int) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if keywords or not 1 <= len(arguments) <= most:
            stop(ARGUMENTS, kind.__name__)
        if not all(isinstance(one, Function | Constant) for one in arguments):
            stop(UNKNOWN_CALL, f"{kind.__name__} of {arguments[0].describe()}")
        return Descriptor(kind, list(arguments))

    calls(kind)(rule)


_maker(property, 3)
_maker(staticmethod, 1)
_maker(classmethod, 1)
