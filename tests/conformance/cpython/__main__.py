"""The command line: a table for each file, the share that is equal, and what differs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from tests.conformance.cpython import selection
from tests.conformance.cpython.sweep import BETWEEN, COMPILED, PLAIN, Table, run_all


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.cpython")
    parser.add_argument("--files", help="names, with commas between; else all of selection.py")
    parser.add_argument("--only", default="", help="tests whose name has this in it")
    parser.add_argument("--between-tensors", action="store_true", help="only this way")
    parser.add_argument("--alone", action="store_true", help="only without tensors around")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one test")
    parser.add_argument("--json", type=Path, help="each row as a line of JSON")
    parser.add_argument("--details", action="store_true", help="tracebacks of what differs")
    return parser.parse_args()


def _shown(table: Table, details: bool) -> None:
    if table.note:
        print(f"{table.file:30} {table.note}", flush=True)
        return
    asked, different = len(table.asked), table.different
    fallen = sum(bool(row.fallbacks) for row in table.asked)
    share = 100 * (1 - len(different) / asked) if asked else 100.0
    print(
        f"{table.file:30} asked {asked:5} different {len(different):4} equal {share:6.2f} % "
        f"fall-backs {fallen:4} left out {len(table.left_out):3} {table.seconds:6.1f} s",
        flush=True,
    )
    ledger = selection.known()
    for row in different:
        mark = "known" if row.test in ledger else "NEW"
        print(f"    {mark} {row.test} {row.way}: {row.plain} -> {row.outcome}", flush=True)
        for text in row.details if details else ():
            print("        " + text.strip().replace("\n", "\n        "), flush=True)


def main() -> int:
    """0 where every difference is in the ledger."""
    given = _parsed()
    ways = [PLAIN, COMPILED, BETWEEN]
    if given.between_tensors:
        ways.remove(COMPILED)
    if given.alone:
        ways.remove(BETWEEN)
    files = given.files.split(",") if given.files else list(selection.FILES)
    asked = different = new = 0
    for table in run_all(files, ways, given.only, given.timeout, given.jobs):
        _shown(table, given.details)
        asked += len(table.asked)
        different += len(table.different)
        new += sum(row.test not in selection.known() for row in table.different)
        if given.json:
            with given.json.open("a") as sink:
                sink.writelines(json.dumps(dataclasses.asdict(row)) + "\n" for row in table.rows)
    share = 100 * (1 - different / asked) if asked else 100.0
    print(f"asked {asked}, different {different} ({new} not in the ledger): {share:.2f} % equal")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
