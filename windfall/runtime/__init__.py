"""Native entry, guards, launcher, arena: what runs when a compiled function is called."""

from typing import TYPE_CHECKING

from windfall.doors import door

# Of the module's own name: a door would find the module.
from windfall.runtime.bind import bind as bind
from windfall.runtime.bind import bind_placed as bind_placed
from windfall.runtime.bind import verified as verified

if TYPE_CHECKING:
    from windfall.runtime.call_path import callable_type as callable_type
    from windfall.runtime.call_path import dispatcher as dispatcher
    from windfall.runtime.call_path import replace_entries as replace_entries
    from windfall.runtime.call_path import set_slow_path as set_slow_path
    from windfall.runtime.entry import enter as enter
    from windfall.runtime.guards import CompiledCheck as CompiledCheck
    from windfall.runtime.guards import compile_check as compile_check
    from windfall.runtime.memory import MEMORY as MEMORY
    from windfall.runtime.segment_chain import make_chain as make_chain
    from windfall.runtime.support import quickly as quickly
    from windfall.runtime.trees.callables import CUDA_TREES as CUDA_TREES
    from windfall.runtime.trees.callables import GraphTrees as GraphTrees
    from windfall.runtime.trees.choice import CPU_TREES as CPU_TREES
    from windfall.runtime.trees.choice import bind_in_tree as bind_in_tree
    from windfall.runtime.trees.place import RegionPlace as RegionPlace

_MODULES = {
    "CPU_TREES": "trees.choice",
    "CUDA_TREES": "trees.callables",
    "CompiledCheck": "guards",
    "GraphTrees": "trees.callables",
    "MEMORY": "memory",
    "RegionPlace": "trees.place",
    "bind_in_tree": "trees.choice",
    "callable_type": "call_path",
    "compile_check": "guards",
    "dispatcher": "call_path",
    "enter": "entry",
    "make_chain": "segment_chain",
    "quickly": "support",
    "replace_entries": "call_path",
    "set_slow_path": "call_path",
}
__getattr__, __dir__ = door(__name__, _MODULES)
