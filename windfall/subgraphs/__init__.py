"""Graphs that read data on their way, in subgraphs around the reads.

Enters: a captured graph with reads (`.item()`, `nonzero`, a mask as an index), and whoever compiles
a graph without. Leaves: a callable. Invariant: a number that was read is an ordinary size (or a
constant) of the subgraphs behind it, which are compiled when they are first reached.

    y = x * 2            subgraph
    n = count.item()     read
    z = y[:n] + 1        subgraph, of y and the size n
"""

from windfall.subgraphs.cuts import Subgraph, partition, reads_data
from windfall.subgraphs.driver import PartitionedGraph
from windfall.subgraphs.runner import Shared
from windfall.subgraphs.variant import NativeSubgraph

__all__ = ["NativeSubgraph", "PartitionedGraph", "Shared", "Subgraph", "partition", "reads_data"]
