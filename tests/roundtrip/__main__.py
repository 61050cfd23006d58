"""python -m tests.roundtrip: does everything come back from plain data?

    python -m tests.roundtrip                      golden programs, op samples, models
    python -m tests.roundtrip --only "golden "     items whose name has this in it

Compiles each item, sends every record to bytes and back (equal documents, equal texts), and has
another process run each program, and whole entries of golden programs, from their bytes (equal
bits). Exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import sys

import torch

from tests.roundtrip.check import Report, check
from tests.roundtrip.child import run_elsewhere
from tests.roundtrip.corpus import corpus, records


def main() -> int:
    """Check all, say what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.roundtrip", description=__doc__)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    report, count = Report(), 0
    for item in corpus():
        if chosen.only in item.name:
            check(item.name, *records(item), report)
            count += 1
    run_elsewhere(report)
    entries = sum(bool(one.golden) for one in report.tasks)
    others = len(report.tasks) - entries
    print(f"{count} items; in another process: {others} programs or executables, {entries} entries")
    print(report)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
