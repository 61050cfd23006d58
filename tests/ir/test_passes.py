"""Tables of passes: rows in an order that they agree with, records looked over after each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import windfall
from windfall.codegen.passes import GRAPH_PASSES, GROUP_PASSES, LOOP_PASSES
from windfall.codegen.scratch import Rows
from windfall.errors import InternalError
from windfall.ir.loop import Loops
from windfall.ir.passes import Row, Table, run_passes


def row(name: str, **order: Any) -> Row[Callable[[list[str]], list[str]]]:
    return Row(name, lambda record: [*record, name], reason="because", **order)


def names(table: Table[Any]) -> list[str]:
    return [one.name for one in table]


def test_rows_run_in_order() -> None:
    table = Table(row("one"), row("two", after=("one",)))
    table.add(row("last"))
    table.add(row("between", after=("one",), before=("two",)))
    assert run_passes(table, ["start"]) == ["start", "one", "between", "two", "last"]
    table.remove("between")
    assert names(table) == ["one", "two", "last"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("late", after=("early",)), row("early")], "late must run after"),
        ([row("early"), row("late", before=("early",))], "late must run before"),
        ([row("one", after=("nobody",))], "must run after .'nobody'.: because"),
        ([row("one", before=("nobody",))], "must run before"),
        ([row("one"), row("one")], "two rows"),
    ],
)
def test_a_table_that_contradicts_a_row_cannot_be_made(rows: list[Any], said: str) -> None:
    with pytest.raises(InternalError, match=said):
        Table(*rows)


def test_a_row_that_fits_nowhere_changes_nothing() -> None:
    table = Table(row("one"), row("two", after=("one",)))
    with pytest.raises(InternalError, match="must run after"):
        table.add(row("never", after=("two",), before=("one",)))
    with pytest.raises(InternalError, match="two must run after"):
        table.remove("one")
    assert names(table) == ["one", "two"]


def _forget_a_definition(loops: Loops) -> Loops:
    return replace(loops, items=loops.items[1:])


def _forget_a_type(graph: torch.fx.Graph) -> torch.fx.Graph:
    next(iter(graph.nodes)).meta.clear()
    return graph


def _forget_a_store(rows: Rows) -> Rows:
    rows.group.nests = rows.group.nests[:-1]
    return rows


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (GRAPH_PASSES, _forget_a_type),
        (LOOP_PASSES, _forget_a_definition),
        (GROUP_PASSES, _forget_a_store),
    ],
    ids=["graph", "loops", "group"],
)
def test_what_a_pass_breaks_is_told_with_its_name(table: Table[Any], change: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)

    compiled = windfall.compile(program, options={"strict": True, "verify": True})
    table.add(Row("wrong", change))
    try:
        with pytest.raises(InternalError, match="after wrong: "):
            compiled(torch.ones(3, 5))
    finally:
        table.remove("wrong")
    assert torch.equal(windfall.compile(program)(torch.zeros(3, 5)), torch.full((3, 5), 0.2))
