"""`compile(f, verify=N)`: eager beside the first calls, on copies; nobody notices but a mistake."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
import torch

import windfall
from tests.diagnosis.plants import PLANTS
from windfall.diagnosis.comparison import differences
from windfall.diagnosis.state_copies import Copies
from windfall.errors import UserError

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def told(compiled: Any) -> list[str]:
    return [
        one.facts["how"] for one in windfall.explanation(compiled).events if one.kind == "verify"
    ]


def test_right_calls_agree_and_only_the_first_are_compared() -> None:
    compiled = windfall.compile(lambda x: x.sin() * 2, verify=2)
    for _ in range(4):
        assert torch.equal(compiled(X), windfall.compile(lambda x: x.sin() * 2)(X))
    assert told(compiled) == ["agreed", "agreed"]


def test_a_mistake_is_named_with_its_operation_and_line() -> None:
    planted = next(one for one in PLANTS if one.part == "aten.sin.default")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.sin() + 1

    with planted.entered(), pytest.raises(windfall.MismatchError) as raised:
        windfall.compile(program, verify=1)(X)
    error = raised.value
    assert error.stage == "lowering" and error.operations == ("sin = mul.sin()",)
    assert "test_verify.py" in str(error) and "12 of 12 elements differ" in error.differences[0]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.stage) == (str(error), "lowering")


def test_gradients_are_compared() -> None:
    planted = next(one for one in PLANTS if one.part == "aten.tanh_backward.default")
    x = X.clone().requires_grad_()
    with planted.entered(), pytest.raises(windfall.MismatchError, match="gradient"):
        windfall.compile(lambda x: x.tanh(), verify=1)(x)
    assert x.grad is None


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)
        )
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y: torch.Tensor = self.layers(x)
        return y.sum()


def test_the_program_goes_on_as_if_nothing_had_been_compared() -> None:
    """Parameters, buffers, gradients and random numbers after three steps are those without it."""

    def after(**settings: Any) -> tuple[Any, ...]:
        torch.manual_seed(1)
        random.seed(1)
        model = Model()
        compiled = windfall.compile(model, **settings)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = compiled(torch.randn(6, 4))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        state = {name: one.clone() for name, one in model.state_dict().items()}
        if settings:
            assert told(compiled) == ["agreed"] * 3
        return losses, state, torch.rand(2), random.random()

    plain, verified = after(), after(verify=3)
    assert not [*differences(plain, verified)]
    assert int(verified[1]["calls"]) == 3


def test_what_is_printed_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print("here")
        return x + 1

    windfall.compile(program, verify=1)(X)
    assert capsys.readouterr().out == "here\n"


def test_closures_and_globals_are_not_written_twice() -> None:
    count = torch.zeros(())
    seen: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        seen.append(1)
        return x + count

    compiled = windfall.compile(program, verify=2)
    compiled(X)
    compiled(X)
    assert told(compiled) == ["agreed", "agreed"]
    assert float(count) == 2 and seen == [1, 1]


def test_errors_of_the_program_are_its_own() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 2:
            raise ValueError("too many")
        return x

    compiled = windfall.compile(program, verify=1)
    with pytest.raises(ValueError, match="too many"):
        compiled(X)
    assert told(compiled) == ["agreed"]


def test_what_cannot_be_copied_is_not_compared_and_said_to_be() -> None:
    compiled = windfall.compile(lambda x, lock: x + 1, verify=1)
    import threading

    compiled(X, threading.Lock())
    assert told(compiled) == ["not compared"]


def test_both_meanings(monkeypatch: pytest.MonkeyPatch) -> None:
    """True: records between stages; a number: these, and so many calls."""
    monkeypatch.delenv("WINDFALL_VERIFY", raising=False)

    def chosen(**given: Any) -> tuple[bool, int]:
        made = windfall.Options.checked(**given)
        return made.verify, made.verify_calls

    assert chosen() == (False, 0)
    assert chosen(verify=True) == (True, 0)
    assert chosen(verify=3) == (True, 3)
    assert chosen(options={"verify": 1}) == (True, 1)
    monkeypatch.setenv("WINDFALL_VERIFY_CALLS", "4")
    assert chosen()[1] == 4
    monkeypatch.setenv("WINDFALL_VERIFY_CALLS", "many")
    with pytest.raises(UserError, match="number of calls"):
        chosen()
    monkeypatch.delenv("WINDFALL_VERIFY_CALLS")
    with pytest.raises(UserError):
        chosen(verify=-1)


def test_copies_share_memory_as_the_originals_do() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    rows, column = base[1:], base.t()[0]
    copied = Copies().of([base, rows, column])
    copied[0].fill_(7)
    assert torch.equal(copied[1], torch.full((2, 4), 7.0)) and float(base[0, 1]) == 1
    assert copied[2].stride() == column.stride() and float(copied[2][1]) == 7


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (X, X + 1, "elements differ"),
        (X, X.double(), "dtype"),
        (X, X.t().contiguous().t(), "stride"),
        (X, X[:2], "shape"),
        (X, None, "None"),
        ([1, 2], [1], "elements"),
        ({"a": 1}, {"b": 1}, "keys"),
        (1, 2, "is 2"),
        (1, True, "bool"),
        (float("nan"), 1.0, "1.0"),
    ],
)
def test_differences(one: Any, other: Any, text: str) -> None:
    assert text in " ".join(differences(one, other))
    assert not [*differences(one, one)]


def test_small_differences_of_floats_are_none() -> None:
    assert not [*differences(X, X * (1 + 1e-6))]
    nan = torch.tensor([float("nan"), float("inf"), 0.0])
    assert not [*differences(nan, nan.clone())]
    assert [*differences(nan, torch.tensor([0.0, float("inf"), 0.0]))]
