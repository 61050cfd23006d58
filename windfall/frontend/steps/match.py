"""Native forms of what `match` asks.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from windfall.frontend.bytecode import Instruction
from windfall.frontend.steps.writer import StepWriter, native


@native("MATCH_SEQUENCE", "MATCH_MAPPING")
def _match_kind(writer: StepWriter, instruction: Instruction) -> None:
    function = _is_sequence if instruction.name == "MATCH_SEQUENCE" else _is_mapping
    writer.result(f"{writer.known(function, function.__name__)}({writer.stack[-1]})")


def _is_sequence(subject: Any) -> bool:
    match subject:
        case [*_]:
            return True
    return False


def _is_mapping(subject: Any) -> bool:
    match subject:
        case {}:
            return True
    return False


@native("MATCH_KEYS")
def _match_keys(writer: StepWriter, instruction: Instruction) -> None:
    keys, subject = writer.stack[-1], writer.stack[-2]
    writer.result(f"{writer.known(_values_at, 'values_at')}({subject}, {keys})")


def _values_at(subject: Any, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What a mapping pattern finds."""
    if not keys:
        return ()
    missing, get = object(), subject.get
    seen: set[Any] = set()
    found = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = get(key, missing)
        if value is missing:
            return None
        found.append(value)
    return tuple(found)


@native("MATCH_CLASS")
def _match_class(writer: StepWriter, instruction: Instruction) -> None:
    names, cls, subject = writer.pop(), writer.pop(), writer.pop()
    function = writer.known(_attributes_at, "attributes_at")
    writer.result(f"{function}({subject}, {cls}, {instruction.argument}, {names})")


def _attributes_at(subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
    """What a class pattern finds."""
    return _class_pattern(count, names)(subject, cls)


@functools.cache
def _class_pattern(count: int, names: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    """A `match` statement with one class pattern of so many positions and these keywords."""
    found = [f"found_{index}" for index in range(count + len(names))]
    named = [f"{name}={into}" for name, into in zip(names, found[count:], strict=True)]
    parts = ", ".join([*found[:count], *named])
    result = f"({', '.join(found)},)" if found else "()"
    space: dict[str, Any] = {}
    lines = ("def matched(subject, cls):", " match subject:", f"  case cls({parts}):")
    exec("\n".join((*lines, f"   return {result}", " return None")), space)
    made: Callable[[Any, Any], Any] = space["matched"]
    return made
