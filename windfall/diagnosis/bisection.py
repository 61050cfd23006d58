"""`windfall.bisect(f, args)`: which stage, graph and operation makes a wrong answer or a crash.

Enters: a function or module, and the arguments of one call or of several. Leaves: a `Diagnosis`,
with a program of as few operations as were found that goes wrong alone. Invariant: the user's
objects are not touched: everything runs on copies; native code runs in processes of their own
(`isolation.py`), so that a crash is an answer too; after `seconds` it answers what it knows.

    whole calls → capture alone → each captured graph → its least part → which stage of that
"""

from __future__ import annotations

import inspect
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.diagnosis.blame import CAPTURE, Blame, LeftOut, blamed, wrong_rules
from windfall.diagnosis.cases import Case, Recorded, RecordingBackend, Unwritable, origin_of, whole
from windfall.diagnosis.isolation import ProcessAnswer, asked
from windfall.diagnosis.minimisation import reduced
from windfall.diagnosis.standalone import program_text
from windfall.diagnosis.state_copies import Copies, unnoticed
from windfall.diagnosis.trial import DIFFERS, compiled, judged, trial_options
from windfall.errors import SourceLine
from windfall.options import Options

SECONDS = 110.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What goes wrong, how, and where. `stage` is "" where nothing does."""

    stage: str = ""
    part: str = ""  # the pass, or the ATen op whose rule is wrong
    told: str = ""  # what differs, or how it ends
    graph: str = ""
    operations: tuple[str, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    program: str = ""  # source that shows it alone

    @property
    def found(self) -> bool:
        """Whether something goes wrong."""
        return bool(self.stage)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "found": self.found,
            "stage": self.stage,
            "part": self.part,
            "told": self.told,
            "graph": self.graph,
            "operations": list(self.operations),
            "lines": [str(line) for line in self.lines],
            "program": self.program,
        }

    def __str__(self) -> str:
        if not self.found:
            return "eager and compiled agree"
        head = f"{self.stage}{f' ({self.part})' if self.part else ''}: {self.told}"
        of = [f"  {operation}" for operation in self.operations]
        at = [f"  at {line}" for line in dict.fromkeys(self.lines)]
        return "\n".join([head, f"in {self.graph}:" if self.graph else "", *of, *at]).strip()


def bisect(
    target: Any, *calls: tuple[Any, ...], options: Options, seconds: float = SECONDS
) -> Diagnosis:
    """Where the calls of `target` go wrong."""
    return _Bisection(target, calls, trial_options(options), seconds).finding()


class _Bisection:
    def __init__(
        self, target: Any, calls: Sequence[tuple[Any, ...]], options: Options, seconds: float
    ) -> None:
        self._target, self._calls, self._options = target, calls, options
        self._end = time.monotonic() + seconds
        self._kind = ""  # how it goes wrong

    def finding(self) -> Diagnosis:
        """All steps."""
        _load()
        first = self._asked(lambda: self._judged(self._calls))
        if not _goes_wrong(first):
            return Diagnosis()
        self._kind = _kind(first)
        eager = {"backend": "eager"}
        if self._is_wrong(lambda: self._judged(self._calls, **eager)):
            return self._captured(first)
        graphs = self._recorded()
        for dynamic in (self._options.dynamic, True):
            self._options = replace(self._options, dynamic=dynamic)
            for recorded in graphs:
                case = whole(recorded)
                if self._first_wrong([case]) is not None:
                    return self._reduced(case)
        return self._whole(first, graphs)

    # ------------------------------------------------------------------------------- questions

    def _judged(self, calls: Sequence[tuple[Any, ...]], **changes: Any) -> str:
        return judged(self._target, calls, replace(self._options, **changes))

    def _asked(self, question: Callable[[], str]) -> ProcessAnswer:
        left = self._end - time.monotonic()
        return asked(question, max(1.0, left)) if left > 0 else ProcessAnswer("")

    def _is_wrong(self, question: Callable[[], str]) -> bool:
        """Whether it goes wrong in the way that is looked for."""
        answer = self._asked(question)
        return _goes_wrong(answer) and (not self._kind or _kind(answer) == self._kind)

    def _first_wrong(self, cases: Sequence[Case]) -> Case | None:
        """One process is asked about all of them; where it dies, one for each."""

        def question() -> str:
            for number, case in enumerate(cases):
                told = self._case(case)
                if told and (not self._kind or _kind(ProcessAnswer(told)) == self._kind):
                    return f"{DIFFERS}{number}"
            return ""

        if not cases:
            return None
        answer = self._asked(question)
        if not answer.crashed:
            return cases[int(answer.answer[len(DIFFERS) :])] if answer.answer else None
        if len(cases) == 1:
            return cases[0] if _kind(answer) == self._kind else None
        middle = len(cases) // 2
        return self._first_wrong(cases[:middle]) or self._first_wrong(cases[middle:])

    def _first_innocent(self, case: Case, rows: Sequence[LeftOut]) -> LeftOut | None:
        """The first row without which a case does not go wrong. What then goes wrong in another way
        needs the row, and tells nothing."""

        def question() -> str:
            for number, row in enumerate(rows):
                with row.entered():
                    if not self._case(case):
                        return str(number)
            return ""

        answer = self._asked(question)
        if not answer.crashed:
            return rows[int(answer.answer)] if answer.answer else None
        if len(rows) == 1:
            return None
        middle = len(rows) // 2
        return self._first_innocent(case, rows[:middle]) or self._first_innocent(
            case, rows[middle:]
        )

    def _case(self, case: Case, **changes: Any) -> str:
        try:
            function = case.function()
        except Unwritable:
            return ""
        return judged(function, [case.arguments], replace(self._options, **changes))

    # -------------------------------------------------------------------------------- findings

    def _recorded(self) -> list[Recorded]:
        """The captured graphs of all calls, with the values that eager has in them."""
        recorder = RecordingBackend()
        copies = Copies()
        options = replace(self._options, backend=recorder, dynamic=False)
        with unnoticed():
            function = compiled(copies.of(self._target), options)
            for args in self._calls:
                function(*copies.of(args))
        return [one for one in recorder.graphs if one.operations]

    def _reduced(self, case: Case) -> Diagnosis:
        """The least part of a graph, and who is to blame."""
        least = reduced(case, self._first_wrong)
        function, args = least.function(), least.arguments
        told = self._asked(lambda: self._case(least))

        def is_wrong(changes: dict[str, Any]) -> bool:
            return self._is_wrong(lambda: self._case(least, **changes))

        def first_innocent(rows: Sequence[LeftOut]) -> LeftOut | None:
            return self._first_innocent(least, rows)

        def wrong_rule() -> str | None:
            rules = self._asked(lambda: next(wrong_rules(function, args, self._options), ""))
            if rules.crashed:  # in a rule, if it dies of what the program dies of
                return "" if _kind(rules) == self._kind else None
            return rules.answer or None

        blame = blamed(is_wrong, first_innocent, wrong_rule)
        return self._made(blame, told, least)

    def _made(self, blame: Blame, told: ProcessAnswer, least: Case) -> Diagnosis:
        lines = [line for one in least.operations if (line := origin_of(one)) is not None]
        source = least.source
        body = [line.strip() for line in source.splitlines() if line.startswith("    ")]
        operations = tuple(one.partition("  #")[0] for one in body[:-1])
        dynamic = self._options.dynamic
        program = program_text(source, least.inputs, least.arguments, told.answer, dynamic)
        name = least.recorded.name
        return Diagnosis(
            blame.stage, blame.part, told.answer, name, operations, tuple(lines), program
        )

    def _captured(self, first: ProcessAnswer) -> Diagnosis:
        """The captured graphs are wrong already. A fresh compilation of the last call tells
        whether what was captured is, or a guard that let it be used."""
        part, calls = "", self._calls
        last = _number_of_call(first.answer)
        if len(calls) > 1 and not self._is_wrong(
            lambda: self._judged(calls[last : last + 1], backend="eager")
        ):
            part = "a guard: code of an earlier call was used"
        return self._whole(first, self._recorded(), Blame(CAPTURE, part))

    def _whole(
        self, first: ProcessAnswer, graphs: Sequence[Recorded], blame: Blame | None = None
    ) -> Diagnosis:
        """No part of it shows it alone."""
        at = min(_number_of_call(first.answer), len(graphs) - 1)
        nodes = graphs[at].operations if graphs else ()
        lines = tuple(line for one in nodes if (line := origin_of(one)) is not None)
        told = tuple(str(one.target if one.op == "call_method" else one.name) for one in nodes)
        name = graphs[at].name if graphs else ""
        chosen = blame or Blame("codegen", "only the whole program shows it")
        return Diagnosis(
            chosen.stage, chosen.part, first.answer, name, told, lines, _source(self._target)
        )


def _load() -> None:
    """Have here what every process that is asked would load by itself: most of its time."""
    given = torch.ones(2, requires_grad=True)
    judged(lambda x: (x + 1,), [(given,)], trial_options(Options(), backend="aot_eager"))


def _source(target: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(getattr(target, "forward", target)))
    except (OSError, TypeError):
        return ""


def _goes_wrong(answer: ProcessAnswer) -> bool:
    return answer.crashed or bool(answer.answer)


def _kind(answer: ProcessAnswer) -> str:
    """A crash by its signal, an error by its class, a difference."""
    if answer.crashed:
        return answer.answer
    return answer.answer.partition(": ")[0]


def _number_of_call(told: str) -> int:
    words = told.split()
    return int(words[2].rstrip(":")) if words[1:2] == ["call"] else 0
