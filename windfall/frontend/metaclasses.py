"""Questions about classes that are not put to their metaclasses.

Enters: a class, maybe of the user. Leaves: whether it is one of some others; the name by which
CPython's messages call it. Invariant: no user code runs: `cls in (int, str)` would ask the `__eq__`
of its metaclass.
"""

from __future__ import annotations

from collections.abc import Iterable

_ABSENT_NAME = "\0"  # no class has an attribute of this name
_own_name = vars(type)["__name__"].__get__


def is_among(cls: type, classes: Iterable[type]) -> bool:
    """Whether it is one of these, by identity."""
    return any(cls is one for one in classes)


def short_name(cls: type) -> str:
    """As in `'collections.deque' object has no attribute 'x'`: classes of C have their module
    before them, those of Python have not, and long names are cut."""
    try:
        type.__getattribute__(cls, _ABSENT_NAME)
    except AttributeError as error:
        return str(error).removeprefix("type object '").partition("' has no attribute")[0]
    raise AssertionError("a class has an attribute without a name")


def full_name(cls: type) -> str:
    """Not cut, where it is a class of Python."""
    own: str = _own_name(cls)
    short = short_name(cls)
    return own if own.startswith(short) else short
