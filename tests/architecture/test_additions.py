"""One place for each addition: each is made here from outside, in a few lines, and seen to work.

An op, an opcode, a kind of value, a guard, a break reason, a fusion rule, a pass (of each table), a
backend, an event, a record, a calling convention, a part of the report, a verb, a public name, a
row of a benchmark (a device: `tests/test_devices.py`; a fact of ops: `tests/ops/test_fields.py`).
What is added is taken back, and the table of CONTRIBUTING has no row that is not added somewhere.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from benchmarks import __main__ as benchmarks
from benchmarks import programs
from benchmarks.case import Case
from benchmarks.programs import normal, on
from windfall import backends, events
from windfall.autograd.passes import PASSES
from windfall.codegen.fuse import RULES
from windfall.codegen.passes import GRAPH_PASSES, GROUP_PASSES, LOOP_PASSES
from windfall.commands import command
from windfall.commands.verb import Answer, Verb
from windfall.events import EventLog, EventType
from windfall.frontend import breaks
from windfall.frontend.opcodes import table as opcodes
from windfall.frontend.values import wrap
from windfall.frontend.values.base import Given
from windfall.ir import codec
from windfall.ir.checks.base import Check
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Call, Lazy, Loops
from windfall.ir.passes import Row, Table
from windfall.ir.stages import Capture
from windfall.link import link
from windfall.ops import registry
from windfall.options import Options
from windfall.pipeline import Compiler
from windfall.reporting import page
from windfall.reporting.markup import tag


@contextmanager
def taken_back(*tables: Any) -> Iterator[None]:
    """Dictionaries and lists are afterwards what they were."""
    before = [copy.copy(table) for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            (table.update if isinstance(table, dict) else table.extend)(old)


@contextmanager
def added(table: Table[Any], row: Row[Any]) -> Iterator[None]:
    table.add(row)
    try:
        yield
    finally:
        table.remove(row.name)


# --------------------------------------------------------------------------------------------- op


def test_an_op() -> None:
    """A record: the op of another library becomes loops and fuses with those around it."""
    library = torch.library.Library("additions", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x * 2, "CPU")
    library.impl("doubled", torch.empty_like, "Meta")
    overload: Any = torch.ops.additions.doubled.default

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.additions.doubled(x + 1).relu()  # type: ignore[no-any-return]

    def lower(builder: Any, x: Lazy) -> Any:
        two = builder.constant(2.0, x.type.dtype)
        return builder.tensor(x.type, lambda index: builder.apply("mul", x.at(index), two))

    x = torch.randn(4, 5)
    with taken_back(registry._OPS, registry._BY_TARGET):
        registry.declare(registry.Op(str(overload), shape=lambda x: x, lower=lower))
        told = windfall.explain(program, strict=True)(x)
    assert torch.equal(told.result, program(x))
    assert [note.kind for note in told.kernels()] == ["generated"]

    without = windfall.explain(program, strict=True)(x)
    assert torch.equal(without.result, program(x))
    assert len(without.kernels()) == 3  # it is called


# ----------------------------------------------------------------------------------------- opcode


def test_an_opcode() -> None:
    """A handler: without one there is a break, with one there is none."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return ~(x > 0)

    def breaks_of() -> list[str]:
        told = windfall.explain(program)(torch.ones(3))
        assert torch.equal(told.result, torch.tensor([False] * 3))
        assert not told.fallbacks
        return [one.detail for one in told.breaks]

    with taken_back(opcodes.HANDLERS, opcodes.ROWS):
        del opcodes.HANDLERS["UNARY_INVERT"]
        assert any("UNARY_INVERT" in one for one in breaks_of())

        @opcodes.opcode("UNARY_INVERT")
        def invert(machine: Any, frame: Any, instruction: Any) -> None:
            frame.stack.append(frame.stack.pop().unary(machine, "~"))

        assert breaks_of() == []


# ----------------------------------------------- a kind of value, with its guard and break reason


@dataclass(frozen=True, slots=True)
class LastsDays(Check):
    """A guard: a timedelta of so many days, whatever its seconds are."""

    days: int

    def holds(self, value: Any, *others: Any) -> bool:
        return type(value) is datetime.timedelta and value.days == self.days

    def __str__(self) -> str:
        return f"lasts {self.days} days"


def _declared_kind() -> None:
    """A kind of value: the days of a timedelta are relied upon, nothing else of it is known."""
    reason = breaks.declare(9001, "the seconds of a timedelta are read", "They vary.", "Do not.")

    @wrap.wraps(datetime.timedelta)
    class Timedelta(Given):
        __slots__ = ()

        def __init__(self, machine: Any, real: Any, source: Any) -> None:
            super().__init__(real, source)

        def get_attribute(self, machine: Any, name: str) -> Any:
            if name != "days":
                breaks.stop(reason, name)
            self.guard(machine, "days", LastsDays(self.real.days))
            return machine.values.literal(self.real.days)


@pytest.fixture
def kind() -> Iterator[None]:
    with taken_back(wrap.BY_TYPE, breaks.REASONS):
        _declared_kind()
        yield


