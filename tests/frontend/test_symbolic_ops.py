"""Functions of sizes that vary: numbers made of them, layers, loops that need a value; how often
each is compiled, and what is told where a value is needed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import windfall
from windfall.errors import UserError
from windfall.events import EventLog
from windfall.frontend import intervals
from windfall.frontend.marks import mark_dynamic, mark_static, maybe_mark_dynamic
from windfall.ir.relation import Assumptions
from windfall.ir.symint import evaluate, size_symbol
from windfall.options import Options
from windfall.pipeline import Compiler


def run(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], **options: Any) -> EventLog:
    """Call a compiled function and the function itself; what was logged."""
    log = EventLog()
    compiled = Compiler(Options.checked(**options), log).compiled(function)
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), function(*arguments), check_stride=True)
    return log


def captures(log: EventLog) -> int:
    return len(log.snapshot("enter"))


def breaks(log: EventLog) -> list[Any]:
    found = [event.record for event in log.snapshot("capture") if event.record is not None]
    return [one.stopped for one in found if one.stopped is not None]


def sizes(*numbers: int) -> list[tuple[torch.Tensor]]:
    return [(torch.randn(n, 3),) for n in numbers]


# ---------------------------------------------------------------------------------------- numbers


def test_a_thousand_lengths_and_a_schedule() -> None:
    """The recompile storm of the issue, with a root and a schedule in it."""

    def step(x: torch.Tensor, count: int, rate: float) -> torch.Tensor:
        scores = x @ x.t() / math.sqrt(x.shape[0])
        decay = 0.5 * (1 + math.cos(math.pi * count / 1000)) / math.sqrt(count)
        return (scores.softmax(-1) @ x) * rate * decay

    calls = [(torch.randn(n, 4), n, 0.1 / n) for n in range(2, 1002, 7)]
    log = run(step, calls)
    assert captures(log) <= 3 and not log.snapshot("fallback")


def test_a_function_that_may_raise_needs_the_value() -> None:
    def root(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * math.sqrt(n - 4)

    compiled = windfall.compile(root)
    x = torch.randn(3)
    for n in (5, 6, 8, 4):
        torch.testing.assert_close(compiled(x, n), root(x, n))
    with pytest.raises(ValueError, match="math domain error"):
        compiled(x, 3)


def test_division_by_a_number_that_becomes_zero() -> None:
    def quotient(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * (1.0 / n)

    compiled = windfall.compile(quotient)
    x = torch.randn(3)
    for n in (5, 6, 8, -2, -3):
        torch.testing.assert_close(compiled(x, n), quotient(x, n))
    with pytest.raises(ZeroDivisionError):
        compiled(x, 0)


def test_a_float_from_outside_in_a_root() -> None:
    def root(x: torch.Tensor, rate: float) -> torch.Tensor:
        return x * math.sqrt(rate) + math.log(rate)

    log = run(root, [(torch.randn(3), 0.1 * n) for n in range(1, 9)])
    assert captures(log) == 2
    compiled = windfall.compile(root)
    for rate in (0.5, 0.25, 2.0):
        compiled(torch.ones(1), rate)
    for rate in (-1.0, 0.0):
        with pytest.raises(ValueError, match="math domain error"):
            compiled(torch.ones(1), rate)


CUTS: list[Callable[[int], int]] = [
    lambda n: math.ceil(n / 4),
    lambda n: math.floor(n / 3),
    lambda n: int(n * 0.75) + 1,
    lambda n: int(n / 7) + 1,
    lambda n: math.ceil(n * 1.5 / 4),
    lambda n: round(n / 3) + 1,
    lambda n: math.trunc(n * 0.25 + 2),
    lambda n: -(-n // 8),
    lambda n: int(0.3 * n),
    lambda n: int(0.15 * n) + 1,
    lambda n: math.ceil(n * 0.7 + 0.5),
]


@pytest.mark.parametrize("cut", CUTS)
def test_integers_made_of_fractions(cut: Callable[[int], int]) -> None:
    def padded(x: torch.Tensor) -> Any:
        count = cut(x.shape[0])
        return x.new_ones(count + 2, 2) * count, count

    numbers = [9, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 63, 64, 65]
    assert captures(run(padded, sizes(*numbers))) <= 2


def test_spans_hold_what_python_computes() -> None:
    """Random arithmetic on a number, by spans and by Python."""
    dice = random.Random(0)
    symbol = size_symbol("s0", 8)
    signs = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
             "/": lambda a, b: a / b, "**": lambda a, b: a**b}  # fmt: skip
    cut = compared = 0
    for _ in range(600):
        span: intervals.Span | None = intervals.of_size(symbol)
        values: dict[int, float] = {n: float(n) for n in (2, 3, 7, 10, 30, 100, 999, 4096)}
        for _ in range(dice.randint(1, 3)):
            operation = dice.choice(list(signs))
            number = float(dice.choice((0.5, 0.25, 0.3, 2, 3, 4, 7, 10, -1, 1.5, 0.1)))
            other = intervals.of_number(number)
            swapped = dice.random() < 0.3
            pair = (other, span) if swapped else (span, other)
            if not intervals.cannot_raise(operation, *pair):
                break
            span = intervals.combined(operation, *pair)
            for n, value in values.items():
                order = (number, value) if swapped else (value, number)
                values[n] = signs[operation](*order)  # raises nothing, as was said
        if span is None:
            continue
        cuts = (("floor", math.floor), ("ceiling", math.ceil), ("rounded", round))
        with Assumptions():
            made = [(rule, getattr(intervals, name)(span)) for name, rule in cuts]
        for n, value in values.items():
            assert span.low <= value <= span.high
            for rule, size in made:
                if size is not None:
                    cut += 1
                    assert evaluate(size, {"s0": n}) == rule(value), (rule, span, n, value)
            limit = dice.choice((0.5, 1.0, 2.0, 10.0))
            sides = intervals.compared(span, intervals.of_number(limit))
            if sides is not None:
                compared += 1
                left, right = (evaluate(one, {"s0": n}) for one in sides)
                assert (left < right) == (value < limit) and (left == right) == (value == limit)
    assert cut > 300 and compared > 300


# ---------------------------------------------------------------------------------------- layers


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_one_call(kind: type[nn.Module]) -> None:
    layer: Any = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    with torch.no_grad():
        log = run(layer, [(torch.randn(2, n, 3),) for n in (5, 6, 40, 7)])
        assert captures(log) == 2 and not log.snapshot("fallback")
        calls = [note.name for event in log.snapshot("build") for note in event.record.kernels]
    assert len([name for name in calls if name.startswith("aten.")]) == 2, calls  # one in each
    assert len(calls) < 12


def test_a_packed_sequence_is_one_call() -> None:
    layer = nn.GRU(3, 4)
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, 3) for n in (5, 3, 1)])

    def whole(data: torch.Tensor, counts: torch.Tensor, state: torch.Tensor) -> Any:
        weights = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
        return torch.gru(data, counts, state, weights, True, 1, 0.0, False, False)

    with torch.no_grad():
        log = run(whole, [(packed.data, packed.batch_sizes, torch.zeros(1, 3, 4))])
    assert captures(log) == 1 and not log.snapshot("fallback")


def test_errors_of_a_recurrent_layer_are_eagers() -> None:
    layer = nn.LSTM(3, 4)
    compiled = windfall.compile(layer)
    with torch.no_grad():
        compiled(torch.randn(5, 2, 3))
        with pytest.raises(RuntimeError, match="larger than 0"):
            compiled(torch.randn(0, 2, 3))
        with pytest.raises(RuntimeError, match=r"input\.size"):
            compiled(torch.randn(5, 2, 4))


def test_a_long_recurrent_layer_is_trained_natively() -> None:
    layer = nn.GRU(3, 4)
    log = EventLog()
    compiled = Compiler(Options.checked(), log).compiled(layer)
    for n in (40, 41, 50, 64):
        x = torch.randn(n, 2, 3)
        compiled(x)[0].sum().backward()
        ours = [one.grad for one in layer.parameters()]
        layer.zero_grad()
        layer(x)[0].sum().backward()
        torch.testing.assert_close(ours, [one.grad for one in layer.parameters()])
        layer.zero_grad()
    assert {one.number for one in breaks(log)} == {32} and captures(log) <= 6


def test_pooling_over_everything_has_the_gradient_of_pooling() -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool1d(x, x.shape[2]).sum() + F.avg_pool1d(x, x.size(2)).sum()

    compiled = windfall.compile(pooled)
    for n in (4, 5, 6):
        x = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0, 0.0])[:n].expand(1, 2, n).clone()
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(mine).backward()
        pooled(theirs).backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


# ---------------------------------------------------------------------- relations between sizes


def test_every_fourth_size_is_one_entry() -> None:
    def quarters(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 4, 4, 3).sum(1)

    assert captures(run(quarters, sizes(8, 12, 16, 20, 400))) == 2


def test_a_special_size_is_no_reason_to_fix_the_others() -> None:
    """The second size makes a dimension of one: the third is still the one that varies."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2)
        return first[: second.shape[0]] - second

    assert captures(run(halves, sizes(8, 2, 10, 12, 14, 16, 18, 20))) == 3


