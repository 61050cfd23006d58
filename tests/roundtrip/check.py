"""A record goes to bytes and back; a program runs from its bytes.

Enters: records. Leaves: a `Report`: how many came back, which cannot be stored and why, what is
wrong. Invariant: what came back has the same document and prints the same text; what cannot be
stored says one of `REASONS`, and is never what was made of a graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.golden_programs import TEXTS, GoldenProgram, run, tensors, weighed
from tests.ir.records import Labelled
from tests.replay.described import described
from windfall import runtime
from windfall.events import EventLog
from windfall.ir.codec import Unstorable, decode, dumps, encode, loads
from windfall.ir.stages import Executable, Program, Segment
from windfall.ir.symint import hint_of
from windfall.options import Options
from windfall.pipeline import Compiler

# Why a record cannot be stored, and which: they speak of objects of this process, which no name
# leads to.
REASONS: dict[str, tuple[str, ...]] = {
    # a list, a dict or an object of the user's, made at run time
    "of which identity counts": ("Capture", "Segment"),
    # a function or a class without a name of its own
    "is made inside of a function": ("Capture", "Segment"),
    # the code of such a function
    "no module leads to the code": ("Capture", "Segment"),
    # what a backend of the user answered
    "an object of method is no record": ("Executable",),
}
_TEXT = re.compile("|".join(REASONS))


@dataclass(frozen=True, slots=True)
class Task:
    """What another process is to do with bytes, and what came of it here: run a program, or an
    executable forward and backward; or link an executable, enter the segment of a golden program
    with it, and do all its calls."""

    where: str
    data: bytes
    answer: str
    golden: str = ""
    segment: bytes = b""


@dataclass(slots=True)
class Report:
    """What was seen."""

    stored: Counter[str] = field(default_factory=Counter)
    unstorable: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{count:6} {kind} came back" for kind, count in sorted(self.stored.items())]
        for (kind, reason), count in sorted(self.unstorable.items()):
            lines.append(f"{count:6} {kind} cannot be stored: … {reason}")
        return "\n".join([*lines, *(f"WRONG {one}" for one in self.wrong)])


def check(name: str, labelled: Sequence[Labelled], answers: Sequence[Any], report: Report) -> None:
    """Send every record there and back; `answers` are those of the program, the first call's
    first."""
    sent: dict[int, bytes] = {}
    for number, (label, record, live) in enumerate(labelled):
        kind = type(record).__name__
        where = f"{name}: {number} {label}"
        try:
            data = there_and_back(record, live)
        except Unstorable as error:
            _refused(where, kind, error, report)
            continue
        except AssertionError as error:
            report.wrong.append(f"{where}: {error}")
            continue
        report.stored[kind] += 1
        sent[id(record)] = data
        trains = name.startswith("model ") and isinstance(record, Executable) and record.node
        if isinstance(record, Program) or trains:
            report.tasks.append(Task(where, data, answer(record)))
    source, _, golden = name.partition(" ")
    if source == "golden":
        _whole_entry(golden, [record for _, record, _ in labelled], answers, sent, report)


def _whole_entry(
    golden: str,
    records: Sequence[Any],
    answers: Sequence[Any],
    sent: dict[int, bytes],
    report: Report,
) -> None:
    """A task for a program that is one segment, if that and its executable can be stored."""
    segments = [one for one in records if isinstance(one, Segment)]
    own = [one for one in records if isinstance(one, Executable) and one.name == segments[0].name]
    if len(segments) == 1 and all(id(one) in sent for one in (*segments, *own)):
        executable = sent[id(own[0])] if own else b""
        where = f"golden {golden}: entry"
        segment = sent[id(segments[0])]
        report.tasks.append(Task(where, executable, described(answers), golden, segment))


def _refused(where: str, kind: str, error: Unstorable, report: Report) -> None:
    reason = _TEXT.search(error.reason)
    if reason is None or kind not in REASONS[reason[0]]:
        report.wrong.append(f"{where} cannot be stored: {error}")
    else:
        report.unstorable[kind, reason[0]] += 1


def there_and_back(record: Any, live: dict[str, Any]) -> bytes:
    """The bytes of a record; what they become has the same document and the same text."""
    document = encode(record, live)
    data = dumps(document)
    assert loads(data) == document, "other bytes"
    back = decode(loads(data), live)
    assert type(back) is type(record), f"a {type(back).__name__}"
    assert encode(back, live) == document, "another document"
    assert text(back) == text(record), "another text"
    return data


def text(record: Any) -> str:
    """What is printed of a record."""
    if isinstance(record, Program):
        return "\n".join(f"{note.name} ({note.kind})\n{note.text}" for note in record.kernels)
    return TEXTS[type(record)](record)


# ------------------------------------------------------------------------------- running programs


def answer(record: Program | Executable) -> str:
    """What a program answers for inputs that depend on their types alone, or what it raises; of an
    executable that is differentiated, gradients too."""
    torch.manual_seed(0)
    trains = isinstance(record, Executable)
    split = record.node[0].split if trains else None
    types = [one.type for one in split.signature.inputs] if split else record.inputs
    inputs = [_input(one).requires_grad_(trains and one.requires_grad) for one in types]
    symbols = [hint_of(one) for one in (split or record).symbols]
    call = Compiler(Options(), EventLog()).link(record) if trains else runtime.bind(record)
    torch.manual_seed(0)
    try:
        results = list(call(*symbols, *inputs))
        if trains:
            losses = [weighed(one) for one in tensors(results) if one.requires_grad]
            torch.stack(losses).sum().backward()
        return described([*results, *(one.grad for one in inputs)])
    except Exception as error:
        return described(error)


def entered(golden: GoldenProgram, segment: Segment, executable: Executable | None) -> str:
    """What a golden program does, forward and backward, through an entry made of these."""
    call = Compiler(Options(), EventLog()).link(executable) if executable else None
    entry = runtime.enter(segment, executable.bare if executable else None, call)
    return described(run(golden, lambda *args, **named: entry.call(*args, *named.values())))


def _input(type: Any) -> torch.Tensor:
    """Numbers of the right type: zeros are valid indices almost anywhere."""
    sizes, strides = (tuple(map(hint_of, each)) for each in (type.sizes, type.strides))
    made = torch.empty_strided(sizes, strides, dtype=type.dtype)
    if not (type.dtype.is_floating_point or type.dtype.is_complex):
        return made.zero_()
    values = torch.randn(made.shape).to(type.dtype)
    if made.numel() and 0 in made.stride():
        return values.as_strided(sizes, strides)
    return made.copy_(values)