def _by_days(x: torch.Tensor, since: datetime.timedelta) -> torch.Tensor:
    return x * since.days


@pytest.mark.usefixtures("kind")
def test_a_kind_of_value_and_a_guard() -> None:
    compiled: Any = windfall.compile(_by_days, fullgraph=True)
    x = torch.ones(3)
    for days, seconds in ((2, 0), (2, 50), (3, 50), (2, 9)):
        found = compiled(x, datetime.timedelta(days, seconds))
        assert torch.equal(found, x * days)
    told = windfall.explanation(compiled)
    assert any("lasts 2 days" in str(guard) for guard in told.captures[0].guards)
    (recompiled,) = told.recompiles  # three days, and not the seconds
    assert "lasts 2 days" in recompiled


def test_without_its_kind_the_value_is_opaque() -> None:
    told = windfall.explain(_by_days)(torch.ones(3), datetime.timedelta(2))
    assert "lasts 2 days" not in "".join(str(one) for one in told.captures[0].guards)


@pytest.mark.usefixtures("kind")
def test_a_break_reason() -> None:
    def program(x: torch.Tensor, since: datetime.timedelta) -> torch.Tensor:
        return (x + 1) * since.seconds

    told = windfall.explain(program)(torch.ones(3), datetime.timedelta(0, 5))
    assert torch.equal(told.result, torch.full((3,), 10.0))
    assert [one.number for one in told.breaks] == [9001]
    assert "W9001: the seconds of a timedelta are read" in breaks.page()
    assert "the seconds of a timedelta are read" in str(told)


# ------------------------------------------------------------------------------ fusion and passes


def _kernels(program: Any, *inputs: torch.Tensor) -> list[str]:
    told = windfall.explain(program, strict=True)(*inputs)
    torch.testing.assert_close(told.result, program(*inputs))
    return [note.text for note in told.kernels()]


def test_a_fusion_rule() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.softmax(-1), x.sum(-1)

    x = torch.randn(8, 32)
    assert len(_kernels(program, x)) == 1
    alone = Row("alone", lambda candidate: False, before=("lean_apart",), reason="it decides all")
    with added(RULES, alone):
        assert len(_kernels(program, x)) > 2


def test_a_pass_over_joint_graphs() -> None:
    """x + 0 is x, if nobody minds -0.0."""

    def without_zeros(joint: Any) -> Any:
        for node in joint.graph.nodes:
            if node.target is torch.ops.aten.add.Tensor and node.args[1] == 0:
                node.replace_all_uses_with(node.args[0])
        return joint

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 0).exp()

    assert "add" in _kernels(program, torch.randn(4))[0]
    with added(PASSES, Row("no_zeros", without_zeros, before=("remove_dead",), reason="dead now")):
        assert "add" not in _kernels(program, torch.randn(4))[0]


@pytest.mark.parametrize("table", [GRAPH_PASSES, LOOP_PASSES, GROUP_PASSES, PASSES])
def test_a_pass_of_each_table_sees_every_record(table: Table[Any]) -> None:
    seen = []

    def look(record: Any) -> Any:
        seen.append(type(record).__name__)
        return record

    with added(table, Row("look", look)):
        windfall.compile(torch.sin, options={"strict": True})(torch.randn(3))
    assert len(seen) == 1


def test_a_pass_over_loops_changes_what_runs() -> None:
    def without_roots(loops: Loops) -> Loops:
        kept = [
            item if isinstance(item, Call) else replace(item, value=item.value.arguments[0])
            for item in loops.items
        ]
        return replace(loops, items=tuple(kept))

    x = torch.tensor([4.0, 9.0])
    with added(LOOP_PASSES, Row("without_roots", without_roots)):
        found = windfall.compile(lambda x: x.sqrt(), options={"strict": True})(x)
    assert torch.equal(found, x)


# ------------------------------------------------------------------------------ backend and event


class Counting:
    """A backend: eager, and every graph noted."""

    def __init__(self, noted: EventType) -> None:
        self.noted = noted

    def compile(
        self, captured: Capture, examples: Sequence[torch.Tensor], stages: backends.Stages
    ) -> backends.Executable:
        stages.note(self.noted, captured.name, inputs=len(captured.inputs))
        return backends.EagerBackend().compile(captured, examples, stages)


def test_a_backend_and_an_event(capfd: pytest.CaptureFixture[str]) -> None:
    with taken_back(backends.BACKENDS, events.TYPES, events.LOGS):
        noted = EventType("counted", logs=("counts",))
        backends.BACKENDS["counting"] = Counting(noted)
        assert "counting" in backends.backend_names()

        def program(x: torch.Tensor) -> torch.Tensor:
            return x.sin() + 1

        compiled = windfall.compile(program, backend="counting", options={"logs": "counts"})
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
        told = windfall.explanation(compiled)
        assert [event.facts for event in told.events if event.kind is noted] == [{"inputs": 1}]
        assert capfd.readouterr().err.endswith("program\ninputs=1\n")
    with pytest.raises(windfall.UserError, match="counting"):
        windfall.compile(program, backend="counting")
    with pytest.raises(windfall.UserError, match="counts"):
        windfall.compile(program, options={"logs": "counts"})


