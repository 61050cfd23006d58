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
import os
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from windfall import backends, backward, directives, frontend, jit, pipeline, runtime, torch_abi
from windfall.around import Around, Timed
from windfall.errors import UserError
from windfall.events import EventLog
from windfall.options import Options, TreeOptions
from windfall.reporting import process
from windfall.reporting.entries import CacheEntry
from windfall.reporting.entries import cache_entries as describe_entries
from windfall.reporting.explain import Explanation, explanation_of, log_listener
from windfall.twin import compiled_of, module_twin, steps_of

if TYPE_CHECKING:
    from windfall.diagnosis import Diagnosis

# Compiled objects that are alive: `reset` goes through them.
_alive: weakref.WeakSet[frontend.Compiled] = weakref.WeakSet()


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    dynamic_shapes: Any = None,
    compiled_autograd: bool = False,
    verify: bool | int = False,
) -> Any:
    """Compile a function, a method, a class or a module; without a target, a decorator.

    The arguments are torch.compile's. `options` takes the fields of `windfall.Options`; what
    another backend is given goes through it too. `name` is what reports say. `recompile_limit` is
    how many entries one point of the program keeps: past it the least recently used goes, and
    nothing falls back to eager. Every compiled object has entries of its own, so
    `isolate_recompiles` is always so. `compiled_autograd`: backward passes inside of the target's
    calls are recorded, compiled and replayed as under `windfall.compiled_autograd()`. `verify=N`
    runs eager beside the first N calls, on copies, and raises `MismatchError` where they part;
    `verify=True` only checks what the stages of compiling hand to each other, as N does too.
    `dynamic_shapes` (up to torch 2.14 `shapes_spec`) is refused.
    """
    for given, value in (("shapes_spec", shapes_spec), ("dynamic_shapes", dynamic_shapes)):
        if value is not None:
            raise UserError(f"{given} is not supported; use dynamic=True or windfall.mark_dynamic")
    chosen = _options(
        fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
        disable=disable or None, name=name, recompile_limit=recompile_limit,
        compiled_autograd=compiled_autograd or None, verify=verify or None,
    )  # fmt: skip
    jit.target()  # a wrong WINDFALL_TARGET is said here, not by a fall-back to eager
    if not chosen.disable:
        torch_abi.warn_of_missing()
    if model is None:
        return lambda actual: _compiled(actual, chosen)
    return _compiled(model, chosen)


_default_backend: str | Callable[..., Any] = "windfall"


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """What `backend=None` means from now on, for what is compiled later; None: windfall's own."""
    global _default_backend
    _default_backend = _options(backend=backend or "windfall").backend


def get_default_backend() -> str | Callable[..., Any]:
    """What `backend=None` means now."""
    return _default_backend


def _options(backend: Any = None, **given: Any) -> Options:
    """What the user says, checked: a wrong name is told here, not at the first call."""
    backend = _default_backend if backend is None else backend
    chosen = Options.checked(backend=backend, **given)
    backends.resolve_backend(chosen.backend)
    return chosen


def _compiled(target: Any, options: Options) -> Any:
    """`target` compiled with these options: also how copies and pickles come back."""
    if not callable(target):
        raise UserError(
            f"windfall.compile takes a function, a method, a torch.nn.Module or another callable, "
            f"not {type(target).__name__} ({target!r})"
        )
    if options.disable:
        return target
    if isinstance(target, type):
        return _with_methods(target, lambda method: _compiled(method, options))
    made = _made_of(target)
    if made is not None:  # once more: the same object, unless it is to be compiled otherwise
        return target if made.options == options else _compiled(made.target, options)
    listeners = (log_listener(options.logs, options.name),) if options.logs else ()
    log = EventLog(listeners, records=options.records)
    return _with_log(target, options, log)


def _with_log(target: Any, options: Options, log: EventLog) -> Any:
    compiler = pipeline.Compiler(options, log)
    engine = backward.engine_for(options, log) if options.compiled_autograd else None
    title = options.name or process.title_of(target)
    process.register(log, title, options.report)

    def called(one: Any) -> Any:
        compiled: Any = compiler.compiled(one, _compiled)
        _alive.add(compiled)
        if engine is not None:
            compiled = backward.CalledUnderEngine(compiled, engine)
        if options.verify_calls:
            from windfall.diagnosis import Verified  # few ask for it

            compiled = Verified(compiled, options, log)
        return Timed(compiled, log, title) if options.runs else compiled

    if isinstance(target, torch.nn.Module):
        steps = {name: called(one) for name, one in steps_of(target).items()}
        again = functools.partial(_compiled, options=options)
        return module_twin(target, called(target), again, steps)
    return called(target)


def _made_of(value: Any) -> frontend.Compiled | None:
    """The compiled object behind what `compile` returned; None: it is something else."""
    found = compiled_of(value) or value
    while isinstance(found, Around):
        found = found.compiled
    return found if isinstance(found, frontend.Compiled) else None


def _innermost(target: Any) -> Any:
    """What was compiled, where it is a compiled object."""
    made = _made_of(target)
    return target if made is None else made.target


