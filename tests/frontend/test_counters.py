"""Python's own counters, as optimizers keep them: compiled once for all counts, or once for each
way a branch goes, never once for each count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import swa_utils

import windfall

BETA = 0.9


class Counting:
    """What an optimizer that is no subclass of torch's keeps."""

    def __init__(self) -> None:
        self.step = 0
        self.buffer: list[list[Any]] = [[None, None] for _ in range(4)]


def powers(x: torch.Tensor, step: int) -> torch.Tensor:
    return x / (1.0 - math.pow(BETA, step))


def operators(x: torch.Tensor, step: int) -> torch.Tensor:
    return x / (1.0 - BETA**step)


def roots(x: torch.Tensor, step: int) -> torch.Tensor:
    return x * math.sqrt(1.0 - math.pow(0.999, step)) / (1.0 - BETA**step)


def with_bounds(x: torch.Tensor, step: int) -> torch.Tensor:
    low, high = 0.1 * (1 - 1 / (1e-3 * step + 1)), 0.1 * (1 + 1 / (1e-3 * step))
    return torch.full_like(x, 1.0 / (1.0 - BETA**step)).div_(x + 2).clamp_(low, high)


def multiples(x: torch.Tensor, step: int) -> torch.Tensor:
    return x * (2 * step * BETA**step / (1 - BETA**step) + (3 * step + 1) / (step + 1.0))


def is_told_apart(x: torch.Tensor, step: int) -> torch.Tensor:
    found = {"none": step == None, "text": step != "all"}  # noqa: E711
    return x + 1 if found == {"none": False, "text": True} else x


def rectified(x: torch.Tensor, step: int) -> torch.Tensor:
    most = 2.0 / (1.0 - 0.98) - 1.0
    power = 0.98**step
    length = most - 2 * step * power / (1.0 - power)
    if length >= 5:
        return x * math.sqrt((1.0 - power) * (length - 4) / (most - 4) * (length - 2) / length)
    return x / (1.0 - BETA**step)


def parity(x: torch.Tensor, step: int) -> torch.Tensor:
    return x * [1.0, 2.0, 4.0][step % 3]


# A function of a count, and how many captures it needs: a number that the program itself adds to is
# known to vary.
PROGRAMS: list[tuple[Callable[..., torch.Tensor], int]] = [
    (powers, 1),
    (operators, 1),
    (roots, 1),
    (with_bounds, 1),
    (multiples, 1),
    (is_told_apart, 1),
    (rectified, 2),  # its branch goes the other way from the sixth step on
    (parity, 3),  # three remainders
]


def _name(one: Any) -> str:
    return str(getattr(one, "__name__", one))


def steps(function: Callable[..., torch.Tensor], count: int) -> tuple[Any, list[torch.Tensor]]:
    """Results of a compiled optimizer of this form, and itself."""
    kept = Counting()

    @windfall.compile
    def step(x: torch.Tensor) -> torch.Tensor:
        kept.step += 1
        return function(x, kept.step)

    x = torch.linspace(-1, 1, 5)
    return step, [step(x) for _ in range(count)]


@pytest.mark.parametrize(("function", "captures"), PROGRAMS, ids=_name)
def test_counts_are_not_compiled_for(function: Callable[..., Any], captures: int) -> None:
    compiled, found = steps(function, 30)
    x = torch.linspace(-1, 1, 5)
    for count, one in enumerate(found, 1):
        torch.testing.assert_close(
            one, function(x, count), msg=lambda text, n=count: f"{n}: {text}"
        )
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager and not told.fallbacks
    assert len(told.captures) == captures


@pytest.mark.parametrize("start", [0, 100, 16383, (1 << 23) - 2])
def test_bounds_of_a_branch_hold(start: int) -> None:
    """Counts are tried in windows: beyond one, another entry is made, and right."""
    kept = Counting()
    kept.step = start
    x = torch.linspace(-1, 1, 5)

    @windfall.compile
    def step() -> torch.Tensor:
        kept.step += 1
        return rectified(x, kept.step)

    for count in range(start + 1, start + 5):
        torch.testing.assert_close(step(), rectified(x, count))


def test_counts_that_go_back() -> None:
    """What was compiled for counts from one on is not used for others."""
    kept = Counting()
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)

    @windfall.compile
    def step() -> torch.Tensor:
        return x * math.pow(2.0, kept.step)

    for count in (3, 4, 5, 0, -1, -1022, 7, 1023):
        kept.step = count
        torch.testing.assert_close(step(), x * math.pow(2.0, count))
    kept.step = 1024
    with pytest.raises(OverflowError, match="math range error"):
        step()


@pytest.mark.parametrize("places", [4, 10])
def test_a_ring_is_one_entry_for_each_place(places: int) -> None:
    """As torch_optimizer's RAdam keeps what it computed. Of ten places none of the latest eight
    entries has come back when the ninth is compiled, and yet they will."""
    kept = Counting()
    kept.buffer = [[None, None] for _ in range(places)]
    x = torch.linspace(-1, 1, 5)

    @windfall.compile
    def step() -> torch.Tensor:
        kept.step += 1
        held = kept.buffer[int(kept.step % places)]
        if kept.step == held[0]:
            return x * held[1]
        held[0], held[1] = kept.step, 1.0 / (1.0 - BETA**kept.step)
        return x * held[1]

    for count in range(1, 3 * places + 1):
        torch.testing.assert_close(step(), x / (1.0 - BETA**count))
        assert kept.buffer[count % places] == [count, 1.0 / (1.0 - BETA**count)]
    settled = len(windfall.explanation(step).captures)
    for count in range(3 * places + 1, 4 * places):
        torch.testing.assert_close(step(), x / (1.0 - BETA**count))
    told = windfall.explanation(step)
    assert len(told.captures) == settled
    assert not told.breaks and not told.eager


