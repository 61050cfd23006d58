"""Doors that open when they are first used: a package's names, each with the module that has it.

Enters: the name of a package and the table of its names. Leaves: its `__getattr__` and `__dir__`
(PEP 562). Invariant: a name is looked up once; from then on it is an attribute of the package. The
lock of the import system orders threads, as with any import.

A package with such a door costs nothing until it is needed: `import windfall` loads no room, an
inference no engine, no graph trees and none of the autograd node. What a type checker sees stands
beside the table, and a test holds the two equal (`tests/test_doors.py`). No name may be that of a
module of the package: once loaded, the module would stand in its place. Such names are imported as
usual; who needs such a package late asks a `Room` for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from importlib import import_module
from typing import Any

from windfall.collector import at_rest


class Room:
    """A package that is loaded when something of it is first asked for."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = sys.modules.get(self._name)
        if found is None:
            with at_rest():
                found = import_module(self._name)
        return getattr(found, name)

    def __repr__(self) -> str:
        return f"<the room {self._name}>"


def door(
    package: str, names: Mapping[str, str], alone: Container[str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, whose names stand in these modules of it. With
    `alone`, the first use of a name of any other module binds all names: whatever reads the
    package as data from then on (a capture does) finds plain attributes."""

    def attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        single = alone is None or names[name] in alone
        with at_rest():
            for one in (name,) if single else names:
                value = getattr(import_module(f"{package}.{names[one]}"), one)
                setattr(sys.modules[package], one, value)
        return vars(sys.modules[package])[name]

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return attribute, listing
