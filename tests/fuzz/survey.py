"""Many generated programs, their failures grouped by cause, and the smallest program of each group.

    python -m tests.fuzz.survey --examples 500 --backend eager --size 14 [--shrink]

A cause is what the first difference says, without what changes from program to program (numbers,
names of generated functions). A program that does not end in time or kills the harness is a cause
of its own. For people who mend the compiler; the tests are in test_generated.py.
"""

from __future__ import annotations

import argparse
import random
import re
import warnings
from collections import defaultdict
from typing import Any

from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis.errors import NoSuchExample

from tests.fuzz.grammar import programs
from tests.fuzz.running import numbered, outcome_of
from tests.programs.compare import Outcome
from tests.programs.subjects import Windfall

_VARYING = re.compile(r"0x[0-9a-f]+|\d+|'[^']*'|\[[^\]]*\]|tensor\([^)]*\)|<fuzz [^>]*>")


def run(source: str, chosen: Any) -> tuple[str, str]:
    """The cause of a failure and its full text; two empty strings where there is none."""
    try:
        outcome = outcome_of(source, Windfall(chosen.backend, native=chosen.native))
    except (Exception, SystemError) as error:
        return f"harness: {type(error).__name__} {_VARYING.sub('#', str(error))[:100]}", str(error)
    ignored = chosen.ignore.split(",")
    outcome.differences = [one for one in outcome.differences if one.aspect not in ignored]
    return (cause(outcome), str(outcome)) if outcome.wrong else ("", "")


def cause(outcome: Outcome) -> str:
    """What the first difference is about."""
    first = outcome.differences[0]
    text = _VARYING.sub("#", first.text)[:140]
    place = _VARYING.sub("#", first.path.partition(": ")[2])
    return f"[{first.aspect}] {place}: {text}"


def main() -> None:
    """Run, group, shrink, print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=300)
    options.add_argument("--backend", default="eager")
    options.add_argument("--size", type=int, default=14)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options.add_argument("--shrink", action="store_true")
    options.add_argument("--ignore", default="", help="aspects, e.g. line,traceback")
    options.add_argument("--no-native", action="store_false", dest="native")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    done = 0

    @seed(chosen.seed)
    @settings(
        max_examples=chosen.examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs(chosen.size))
    def explore(source: str) -> None:
        nonlocal done
        done += 1
        name, text = run(source, chosen)
        if name:
            groups[name].append((source, text))

    explore()
    failed = sum(map(len, groups.values()))
    print(f"{done} programs, {failed} wrong, {len(groups)} causes (seed {chosen.seed})")
    for name, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        source = min((one for one, _ in found), key=len)
        if chosen.shrink:
            source = smallest(source, name, chosen)
        print(f"\n=== {len(found)}× {name}\n{numbered(source)}\n{run(source, chosen)[1]}")


def smallest(source: str, name: str, chosen: Any) -> str:
    """A smaller program that fails in the same way, if one is found soon."""
    try:
        return find(
            programs(chosen.size),
            lambda text: run(text, chosen)[0] == name,
            settings=settings(
                max_examples=400,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except NoSuchExample:
        return source


if __name__ == "__main__":
    main()
