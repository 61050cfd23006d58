"""Sizes, dtypes and layouts that eager's kernels treat specially: the answer is eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall

ones = torch.ones
ROWS: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[torch.Tensor, ...]]] = {
    "std": (lambda x: torch.std(x, correction=-1), (ones(0), ones(3))),
    "std_mean": (lambda x: torch.std_mean(x, correction=-2), (ones(0), ones(3))),
    "var": (lambda x: torch.var(x, 0, correction=-1), (ones(0, 2), ones(3, 2), ones(0, 0))),
    "var_mean": (lambda x: torch.var_mean(x, 1, correction=-1), (ones(2, 0), ones(3, 2))),
    "var, plain": (lambda x: torch.var(x, 0, correction=0), (ones(0, 2), ones(1, 2))),
    "pixel_unshuffle": (
        lambda x: F.pixel_unshuffle(x, 3),
        (ones(1, 1, 6, 6), ones(1, 1, 0, 6), ones(1, 0, 6, 6), ones(0, 1, 6, 6)),
    ),
    "pixel_unshuffle, refused": (
        lambda x: F.pixel_unshuffle(x, 7),
        (ones(1, 0, 1, 1), ones(1, 1, 1, 1)),
    ),
    "a transform, unread": (lambda x: (torch.fft.irfft(x), x + 1)[1], (ones(0, 4), ones(4, 0))),
    "a transform, refused later": (
        lambda x: torch.fft.irfft(x).kthvalue(1, 0)[0],
        (ones(0, 4), ones(0, 0)),
    ),
    "normal": (lambda x: torch.normal(x, x.double()), (ones(3), ones(3, 2).t())),
    "normal, the other way": (lambda x: torch.normal(x.double(), x), (ones(3),)),
    "normal of halves": (lambda x: torch.normal(x.half(), x), (ones(3),)),
    "normal, broadcast": (lambda x: torch.normal(x, x.double()[:1]), (ones(3), ones(3, 2).t())),
    "max_pool1d": (
        lambda x: F.max_pool1d(x, 2),
        (
            ones(3, 4),
            ones(3, 4).t(),
            ones(2, 3, 4).transpose(0, 1),
            ones(2, 3, 4).transpose(1, 2),
            ones(1, 4, 3).transpose(1, 2),
        ),
    ),
    "max_pool1d with a gradient": (
        lambda x: F.max_pool1d(x, 2),
        (ones(3, 4).requires_grad_(), ones(1, 4, 3).transpose(1, 2).requires_grad_()),
    ),
}
# While they are captured, which is a break.
REFUSED = {"pixel_unshuffle, refused", "a transform, unread", "a transform, refused later"}


def _seen(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    torch.manual_seed(0)
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error)
    several = found if isinstance(found, tuple) else (found,)
    facts = [(one.dtype, one.shape, one.stride(), one.storage_offset()) for one in several]
    return facts, [one.detach().clone().nan_to_num(nan=7.25).tolist() for one in several]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")
def test_the_answer_is_eagers(name: str, dynamic: bool | None) -> None:
    program, inputs = ROWS[name]
    compiled = windfall.compile(program, dynamic=dynamic)
    for x in inputs:
        assert _seen(compiled, x) == _seen(program, x), (x.shape, x.stride())
    explanation = windfall.explanation(compiled)
    assert explanation.graphs or name in REFUSED
    assert not explanation.fallbacks
    assert bool(explanation.breaks) == (name in REFUSED)
