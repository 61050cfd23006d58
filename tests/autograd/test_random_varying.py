"""Random programs of views, writes and arithmetic, recorded once with sizes that vary and compared
with eager at several sizes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.autograd.harness import (
    check_gradients,
    copies,
    flat,
    leaves,
    same_tensor,
    sharing,
    survey,
)
from tests.autograd.test_random_programs import _pure, _write
from tests.autograd.varying import Varying, made, tensor
from windfall.errors import Specialise, Unsupported
from windfall.ir.symint import size_symbol

M = size_symbol("m", 5)
N = size_symbol("n", 7)
SIZES = ((5, 7), (6, 9), (9, 6), (4, 4), (12, 5), (3, 8), (2, 2), (30, 31))


def _views(r: random.Random, x: Any) -> Any:
    """As in the other programs, with choices that do not depend on sizes."""
    choices: list[Callable[[], Any]] = [lambda: x.view_as(x), lambda: x.detach()]
    if x.dim():
        dim, index = r.randrange(x.dim()), r.choice([0, 1, -1, -2])
        size = x.shape[dim]
        choices += [
            lambda: x.select(dim, index),
            lambda: x.narrow(dim, 1, size - 1),
            lambda: x.narrow(dim, 0, size // 2),
            lambda: x[..., :: r.choice([1, 2])],
            lambda: x[..., index:],
            lambda: x.unsqueeze(dim),
            lambda: x.chunk(2, dim)[r.choice([0, 1])],
        ]
    if x.dim() > 1:
        choices += [lambda: x.transpose(0, -1), lambda: x.diagonal(0, 0, 1)]
    if x.is_contiguous():
        choices.append(lambda: x.view(-1))
    return r.choice(choices)()


def _joined(r: random.Random, x: Any, y: Any) -> Any:
    if x.dim() == 2 and y.dim() == 2:
        return r.choice(
            [
                lambda: torch.cat([x, x.flip(0)], r.choice([0, 1])),
                lambda: x @ x.t(),
                lambda: x.sum(1),
            ]
        )()
    return x.unsqueeze(0).expand(3, *x.shape).reshape(-1)


def program(seed: int) -> Callable[..., Any]:
    """A function of two sizes and two tensors; the same seed is the same function."""

    def run(m: int, n: int, x: Any, y: Any) -> Any:
        r = random.Random(seed)
        values = [x, y]
        for _ in range(r.randrange(2, 12)):
            one, other = r.choice(values), r.choice(values)
            kind = r.random()
            if kind < 0.4:
                values.append(_views(r, one))
            elif kind < 0.6:
                _write(r, one, other)
            elif kind < 0.7:
                values.append(_joined(r, one, other))
            else:
                values.append(_pure(r, one, other))
        r.shuffle(values)
        return tuple(values[: r.randrange(1, 5)])

    return run


def agrees(seed: int) -> str:
    """Compare one program; says how it went."""
    torch.manual_seed(seed)
    r = random.Random(~seed)
    order = (1, 0) if r.random() < 0.3 else (0, 1)
    types = [
        tensor(M, N, grad=r.random() < 0.6, order=order),
        tensor(N, grad=r.random() < 0.6),
    ]
    function = program(seed)
    try:
        compiled = Varying(function, [M, N], types)
    except Specialise:
        return "specialised"
    except Unsupported as reason:
        return f"unsupported {reason.number}"
    except (RuntimeError, IndexError):
        return "eager raises"
    compared = 0
    for m, n in SIZES:
        if all(one.holds({"m": m, "n": n}) for one in compiled.joint.relations):
            compared += _compare(function, compiled, types, m, n)
    return "equal" if compared > 1 else "one size"


def _compare(function: Any, compiled: Varying, types: Any, m: int, n: int) -> bool:
    inputs = [made(type, {"m": m, "n": n}) for type in types]
    ours, eagers = copies(inputs, leaf=False), copies(inputs, leaf=False)
    our_leaves, eager_leaves = leaves(ours), leaves(eagers)
    try:
        expected = flat(function(m, n, *eagers))
        wanted = [one for one in [*expected, *eagers] if one.grad_fn is not None]
        if wanted and eager_leaves:
            sums = [one.sum() for one in wanted]
            torch.autograd.grad(sums, eager_leaves, allow_unused=True, retain_graph=True)
    except RuntimeError:
        return False
    found = flat(compiled.call(m, n, *ours))
    for one, other in zip([*found, *ours], [*expected, *eagers], strict=True):
        same_tensor(one, other)
    assert sharing([*found, *ours]) == sharing([*expected, *eagers])
    assert [one._version for one in ours] == [one._version for one in eagers]
    check_gradients([*found, *ours], our_leaves, [*expected, *eagers], eager_leaves)
    return True


@pytest.mark.parametrize("block", range(3))
def test_random_programs_at_sizes_that_vary(block: int) -> None:
    outcomes = [agrees(seed) for seed in range(block * 25, block * 25 + 25)]
    assert outcomes.count("equal") >= 8, outcomes


if __name__ == "__main__":
    survey(agrees, int(sys.argv[1]), int(sys.argv[2]))
