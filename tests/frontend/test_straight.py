"""Straight-line tensor code: constants, containers, closures, calls, branches, modules."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.frontend.driver import EagerCompiled, compile_eager, same

SCALE = 2.0


def check(function: Any, *arguments: Any, graphs: int = 1, **keywords: Any) -> EagerCompiled:
    """The compiled function equals eager, twice, with this many graphs and no fallback."""
    compiled = compile_eager(function)
    for _ in range(2):
        actual = compiled(*arguments, **keywords)
        assert same(actual, function(*arguments, **keywords))
    assert len(compiled.graphs) == graphs, [one.stopped for one in compiled.captures]
    assert compiled.log.snapshot("fallback") == ()
    return compiled


def whole(function: Any, *arguments: Any, **keywords: Any) -> EagerCompiled:
    """As `check`, and in one piece."""
    compiled = check(function, *arguments, **keywords)
    assert compiled.breaks == []
    assert len(compiled.captures) == 1
    return compiled


def x() -> torch.Tensor:
    return torch.randn(3, 4)


def test_pointwise_and_reduction() -> None:
    compiled = whole(lambda a, b: F.gelu(a * b + 1).sum(-1), x(), x())
    assert compiled.segments[0].direct is not None
    (graph,) = compiled.graphs
    assert [one.name for one in graph.inputs] == ["l_a", "l_b"]


def test_operators() -> None:
    def f(a: Any, b: Any) -> Any:
        return -a + b - a * b / (b.abs() + 1) // 2 % 3 + (a @ b.T).sum() + 2**a

    whole(f, x(), x())


def test_comparison_and_logic() -> None:
    whole(lambda a, b: torch.where((a < b) & ~(a == b), a, 0.0), x(), x())


def test_constants_globals_and_numbers() -> None:
    whole(lambda a, n: a * SCALE + n * 3 - 1.5, x(), 4)


def test_tuples_lists_dicts() -> None:
    def f(a: Any, b: Any) -> Any:
        pair = (a + 1, b + 2)
        items = [*pair, a]
        table = {"x": items[0], "y": items[-1]}
        return table["x"] * table["y"], items[1]

    whole(f, x(), x())


def test_structured_results() -> None:
    whole(lambda a: {"a": [a + 1, (a * 2, 3)], "b": None}, x())
    whole(lambda a: [a + 1, a + 2], x())
    whole(lambda a: a.max(dim=1), x())
    whole(lambda a: a.max(dim=1).values + a.topk(2)[0].sum(), x())


def test_the_argument_itself_is_returned() -> None:
    compiled = compile_eager(lambda a: (a, a + 1))
    a = x()
    assert compiled(a)[0] is a


def test_nested_calls_and_defaults() -> None:
    def inner(a: Any, scale: float = 2.0, *, shift: float = 1.0) -> Any:
        return a * scale + shift

    def f(a: Any) -> Any:
        return inner(inner(a), 3.0, shift=0.5) + inner(a, shift=4)

    whole(f, x())


def test_star_arguments() -> None:
    def inner(*items: Any, **named: Any) -> Any:
        return items[0] + items[1] * named["k"]

    def f(*items: Any, **named: Any) -> Any:
        return inner(*items, **named)

    whole(f, x(), x(), k=3)


def test_closure_over_a_tensor() -> None:
    weight = x()

    def f(a: Any) -> Any:
        def g(b: Any) -> Any:
            return b * weight + a

        return g(a + 1)

    compiled = whole(f, x())
    assert len(compiled.captures[0].inputs) == 2


def test_nonlocal() -> None:
    def f(a: Any) -> Any:
        total = a

        def add(b: Any) -> None:
            nonlocal total
            total = total + b

        add(a)
        add(a * 2)
        return total

    whole(f, x())


def test_lambda_and_map() -> None:
    whole(lambda a: sum([b * 2 for b in (a, a + 1)]), x())


def test_branch_on_an_argument() -> None:
    def f(a: Any, flag: Any) -> Any:
        if flag:
            return a + 1
        return a - 1

    compiled = compile_eager(f)
    a = x()
    for flag in (True, False, True, None, "yes"):
        assert torch.equal(compiled(a, flag), f(a, flag))
    assert len(compiled.captures) == 4


def test_branch_on_a_shape() -> None:
    def f(a: Any) -> Any:
        return a + 1 if a.shape[0] > 2 and a.dim() == 2 else a - 1

    compiled = compile_eager(f)
    for size in (2, 3):
        a = torch.randn(size, 4)
        assert torch.equal(compiled(a), f(a))
    assert len(compiled.captures) == 2


def test_metadata_is_folded() -> None:
    def f(a: Any) -> Any:
        n, m = a.shape
        assert a.size(0) == n and a.numel() == n * m and a.is_contiguous()
        assert a.dtype == torch.float32 and a.device.type == "cpu" and len(a) == n
        return a.view(m, n) * a.ndim

    whole(f, x())


def test_loops_are_unrolled() -> None:
    def f(a: Any, n: int) -> Any:
        for i in range(n):
            a = a + i
        for i, b in enumerate((a, a + 1)):
            a = a * b + i
        for p, q in zip([1, 2], [3, 4], strict=False):
            a = a + p * q
        return a

    whole(f, x(), 3)


def test_in_place_keeps_identity() -> None:
    def f(a: Any) -> Any:
        b = a.clone()
        c = b.add_(1)
        b += 2
        b[0] = 7.0
        return b, c is b

    whole(f, x())


def test_mutation_of_an_argument() -> None:
    def f(a: Any) -> Any:
        a.mul_(2)
        return a + 1

    a = x()
    expected = a.clone()
    result = f(expected)
    compiled = compile_eager(f)
    assert torch.equal(compiled(a), result)
    assert torch.equal(a, expected)


def test_gradients() -> None:
    def f(a: Any, b: Any) -> Any:
        return (a.sigmoid() * b).sum()

    a, b = x().requires_grad_(), x().requires_grad_()
    expected = torch.autograd.grad(f(a, b), (a, b))
    actual = torch.autograd.grad(compile_eager(f)(a, b), (a, b))
    torch.testing.assert_close(actual, expected)


def test_aliased_arguments() -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return a * b

    compiled = compile_eager(f)
    for aliased in (True, False, True):
        a = x()
        b = a if aliased else a.clone()
        c = a.clone()
        d = c if aliased else c.clone()
        assert torch.equal(compiled(a, b), f(c, d))
    assert len(compiled.captures) == 2


def test_shape_error_is_eagers() -> None:
    def f(a: Any, b: Any) -> Any:
        return (a + 1) @ b

    compiled = compile_eager(f)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            compiled(x(), x())


# --------------------------------------------------------------------------------------- modules


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.ones(2))
        self.factor = 3

    def forward(self, a: torch.Tensor, extra: torch.Tensor | None = None) -> torch.Tensor:
        out = self.layers(a) * self.scale + self.shift * self.factor
        if extra is not None:
            out = out + extra
        return F.dropout(out, 0.5, self.training)


def test_module() -> None:
    net = Net().eval()
    compiled = whole(net, x())
    names = [one.name for one in compiled.captures[0].inputs]
    assert any("layers_0_weight" in name for name in names), names
    regions = {
        str(node.meta["windfall"].region)
        for node in compiled.captures[0].graph.nodes
        if node.op.startswith("call")
    }
    assert regions == {"(root):Net", "layers.0:Linear", "layers.1:ReLU", "layers.2:Linear"}


def test_module_changes_are_noticed() -> None:
    net = Net().eval()
    compiled = compile_eager(net)
    a = x()

    def agree() -> None:
        assert torch.equal(compiled(a), net(a))

    agree()
    net.layers[0].weight = nn.Parameter(torch.randn(8, 4))
    agree()
    net.factor = 5
    agree()
    net.layers[1] = nn.Tanh()
    agree()
    net.shift = torch.zeros(2)
    agree()
    net.layers[2].weight.data = torch.randn(2, 8)
    agree()
    net.forward = lambda a: a + 1
    agree()
    del net.forward
    net.register_forward_hook(lambda module, inputs, output: output * 2)
    agree()


def test_keywords_share_entries_with_positions() -> None:
    net = Net().eval()
    compiled = compile_eager(net)
    a, b = x(), torch.randn(3, 2)
    assert torch.equal(compiled(a, b), net(a, b))
    assert torch.equal(compiled(a, extra=b), net(a, extra=b))
    assert torch.equal(compiled(extra=b, a=a), net(a, b))
    assert len(compiled.captures) == 1


def test_globals_are_guarded() -> None:
    compiled = compile_eager(lambda a: a * SCALE)
    a = x()
    assert torch.equal(compiled(a), a * 2)
    globals()["SCALE"] = 3.0
    try:
        assert torch.equal(compiled(a), a * 3)
    finally:
        globals()["SCALE"] = 2.0


def test_objects_properties_and_methods() -> None:
    class Box:
        factor = 2

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        @property
        def doubled(self) -> Any:
            return self.tensor * self.factor

        def plus(self, other: Any) -> Any:
            return Box(self.tensor + other)

        def __add__(self, other: Any) -> Any:
            return Box(self.tensor + other.tensor)

        def __len__(self) -> int:
            return 3

    def f(box: Any, a: Any) -> Any:
        made = Box(a)
        if box:
            made = made.plus(1) + box
        return made.doubled * len(box)

    whole(f, Box(x()), x())


def test_operator_functions() -> None:
    whole(lambda a: operator.add(a, 1) * operator.mul(2, 3), x())


def test_match() -> None:
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    def f(a: Any, subject: Any) -> Any:
        match subject:
            case {"k": value, **rest} if value > 1:
                return a * value, rest
            case [first, [second, *others]]:
                return a + first + second, others
            case Point(x, y=3):
                return a * x, "point"
            case int(n) | str(n):
                return a, n
            case None:
                return a, None
        return a, "other"

    captured: list[Any] = [{"k": 2, "z": 1}, [1, [2, 3, 4]], Point(5, 3)]
    for subject in captured:
        whole(f, x(), subject)
    for subject in ({"k": 0}, Point(5, 4), 7, "s", None):
        assert check(f, x(), subject, graphs=0).breaks == []


def test_exception_group_leaves_the_frame() -> None:
    def f(a: Any) -> Any:
        b = a + 1
        seen = []
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
        except* ValueError as group:
            seen.append(len(group.exceptions))
        except* KeyError:
            seen.append("key")
        return b * 2, seen

    check(f, x())
