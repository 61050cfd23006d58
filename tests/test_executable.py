"""Executables are records: they say what each value is, print, lead from a `grad_fn` to a backward
graph, and are linked again from bytes in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from tests.autograd.harness import same_tensor
from windfall.autograd import interpreter, region_of
from windfall.backends import EagerBackend
from windfall.errors import InternalError
from windfall.events import EventLog
from windfall.ir.codec import Unstorable, decode, dumps, encode, loads
from windfall.ir.role import Role, RoleKind, Roles
from windfall.ir.spec import verify
from windfall.ir.stages import Executable, ForeignProgram, Program
from windfall.link import link
from windfall.options import Options
from windfall.pipeline import Compiler


def executables(function: Any, *args: Any) -> list[Executable]:
    """Those that one call of a function was compiled to."""
    torch.manual_seed(0)
    compiled: Any = windfall.compile(function, options={"records": True, "verify": True})
    compiled(*args)
    events = windfall.explanation(compiled).events
    return [one.record for one in events if one.kind == "assemble"]


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(self.linear(x))
        return y, y[1:]


def shown(roles: Roles) -> tuple[list[str], list[str]]:
    return [str(one) for one in roles.inputs], [str(one) for one in roles.results]


# ------------------------------------------------------------------------------------------ roles


def test_every_input_and_result_has_a_role() -> None:
    (made,) = executables(Layers(), torch.randn(5, 3))
    inputs, results = shown(made.roles)
    kinds = [one.rsplit(" ", 1)[0] for one in inputs]
    assert inputs[0] == "input 0" and kinds[1:3] == ["parameter", "parameter"]
    assert sorted(one for one in inputs if "written" in one) == [
        "buffer 3, written", "buffer 4, written", "buffer 5, written",
    ]  # fmt: skip
    assert results == ["result 0", "view of result 0"]
    assert made.written_tensors == (3, 4, 5)
    assert isinstance(made.program, Program)
    program_inputs, program_results = shown(made.program.roles)
    assert program_inputs == inputs
    assert program_results[:4] == [
        "new contents of input 3", "new contents of input 4", "new contents of input 5", "result 0",
    ]  # fmt: skip
    assert program_results[4:] == [f"saved value {n}" for n in range(len(program_results) - 4)]
    assert len(program_results) > 4
    assert len(program_results) == len(made.program.results)


def test_a_parameter_is_one_wherever_it_is_read() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    (made,) = executables(lambda x, w: x * w, torch.ones(3), weight)
    assert shown(made.roles) == (["input 0", "parameter 1"], ["result 0"])


def test_an_equal_graph_is_reused_with_its_own_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[tuple[Executable, Any]] = []
    whole = Compiler.link

    def noted(self: Compiler, made: Executable, *place: Any) -> Any:
        linked.append((made, whole(self, made, *place)))
        return linked[-1][1]

    monkeypatch.setattr(Compiler, "link", noted)
    compiled: Any = windfall.compile(lambda x: x.sin() * 2)
    compiled(torch.ones(3, requires_grad=True))
    compiled(torch.nn.Parameter(torch.ones(3)))
    assert len(compiled.log.snapshot("reuse")) == 1
    (first, call), (second, other) = linked
    assert call is other and first.node is second.node, "and with it the variants of backward"
    assert [shown(one.roles)[0] for one in (first, second)] == [["input 0"], ["parameter 0"]]


def test_sizes_that_vary_are_told_from_tensors() -> None:
    compiled: Any = windfall.compile(
        lambda x: x.sin() * 2, dynamic=True, options={"records": True, "verify": True}
    )
    compiled(torch.ones(5, requires_grad=True)).sum().backward()
    events = windfall.explanation(compiled).events
    (made,) = (one.record for one in events if one.kind == "assemble")
    assert shown(made.roles)[0] == ["size 0", "input 0"]


def test_backward_programs_tell_saved_values_tangents_and_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound: list[Program] = []
    bind = Compiler.bind

    def noted(self: Compiler, program: Program, name: str, **how: Any) -> Any:
        bound.append(program)
        return bind(self, program, name, **how)

    monkeypatch.setattr(Compiler, "bind", noted)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    windfall.compile(lambda x, w: (x @ w).tanh())(x, w).sum().backward()
    _, backward = bound
    inputs, results = shown(backward.roles)
    assert inputs == ["saved input 0", "saved input 1", "saved result 0", "tangent of result 0"]
    assert sorted(results) == ["gradient of input 0", "gradient of input 1"]
    assert len(backward.inputs) == 4 and len(backward.results) == 2


def test_a_record_whose_roles_are_not_its_values_is_refused() -> None:
    (made,) = executables(lambda x: x + 1, torch.ones(3))
    more = Roles((*made.roles.inputs, Role(RoleKind.INPUT, 1)), made.roles.results)
    wrong = Executable(made.name, made.program, more)
    with pytest.raises(InternalError, match="a role for each input"):
        verify(wrong)


# ------------------------------------------------------------------------------------------ nodes


def test_a_grad_fn_leads_to_the_backward_graph() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w)

    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    compiled = windfall.compile(run)
    result = compiled(x, w)
    region = region_of(result.grad_fn)
    assert region is not None and region.split.backward is not None
    tangent = torch.randn(3, 3)
    saved = result.grad_fn.saved_tensors
    found = interpreter(region.split.backward)(*saved, tangent)
    wanted = torch.autograd.grad(run(x, w), (x, w), tangent)
    assert region.split.gradients_for == (0, 1)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert region_of(run(x, w).grad_fn) is None and region_of(None) is None


def test_every_node_is_of_one_class_and_has_its_own_region() -> None:
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    first, second = windfall.compile(lambda x, y: (x.exp(), y.sin()))(x, y)
    other = windfall.compile(lambda x: x.cos())(x)
    assert type(first.grad_fn) is type(second.grad_fn) is type(other.grad_fn)
    regions = [region_of(one.grad_fn) for one in (first, second)]
    assert [one.results for one in regions if one] == [(0,), (1,)]
    assert [one.component.inputs for one in regions if one] == [(0,), (1,)]
    first.sum().backward()
    assert region_of(first.grad_fn) is regions[0], "and it stays when what was saved is freed"


# ------------------------------------------------------------------------------------------- data


def test_an_executable_prints() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.mul_(y)
        z = x + y
        return z, z[1:]

    (made,) = executables(run, torch.ones(2), torch.ones(2))
    assert str(made).endswith(
        "(input 0, written; input 1) -> (result 0; view of result 0): Outputs > WriteBack > Program"
    )


def test_eager_makes_a_record_that_is_stored_too() -> None:
    x = torch.randn(3)
    report = windfall.explain(lambda x: x.sin().add_(1))(x)
    (captured,) = (one.record for one in report.events if one.kind == "capture")
    made = EagerBackend().compile(captured, [x], Compiler(Options(), EventLog()))
    assert shown(made.roles) == (["input 0"], ["result 0"])
    torch.testing.assert_close(relinked(dumps(encode(made)))(x)[0], x.sin() + 1)


def test_what_a_user_gave_is_told_to_have_no_name() -> None:
    roles = Roles((Role(RoleKind.INPUT, 0),), (Role(RoleKind.RESULT, 0),))
    with pytest.raises(Unstorable, match=r"record\.program\.call: .*lambda"):
        encode(Executable("f", ForeignProgram(lambda x: (x,)), roles))


def train(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, seen: torch.Tensor) -> Any:
    h = torch.nn.functional.dropout(torch.relu(x @ w1), 0.5)
    y = torch.nn.functional.gelu(h @ w2).sum(-1)
    seen.add_(1)
    return y, y[1:]


def operands() -> list[torch.Tensor]:
    torch.manual_seed(0)
    weights = [torch.randn(4, 6, requires_grad=True), torch.randn(6, 3, requires_grad=True)]
    return [torch.randn(5, 4), *weights, torch.zeros(())]


def results_of(call: Any) -> list[torch.Tensor]:
    """Results, gradients and what was written, of one call."""
    given = operands()
    loss, part = call(*given)
    (loss.sum() + part.sum()).backward()
    gradients = [given[1].grad, given[2].grad]
    return [loss.detach(), part.detach(), given[3], *(one for one in gradients if one is not None)]


IN_ANOTHER_PROCESS = """
import sys, torch
from tests.test_executable import results_of, relinked
data, expected = torch.load(sys.argv[1], weights_only=True)
found = results_of(relinked(data.numpy().tobytes()))
for one, other in zip(found, expected, strict=True):
    assert torch.equal(one, other)
print("equal")
"""


def relinked(data: bytes) -> Any:
    """The callable of an executable that is stored in these bytes."""
    return link(decode(loads(data)), Compiler(Options(), EventLog()))


def test_an_executable_is_linked_again_in_another_process(tmp_path: Path) -> None:
    (made,) = executables(train, *operands())
    data = dumps(encode(made))
    assert encode(decode(loads(data))) == encode(made)
    expected = results_of(windfall.compile(train))
    for one, other in zip(results_of(relinked(data)), expected, strict=True):
        same_tensor(one, other)
    stored = (torch.frombuffer(bytearray(data), dtype=torch.uint8), expected)
    torch.save(stored, tmp_path / "stored")
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "stored")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.stdout == "equal\n", done.stderr
