"""Python functions that are interpreted in place of builtins that call back into Python.

Enters: the arguments of the builtin. Leaves: what the builtin would give, by way of ordinary
Python, so that user code which it calls (keys, dunders) is followed, and a break inside it is a
break like any other. Invariant: these functions are never run by CPython during a capture, they are
interpreted; each is named in `TABLE`, and a rule of `values/builtin.py` sends calls here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from windfall.frontend.polyfills import (
    attention,
    checkpointing,
    control_flow,
    core,
    distributions,
    iterators,
    mappings,
    matching,
    optimizers,
    ordering,
    parallel,
    stateless,
    transforms,
)

_MODULES = (
    *(
        attention,
        checkpointing,
        control_flow,
        core,
        distributions,
        iterators,
        mappings,
        matching,
        optimizers,
        ordering,
        parallel,
        stateless,
        transforms,
    ),
)
TABLE: dict[str, Callable[..., Any]] = {
    name.removesuffix("_"): function
    for module in _MODULES
    for name, function in vars(module).items()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__
}
