"""Wider programs made by chance (`wide_programs.py`), by eager and by windfall.

python -m tests.autograd.wide_survey FIRST LAST     prints each difference, and how programs ran

Each program is called five times, at sizes that change: a later call must not depend on an earlier
one.
"""

from __future__ import annotations

import collections
import random
import re
import sys
import traceback
import warnings

import torch

import windfall
from tests.autograd.both import same, seen
from tests.autograd.survey import REFUSED
from tests.autograd.wide_programs import REFUSALS, SIZES, Wide, WideStage, make

# Sums of few digits, in another order: what cancels leaves their rounding.
NEAR = {dtype: {"rtol": 2e-2, "atol": 2e-2} for dtype in (torch.bfloat16, torch.float16)}


def compare(made: Wide) -> tuple[str, int]:
    """How it ran, and how many calls were compared to their end; it raises where it differs."""
    compiled = windfall.compile(made.function())
    whole, refused = 0, False
    for sizes in SIZES:
        wanted, found = _run(made, made.function(), sizes), _run(made, compiled, sizes)
        if _is_refused(wanted[-1]) and len(found) > len(wanted):
            same(found[: len(wanted) - 1], wanted[:-1], near=NEAR)
            refused = True
            continue
        same(found, wanted, near=NEAR)
        whole += 1
    if refused and not whole:
        return "eager refuses a backward that we do", whole
    told = windfall.explanation(compiled)
    reasons = {re.sub(r"^(W\d+).*", r"\1", one, flags=re.S)[:60] for one in told.fallbacks}
    reasons |= {f"break W{one.number:04d}" for one in told.breaks}
    return ", ".join(sorted(reasons)) or "native", whole


def _is_refused(last: object) -> bool:
    return isinstance(last, tuple) and len(last) == 2 and last[1] in REFUSED


def _run(made: Wide, call: object, sizes: tuple[int, int]) -> list[object]:
    """What is seen; of errors that are none of autograd's, the class."""
    stage = WideStage(made, call, sizes)  # type: ignore[arg-type]
    try:
        return stage.run(seen)
    except REFUSALS as error:
        return [*stage.told, (type(error).__name__,)]


def main(first: int, last: int) -> int:
    counts: collections.Counter[str] = collections.Counter()
    wrong = calls = 0
    torch.set_num_threads(1)
    for seed in range(first, last):
        made = make(random.Random(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                how, whole = compare(made)
                counts[how] += 1
                calls += whole
            except Exception as error:
                wrong += 1
                where = "" if isinstance(error, AssertionError) else traceback.format_exc()[-1500:]
                told = " ".join(str(error).split())[:300]
                print(f"seed {seed}: {type(error).__name__}: {told}\n{made}\n{where}", flush=True)
        if (seed + 1) % 100 == 0:
            print(
                f"up to {seed + 1}: {wrong} differ, {calls} calls",
                counts.most_common(12),
                flush=True,
            )
    print(f"{last - first} programs, {wrong} differ, {calls} calls:", dict(counts.most_common()))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
