"""`nn.Module`: parameters become graph inputs, calls are inlined and open a region.

Enters: modules of the user. Leaves: reads through `__dict__`, `_parameters`, `_buffers`, `_modules`
and the class, in `nn.Module`'s order. Invariant: hooks are never skipped: a module that has any is
called by interpreting torch's own `__call__`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import nn

from windfall import torch_abi
from windfall.directives import StandIn
from windfall.frontend.breaks import ATTRIBUTE_WRITE, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, find
from windfall.frontend.values.function import Function, Method
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.reading import class_name, is_a
from windfall.ir.source import Item, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = tuple(
    f"_global_{kind}" for kind in
    ("backward_pre_hooks", "backward_hooks", "forward_hooks", "forward_pre_hooks")
)  # fmt: skip
_CALL = find(nn.Module, "__call__")
_CALL_IMPL = find(nn.Module, "_call_impl")
_GETATTR = find(nn.Module, "__getattr__")
_SETATTR = find(nn.Module, "__setattr__")
_REGISTER_BUFFER = find(nn.Module, "register_buffer")
_MODULE_GLOBALS: dict[str, Any] = vars(sys.modules[nn.Module.__module__])


def module_path(source: Source | None) -> str:
    """The path of a module from the root: the keys under `_modules` on the way to it."""
    parts: list[str] = []
    while source is not None:
        if isinstance(source, Item) and isinstance(source.of, Item) and source.of.key == "_modules":
            parts.append(str(source.key))
        source = source.base
    return ".".join(reversed(parts))


class Module(Object):
    """An `nn.Module`."""

    __slots__ = ()

    def _registered(self, machine: Machine, name: str) -> Value | None:
        """What stands under a name in one of the registries."""
        for registry in _REGISTRIES:
            items = self.registry(machine, registry)
            found = items.lookup(machine, name) if items is not None else None
            if found is not None:
                return found
        return None

    def _hook_answers(self, machine: Machine, name: str) -> bool:
        """`nn.Module.__getattr__` looks into the registries and runs no code of the user's."""
        if self.cls.find(machine, "__getattr__") is not _GETATTR:
            return super()._hook_answers(machine, name)
        return self._registered(machine, name) is not None

    def registry(self, machine: Machine, name: str) -> Dict | None:
        """`_parameters`, `_buffers` or `_modules`."""
        attributes = self.attributes(machine)
        found = attributes.lookup(machine, name) if attributes is not None else None
        return found if isinstance(found, Dict) else None

    def fallback(self, machine: Machine, name: str) -> Value:
        """As `nn.Module.__getattr__`."""
        if self.cls.find(machine, "__getattr__") is not _GETATTR:
            return super().fallback(machine, name)
        found = self._registered(machine, name)
        if found is not None:
            return found
        text = f"'{self.cls.real.__name__}' object has no attribute '{name}'"
        raise machine.values.no_attribute(self, name, text)

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """Plain attributes and buffers; registering parameters and modules happens natively."""
        self.guard_type(machine)
        if self.cls.find(machine, "__setattr__") is not _SETATTR:
            super().set_attribute(machine, name, value)
            return
        if isinstance(value, Module) or issubclass(value.python_type(), nn.Parameter):
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name} registers a {value.describe()}")
        flagged = isinstance(value, Tensor) and value.is_flagged(machine, "_is_buffer")
        for registry in ("_parameters", "_modules"):
            items = self.registry(machine, registry)
            if items is not None and items.lookup(machine, name) is not None:
                stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name} in {registry}")
        buffers = self.registry(machine, "_buffers")
        if buffers is not None and buffers.lookup(machine, name) is not None:
            self._refuse_registration(machine, name, value)
            if flagged and not self._persists_as_before(machine, name, value):
                stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name} registers a buffer")
            buffers.store(machine, name, value)
            return
        if flagged:
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name} registers a buffer")
        self.store_attribute(machine, name, value)

    def _persists_as_before(self, machine: Machine, name: str, buffer: Value) -> bool:
        """An `nn.Buffer` says itself whether it persists; the module knows of the one before."""
        temporary = self.get_attribute(machine, "_non_persistent_buffers_set")
        was_temporary = temporary.contains(machine, machine.values.literal(name)).truth(machine)
        persistent = buffer.get_attribute(machine, "persistent").truth(machine)
        return isinstance(persistent, bool) and persistent is not was_temporary

    def _refuse_registration(self, machine: Machine, name: str, value: Value) -> None:
        """Writing a buffer registers it anew: by the class's own method, and hooks are asked. Only
        a plain tensor, or None, says nothing about whether it persists (an `nn.Buffer` does)."""
        plain = isinstance(value, Tensor)
        own = self.cls.find(machine, "register_buffer") is _REGISTER_BUFFER
        space = machine.values.globals_dict(_MODULE_GLOBALS, nn.Module.__module__)
        hooks = space.lookup(machine, "_global_buffer_registration_hooks")
        hooked = hooks is None or machine.values.length_of(hooks)
        if hooked or not own or not (plain or value.python_type() is type(None)):
            stop(ATTRIBUTE_WRITE, f"buffer {self.describe()}.{name}")

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """`forward`, where no hook is in the way; else torch's own `__call__`, interpreted."""
        self.guard_type(machine)
        call = self.cls.find(machine, "__call__")
        plain = self._calls_forward(machine) and (call is _CALL or _is_twin(call))
        if not plain or self._has_hooks(machine):
            return super().call(machine, arguments, keywords)
        forward = self.get_attribute(machine, "forward")
        if isinstance(forward, Method) and isinstance(forward.function, Function):
            region = machine.frames.enter_region(module_path(self.source), self.cls.real.__name__)
            function, inner = forward.function, [forward.owner, *arguments]
            return function.inline(machine, inner, keywords, region=region)
        return forward.call(machine, arguments, keywords)

    def _calls_forward(self, machine: Machine) -> bool:
        """Whether what `nn.Module.__call__` calls is torch's own."""
        attributes = self.attributes(machine)
        assert attributes is not None
        if attributes.lookup(machine, "_call_impl") is not None:
            return False
        own = machine.guards.rely_on_answer(nn.Module, "_call_impl")
        return own is _CALL_IMPL and self.cls.find(machine, "_call_impl") is own

    def _has_hooks(self, machine: Machine) -> bool:
        attributes = self.attributes(machine)
        assert attributes is not None
        compiled = attributes.lookup(machine, "_compiled_call_impl")
        if compiled is not None and compiled.as_constant(machine) is not None:
            return True
        for name in _HOOKS:
            hooks = attributes.lookup(machine, name)
            if hooks is None or machine.values.length_of(hooks):
                return True
        space = machine.values.globals_dict(_MODULE_GLOBALS, nn.Module.__module__)
        for name in _GLOBAL_HOOKS:
            hooks = space.lookup(machine, name)
            if hooks is None or machine.values.length_of(hooks):
                return True
        return False


def _is_twin(call: Any) -> bool:
    """Whether `__call__` is that of a compiled module (`twin.py`) of an ordinary one."""
    made = call.__func__ if isinstance(call, staticmethod) else None
    return isinstance(made, StandIn) and find(type(made.target), "__call__") is _CALL


def created(cls: Class) -> Module | None:
    """A module that the program makes; None: no class of modules."""
    return Module(cls) if issubclass(cls.real, nn.Module) else None


@calls(torch_abi.log_api_usage_once)
def _log_api_usage(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Counts features used by a process, once; what it counts has been made before."""
    return machine.values.literal(None)


@wraps_if(40, lambda value: is_a(value, nn.Module))
def _wrap_module(machine: Machine, value: nn.Module, source: Source | None) -> Value:
    cls = machine.values.known(type(value), class_name(type(value)))
    assert isinstance(cls, Class)
    source = source or Known(value, type(value).__name__)
    return machine.values.remember(value, Module(cls, source, value))
