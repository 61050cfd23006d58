"""Leaves that the graph itself makes: each way to make one, and whether results need a gradient;
what becomes one (`requires_grad_`), and what forgets its history (`detach_`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.autograd.both import Compile, both, leaf, raised, seen

OP_BY_OP = {"a graph, op by op": 1}

MAKES = {
    "zeros": "torch.zeros(3, requires_grad=True)",
    "ones": "torch.ones(3, requires_grad=True)",
    "full": "torch.full((3,), 2.0, requires_grad=True)",
    "rand": "torch.rand(3, requires_grad=True)",
    "arange": "torch.arange(3.0, requires_grad=True)",
    "linspace": "torch.linspace(0, 1, 3, requires_grad=True)",
    "tensor": "torch.tensor([1.0, 2.0, 3.0], requires_grad=True)",
    "zeros_like": "torch.zeros_like(p, requires_grad=True)",
    "rand_like": "torch.rand_like(p, requires_grad=True)",
    "new_ones": "p.new_ones(3, requires_grad=True)",
}
# What is done with `w`, the leaf, `p`, which needs no gradient, and `q`, which needs one.
USES: dict[str, tuple[str, dict[str, int]]] = {
    "alone": ("w * 2", OP_BY_OP),
    "with p": ("w * p, p + 1", OP_BY_OP),
    "a view": ("(w * p)[1:]", OP_BY_OP),
    "with q": ("w * q, p * 2", {}),
    "apart from q": ("w * 2, q.sin()", OP_BY_OP),
    "a view, apart from q": ("(w * 2)[1:], q.sin()", OP_BY_OP),
    "detached": ("w.detach() * 2", {}),
    "itself": ("w, w * 2", OP_BY_OP),
}


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("use", USES)
def test_results_need_a_gradient(use: str, mode: bool) -> None:
    text, how = USES[use]
    for make in MAKES.values():
        space: dict[str, Any] = {"torch": torch}
        exec(f"def run(p, q):\n    w = {make}\n    return ({text},)", space)

        def scenario(compile: Compile, space: dict[str, Any] = space) -> Any:
            compiled, told = compile(space["run"]), []
            for _ in range(2):
                p, q = torch.rand(3), leaf(3, dtype=torch.float32)
                with torch.set_grad_enabled(mode):
                    found = compiled(p, q)
                told.append(seen(*found))
                for one in found:
                    told.append(raised(lambda one=one: one.sum().backward()))  # type: ignore[misc]
                told.append(q.grad)
            return told

        both(scenario, how if mode or use == "itself" else {})


A_STEP, STEP_AND_LEAF = {"a step at a break": 1}, {**OP_BY_OP, "a step at a break": 1}
# Of `p`, which needs no gradient, and `q`, a leaf: what is done, what is returned, how it runs with
# gradients enabled, and without.
CHANGES: dict[str, tuple[str, str, dict[str, int], dict[str, int]]] = {
    "a gradient of it": (
        "w = (p * 2).requires_grad_(); (g,) = torch.autograd.grad((w * w).sum(), w)",
        "g * q",
        {},
        STEP_AND_LEAF,
    ),
    "a penalty": (
        "w = (p + q.detach()).requires_grad_(True); y = (w * q).sin().sum()"
        "; (g,) = torch.autograd.grad(y, w, create_graph=True)",
        "(g.norm() - 1) ** 2 + y",
        {},
        STEP_AND_LEAF,
    ),
    "a second derivative": (
        "w = p.clone().requires_grad_(); y = (w**3 * q).sum()"
        "; (g,) = torch.autograd.grad(y, w, create_graph=True)"
        "; (h,) = torch.autograd.grad(g.sum(), w, create_graph=True)",
        "h",
        {},
        STEP_AND_LEAF,
    ),
    "steps of a sampler": (
        "x = p.clone()\nfor i in range(3):\n    x = x.detach().requires_grad_()"
        "\n    (g,) = torch.autograd.grad((x * q.detach()).pow(2).sum(), x)\n    x = x - 0.1 * g",
        "x.detach() * q",
        {},
        STEP_AND_LEAF,
    ),
    "used": ("w = (p * 2).requires_grad_()", "w * q, w.sin()", OP_BY_OP, {}),
    "an attribute": (
        "w = p * 2; w.requires_grad = True",
        "w * q, w.requires_grad, w.is_leaf",
        {},
        {},
    ),
    "an attribute of a result": ("w = q * 2; w.requires_grad = True", "w * q", A_STEP, {}),
    "an attribute of an argument": ("q.requires_grad = True", "q * 2", A_STEP, A_STEP),
    "an attribute of a leaf": (
        "w = torch.ones(3, requires_grad=True); w.requires_grad = True; w.requires_grad = False",
        "w * q, w.requires_grad",
        {},
        {},
    ),
    "asked of a result": ("w = q * 2; w.requires_grad_()", "w * q", {}, {}),
    "an older view": (
        "w = p * 2; v = w[1:]; w.requires_grad_()",
        "v * q[1:], v.requires_grad, w * q",
        {},
        {},
    ),
    "a view, returned": ("w = (p * 2).requires_grad_()", "w[1:], w * q", OP_BY_OP, OP_BY_OP),
    "a view, used": ("w = (p * 2).requires_grad_(); v = w[1:]", "v * q[1:], v", OP_BY_OP, OP_BY_OP),
    "returned": ("w = (p * 2).requires_grad_()", "w, w * q", OP_BY_OP, OP_BY_OP),
    "not any more": (
        "w = (p * 2).requires_grad_(); y = w * q; w.requires_grad_(False)",
        "y, w * 3, w.requires_grad",
        {},
        {},
    ),
    "of a result": ("w = (q * 2).requires_grad_(False)", "w", A_STEP, {}),
    "of a mask": ("w = (q > 0).requires_grad_()", "w", A_STEP, A_STEP),
    "written unseen": (
        "w = (p * 2).requires_grad_()\nwith torch.no_grad():\n    w.mul_(2)",
        "w * q",
        {},
        {},
    ),
    "written": ("w = (p * 2).requires_grad_(); w.mul_(2)", "w * q", STEP_AND_LEAF, {}),
    "across a break": (
        "w = (p * 2).requires_grad_(); print(end='')",
        "w * q",
        STEP_AND_LEAF,
        STEP_AND_LEAF,
    ),
    "under no_grad": (
        "with torch.no_grad():\n    w = (q * 2).requires_grad_()",
        "w * q, w.is_leaf",
        {},
        {},
    ),
    "an alias": ("w = p.detach(); w.requires_grad_()", "w * q, p * 2", {}, {}),
    "an alias that is written": (
        "w = p.detach().requires_grad_()\nwith torch.no_grad():\n    p.mul_(2)",
        "w * q, p * 2",
        {},
        {},
    ),
    "detached": ("y = q * 2; y.detach_()", "y, q * 1, y.requires_grad", {}, {}),
    "detached, used before": (
        "y = q * 2; v = y * 3; y.detach_()",
        "y * 3, v, y.is_leaf",
        {},
        {},
    ),
    "detached, saved before": ("y = q * 2; z = y.sin(); y.detach_()", "y * 3, z", OP_BY_OP, {}),
    "detached, an older view": ("y = q * 2; v = y[1:]; y.detach_()", "y, v * 2", {}, {}),
    "detached and written": ("y = q * 2; y.mul_(3); y.detach_(); y.mul_(q)", "y", {}, {}),
    "detached, a leaf": ("y = (q * 2).detach_().requires_grad_()", "y * q", {}, {}),
}


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_what_the_graph_made(change: str, mode: bool) -> None:
    text, returned, how, without = CHANGES[change]
    lines = [part for one in text.split("; ") for part in one.split("\n")]
    body = "\n".join(f"    {one}" for one in lines)
    space: dict[str, Any] = {"torch": torch}
    exec(f"def run(p, q):\n{body}\n    return ({returned},)", space)

    def scenario(compile: Compile) -> Any:
        compiled, told = compile(space["run"]), []
        for _ in range(2):
            p, q = torch.randn(3, dtype=torch.float64), leaf(3)
            found: list[Any] = []

            def ask(p: Any = p, q: Any = q, found: list[Any] = found) -> None:
                with torch.set_grad_enabled(mode):
                    found.extend(compiled(p, q))

            told.append(raised(ask))
            told.append(seen(*found, p, q))
            for one in found:
                if isinstance(one, torch.Tensor):
                    told.append(raised(lambda one=one: one.sum().backward(retain_graph=True)))  # type: ignore[misc]
            told.append(
                [one.grad for one in found if isinstance(one, torch.Tensor) and one.is_leaf]
            )
            told += [q.grad, p._version, q._version]
        return told

    both(scenario, how if mode else without)
