"""A measurement in a process of its own.

Enters: a module of this package that can be run, and its arguments. Leaves: the JSON object that it
printed last. Invariant: no cache of an earlier run can be found, unless the caller says which.
"""

from __future__ import annotations

import compileall
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import windfall
from benchmarks import sampling
from benchmarks.case import Case
from benchmarks.results import Measured, Row

# Where each peer keeps its cache; all point into a folder that dies with the run.
CACHE_VARIABLES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "WINDFALL_CACHE_DIR",
    "JAX_COMPILATION_CACHE_DIR",
    "XDG_CACHE_HOME",
    "TMPDIR",
)
# JAX keeps only what took long to compile, unless it is told otherwise.
KEEPS_ALL = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


class ChildFailed(Exception):
    """The child raised; the message is its last line."""


@functools.cache
def _compile_sources() -> None:
    """Lay bytecode beside our sources, as an installer does with every package: where Python may
    not (`PYTHONDONTWRITEBYTECODE`), each process would compile them anew, and no other package."""
    compileall.compile_dir(Path(windfall.__file__).parent, quiet=2)


def answer(module: str, *arguments: str, caches: Path | None = None) -> dict[str, Any]:
    """What `python -m MODULE ARGUMENTS` prints. Without `caches`, caches start empty."""
    _compile_sources()
    with tempfile.TemporaryDirectory() as empty:
        folder = str(caches or empty)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", module, *arguments],
            env={**os.environ, **KEEPS_ALL, **dict.fromkeys(CACHE_VARIABLES, folder)},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise ChildFailed((done.stderr.strip().splitlines() or ["no message"])[-1][:60])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_turn(
    case: Case,
    contenders: Sequence[str],
    repeats: int,
    measure: Callable[[str], float],
    baseline: str,
) -> Row:
    """One sample of each contender in each round; one that failed is not asked again."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, Measured] = {}
    for _ in range(repeats):
        for name in contenders:
            if name not in found:
                try:
                    samples[name].append(measure(name))
                except ChildFailed as failure:
                    found[name] = Measured(problem=str(failure))
    good = {name: times for name, times in samples.items() if name not in found}
    if good:
        summaries = sampling.summarised(good, baseline if baseline in good else next(iter(good)))
        for name in good:
            found[name] = Measured(summaries[name], samples=samples[name])
    ordered = {name: found[name] for name in sorted(contenders, key=lambda n: n != baseline)}
    return Row(case.label, baseline, ordered, case.goals)
