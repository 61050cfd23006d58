"""The standard library's iterators, heaps and orderings: rows that send calls to polyfills.

Enters: calls of `itertools`, `heapq`, `functools`, `sorted`, `min`, `max`. Leaves: values, or
frames of the Python functions in `polyfills/` that are interpreted in their place. Invariant: what
depends on constants only is computed by CPython itself.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.bounds import admit, admit_values, chosen_count, product_count
from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.polyfills import iterators, ordering
from windfall.frontend.values import number_calls
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls, calls_of
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.constant import Constant, fold
from windfall.frontend.values.function import Function
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.iterator import ForeignIterator, Iterator
from windfall.frontend.values.objects import Opaque
from windfall.frontend.values.ranges import Range
from windfall.frontend.values.sequence import List, SequenceValue
from windfall.frontend.values.unseen import look
from windfall.ir.guard import IdentityIs, LengthIs
from windfall.ir.reading import dict_of
from windfall.ir.source import Attribute, CellContents, Item

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_POLYFILLED: dict[Any, str] = {
    itertools.chain: "chain",
    itertools.chain.from_iterable: "chain_from_iterable",
    itertools.islice: "islice",
    itertools.accumulate: "accumulate",
    itertools.pairwise: "pairwise",
    itertools.cycle: "cycle",
    itertools.starmap: "starmap",
    itertools.takewhile: "takewhile",
    itertools.dropwhile: "dropwhile",
    itertools.filterfalse: "filterfalse",
    itertools.compress: "compress",
    itertools.zip_longest: "zip_longest",
    itertools.tee: "tee",
    itertools.groupby: "groupby",
    itertools.product: "product",
    itertools.permutations: "permutations",
    itertools.combinations: "combinations",
    itertools.combinations_with_replacement: "combinations_with_replacement",
    functools.reduce: "reduce",
    heapq.heapify: "heapify",
    heapq.heappush: "heappush",
    heapq.heappop: "heappop",
    heapq.heapreplace: "heapreplace",
    heapq.heappushpop: "heappushpop",
}


def _polyfilled(name: str) -> Callable[[Machine, Arguments, Keywords], Value]:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        _admit_items(machine, name, arguments, keywords)
        if name in ("tee", "groupby") and arguments and _is_opaque(arguments[0]):
            stop(UNKNOWN_CALL, f"{name} of {arguments[0].describe()}")
        return machine.values.polyfill(name, arguments, keywords)

    return rule


def _is_opaque(iterable: Value) -> bool:
    """Whether only CPython can ask it for its iterator, or can copy that (`tee` would)."""
    if isinstance(iterable, ForeignIterator):
        return hasattr(type(iterable.real), "__copy__")
    if isinstance(iterable, Generator):
        return hasattr(iterable.made_of, "__copy__")
    return isinstance(iterable, Opaque)


def _admit_items(machine: Machine, name: str, arguments: Arguments, keywords: Keywords) -> None:
    """Refuse iterators that are known to give too many items, though their arguments are few."""
    if name == "islice":
        ends = [one.value for one in arguments[1:] if isinstance(one, Constant)]
        admit(machine, max((end for end in ends if type(end) is int), default=0), name)
        return
    counts = [one.known_length() for one in arguments]
    if name == "product":
        repeat = keywords.get("repeat")
        times = repeat.value if isinstance(repeat, Constant) else 1
        if isinstance(times, int) and None not in counts:
            admit(machine, product_count([count or 0 for count in counts], times), name)
    elif name in _CHOICES and counts and counts[0] is not None:
        length = arguments[1] if len(arguments) > 1 else keywords.get("r")
        chosen = length.value if isinstance(length, Constant) else None
        if chosen is None or isinstance(chosen, int):
            admit(machine, chosen_count(name, counts[0], chosen), name)


_CHOICES = ("permutations", "combinations", "combinations_with_replacement")


for _function, _name in _POLYFILLED.items():
    calls(_function)(_polyfilled(_name))


@calls(iterators.places_of)
def _places_of(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return fold(machine, iterators.places_of, arguments, keywords)


# ------------------------------------------------------------------------------------- orderings


@calls(sorted)
def _sorted(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) != 1 or set(keywords) - {"key", "reverse"}:
        stop(ARGUMENTS, "sorted")
    admit_values(machine, arguments)
    given = look(arguments[0])
    if not keywords and isinstance(given, SequenceValue) and given.is_constant():
        order = fold(machine, _order, [given, machine.values.literal(False)], {})
        items = given.items(machine)  # the very objects, in order
        return List([items[place] for place in order.as_constant(machine)])
    if not keywords and isinstance(given, Constant | Range):
        return fold(machine, sorted, arguments, {})
    return machine.values.polyfill("sorted", arguments, keywords)


def _holds_containers(machine: Machine, values: Arguments) -> bool:
    """Whether what is chosen among is objects with an identity: then these are answered."""
    for one in values:
        if isinstance(one, SequenceValue):
            if any(not isinstance(item, Constant) for item in one.items(machine)):
                return True
        elif not isinstance(one, Constant | Range):
            return True
    return False


@calls(ordering.order_of)
def _order_of(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """By CPython where the keys are constants."""
    keys, reverse = arguments
    assert isinstance(keys, SequenceValue), "sorted has made a list of them"
    if all(one.is_constant() for one in keys.items(machine)):
        return fold(machine, _order, [keys, reverse], {})
    function = machine.values.known(ordering.order_of, "order_of")
    assert isinstance(function, Function)
    return function.inline(machine, arguments, keywords)


def _order(keys: list[Any], reverse: bool) -> list[int]:
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)


def _itself(machine: Machine, found: Value, among: list[Value]) -> Value:
    """One that is from outside is the object that it is, not another of its value."""
    if not isinstance(found, Constant):
        return found
    for one in among:
        for item in one.unpack(machine) if isinstance(one, SequenceValue) else (one,):
            if item.source is not None and item.as_constant(machine) is found.value:
                return item
    return found


def _extreme(function: Any) -> None:
    name = function.__name__

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        values = machine.values
        everything = [*arguments, *keywords.values()]
        admit_values(machine, arguments if len(arguments) == 1 else ())
        varies = None if keywords else number_calls.builtin(machine, function, arguments)
        if varies is not None:
            return varies
        chosen: Arguments = [*arguments] if len(arguments) == 1 else [values.tuple(arguments)]
        known = all(one.is_constant() for one in everything)
        if not arguments or (known and not _holds_containers(machine, chosen)):
            return _itself(machine, fold(machine, function, arguments, keywords), everything)
        if set(keywords) - {"key", "default"} or (len(arguments) > 1 and "default" in keywords):
            stop(ARGUMENTS, name)
        none = values.literal(None)
        return values.polyfill(
            "extreme",
            [
                values.literal(name),
                arguments[0] if len(arguments) == 1 else values.tuple(arguments),
                keywords.get("key", none),
                values.literal(function is max),
                values.literal("default" in keywords),
                keywords.get("default", none),
            ],
        )

    calls(function)(rule)


_extreme(min)
_extreme(max)


# ---------------------------------------------------------------------- iterators of known state


class Repeat(Iterator):
    """`itertools.repeat`; `left` None: for ever."""

    __slots__ = ("item", "left")
    made_of = itertools.repeat

    def __init__(self, item: Value, left: int | None) -> None:
        super().__init__()
        self.item = item
        self.left = left

    def advance(self, machine: Machine) -> Value | None:
        """The same item."""
        before = self.left
        if before is None:
            return self.item
        if before <= 0:
            return None

        def restore() -> None:
            self.left = before

        machine.effects.undo(restore)
        self.left = before - 1
        return self.item

    def known_length(self) -> int | None:
        """What is left."""
        return self.left

    def unpack(self, machine: Machine) -> list[Value]:
        """What is left, if that ends."""
        if self.left is None:
            stop(UNKNOWN_OPERATION, "all of an endless iterator")
        return super().unpack(machine)

    def rebuild(self, recipe: Recipe) -> str:
        """With what is left."""
        left = "" if self.left is None else f", {self.left}"
        return f"{recipe.known(itertools.repeat, 'repeat')}({recipe.name(self.item)}{left})"


class Count(Iterator):
    """`itertools.count`, of constants."""

    __slots__ = ("present", "step")
    made_of = itertools.count

    def __init__(self, present: Value, step: Value) -> None:
        super().__init__()
        self.present = present
        self.step = step

    def advance(self, machine: Machine) -> Value | None:
        """The present number."""
        before = self.present
        after = before.binary(machine, "+", self.step)
        if after is None:
            stop(UNKNOWN_OPERATION, f"count by {self.step.describe()}")

        def restore() -> None:
            self.present = before

        machine.effects.undo(restore)
        self.present = after
        return before

    def unpack(self, machine: Machine) -> list[Value]:
        """It never ends."""
        stop(UNKNOWN_OPERATION, "all of an endless iterator")

    def rebuild(self, recipe: Recipe) -> str:
        """From the present number."""
        make = recipe.known(itertools.count, "count")
        return f"{make}({recipe.name(self.present)}, {recipe.name(self.step)})"


@calls(itertools.repeat)
def _repeat(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    named = dict(zip(("object", "times"), arguments, strict=False)) | keywords
    if set(named) - {"object", "times"} or "object" not in named or len(arguments) > 2:
        stop(ARGUMENTS, "repeat")
    times = named.get("times")
    return Repeat(named["object"], max(0, times.as_constant(machine)) if times else None)


@calls(itertools.count)
def _count(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    named = dict(zip(("start", "step"), arguments, strict=False)) | keywords
    if set(named) - {"start", "step"} or len(arguments) > 2:
        stop(ARGUMENTS, "count")
    start, step = (
        named.get("start", machine.values.literal(0)),
        named.get("step", machine.values.literal(1)),
    )
    if not start.is_constant() or not step.is_constant():
        stop(UNKNOWN_OPERATION, f"count from {start.describe()} by {step.describe()}")
    return Count(start, step)


# -------------------------------------------------------------------------------- singledispatch


def _probe(value: Any) -> Any:
    return value


_DISPATCH = functools.singledispatch(_probe).dispatch


def _stands_for(value: Value, *objects: Any) -> bool:
    real = getattr(value, "real", None)
    return any(real is one for one in objects)


@calls_of(_DISPATCH)
def _dispatch(
    machine: Machine, function: Function, arguments: Arguments, keywords: Keywords
) -> Value:
    """Which implementation a class gets: asked of the function itself, whose only effect is its
    cache. What is registered is relied upon."""
    (cls,) = arguments
    if function.real is None or function.source is None:
        stop(UNKNOWN_OPERATION, "dispatch by class, of a function that is made here")
    names = function.code.co_freevars
    cells = function.real.__closure__ or ()
    held = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    registry = held.get("registry")
    if not isinstance(cls, Class) or keywords or type(registry) is not dict:
        stop(UNKNOWN_OPERATION, "dispatch by class")
    if held.get("cache_token") is not None:
        stop(UNKNOWN_OPERATION, "dispatch by abstract classes")
    cls.rely(machine)
    function.rely(machine)
    place = Item(Attribute(function.source, "__closure__"), names.index("registry"))
    source = CellContents(place)
    machine.guards.add(source, IdentityIs(registry), "dispatch by class")
    machine.guards.add(source, LengthIs(len(registry)), "dispatch by class")
    for one, implementation in registry.items():
        machine.guards.add(Item(source, one), IdentityIs(implementation), "dispatch by class")
    # What was registered in this very capture is not there yet, and the cache will change.
    cached = dict_of(held["dispatch_cache"]).get("data", registry)
    if any(_stands_for(one, registry, cached) for one in machine.values.from_outside()):
        stop(UNKNOWN_OPERATION, "dispatch by class beside a look at what is registered")
    chosen = function.real(cls.real)
    where = next(one for one, implementation in registry.items() if implementation is chosen)
    return machine.values.wrap(chosen, Item(source, where))