# ------------------------------------------------------------------------------ values are needed


def loop(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(3)
    for index in range(x.shape[0]):
        total = total * 0.5 + x[index] * index
    return total


def rows(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(3)
    for row in x:
        total = total * 0.5 + row
    return total


@pytest.mark.parametrize("program", [loop, rows])
def test_a_loop_over_a_size_is_compiled_for_some_values_then_broken(program: Any) -> None:
    log = run(program, sizes(*range(2, 40), 5, 6))
    assert captures(log) < 25 and not log.snapshot("fallback")
    (first, *_) = breaks(log)
    assert first.number == 34 and "test_symbolic_ops.py" in str(first.where)


@pytest.mark.parametrize("seed", [3, 6, 7, 8])
def test_kinds_of_calls_that_each_came_once_are_no_storm(seed: int) -> None:
    """By size, dtype, gradient and mode: whichever comes first, each is compiled."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum(-1)

    kinds = list(
        itertools.product((0, 1, 4, 7), (torch.float32, torch.float64), *[(False, True)] * 2)
    )
    random.Random(seed).shuffle(kinds)
    compiled = windfall.compile(program, recompile_limit=64)
    for size, dtype, needs_grad, mode in kinds:
        x = torch.randn(size, 4, dtype=dtype).requires_grad_(needs_grad)
        with torch.set_grad_enabled(mode):
            torch.testing.assert_close(compiled(x), program(x))
    assert not windfall.explanation(compiled).fallbacks


def test_a_storm_ends_and_is_told() -> None:
    """A list of another length in each call has no general form: past the limit nothing more is
    compiled, and that is counted."""

    def joined(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(parts).sum(0)

    compiled = windfall.compile(joined, recompile_limit=4)
    for count in range(1, 60):
        parts = [torch.ones(2)] * count
        torch.testing.assert_close(compiled(parts), joined(parts))
    told = windfall.explanation(compiled)
    assert len(told.captures) < 45
    (reason,) = told.fallbacks
    assert "again and again" in reason and "length" in reason and "joined" in reason
    whole = windfall.compile(joined, recompile_limit=4, fullgraph=True)
    for count in range(1, 60):
        whole([torch.ones(2)] * count)
    assert not windfall.explanation(whole).fallbacks


def test_entries_that_are_used_again_are_no_storm() -> None:
    compiled = windfall.compile(lambda x: x + 1, dynamic=False, recompile_limit=2)
    for count in range(1, 80):
        x = torch.ones(count)
        compiled(x)
        compiled(x)
    assert not windfall.explanation(compiled).fallbacks


# ----------------------------------------------------------------------------------------- marks


def marked(*shape: int, dimension: int = 0) -> torch.Tensor:
    x = torch.randn(*shape)
    mark_dynamic(x, dimension)
    return x


def needs_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(x.shape[0]):  # the loop
        x = x + 1
    return x


def needs_three(x: torch.Tensor) -> torch.Tensor:
    return x @ torch.ones(3, 2)  # the product


def needs_a_branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] == 4 else x - 1  # the branch


REFUSED: list[tuple[Any, int, str, str]] = [
    (needs_a_loop, 0, "for _ in range(x.shape[0]):  # the loop", "4"),
    (needs_three, 1, "return x @ torch.ones(3, 2)  # the product", "3"),
    (needs_a_branch, 0, "else x - 1  # the branch", "4"),
]


@pytest.mark.parametrize(("program", "dimension", "line", "value"), REFUSED)
def test_a_mark_that_cannot_be_kept(program: Any, dimension: int, line: str, value: str) -> None:
    with pytest.raises(UserError) as caught:
        windfall.compile(program)(marked(4, 3, dimension=dimension))
    text = str(caught.value)
    assert f"L['x'].size({dimension}) is marked dynamic" in text
    assert line in text and f", in {program.__name__}" in text and "test_symbolic_ops.py" in text
    assert "expected: one compilation for every value" in text and f"it is {value} in this" in text
    assert "what to do:" in text and "maybe_mark_dynamic" in text


def test_a_mark_that_a_gradient_cannot_keep() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    mark_dynamic(x, 0)
    with pytest.raises(UserError, match=r"L\['x'\].size\(0\) is marked dynamic") as caught:
        windfall.compile(lambda x: x.cumprod(0).sum())(x)  # the gradient
    assert "# the gradient" in str(caught.value)


def test_a_marked_size_of_two_where_one_less_is_one() -> None:
    """Broadcasting makes 1 special; that is no contradiction to the mark."""

    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x[1:] - x[:-1]

    compiled = windfall.compile(shifted)
    for n in (2, 5, 7, 2, 9):
        x = marked(n, 3)
        torch.testing.assert_close(compiled(x), shifted(x))
    assert len(windfall.explanation(compiled).captures) == 2


def test_a_mark_that_may_be_broken_is() -> None:
    x = torch.randn(4, 3)
    maybe_mark_dynamic(x, 0)
    torch.testing.assert_close(windfall.compile(needs_a_loop)(x), needs_a_loop(x))


def test_a_static_mark_beats_dynamic() -> None:
    compiled = windfall.compile(lambda x: x * 2, dynamic=True)
    for n in (4, 5, 6):
        x = torch.randn(n, 3)
        mark_static(x)
        compiled(x)
    assert len(windfall.explanation(compiled).captures) == 3


def test_the_range_of_a_mark_is_told_at_a_miss() -> None:
    compiled = windfall.compile(lambda x: x * 2)
    x = torch.randn(4, 3)
    mark_dynamic(x, 0, min=3, max=8)
    compiled(x)
    compiled(marked(12, 3))
    (reason,) = windfall.explanation(compiled).recompiles
    assert "expected f32[s0, 3] where s0 >= 3 and <= 8, got f32[12, 3]" in reason


# ------------------------------------------------------------------------------ nothing at all


def test_sequences_without_elements() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 0, 8)
    with torch.no_grad():
        found, weights = windfall.compile(layer)(x, x, x)
    assert found.shape == (2, 0, 8) and weights is None  # as eager answers
    resized = windfall.compile(lambda x: F.interpolate(x, scale_factor=2))
    resized(torch.randn(2, 3, 4, 5))
    with pytest.raises(RuntimeError, match="should be greater than 0"):
        resized(torch.randn(2, 3, 0, 5))


# ------------------------------------------------------------------------- each call a new decision


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.stack([one.sum() for one in x.split(2)]),
        lambda x: torch.cat([one * 2 for one in x.split(2)]),
    ],
    ids=["stacked", "joined"],
)
def test_ever_new_numbers_of_parts(function: Any) -> None:
    """How many parts there are is decided for each length: eight entries, then eager. A value that
    comes again is compiled for after all."""
    compiled = windfall.compile(function)
    for size in range(2, 40):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x), function(x))
    entries = [one for found in compiled.entries().values() for one in found]
    assert len(entries) <= 8
    assert compiled.log.snapshot("fallback"), "it is counted"
    kept = torch.randn(9, 3)
    torch.testing.assert_close(compiled(kept), function(kept))  # one of the eight, again
    later = torch.randn(50, 3)
    torch.testing.assert_close(compiled(later), function(later))
    assert len([one for found in compiled.entries().values() for one in found]) == 9


class Packed(torch.nn.Module):
    """Packs, runs and unpacks, as for texts of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(4, 5, batch_first=True)
        self.out = torch.nn.Linear(5, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        rnn = torch.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, _ = rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        return self.out(found).sum()


def test_training_on_packed_sequences_is_compiled_a_few_times() -> None:
    torch.manual_seed(0)
    model = Packed()
    compiled = windfall.compile(model.forward)
    for _ in range(12):
        lengths = torch.randint(1, 9, (4,))
        x = torch.randn(4, int(lengths.max()), 4)
        gradients = []
        for function in (model, compiled):
            model.zero_grad()
            function(x, lengths).backward()
            gradients.append([one.grad.clone() for one in model.parameters()])
        torch.testing.assert_close(gradients[1], gradients[0])
    assert len(compiled.log.snapshot("capture")) <= 8
