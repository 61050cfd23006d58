"""Faults at every so many lines of a capture and a compilation, in every program.

    python -m tests.faults [--step 100] [--exception KeyboardInterrupt,MemoryError,RuntimeError]
        [--in-turn] [--program NAME] [--at LINE] [--offset N] [--warm] [--cold]

`--in-turn` takes the exceptions one after the other, line by line, instead of each at all lines;
`--warm` strikes a call of what is compiled already; `--cold` a process in which nothing was
compiled yet (each fault in a child of its own); `--at` one line only. It exits with 1 if anything
was wrong.
"""

from __future__ import annotations

import argparse
import builtins
import sys
import warnings
from collections import Counter

from tests.faults.programs import PROGRAMS
from tests.faults.sweep import EXCEPTIONS, sweep


def main() -> int:
    """Sweep, print what is wrong, count."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--step", type=int, default=100)
    options.add_argument("--offset", type=int, default=1, help="the first line")
    options.add_argument("--exception", default=",".join(EXCEPTIONS))
    options.add_argument("--in-turn", action="store_true")
    options.add_argument("--program", default=",".join(PROGRAMS))
    options.add_argument("--at", type=int)
    options.add_argument("--warm", action="store_true")
    options.add_argument("--cold", action="store_true")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    found: Counter[bool] = Counter()
    each = chosen.exception.split(",")
    for name in chosen.program.split(","):
        for kinds in [each] if chosen.in_turn else [[one] for one in each]:
            ran: Counter[bool] = Counter()
            for verdict in sweep(
                PROGRAMS[name],
                [getattr(builtins, one) for one in kinds],
                chosen.step,
                chosen.offset if chosen.at is None else chosen.at,
                warm=chosen.warm,
                cold=chosen.cold,
                once=chosen.at is not None,
            ):
                ran[not verdict.wrong] += 1
                if verdict.wrong:
                    print(f"WRONG {verdict}", flush=True)
            print(
                f"{name} {', '.join(kinds)}: {sum(ran.values())} faults, {ran[False]} wrong",
                flush=True,
            )
            found += ran
    print(f"{sum(found.values())} faults, {found[False]} wrong")
    return 1 if found[False] else 0


if __name__ == "__main__":
    sys.exit(main())
