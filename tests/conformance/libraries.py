"""Programs over third-party libraries, in inference and training, at three batch sizes.

    python -m tests.conformance.libraries [einops timm ...] [--show] [--against]
                                          [--write docs/libraries.md]

The libraries are those of the extra `dev-libraries`; a program whose library is not there is told
as such and counted apart. Compared with eager are results and, where the program trains, gradients
of all parameters; buffers and the state of the random generator after each call; and what trains
once more in evaluation, and in training again. Told is how it ran: graphs at the first batch size
(breaks and their numbers, what ran in eager), the first call's processor time, and a later call's
as a part of eager's: the median of interleaved pairs, on a machine that may be busy; with
`--against`, what torch.compile captures.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import functools
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
from tests.conformance import library_models, library_steps  # noqa: F401  (rows of the table)
from tests.conformance.library_programs import PROGRAMS, LibraryProgram

BATCHES = (2, 3, 5)
PAIRS = 15
SPAN = 0.01  # seconds that one measurement takes at least
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
# Else float64 judges: how much farther from its answer than eager's we may be, in norm. (Rounding
# is a matter of luck; deep networks with norms over batches of two amplify it.)
FARTHER = 4.0


@dataclass
class Row:
    """What became of a program in one way to run it."""

    library: str
    name: str
    way: str  # "inference", "training" or "step"
    answer: str = "equal"  # or what differs, or why there is none
    graphs: int = 0
    breaks: dict[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    in_eager: int = 0
    first: float = 0.0
    ratio: float = 0.0
    theirs: str = ""  # graphs of torch.compile, and its breaks; "!": it raises

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


def _differs(mine: list[Any], wanted: list[Any], exact: Callable[[], list[Any] | None]) -> str:
    """What differs; `exact` gives the answers of float64, None: it cannot."""
    if len(mine) != len(wanted):
        return f"{len(mine)} tensors, not {len(wanted)}"
    for place, (one, other) in enumerate(zip(mine, wanted, strict=True)):
        if (one is None) != (other is None):
            return "a gradient is missing"
        if one is None:
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
        one, other = one.detach().double(), other.detach().double()
        if torch.allclose(one, other, equal_nan=True, **TOLERANCE):
            continue
        judge = exact()
        shown = f"differs by {(one - other).norm():.1e} of {other.norm():.1e}"
        if judge is None:
            return shown
        truth = judge[place].detach()
        mine_off, theirs_off = (one - truth).norm().item(), (other - truth).norm().item()
        if not mine_off <= FARTHER * theirs_off:
            return f"{shown}; from float64's: {mine_off:.1e}, eager's {theirs_off:.1e}"
    return ""


def _copied(made: Any) -> Any:
    """A copy of a module as it is now; None: there is none (one that keeps results of a call)."""
    if not isinstance(made, torch.nn.Module):
        return None
    try:
        return copy.deepcopy(made)
    except RuntimeError:
        return None


def _in_float64(program: LibraryProgram, made: Any, given: Any, way: str) -> list[Any] | None:
    """What eager answers in float64, where that is the same program: a module's that draws nothing
    (random numbers are others in another dtype)."""
    if not isinstance(made, torch.nn.Module):
        return None
    given = pytree.tree_map_only(
        torch.Tensor, lambda one: one.double() if one.is_floating_point() else one, given
    )
    torch.manual_seed(1)
    before = torch.get_rng_state()
    answer, _ = _step(program, copy.deepcopy(made).double(), given, way)
    return answer if torch.equal(torch.get_rng_state(), before) else None


def _step(
    program: LibraryProgram, function: Any, arguments: Any, way: str
) -> tuple[list[Any], torch.Tensor]:
    """One call: the tensors that it answers, in training the gradients, and the buffers; and the
    random generator's state afterwards."""
    _seeded(program)
    answer = _called(function, arguments, way)
    drawn = torch.get_rng_state()
    owner = _owner(function)
    kept = () if owner is None else owner.buffers()
    return [*answer, *(one.detach().clone() for one in kept)], drawn


def _owner(function: Any) -> torch.nn.Module | None:
    """The module that is called, if there is one."""
    owner = getattr(function, "__wrapped__", function)
    return owner if isinstance(owner, torch.nn.Module) else None


def _called(function: Any, arguments: Any, way: str) -> list[Any]:
    if way == "step":
        return _tensors(function(*arguments))
    if way == "inference":
        with torch.no_grad():
            return _tensors(function(*arguments))
    owner = _owner(function)
    assert owner is not None
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
    theirs = made
    if isinstance(made, torch.nn.Module):
        made.train(row.way == "training")
        mine = copy.deepcopy(made)
    else:  # it may keep what it has learned: one for each
        torch.manual_seed(0)
        mine, _ = program.make()
    compiled = windfall.compile(mine)
    for batch in BATCHES:
        torch.manual_seed(2)
        given = arguments(batch)
        found, spent = _against_eager(program, theirs, compiled, given, row.way)
        if batch == BATCHES[0]:
            row.first = spent
            _tell(row, windfall.explanation(compiled))
        if found:
            row.answer = f"batch {batch}: {found}"
            return
    for way in ("inference", "training") if row.way == "training" else ():
        theirs.train(way == "training")
        mine.train(way == "training")
        found, _ = _against_eager(program, theirs, compiled, given, way)
        if found:
            row.answer = f"switched to {way}: {found}"
            return
    row.ratio = _ratio(
        lambda: _called(compiled, given, row.way),
        lambda: _called(theirs, given, row.way),
        pairs,
    )


