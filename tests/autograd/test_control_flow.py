"""Higher-order functions of torch, captured with their bodies: what they answer, their gradients,
and how they ran. Each is held against the same program in plain Python, which eager runs."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as hop_map
from torch.utils.checkpoint import checkpoint

import windfall
from windfall.errors import BreakError, Unsupported
from windfall.ir.codec import decode, encode
from windfall.ir.graph_parse import parse_graph
from windfall.ir.graph_text import print_graph
from windfall.ir.stages import Joint

Function = Callable[..., Any]
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def tensors(*shapes: Sequence[int], grad: bool = True, seed: int = 0) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(one, generator=made).requires_grad_(grad) for one in shapes]


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [found for one in value for found in flat(one)] if isinstance(value, list | tuple) else []
    )


def ran_natively(function: Function, *args: Any, kind: str, **options: Any) -> Any:
    """Explain a call: one graph, all of it machine code."""
    explained = windfall.explain(function, **options)(*args)
    assert not explained.breaks and not explained.eager and not explained.fallbacks
    kinds = {one.kind for one in explained.kernels()}
    assert "python call" not in kinds
    if kind:
        assert any(one.name == kind for one in explained.kernels())
    return explained


def gradients(result: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What backward leaves in the inputs that need a gradient; zeros where nothing."""
    known = [one for one in flat(result) if one.requires_grad]
    wanted = [one for one in inputs if one.requires_grad]
    if not known or not wanted:
        return []
    tangents = [torch.linspace(0.5, 1.5, one.numel()).reshape(one.shape) for one in known]
    found = torch.autograd.grad(known, wanted, tangents, allow_unused=True)
    pairs = zip(found, wanted, strict=True)
    return [torch.zeros_like(one) if grad is None else grad for grad, one in pairs]


def same(function: Function, plain: Function, *calls: Sequence[Any], **options: Any) -> Any:
    """Compiled once, called with each of `calls`: values and gradients as of the plain program."""
    compiled = windfall.compile(function, fullgraph=True, **options)
    for args in calls:
        got, want = compiled(*args), plain(*args)
        torch.testing.assert_close(got, want)
        inputs = [one for one in args if isinstance(one, torch.Tensor)]
        found, expected = gradients(got, inputs), gradients(want, inputs)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    return compiled


def once(compiled: Any) -> bool:
    """Whether one entry has served all calls."""
    return len(windfall.cache_entries(compiled)) == 1


# ----------------------------------------------------------------------------------------- cond


