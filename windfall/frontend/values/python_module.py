"""Modules of Python as values: their globals, read and written as attributes.

Enters: a module. Leaves: values of its names, guards on its dictionary. Invariant: a module whose
class has attributes of its own is asked as an object would be. (`torch.nn` modules: `module.py`.)
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import torch.backends

from windfall.frontend.breaks import ATTRIBUTE_WRITE, UNKNOWN_ATTRIBUTE, stop
from windfall.frontend.values.base import ByIdentity, Given, Value
from windfall.frontend.values.class_value import find, goes_first, relied
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.guard import ABSENT, IdentityIs
from windfall.ir.reading import dict_of, is_a
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


_MODULE_GETTER = find(types.ModuleType, "__getattribute__")
_MODULE_SETTER = find(types.ModuleType, "__setattr__")


class PythonModule(ByIdentity, Given):
    """A module of Python: its globals are its attributes."""

    __slots__ = ("_globals",)

    def __init__(self, real: types.ModuleType, source: Source) -> None:
        super().__init__(real, source)
        self._globals: Dict | None = None

    def describe(self) -> str:
        """Its name, past any hook of its class."""
        return f"module {_module_name(self.real)}"

    def globals(self, machine: Machine) -> Dict:
        """Its dictionary; relies on its being this very module."""
        if self._globals is None:
            self.guard(machine, "identity", IdentityIs(self.real))
            space = dict_of(self.real)
            self._globals = machine.values.globals_dict(space, str(space.get("__name__")))
        return self._globals

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """A global; a module's `__getattr__` and what its class computes run natively."""
        space = self.globals(machine)
        kind = type(self.real)
        if self.source is not None:
            self.guard_type(machine)
        if kind is not types.ModuleType:
            if relied(machine, kind, "__getattribute__") is not _MODULE_GETTER:
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, by a hook of its class")
            raw = relied(machine, kind, name)
            if type(raw) is torch.backends.ContextProp:  # a flag: it calls its reader
                flag = machine.values.known(raw, name)
                return flag.get_attribute(machine, "getter").call(machine, [], {})
            if raw is not ABSENT and goes_first(machine, raw):
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        found = space.lookup(machine, name)
        if found is not None:
            return found
        if relied(machine, kind, name) is not ABSENT or (
            space.lookup(machine, "__getattr__") is not None
        ):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        text = f"module '{_module_name(self.real)}' has no attribute '{name}'"
        raise machine.values.no_attribute(self, name, text)

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """A global; what its class has a say in (`__class__`, `__dict__`) is written natively."""
        kind = type(self.real)
        if self.source is not None:
            self.guard_type(machine)
        raw = relied(machine, kind, name)
        described = raw is not ABSENT and goes_first(machine, raw)
        if described or relied(machine, kind, "__setattr__") is not _MODULE_SETTER:
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
        self.globals(machine).store(machine, name, value)


def _module_name(module: types.ModuleType) -> str:
    return str(dict_of(module).get("__name__"))


@wraps_if(30, lambda value: is_a(value, types.ModuleType))
def _wrap_module(machine: Machine, value: types.ModuleType, source: Source | None) -> Value:
    return machine.values.remember(
        value, PythonModule(value, source or Known(value, _module_name(value)))
    )
