"""Many generated programs, their failures grouped by cause, and the smallest program of each group.

    python -m tests.fuzz.survey --examples 500 --backend eager --size 14 [--shrink]
    python -m tests.fuzz.survey --world --examples 5000 [--shrink] [--no-texts]

With `--world` the world of a program changes between its calls (`upheaval.py`). A cause is what the
first difference says, without what changes from program to program (numbers, names of generated
functions), and of a changing world the expression that made it. A program that does not end in time
or kills the harness is a cause of its own. `--shrink` looks for a smaller program of hypothesis's,
then takes out lines. For people who mend the compiler; the tests are in test_generated.py and
test_upheavals.py.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis.errors import NoSuchExample

from tests.fuzz.grammar import programs
from tests.fuzz.running import (
    PRELUDE,
    SCENERY,
    compiled_text,
    numbered,
    outcome_of,
    outcome_of_upheaval,
)
from tests.fuzz.upheaval import upheaval, use_at
from tests.programs.compare import Outcome, Subject
from tests.programs.subjects import Windfall

_VARYING = re.compile(r"0x[0-9a-f]+|\d+|'[^']*'|\[[^\]]*\]|tensor\([^)]*\)|<fuzz [^>]*>")


@dataclass(frozen=True)
class Generator:
    """A kind of generated program: how it is drawn and how it is run."""

    programs: Callable[[Any], Iterator[str]]  # of the chosen options
    outcome: Callable[[str, Subject], Outcome]
    prelude: str
    maker: Callable[[str, str], str]  # the text at a path of the result, where that is known


def drawn(chosen: Any) -> Iterator[str]:
    """Programs of hypothesis's."""
    found: list[str] = []

    @seed(chosen.seed)
    @settings(
        max_examples=chosen.examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs(chosen.size))
    def explore(source: str) -> None:
        found.append(source)

    explore()
    yield from found


def seeded(chosen: Any) -> Iterator[str]:
    """Programs of changing worlds: hypothesis would draw few of them, each with many variations."""
    for index in range(chosen.examples):
        yield upheaval(chosen.seed + index, chosen.size, chosen.texts)


PROGRAMS = Generator(drawn, outcome_of, PRELUDE, lambda source, path: "")
UPHEAVALS = Generator(seeded, outcome_of_upheaval, SCENERY, use_at)


def run(source: str, chosen: Any) -> tuple[str, str]:
    """The cause of a failure and its full text; two empty strings where there is none."""
    try:
        subject = Windfall(chosen.backend, native=chosen.native)
        outcome = chosen.generator.outcome(source, subject)
    except (Exception, SystemError) as error:
        return f"harness: {type(error).__name__} {_VARYING.sub('#', str(error))[:100]}", str(error)
    ignored = chosen.ignore.split(",")
    outcome.differences = [one for one in outcome.differences if one.aspect not in ignored]
    if not outcome.wrong:
        return "", ""
    return cause(outcome, chosen.generator.maker(source, outcome.differences[0].path)), str(outcome)


def cause(outcome: Outcome, made_by: str = "") -> str:
    """What the first difference is about."""
    first = outcome.differences[0]
    text = _VARYING.sub("#", first.text)[:140]
    place = made_by or _VARYING.sub("#", first.path.partition(": ")[2])
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
    options.add_argument("--world", action="store_const", dest="generator", const=UPHEAVALS)
    options.add_argument("--no-texts", action="store_false", dest="texts")
    options.set_defaults(generator=PROGRAMS)
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    done = 0

    for source in chosen.generator.programs(chosen):
        done += 1
        name, text = run(source, chosen)
        if name:
            groups[name].append((source, text))
    failed = sum(map(len, groups.values()))
    print(f"{done} programs, {failed} wrong, {len(groups)} causes (seed {chosen.seed})")
    for name, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        source = min((one for one, _ in found), key=len)
        if chosen.shrink:
            source = without_lines(smallest(source, name, chosen), name, chosen)
        text = numbered(source, chosen.generator.prelude)
        print(f"\n=== {len(found)}× {name}\n{text}\n{run(source, chosen)[1]}")
        sys.stdout.flush()


def smallest(source: str, name: str, chosen: Any) -> str:
    """A smaller program that fails in the same way, if one is found soon."""
    if chosen.generator is UPHEAVALS:
        return source  # too many of its choices would have to meet again
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


def without_lines(source: str, name: str, chosen: Any) -> str:
    """The program without the lines that its failure does not need."""
    lines = source.splitlines()
    for size in (16, 8, 4, 2, 1, 2, 1):
        start = len(lines) - size
        while start >= 0:
            fewer = lines[:start] + lines[start + size :]
            if _fails_alike("\n".join(fewer), name, chosen):
                lines = fewer
            start -= size if size > 2 else 1
            start = min(start, len(lines) - size) if start >= 0 else start
    return "\n".join(lines)


def _fails_alike(source: str, name: str, chosen: Any) -> bool:
    try:
        compiled_text(source, chosen.generator.prelude)
    except SyntaxError:
        return False
    return run(source, chosen)[0] == name


if __name__ == "__main__":
    main()
