"""Sizes and numbers that vary: one compilation for all their values, guards where one matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import windfall
from windfall.errors import UserError
from windfall.events import EventLog
from windfall.frontend.marks import mark_dynamic, mark_static, maybe_mark_dynamic
from windfall.options import Options
from windfall.pipeline import Compiler

BACKENDS = ("eager", "windfall")


def run(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], **options: Any) -> EventLog:
    """Call a compiled function and the function itself; what was logged."""
    log = EventLog()
    compiled = Compiler(Options.checked(strict=True, **options), log).compiled(function)
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
    assert not log.snapshot("fallback")
    return log


def captures(log: EventLog) -> int:
    """How many captures led to an entry."""
    return len(log.snapshot("enter"))


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + 1)


def heads(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    split = x.view(batch, length, 4, width // 4).transpose(1, 2)
    return split.reshape(batch * 4, length, -1).softmax(-1)


def positions(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(x.shape[0])[:, None]


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).sum()


def length(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, len(x)).sum(0) / (x.numel() // 2)


SIZES: dict[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]]] = {
    pointwise: lambda n: (torch.randn(n, 4),),
    heads: lambda n: (torch.randn(2, n, 8),),
    positions: lambda n: (torch.randn(n, 9),),
    product: lambda n: (torch.randn(n, n + 1), torch.randn(n + 1, n)),
    length: lambda n: (torch.randn(n, 4),),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", SIZES, ids=lambda one: one.__name__)
def test_a_size_that_changes_is_compiled_twice(function: Callable[..., Any], backend: str) -> None:
    make = SIZES[function]
    log = run(function, [make(n) for n in (3, 4, 5, 6, 17, 2)], backend=backend)
    assert captures(log) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_of_0_and_1_have_entries_of_their_own(backend: str) -> None:
    log = run(pointwise, [(torch.randn(n, 4),) for n in (0, 1, 5, 6, 7, 1, 0, 2)], backend=backend)
    assert captures(log) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_that_change_become_inputs(backend: str) -> None:
    def scaled(x: torch.Tensor, n: int, rate: float) -> torch.Tensor:
        return x * n + (n // 2) - rate * x * 0.5

    calls = [(torch.randn(3), n, 0.1 * n) for n in (3, 4, -5, 6, 1, 0, 2)]
    assert captures(run(scaled, calls, backend=backend)) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decaying_step(backend: str) -> None:
    def step(p: torch.Tensor, g: torch.Tensor, count: int, rate: float) -> torch.Tensor:
        p = p.add(g / (1 - 0.9**count), alpha=-rate)
        return torch.addcdiv(p, g, g * g + 1, value=rate)

    calls = [(torch.randn(5), torch.randn(5), n, 0.1 / n) for n in range(3, 30)]
    assert captures(run(step, calls, backend=backend)) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_integer_as_a_size(backend: str) -> None:
    def part(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:, :n].sum(-1) + torch.ones(n).sum()

    calls = [(torch.randn(3, 9), n) for n in (3, 4, 5, 7, 9)]
    assert captures(run(part, calls, backend=backend)) == 2


def test_a_branch_on_a_size_is_a_guard() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 4 else x - 1

    log = run(branch, [(torch.randn(n),) for n in (3, 4, 5, 6, 2, 77)], backend="eager")
    assert captures(log) == 3  # fixed; at most 4; more than 4


def test_what_needs_the_value_is_fixed() -> None:
    def repeated(x: torch.Tensor, n: int) -> torch.Tensor:
        for index in range(n):
            x = x + index
        return x

    log = run(repeated, [(torch.randn(3), n) for n in (3, 4, 5, 4, 3)], backend="eager")
    assert captures(log) == 3
    first, second = log.snapshot("specialise")  # one value may be a special one; two are not
    for event in (first, second):
        assert "s0" in event.facts["reason"] and "test_symbolic.py" in event.facts["reason"]


def test_results_that_are_numbers() -> None:
    def numbers(x: torch.Tensor, n: int) -> Any:
        return n * 2 + 1, x.shape[0] + 3, x.size(), {"part": n // 3, "least": min(n, x.shape[0])}

    log = run(numbers, [(torch.randn(n, 4), n + 1) for n in (3, 4, 5, 7)], backend="eager")
    assert captures(log) == 2


def test_numbers_across_a_break() -> None:
    def broken(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x * n
        print(end="")
        return y.view(-1) + n + x.shape[0]

    log = run(broken, [(torch.randn(n, 4), n) for n in (3, 4, 5, 7, 8)], backend="windfall")
    assert captures(log) == 4


class Counting(torch.nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.layer(x) * self.count


def test_a_counter_in_a_module() -> None:
    module = Counting()
    log = EventLog()
    compiled = Compiler(Options.checked(strict=True), log).compiled(module)
    x = torch.randn(2, 4)
    for index in range(10):
        torch.testing.assert_close(compiled(x), module.layer(x) * (index + 1))
    assert module.count == 10
    assert captures(log) == 1  # what it reads it writes: taken as varying from the start


def test_sizes_that_were_equal_once() -> None:
    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()

    calls = [(torch.randn(n), torch.randn(m)) for n, m in ((3, 3), (4, 4), (5, 6), (7, 8), (9, 9))]
    assert captures(run(added, calls, backend="windfall")) == 3


def test_a_stride_that_changes() -> None:
    def strided(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    calls = [(torch.randn(4, n)[:, :3],) for n in (5, 6, 7, 8, 9)]
    assert captures(run(strided, calls, backend="windfall")) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_dynamic_from_the_first_call(backend: str) -> None:
    calls = [(torch.randn(n, m),) for n, m in ((3, 4), (5, 6), (7, 2))]
    assert captures(run(pointwise, calls, backend=backend, dynamic=True)) == 1


def test_never_dynamic() -> None:
    calls = [(torch.randn(n, 4),) for n in (3, 4, 5, 3)]
    assert captures(run(pointwise, calls, backend="eager", dynamic=False)) == 3


def test_training_with_sizes_that_vary() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), y)

    log = EventLog()
    compiled = Compiler(Options.checked(strict=True), log).compiled(loss)
    for size in (3, 4, 5, 7, 64, 2):
        x, y = torch.randn(size, 8), torch.randint(0, 4, (size,))
        found = []
        for function in (compiled, loss):
            model.zero_grad()
            result = function(x, y)
            result.backward()
            gradients = [one.grad.clone() for one in model.parameters() if one.grad is not None]
            found.append([result.detach(), *gradients])
        torch.testing.assert_close(*found)
    assert captures(log) == 2


# ---------------------------------------------------------------------------------------- marks


def test_a_marked_size_is_compiled_once() -> None:
    calls = [(torch.randn(n, 4),) for n in (3, 4, 5)]
    for (x,) in calls:
        mark_dynamic(x, 0)
    assert captures(run(pointwise, calls, backend="windfall")) == 1


def test_a_mark_with_a_range() -> None:
    calls = [(torch.randn(n, 4),) for n in (3, 4, 8, 40)]
    for (x,) in calls[:3]:
        mark_dynamic(x, 0, min=2, max=8)
    assert captures(run(pointwise, calls, backend="eager")) == 2
    with pytest.raises(UserError, match="40, not between 2 and 8"):
        mark_dynamic(calls[3][0], 0, min=2, max=8)


def test_a_mark_that_cannot_be_kept_names_the_line() -> None:
    def fixed(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 5:
            return x + 1
        return x

    x = torch.randn(5)
    mark_dynamic(x, 0)
    with pytest.raises(UserError, match=r"(?s)marked dynamic.*test_symbolic.py.*line \d+, in"):
        windfall.compile(fixed)(x)
    y = torch.randn(5)
    maybe_mark_dynamic(y, 0)
    torch.testing.assert_close(windfall.compile(fixed)(y), y + 1)


def test_a_static_mark() -> None:
    calls = [(torch.randn(n, 4),) for n in (3, 4, 5)]
    for (x,) in calls:
        mark_static(x)
    assert captures(run(pointwise, calls, backend="eager")) == 3


def test_wrong_marks() -> None:
    with pytest.raises(UserError, match="2 dimensions"):
        mark_dynamic(torch.randn(2, 3), 2)
    with pytest.raises(UserError, match="greater"):
        mark_dynamic(torch.randn(2, 3), 1, min=5, max=4)


def test_a_storm_of_lengths_and_rates() -> None:
    """A thousand lengths and a schedule of rates: three compilations at most."""

    def update(x: torch.Tensor, rate: float) -> torch.Tensor:
        return x - rate * torch.tanh(x).mean(-1, keepdim=True)

    calls = [(torch.randn(2, n), 0.1 * 0.99**n) for n in range(2, 1002)]
    log = run(update, calls)
    assert captures(log) <= 3


def test_a_number_that_goes_through_many_steps() -> None:
    class Owner:
        state = 3

        def __call__(self, x: torch.Tensor, n: int) -> torch.Tensor:
            total = 0
            for _ in range(n):
                total += self.state
                self.state = (total * 5 + self.state) % 7
            return x * total

    plain, owner = Owner(), Owner()
    compiled = Compiler(Options.checked(strict=True), EventLog()).compiled(owner)
    for n in (100, 100, 90):
        torch.testing.assert_close(compiled(torch.ones(3), n), plain(torch.ones(3), n))
        assert owner.state == plain.state


def test_a_long_loop_on_a_float_that_varies() -> None:
    def f(x: torch.Tensor, t: float, n: int) -> torch.Tensor:
        for i in range(n):
            t = t * 0.5 + i
        return x + t

    log = EventLog()
    compiled = Compiler(Options.checked(strict=True), log).compiled(f)
    for t in (1.0, 2.5, 3.0, 4.0, 5.0):
        assert torch.equal(compiled(torch.ones(3), t, 3000), f(torch.ones(3), t, 3000))
    assert captures(log) <= 6
    nodes = [len(one.record.graph.nodes) for one in log.snapshot("capture")]
    assert max(nodes) < 2500


# ---------------------------------------------------------------------------------------- items


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_item_that_nobody_looks_at_is_no_break(backend: str) -> None:
    """A loss for the log, beside the loss itself."""

    def losses(x: torch.Tensor, total: float) -> Any:
        loss = torch.tanh(x).mean()
        value = loss.item()
        x = x * value - float(loss * 2)
        loss.add_(1.0)  # the item was read before
        return x, loss, total + value

    calls = [(torch.randn(4, dtype=kind), n / 2) for n in range(4) for kind in (torch.float64,)]
    log = run(losses, calls, backend=backend, fullgraph=True)
    assert not any(event.record.stopped for event in log.snapshot("capture") if event.record)
    run(losses, [(torch.randn(4), 0.5)], backend=backend, fullgraph=True)


def test_an_item_that_is_looked_at_is_a_break() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1 if y.sum().item() > 0 else y - 1

    log = run(branch, [(torch.ones(3),), (-torch.ones(3),), (torch.ones(3),)], backend="eager")
    assert len(log.snapshot("specialise")) == 1
    assert any(event.record.stopped for event in log.snapshot("capture") if event.record)


def test_an_item_of_a_tensor_that_needs_a_gradient() -> None:
    def loss(x: torch.Tensor) -> Any:
        value = (x * x).sum()
        return value * value.item(), value.item()

    compiled = windfall.compile(loss, fullgraph=True)
    found = []
    for function in (compiled, loss):
        x = torch.arange(4.0, requires_grad=True)
        result, number = function(x)
        result.backward()
        found.append((result.detach(), number, x.grad))
    torch.testing.assert_close(*found)
