"""Native entry, guards, launcher, arena: what runs when a compiled function is called."""

from windfall.runtime.bind import bind
from windfall.runtime.dispatch import callable_type, dispatcher, replace_entries, set_slow_path
from windfall.runtime.entry import enter
from windfall.runtime.guards import CompiledCheck, compile_check

__all__ = [
    "CompiledCheck",
    "bind",
    "callable_type",
    "compile_check",
    "dispatcher",
    "enter",
    "replace_entries",
    "set_slow_path",
]
