"""`python -m benchmarks.against TREE`: this checkout against another one of windfall.

Enters: the folder of another checkout (`git worktree add ../before COMMIT`). Leaves: for each case,
how many times the other's time this one takes: first results in fresh processes (`compile`), calls
(`overhead`). Invariant: each pair is one process of either checkout, one right after the other, and
the order turns from pair to pair; both run from compiled bytecode, whatever
PYTHONDONTWRITEBYTECODE says.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import suites
from benchmarks.case import Case
from benchmarks.process import CACHE_VARIABLES
from benchmarks.sampling import Ratio, ratio

HERE = Path(__file__).parent.parent


def first_result(tree: Path, case: Case) -> float:
    """CPU seconds to the first result, with empty caches."""
    said = _run(tree, "benchmarks.fresh", case.label, "windfall")
    return float(json.loads(said.splitlines()[-1])["cpu_seconds"])


def call(tree: Path, case: Case) -> float:
    """CPU seconds of one warm call, the median of many samples."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        options = ("--contenders", "windfall", "--rounds", "15", "--json", str(file))
        _run(tree, "benchmarks", "overhead", "--only", case.label, *options)
        rows = json.loads(file.read_text())["rows"]
    (found,) = (row for row in rows if row["case"] == case.label)
    return float(found["contenders"]["windfall"]["summary"]["median"])


Measure = Callable[[Path, Case], float]
SUITES: dict[str, tuple[Callable[[], list[Case]], Measure]] = {
    "compile": (suites.first_results, first_result),
    "overhead": (suites.overhead, call),
}


def _run(tree: Path, module: str, *arguments: str) -> str:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", module, *arguments],
            cwd=tree,
            env={**os.environ, **dict.fromkeys(CACHE_VARIABLES, empty)},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        sys.exit(f"{tree}: {module} {' '.join(arguments)}\n{done.stderr[-2000:]}")
    return done.stdout


def compared(measure: Measure, other: Path, case: Case, pairs: int) -> tuple[Ratio, list[float]]:
    """This checkout's times over the other's, pair by pair, and this one's times."""
    times: dict[Path, list[float]] = {HERE: [], other: []}
    for turn in range(pairs):
        for tree in (HERE, other) if turn % 2 else (other, HERE):
            times[tree].append(measure(tree, case))
    return ratio(times[HERE], times[other]), times[HERE]


def main() -> None:
    """Compare the cases that are asked for; print a line each, as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("tree", type=Path, help="folder of the other checkout")
    parser.add_argument("--suite", choices=SUITES, default="compile")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    other = given.tree.resolve()
    for tree in (HERE, other):
        for package in ("windfall", "benchmarks", "examples"):
            compileall.compile_dir(tree / package, quiet=2)
    cases, measure = SUITES[given.suite]
    print(f"{given.suite}: this checkout over {given.tree}, medians of {given.pairs} pairs")
    for case in cases():
        if given.only in case.label:
            found, times = compared(measure, other, case, given.pairs)
            print(
                f"{found.median:6.3f} [{min(found.low, found.high):.3f}, {found.high:.3f}] "
                f"minima {found.minima:.3f}  {min(times):.3g} s  {case.label}",
                flush=True,
            )


if __name__ == "__main__":
    main()
