"""A compiled module: a twin of the original that shares its `__dict__`.

Enters: a `torch.nn.Module` and the compiled callable made of it. Leaves: an object of a subclass of
the module's own class, whose `__call__` is the compiled one. Invariant: there is one state: what is
done to either (`train`, `to`, `load_state_dict`, a hook, a new attribute) is done to both, and the
keys of `state_dict` are the original's. Copying or pickling a twin copies the original and compiles
the copy when it is first called.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch

_ORIGINAL = "_windfall_original_"  # class attributes of a twin's class, so not in the state
_COMPILED = "_windfall_compiled_"


def module_twin(
    module: torch.nn.Module,
    compiled: Callable[..., Any],
    again: Callable[[torch.nn.Module], torch.nn.Module],
) -> torch.nn.Module:
    """A twin of `module` whose call is `compiled`; `again` compiles a copy in the same way."""
    original = type(module)

    def reduce(twin: torch.nn.Module, protocol: Any) -> Any:
        return again, (module,)

    def make(kind: type, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)  # `type(twin)(...)` makes another module, not a twin

    members: dict[str, Any] = {
        **_slots(module),
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__new__": make,
        "__class__": property(lambda twin: type(module), _set_class),
        "__call__": _call_of(compiled),
        "__reduce_ex__": reduce,
        "__copy__": lambda twin: again(copy.copy(module)),
        "__deepcopy__": lambda twin, memo: again(copy.deepcopy(module, memo)),
        "_orig_mod": module,  # as torch.compile's wrapper has it, for those who unwrap
        _ORIGINAL: module,
        _COMPILED: compiled,
    }
    kind: type[torch.nn.Module] = type(original.__name__, (_Quiet, original), members)
    twin: torch.nn.Module = object.__new__(kind)
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin


class _Quiet:
    """The class of a twin is nothing that a user's `__init_subclass__` should hear of."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        pass


def _set_class(twin: Any, kind: type) -> None:
    original_of(twin).__class__ = kind


def _slots(module: torch.nn.Module) -> dict[str, property]:
    """State that is not in `__dict__`: read and written where the original has it."""

    def shared(name: str) -> property:
        return property(
            lambda twin: getattr(module, name),
            lambda twin, value: setattr(module, name, value),
            lambda twin: delattr(module, name),
        )

    found = {name: one for base in type(module).__mro__ for name, one in vars(base).items()}
    return {
        name: shared(name)
        for name, one in found.items()
        if isinstance(one, types.MemberDescriptorType)
    }


def _call_of(compiled: Callable[..., Any]) -> Any:
    """What stands as `__call__` of the class: it is not bound, the callable knows its module."""
    return staticmethod(compiled)


def original_of(value: Any) -> Any:
    """The module behind a twin; anything else is itself."""
    return getattr(type(value), _ORIGINAL, value)


def compiled_of(value: Any) -> Any:
    """The compiled callable behind a twin, if it is one."""
    return getattr(type(value), _COMPILED, None)
