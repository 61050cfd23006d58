"""Backends that other packages offer under the entry-point group `torch_dynamo_backends`.

Enters: a name. Leaves: the function `(graph_module, example_inputs) -> callable` that the package
registered. Invariant: nothing is read before a name is asked for that is not our own, and a package
is imported only when its own backend is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import metadata
from typing import Any

from windfall.errors import UserError

GROUP = "torch_dynamo_backends"


@functools.cache
def offered() -> dict[str, metadata.EntryPoint]:
    """The entry points by their names."""
    return {one.name: one for one in metadata.entry_points(group=GROUP)}


def load(name: str) -> Callable[..., Any] | None:
    """The backend of that name; None: no package offers one."""
    found = offered().get(name)
    if found is None:
        return None
    try:
        backend: Any = found.load()
    except ImportError as error:
        raise UserError(
            f"backend={name!r} is offered by {found.value!r}, which cannot be imported: {error}"
        ) from error
    if not callable(backend):
        raise UserError(f"backend={name!r}: {found.value!r} is not callable")
    result: Callable[..., Any] = backend
    return result
