"""Graphs that read data on their way, in subgraphs around the reads.

Enters: a captured graph with reads (`.item()`, `nonzero`, a mask as an index), and whoever compiles
a graph without. Leaves: a callable. Invariant: a number that was read is an ordinary size (or a
constant) of the subgraphs behind it, which are compiled when they are first reached.

    y = x * 2            subgraph
    n = count.item()     read
    z = y[:n] + 1        subgraph, of y and the size n
"""

from typing import TYPE_CHECKING

from windfall.doors import door

if TYPE_CHECKING:
    from windfall.subgraphs.cuts import Subgraph as Subgraph
    from windfall.subgraphs.cuts import partition as partition
    from windfall.subgraphs.cuts import reads_data as reads_data
    from windfall.subgraphs.driver import PartitionedGraph as PartitionedGraph
    from windfall.subgraphs.runner import Shared as Shared
    from windfall.subgraphs.variant import NativeSubgraph as NativeSubgraph

_MODULES = {
    "NativeSubgraph": "variant",
    "PartitionedGraph": "driver",
    "Shared": "runner",
    "Subgraph": "cuts",
    "partition": "cuts",
    "reads_data": "cuts",
}
__getattr__, __dir__ = door(__name__, _MODULES)
