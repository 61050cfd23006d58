"""Tensors that get other memory, or another standing with autograd, after histories have used them.

Each way of doing it, of each kind of tensor, after each way of using it: values, gradients and
gradients of gradients are eager's, or eager's error. What exchanges memory (`x.data = y`) beside a
history runs eagerly, and it is said: operations that saved `x` itself see the exchange, what saved
a view or an alias of it does not, and one node for all of them cannot do both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.autograd.both import leaf, raised, same

Tensor = torch.Tensor

USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "factor": lambda t, w: t * w,
    "divisor": lambda t, w: w / t,
    "detached": lambda t, w: (t.detach() * w).detach() * w,
    "a view": lambda t, w: t[1:] * w[1:] * w[:-1],
    "product of matrices": lambda t, w: torch.outer(t, w) @ w,
    "computed again": lambda t, w: (t * w).sin() * w,
}


WAYS = {
    "data": "t.data = t.data * 2",
    "others data": "t.data = w.data",
    "set_": "t.set_((t * 2).detach())",
    "detach_": "t.detach_()",
    "requires_grad_": "t.requires_grad_()",
    "nothing": "pass",
}
EXCHANGES = ("data", "others data")
KINDS = ("leaf", "result", "plain", "computed", "computed of what is plain")


def _program(way: str, use: str, kind: str, breaks: bool) -> Callable[[Tensor, Tensor], Tensor]:
    source = f"""
def program(x, w):
    t = {"x * 2" if kind.startswith("computed") else "x"}
    made = using(t, w)
    {"print(end='')" if breaks else "pass"}
    {WAYS[way]}
    return made
"""
    scope: dict[str, Any] = {"using": USES[use]}
    exec(source, scope)
    found: Callable[[Tensor, Tensor], Tensor] = scope["program"]
    return found


def _told(call: Callable[[Tensor, Tensor], Tensor], kind: str) -> list[Any]:
    torch.manual_seed(0)
    told: list[Any] = []
    for second in (False, True):
        one, w = leaf(4), leaf(4)
        x = one * 1 if kind == "result" else one.detach() if kind.endswith("plain") else one

        def asked(x: Tensor = x, w: Tensor = w, one: Tensor = one, second: bool = second) -> None:
            made = call(x, w)
            told.append((made.detach().clone(), made.requires_grad, made.is_leaf))
            wanted = [one, w]
            first = torch.autograd.grad(made.sum(), wanted, create_graph=second, allow_unused=True)
            told.append(first)
            if second:
                whole = sum(one.pow(2).sum() for one in first if one is not None)
                assert isinstance(whole, Tensor)
                told.append(torch.autograd.grad(whole, wanted, allow_unused=True))

        told.append(raised(asked))
        told.append((x.detach().clone(), x.requires_grad, x.is_leaf))
    return told


_DETACHED = ("RuntimeError", "Trying to use a saved tensor that has")


@pytest.mark.parametrize("breaks", [False, True], ids=["at once", "behind a break"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_after_each_use(way: str, kind: str, breaks: bool) -> None:
    for use in USES:
        program = _program(way, use, kind, breaks)
        compiled = windfall.compile(program)
        found, wanted = _told(compiled, kind), _told(program, kind)
        told = windfall.explanation(compiled)
        if way in EXCHANGES:
            assert [one for one in told.fallbacks if "W0015" in one], (use, told.fallbacks)
            assert not told.kernels(), use
        else:  # natively, up to the step that does it
            assert told.kernels() or any("W0202" in one for one in told.fallbacks), use
            assert {one.number for one in told.breaks} <= {1, 5, 29}, use
        if way == "detach_" and (_DETACHED in wanted or _DETACHED in found):
            # Eager refuses all gradients of operations that saved it, and no others; here second
            # ones are refused, where any of these was (but what eager runs, for it refuses that).
            if any("W0202" in one for one in told.fallbacks):
                same(found, wanted, where=use)
                continue
            assert _DETACHED not in found[:3], use
            assert _DETACHED in found[3:], use
            same(found[:3], _told(_program("nothing", use, kind, breaks), kind)[:3], where=use)
        elif (way, kind, breaks) == ("requires_grad_", KINDS[-1], True):
            # Its history began behind the break, where nobody knows what had saved it itself.
            same(found[:3], wanted[:3], where=use)
        else:
            same(found, wanted, where=use)
