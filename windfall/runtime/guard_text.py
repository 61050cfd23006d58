"""The Python tier of a guard check: generated text, shown to people and run where need be.

Enters: guards and the names of the slots. Leaves: the text of a function `check(*slots) -> bool`
and that function. Invariant: it raises nothing but what is none of its business (an interrupt);
a source that cannot be read any more is a guard that does not hold. Sizes that vary are variables
of the function: set where a guard binds them, compared after all are set.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from windfall import torch_abi
from windfall.errors import InternalError
from windfall.ir import reading
from windfall.ir.guard import Guard, Holds, symbol_of
from windfall.ir.source import AMBIENT, Derived, Known, Slot, Source, SourceNumbers
from windfall.ir.symint import Atom, Expression, Size, bounds, substitute, symbol, symbols_of


class _Text:
    """The Python text of a check under construction, and the names that it uses."""

    def __init__(self, slot_names: Sequence[str], guards: Sequence[Guard]) -> None:
        self._symbols = _symbol_names(guards)
        self._renamed: dict[Atom, Size] = {
            atom: symbol(name) for atom, name in self._symbols.items() if name != atom.key
        }
        self._bound: set[Atom] = set()
        self._after: list[str] = []  # what is compared once all symbols are bound
        self.slots = _parameter_names(slot_names, {*self._symbols.values(), *_FUNCTIONS})
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self._numbers = SourceNumbers()
        self._read: dict[int, str] = {}  # by the number of the source
        self._counts: Counter[str] = Counter()
        self._names: dict[int, str] = {}  # by the identity of what the namespace holds

    def name_of(self, value: Any, hint: str) -> str:
        """The name of an object in the text."""
        name = self._names.get(id(value))
        if name is None:
            self._counts[hint] += 1
            name = self._names[id(value)] = f"{hint}_{self._counts[hint]}"
            self.namespace[name] = value
        return name

    def _call(self, function: Callable[..., Any], *arguments: str) -> str:
        self.namespace[function.__name__] = function
        return f"{function.__name__}({', '.join(arguments)})"

    def read(self, source: Source) -> str:
        """The name of a variable that holds the value at `source`."""
        if isinstance(source, Slot):
            return self.slots[source.index]
        if isinstance(source, Known):
            return self.name_of(source.value, "known")
        number = self._numbers[source]
        found = self._read.get(number)
        if found is None:
            step = self._step(source)
            found = self._read[number] = f"value_{len(self._read) + 1}"
            self.lines.append(f"{found} = {step}")
        return found

    def _step(self, source: Source) -> str:
        if source is AMBIENT:
            return self._call(torch_abi.ambient)
        if not isinstance(source, Derived):
            everything = f"({', '.join(self.slots)},)" if self.slots else "()"
            return f"{self.name_of(source, 'source')}.read({everything})"
        written = (
            repr(one) if type(one) in (int, str, bool, type(None)) else self.name_of(one, "key")
            for one in source.operands
        )
        return self._call(type(source).reader, self.read(source.base), *written)

    def guard(self, guard: Guard) -> None:
        """Append the lines that check one guard."""
        reason = f": {guard.reason}" if guard.reason else ""
        comment = f"# {guard}{reason}".replace("\n", " ")
        check = guard.check
        if isinstance(check, Holds):
            one = check.relation
            self._later(comment, f"{self._size(one.left)} {one.operation} {self._size(one.right)}")
            return
        self.lines.append(comment)
        value = self.read(guard.source)
        arguments = ", ".join([value, *map(self.read, check.reads())])
        self.lines.append(f"if not {self.name_of(check, 'check')}.holds({arguments}): return False")
        for place, wanted in check.numbers(guard.source):
            text = value if place is guard.source else self._step(place)
            self._number(text, wanted, str(place))

    def _number(self, text: str, wanted: Expression, shown: str) -> None:
        """Bind a symbol to a number, or compare the number once all symbols are bound."""
        atom = symbol_of(wanted)
        if atom is None or atom in self._bound:
            self._later(f"# {shown} == {wanted}", f"{text} == {self._size(wanted)}")
            return
        self._bound.add(atom)
        name = self._symbols[atom]
        low, high = bounds(wanted)
        condition = _RANGES[low is not None, high is not None].format(name=name, low=low, high=high)
        shown_range = condition.removeprefix(name) if high is None else f", {condition}"
        self.lines.append(f"{name} = {text}  # {shown} == {name}{shown_range}")
        if condition:
            self.lines.append(f"if not {condition}: return False")

    def _later(self, comment: str, condition: str) -> None:
        self._after += [comment, f"if not {condition}: return False"]

    def _size(self, size: Size) -> str:
        """The text of an expression; that of `ir` is Python."""
        return str(substitute(size, self._renamed))

    def function(self, guards: Iterable[Guard]) -> str:
        """The text of the function `check`."""
        for guard in guards:
            self.guard(guard)
        unbound = [name for atom, name in self._symbols.items() if atom not in self._bound]
        if unbound:
            raise InternalError(f"no guard binds {', '.join(unbound)}")
        body = "".join(f"        {line}\n" for line in (*self.lines, *self._after))
        self.namespace["UNREADABLE"] = reading.UNREADABLE
        return (
            f"def check({', '.join(self.slots)}):\n    try:\n{body}        return True\n"
            "    except UNREADABLE:\n        return False\n"
        )


# What the text calls: no parameter may hide it.
_FUNCTIONS = frozenset(
    one.__name__
    for one in (
        reading.dict_of,
        reading.item,
        reading.attribute,
        reading.cell_contents,
        reading.bound_to,
        reading.by_method,
        reading.keys_of,
        reading.size,
        reading.stride,
        reading.scalar_of,
        torch_abi.ambient,
        type,
        min,
        max,
    )
) | {"UNREADABLE"}


# What the text calls its own: `check_1`, `value_2`, `slot_0`.
_TAKEN = re.compile(r"_|.*_[0-9]+$")


def _parameter_names(names: Sequence[str], taken: Iterable[str]) -> tuple[str, ...]:
    chosen: list[str] = []
    used = set(taken)
    for index, name in enumerate(names):
        usable = name.isidentifier() and not keyword.iskeyword(name) and name not in used
        chosen.append(name if usable and not _TAKEN.match(name) else f"slot_{index}")
        used.add(chosen[-1])
    return tuple(chosen)


def symbols_in(guard: Guard) -> frozenset[Atom]:
    """The symbols that a guard speaks of."""
    return frozenset[Atom]().union(*map(symbols_of, guard.check.sizes()))


# How a range is written, by whether it has a least and a greatest value.
_RANGES = {
    (False, False): "",
    (True, False): "{name} >= {low}",
    (False, True): "{name} <= {high}",
    (True, True): "{low} <= {name} <= {high}",
}
_SYMBOL_NAME = re.compile("[A-Za-z]+[0-9]+")  # no function and no other variable is called so


def _symbol_names(guards: Iterable[Guard]) -> dict[Atom, str]:
    """For each symbol the name of its variable: its own, where that can be."""
    found: dict[Atom, str] = {}
    for guard in guards:
        for atom in sorted(symbols_in(guard) - found.keys(), key=str):
            plain = _SYMBOL_NAME.fullmatch(atom.key) and atom.key not in found.values()
            found[atom] = atom.key if plain else f"symbol_{len(found) + 1}"
    return found


def slot_names(guards: Iterable[Guard], slot_count: int) -> list[str]:
    names = [f"slot_{index}" for index in range(slot_count)]
    for guard in guards:
        source: Source | None = guard.source
        while source is not None:
            if isinstance(source, Slot) and source.index < slot_count:
                names[source.index] = source.name
            source = source.base
    return names


def check_text(guards: Sequence[Guard], names: Sequence[str]) -> str:
    """The check as text, for people."""
    return _Text(names, guards).function(guards)


def python_check(guards: Sequence[Guard], names: Sequence[str]) -> Callable[..., bool]:
    """The function that the text of the check defines."""
    text = _Text(names, guards)
    written = text.function([guard.weakly() for guard in guards])
    exec(compile(written, "<windfall guards>", "exec"), text.namespace)
    check: Callable[..., bool] = text.namespace["check"]
    return check
