"""A compiled module: a twin of the original that shares its `__dict__`.

Enters: a `torch.nn.Module` and the compiled callable made of it. Leaves: an object of a subclass of
the module's own class, whose `__call__` is the compiled one. Invariant: there is one state: what is
done to either (`train`, `to`, `load_state_dict`, a hook, a new attribute) is done to both, and the
keys of `state_dict` are the original's. Copying or pickling a twin copies the original and compiles
the copy when it is first called. Frameworks that train a module by methods of its own (`STEPS`)
find those compiled too.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

_ORIGINAL = "_windfall_original_"  # class attributes of a twin's class, so not in the state
_COMPILED = "_windfall_compiled_"

# By the base class of such modules: the methods that a trainer calls in place of the module.
_LIGHTNING = ("training_step", "validation_step", "test_step", "predict_step")
STEPS: dict[tuple[str, str], tuple[str, ...]] = {
    ("lightning.pytorch.core.module", "LightningModule"): _LIGHTNING,
    ("pytorch_lightning.core.module", "LightningModule"): _LIGHTNING,
}


def steps_of(module: torch.nn.Module) -> dict[str, Callable[..., Any]]:
    """The methods, by their names, by which a framework trains this module."""
    kind = type(module)
    names = [STEPS.get((one.__module__, one.__qualname__), ()) for one in kind.__mro__]
    found = {name: getattr(module, name, None) for row in names for name in row}
    return {
        name: one
        for name, one in found.items()
        if isinstance(one, types.MethodType) and one.__self__ is module and _is_own(one)
    }


def _is_own(method: types.MethodType) -> bool:
    """Whether it is not what the framework's class itself has under the name."""
    return all(method.__module__ != home for home, _ in STEPS)


def module_twin(
    module: torch.nn.Module,
    compiled: Callable[..., Any],
    again: Callable[[torch.nn.Module], torch.nn.Module],
    steps: Mapping[str, Callable[..., Any]] = types.MappingProxyType({}),
) -> torch.nn.Module:
    """A twin of `module` whose call is `compiled`, and whose methods `steps` are; `again`
    compiles a copy in the same way."""
    original = type(module)

    def reduce(twin: torch.nn.Module, protocol: Any) -> Any:
        return again, (module,)

    def make(kind: type, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)  # `type(twin)(...)` makes another module, not a twin

    members: dict[str, Any] = {
        **_slots(module),
        **{name: _method(getattr(original, name), one) for name, one in steps.items()},
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


def _method(original: Callable[..., Any], compiled: Callable[..., Any]) -> Any:
    """A method that calls what is compiled, which knows its module."""

    @functools.wraps(original)
    def step(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    return step


def original_of(value: Any) -> Any:
    """The module behind a twin; anything else is itself."""
    return getattr(type(value), _ORIGINAL, value)


def compiled_of(value: Any) -> Any:
    """The compiled callable behind a twin, if it is one."""
    return getattr(type(value), _COMPILED, None)
