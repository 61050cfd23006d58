"""`Value`: a Python object as the interpreter sees it during a capture.

Enters: operations of the program (get an attribute, call, add, iterate). Leaves: other values,
nodes of the graph, guards on what was relied upon, entries of the effect log. Invariant: one
`Value` stands for one object; a value read from outside has a `source`, one created inside has
none; what a kind does not know it refuses with a numbered break *before* it has changed anything.

Operations that have to run Python code of the user push a frame and answer `PENDING`: the result
will be on the stack of the frame that asked, when the callee returns. So they may only be the last
thing that an opcode handler (or the `call` of a builtin) does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from windfall.frontend.breaks import (
    ATTRIBUTE_WRITE,
    NOT_A_GRAPH_ARGUMENT,
    REBUILD,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_CALL,
    UNKNOWN_OPERATION,
    stop,
)
from windfall.ir.guard import Check, IdentityIs, TypeIs
from windfall.ir.reading import dictionary_at, flags_of
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

OVERRIDE = "__torch_function__"
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: no class statement makes such a class
Arguments = list["Value"]
Keywords = dict[str, "Value"]


class Value:
    """The base of every kind: every operation is refused."""

    __slots__ = ("guarded", "source")
    made_of: type  # the class of all objects of the kind, where it is one

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self.guarded: set[Any] | None = None  # keys of the guards that this value already has

    # ------------------------------------------------------------------------------- what it is

    def python_type(self) -> type:
        """The exact class of the object."""
        return self.made_of

    def describe(self) -> str:
        """A few words for reasons and reports."""
        return f"{self.python_type().__name__}" + (f" {self.source}" if self.source else "")

    def guard(self, machine: Machine, key: Any, check: Check, reason: str = "") -> None:
        """Rely on `check`; nothing to do for created values, and once for each `key`."""
        if self.source is None:
            return
        if self.guarded is None:
            self.guarded = set()
        if key not in self.guarded:
            self.guarded.add(key)
            machine.guards.add(self.source, check, reason or "used")

    def guard_type(self, machine: Machine) -> None:
        """Rely on the exact class."""
        if self.source is not None:
            self.guard(machine, "type", TypeIs(self.python_type()))

    # -------------------------------------------------------------------------------- constants

    def is_constant(self) -> bool:
        """Whether `as_constant` answers."""
        return False

    def as_constant(self, machine: Machine) -> Any:
        """The object itself, relied upon: only for immutable ones."""
        stop(UNKNOWN_OPERATION, f"{self.describe()} is used where a constant is needed")

    def key(self, machine: Machine) -> Any:
        """A hashable that is equal for equal keys, for dicts and sets. Constants are themselves;
        objects with the default identity hash are their own `Value`."""
        if self.is_constant():
            constant = self.as_constant(machine)
            if not is_hashable(constant):
                stop(UNKNOWN_OPERATION, f"{self.describe()} as a key, which has no hash")
            return constant
        stop(UNKNOWN_OPERATION, f"{self.describe()} as a key")

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """(what stands in the fx node, what the torch function gets while it runs on fakes)."""
        if self.is_constant():
            constant = self.as_constant(machine)
            return constant, constant
        stop(NOT_A_GRAPH_ARGUMENT, self.describe())

    def refuse_override(self, machine: Machine) -> None:
        """Refuse, where torch's C code would ask this argument for `__torch_function__` and might
        find it: it reads that like any attribute. A class of C whose objects hold none has none."""
        self.guard_type(machine)
        kind = self.python_type()
        if not flags_of(kind) & _IMMUTABLE or dictionary_at(kind):
            stop(UNKNOWN_OPERATION, f"{self.describe()}, which torch asks for {OVERRIDE}")

    def operand(self, machine: Machine, beside: Any, operation: str = "") -> Value:
        """What stands in the graph where this is an operand beside a tensor; `operation`, where
        eager asks something of numbers there (`symbolic.converts`)."""
        return self

    # ------------------------------------------------------------------------------- operations

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`self.name`."""
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """`self.name = value`."""
        stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")

    def delete_attribute(self, machine: Machine, name: str) -> None:
        """`del self.name`."""
        stop(ATTRIBUTE_WRITE, f"del {self.describe()}.{name}")

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """`self(*arguments, **keywords)`."""
        stop(UNKNOWN_CALL, self.describe())

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`self.name(...)`, for kinds whose methods are rows of a table."""
        method = self.get_attribute(machine, name)
        if method is PENDING:
            stop(UNKNOWN_CALL, f"{self.describe()}.{name}")
        return method.call(machine, arguments, keywords)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`self operation other`; None: not this kind's business, ask the other operand."""
        return None

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`other operation self`, asked after `other.binary` declined."""
        return None

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`self operation= other`; None: as `binary`."""
        return None

    def unary(self, machine: Machine, operation: str) -> Value:
        """`operation self`."""
        stop(UNKNOWN_OPERATION, f"{operation} {self.describe()}")

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`self operation other` for the six comparisons; None: ask the other operand."""
        return None

    def get_item(self, machine: Machine, key: Value) -> Value:
        """`self[key]`."""
        stop(UNKNOWN_OPERATION, f"{self.describe()}[{key.describe()}]")

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """`self[key] = value`. (A pending call may be started.)"""
        stop(UNKNOWN_OPERATION, f"{self.describe()}[{key.describe()}] = ...")

    def delete_item(self, machine: Machine, key: Value) -> None:
        """`del self[key]`."""
        stop(UNKNOWN_OPERATION, f"del {self.describe()}[{key.describe()}]")

    def contains(self, machine: Machine, item: Value) -> Value:
        """`item in self`."""
        stop(UNKNOWN_OPERATION, f"{item.describe()} in {self.describe()}")

    def truth(self, machine: Machine) -> bool | Value:
        """`bool(self)`: known now, or a value (mostly PENDING) that will say."""
        stop(UNKNOWN_OPERATION, f"truth of {self.describe()}")

    def length(self, machine: Machine) -> Value:
        """`len(self)`."""
        stop(UNKNOWN_OPERATION, f"len of {self.describe()}")

    def iterate(self, machine: Machine) -> Value:
        """`iter(self)`."""
        stop(UNKNOWN_OPERATION, f"iter of {self.describe()}")

    def advance(self, machine: Machine) -> Value | None:
        """`next(self)` of an iterator; None: exhausted."""
        stop(UNKNOWN_OPERATION, f"next of {self.describe()}")

    def known_length(self) -> int | None:
        """How many items iterating gives, where that is known without looking into it; nothing is
        relied upon: only `bounds` asks, to leave a large container alone."""
        return None

    def unpack(self, machine: Machine) -> list[Value]:
        """All items, for star arguments and unpacking, where iterating runs no user code."""
        stop(UNKNOWN_OPERATION, f"unpacking of {self.describe()}")

    # --------------------------------------------------------------------------------- leaving

    def rebuild(self, recipe: Recipe) -> str:
        """Generated text that makes the object anew; only asked of values without a source."""
        stop(REBUILD, self.describe())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.source or 'created'}>"


class Marker(Value):
    """NULL on the stack, and other things that are no objects."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def python_type(self) -> type:
        """None: a marker is no object."""
        return Marker

    def __repr__(self) -> str:
        return self.name


