"""Sizes that eager refuses are refused with its class and words, also by a program that was
compiled for sizes which eager takes: nothing is read beyond the memory of an operand, and an empty
operand is no reason not to look at the positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall

Sizes = tuple[int, ...]
Row = tuple[Callable[..., Any], tuple[Sizes, ...], tuple[Sizes, ...]]


def zeros(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.int64)


# A program, sizes of its operands that eager takes, and others that it refuses.
ROWS: dict[str, Row] = {
    "positions in no rows": (lambda x: x[zeros(2)], ((4, 5),), ((0, 5),)),
    "a list of positions in no rows": (lambda x: x[[0, 1], :], ((4, 5),), ((0, 5),)),
    "positions in no columns": (lambda x: x[:, zeros(1)], ((4, 5),), ((4, 0),)),
    "pairs of positions": (lambda x: x[zeros(1), zeros(1)], ((4, 5),), ((4, 0),)),
    "index_select of no rows": (lambda x: x.index_select(0, zeros(1)), ((4, 5),), ((0, 5),)),
    "index_select of no columns": (lambda x: x.index_select(1, zeros(2)), ((4, 5),), ((4, 0),)),
    "gather of no rows": (lambda x: x.gather(0, zeros(1, 5)), ((4, 5),), ((0, 5),)),
    "take of nothing": (lambda x: x.take(zeros(1)), ((4, 5),), ((0, 5),)),
    "embedding of no rows": (lambda x: F.embedding(zeros(3), x), ((4, 5),), ((0, 5),)),
    "gather of wider positions": (lambda x: x.gather(0, zeros(2, 5)), ((4, 5),), ((4, 3),)),
    "gather of longer positions": (lambda x: x.gather(-1, zeros(4, 5)), ((4, 5),), ((3, 5),)),
    "addmv of a short vector": (torch.addmv, ((6,), (6, 9), (9,)), ((5,), (6, 9), (9,))),
    "addmv of a matrix": (torch.addmv, ((6,), (6, 9), (9,)), ((6, 1), (6, 9), (9,))),
    "addr of no rows": (torch.addr, ((5, 7), (5,), (7,)), ((5, 7), (0,), (7,))),
    "roll of a dimension too far": (lambda x: x.roll(1, 2), ((3, 4, 5),), ((3, 4),)),
    "more cut off than there is": (lambda x: F.pad(x, (1, -1)), ((3, 4),), ((3, 0),)),
    "more cut off in front": (lambda x: F.pad(x, (-2, 2)), ((3, 4),), ((3, 1),)),
    "repeated edges of nothing": (
        lambda x: F.pad(x, (1, 1), mode="replicate"), ((3, 4),), ((0, 4),),
    ),
    "mirrored edges of nothing": (
        lambda x: F.pad(x, (1, 1), mode="reflect"), ((3, 4),), ((0, 4),),
    ),
    "mirrored edges of an image of nothing": (
        lambda x: F.pad(x, (1, 1, 0, 1), mode="reflect"), ((2, 3, 4, 5),), ((2, 0, 4, 5),),
    ),
    "weights of fewer classes": (
        lambda x, w: F.nll_loss(x, zeros(4), w), ((4, 3), (3,)), ((4, 3), (2,)),
    ),
    "windows of no channels": (lambda x: F.unfold(x, 2), ((3, 4, 5, 6),), ((3, 0, 5, 6),)),
    "windows that do not fit": (lambda x: F.unfold(x, 2), ((3, 4, 5, 6),), ((3, 4, 1, 6),)),
    "windows that do not fit, of sizes that vary": (
        lambda x: F.unfold(x, 4), ((3, 4, 5, 6),), ((3, 4, 3, 7),),
    ),
}  # fmt: skip


def outcome(function: Callable[..., Any], sizes: tuple[Sizes, ...]) -> Any:
    torch.manual_seed(0)
    operands = [torch.randn(each) for each in sizes]
    try:
        return function(*operands)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("dynamic", [None, True], ids=["default", "dynamic"])
@pytest.mark.parametrize("name", ROWS)
def test_class_and_words_are_eagers(name: str, dynamic: bool | None) -> None:
    body, good, bad = ROWS[name]

    def program(*operands: torch.Tensor) -> torch.Tensor:
        return body(*operands) * 2

    compiled = windfall.compile(program, dynamic=dynamic)
    torch.testing.assert_close(outcome(compiled, good), outcome(program, good))
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks and not told.fallbacks
    for _ in range(2):
        refused = outcome(program, bad)
        assert isinstance(refused, tuple), f"eager takes it: {refused}"
        assert outcome(compiled, bad) == refused
    torch.testing.assert_close(outcome(compiled, good), outcome(program, good))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x[zeros(0)],
        lambda x: x.index_select(0, zeros(0)),
        lambda x: x.gather(0, zeros(0, 5)),
        lambda x: F.embedding(zeros(2, 0), x),
        lambda x: x.gather(1, zeros(0, 9)),
    ],
)
def test_no_positions_are_fine(body: Callable[..., Any]) -> None:
    compiled = windfall.compile(lambda x: body(x) + 1)
    for sizes in ((4, 5), (0, 5)):
        torch.testing.assert_close(compiled(torch.randn(sizes)), body(torch.randn(sizes)) + 1)
    assert not windfall.explanation(compiled).fallbacks
