"""Results that are views, of an input, of a result, of each other: what other results were made of
them leads to them, as in eager. Each kind of view × what is returned × what is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.autograd.both import raised, same, seen, versions

# How `u` and `v` are made; `x` is the input, `y` what they look at, `e` stands behind that.
KINDS = {
    "of an input": "y = x; e = x; u = x.t(); v = x.view(-1)",
    "of an intermediate": "e = x.exp(); y = e * 2; u = y.t(); v = y.view(-1)",
    "chain": "e = x.exp(); y = e * 2; u = y.view(-1); v = u[2:]",
    "long chain": "e = x.exp(); y = e * 2; u = y.t()[1:]; v = u.unsqueeze(0).transpose(0, 1)[1:]",
    "chain of an input": "e = x.exp(); y = x; u = x.view(-1); v = u.view(2, 8)",
    "alias": "e = x.exp(); y = e * 2; u = y.view_as(y); v = u.expand_as(u)",
    "expanded": "e = x.exp(); y = e * 2; u = y[0]; v = u.expand(3, 4)",
    "written base": "e = x.exp(); y = e * 2; u = y.t(); v = y.view(-1); y.mul_(3)",
    "written view": "e = x.exp(); y = e * 2; u = y.t(); v = y.view(-1); v.mul_(3)",
    "written chain": "e = x.exp(); y = e * 2; u = y.view(-1); v = u[1:]; v.sin_()",
    "written, then seen": "e = x.exp(); y = e * 2; y[0].mul_(3); u = y[0]; v = u[1:]",
    "written input": "x.mul_(2); y = x; e = x; u = x.t(); v = x.view(-1)",
    "view of an input, written": "y = x; e = x; u = x[1:]; v = x.view(-1); v.mul_(2)",
    "unbind": "e = x.exp(); y = e * 2; u, v, *_ = y.unbind(0)",
    "split": "e = x.exp(); y = e * 2; u, v = y.split(2)",
    "chunk of an input": "e = x.exp(); y = x; u, v = x.chunk(2, 1)",
    "view of a piece": "e = x.exp(); y = e * 2; u = y.unbind(0)[1]; v = u[1:]",
    "under no_grad": "e = x.exp(); y = e * 2; u = y.t()\n    with torch.no_grad():\n        v = y.view(-1)",  # noqa: E501
    "detached": "e = x.exp(); y = e * 2; u = y.t(); v = y.detach().view(-1)",
    "real numbers": "e = torch.complex(x, x * 2); y = e * 2; u = y.t(); v = torch.view_as_real(y)",
    "diagonal": "e = x.exp(); y = e * 2; u = y.diagonal(); v = y.unfold(0, 2, 1)",
    "strided": "e = x.exp(); y = e * 2; u = y.t(); v = y.as_strided((2, 2), (4, 1), 1)",
}  # fmt: skip
RETURNS = (
    "v, loss(v)",
    "loss(v), v, y",
    "u, v, loss(v)",
    "v, u, loss(v) + loss(u)",
    "y, u, v, loss(v), loss(u * 3) * loss(v * 2)",
    "u, v, loss(v) + loss(y)",
    "u, v, loss(v) + loss(e)",
    "v, u, loss(e), v.sin(), loss(v.sin())",
)


def function(kind: str, returned: str) -> Callable[..., Any]:
    """A function of one tensor. Losses are real, and no sum: their second derivatives differ."""
    loss = "def loss(a):\n    return (a * a * a).abs().sum() if a.is_complex() else (a**3).sum()\n"
    source = f"{loss}\ndef run(x):\n    {KINDS[kind]}\n    return {returned},\n"
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, f"<{kind}>", "exec"), namespace)
    found: Callable[..., Any] = namespace["run"]
    return found


class Scene:
    """One call, and one question about it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        torch.manual_seed(0)
        self.leaf = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
        self.input = self.leaf * 1
        self.results = call(self.input)
        self.told: list[Any] = []

    def roots(self) -> list[torch.Tensor]:
        return [one for one in self.results if one.grad_fn is not None]

    def tangents(self, roots: list[torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        return [torch.randn(one.shape, dtype=one.dtype) for one in roots]

    def note(self, name: Any, factor: int) -> Callable[[Any], Any]:
        def hook(gradient: Any) -> Any:
            found = None if gradient is None else gradient.detach().clone()
            self.told.append((name, found))
            return None if gradient is None or factor == 1 else gradient * factor

        return hook


def hooks(scene: Scene, factor: int = 1) -> None:
    """A hook on each result and on the input, and each result alone."""
    roots = scene.roots()
    for index, one in enumerate(roots):
        one.register_hook(scene.note(index, factor))
    scene.input.register_hook(scene.note("input", factor))
    for one, tangent in zip(roots, scene.tangents(roots), strict=True):
        scene.told.append("next")
        first = len(scene.told)
        one.backward(tangent, retain_graph=True)
        scene.told[first:] = sorted(scene.told[first:], key=lambda pair: str(pair[0]))
    scene.told.append(scene.leaf.grad)


def doubling(scene: Scene) -> None:
    hooks(scene, 2)


def retained(scene: Scene) -> None:
    roots = scene.roots()
    for one in (*roots, scene.input):
        one.retain_grad()
    torch.autograd.backward(roots, scene.tangents(roots))
    scene.told += [one.grad for one in (*roots, scene.input, scene.leaf)]


def of_each_other(scene: Scene) -> None:
    """The gradient of each result with respect to each other."""
    roots = scene.roots()
    for one, tangent in zip(roots, scene.tangents(roots), strict=True):
        wanted = [*roots, scene.input, scene.leaf]
        scene.told += torch.autograd.grad(
            one, wanted, tangent, retain_graph=True, allow_unused=True
        )
        for other in wanted:
            scene.told += torch.autograd.grad(
                one, other, tangent, retain_graph=True, allow_unused=True
            )


def of_gradients(scene: Scene) -> None:
    """The same, twice differentiated."""
    roots = scene.roots()
    wanted = [*roots, scene.input, scene.leaf]
    for one, tangent in zip(roots, scene.tangents(roots), strict=True):
        first = torch.autograd.grad(one, wanted, tangent, create_graph=True, allow_unused=True)
        scene.told += [None if g is None else (g.detach(), g.requires_grad) for g in first]
        squares = [g.abs().square().sum() for g in first if g is not None and g.requires_grad]
        if squares:
            scene.told += torch.autograd.grad(
                sum(squares), wanted, retain_graph=True, allow_unused=True
            )


def written(scene: Scene) -> None:
    """Each result is written, if it may be, and then all are back-propagated. (Where eager says
    that it has kept what was written, we may have kept something else: then the gradients are those
    of what was computed.)"""
    unwritten = Scene(scene.call)  # type: ignore[attr-defined]
    torch.autograd.backward(unwritten.roots(), unwritten.tangents(unwritten.roots()))
    for index in range(len(scene.results)):
        again = Scene(scene.call)  # type: ignore[attr-defined]
        before = versions(*again.results, again.input)
        with torch.no_grad():
            scene.told.append(raised(lambda one=again.results[index]: one.mul_(2)))
        failed = raised(lambda a=again: torch.autograd.backward(a.roots(), a.tangents(a.roots())))
        if failed is None:
            same(again.leaf.grad, unwritten.leaf.grad)
        scene.told.append(("refused" if failed else "done", failed))
        after = versions(*again.results, again.input)
        scene.told.append([b - a for a, b in zip(before, after, strict=True)])


ASKED = (hooks, doubling, retained, of_each_other, of_gradients, written)
MODIFIED = ("RuntimeError", "one of the variables needed for gradient computation")


def told(call: Callable[..., Any], asked: Callable[[Scene], None]) -> list[Any]:
    scene = Scene(call)
    scene.call = call  # type: ignore[attr-defined]
    found = seen(*scene.results, scene.input)
    asked(scene)
    return [found, scene.told, seen(*scene.results, scene.input)]


def compare(compiled: Callable[..., Any], eager: Callable[..., Any], asked: Any) -> None:
    ours, eagers = told(compiled, asked), told(eager, asked)
    for at, (one, other) in enumerate(zip(ours[1], eagers[1], strict=False)):
        if asked is written and other == ("refused", MODIFIED):
            assert one in (("done", None), other)
            ours[1][at] = other
    same(ours, eagers)


def how_it_ran(kind: str, returned: str) -> dict[str, int]:
    """A view that is made under `no_grad` is a leaf that needs a gradient: where that is returned,
    the graph runs op by op, counted."""
    leaf = kind == "under no_grad" and "v" in returned.split(", ")
    return {"a graph, op by op": 1} if leaf else {}


FEW = ("loss(v), v, y", "v, u, loss(v) + loss(u)", "u, v, loss(v) + loss(e)")


@pytest.mark.parametrize(
    "returned",
    [
        pytest.param(one, marks=() if one in FEW else pytest.mark.conformance, id=one)
        for one in RETURNS
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_of_a_returned_view_leads_to_it(kind: str, returned: str) -> None:
    eager = function(kind, returned)
    compiled = windfall.compile(function(kind, returned))
    differences = []
    for asked in ASKED:
        try:
            compare(compiled, eager, asked)
        except Exception as error:
            differences.append(f"{asked.__name__}: {type(error).__name__} {error}"[:300])
    assert not differences, "\n".join(differences)
    assert windfall.explanation(compiled).eager == how_it_ran(kind, returned)


def test_views_alone_lead_to_each_other() -> None:
    """No result has a node of ours: all histories are eager's."""
    for kind in KINDS:
        eager = function(kind, "u, v")
        compiled = windfall.compile(function(kind, "u, v"))
        for asked in (hooks, of_each_other):
            compare(compiled, eager, asked)


def test_sizes_that_vary() -> None:
    eager = function("chain", "v, u, loss(v) + loss(u)")
    compiled = windfall.compile(function("chain", "v, u, loss(v) + loss(u)"), dynamic=True)
    for asked in ASKED:
        compare(compiled, eager, asked)
    for size in (5, 6):
        x = torch.randn(size, size, dtype=torch.float64, requires_grad=True)
        found = []
        for call in (compiled, eager):
            v, u, loss = call(x * 1)
            found.append(torch.autograd.grad(loss, [u, v, x]))
        same(*found)
    explained = windfall.explanation(compiled)
    assert (explained.eager, len(explained.graphs)) == ({}, 1)
