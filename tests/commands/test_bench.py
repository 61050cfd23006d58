"""`windfall bench`: what it times, what it says, how it ends."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import torch

from benchmarks.sampling import median_interval
from tests.diagnosis.plants import PLANTS
from windfall.commands import bench, main

HERE = "tests.commands.test_bench"


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(10):
        x = x.sin() + 1
    return x


def with_a_break(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")
    return y * 2


def writes(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * 2


def draws(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("mine")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert main(["--json", "bench", *words]) == code
    return json.loads(capsys.readouterr().out)


def test_what_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "--rounds", "15", "--cpu", f"{HERE}:chain", "torch.ones(16)")
    assert told["ran"] == "compiled" and told["breaks"] == told["fallbacks"] == 0
    low, high = told["interval"]
    assert low <= told["ratio"] <= high
    assert high < 1  # ten ops of 16 elements: 0.03 on the machine where this was written
    assert 0 < told["windfall_seconds"] < told["eager_seconds"] < told["first_call_seconds"]
    assert told["pays_after_calls"] > 0 and told["clock"] == "cpu"


def test_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--rounds", "5", f"{HERE}:chain", "torch.ones(16)"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{HERE}:chain, wall time, 5 interleaved pairs, ")
    assert [line.split()[0] for line in lines[1:]] == ["eager", "windfall", "first"]


def test_backward_is_timed_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rounds", "5", "--cpu", f"{HERE}:chain"]
    forward = said(capsys, *words, "torch.ones(16)")
    step = said(capsys, *words, "torch.ones(16, requires_grad=True)", "--backward")
    assert step["backward"] and step["eager_seconds"] > forward["eager_seconds"]


@pytest.mark.parametrize("name", ["writes", "draws"])
def test_what_writes_and_what_draws_is_compared_fairly(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "--rounds", "5", f"{HERE}:{name}", "torch.ones(16)")["ratio"] > 0


def test_what_was_not_compiled_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "--rounds", "5", f"{HERE}:with_a_break", "torch.ones(4)")
    assert told["breaks"] == 1
    assert main(["bench", "--rounds", "5", f"{HERE}:with_a_break", "torch.ones(4)"]) == 0
    assert "not all of it was compiled: 1 breaks" in capsys.readouterr().out


def test_a_wrong_answer_is_not_timed(capsys: pytest.CaptureFixture[str]) -> None:
    planted = next(one for one in PLANTS if one.part == "aten.sin.default")
    with planted.entered():
        told = said(capsys, "--rounds", "5", "torch:sin", "torch.ones(2, 3)", code=1)
    assert set(told) == {"error"} and "windfall bisect torch:sin" in told["error"]


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["torch"], "MODULE:FUNCTION"),
        (["torch:no_such"], "no_such"),
        (["torch:sin", "1 +"], "SyntaxError"),
        ([f"{HERE}:raises", "torch.ones(2)"], "the call raised ValueError: mine"),
        (["torch:sin"], "the call raised TypeError"),
        (["--rounds", "2", "torch:sin", "torch.ones(2)"], "--rounds must be at least 5"),
        (["--backward", "torch:sin", "torch.ones(2)"], "no result needs a gradient"),
        (["--mode", "fast", "torch:sin", "torch.ones(2)"], "mode='fast' is not known"),
    ],
)
def test_wrong_words(words: list[str], about: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    told = capsys.readouterr()
    assert about in told.err and told.out == ""


def test_samples_alternate_and_each_is_of_many_calls() -> None:
    seen: list[str] = []
    clock = iter(range(1 << 30))  # each look at it is a second
    calls = (lambda: seen.append("eager"), lambda: seen.append("compiled"))
    samples = bench._timed(calls, 4, lambda: float(next(clock)))
    assert [len(one) for one in samples] == [4, 4]
    assert seen[-8:] == ["eager", "compiled", "compiled", "eager"] * 2
    assert bench._repetitions(lambda: None, time.perf_counter) > 100


@pytest.mark.parametrize("count", [5, 7, 15, 16, 31, 101])
def test_the_interval_is_that_of_the_benchmarks(count: int) -> None:
    low, high = median_interval(count)
    assert bench._interval([float(one) for one in range(count)]) == (low, high)


def test_times_have_units() -> None:
    shown = [bench._time(one) for one in (2.0, 0.0123, 4.5e-6, 7e-9)]
    assert shown == ["2 s", "12.3 ms", "4.5 µs", "7 ns"]
