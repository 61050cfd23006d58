"""The Python tier of a guard check: generated text, shown to people and run where need be.

Enters: guards and the names of the slots. Leaves: the text of a function `check(*slots) -> bool`
and that function. Invariant: it raises nothing but what is none of its business (an interrupt);
a source that cannot be read any more is a guard that does not hold.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from windfall.errors import InternalError
from windfall.ir.guard import AmbientIs, Guard, SameObjects
from windfall.ir.source import Known, Slot, Source
from windfall.runtime import reading


class _Text:
    """The Python text of a check under construction, and the names that it uses."""

    def __init__(self, slot_names: Sequence[str]) -> None:
        self.slots = _parameter_names(slot_names)
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self._numbers = reading.SourceNumbers()
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
        reader = reading.READERS.get(type(source))
        if reader is None or source.base is None:
            everything = f"({', '.join(self.slots)},)" if self.slots else "()"
            return self._call(reading.read, self.name_of(source, "source"), everything)
        arguments = reading.READER_ARGUMENTS.get(type(source), lambda _: ())(source)
        written = (
            repr(one) if type(one) in (int, str, bool, type(None)) else self.name_of(one, "key")
            for one in arguments
        )
        return self._call(reader, self.read(source.base), *written)

    def guard(self, guard: Guard) -> None:
        """Append the lines that check one guard."""
        reason = f": {guard.reason}" if guard.reason else ""
        self.lines.append(f"# {guard}{reason}".replace("\n", " "))
        check = guard.check
        predicate = reading.PREDICATES.get(type(check))
        if predicate is None:
            raise InternalError(f"no predicate for {type(check).__name__}: {guard}")
        value = "None" if isinstance(check, AmbientIs) else self.read(guard.source)
        arguments = [value, self.name_of(check, "check")]
        if isinstance(check, SameObjects):
            arguments.append(f"[{', '.join(map(self.read, check.others))}]")
        self.lines.append(f"if not {self._call(predicate, *arguments)}: return False")

    def function(self, guards: Iterable[Guard]) -> str:
        """The text of the function `check`."""
        for guard in guards:
            self.guard(guard)
        body = "".join(f"        {line}\n" for line in self.lines)
        self.namespace["UNREADABLE"] = reading.UNREADABLE
        return (
            f"def check({', '.join(self.slots)}):\n    try:\n{body}        return True\n"
            "    except UNREADABLE:\n        return False\n"
        )


def _parameter_names(names: Sequence[str]) -> tuple[str, ...]:
    chosen: list[str] = []
    for index, name in enumerate(names):
        usable = name.isidentifier() and not keyword.iskeyword(name) and name not in chosen
        chosen.append(name if usable and "_" not in name[:1] else f"slot_{index}")
    return tuple(chosen)


def slot_names(guards: Iterable[Guard], slot_count: int) -> list[str]:
    names = [f"slot_{index}" for index in range(slot_count)]
    for guard in guards:
        source: Source | None = guard.source
        while source is not None:
            if isinstance(source, Slot) and source.index < slot_count:
                names[source.index] = source.name
            source = source.base
    return names


def check_text(guards: Iterable[Guard], names: Sequence[str]) -> str:
    """The check as text, for people."""
    return _Text(names).function(guards)


def python_check(guards: Iterable[Guard], names: Sequence[str]) -> Callable[..., bool]:
    """The function that the text of the check defines."""
    text = _Text(names)
    written = text.function(guards)
    exec(compile(written, "<windfall guards>", "exec"), text.namespace)
    check: Callable[..., bool] = text.namespace["check"]
    return check
