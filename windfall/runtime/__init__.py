"""Native entry, guards, launcher, arena: what runs when a compiled function is called."""

from windfall.runtime.bind import bind, bind_placed, verified
from windfall.runtime.call_path import callable_type, dispatcher, replace_entries, set_slow_path
from windfall.runtime.entry import enter
from windfall.runtime.guards import CompiledCheck, compile_check
from windfall.runtime.memory import MEMORY
from windfall.runtime.trees import CPU_TREES, CUDA_TREES, GraphTrees, RegionPlace, bind_in_tree

__all__ = [
    "CPU_TREES",
    "CUDA_TREES",
    "MEMORY",
    "CompiledCheck",
    "GraphTrees",
    "RegionPlace",
    "bind",
    "bind_in_tree",
    "bind_placed",
    "callable_type",
    "compile_check",
    "dispatcher",
    "enter",
    "replace_entries",
    "set_slow_path",
    "verified",
]
