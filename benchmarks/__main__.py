"""`python -m benchmarks SUITE [--quick] [--json FILE]`: runs a suite, prints its tables."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fresh, memory, results, stages, steady, suites
from benchmarks.case import Case
from benchmarks.contenders import CONTENDERS, USUAL
from benchmarks.models import model_cases, model_memory
from benchmarks.results import Row
from benchmarks.steps import step_cases
from benchmarks.trees import tree_cases

Given = argparse.Namespace


@dataclass(frozen=True, slots=True)
class Part:
    """A table of a suite: its rows, how they are measured, and what is told above them."""

    cases: Callable[[], list[Case]]
    measure: Callable[[list[Case], Given], Iterator[Row]]
    about: str
    setting: str  # the option that says how often


def _steady(cases: list[Case], given: Given) -> Iterator[Row]:
    settings = steady.Settings(given.rounds, 0.003 if given.quick else 0.01)
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = empty
        yield from steady.measure(cases, given.contenders, settings)


def _first(cases: list[Case], given: Given) -> Iterator[Row]:
    measure = fresh.measure_warm if given.warm else fresh.measure
    yield from measure(cases, given.contenders, given.repeats)


def _memory(cases: list[Case], given: Given) -> Iterator[Row]:
    yield from memory.measure(cases, given.contenders, given.repeats)


STEADY = (
    "CPU time of one call, one thread; the ratio is the median of {rounds} interleaved pairs "
    "[its 95 % interval]"
)
FIRST = (
    "CPU seconds to the first result, fresh process, caches {caches}, `import torch` not counted; "
    "median of {repeats} runs [interval]"
)
MEMORY = (
    "resident memory at the peak of a training step, less what the loaded libraries hold; fresh "
    "process, median of {repeats} runs [interval]"
)
SUITES: dict[str, tuple[Part, ...]] = {
    "overhead": (Part(suites.overhead, _steady, STEADY, "rounds"),),
    "compile": (Part(suites.first_results, _first, FIRST, "repeats"),),
    "kernels": (Part(suites.kernels, _steady, STEADY, "rounds"),),
    "writes": (Part(suites.writes, _steady, STEADY, "rounds"),),
    "higher": (Part(suites.higher, _steady, STEADY, "rounds"),),
    "functions": (Part(suites.functions, _steady, STEADY, "rounds"),),
    "step": (Part(step_cases, _steady, STEADY, "rounds"),),
    "models": (
        Part(model_cases, _steady, STEADY, "rounds"),
        Part(model_memory, _memory, MEMORY, "repeats"),
    ),
    "trees": (Part(tree_cases, _steady, STEADY, "rounds"),),
    "memory": (Part(model_memory, _memory, MEMORY, "repeats"),),
}

# Who runs where nobody is named.
CONTENDERS_OF = {"trees": ("windfall", "windfall trees", "eager", "torch.compile")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one suite; the exit code is 1 where --check is given and a goal was missed."""
    given = _parser().parse_args(arguments)
    given.contenders = given.contenders or list(CONTENDERS_OF.get(given.suite, USUAL))
    given.caches = "filled" if given.warm else "empty"
    if given.warm and given.suite != "compile":
        sys.exit("--warm is for `compile`: other suites start no fresh process")
    warnings.simplefilter("ignore")  # torch.compile's advice does not belong in the table
    if given.suite == "stages":
        met = stages.run(given.repeats, given.json, given.quick)
        return 1 if given.check and not met else 0
    chosen = [(part, _chosen(part, given)) for part in SUITES[given.suite]]
    if not any(cases for _, cases in chosen):
        sys.exit(f"no case of {given.suite} has {given.only!r} in its name")
    rows: list[Row] = []
    for part, cases in chosen:
        if cases:
            rows += _run(part, cases, given)
    if given.json:
        names = ("quick", *dict.fromkeys(part.setting for part, _ in chosen))
        results.write(given.json, given.suite, rows, {name: getattr(given, name) for name in names})
        print(f"\nwritten: {given.json}")
    return 1 if given.check and any(row.met is False for row in rows) else 0


def _chosen(part: Part, given: Given) -> list[Case]:
    return [
        case
        for case in part.cases()
        if given.only in case.label and (case.quick or not given.quick)
    ]


def _run(part: Part, cases: list[Case], given: Given) -> list[Row]:
    rows = []
    for row in part.measure(cases, given):
        print(f"measured {row.case}", file=sys.stderr, flush=True)
        rows.append(row)
    print(f"\n{given.suite}: {part.about.format(**vars(given))}\n")
    print(results.table(rows))
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", choices=[*SUITES, "stages"])
    parser.add_argument("--quick", action="store_true", help="fewer rows, shorter samples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here too")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
    parser.add_argument(
        "--contenders",
        type=_contenders,
        metavar="A,B",
        help=f"who runs, of {', '.join(CONTENDERS)}; the first is the baseline",
    )
    parser.add_argument("--rounds", type=int, default=25, help="interleaved pairs (at least 15)")
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes for each cell")
    parser.add_argument("--warm", action="store_true", help="compile: with filled caches")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    return parser


def _contenders(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(CONTENDERS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
