"""The names by which CPython's messages call a class.

Enters: a class, maybe of the user. Leaves: its name as in `'collections.deque' object has no
attribute 'x'`: classes of C have their module before them, those of Python have not. Invariant: no
user code runs.
"""

from __future__ import annotations

_ABSENT_NAME = "\0"  # no class has an attribute of this name
_own_name = vars(type)["__name__"].__get__


def short_name(cls: type) -> str:
    """As messages about attributes show it: long names are cut."""
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
