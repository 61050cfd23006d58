"""Optimizers as programs: torch's wrappers are read through, state is kept by parameters."""

from __future__ import annotations

import collections
import math
from typing import Any

import pytest
import torch
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

import windfall
from tests.conformance.optimizers import Case, check


def in_one_graph(compiled: Any) -> bool:
    """Whether nothing of it ran in eager."""
    told = windfall.explanation(compiled)
    return bool(told.graphs) and not (told.breaks or told.eager or told.fallbacks)


def parameters(count: int = 2) -> list[torch.nn.Parameter]:
    """With gradients."""
    made = [torch.nn.Parameter(torch.arange(4.0) + index) for index in range(count)]
    for each in made:
        each.grad = torch.ones(4)
    return made


def adam(way: str, **more: Any) -> Case:
    return Case(torch.optim.Adam, ", ".join(more) or "default", {"lr": 0.01, **more}, way)


SGD = [
    Case(torch.optim.SGD, "default", {}),
    Case(torch.optim.SGD, "momentum", {"momentum": 0.9, "weight_decay": 0.1}),
    Case(torch.optim.SGD, "maximize", {"maximize": True, "lr": 0.01}),
]


STEPS = [
    *SGD,
    Case(torch.optim.SGD, "rate in a tensor", {"lr": torch.tensor(0.1), "momentum": 0.9}),
    Case(torch.optim.SGD, "momentum", {"lr": 0.1, "momentum": 0.9}, "fused"),
    adam("for-loop"),
    adam("foreach", weight_decay=0.1),
    adam("fused", amsgrad=True),
    Case(torch.optim.NAdam, "a product is kept", {}),
    Case(torch.optim.RAdam, "a branch on the count", {}, "foreach"),
    Case(torch.optim.ASGD, "extremes of the count", {"t0": 3.0}),
    Case(torch.optim.Adafactor, "norms are read", {}),
]


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_a_step_is_one_graph_whatever_the_rate(case: Case) -> None:
    outcome = check(case)
    assert outcome.is_right, outcome.equal
    assert outcome.is_one_graph, (outcome.breaks, outcome.in_eager)
    assert not outcome.late or case.cls is torch.optim.ASGD  # that takes another branch from 3 on


def test_items_of_a_dict_by_tensors() -> None:
    table: dict[Any, Any] = collections.defaultdict(dict)
    weights = parameters()

    @windfall.compile
    def count(items: list[Any]) -> None:
        for each in items:
            state = table[each]
            if not state:
                state["sum"] = torch.zeros(4)
            state["sum"] += each.grad

    for _ in range(3):
        count(weights)
    assert [table[one]["sum"].tolist() for one in weights] == [[3.0] * 4] * 2
    assert list(table) == weights or [id(one) for one in table] == [id(one) for one in weights]
    assert in_one_graph(count)
    others = parameters()
    count(others)  # other objects: other items
    count([weights[1], others[0]])
    assert [table[one]["sum"][0].item() for one in (*weights, *others)] == [3.0, 4.0, 2.0, 1.0]


def test_a_dict_by_tensors_is_looked_at_again() -> None:
    weight, *_ = parameters(1)
    table: dict[Any, float] = {weight: 2.0}

    @windfall.compile
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * table[weight] if weight in table else x

    x = torch.ones(3)
    assert scaled(x).tolist() == [2.0] * 3
    table[weight] = 3.0
    assert scaled(x).tolist() == [3.0] * 3
    del table[weight]
    assert scaled(x).tolist() == [1.0] * 3


def test_hooks_of_steps_are_called() -> None:
    heard: list[str] = []
    weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.5)
    step = windfall.compile(optimizer.step)
    step()
    handle = optimizer.register_step_post_hook(lambda *_: heard.append("after"))
    step()
    assert heard == ["after"]
    handle.remove()
    step()
    assert heard == ["after"]
    assert weights[0].tolist() == [-1.5, -0.5, 0.5, 1.5]


def test_a_profiled_block_with_a_break_inside() -> None:
    @windfall.compile
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("block"):
            x = x + 1
            windfall.graph_break()
            x = x * 2
        return x

    assert program(torch.ones(2)).tolist() == [4.0, 4.0]
    with pytest.raises(TypeError), torch.autograd.profiler.record_function("outer"):
        program("text")  # type: ignore[arg-type]


def test_grouped_tensors_are_those_of_the_graph() -> None:
    @windfall.compile
    def program(items: list[torch.Tensor]) -> Any:
        doubled = [one * 2 for one in items]
        grouped = _group_tensors_by_device_and_dtype([items, doubled], True)
        return [tensors[1] for tensors, _ in grouped.values()], list(grouped)

    given = [torch.ones(2), torch.ones(2, dtype=torch.float64), torch.zeros(3)]
    groups, keys = program(given)
    wanted = _group_tensors_by_device_and_dtype([given], True)
    assert keys == list(wanted)
    assert [[one.shape for one in each] for each in groups] == [
        [one.shape for one in tensors[0]] for tensors, _ in wanted.values()
    ]
    assert {type(one) for each in groups for one in each} == {torch.Tensor}


