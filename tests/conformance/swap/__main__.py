"""python -m tests.conformance.swap: run the swap matrix, print what differs from eager.

    --operations a,b   only these                    --kinds x,y   only these kinds or families;
                                                     `representative`: some of each family
    --place NAME       where the operand comes from; `all` for each in turn (default: argument)
    --between-tensors  the operation stands between two tensor operations
    --pairs N          two-operand operations over N pairs of pairs, instead of the matrix
    --twins            instead of the matrix, pairs of objects of exactly one type
    --close F, --far F  share of the pairs that take the true protocol (default 1 and 0.01):
                       those of related types, the others
    --first-calls      one call with each kind, no pairs: rules that are wrong by themselves
    --chunk 1/4        every fourth operation, for parallel runs
    --sample N         a random choice of N kinds for each operation, instead of all
    --full             the true protocol for every pair      --text   exceptions' text too
    --json F           one line for each failure             --seed S

Enters: the command line. Leaves: counts and groups on the standard output; the exit code says
whether anything differed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time
import warnings
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy

from tests.conformance.swap.kinds import KINDS
from tests.conformance.swap.operations import OPERATIONS, TWO_OPERANDS
from tests.conformance.swap.places import PLACES
from tests.conformance.swap.sweep import (
    Choice,
    Failure,
    Result,
    Sweep,
    alarms,
    healthy,
    kinds_named,
    operations_named,
    sweep_operation,
    sweep_twins,
    sweep_two_operands,
)

EXAMPLES = 3  # that are shown of one group


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.swap")
    parser.add_argument("--operations", type=_names, default=())
    parser.add_argument("--kinds", type=_names, default=())
    parser.add_argument("--first-calls", action="store_true")
    parser.add_argument("--place", choices=[*PLACES, "all"], default="argument")
    parser.add_argument("--between-tensors", action="store_true")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--twins", action="store_true")
    parser.add_argument("--close", type=float, default=1.0)
    parser.add_argument("--far", type=float, default=0.01)
    parser.add_argument("--chunk", default="1/1")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quiet", action="store_true", help="no line for each operation")
    return parser.parse_args(arguments)


def _matrix(asked: argparse.Namespace, total: Result) -> None:
    """Operation by operation: what is found is told at once, so that a crash loses one."""
    kinds = kinds_named(asked.kinds)
    choice = Choice(asked.close, asked.far, asked.seed, asked.first_calls)
    if asked.full:
        choice = Choice(1.0, 1.0, asked.seed)
    part, parts = (int(one) for one in asked.chunk.split("/"))
    for place in PLACES if asked.place == "all" else (asked.place,):
        for operation in operations_named(asked.operations)[part - 1 :: parts]:
            begun, result = time.perf_counter(), Result()
            sweep = Sweep(operation, result, place, asked.between_tensors, text=asked.text)
            if asked.twins:
                sweep_twins(sweep, choice)
            else:
                sweep_operation(sweep, kinds, choice, asked.sample)
            if not asked.quiet:
                wrong, spent = len(result.failures), time.perf_counter() - begun
                print(f"{place:16} {operation.name:24} {wrong:6} wrong, {spent:.1f} s")
            _finish(asked, result, total)
            if not healthy():
                print(f"after {operation.name} torch no longer works in this thread")
                return


def _finish(asked: argparse.Namespace, result: Result, total: Result) -> None:
    """Tell what one operation gave and add it up."""
    _show_groups(result)
    if asked.json:
        with asked.json.open("a") as file:
            file.writelines(f"{json.dumps(asdict(one), default=str)}\n" for one in result.failures)
    total.compared.update(result.compared)
    total.unstable += result.unstable
    total.failures += result.failures


def _who(group: list[Failure]) -> str:
    """Which kinds the failures of a group began with."""
    counts = Counter(", ".join(one.calls[max(0, len(one.calls) - 2)]) for one in group)
    listed = [f"{name} ({number})" if number > 1 else name for name, number in counts.most_common()]
    return ", ".join(listed[:12]) + (f" and {len(listed) - 12} more" if len(listed) > 12 else "")


def _show_groups(result: Result) -> None:
    for (operation, cause), group in result.groups().items():
        print(f"\n{operation}: {len(group)} × {cause}")
        print(f"    {'of' if group[0].first else 'after'}: {_who(group)}")
        for one in group[:EXAMPLES]:
            print(f"    {one}")
            if one.stale:
                print(f"        guards of the operand: {'; '.join(one.guards[:4]) or 'none'}")
    sys.stdout.flush()


def _show_counts(result: Result, seconds: float) -> None:
    counts = ", ".join(f"{number} {how}" for how, number in sorted(result.compared.items()))
    print(f"\ncalls: {counts}; {len(result.unstable)} that eager itself does not repeat")
    text = ", ".join(sorted(set(result.unstable))[:10])
    if text:
        print(f"not repeatable: {text}")
    print(f"{len(result.failures)} wrong in {len(result.groups())} groups, {seconds:.0f} s")


def main(arguments: list[str]) -> int:
    """Run what is asked for."""
    asked = _parsed(arguments)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    numpy.seterr(all="ignore")
    total, begun = Result(), time.perf_counter()
    print(f"{len(OPERATIONS)} operations, {len(TWO_OPERANDS)} of two operands, {len(KINDS)} kinds")
    if asked.json:
        asked.json.write_text("")
    with alarms():
        if asked.pairs:
            result = Result()
            names, between = asked.operations, asked.between_tensors
            sweep_two_operands(result, asked.pairs, asked.seed, between, names)
            _finish(asked, result, total)
        else:
            _matrix(asked, total)
    _show_counts(total, time.perf_counter() - begun)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