def _against_eager(
    program: LibraryProgram, theirs: Any, compiled: Any, given: Any, way: str
) -> tuple[str, float]:
    """How a call differs from eager's, and how long it took."""
    before = _copied(theirs)
    wanted, wanted_drawn = _step(program, theirs, given, way)
    exact = functools.cache(
        functools.partial(_in_float64, program, before, given, way)  # as it was
    )
    began = time.process_time()
    try:
        found, drawn = _step(program, compiled, given, way)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200], 0.0
    spent = time.process_time() - began
    differs = _differs(found, wanted, exact)
    if not differs and not torch.equal(drawn, wanted_drawn):
        differs = "other random numbers were drawn"
    return differs, spent


def of_torch_compile(program: LibraryProgram, way: str) -> str:
    """How many graphs torch.compile captures of the first call, and how often it breaks. (They are
    run as they are: its own compiler takes half a minute for each.)"""
    import torch._dynamo

    graphs = 0

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, arguments = program.make()
        if isinstance(made, torch.nn.Module):
            made.train(way == "training")
        compiled: Any = torch.compile(made, backend=backend)
        try:
            torch.manual_seed(2)
            _step(program, compiled, arguments(BATCHES[0]), way)
        except Exception as error:
            return f"! {type(error).__name__}"
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    torch._dynamo.reset()
    return f"{graphs}, {breaks}"


def _tell(row: Row, told: Any) -> None:
    row.graphs = len(told.graphs)
    row.breaks = dict(collections.Counter(f"W{one.number:04d}" for one in told.breaks))
    row.reasons = tuple(f"W{one.number:04d} {one.detail}" for one in told.breaks)
    row.in_eager = len(told.fallbacks)


def _ratio(mine: Callable[[], Any], theirs: Callable[[], Any], pairs: int) -> float:
    """The median of pairs. (Seeding is left out, which may cost more than the call; of short calls
    several make one measurement.)"""
    for _ in range(3):
        mine()
        theirs()
    calls = 1 + int(SPAN / max(_spent(theirs, 3) / 3, 1e-6))
    found = [_spent(mine, calls) / _spent(theirs, calls) for _ in range(pairs)]
    return statistics.median(found)


def _spent(call: Callable[[], Any], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        call()
    return max(time.process_time() - began, 1e-9)


HEAD = (
    "| library | program | way | answer | graphs | breaks | in eager | first call | of eager "
    "| torch.compile |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
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
        row.theirs or "–",
    )
    return "| " + " | ".join(one.replace("|", "/").replace("\n", " ") for one in cells) + " |"


def page(rows: list[Row], names: list[str], pairs: int = PAIRS) -> str:
    """The page of the docs."""
    there = [one for one in rows if one.is_there]
    whole = sum(one.graphs <= 1 and not one.breaks and one.is_right for one in there)
    text = (
        "# Libraries\n\n"
        "Written by `python -m tests.conformance.libraries --write docs/libraries.md`.\n"
        "Programs over libraries of the extra `dev-libraries`, compared with eager at "
        f"batch sizes {', '.join(map(str, BATCHES))}. Times are of the processor; *of eager* is "
        f"the median of {pairs} interleaved pairs, on a machine that others used as well. "
        "*torch.compile*: graphs and breaks that it captures of the first call; it was not timed."
        "\n\n"
        f"{len(there)} rows over {len({one.library for one in there})} libraries, "
        f"{sum(one.is_right for one in there)} right, {whole} in one graph.\n\n"
    )
    if names:  # a part of the sweep is not to be taken for all of it
        others = [str(one) for one in PROGRAMS if not {one.library, one.name} & {*names}]
        text += f"Only a part was run for this page. Not run: {', '.join(others)}.\n\n"
    return text + HEAD + "".join(f"{line(one)}\n" for one in there)


def _ask_theirs(rows: list[Row]) -> None:
    """After all of ours: torch.compile leaves weak references behind, whose end is seen."""
    programs = {(one.library, one.name): one for one in PROGRAMS}
    for row in rows:
        if row.is_there:
            with contextlib.redirect_stdout(sys.stderr):
                row.theirs = of_torch_compile(programs[row.library, row.name], row.way)
            print(line(row), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; not 0 where an answer differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="libraries, or programs")
    parser.add_argument("--show", action="store_true", help="the reasons of breaks")
    parser.add_argument("--write", type=Path, help="the page of the docs")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--against", action="store_true", help="graphs of torch.compile as well")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    reasons: collections.Counter[str] = collections.Counter()
    for program in PROGRAMS:
        if given.names and not {program.library, program.name} & {*given.names}:
            continue
        for way in program.ways:
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
    if given.against:
        _ask_theirs(rows)
    if given.write is not None:
        given.write.write_text(page(rows, given.names, given.pairs))
    return 0 if all(one.is_right for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
