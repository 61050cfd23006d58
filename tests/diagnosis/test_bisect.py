"""bisect finds planted miscompilations: the stage, the part, at most five operations, in time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from tests.diagnosis.plants import PLANTS, Planted, dropped_guards
from windfall.diagnosis.cases import FILE, function_of
from windfall.diagnosis.isolation import asked
from windfall.errors import UserError

SECONDS = 120.0
FEW = 5
# One of each kind in every run of the tests, all of them in the sweep.
OFTEN = {
    "aten.sin.default is lowered as aten.cos.default",
    "aten.tanh_backward.default is lowered as aten.sigmoid_backward.default",
    "code of maximum",
    "a pass of the joint graph",
    "a pass of the arranged graph",
    "another method is captured",
    "a rule kills the process",
}


def program_with(operation: Callable[..., Any]) -> Callable[..., Any]:
    """A program in whose middle the operation stands."""

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scores = torch.softmax(x @ weight, -1) + x
        hidden = torch.nn.functional.layer_norm(scores, (8,)) * 1.5
        met = operation(hidden)
        joined = torch.cat([met.reshape(-1), hidden.reshape(-1)])
        return joined.square().mean() + weight.sum()

    return program


def arguments() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 8, generator=generator)
    return x, torch.randn(8, 8, generator=generator).requires_grad_()


def rows() -> list[Any]:
    sweep = pytest.mark.conformance
    return [
        pytest.param(one, id=one.name, marks=[] if one.name in OFTEN else [sweep]) for one in PLANTS
    ]


def test_there_are_enough() -> None:
    assert len(PLANTS) >= 30 and len({one.name for one in PLANTS}) == len(PLANTS)
    assert {one.name for one in PLANTS} >= OFTEN


@pytest.mark.parametrize("planted", rows())
def test_what_is_planted_is_found(planted: Planted) -> None:
    program, args = program_with(planted.operation), arguments()
    started = time.monotonic()
    with planted.entered():
        found = windfall.bisect(program, args)
        assert time.monotonic() - started < SECONDS
        assert found.found and planted.told in found.told, found
        assert planted.stage in ("", found.stage), found
        assert planted.part in ("", found.part), found
        if found.stage != "capture":  # there the program is the user's own
            assert 1 <= len(found.operations) <= FEW, found
            assert "def main()" in found.program
        assert any(line.file == __file__ or "plants" in line.file for line in found.lines), found
    assert not windfall.bisect(program, args).found  # without it, all is well


def test_the_program_shows_it_alone(tmp_path: Path) -> None:
    """In a process with the mistake it exits with 1, in one without it with 0."""
    planted = next(one for one in PLANTS if one.name in OFTEN and one.stage == "lowering")
    with planted.entered():
        found = windfall.bisect(program_with(planted.operation), arguments())
        namespace: dict[str, Any] = {"__name__": "shown"}
        exec(compile(found.program, "shown.py", "exec"), namespace)
        assert namespace["main"]() == 1
    script = tmp_path / "shown.py"
    script.write_text(found.program)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True, text=True, timeout=300,
        env={"PYTHONPATH": str(Path(windfall.__file__).parents[1]), "WINDFALL_CACHE": "off",
             "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "they agree"), done.stderr


def test_a_guard_that_is_missing() -> None:
    """Seen by the second call only: the code of the first one is used."""

    def scaled(x: torch.Tensor, by: str) -> torch.Tensor:
        return x * 2 if by == "two" else x * 3

    from contextlib import ExitStack

    x = torch.ones(3)
    with ExitStack() as stack:
        dropped_guards(stack)
        found = windfall.bisect(scaled, (x, "two"), (x, "three"))
        assert found.stage == "capture" and "guard" in found.part, found
        assert "call 1" in found.told and len(found.operations) <= FEW
        assert not windfall.bisect(scaled, (x, "three")).found


def test_what_is_right_is_said_to_be_and_nothing_is_touched() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    before = {name: one.clone() for name, one in model.state_dict().items()}
    state = torch.get_rng_state()
    found = windfall.bisect(model, (torch.randn(6, 4, generator=torch.Generator()),))
    assert not found.found and str(found) == "eager and compiled agree"
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


def test_the_call_is_checked() -> None:
    with pytest.raises(UserError, match="as a tuple"):
        windfall.bisect(torch.sin, torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="as a tuple"):
        windfall.bisect(torch.sin)


def test_questions_in_processes_of_their_own() -> None:
    import os
    import signal
    import time as clock

    assert asked(lambda: "words" * 50_000).answer == "words" * 50_000
    died = asked(lambda: str(os.kill(os.getpid(), signal.SIGSEGV)))
    assert died.crashed and died.answer == "died of SIGSEGV"
    late = asked(lambda: str(clock.sleep(30)), 0.3)
    assert late.crashed and "no end" in late.answer
    assert asked(lambda: str(1 // 0)).crashed


def test_a_case_is_source() -> None:
    made = function_of("import torch\n\n\ndef program(x):\n    return (x.sin(), )\n")
    assert made.__code__.co_filename == FILE
    assert torch.equal(made(torch.zeros(2))[0], torch.zeros(2))
