"""The passes of this room, in three tables: over graphs, over loops, over the groups of a schedule.

Enters and leaves: a graph (`arrange`), `Loops` and the `Rows` of a group (`schedule.py`).
Invariant: a pass keeps what is computed; of graphs it keeps the types of inputs and results too. A
pass that is added to a table is run by the next compilation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.fx

from windfall.codegen.layout_assignment import assign_layouts
from windfall.codegen.scratch import Rows
from windfall.codegen.split_reductions import split_reductions
from windfall.ir.loop import Loops
from windfall.ir.passes import Row, Table, run_passes


def _on_rows(change: Callable[[Rows], None]) -> Callable[[Rows], Rows]:
    """A pass that changes the group in place."""

    def run(rows: Rows) -> Rows:
        change(rows)
        return rows

    return run


GRAPH_PASSES: Table[Callable[[torch.fx.Graph], torch.fx.Graph]] = Table(
    Row("assign_layouts", assign_layouts),
)
LOOP_PASSES: Table[Callable[[Loops], Loops]] = Table(
    Row("split_reductions", split_reductions),
)
GROUP_PASSES: Table[Callable[[Rows], Rows]] = Table(
    Row("drop_unread", _on_rows(Rows.drop_unread)),
    Row(
        "stash",
        _on_rows(Rows.stash),
        after=("drop_unread",),
        before=("to_scratch",),
        reason="dear values of dead statements need no row; rows of both come from one budget",
    ),
    Row(
        "to_scratch",
        _on_rows(Rows.to_scratch),
        after=("drop_unread",),
        reason="what nobody reads is no row of its own",
    ),
)


def arrange(graph: torch.fx.Graph, *, verify: bool = False) -> torch.fx.Graph:
    """The graph as lowering takes it: the passes over graphs."""
    return run_passes(GRAPH_PASSES, graph, verify=verify)