# ----------------------------------------------------------------------------------------- record


def test_a_record() -> None:
    with taken_back(codec.KINDS, codec.MAKERS):

        @codec.record
        @dataclass(frozen=True, slots=True)
        class Noted:
            type: TensorType
            names: tuple[str, ...]

        noted = Noted(TensorType.contiguous(torch.float32, (2, 3)), ("a", "b"))
        document = codec.encode(noted)
        assert codec.decode(codec.loads(codec.dumps(document))) == noted
    with pytest.raises(codec.Unstorable, match="is no record"):
        codec.encode(noted)


# ----------------------------------------------------------------------------- calling convention


def test_a_calling_convention() -> None:
    """A record that stands around a call; it is stored and linked with the executable."""
    x = torch.randn(4)
    told = windfall.explain(lambda x: x.sin() + 1)(x)
    (made,) = (one.record for one in told.events if one.kind == "assemble")
    with taken_back(codec.KINDS, codec.MAKERS):

        @codec.record
        @dataclass(frozen=True, slots=True)
        class Scales:
            by: float

            def around(self, call: Any) -> Any:
                return lambda *args: tuple(self.by * one for one in call(*args))

        scaled = replace(made, conventions=(Scales(3.0), *made.conventions))
        loaded = codec.decode(codec.loads(codec.dumps(codec.encode(scaled))))
    call = link(loaded, Compiler(Options(), EventLog()))
    torch.testing.assert_close(call(x)[0], 3 * (x.sin() + 1))
    assert str(loaded).endswith("Scales > Program")


# --------------------------------------------- a part of the report, a verb, a name, a benchmark


@pytest.mark.parametrize("table", [page.OBJECT_PARTS, page.COMPILATION_PARTS])
def test_a_part_of_the_report(table: list[Any], tmp_path: Path) -> None:
    """A function from the record to markup; once for each object, or for each segment of one."""
    compiled = windfall.compile(lambda x: x + 1)
    compiled(torch.ones(2))

    def part(record: Any, place: Any) -> Any:
        return tag("p", f"counted: {type(record).__name__}")

    with taken_back(table):
        table.append(part)
        text = Path(windfall.report(tmp_path / "page.html", compiled)).read_text(encoding="utf-8")
    assert text.count("<p>counted: ") == 1


def test_a_verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(given: argparse.Namespace) -> Answer:
        return Answer(f"{given.word} twice", {"word": given.word}, code=1)

    added = Verb("repeat", "say it", lambda parser: parser.add_argument("word"), run)
    with pytest.raises(SystemExit):
        command.main(["repeat", "sin"])
    assert "invalid choice" in capsys.readouterr().err
    monkeypatch.setattr(command, "VERBS", (*command.VERBS, added))
    assert command.main(["repeat", "sin"]) == 1
    assert capsys.readouterr().out == "sin twice\n"
    assert command.main(["--json", "repeat", "sin"]) == 1
    assert json.loads(capsys.readouterr().out) == {"word": "sin"}


def test_a_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hasattr(windfall, "name_of")
    monkeypatch.setitem(windfall._MODULES, "name_of", "ir.names")
    assert "name_of" in dir(windfall)
    assert windfall.name_of(torch.relu) == "torch:relu"
    monkeypatch.delitem(vars(windfall), "name_of")


def test_a_row_of_a_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> list[Case]:
        return [Case("x + 1, added", on(programs.add_one, normal(8)))]

    (part,) = benchmarks.SUITES["overhead"]
    monkeypatch.setitem(benchmarks.SUITES, "overhead", (replace(part, cases=rows),))
    given = ["overhead", "--contenders", "eager,windfall", "--rounds", "2", "--only", "added"]
    benchmarks.main(given)
    assert "x + 1, added" in capsys.readouterr().out


def test_every_place_of_the_table_is_added_to_somewhere() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| addition | place |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines()]
    assert rows == list(SHOWN)
    here = Path(__file__).read_text(encoding="utf-8")
    for where in SHOWN.values():
        file, _, name = where.rpartition("::")
        shown = (Path(__file__).parents[1] / file).read_text(encoding="utf-8") if file else here
        assert f"def {name}(" in shown, where


SHOWN = {
    "op": "test_an_op",
    "fact of ops": "ops/test_fields.py::test_each_field_has_a_check",
    "opcode": "test_an_opcode",
    "Python type": "test_a_kind_of_value_and_a_guard",
    "guard kind": "test_a_kind_of_value_and_a_guard",
    "break reason": "test_a_break_reason",
    "pass": "test_a_pass_of_each_table_sees_every_record",
    "fusion rule": "test_a_fusion_rule",
    "backend": "test_a_backend_and_an_event",
    "device": "test_devices.py::test_a_device_is_a_class_with_compile",
    "calling convention": "test_a_calling_convention",
    "event": "test_a_backend_and_an_event",
    "stored record": "test_a_record",
    "public name": "test_a_public_name",
    "part of the HTML report": "test_a_part_of_the_report",
    "verb of the command line": "test_a_verb",
    "benchmark": "test_a_row_of_a_benchmark",
}
