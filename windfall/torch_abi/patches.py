"""What stands in torch's own tables of functions, where somebody may have put something else.

Enters: nothing. Leaves: each name under which another function of torch, or of the standard
library, stands than the one that is called so; and each under which something stands that is of
neither. Functions of torch call each other through these tables (`F.layer_norm` calls
`torch.layer_norm`), so a patch shapes what is made of a call although nothing in it is named.
Invariant: nothing is run, and names that are only loaded late make no difference.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any

import torch
import torch._VF
import torch.fft
import torch.functional
import torch.linalg
import torch.nn.functional
import torch.special

from windfall.dataclass import dataclass

_TABLES: dict[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.functional": torch.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch._VF": torch._VF,
    "torch._C._nn": torch._C._nn,
    "torch._C._special": torch._C._special,  # type: ignore[attr-defined]
    "torch._C._linalg": torch._C._linalg,  # type: ignore[attr-defined]
    "torch._C._fft": torch._C._fft,  # type: ignore[attr-defined]
    "torch.ops.aten": torch.ops.aten,
}

# Whose things are told by versions and by our own text.
_KNOWN = (frozenset(sys.stdlib_module_names) - {"__main__"}) | {
    "torch", "typing_extensions", "windfall",
}  # fmt: skip

# What others often put something else for, and no operation asks for.
_NO_OPERATIONS = ("torch.compile", "torch.load", "torch.save")

_NAMED = frozenset(
    (
        types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
        types.WrapperDescriptorType, types.GetSetDescriptorType,
    )
)  # fmt: skip
_INSIDE = {property: "fget", classmethod: "__func__", staticmethod: "__func__"}


@dataclass(frozen=True, slots=True)
class Patches:
    """`moved`: names with what stands there instead; `foreign`: names that are the user's."""

    moved: tuple[str, ...]
    foreign: tuple[str, ...]


def patched_functions() -> Patches:
    """What is patched now."""
    held = [value for table in _TABLES.values() for value in list(vars(table).values())]
    seen, found = _last[0]
    if found is None or len(held) != len(seen) or not all(map(operator.is_, held, seen)):
        found = _look()
        _last[0] = (held, found)
    return found


def _look() -> Patches:
    moved, foreign = [], []
    for table, owner in _TABLES.items():
        for name, value in list(vars(owner).items()):
            inner = getattr(value, _INSIDE[type(value)]) if type(value) in _INSIDE else value
            if not callable(inner) or type(inner) is types.ModuleType:
                continue  # of constants there is nothing to tell, modules are loaded when needed
            if f"{table}.{name}" in _NO_OPERATIONS:
                continue
            home = _home(inner)
            if home.partition(".")[0] not in _KNOWN:
                foreign.append(f"{table}.{name}")
            elif type(inner) in _NAMED and inner.__name__ not in (name, f"{table[6:]}_{name}"):
                moved.append(f"{table}.{name} is {home}:{inner.__qualname__}")
    return Patches(tuple(sorted(moved)), tuple(sorted(foreign)))


def _home(value: Any) -> str:
    """The module whose text says what it does. (`functools.wraps` copies names, but no globals.)"""
    kind = type(value)
    if kind is types.FunctionType:
        return str(value.__globals__.get("__name__"))
    if kind is functools.partial or kind is types.MethodType:
        return "?"  # its parts may be anyone's
    if kind in _NAMED:
        return str(getattr(value, "__module__", None) or "builtins")
    if issubclass(kind, type):
        return str(vars(value).get("__module__") or "builtins")
    return kind.__module__


# The last look: what stood there then, and what was found.
_last: list[tuple[list[Any], Patches | None]] = [([], None)]
