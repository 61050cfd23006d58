"""A compiled module: a twin of the original that shares its `__dict__`.

Enters: a `torch.nn.Module` and the compiled callable made of it. Leaves: an object of a subclass of
the module's own class, whose `__call__` is the compiled one. Invariant: there is one state: what is
done to either (`train`, `to`, `load_state_dict`, a hook, a new attribute) is done to both, and the
keys of `state_dict` are the original's. Copying or pickling a twin copies the original and compiles
the copy when it is first called.
"""

from __future__ import annotations

import copy
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

    members: dict[str, Any] = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__call__": _call_of(compiled),
        "__reduce_ex__": reduce,
        "__copy__": lambda twin: again(copy.copy(module)),
        "__deepcopy__": lambda twin, memo: again(copy.deepcopy(module, memo)),
        "_orig_mod": module,  # as torch.compile's wrapper has it, for those who unwrap
        _ORIGINAL: module,
        _COMPILED: compiled,
    }
    kind: type[torch.nn.Module] = type(original.__name__, (original,), members)
    twin: torch.nn.Module = object.__new__(kind)
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin


def _call_of(compiled: Callable[..., Any]) -> Any:
    """What stands as `__call__` of the class: it is not bound, the callable knows its module."""
    return staticmethod(compiled)


def original_of(value: Any) -> Any:
    """The module behind a twin; anything else is itself."""
    return getattr(type(value), _ORIGINAL, value)


def compiled_of(value: Any) -> Any:
    """The compiled callable behind a twin, if it is one."""
    return getattr(type(value), _COMPILED, None)
