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
    "a divisor of zero": (
        lambda x: F.avg_pool2d(x, 2, divisor_override=x.shape[0] - 1), ((3, 2, 6, 6),),
        ((1, 2, 6, 6),),
    ),
    "a part beyond the end": (lambda x: torch.narrow_copy(x, 1, 1, 3), ((3, 5),), ((3, 3),)),
    "a part before the start": (lambda x: torch.narrow_copy(x, 1, -4, 2), ((3, 5),), ((3, 3),)),
    "weights of larger losses": (
        lambda x, w: F.binary_cross_entropy(x.sigmoid(), x.sigmoid(), w), ((5, 4), (5, 4)),
        ((5, 4), (1, 5, 4)),
    ),
    "weights of larger losses of logits": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, x, w), ((5, 4), (5, 4)),
        ((5, 4), (1, 5, 4)),
    ),
    "weights of other losses of logits": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, x, w), ((5, 4), (5, 4)),
        ((5, 4), (6, 4)),
    ),
    "weights of no losses of logits": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, x, w), ((5, 4), (5, 4)),
        ((5, 4), (0, 4)),
    ),
    "positive weights of other classes": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, x, pos_weight=w), ((5, 4), (4,)),
        ((5, 4), (3,)),
    ),
    "soft margins of a longer target": (
        F.soft_margin_loss, ((5, 4), (5, 4)), ((1, 4), (5, 4)),
    ),
    "a class for one of several": (
        lambda x, y: F.nll_loss(x, zeros(y.shape[0])), ((5, 4), (5,)), ((4,), (5,)),
    ),
    "a number with a dimension": (
        lambda x, y: torch._foreach_mul([x], y)[0], ((5, 4), ()), ((5, 4), (1,)),
    ),
    "channels that are no squares": (
        lambda x: F.pixel_shuffle(x, 2), ((2, 8, 3, 4),), ((2, 3, 3, 4),),
    ),
    "pooling adaptively nothing": (
        lambda x: F.adaptive_avg_pool2d(x, (None, 2)), ((2, 3, 4, 5),), ((2, 3, 0, 5),),
    ),
    "the largest of no channels": (
        lambda x: F.adaptive_max_pool2d(x, 2), ((2, 3, 4, 5),), ((2, 0, 4, 5),),
    ),
    "area of nothing": (
        lambda x: F.interpolate(x, scale_factor=0.6, mode="area"), ((2, 3, 4, 5),), ((2, 3, 4, 0),),
    ),
    "no filters": (F.conv2d, ((2, 3, 6, 6), (4, 3, 3, 3)), ((2, 3, 6, 6), (0, 3, 3, 3))),
    "nothing left by a transposed convolution": (
        lambda x, w: F.conv_transpose2d(x, w, padding=2), ((2, 3, 4, 4), (3, 3, 3, 3)),
        ((2, 3, 1, 4), (3, 3, 3, 3)),
    ),
    "mirrored too far, of no images": (
        lambda x: F.pad(x, (1, 3), mode="reflect"), ((2, 3, 4),), ((0, 3, 3),),
    ),
    "a window of what is empty": (
        lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 2)), ((3, 4), (2, 2)),
        ((0, 4), (2, 2)),
    ),
    "unused boundaries": (
        lambda x, y: (torch.bucketize(x, y), x)[1], ((3, 4), (5,)), ((3, 4), (5, 2)),
    ),
    "unused samples": (
        lambda x, y: (F.grid_sample(x, y, align_corners=False), x)[1],
        ((2, 3, 4, 4), (2, 2, 2, 2)), ((2, 3, 4, 4), (3, 2, 2, 2)),
    ),
    "an unused outer product": (
        lambda x, y, z: (torch.addr(x, y, z), x)[1], ((3, 4), (3,), (4,)), ((3, 4), (3, 2), (4,)),
    ),
    "an unused mirror": (
        lambda x: (F.pad(x, (1, 3), mode="reflect"), x)[1], ((3, 4),), ((3, 3),),
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


def test_numbers_of_losses_are_eagers() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for body, good, bad in (
        (lambda x, y, number: F.huber_loss(x, y, delta=number), 1.5, -1.5),
        (lambda x, y, number: torch.ops.aten.smooth_l1_loss(x, y, 1, number), 1.5, -1.5),
    ):
        compiled = windfall.compile(lambda x, y, number, body=body: body(x, y, number) * 2)
        torch.testing.assert_close(compiled(x, y, good), body(x, y, good) * 2)
        assert not windfall.explanation(compiled).fallbacks
        with pytest.raises(RuntimeError, match="does not support") as refused:
            compiled(x, y, bad)
        with pytest.raises(RuntimeError) as eager:
            body(x, y, bad)
        assert str(refused.value) == str(eager.value)


def test_losses_of_two_dtypes_are_eagers() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4, dtype=torch.float64)
    for body in (F.huber_loss, F.binary_cross_entropy_with_logits, F.soft_margin_loss):
        result = windfall.compile(body)(x, y)
        assert result.dtype is body(x, y).dtype
        torch.testing.assert_close(result, body(x, y), rtol=0, atol=0)


@pytest.mark.parametrize("sizes", [(), (1,)])
def test_a_bias_of_no_rows_is_the_answer(sizes: Sizes) -> None:
    operands = torch.randn(sizes), torch.randn(0, 4), torch.randn(4)
    compiled = windfall.compile(lambda *given: torch.addmv(*given, beta=0.5) + 1)
    torch.testing.assert_close(compiled(*operands), torch.addmv(*operands, beta=0.5) + 1)
    assert not windfall.explanation(compiled).fallbacks


@pytest.mark.parametrize("sizes", [(2, 0, 5, 3), (2, 3, 0, 3), (0, 3, 4, 5)])
def test_images_of_nothing_lie_as_in_eager(sizes: Sizes) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float64, memory_format=torch.channels_last)

    x = torch.randn(sizes)
    assert windfall.compile(program)(x).stride() == program(x).stride()
