"""A compiled object: a native dispatcher in front, the front end's object behind it.

Enters: a function or module, and who compiles what no entry fits. Leaves: an object that is called
in its place. Invariant: a call goes to the dispatcher first, which knows the entries that return at
once; whatever they miss goes to the object's own `__call__`, which knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall import frontend, runtime
from windfall.events import EventLog
from windfall.ir.stages import Entry
from windfall.jit import CompiledObject
from windfall.options import Options


def compiled_object(
    target: Callable[..., Any],
    compile_missing: Callable[[frontend.State, frontend.Facts], Entry],
    log: EventLog,
    options: Options,
    with_backend: Callable[[Any], frontend.Compiled],
    remake: Callable[[Any, Options], Any] | None,
    compile_shared: Callable[[str], CompiledObject],
) -> frontend.Compiled:
    """The compiled object of `target`. `with_backend` makes another one of it, for another backend;
    `remake` one of a copy of the target; `compile_shared` compiles code that all entries share."""
    by_count: dict[int, tuple[Entry, ...]] = {}
    call = runtime.dispatcher(native=options.native, compiled=compile_shared)

    def changed(count: int, entries: tuple[Entry, ...]) -> None:
        by_count[count] = tuple(one for one in entries if one.segment.capture.resume is None)
        runtime.replace_entries(call, [one for known in by_count.values() for one in known])

    kind = runtime.callable_type(frontend.Compiled, call)
    chain = runtime.make_chain if options.native else None
    made: frontend.Compiled = kind(
        target, compile_missing, log, options, changed, with_backend, remake, chain
    )
    runtime.set_slow_path(call, frontend.Compiled.__call__.__get__(made))
    return made
