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

from tests.golden_programs import TEXTS, load
from tests.ir.records import Labelled
from tests.replay.described import described
from windfall import runtime
from windfall.autograd import is_plain
from windfall.ir.codec import Unstorable, decode, dumps, encode, loads
from windfall.ir.stages import Capture, Joint, Program, Segment
from windfall.ir.symint import hint_of
from windfall.subgraphs import reads_data

# Why a record cannot be stored: it speaks of objects of this process, which no name leads to.
REASONS: dict[str, str] = {
    "of which identity counts": "a list, a dict or an object of the user's, made at run time",
    "is made inside of a function": "a function or class without a name of its own",
    "no module leads to the code": "the code of such a function",
}
_TEXT = re.compile("|".join(REASONS))


@dataclass(frozen=True, slots=True)
class Task:
    """What another process is to do with bytes, and what came of it here: run a program; or enter
    the segment of a golden program with it and call that."""

    where: str
    program: bytes
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
    sent: dict[type, list[bytes]] = {}
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
        sent.setdefault(type(record), []).append(data)
        if isinstance(record, Program):
            report.tasks.append(Task(where, data, answer(record)))
    kind, _, golden = name.partition(" ")
    if kind == "golden" and _is_whole([record for _, record, _ in labelled], sent):
        (segment,), (program,) = sent[Segment], sent[Program]
        said = described(answers[0])
        report.tasks.append(Task(f"{name}: entry", program, said, golden, segment))


def _is_whole(records: Sequence[Any], sent: dict[type, Any]) -> bool:
    """Whether one segment around one program is all there is to a call."""
    counted = Counter(map(type, records))
    if not (counted[Segment] == counted[Program] == 1 and len(sent.get(Segment, ())) == 1):
        return False
    captured, joint = (
        next(one for one in records if type(one) is kind) for kind in (Capture, Joint)
    )
    reads = reads_data(captured.graph)  # then its subgraphs are programs
    return not (reads or joint.gradients_for) and is_plain(joint.signature)


def _refused(where: str, kind: str, error: Unstorable, report: Report) -> None:
    reason = _TEXT.search(error.reason)
    if reason is None or kind not in ("Capture", "Segment"):
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


def answer(program: Program) -> str:
    """What a program answers for inputs that depend on their types alone; or what it raises."""
    torch.manual_seed(0)
    inputs = [_input(one) for one in program.inputs]
    symbols = [hint_of(one) for one in program.symbols]
    torch.manual_seed(0)
    try:
        return described(list(runtime.bind(program)(*symbols, *inputs)))
    except Exception as error:
        return described(error)


def entered(golden: str, segment: Segment, program: Program) -> str:
    """What the first call of a golden program answers, through an entry made of these."""
    loaded = load(golden)
    torch.manual_seed(1)
    given = next(iter(loaded.module.calls()))
    values = given.values() if isinstance(given, dict) else given
    torch.manual_seed(2)
    entry = runtime.enter(segment, program, runtime.bind(program))
    return described(entry.call(*values))


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