def test_nobody_compiles_in_the_eyes_of_torch_optim() -> None:
    code = "def asks():\n    return torch.compiler.is_compiling()\n"
    answers = []
    for name in ("torch.optim.adam", "mine"):
        space: dict[str, Any] = {"torch": torch, "__name__": name}
        exec(code, space)
        asks = space["asks"]
        answers.append(windfall.compile(lambda x, asks=asks: (x + 1, asks()))(torch.ones(1))[1])
    assert answers == [False, True]


# ----------------------------------------------------------------------------- counts that are read


def counting(function: Any) -> Any:
    """A program that counts in a tensor and computes with the count."""

    def program(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count += 1
        return x * function(count.item())

    return program


COUNTS = {
    "power": lambda n: 1 - 0.9**n,
    "root": lambda n: math.sqrt(1 - 0.999**n),
    "power of math": lambda n: math.pow(0.5, n),
    "quotient": lambda n: 0.1 / (1 - 0.9**n),
    "branch": lambda n: 2.0 if 10 - 20 / n > 5 else 0.5,
    "branch on the count": lambda n: 1.0 if n < 4 else 3.0,
    "extreme": lambda n: max(2.5, n),
    "extreme, the other way": lambda n: min(n, 2.5),
    "integer": lambda n: max(1, n - 3),
    "negative": lambda n: -n,
    "several": lambda n: (n + 0.5) ** 0.5 / (n * n + 1) - n,
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_python_computes_of_a_count(name: str) -> None:
    program = counting(COUNTS[name])
    compiled = windfall.compile(program)
    mine, theirs = torch.zeros(()), torch.zeros(())
    for _ in range(7):
        x = torch.ones(3, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, mine), program(x, theirs), rtol=1e-15, atol=0)
    assert in_one_graph(compiled)
    assert len(windfall.explanation(compiled).captures) <= 2  # one for each branch


@pytest.mark.parametrize("start", [-1.0, 0.5, -5.0, float("nan"), float("inf"), 2.0**40])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_is_none(name: str, start: float) -> None:
    """What was compiled for counts is not used for other numbers: Python answers, or raises."""
    program = counting(COUNTS[name])
    compiled = windfall.compile(program)
    compiled(torch.ones(3), torch.zeros(()))
    answers = []
    for function in (compiled, program):
        count = torch.tensor(start)
        try:
            answers.append((function(torch.ones(3), count), count))
        except (ArithmeticError, ValueError, TypeError) as error:
            answers.append((type(error), count))
    (mine, its), (wanted, theirs) = answers
    torch.testing.assert_close(its, theirs, equal_nan=True)
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(mine, wanted, equal_nan=True)
    else:
        assert mine is wanted


def test_a_count_that_others_write_is_not_counted() -> None:
    def program(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count.view(1).zero_()
        count += 1
        return x * 0.5 ** count.item()

    compiled = windfall.compile(program)
    for start in (3.0, 8.0):
        assert compiled(torch.ones(2), torch.tensor(start)).tolist() == [0.5, 0.5]


def test_the_kind_of_an_extreme_is_kept() -> None:
    compiled = windfall.compile(lambda x: (x + 1, max(1, x.sum().item())))
    found = compiled(torch.zeros(2))[1]
    assert found == 1 and type(found) is int


# -------------------------------------------------------------------------------------- foreach

_LISTS = {
    "add number": lambda xs, ys, a: torch._foreach_add_(xs, a),
    "add list": lambda xs, ys, a: torch._foreach_add_(xs, ys, alpha=a),
    "add numbers": lambda xs, ys, a: torch._foreach_add_(xs, [a, 2 * a]),
    "add tensor": lambda xs, ys, a: torch._foreach_add_(xs, torch.tensor(2.0), alpha=a),
    "sub": lambda xs, ys, a: torch._foreach_sub(xs, ys, alpha=a),
    "mul": lambda xs, ys, a: torch._foreach_mul(xs, [a, 1.5]),
    "div": lambda xs, ys, a: torch._foreach_div_(xs, a),
    "lerp": lambda xs, ys, a: torch._foreach_lerp_(xs, ys, a),
    "lerp list": lambda xs, ys, a: torch._foreach_lerp(xs, ys, xs),
    "addcmul": lambda xs, ys, a: torch._foreach_addcmul_(xs, ys, ys, [a, -a]),
    "addcdiv": lambda xs, ys, a: torch._foreach_addcdiv_(xs, ys, ys, value=a),
    "addcdiv by place": lambda xs, ys, a: torch._foreach_addcdiv(xs, ys, ys, a),
    "maximum": lambda xs, ys, a: torch._foreach_maximum_(xs, ys),
    "minimum": lambda xs, ys, a: torch._foreach_minimum(xs, a),
    "clamp": lambda xs, ys, a: torch._foreach_clamp_max_(xs, [a, a]),
    "pow": lambda xs, ys, a: torch._foreach_pow(xs, 2),
    "sqrt": lambda xs, ys, a: torch._foreach_sqrt(ys),
    "neg": lambda xs, ys, a: torch._foreach_neg_(xs),
    "zero": lambda xs, ys, a: torch._foreach_zero_(xs),
    "copy": lambda xs, ys, a: torch._foreach_copy_(xs, ys),
    "norm": lambda xs, ys, a: torch._foreach_norm(xs, 1),
}


@pytest.mark.parametrize("name", _LISTS)
def test_lists_of_tensors(name: str) -> None:
    function = _LISTS[name]
    compiled = windfall.compile(function)
    for a in (0.25, 0.5, 0.75, 1.25):
        made = [
            (
                [torch.linspace(-1, 1, 6).view(2, 3), torch.linspace(1, 2, 5)],
                [torch.linspace(0.5, 1, 6).view(2, 3), torch.linspace(3, 4, 5)],
            )
            for _ in range(2)
        ]
        mine, wanted = compiled(*made[0], a), function(*made[1], a)
        assert type(mine) is type(wanted)
        assert (mine is made[0][0]) == (wanted is made[1][0])
        torch.testing.assert_close(list(mine), list(wanted))
        torch.testing.assert_close(made[0], made[1])
        versions = [[one._version for each in lists for one in each] for lists in made]
        assert versions[0] == versions[1]
    assert in_one_graph(compiled)
    assert len(windfall.explanation(compiled).captures) <= 2


def test_lists_that_do_not_fit_are_refused_by_torch() -> None:
    compiled = windfall.compile(lambda xs, ys: torch._foreach_add_(xs, ys))
    given = [torch.ones(2), torch.ones(2)]
    with pytest.raises(RuntimeError, match=r"same number|same length|corresponding"):
        compiled(given, given[:1])
    assert given[0].tolist() == [1.0, 1.0]


# --------------------------------------------------------------------------------- fused steps


def test_what_follows_a_fused_step_sees_what_it_wrote() -> None:
    def program(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        return weight * 2

    found = []
    for run in (windfall.compile(program), program):
        weights = parameters()
        optimizer = torch.optim.SGD(weights, lr=0.5, fused=True)
        for _ in range(3):
            answer = run(optimizer, weights[0])
        found.append((answer.tolist(), [one.tolist() for one in weights], weights[0]._version))
    assert found[0] == found[1]


# --------------------------------------------------------------------- all that a step consists of


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("way", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_clipping_step_and_zeroing_under_a_schedule(way: dict[str, Any], to_none: bool) -> None:
    def update(optimizer: torch.optim.Optimizer, weights: Any, gradients: Any) -> torch.Tensor:
        for one, gradient in zip(weights, gradients, strict=True):
            one.grad = gradient * 2
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        torch.nn.utils.clip_grad_value_(weights, 0.3)
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        return norm

    compiled = windfall.compile(update)
    runs: list[Any] = []
    for run in (compiled, update):
        weights = parameters()
        optimizer = torch.optim.AdamW(weights, lr=0.1, **way)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        norms = []
        for step in range(5):
            norms.append(run(optimizer, weights, [torch.arange(4.0) + step for _ in weights]))
            schedule.step()
        runs.append((weights, [one.grad for one in weights], norms, optimizer.state_dict()))
    torch.testing.assert_close(runs[0], runs[1], rtol=3e-6, atol=1e-7)
    if not way.get("fused") or to_none:  # else what the fused step has written is written again
        assert in_one_graph(compiled)
        assert len(windfall.explanation(compiled).captures) <= 3


def test_what_a_user_changes_between_steps() -> None:
    """Groups, options, frozen and new parameters, state that is loaded: as eager sees them."""

    def trained(compile_step: Any) -> Any:
        weights, late = parameters(3), parameters(1)
        optimizer = torch.optim.Adam(weights[:2], lr=0.1)
        optimizer.add_param_group({"params": [weights[2]], "lr": 0.01, "weight_decay": 0.1})
        step = compile_step(optimizer.step)
        seen = []
        for index in range(8):
            if index == 3:
                optimizer.param_groups[0]["betas"] = (0.8, 0.99)
            if index == 4:
                weights[1].grad = None
            if index == 5:
                optimizer.add_param_group({"params": late, "maximize": True})
            if index == 6:
                optimizer.load_state_dict(optimizer.state_dict())
                weights[1].grad = torch.ones(4)
            step()
            steps = [optimizer.state[one]["step"].item() for one in weights]
            seen.append([steps, [one.detach().clone() for one in (*weights, *late)]])
        return seen, optimizer.state_dict()

    torch.testing.assert_close(trained(windfall.compile), trained(lambda step: step))


def test_an_error_in_a_closure_leaves_state_as_eager_does() -> None:
    def closure() -> float:
        raise KeyError("data")

    found = []
    for compile_step in (windfall.compile, lambda step: step):
        weights = parameters()
        optimizer = torch.optim.SGD(weights, lr=0.5, momentum=0.9)
        step = compile_step(optimizer.step)
        step()
        with pytest.raises(KeyError):
            step(closure)
        step(lambda: 2.5)
        found.append((weights, optimizer.state_dict(), torch.is_grad_enabled()))
    torch.testing.assert_close(found[0], found[1])
