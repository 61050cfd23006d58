"""Faults at every so many lines of one program.

Enters: a program, exceptions, a step. Leaves: a verdict for each fault, until the program ends
before the line; several exceptions are taken in turn. With `cold`, each fault strikes a child
process in which nothing was compiled yet:
what the process computes once (layouts of torch, tables of ops, caches) is struck half-made.
"""

from __future__ import annotations

import itertools
import os
import pickle
import traceback
from collections.abc import Iterator, Sequence

from tests.faults.programs import Program
from tests.faults.trial import Verdict, lines_of, trial

EXCEPTIONS = ("KeyboardInterrupt", "MemoryError", "RuntimeError")


def sweep(
    program: Program,
    kinds: type[BaseException] | Sequence[type[BaseException]],
    step: int,
    first: int = 1,
    *,
    warm: bool = False,
    cold: bool = False,
    once: bool = False,
) -> Iterator[Verdict]:
    """The verdicts, in order of lines."""
    if not cold:
        lines_of(program)
    at = first
    for kind in itertools.cycle(kinds if isinstance(kinds, Sequence) else (kinds,)):
        verdict = _in_child(program, kind, at) if cold else trial(program, kind, at, warm=warm)
        if verdict.where or verdict.wrong:
            yield verdict
        if once or not verdict.where:
            return
        at += step


def _in_child(program: Program, kind: type[BaseException], at: int) -> Verdict:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            verdict = trial(program, kind, at)
        except BaseException:  # the child must not go on as its parent
            verdict = Verdict(program.name, kind.__name__, at, "?", [traceback.format_exc()])
        os.write(writing, pickle.dumps(verdict))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        return Verdict(program.name, kind.__name__, at, "?", ["the process died"])
    verdict = pickle.loads(told)
    assert isinstance(verdict, Verdict)
    return verdict
