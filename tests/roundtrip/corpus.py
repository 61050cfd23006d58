"""What goes to plain data and back: golden programs, op samples, models.

Enters: names. Leaves: for each item every record that stages made of it, with the live objects that
the caller can name. Invariant: an item depends on nothing that ran before it.
"""

from __future__ import annotations

import contextlib
import io
import random
import unittest.mock
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch

import windfall
from tests import golden_programs
from tests.ir.records import Labelled, of_compiled
from tests.replay.corpus import _models, _op_samples
from windfall import pipeline
from windfall.ir.stages import Executable


@dataclass(frozen=True, slots=True)
class Item:
    """One program; `run` calls it, compiled by the function that it is given."""

    name: str
    run: Callable[[Callable[..., Any]], Any]


def corpus() -> Iterator[Item]:
    """Everything, the quickest first."""
    for name in golden_programs.names():
        yield Item(f"golden {name}", _golden(name))
    for item in (*_op_samples(), *_models()):
        yield Item(item.name, item.run)


def _golden(name: str) -> Callable[[Callable[..., Any]], Any]:
    def run(compile: Callable[..., Any]) -> Any:
        program = golden_programs.load(name)
        return golden_programs.run(program, compile(program.module.program, **program.options))

    return run


def records(item: Item) -> tuple[list[Labelled], list[Any]]:
    """Every record of an item's compilations, and what it answered."""
    made: list[tuple[Any, Any]] = []
    executables: list[Labelled] = []
    answers: list[Any] = []

    def compile(function: Any, backend: Any = "windfall", **options: Any) -> Any:
        given = {"records": True, **options}
        made.append((function, windfall.compile(function, backend=backend, options=given)))
        return made[-1][1]

    def link(executable: Executable, compiler: Any, *place: Any) -> Any:
        executables.append((f"link of {executable.name}", executable, {"target": made[-1][0]}))
        return linked(executable, compiler)

    linked = pipeline.link
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        unittest.mock.patch.object(pipeline, "link", link),
    ):
        warnings.simplefilter("ignore")
        # A sample that eager refuses is refused here too: `tests/replay` and conformance compare.
        with contextlib.suppress(Exception):
            answers += item.run(compile)
    labelled = [
        one for function, compiled in made for one in of_compiled(compiled, {"target": function})
    ]
    known = {id(record) for _, record, _ in labelled}
    return [*labelled, *(one for one in executables if id(one[1]) not in known)], answers