def sine(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (x * w).sin()


def product(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return x @ v


def either(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, sine, product, (x, w, v)) * 2


def either_plain(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (sine(x, w, v) if x.sum() > 0 else product(x, w, v)) * 2


def signs(*shapes: Sequence[int]) -> list[list[torch.Tensor]]:
    """Arguments for one branch, then for the other, then for the first again."""
    x, *rest = tensors(*shapes)
    return [[(x.detach().abs() * sign).requires_grad_(), *rest] for sign in (1, -1, 1)]


def test_a_branch_is_native_and_one_entry_serves_both_ways() -> None:
    calls = signs((3, 3), (3, 3), (3, 3))
    explained = ran_natively(either, *calls[0], kind="branch")
    assert "branch(gt" in print_graph(explained.graphs[0].graph)
    assert once(same(either, either_plain, *calls))


def test_a_branch_without_gradients() -> None:
    calls = [[one.detach() for one in call] for call in signs((3, 3), (3, 3), (3, 3))]
    ran_natively(either, *calls[0], kind="branch")
    assert once(same(either, either_plain, *calls))
    with torch.no_grad():
        assert not windfall.compile(either)(*signs((3, 3), (3, 3), (3, 3))[0]).requires_grad


def test_parameters_that_one_branch_closes_over_get_zeros_from_the_other() -> None:
    """As eager has it: an operand of the operation has a gradient, whichever branch ran."""
    x, w, v = tensors((3,), (3,), (3,))

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * w, lambda x: x * v, (x,))

    compiled = windfall.compile(f, fullgraph=True)
    for sign, used, unused in ((1, w, v), (-1, v, w)):
        given = x.detach().abs() * sign
        compiled(given).sum().backward()
        torch.testing.assert_close(used.grad, given)
        assert torch.equal(unused.grad, torch.zeros(3))
        w.grad = v.grad = None


def test_a_result_needs_a_gradient_where_an_operand_does() -> None:
    (x,) = tensors((3,))

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.detach() + 1, lambda x: x.detach() * 2, (x,))

    found = windfall.compile(f, fullgraph=True)(x)
    assert found.requires_grad
    found.sum().backward()
    assert torch.equal(x.grad, torch.zeros(3))


class Gate(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.yes = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
        )
        self.no = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.plain = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flag = x.mean() > 0
        if self.plain:
            return self.norm(self.yes(x) if flag else self.no(x))
        return self.norm(torch.cond(flag, self.yes, lambda x: self.no(x), (x,)))


def test_a_module_with_branches_of_modules() -> None:
    torch.manual_seed(0)
    model = Gate()
    compiled = windfall.compile(model, fullgraph=True)
    ran_natively(model, torch.randn(2, 4), kind="branch")
    for sign in (1, -1):
        x = torch.randn(2, 4).abs() * sign
        model.plain = True
        want = model(x)
        want.sum().backward()
        expected = {name: one.grad for name, one in model.named_parameters()}
        model.zero_grad()
        model.plain = False
        got = compiled(x)
        got.sum().backward()
        torch.testing.assert_close(got, want)
        for name, one in model.named_parameters():
            wanted = expected[name]
            torch.testing.assert_close(
                one.grad, torch.zeros_like(one) if wanted is None else wanted
            )
        model.zero_grad()


def test_branches_in_branches() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def outer(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.max() > 1, lambda x: x * w + w.sum(), lambda x: x.exp() * v, (x,))

        return torch.cond(x.sum() > 0, outer, lambda x: x @ v, (x,)) * 2

    def plain(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return 2 * (x * w + w.sum() if x.max() > 1 else x.exp() * v)
        return (x @ v) * 2

    calls = [[(call[0].detach() * scale).requires_grad_(), *call[1:]] for scale in (1, 0.1)
             for call in signs((3, 3), (3, 3), (3, 3))]  # fmt: skip
    ran_natively(f, *calls[0], kind="branch")
    assert once(same(f, plain, *calls))


def test_a_branch_of_sizes_that_vary() -> None:
    calls = [call for size in (3, 5, 8) for call in signs((size, size), (size, size), (size, size))]
    explained = ran_natively(either, *calls[0], kind="branch", dynamic=True)
    assert "(s0,)" in print_graph(explained.graphs[0].graph) or "s0" in str(explained)
    assert once(same(either, either_plain, *calls, dynamic=True))


def test_results_in_containers_and_of_integers() -> None:
    def f(x: torch.Tensor) -> Any:
        def yes(x: torch.Tensor) -> Any:
            return {"a": x + 1, "b": [x.argmax(), (x * 2,)], "n": 3}

        def no(x: torch.Tensor) -> Any:
            return {"a": x - 1, "b": [x.argmin(), (x * 3,)], "n": 3}

        return torch.cond(x.sum() > 0, yes, no, (x,))

    for sign in (1, -1):
        (x,) = tensors((4,))
        x = (x.detach().abs() * sign).requires_grad_()
        found = windfall.compile(f, fullgraph=True)(x)
        assert list(found) == ["a", "b", "n"] and found["n"] == 3 and type(found["b"]) is list
        torch.testing.assert_close(found["a"], x + sign)
        assert found["b"][0] == (x.argmax() if sign > 0 else x.argmin())
        assert not found["b"][0].requires_grad and found["a"].requires_grad
        (only,) = torch.autograd.grad(found["b"][1][0].sum(), x)
        assert torch.equal(only, torch.full((4,), 2.0 if sign > 0 else 3.0))


@pytest.mark.parametrize("flag", [True, False, 1, 0.0])
def test_a_flag_of_python_chooses_at_once(flag: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x, lambda x: x + 1, (x,))

    (x,) = tensors((3,))
    found = windfall.compile(f, fullgraph=True)(x)
    assert found is x if flag else torch.equal(found, x + 1)
    assert not any(one.name == "branch" for one in windfall.explain(f)(x).kernels())


@pytest.mark.parametrize(
    "flag", [torch.tensor([[2.5]]), torch.tensor(0), torch.tensor([float("nan")])]
)
def test_a_flag_is_any_one_number(flag: torch.Tensor) -> None:
    def f(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x * 2, lambda x: x + 1, (x,))

    (x,) = tensors((3,))
    ran_natively(f, flag, x, kind="branch")
    torch.testing.assert_close(windfall.compile(f)(flag, x), x * 2 if bool(flag) else x + 1)


def test_random_numbers_are_drawn_by_the_branch_that_runs() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        def yes(x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(x, 0.5) * 2

        return torch.cond(x.sum() > 0, yes, lambda x: x * 3, (x,))

    compiled = windfall.compile(f, fullgraph=True)
    for sign in (1, -1):
        x = (torch.rand(64) * sign).requires_grad_()
        torch.manual_seed(3)
        found = compiled(x)
        after = torch.rand(2)
        torch.manual_seed(3)
        want = torch.nn.functional.dropout(x, 0.5) * 2 if sign > 0 else x * 3
        assert torch.equal(found, want) and torch.equal(after, torch.rand(2))
        torch.testing.assert_close(gradients(found, [x]), gradients(want, [x]))


def test_views_and_writes_of_own_tensors_inside() -> None:
    def yes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.t() * 2
        y[0].add_(w[:, 0])
        y[1:] = w[1:]
        return y.t().clone()

    def no(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = w.norm()
        return x.expand(2, 3, 3).sum(0) * scale

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, yes, no, (x, w)) + 1

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (yes(x, w) if x.sum() > 0 else no(x, w)) + 1

    calls = signs((3, 3), (3, 3))
    ran_natively(f, *calls[0], kind="branch")
    same(f, plain, *calls)


def test_operands_that_lie_otherwise() -> None:
    """Slices, expanded and transposed tensors, of the user's and computed."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b, c = x[:, 1:], w.t()[1:], (x * 2)[:, ::2]
        d = w.sum().expand(4, 3)

        def yes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a * b.t()[:, :3] + c.sum() + d

        return torch.cond(x.sum() > 0, yes, lambda a, b: a + b.sum() - d * c[:, :1], (a, b))

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b, c = x[:, 1:], w.t()[1:], (x * 2)[:, ::2]
        d = w.sum().expand(4, 3)
        if x.sum() > 0:
            return a * b.t()[:, :3] + c.sum() + d
        return a + b.sum() - d * c[:, :1]

    calls = signs((4, 4), (4, 4))
    ran_natively(f, *calls[0], kind="branch")
    same(f, plain, *calls)


def test_ops_that_only_python_calls_run_op_by_op_inside() -> None:
    def yes(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).abs() * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, yes, lambda x: x.sum(0).abs(), (x,))

    def plain(x: torch.Tensor) -> torch.Tensor:
        return yes(x) if x.sum() > 0 else x.sum(0).abs()

    same(f, plain, *signs((3, 3)))


def test_a_graph_that_runs_op_by_op() -> None:
    """The eager backend, and the same gradients."""
    same(either, either_plain, *signs((3, 3), (3, 3), (3, 3)), backend="eager")
    calls = [call for size in (3, 5) for call in signs((size, size), (size, size), (size, size))]
    same(either, either_plain, *calls, backend="eager", dynamic=True)


def test_second_derivatives() -> None:
    def yes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w).exp() @ w  # which saves what is no operand

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, yes, lambda x, w: (x - w).exp(), (x, w))

    for sign in (1, -1):
        x, w = tensors((4, 4), (4, 4))
        x = (x.detach().abs() * sign).requires_grad_()
        want = yes(x, w) if sign > 0 else (x - w).exp()
        found = []
        for result in (windfall.compile(f, fullgraph=True)(x, w), want):
            first = torch.autograd.grad(result.sum(), [x, w], create_graph=True)
            found.append(torch.autograd.grad(sum(one.square().sum() for one in first), [x, w]))
        torch.testing.assert_close(*found)


def test_a_branch_inside_of_a_checkpoint() -> None:
    w = tensors((4, 4))[0]

    def inside(x: torch.Tensor) -> torch.Tensor:
        def yes(x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ w).exp()

        return torch.cond(x.sum() > 0, yes, lambda x: (x * w).sin(), (x,)).relu()

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inside, x, use_reentrant=False).cos()

    def plain(x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ w).exp() if x.sum() > 0 else (x * w).sin()).relu().cos()

    calls = signs((4, 4))
    ran_natively(f, *calls[0], kind="branch")
    same(f, plain, *calls)


def test_branches_in_equal_layers() -> None:
    """Blocks that repeat themselves have bodies of their own; others are not taken for equal."""

    def layer(x: torch.Tensor, w: torch.Tensor, k: float, chosen: Function) -> torch.Tensor:
        h = torch.relu(x @ w).softmax(-1)
        y = chosen(x.sum() > 0, lambda h: (h @ w) * k, lambda h: h.sin() + k, (h,))
        return x + torch.tanh(y) * 0.1 + h.mean()

    def stack(chosen: Function, factors: Sequence[float], x: Any, w: Any) -> torch.Tensor:
        for one in factors:
            x = layer(x, w, one, chosen)
        return x

    def choose(flag: Any, yes: Function, no: Function, operands: Any) -> Any:
        return (yes if flag else no)(*operands)

    for factors in ([2.0] * 12, [1 + one / 7 for one in range(12)]):
        same(
            functools.partial(stack, torch.cond, factors),
            functools.partial(stack, choose, factors),
            *signs((8, 8), (8, 8)),
        )


def test_whole_passes_that_are_recorded_go_both_ways() -> None:
    """A backward pass that was recorded while one branch ran must not be taken for both."""
    w = tensors((4, 4))[0]

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.tanh(x @ w), lambda x: x * w, (x,)).sum()

    with windfall.compiled_autograd():
        compiled = windfall.compile(f, fullgraph=True)
        for sign in (1, 1, 1, -1, -1, 1):
            x = torch.rand(4, 4).mul_(sign).requires_grad_()
            w.grad = None
            compiled(x).backward()
            found = [x.grad, w.grad]
            want = (torch.tanh(x @ w) if sign > 0 else x * w).sum()
            torch.testing.assert_close(found, list(torch.autograd.grad(want, [x, w])))


def test_text_and_bytes_carry_the_bodies() -> None:
    calls = signs((3, 3), (3, 3), (3, 3))
    for dynamic in (False, True):
        explained = windfall.explain(either, dynamic=dynamic)(*calls[0])
        joints = [event.record for event in explained.events if isinstance(event.record, Joint)]
        graphs = [explained.graphs[0].graph, *(one.graph for one in joints)]
        assert len(graphs) > 1
        for graph in graphs:
            text = print_graph(graph)
            assert "true: graph(" in text and "sin" in text and "false: graph(" in text
            assert print_graph(parse_graph(text)) == text
            again = decode(encode(graph))
            assert print_graph(again) == text and encode(again) == encode(graph)


# ------------------------------------------------------------------------------------ scan and map


def plain_scan(
    combine: Function, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """`scan` as a loop."""
    leaves, spec = pytree.tree_flatten(xs)
    dim %= leaves[0].dim()
    count = leaves[0].shape[dim]
    carried, made = init, []
    for index in reversed(range(count)) if reverse else range(count):
        slices = pytree.tree_unflatten([one.select(dim, index) for one in leaves], spec)
        carried, one = combine(carried, slices)
        made.append(one)
    if reverse:
        made.reverse()
    return carried, pytree.tree_map(
        lambda *parts: torch.stack(parts).movedim(0, min(dim, parts[0].dim())), *made
    )


def plain_map(function: Function, xs: Any, *args: Any) -> Any:
    return plain_scan(lambda carried, x: (carried, function(x, *args)), (), xs)[1]


def recurrent(c: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, Any]:
    # Scaled, so that a rounding dies away: unscaled, a hundred steps make 3e-5 of the last bit.
    following = torch.tanh((0.3 * c) @ w + x)
    return following, following * x + c.sum()


SCANS: dict[str, tuple[Function, list[Sequence[int]]]] = {
    "recurrent": (
        lambda scan, x, c, w: scan(lambda c, x: recurrent(c, x, w), c, x),
        [(100, 2, 4), (2, 4), (4, 4)],
    ),
    "backward": (
        lambda scan, x, c, w: scan(lambda c, x: recurrent(c, x, w), c, x, reverse=True),
        [(7, 2, 4), (2, 4), (4, 4)],
    ),
    "second dimension": (
        lambda scan, x, c, w: scan(lambda c, x: recurrent(c, x, w), c, x, dim=1),
        [(2, 9, 4), (2, 4), (4, 4)],
    ),
    "last dimension, backward": (
        lambda scan, x, c: scan(lambda c, x: (c * x, c + x), c, x, dim=-1, reverse=True),
        [(2, 3, 5), (2, 3)],
    ),
    "trees": (
        lambda scan, x, y, c: scan(
            lambda c, x: (
                {"a": c["a"] * x[0].sum(), "b": (c["b"][0] + x[1],)},
                [c["a"] * 2, {"sum": x[0] + c["b"][0].sum()}],
            ),
            {"a": c.sum(), "b": (c * 2,)},
            (x, y),
        ),
        [(5, 3), (5, 4), (4,)],
    ),
    "a count is carried": (
        lambda scan, x: scan(
            lambda c, x: ((c[0] + 1, c[1] * 0.5 + x), c[1] * c[0]),
            (torch.zeros((), dtype=torch.int64), torch.zeros(3)),
            x,
        ),
        [(6, 3)],
    ),
    "slices that lie apart": (
        lambda scan, x, c: scan(lambda c, x: (c + x.sum(), x * c), c, x.t()[:, 1:]),
        [(4, 6), ()],
    ),
    "what is carried is expanded": (
        lambda scan, x, c: scan(lambda c, x: (c * x, c.sum(0)), c.expand(3, 4), x),
        [(5, 3, 4), (4,)],
    ),
    "nothing is read of slices": (
        lambda scan, x, c: scan(lambda c, x: (c * 2, torch.ones(2)), c, x),
        [(5, 3), (4,)],
    ),
    "an integer is scanned": (
        lambda scan, x, w: scan(
            lambda c, i: (c + w.index_select(0, i).sum(0), w.index_select(0, i) * c),
            w[0] * 0,
            torch.arange(4).view(4, 1) + 0 * x.argmax(),
        ),
        [(4,), (4, 3)],
    ),
    "a branch inside": (
        lambda scan, x, c, w: scan(
            lambda c, x: (
                torch.cond(x.sum() > 0, lambda c: c @ w + x, lambda c: c * x, (c,)),
                c.exp(),
            ),
            c,
            x,
        ),
        [(6, 2, 4), (2, 4), (4, 4)],
    ),
    "a scan inside": (
        lambda scan, x, c, w: scan(
            lambda c, x: (scan(lambda d, y: (d * y.cos() + w, d + y), c, x)[0], c + x.sum(0)), c, x
        ),
        [(3, 5, 4), (4,), (4,)],
    ),
    "not all is trained": (
        lambda scan, x, c, w: scan(lambda c, x: (c * x.detach() + 1, x * w), c.detach(), x),
        [(6, 4), (4,), (4,)],
    ),
}


def as_python(function: Function) -> Function:
    """The program with loops and `if` in place of torch's operations."""

    def run(*args: Any) -> Any:
        kept = torch.cond
        torch.cond = lambda flag, yes, no, operands: (yes if flag else no)(*operands)
        try:
            return function(plain_scan, *args)
        finally:
            torch.cond = kept

    return run


@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str) -> None:
    function, shapes = SCANS[name]
    args = tensors(*shapes)
    compiled = functools.partial(function, scan)
    ran_natively(compiled, *args, kind="scan")
    same(compiled, as_python(function), args, tensors(*shapes, seed=1))
    with torch.no_grad():
        torch.testing.assert_close(windfall.compile(compiled)(*args), as_python(function)(*args))


@pytest.mark.parametrize("name", SCANS)
def test_scans_op_by_op(name: str) -> None:
    function, shapes = SCANS[name]
    compiled = functools.partial(function, scan)
    same(compiled, as_python(function), tensors(*shapes), backend="eager")


def test_a_scan_of_lengths_that_vary() -> None:
    function, _ = SCANS["recurrent"]
    calls = [tensors((n, m, 4), (m, 4), (4, 4)) for n, m in ((5, 2), (9, 3), (30, 6))]
    compiled = functools.partial(function, scan)
    ran_natively(compiled, *calls[0], kind="scan", dynamic=True)
    assert once(same(compiled, as_python(function), *calls, dynamic=True))


def test_dropout_in_a_scan_draws_once() -> None:
    def f(loop: Function, x: torch.Tensor, c: torch.Tensor) -> Any:
        def body(c: torch.Tensor, x: torch.Tensor) -> Any:
            dropped = torch.nn.functional.dropout(c, 0.5) + x
            return dropped, dropped * 2

        return loop(body, c, x)

    x, c = tensors((8, 64), (64,))
    found = []
    for loop, compile in ((scan, windfall.compile), (plain_scan, lambda one: one)):
        torch.manual_seed(5)
        result = compile(functools.partial(f, loop))(x, c)
        found.append([*result, *gradients(result, [x, c]), torch.rand(2)])
    torch.testing.assert_close(*found)


class Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(3, 5)
        self.out = torch.nn.Linear(5, 2)
        self.loop = scan

    def forward(self, x: torch.Tensor) -> Any:
        def step(state: torch.Tensor, x: torch.Tensor) -> Any:
            following = self.cell(x, state)
            return following, self.out(following)

        return self.loop(step, x.new_zeros(x.shape[1], 5), x)


def test_a_module_that_scans() -> None:
    torch.manual_seed(0)
    model = Cell()
    (x,) = tensors((6, 2, 3))
    inputs = [x, *model.parameters()]
    ran_natively(model, x, kind="scan")
    got = windfall.compile(model, fullgraph=True)(x)
    found = gradients(got, inputs)
    model.loop = plain_scan
    want = model(x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(found, gradients(want, inputs))


MAPS: dict[str, tuple[Function, list[Sequence[int]]]] = {
    "weights": (
        lambda map, x, w: map(lambda x, k: (x @ w).relu() * k, x, w[0]),
        [(10, 2, 4), (4, 4)],
    ),
    "trees": (
        lambda map, x, y: map(lambda x: {"a": x[0] * x[1], "b": (x[0].sum(),)}, (x, y)),
        [(5, 3), (5, 1)],
    ),
    "numbers": (lambda map, x, w: map(lambda x, n, w: x * n + w, x, 3, w), [(5, 3), (3,)]),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps(name: str) -> None:
    function, shapes = MAPS[name]
    compiled = functools.partial(function, hop_map)
    args = tensors(*shapes)
    ran_natively(compiled, *args, kind="scan")
    same(compiled, functools.partial(function, plain_map), args)


@pytest.mark.parametrize(
    "body",
    [
        lambda c, x: (c, x * 2),
        lambda c, x: (c + x, x),
        lambda c, x: (c.double(), x * 2),
        lambda c, x: (c[:1] * 2, x * 2),
        lambda c, x: ((c * 2,), x * 2),
        lambda c, x: (c.mul_(2) + x, x * 2),
        lambda c, x: (c + x.mul_(2), x + 1),
        lambda c, x: c * 2,
    ],
)
def test_bodies_of_scans_that_break(body: Function) -> None:
    with pytest.raises(BreakError) as raised:
        windfall.compile(lambda c, x: scan(body, c, x), fullgraph=True)(
            torch.ones(3), torch.ones(4, 3)
        )
    assert raised.value.number == 49


def plain_associative(
    combine: Function, xs: Any, dim: int, reverse: bool = False, **mode: Any
) -> Any:
    """`associative_scan` as a loop."""
    leaves, spec = pytree.tree_flatten(xs)
    dim %= leaves[0].dim()
    order = range(leaves[0].shape[dim])
    carried, made = None, []
    for index in reversed(order) if reverse else order:
        slices = pytree.tree_unflatten([one.select(dim, index) for one in leaves], spec)
        carried = slices if carried is None else combine(carried, slices)
        made.append(carried)
    if reverse:
        made.reverse()
    return pytree.tree_map(lambda *parts: torch.stack(parts, dim), *made)


ASSOCIATIVE: dict[str, tuple[Function, list[Sequence[int]]]] = {
    "sums": (lambda scan, x: scan(lambda a, b: a + b, x, 0, combine_mode="generic"), [(9, 3)]),
    "products of matrices": (
        lambda scan, x: scan(lambda a, b: a @ b, x, 1, combine_mode="generic"),
        [(3, 5, 3, 3)],
    ),
    "backward": (
        lambda scan, x: scan(lambda a, b: a * 2 + b, x, -1, reverse=True, combine_mode="generic"),
        [(2, 4)],
    ),
    "linear recurrences": (
        lambda scan, x, y, w: scan(
            lambda a, b: (a[0] * b[0], b[1] * w + b[0] * a[1]), (x, y), 0, combine_mode="generic"
        ),
        [(12, 4), (12, 4), (4,)],
    ),
}


@pytest.mark.parametrize("name", ASSOCIATIVE)
def test_associative_scans(name: str) -> None:
    function, shapes = ASSOCIATIVE[name]
    compiled = functools.partial(function, associative_scan)
    args = tensors(*shapes)
    ran_natively(compiled, *args, kind="scan")
    same(compiled, functools.partial(function, plain_associative), args, tensors(*shapes, seed=1))


# Every scan, map and associative scan, with the loop that it stands for.
REPEATED = {
    **{f"scan: {name}": (row, scan, plain_scan) for name, row in SCANS.items()},
    **{f"map: {name}": (row, hop_map, plain_map) for name, row in MAPS.items()},
    **{
        f"associative: {name}": (row, associative_scan, plain_associative)
        for name, row in ASSOCIATIVE.items()
    },
}


@pytest.fixture
def doubles() -> Iterator[None]:
    """New tensors are of float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("name", REPEATED)
def test_gradients_of_gradients(name: str) -> None:
    """All slices as operations: the loop's own. (Eager answers something else for `scan`, in
    silence.) Bodies with bodies inside are refused when it is asked."""
    (function, shapes), operation, plain = REPEATED[name]

    def asked(function: Function) -> Any:
        args = [one.detach().double().requires_grad_() for one in tensors(*shapes)]
        leaves = pytree.tree_leaves(function(*args))
        made = [one for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
        loss = torch.stack([one.sin().sum() for one in made]).sum()
        first = torch.autograd.grad(loss, args, create_graph=True, allow_unused=True)
        known = [one for one in first if one is not None and one.requires_grad]
        total = torch.stack([(one * one.detach().cos()).sum() for one in known]).sum()
        second = torch.autograd.grad(total, args, allow_unused=True)
        return [torch.zeros(()) if one is None else one.detach() for one in (*first, *second)]

    def as_zeros(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(other) if one.dim() == 0 and not one.any() else one

    compiled = windfall.compile(functools.partial(function, operation))
    if name.endswith(" inside"):
        with pytest.raises(Unsupported, match=r"W0215.*with bodies"):
            asked(compiled)
        return
    found, wanted = asked(compiled), asked(functools.partial(function, plain))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(as_zeros(one, other), as_zeros(other, one))
    assert not windfall.explanation(compiled).eager


def test_gradients_of_gradients_of_a_scan_that_draws_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return hop_map(lambda one: torch.nn.functional.dropout(one, 0.5) * one, x)

    (x,) = tensors((4, 3))
    with pytest.raises(Unsupported, match=r"W021[45].*(random|bernoulli)"):
        torch.autograd.grad(windfall.compile(f)(x).sum(), x, create_graph=True)


def test_an_associative_scan_is_eagers() -> None:
    function, shapes = ASSOCIATIVE["sums"]
    (x,) = tensors(*shapes, grad=False)
    compiled = windfall.compile(functools.partial(function, associative_scan), fullgraph=True)
    torch.testing.assert_close(compiled(x), x.cumsum(0))
    by_default = windfall.compile(lambda x: associative_scan(torch.add, x, 0), fullgraph=True)
    if TORCH >= (2, 14):  # before, torch took its default mode on other devices only
        torch.testing.assert_close(by_default(x), x.cumsum(0))
    else:
        with pytest.raises((BreakError, ValueError)):
            by_default(x)


# --------------------------------------------------------------------------- nested_compile_region


@torch.compiler.nested_compile_region
def region(x: torch.Tensor, w: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return torch.tanh(x @ w) * scale


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu() + x


def test_marked_regions_are_called() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return region(region(x, w), w, scale=0.5)

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh((torch.tanh(x @ w) * 2) @ w) * 0.5

    args = tensors((3, 4), (4, 4))
    ran_natively(f, *args, kind="gemm")
    same(f, plain, args)
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block())
    ran_natively(model, args[0], kind="gemm")
    inputs = [args[0], *model.parameters()]
    got, want = windfall.compile(model, fullgraph=True)(args[0]), model(args[0])
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(gradients(got, inputs), gradients(want, inputs))


# ------------------------------------------------------------------------------------ while_loop


def plain_while(condition: Function, body: Function, carried: Any) -> Any:
    carried = pytree.tree_map(torch.clone, tuple(carried))
    while condition(*carried):
        carried = tuple(body(*carried))
    return carried


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


LOOPS: dict[str, tuple[Function, list[Sequence[int]]]] = {
    "until it is large": (
        lambda loop, x, w: loop(
            lambda i, y: (i < 7) & (y.norm() < 20),
            lambda i, y: (i + 1, torch.tanh(y @ w) + y),
            (zero(), x),
        ),
        [(3, 4), (4, 4)],
    ),
    "no round": (
        lambda loop, x, w: loop(lambda y: y.sum() > 1e9, lambda y: (y * w,), (x,)),
        [(3, 4), (4,)],
    ),
    "a branch inside": (
        lambda loop, x, w: loop(
            lambda i, y: i < 5,
            lambda i, y: (
                i + 1,
                torch.cond(y.sum() > 0, lambda y: y * w - 1, lambda y: y.cos() + w, (y,)),
            ),
            (zero(), x),
        ),
        [(3, 4), (4,)],
    ),
    "a loop inside": (
        lambda loop, x, w: loop(
            lambda i, y: i < 3,
            lambda i, y: (
                i + 1,
                loop(lambda j, z: j < 2 + i, lambda j, z: (j + 1, z * w + 1), (zero(), y))[1],
            ),
            (zero(), x),
        ),
        [(3, 4), (4,)],
    ),
    "trees": (
        lambda loop, x, w: loop(
            lambda i, held: i < 4,
            lambda i, held: (i + 1, {"a": held["a"] + held["b"][0], "b": [held["b"][0] * w]}),
            (zero(), {"a": x, "b": [w.expand(3, 4)]}),
        )[1]["a"],
        [(3, 4), (4,)],
    ),
}


def as_python_loop(function: Function) -> Function:
    return lambda *args: as_python(lambda scan, *args: function(plain_while, *args))(*args)


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    function, shapes = LOOPS[name]
    compiled = functools.partial(function, while_loop)
    with torch.no_grad():
        calls = [tensors(*shapes, seed=seed) for seed in (0, 1, 2)]
        ran_natively(compiled, *calls[0], kind="while_loop")
        assert once(same(compiled, as_python_loop(function), *calls))


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("backend", ["windfall", "eager"])
def test_loops_are_trained(name: str, backend: str) -> None:
    """The other direction runs from Python, and is told as such."""
    function, shapes = LOOPS[name]
    compiled = functools.partial(function, while_loop)
    calls = [tensors(*shapes, seed=seed) for seed in (0, 1)]
    found = same(compiled, as_python_loop(function), *calls, backend=backend)
    kernels = {one.name: one.kind for one in windfall.explanation(found).kernels()}
    assert backend == "eager" or kernels["windfall.unwind"] == "python call"


def test_a_loop_of_sizes_that_vary() -> None:
    function, _ = LOOPS["until it is large"]
    compiled = functools.partial(function, while_loop)
    with torch.no_grad():
        calls = [tensors((n, 4), (4, 4)) for n in (3, 5, 9)]
        ran_natively(compiled, *calls[0], kind="while_loop", dynamic=True)
        assert once(same(compiled, as_python_loop(function), *calls, dynamic=True))
    calls = [tensors((n, 4), (4, 4)) for n in (3, 5, 9)]
    assert once(same(compiled, as_python_loop(function), *calls, dynamic=True))


def test_a_trained_loop_that_draws_runs_op_by_op() -> None:
    """Doing a body again would draw other numbers."""

    def f(loop: Function, x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, torch.nn.functional.dropout(y, 0.5) * 2

        return loop(lambda i, y: i < 3, body, (zero(), x))

    (x,) = tensors((64,))
    found = []
    for loop, compile in ((while_loop, windfall.compile), (plain_while, lambda one: one)):
        torch.manual_seed(5)
        result = compile(functools.partial(f, loop))(x)
        found.append([*result, *gradients(result, [x]), torch.rand(2)])
    torch.testing.assert_close(*found)
    explained = windfall.explain(functools.partial(f, while_loop))(x)
    assert explained.eager == {"a graph, op by op": 1} and "W0215" in explained.fallbacks[0]


@pytest.mark.parametrize(
    ("condition", "body"),
    [
        (lambda i, y: i, lambda i, y: (i + 1, y * 2)),
        (lambda i, y: True, lambda i, y: (i + 1, y * 2)),
        (lambda i, y: i < 3, lambda i, y: (i + 1, y)),
        (lambda i, y: i < 3, lambda i, y: (i + 1, y.double())),
        (lambda i, y: i < 3, lambda i, y: (i + 1, y.mul_(2) + 1)),
        (lambda i, y: i < 3, lambda i, y: (i + 1,)),
    ],
)
def test_loops_that_break(condition: Function, body: Function) -> None:
    def f(y: torch.Tensor) -> Any:
        return while_loop(condition, body, (zero(), y))

    with pytest.raises(BreakError) as raised:
        windfall.compile(f, fullgraph=True)(torch.ones(3))
    assert raised.value.number == 49


# ----------------------------------------------------------------------------- what is refused

HELD: list[int] = []


def _appends_outside(x: torch.Tensor) -> torch.Tensor:
    HELD.append(1)
    return x * 2


def cond(yes: Function) -> Function:
    return lambda x: torch.cond(x.sum() > 0, yes, lambda x: x * 3, (x,))


def local_list(x: torch.Tensor) -> torch.Tensor:
    seen: list[int] = []

    def yes(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x * 2

    return torch.cond(x.sum() > 0, yes, lambda x: x * 3, (x,)) + len(seen)


def local_object(x: torch.Tensor) -> torch.Tensor:
    held = {"n": 1}

    def yes(x: torch.Tensor) -> torch.Tensor:
        held["n"] += 1
        return x * 2

    return torch.cond(x.sum() > 0, yes, lambda x: x * 3, (x,)) + held["n"]


def closure(x: torch.Tensor) -> torch.Tensor:
    count = 0

    def yes(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * 2

    return torch.cond(x.sum() > 0, yes, lambda x: x * 3, (x,)) + count


def iterator(x: torch.Tensor) -> torch.Tensor:
    numbers = iter([1, 2, 3])
    y = torch.cond(x.sum() > 0, lambda x: x * next(numbers), lambda x: x * 3, (x,))
    return y + next(numbers)


def generator(x: torch.Tensor) -> torch.Tensor:
    numbers = (one for one in [1, 2, 3])
    y = torch.cond(x.sum() > 0, lambda x: x * next(numbers), lambda x: x * 3, (x,))
    return y + next(numbers)


def leaves_the_mode(x: torch.Tensor) -> torch.Tensor:
    torch._C._set_grad_enabled(False)
    return x * 2


def written_twice(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.add_(1)
    return torch.cond(x.sum() > 0, lambda x: y.add_(1) * 2, lambda x: x * 3, (x,)) + y


def same_twice(x: torch.Tensor) -> Any:
    def yes(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y

    return torch.cond(x.sum() > 0, yes, lambda x: (x * 3, x * 4), (x,))


REFUSED: dict[str, Function] = {
    "list from outside": cond(_appends_outside),
    "list of the function": local_list,
    "dict of the function": local_object,
    "nonlocal": closure,
    "iterator": iterator,
    "generator": generator,
    "mode": cond(leaves_the_mode),
    "returns its operand": cond(lambda x: x),
    "returns a view": cond(lambda x: x.view(-1)),
    "writes its operand": cond(lambda x: x.mul_(2)),
    "writes a tensor of the function": written_twice,
    "reads data": cond(lambda x: x * x[x > 0].numel()),
    "another dtype": cond(lambda x: x.double()),
    "another size": cond(lambda x: x[1:] * 2),
    "another structure": cond(lambda x: (x * 2,)),
    "the same twice": same_twice,
    "no tensor": cond(lambda x: "text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bodies_that_do_more_than_compute_break(name: str) -> None:
    """Silence would be wrong: what they did would be done by both branches, or by none."""
    function = REFUSED[name]
    with pytest.raises(BreakError) as raised:
        windfall.compile(function, fullgraph=True)(torch.ones(3))
    assert raised.value.number in (49, 33), raised.value


def test_bodies_may_use_lists_and_loops_of_their_own() -> None:
    def yes(x: torch.Tensor) -> torch.Tensor:
        parts = []
        for index in range(3):
            parts.append(x * index)
        held = {"sum": sum(parts)}
        held["sum"] = held["sum"] + 1
        return held["sum"]

    def f(x: torch.Tensor) -> torch.Tensor:
        names = ["a", "b"]
        return torch.cond(x.sum() > 0, yes, lambda x: x * len(names), (x,))

    ran_natively(f, torch.ones(3), kind="branch")
    same(f, lambda x: yes(x) if x.sum() > 0 else x * 2, *signs((3,)))


# ------------------------------------------------------------------------------- independence


def test_torchs_own_compiler_is_not_loaded() -> None:
    program = """
        import sys, torch, windfall
        from torch._higher_order_ops import map, scan, while_loop
        w = torch.randn(3, requires_grad=True)

        @windfall.compile(fullgraph=True)
        def f(x):
            return torch.cond(x.sum() > 0, lambda x: x * w, lambda x: x - w, (x,))

        @windfall.compile(fullgraph=True)
        def g(x):
            carried, parts = scan(lambda c, x: (c * x + w, c * 2), w, x)
            total = carried + map(lambda x: x * w, parts).sum(0)
            return while_loop(lambda x: x.sum() < 9, lambda x: (x * w.abs() + 3,), (total,))[0]

        for sign in (1, -1):
            f(torch.ones(3) * sign).sum().backward()
            g(torch.ones(4, 3) * sign).sum().backward()
        assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_globals_of_functions_are_not_walked() -> None:
    """Data that hold themselves, beside a function whose bodies are compared before and behind."""
    world: dict[str, Any] = {"torch": torch}
    world["cycle"] = {"self": world, "list": [world]}
    text = (
        "def f(x):\n"
        "    def double(x):\n"
        "        return x * 2\n"
        "    return torch.cond(x.sum() > 0, lambda x: double(x), lambda x: x - 1, (x,))\n"
    )
    exec(text, world)
    compiled = windfall.compile(world["f"])
    for sign in (1.0, -1.0):
        x = torch.full((3,), sign)
        assert compiled(x).equal(x * 2 if sign > 0 else x - 1)
    told = windfall.explanation(compiled).to_dict()
    assert (told["graph_count"], told["break_count"], told["fallbacks"]) == (1, 0, [])
