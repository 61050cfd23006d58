"""What must still be true for a compiled entry to be used again.

Enters: facts on which the front end relied. Leaves: `Guard(source, check, reason)` records; the
runtime makes the generated check of them (native first tier, Python after that), reports print
them. Invariant: checking runs no user code and keeps no input alive; a check that meets an
unexpected object answers False, it does not raise.

A new kind of check is one class here and one row in `runtime/guards.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from windfall.errors import SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.relation import COMPARISONS, Relation
from windfall.ir.source import Source, SourceNumbers
from windfall.ir.symint import Expression

Class = type  # `TensorIs` has a field of that name


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of fact about the value at a source."""

    def implied_class(self) -> Class | None:
        """The exact class of every value of which this holds; None: it may be several."""
        return None

    def of_class(self, exact_class: Class) -> Check:
        """A check that holds where this one does and the value is of this exact class: one that
        implies the class where that costs nothing, else this one."""
        return self


_IMMUTABLE = 1 << 8  # the bit of a class's flags that says that it is
_flags: Callable[[Class], int] = type.__dict__["__flags__"].__get__  # past any metaclass


def _lasting_class(value: Any) -> Class | None:
    """The class of an object that has it for life; None: `value.__class__ = Other` is allowed."""
    kind = type(value)
    lasting = _flags(kind) & _IMMUTABLE and not issubclass(kind, ModuleType)
    return kind if lasting else None


@dataclass(frozen=True, slots=True)
class TensorIs(Check):
    """A tensor of exactly this class, dispatch keys and type. Sizes and strides may be symbolic: a
    symbol that stands alone as a size or stride and is bound by no earlier guard is bound here (its
    range is checked); whatever else is symbolic is compared once all symbols are bound."""

    type: TensorType
    exact_class: Class
    dispatch_keys: int  # raw bits of the tensor's own key set

    def implied_class(self) -> Class | None:
        """It is looked at."""
        return self.exact_class

    def __str__(self) -> str:
        return f"is {self.exact_class.__name__} {self.type} keys={self.dispatch_keys:#x}"


@dataclass(frozen=True, slots=True)
class Binds(Check):
    """An exact int of 64 bits within the range of `symbol`, which has this value from here on."""

    symbol: Expression

    def implied_class(self) -> Class | None:
        """Not a bool."""
        return int

    def __str__(self) -> str:
        low, high = self.symbol.bounds
        return f"is int {self.symbol} in [{low}, {high}]"


@dataclass(frozen=True, slots=True)
class Holds(Check):
    """A relation between sizes, over symbols that other guards bind; its source is `SYMBOLS`."""

    relation: Relation

    def __str__(self) -> str:
        return str(self.relation)


@dataclass(frozen=True, slots=True)
class TypeIs(Check):
    """The value's exact class."""

    exact_class: Class

    def implied_class(self) -> Class | None:
        """What it says."""
        return self.exact_class

    def __str__(self) -> str:
        return f"has type {self.exact_class.__qualname__}"


@dataclass(frozen=True, slots=True, eq=False)
class IdentityIs(Check):
    """This very object. The entry holds it weakly where that is possible."""

    value: Any

    def implied_class(self) -> Class | None:
        """That of the object, unless it can be given another."""
        return _lasting_class(self.value)

    def __str__(self) -> str:
        return f"is <{type(self.value).__name__} at {id(self.value):#x}>"


@dataclass(frozen=True, slots=True)
class Equals(Check):
    """A constant of the same exact type and value (NaN equals NaN, 0.0 is not -0.0)."""

    value: Any

    def implied_class(self) -> Class | None:
        """That of the constant, unless it can be given another."""
        return _lasting_class(self.value)

    def __str__(self) -> str:
        return f"== {self.value!r}"


@dataclass(frozen=True, slots=True)
class Compares(Check):
    """An exact float of which `value operation other` is `outcome`; `other` None: the value itself
    (a NaN is not equal to itself)."""

    operation: str
    other: float | int | None
    outcome: bool

    def holds(self, value: float) -> bool:
        """Whether it does."""
        other = value if self.other is None else self.other
        return COMPARISONS[self.operation](value, other) is self.outcome

    def implied_class(self) -> Class | None:
        """Not an int."""
        return float

    def __str__(self) -> str:
        other = "itself" if self.other is None else repr(self.other)
        return f"{'' if self.outcome else 'not '}{self.operation} {other}"


