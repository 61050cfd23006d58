"""Beside torch's own compiler: its marks on functions, and windfall as its backend. Run in a
process of its own, since it loads what windfall never does."""

from __future__ import annotations

import functools
from typing import Any

import torch

import windfall
from tests.conformance.optimizers import cases, check
from windfall import api

X = torch.linspace(-1, 1, 6)


def callee(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).cos()


def explained(function: Any, **settings: Any) -> Any:
    made = windfall.explain(function, **settings)(X)
    torch.testing.assert_close(made.result, function(X))
    return made


# ----------------------------------------------------------------------------- torch's marks


@torch.compiler.disable(reason="torch was told")
def native(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@torch.compiler.disable(recursive=False)
def shallow(x: torch.Tensor) -> torch.Tensor:
    return callee(x) * 2


@torch.compiler.allow_in_graph
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


CALLS: list[int] = []


@torch.compiler.assume_constant_result
def constant() -> int:
    CALLS.append(1)
    return 5


@functools.wraps(native)
def wrapper(x: torch.Tensor) -> torch.Tensor:
    """It has copies of torch's marks, and is not meant by them."""
    return x + 1


def breaking(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def marks() -> None:
    made = explained(lambda x: native(x) + 1)
    assert [one.detail for one in made.breaks] == ["native is disabled: torch was told"]
    made = explained(lambda x: shallow(x) + 1)
    assert {one.number for one in made.breaks} == {14} and len(made.graphs) == 2, str(made)
    made = explained(lambda x: opaque(x) + 1, fullgraph=True)
    assert any(node.target is opaque for node in made.graphs[0].graph.nodes)
    compiled = windfall.compile(lambda x: x + constant(), fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), X + 5)
    assert CALLS == [1]
    made = explained(breaking)
    assert [one.number for one in made.breaks] == [40] and len(made.graphs) == 2
    compiled = windfall.compile(lambda x: x + torch._dynamo.is_compiling(), fullgraph=True)
    torch.testing.assert_close(compiled(X), X + 1)
    theirs = torch.compile(callee, backend="eager")
    assert len(explained(lambda x: theirs(x) + 1, fullgraph=True).graphs) == 1
    assert wrapper._torchdynamo_disable  # type: ignore[attr-defined]
    assert not explained(lambda x: wrapper(x) * 2, fullgraph=True).breaks


def sizes() -> None:
    """One compilation for every size, from the first call on."""
    compiled = windfall.compile(callee)
    for size in (4, 5, 9):
        x = torch.rand(size, 3)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), callee(x))
    assert len(windfall.explanation(compiled).captures) == 1
    fixed = windfall.compile(callee)
    for size in (4, 5, 9):
        x = torch.rand(size, 3)
        torch._dynamo.mark_static(x)
        torch.testing.assert_close(fixed(x), callee(x))
    assert len(windfall.explanation(fixed).captures) == 3


# ----------------------------------------------------------------------- windfall as a backend


def gradients(model: torch.nn.Module, result: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(result.square().sum(), list(model.parameters())))


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@functools.wraps(region)
def around_region(x: torch.Tensor) -> torch.Tensor:
    return region(x) + 1  # the mark is copied to this one too


def regions() -> None:
    nonstrict = torch._dynamo.nonstrict_trace(lambda x: x.cos() + 1)
    x = torch.rand(5)
    for function in (region, nonstrict):
        made = windfall.explain(lambda x, f=function: f(x) - 1, fullgraph=True)(x)
        torch.testing.assert_close(made.result, function(x) - 1)
        assert len(made.graphs) == 1, function
    torch.testing.assert_close(windfall.compile(lambda x: around_region(x))(x), around_region(x))


def module_as_backend() -> None:
    assert "windfall" in torch.compiler.list_backends()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    compiled = torch.compile(model, backend="windfall", options={"verify": True})
    for rows in (3, 3, 5, 6):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), model(x))
        ours, theirs = gradients(model, compiled(x)), gradients(model, model(x))
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


@torch.compile(backend="windfall")
def branching(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.sum() > 0:
        return y + 1
    return y.cos() - 1


def backend() -> None:
    """What torch hands over is compiled by us: with kernels, without breaks or fall-backs."""
    made: list[Any] = []
    original = api.compile
    api.compile = lambda *args, **kwargs: made.append(original(*args, **kwargs)) or made[-1]
    module_as_backend()
    for sign in (1, -1):
        x = sign * torch.rand(7)
        expected = x.sin() + 1 if sign > 0 else x.sin().cos() - 1
        torch.testing.assert_close(branching(x), expected)
    told = [windfall.explanation(one) for one in made]
    assert len(made) >= 4, len(made)
    assert all(one.kernels() and not one.breaks and not one.fallbacks for one in told), told


def optimizers() -> None:
    """Torch's compiler puts wrappers around parts of torch's optimizers when it first runs, for
    the whole process. They are for itself: a step is one graph of ours as before."""
    torch.compile(callee, backend="eager")(X)
    marked = [torch.optim.SGD._init_group, torch.optim.Adam._init_group, torch.optim.LBFGS.step]
    assert all(getattr(one, "_torchdynamo_disable", False) for one in marked)
    for case in cases():
        if case.description == "default" and case.cls.__name__ not in ("LBFGS", "SparseAdam"):
            found = check(case)
            assert found.is_right and found.is_one_graph, (str(case), found)

    class Told(torch.optim.SGD):
        """The user's own word counts."""

        @torch.compiler.disable
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    optimizer = Told([parameter], lr=0.5)
    compiled = windfall.compile(lambda: optimizer.step())
    compiled()
    assert parameter.tolist() == [0.5, 0.5, 0.5]
    assert windfall.explanation(compiled).breaks


if __name__ == "__main__":
    import torch._dynamo

    marks()
    sizes()
    regions()
    backend()
    optimizers()
