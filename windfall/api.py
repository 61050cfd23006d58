"""The public door: compile, explain, disable, reset.

Enters: the user's function or module. Leaves: a compiled object that is called like the original.
Invariant: whatever cannot be compiled runs eagerly and is counted; a wrong call of this door raises
`UserError` that says what is accepted.

    >>> f = windfall.compile(lambda x, y: torch.nn.functional.gelu(x * y + 1).sum(-1))
    >>> f(torch.randn(4, 8), torch.randn(4, 8)).shape
    torch.Size([4])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from windfall import frontend, pipeline
from windfall.errors import UserError
from windfall.events import EventLog
from windfall.options import Options
from windfall.report.entries import CacheEntry
from windfall.report.entries import cache_entries as describe_entries
from windfall.report.explain import Explanation, explanation_of, log_listener
from windfall.twin import compiled_of, module_twin, original_of


def compile(
    target: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "windfall",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function, a method or a module; without a target, a decorator.

    The arguments are torch.compile's; `options` takes the fields of `windfall.options.Options`.
    """
    chosen = Options.checked(
        fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
        disable=disable or None,
    )  # fmt: skip
    pipeline.resolve_backend(chosen.backend)  # a wrong name is told here, not at the first call
    if target is None:
        return lambda actual: _compiled(actual, chosen)
    return _compiled(target, chosen)


def _compiled(target: Any, options: Options) -> Any:
    if not callable(target):
        raise UserError(
            f"windfall.compile takes a function, a method, a torch.nn.Module or another callable, "
            f"not {type(target).__name__} ({target!r})"
        )
    if options.disable or isinstance(target, frontend.Compiled) or compiled_of(target) is not None:
        return target
    log = EventLog((log_listener(options.logs),) if options.logs else ())
    return _with_log(target, options, log)


def _with_log(target: Any, options: Options, log: EventLog) -> Any:
    compiled = pipeline.Compiler(options, log).compiled(target)
    if isinstance(target, torch.nn.Module):
        return module_twin(target, compiled, functools.partial(_compiled, options=options))
    return compiled


def explain(target: Callable[..., Any], **settings: Any) -> Callable[..., Explanation]:
    """`explain(f)(*args)` compiles `f` anew, calls it once, and tells what happened."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        original = original_of(target)
        if isinstance(original, frontend.Compiled):
            original = original.target
        options = Options.checked(**settings)
        log = EventLog()
        result = _with_log(original, options, log)(*args, **kwargs)
        return explanation_of(log, result)

    return run


def cache_entries(compiled: Any) -> list[CacheEntry]:
    """What a compiled function or module keeps: guards and generated code of each entry."""
    found = compiled_of(compiled) or compiled
    if not isinstance(found, frontend.Compiled):
        raise UserError(f"{compiled!r} is not compiled; pass what windfall.compile returned")
    return describe_entries(found.entries())


def list_backends() -> list[str]:
    """The names that `backend=` accepts."""
    return sorted(pipeline.BACKENDS)