@dataclass(frozen=True, slots=True)
class LengthIs(Check):
    """The length of a list, tuple, dict, set, frozenset, deque, range, str or bytes, past any
    `__len__` of a subclass; of `exact_class` alone, where that is known."""

    length: int
    exact_class: Class | None = None

    def implied_class(self) -> Class | None:
        """If it says one."""
        return self.exact_class

    def of_class(self, exact_class: Class) -> Check:
        """One look at the class and the length."""
        return replace(self, exact_class=exact_class) if self.exact_class is None else self

    def __str__(self) -> str:
        kind = "" if self.exact_class is None else f"{self.exact_class.__qualname__} of "
        return f"{'is' if kind else 'has'} {kind}length {self.length}"


@dataclass(frozen=True, slots=True)
class KeysAre(Check):
    """The keys of an exact dict, in order (constant keys only)."""

    keys: tuple[Any, ...]

    def implied_class(self) -> Class | None:
        """Keys of other mappings have other checks."""
        return dict

    def __str__(self) -> str:
        return f"has keys {list(self.keys)!r}"


@dataclass(frozen=True, slots=True)
class HasKey(Check):
    """Whether a dict has a key: `present` says which."""

    key: Any
    present: bool

    def __str__(self) -> str:
        return f"{'has' if self.present else 'has no'} key {self.key!r}"


@dataclass(frozen=True, slots=True)
class SameObjects(Check):
    """The value at the guard's source is the one at each of `others` (`same`), or at none."""

    others: tuple[Source, ...]
    same: bool

    def __str__(self) -> str:
        names = ", ".join(map(str, self.others))
        return f"{'is' if self.same else 'is not any of'} {names}"


# What a class answers for a name that neither it nor a base of it defines.
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__slots__": ()})()


@dataclass(frozen=True, slots=True, eq=False)
class Resolves(Check):
    """The source is a class; looking `name` up along its MRO (dicts only, no metaclass, no
    descriptor called) still finds this very object, or ABSENT. Late patches of methods, class
    attributes and bases are noticed by it."""

    name: str
    value: Any

    def __str__(self) -> str:
        found = "nothing" if self.value is ABSENT else f"<{type(self.value).__name__}>"
        return f"resolves {self.name!r} to {found}"


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Check):
    """`Resolves` for several names of one class: what a program asks of torch's. `names` and
    `values` are equally long."""

    names: tuple[str, ...]
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"still has its own {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class AmbientIs(Check):
    """The thread's state that ops depend on; its source is `AMBIENT`. Only what is not default
    needs a mention, but all of it is checked, always, first."""

    grad_enabled: bool
    inference_mode: bool = False
    included_keys: int = 0
    excluded_keys: int = 0
    dispatch_modes: int = 0
    function_modes: int = 0
    function_state: int = 0  # 0 enabled, 1 subclasses disabled, 2 all disabled
    profiled: bool = False
    default_dtype: str = "torch.float32"
    deterministic: bool = False
    autocast: tuple[tuple[str, str], ...] = field(default=())  # (device, dtype) that are on

    def __str__(self) -> str:
        return f"ambient grad={self.grad_enabled} inference={self.inference_mode}" + (
            f" autocast={dict(self.autocast)}" if self.autocast else ""
        )


@dataclass(frozen=True, slots=True)
class _Ambient(Source):
    def __str__(self) -> str:
        return "thread"


AMBIENT: Source = _Ambient()


@dataclass(frozen=True, slots=True)
class _Symbols(Source):
    def __str__(self) -> str:
        return "sizes"


SYMBOLS: Source = _Symbols()


@dataclass(frozen=True, slots=True)
class Guard:
    """`check` must hold of the value at `source`; `reason` says what relied on it."""

    source: Source
    check: Check
    reason: str
    where: SourceLine | None = None

    def __str__(self) -> str:
        return f"{self.source} {self.check}"


def simplified(guards: Iterable[Guard]) -> list[Guard]:
    """The same facts in fewer guards: a class that another check on the same source looks at, or
    can look at on its way, needs no guard of its own; nor is one said twice."""
    given = list(guards)
    numbers = SourceNumbers()
    classes: dict[int, Class] = {}
    for guard in given:
        if isinstance(guard.check, TypeIs):
            classes.setdefault(numbers[guard.source], guard.check.exact_class)
    kept = [_narrowed(guard, classes.get(numbers[guard.source])) for guard in given]
    said = {
        (numbers[guard.source], guard.check.implied_class())
        for guard in kept
        if not isinstance(guard.check, TypeIs)
    }
    found: list[Guard] = []
    for guard in kept:
        if isinstance(guard.check, TypeIs):
            fact = numbers[guard.source], guard.check.implied_class()
            if fact in said:
                continue
            said.add(fact)
        found.append(guard)
    return found


def _narrowed(guard: Guard, exact_class: Class | None) -> Guard:
    check = guard.check if exact_class is None else guard.check.of_class(exact_class)
    return guard if check is guard.check else replace(guard, check=check)
