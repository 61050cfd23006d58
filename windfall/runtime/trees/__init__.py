"""Graph trees: regions are recorded and replayed along paths that share one pool (README.md)."""

from windfall.runtime.trees.callables import CUDA_TREES, GraphTrees
from windfall.runtime.trees.choice import CPU_TREES, TREES, RegionPlace, bind_in_tree
from windfall.runtime.trees.cpu import CpuDevice, ProgramPayload
from windfall.runtime.trees.device import (
    Counters,
    GraphDevice,
    GraphRegion,
    Made,
    NotRecordable,
    PoolBlock,
    Skip,
)
from windfall.runtime.trees.manager import Node, TreeManager
from windfall.runtime.trees.managers import Managers

__all__ = [
    "CPU_TREES",
    "CUDA_TREES",
    "TREES",
    "Counters",
    "CpuDevice",
    "GraphDevice",
    "GraphRegion",
    "GraphTrees",
    "Made",
    "Managers",
    "Node",
    "NotRecordable",
    "PoolBlock",
    "ProgramPayload",
    "RegionPlace",
    "Skip",
    "TreeManager",
    "bind_in_tree",
]
