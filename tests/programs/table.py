"""The table of the hard cases: what eager, torch.compile and windfall make of each.

    python -m tests.programs.table            writes docs/hard-cases.md
    python -m tests.programs.table --print    prints what differs, and writes nothing

A cell is the number of graphs where the answer is right; ✗ where a value, effect or exception is
wrong; ! where compiling raised; 0 where the answer is right and nothing was compiled.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

import torch

from tests.programs.case import Case, cases_of
from tests.programs.compare import WRONG, Outcome, compare
from tests.programs.subjects import TorchCompile, Uncompiled, Windfall

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hard-cases.md"


def cell(outcome: Outcome) -> str:
    """What the table says of one program under one compiler."""
    wrong = [one for one in outcome.differences if one.aspect in WRONG]
    if any(one.aspect == "exception" and "expected" not in one.text for one in wrong):
        return "!"
    return "✗" if wrong else str(len(outcome.graphs))


def ideal(case: Case) -> str:
    """The number of graphs that a test demands."""
    if case.about.waits:
        return "later"
    if case.about.graphs is None:
        return "any"
    fewest, most = case.about.graphs
    return str(most) if fewest == most else f"{fewest}–{most}"


COLUMNS = {
    "uncompiled": Uncompiled,
    "torch.compile": TorchCompile,
    "windfall, backend eager": lambda: Windfall("eager", strict=False, verify=False),
    "windfall": lambda: Windfall("windfall", strict=False, verify=False),
}

HEAD = f"""# The hard cases

Made by `python -m tests.programs.table`; do not edit. torch {torch.__version__.split("+")[0]},
default mode, each program called two to fourteen times; torch.compile runs with a backend that
executes the captured graphs as they are.

A number: right, with so many graphs over all calls (0: nothing was compiled). ✗: a value, an
effect, an identity or an exception is not eager's. !: the compiler raised. The last column is what
`tests/programs/test_programs.py` accepts.

| | case | torch.compile | windfall, `backend="eager"` | windfall | graphs wanted |
|---|---|---|---|---|---|
"""


def outcomes(case: Case, show: bool) -> dict[str, str]:
    """The cells of one line."""
    cells = {}
    for name, subject in COLUMNS.items():
        outcome = compare(case, subject())
        cells[name] = cell(outcome)
        if show and outcome.differences:
            print(f"--- {case} under {name}\n{outcome}")
    assert cells.pop("uncompiled") == "0", f"{case} is not the same twice"
    return cells


def main() -> None:
    """Make the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--print", action="store_true", dest="show")
    options.add_argument("numbers", nargs="*", type=int)
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    lines = []
    for case in cases_of("cases"):
        if chosen.numbers and case.about.number not in chosen.numbers:
            continue
        cells = outcomes(case, chosen.show)
        parts = [str(case.about.number), case.about.title, *cells.values(), ideal(case)]
        lines.append("| " + " | ".join(one.replace("|", "\\|") for one in parts) + " |")
        print(lines[-1], file=sys.stderr)
    if not chosen.show:
        PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