# ------------------------------------------------------------------------ counters among buffers


class Kept(torch.nn.Module):
    """A module that counts, and perhaps has another name for its counter's memory."""

    def __init__(self, dtype: torch.dtype, alias: str = "") -> None:
        super().__init__()
        memory = torch.zeros(2, dtype=dtype)
        self.register_buffer("count", memory[0])
        others = {"": torch.zeros_like(memory[0]), "same": self.count, "view": self.count.view(())}
        others |= {"data": self.count.data, "memory": memory, "detached": self.count.detach()}
        self.register_buffer("other", others[alias])


def compared(kept: Kept) -> bool:
    return bool(kept.count > 2)


def read(kept: Kept) -> bool:
    return bool(kept.count.item() > 2.0)


def computed(kept: Kept) -> bool:
    return 1.0 - BETA ** kept.count.item() > 0.2


QUESTIONS = [(torch.int64, compared), (torch.float32, read), (torch.float64, computed)]


def asking(kept: Kept, question: Callable[[Kept], bool]) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(x: torch.Tensor) -> torch.Tensor:
        kept.other += 1
        kept.count += 1
        return x + 1 if question(kept) else x - 1

    return call


@pytest.mark.parametrize(("dtype", "question"), QUESTIONS, ids=_name)
@pytest.mark.parametrize("alias", ["", "same", "view", "data", "detached", "memory"])
def test_a_counter_of_two_names(alias: str, dtype: torch.dtype, question: Any) -> None:
    """Who writes it by another name changes it too; where they share no memory it is one graph."""
    pair = [asking(Kept(dtype, alias), question) for _ in range(2)]
    compiled, x = windfall.compile(pair[0]), torch.zeros(3)
    for _ in range(7):
        assert torch.equal(compiled(x), pair[1](x))
    told = windfall.explanation(compiled)
    assert not told.breaks
    if alias in ("", "same"):
        assert not told.eager and not told.fallbacks and len(told.captures) == 2


@pytest.mark.parametrize(("dtype", "question"), QUESTIONS, ids=_name)
def test_a_counter_that_gets_another_name(dtype: torch.dtype, question: Any) -> None:
    """What was compiled for two counters is not run for one."""
    mine, theirs = Kept(dtype), Kept(dtype)
    compiled, function = windfall.compile(asking(mine, question)), asking(theirs, question)
    x = torch.zeros(3)
    for turn in range(8):
        if turn in (2, 5):
            for one in (mine, theirs):
                one.other = one.count.view(()) if turn == 2 else torch.zeros_like(one.count)
                one.count.zero_()
        assert torch.equal(compiled(x), function(x)), turn


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("bound", [0, 3, 2.5, -1])
def test_each_comparison_of_a_counter(sign: str, bound: float) -> None:
    kept, x = Kept(torch.int64), torch.zeros(3)
    space: dict[str, Any] = {"kept": kept}
    exec(f"def call(x):\n    return x + 1 if kept.count {sign} {bound} else x - 1", space)
    compiled = windfall.compile(space["call"])
    for count in (0, 1, 2, 3, 4, 5, 100000, 1 << 23, 1 << 40, -5, 3, 0):
        kept.count.fill_(count)
        assert torch.equal(compiled(x), space["call"](x)), count


@pytest.mark.parametrize("write", ["logical_not_", "zero_", "view"])
def test_an_answer_that_is_written_is_no_answer(write: str) -> None:
    kept = Kept(torch.int64)

    def call(x: torch.Tensor) -> torch.Tensor:
        many = kept.count > 2
        written = many.view(1) if write == "view" else many
        getattr(written, "zero_" if write == "view" else write)()
        return x + 1 if many else x - 1

    compiled, x = windfall.compile(call), torch.zeros(3)
    for count in (1, 2, 3, 4):
        kept.count.fill_(count)
        assert torch.equal(compiled(x), call(x)), count


def test_a_branch_on_an_argument_is_still_a_break() -> None:
    """Labels are no counters: code for each would be made, where one break is enough."""
    compiled = windfall.compile(lambda x, label: x + 1 if label > 2 else x - 1)
    for label in range(6):
        found = compiled(torch.zeros(3), torch.tensor(label))
        assert found.tolist() == [1.0 if label > 2 else -1.0] * 3
    assert {one.number for one in windfall.explanation(compiled).breaks} == {2}


AVERAGES: dict[str, Callable[[], dict[str, Any]]] = {
    "equal": lambda: {},
    "exponential": lambda: {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "one by one": lambda: {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "with buffers": lambda: {"use_buffers": True},
}


@pytest.mark.parametrize("kind", AVERAGES)
def test_averaged_models_in_the_step(kind: str) -> None:
    def made() -> tuple[Any, Callable[[], torch.Tensor]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        averaged, x = swa_utils.AveragedModel(model, **AVERAGES[kind]()), torch.randn(6, 4)

        def step() -> torch.Tensor:
            loss: torch.Tensor = model(x).pow(3).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            averaged.update_parameters(model)
            return loss.detach()

        return averaged, step

    (mine, step), (theirs, reference) = made(), made()
    compiled = windfall.compile(step)
    for _ in range(6):
        torch.testing.assert_close(compiled(), reference())
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager and not told.fallbacks
    assert len(told.captures) == 2  # the first step copies