def _with_methods(cls: type, change: Callable[[Any], Any]) -> type:
    """A class whose instances' calls are changed: `forward` of modules, `__call__` of others."""
    name = "forward" if issubclass(cls, torch.nn.Module) else "__call__"
    method = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    if method is None:
        raise UserError(f"instances of {cls.__qualname__} cannot be called: nothing to compile")
    setattr(cls, name, change(method))
    return cls


# -------------------------------------------------------------------------------------- directives


def disable(
    fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True
) -> Any:
    """Run a function natively when compiled code calls it; without one, a decorator.

    With `recursive=False` only its own operations run natively: what it calls is captured. `reason`
    is shown where the break is. Modules and classes are accepted too; a compiled object stands for
    what it was made of.
    """
    if fn is None:
        return lambda actual: disable(actual, recursive, reason=reason, wrapping=wrapping)
    fn = _innermost(fn)
    if isinstance(fn, type):
        return _with_methods(fn, lambda method: directives.disabled(method, reason, recursive))
    native = directives.disabled(fn, reason, recursive)
    if isinstance(fn, torch.nn.Module):
        again = functools.partial(disable, recursive=recursive, reason=reason)
        return module_twin(fn, native, again)
    return native


def reset() -> None:
    """Forget what every compiled object has compiled and learnt; they are compiled anew."""
    for compiled in list(_alive):
        compiled.reset()
    backward.forget()
    jit.forget()
    for managers in (runtime.CPU_TREES, *runtime.CUDA_TREES.values()):
        managers.reset()


def graph_trees(
    fn: Callable[..., Any] | None = None,
    *,
    reads: Iterable[torch.Tensor] = (),
    options: TreeOptions | None = None,
) -> Any:
    """A function or module on CUDA tensors that is warmed up, recorded as a CUDA graph, replayed;
    without one, a decorator. Recordings of all such callables share one pool, and results that are
    held are never overwritten (`docs/graph-trees.md`). `reads`: tensors that it reads besides its
    arguments and a module's own. Python in it runs only while it is recorded. On other devices it
    runs as it is."""
    if fn is None:
        return lambda actual: graph_trees(actual, reads=reads, options=options)
    return runtime.GraphTrees(fn, tuple(reads), options)


# ----------------------------------------------------------------------------------------- reports


def explain(target: Callable[..., Any], **settings: Any) -> Callable[..., Explanation]:
    """`explain(f)(*args)` compiles `f` anew, calls it once, and tells what happened.

    `settings` are the arguments of `compile`. For several calls: compile, call, then
    `explanation(compiled)`.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        log = EventLog()  # with all records
        result = _with_log(_innermost(target), _options(**settings), log)(*args, **kwargs)
        return explanation_of(log, result)

    return run


def explanation(compiled: Any) -> Explanation:
    """What happened to a compiled function or module so far, over all its calls."""
    return explanation_of(_needed(compiled).log)


def report(path: str | os.PathLike[str], *compiled: Any) -> str:
    """Write one HTML file that tells what was compiled: of these functions and modules, or of all
    that are alive. It needs no network and no other file. `options={"records": True}` at `compile`
    (or `WINDFALL_REPORT`) keeps loops, memory plans and LLVM text for it. Answers its path."""
    return process.write_report(path, [_needed(one).log for one in compiled])


def timeline(path: str | os.PathLike[str], *compiled: Any) -> str:
    """Write a trace for Perfetto (ui.perfetto.dev, chrome://tracing): when which stage of compiling
    ran, breaks, recompilations, and calls of what was compiled with `options={"runs": True}`. Of
    these functions and modules, or of all that are alive. Answers its path."""
    return process.write_timeline(path, [_needed(one).log for one in compiled])


def bisect(
    target: Any, *calls: tuple[Any, ...], seconds: float | None = None, **settings: Any
) -> Diagnosis:
    """Which stage, graph and operation of `target` makes a wrong answer or a crash.

    `calls` are the arguments of one call, as a tuple, or of several that follow each other;
    `settings` are those of `compile`. All runs on copies, native code in processes of its own. The
    finding prints; its `program` is a script that shows the mistake alone. After `seconds` (110) it
    answers what it knows.
    """
    if not calls or not all(isinstance(one, tuple) for one in calls):
        raise UserError("bisect takes a function and the arguments of each call as a tuple")
    from windfall.diagnosis import bisect as bisected  # few ask for it

    chosen = _options(**settings)
    limit = {} if seconds is None else {"seconds": seconds}
    return bisected(_innermost(target), *calls, options=chosen, **limit)


def cache_entries(compiled: Any) -> list[CacheEntry]:
    """What a compiled function or module keeps: guards and generated code of each entry."""
    return describe_entries(_needed(compiled).entries())


def _needed(compiled: Any) -> frontend.Compiled:
    found = _made_of(compiled)
    if found is None:
        raise UserError(f"{compiled!r} is not compiled; pass what windfall.compile returned")
    return found


def list_backends(exclude_tags: Iterable[str] = ()) -> list[str]:
    """The names that `backend=` accepts, but those with one of these tags: `"debug"` are those that
    run op by op."""
    left_out = {"eager", "aot_eager"} if "debug" in tuple(exclude_tags or ()) else set()
    return [name for name in backends.backend_names() if name not in left_out]
