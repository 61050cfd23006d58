"""Which stage is to blame for a program that goes wrong.

Enters: a small program, and who tells whether it goes wrong under other options, or with a row of a
table left out. Leaves: a `Blame`: the stage, and what of it. The stages are asked in their order:

    capture     the captured graph, op by op (`backend="eager"`), is wrong already
    autograd    the differentiated, functional graphs, op by op (`backend="aot_eager"`), are; a pass
                of that room, if it is right without it
    passes      it is right without one row of the tables of code generation
    lowering    the rule of an ATen op says something else than the op, as the oracle reads it
    codegen     none of these: scheduling, memory plan, LLVM text or entry

Invariant: nothing is blamed that was not seen to make the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from windfall import autograd, codegen
from windfall.dataclass import dataclass
from windfall.diagnosis.comparison import differences
from windfall.errors import WindfallError
from windfall.events import EventKind, EventLog
from windfall.ir.evaluate import evaluate
from windfall.ir.node import info
from windfall.ir.passes import Table
from windfall.ir.stages import Split
from windfall.ops import registry
from windfall.options import Options
from windfall.pipeline import Compiler

CAPTURE, AUTOGRAD, PASSES, LOWERING, CODEGEN = (
    *("capture", "autograd", "passes", "lowering", "codegen"),
)

# Whether a program goes wrong with these changes of options; and the first of some rows of tables
# (each with what stands for it) without which it does not.
IsWrong = Callable[[dict[str, Any]], bool]
FirstInnocent = Callable[[Sequence["LeftOut"]], "LeftOut | None"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row of a table, and what is done in its place."""

    table: Table[Any]
    name: str
    instead: Callable[[Any], Any]

    def entered(self) -> AbstractContextManager[None]:
        """While this is entered, it is left out."""
        return self.table.skipping(self.name, self.instead)


@dataclass(frozen=True, slots=True)
class Blame:
    """A stage, and what of it (a pass, the rule of an op), where that is known."""

    stage: str
    part: str = ""


def blamed(
    is_wrong: IsWrong, first_innocent: FirstInnocent, wrong_rule: Callable[[], str | None]
) -> Blame:
    """Who is to blame for a program that goes wrong. `wrong_rule`: the ATen op whose rule says
    something else than the op ("": one does, and nobody knows which), None: none."""
    if is_wrong({"backend": "eager"}):
        return Blame(CAPTURE)
    if is_wrong({"backend": "aot_eager"}):
        one = first_innocent(
            [LeftOut(autograd.PASSES, row.name, _as_it_is) for row in autograd.PASSES]
        )
        return Blame(AUTOGRAD, one.name if one is not None else "")
    one = first_innocent(
        [
            LeftOut(table, row.name, _undecided if table is codegen.RULES else _as_it_is)
            for table in codegen.TABLES
            for row in table
        ]
    )
    if one is not None:
        return Blame(PASSES, one.name)
    wrong = wrong_rule()
    return Blame(CODEGEN) if wrong is None else Blame(LOWERING, wrong)


def _as_it_is(record: Any) -> Any:
    return record


def _undecided(candidate: Any) -> None:
    return None


def wrong_rules(function: Any, args: Sequence[Any], options: Options) -> Iterator[str]:
    """The ATen ops of a program (forward and backward) whose lowering says something else than the
    op does, on the values that they have there."""
    log = EventLog(records=True)
    # Op by op, which was seen to be right: whatever the code would do, the graphs are made.
    Compiler(replace(options, backend="aot_eager"), log).compiled(function)(*args)
    splits = [e.record for e in log.snapshot(EventKind.SPLIT) if isinstance(e.record, Split)]
    for split in splits:
        for graph in (split.forward, split.backward):
            if graph is not None and not split.symbols:
                yield from _wrong_in(graph)


def _wrong_in(graph: torch.fx.Graph) -> Iterator[str]:
    generator = torch.Generator().manual_seed(0)
    for node in graph.nodes:
        record = registry.lookup(node.target) if node.op == "call_function" else None
        if record is None or record.lower is None or record.random:
            continue
        values = torch.fx.map_arg((node.args, node.kwargs), lambda one: _sample(one, generator))
        args, kwargs = values
        target: Any = node.target
        try:
            expected = target(*args, **kwargs)
            actual = evaluate(record.lower, *args, **kwargs)
        except (WindfallError, RuntimeError, IndexError, TypeError, ValueError, AssertionError):
            continue  # not for such values; the oracle says nothing
        if actual is NotImplemented:
            continue
        if any("stride" not in one for one in differences(expected, actual)):
            yield str(target)


def _sample(node: torch.fx.Node, generator: torch.Generator) -> Any:
    """A value of a node's type."""

    def made(type: Any) -> Any:
        if isinstance(type, tuple):
            return tuple(map(made, type))
        if not hasattr(type, "dtype"):
            return type
        if type.dtype.is_floating_point or type.dtype.is_complex:
            value = torch.rand(type.sizes, generator=generator).mul(2).sub(0.5)
            return value.to(type.dtype)
        return torch.randint(0, 2, type.sizes, generator=generator).to(type.dtype)

    return made(info(node).type)
