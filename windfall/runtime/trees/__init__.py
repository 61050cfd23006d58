"""Graph trees: regions are recorded and replayed along paths that share one pool (README.md)."""

from typing import TYPE_CHECKING

from windfall.doors import door

if TYPE_CHECKING:
    from windfall.runtime.trees.callables import CUDA_TREES as CUDA_TREES
    from windfall.runtime.trees.callables import GraphTrees as GraphTrees
    from windfall.runtime.trees.choice import CPU_TREES as CPU_TREES
    from windfall.runtime.trees.choice import bind_in_tree as bind_in_tree
    from windfall.runtime.trees.cpu import CpuDevice as CpuDevice
    from windfall.runtime.trees.cpu import ProgramPayload as ProgramPayload
    from windfall.runtime.trees.device import Counters as Counters
    from windfall.runtime.trees.device import GraphDevice as GraphDevice
    from windfall.runtime.trees.device import GraphRegion as GraphRegion
    from windfall.runtime.trees.device import Made as Made
    from windfall.runtime.trees.device import NotRecordable as NotRecordable
    from windfall.runtime.trees.device import PoolBlock as PoolBlock
    from windfall.runtime.trees.device import Skip as Skip
    from windfall.runtime.trees.manager import Node as Node
    from windfall.runtime.trees.manager import TreeManager as TreeManager
    from windfall.runtime.trees.managers import Managers as Managers
    from windfall.runtime.trees.place import RegionPlace as RegionPlace

_MODULES = {
    "CPU_TREES": "choice",
    "CUDA_TREES": "callables",
    "Counters": "device",
    "CpuDevice": "cpu",
    "GraphDevice": "device",
    "GraphRegion": "device",
    "GraphTrees": "callables",
    "Made": "device",
    "Managers": "managers",
    "Node": "manager",
    "NotRecordable": "device",
    "PoolBlock": "device",
    "ProgramPayload": "cpu",
    "RegionPlace": "place",
    "Skip": "device",
    "TreeManager": "manager",
    "bind_in_tree": "choice",
}
__getattr__, __dir__ = door(__name__, _MODULES)