NULL = Marker("NULL")
PENDING = Marker("PENDING")


class Raised(Exception):
    """The interpreted program raised: control flow of the interpreter, never seen by users."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class Given(Value):
    """The base of kinds that are one object, known as it is: `real`."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        """Its class."""
        return type(self.real)

    def rely(self, machine: Machine) -> None:
        """Rely on its being this very object."""
        if not isinstance(self.source, Known):
            self.guard(machine, "identity", IdentityIs(self.real))


class ByIdentity(Value):
    """The base of kinds whose objects are true, and hashed by identity."""

    __slots__ = ()

    def truth(self, machine: Machine) -> bool | Value:
        """It has no length."""
        return True

    def key(self, machine: Machine) -> Any:
        """Itself."""
        return machine.guards.told_apart(self)


def no_method(machine: Machine, owner: Value, kind: str, real: type, name: str) -> NoReturn:
    """An attribute of a builtin kind that has no rule here: a break if it has one, else the error
    that Python raises."""
    if hasattr(real, name) or real.__dictoffset__:  # an `OrderedDict` has attributes of its own
        stop(UNKNOWN_OPERATION, f"{real.__name__}.{name}")
    raise machine.values.no_attribute(owner, name, f"'{kind}' object has no attribute '{name}'")


def is_hashable(constant: Any) -> bool:
    """Whether a constant can be a key. (Slices cannot before CPython 3.12.)"""
    try:
        hash(constant)
    except TypeError:
        return False
    return True
