"""Programs over third-party libraries, in inference and training, at three batch sizes.

    python -m tests.conformance.libraries [einops timm ...] [--show] [--write docs/libraries.md]

The libraries are those of the extra `dev-libraries`; a program whose library is not there is told
as such and counted apart. Compared with eager are results and, where the program trains, gradients
of all parameters. Told is how it ran: graphs at the first batch size (breaks and their numbers,
what ran in eager), the first call's processor time, and a later call's as a part of eager's: the
median of interleaved pairs, on a machine that may be busy.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import windfall
from tests.conformance.library_programs import PROGRAMS, LibraryProgram

BATCHES = (2, 3, 5)
PAIRS = 15
TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}
NORM = 2e-3  # else: how far it may be, as a part of its norm


@dataclass
class Row:
    """What became of a program in one way to run it."""

    library: str
    name: str
    way: str  # "inference" or "training"
    answer: str = "equal"  # or what differs, or why there is none
    graphs: int = 0
    breaks: dict[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    in_eager: int = 0
    first: float = 0.0
    ratio: float = 0.0

    @property
    def is_there(self) -> bool:
        return not self.answer.startswith("not there")

    @property
    def is_right(self) -> bool:
        return self.answer == "equal" or not self.is_there


def _seeded(program: LibraryProgram) -> None:
    torch.manual_seed(1)
    random.seed(1)
    if program.draws_numpy:
        import numpy

        numpy.random.seed(1)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [one for one in pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)]


def _differs(mine: list[Any], wanted: list[Any]) -> str:
    if len(mine) != len(wanted):
        return f"{len(mine)} tensors, not {len(wanted)}"
    for one, other in zip(mine, wanted, strict=True):
        if (one is None) != (other is None):
            return "a gradient is missing"
        if one is None:
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
        one, other = one.detach().double(), other.detach().double()
        if torch.allclose(one, other, equal_nan=True, **TOLERANCE):
            continue
        # Small gradients of deep networks, at batches of two, are sums of numbers that cancel.
        distance, size = (one - other).norm().item(), other.norm().item()
        if not distance <= NORM * size:
            return f"differs by {distance:.1e} of {size:.1e}"
    return ""


def _step(program: LibraryProgram, function: Any, arguments: Any, way: str) -> list[Any]:
    """One call: the tensors that it answers, and in training the gradients."""
    _seeded(program)
    if way == "inference":
        with torch.no_grad():
            return _tensors(function(*arguments))
    owner = function.__wrapped__ if not isinstance(function, torch.nn.Module) else function
    for one in owner.parameters():
        one.grad = None
    answer = _tensors(function(*arguments))
    sum(one.float().square().mean() for one in answer if one.requires_grad).backward()
    return [*answer, *(one.grad for one in owner.parameters())]


def check(program: LibraryProgram, way: str = "inference", pairs: int = PAIRS) -> Row:
    """Compile it, compare it at each batch size, time it."""
    row = Row(program.library, program.name, way)
    windfall.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made, arguments = program.make()
        except ImportError as error:
            row.answer = f"not there: {str(error).splitlines()[0][:60]}"
            return row
        _run(row, program, made, arguments, pairs)
    return row


def _run(row: Row, program: LibraryProgram, made: Any, arguments: Any, pairs: int) -> None:
    theirs, mine = made, made
    if isinstance(made, torch.nn.Module):
        made.train(row.way == "training")
        mine = copy.deepcopy(made)
    compiled = windfall.compile(mine)
    for batch in BATCHES:
        torch.manual_seed(2)
        given = arguments(batch)
        wanted = _step(program, theirs, given, row.way)
        began = time.process_time()
        try:
            found = _differs(_step(program, compiled, given, row.way), wanted)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"[:200]
        if batch == BATCHES[0]:
            row.first = time.process_time() - began
            _tell(row, windfall.explanation(compiled))
        if found:
            row.answer = f"batch {batch}: {found}"
            return
    row.ratio = _ratio(
        lambda: _step(program, compiled, given, row.way),
        lambda: _step(program, theirs, given, row.way),
        pairs,
    )


def _tell(row: Row, told: Any) -> None:
    row.graphs = len(told.graphs)
    row.breaks = dict(collections.Counter(f"W{one.number:04d}" for one in told.breaks))
    row.reasons = tuple(f"W{one.number:04d} {one.detail}" for one in told.breaks)
    row.in_eager = len(told.fallbacks)


def _ratio(mine: Callable[[], Any], theirs: Callable[[], Any], pairs: int) -> float:
    for _ in range(3):
        mine()
        theirs()
    found = []
    for _ in range(pairs):
        spent = []
        for one in (mine, theirs):
            began = time.process_time()
            one()
            spent.append(time.process_time() - began)
        found.append(spent[0] / max(spent[1], 1e-9))
    return statistics.median(found)


HEAD = (
    "| library | program | way | answer | graphs | breaks | in eager | first call | of eager |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def line(row: Row) -> str:
    """A row of the table."""
    breaks = ", ".join(f"{count} × {number}" for number, count in sorted(row.breaks.items()))
    cells = (
        row.library,
        row.name,
        row.way,
        row.answer,
        str(row.graphs),
        breaks or "–",
        str(row.in_eager or "–"),
        f"{row.first:.1f} s",
        f"{row.ratio:.2f}",
    )
    return "| " + " | ".join(one.replace("|", "/").replace("\n", " ") for one in cells) + " |"


def page(rows: list[Row], names: list[str]) -> str:
    """The page of the docs."""
    there = [one for one in rows if one.is_there]
    whole = sum(one.graphs <= 1 and not one.breaks and one.is_right for one in there)
    text = (
        "# Libraries\n\n"
        "Written by `python -m tests.conformance.libraries --write docs/libraries.md`.\n"
        "Programs over libraries of the extra `dev-libraries`, compared with eager at "
        f"batch sizes {', '.join(map(str, BATCHES))}. Times are of the processor; *of eager* is "
        f"the median of {PAIRS} interleaved pairs, on a machine that others used as well.\n\n"
        f"{len(there)} rows over {len({one.library for one in there})} libraries, "
        f"{sum(one.is_right for one in there)} right, {whole} in one graph.\n\n"
    )
    if names:  # a part of the sweep is not to be taken for all of it
        others = [str(one) for one in PROGRAMS if not {one.library, one.name} & {*names}]
        text += f"Only a part was run for this page. Not run: {', '.join(others)}.\n\n"
    return text + HEAD + "".join(f"{line(one)}\n" for one in there)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; not 0 where an answer differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="libraries, or programs")
    parser.add_argument("--show", action="store_true", help="the reasons of breaks")
    parser.add_argument("--write", type=Path, help="the page of the docs")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    reasons: collections.Counter[str] = collections.Counter()
    for program in PROGRAMS:
        if given.names and not {program.library, program.name} & {*given.names}:
            continue
        for way in ("inference", "training")[: 1 + program.trains]:
            with contextlib.redirect_stdout(sys.stderr):
                row = check(program, way, given.pairs)
            rows.append(row)
            reasons.update(row.reasons)
            print(line(row), flush=True)
            if given.show:
                for one, count in collections.Counter(row.reasons).most_common(8):
                    print(f"      {count} {one[:140]}")
    for reason, count in reasons.most_common(15 if given.show else 0):
        print(f"{count:5} {reason[:120]}")
    if given.write is not None:
        given.write.write_text(page(rows, given.names))
    return 0 if all(one.is_right for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
