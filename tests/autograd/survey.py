"""Programs made by chance (`made_programs.py`), by eager and by windfall.

python -m tests.autograd.survey FIRST LAST     prints each difference, and how programs ran
python -m tests.autograd.survey FIRST LAST changes     others, which change sizes in place too
"""

from __future__ import annotations

import collections
import random
import re
import sys
import traceback
import warnings

import windfall
from tests.autograd.both import same, seen
from tests.autograd.made_programs import Made, Stage, make

# What eager may say of a backward that we do: a value that the compiled function wrote, and that
# backward needs, is kept as it was then, also if somebody writes it again; and of a graph that was
# freed, we may have needed nothing where eager keeps a number. The gradients are the first ones. A
# checkpoint of the reentrant kind is for `backward()` alone in eager.
REFUSED = ("modified by an inplace", "second time", "use_reentrant=True")


def compare(made: Made) -> str:
    """Twice, as the second call must not depend on the first; how it ran. It raises where there is
    a difference."""
    compiled = windfall.compile(made.function())
    for _ in range(2):
        wanted = Stage(made, made.function()).run(seen)
        found = Stage(made, compiled).run(seen)
        if isinstance(wanted[-1], tuple) and wanted[-1][1] in REFUSED and len(found) > len(wanted):
            same(found[: len(wanted) - 1], wanted[:-1])
            return "eager refuses a backward that we do"
        same(found, wanted)
    told = windfall.explanation(compiled)
    reasons = {re.sub(r"^(W\d+).*", r"\1", one, flags=re.S)[:60] for one in told.fallbacks}
    reasons |= {f"break W{one.number:04d}" for one in told.breaks}
    return ", ".join(sorted(reasons)) or "native"


def main(first: int, last: int, changes: bool = False) -> int:
    counts: collections.Counter[str] = collections.Counter()
    wrong = 0
    for seed in range(first, last):
        made = make(random.Random(seed), changes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                counts[compare(made)] += 1
            except Exception as error:
                wrong += 1
                where = "" if isinstance(error, AssertionError) else traceback.format_exc()[-1500:]
                told = " ".join(str(error).split())[:300]
                print(f"seed {seed}: {type(error).__name__}: {told}\n{made}\n{where}", flush=True)
        if (seed + 1) % 200 == 0:
            print(f"up to {seed + 1}: {wrong} differ", dict(counts.most_common()), flush=True)
    print(f"{last - first} programs, {wrong} differ:", dict(counts.most_common()))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["changes"]))
