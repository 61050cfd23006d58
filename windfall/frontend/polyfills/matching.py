"""What `match` asks of a class pattern, as Python."""

from __future__ import annotations

from typing import Any


def match_class(subject: Any, cls: Any, count: int, names: Any) -> Any:
    """The attributes that a class pattern asks for, or None where it does not match."""
    if not isinstance(subject, cls):
        return None
    found = []
    asked = []
    if count:
        fields = match_fields(cls, count)
        if fields is None:
            found.append(subject)
        else:
            asked.extend(fields)
    asked.extend(names)
    for place in range(len(asked)):
        name = asked[place]
        if name in asked[:place]:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        value = getattr(subject, name, MISSING)
        if value is MISSING:
            return None
        found.append(value)
    return (*found,)


def match_fields(cls: Any, count: int) -> Any:
    """The attributes of so many positional sub-patterns; None: the one is the subject itself."""
    fields = getattr(cls, "__match_args__", MISSING)
    whole = fields is MISSING and issubclass(cls, MATCHED_WHOLE)
    fields = () if fields is MISSING else fields
    if type(fields) is not tuple:
        got = type(fields).__name__
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {got})")
    given = 1 if whole else len(fields)
    if count > given:
        what = "positional sub-pattern" if given == 1 else "positional sub-patterns"
        raise TypeError(f"{cls.__name__}() accepts {given} {what} ({count} given)")
    for name in fields[:count]:
        if type(name) is not str:
            got = type(name).__name__
            raise TypeError(f"__match_args__ elements must be strings (got {got})")
    return None if whole else fields[:count]


class Missing:
    """Stands for an attribute that is not there."""


MISSING = Missing()
# Classes whose one positional sub-pattern is the subject itself, as that of what derives from them.
MATCHED_WHOLE = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
