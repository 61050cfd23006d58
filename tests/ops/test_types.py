"""Promotion and layout against torch itself, on many mixes."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.relation import Assumptions
from windfall.ir.symint import evaluate, size_symbol, symbol
from windfall.ops.layout import (
    broadcast_sizes,
    differ,
    is_channels_last,
    is_contiguous,
    is_non_overlapping_and_dense,
    looks_channels_last,
    normalise_dim,
    preserved_strides,
)
from windfall.ops.promotion import common_dtype
from windfall.ops.registry import lookup

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
NUMBERS = (True, 3, 2.5, 1j)


def _type(dtype: torch.dtype, rank: int) -> TensorType:
    return TensorType.contiguous(dtype, (2,) * rank)


def test_promotion_of_tensors_is_torch_s() -> None:
    for first, second in itertools.product(DTYPES, DTYPES):
        for ranks in itertools.product((0, 1), repeat=2):
            real = torch.result_type(
                torch.empty((2,) * ranks[0], dtype=first),
                torch.empty((2,) * ranks[1], dtype=second),
            )
            ours = common_dtype((_type(first, ranks[0]), _type(second, ranks[1])))
            assert ours is real, (first, second, ranks)


def test_promotion_with_numbers_is_torch_s() -> None:
    for dtype, number, rank in itertools.product(DTYPES, NUMBERS, (0, 1)):
        real = torch.result_type(torch.empty((2,) * rank, dtype=dtype), number)
        assert common_dtype((_type(dtype, rank), number)) is real, (dtype, number, rank)


def test_numbers_follow_the_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert common_dtype((_type(torch.int64, 1), 1.5)) is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@st.composite
def tensors(draw: st.DrawFn, rank: int | None = None) -> torch.Tensor:
    """A tensor with permuted, stepped and repeated dimensions."""
    count = draw(st.integers(0, 4)) if rank is None else rank
    sizes = [draw(st.integers(0 if draw(st.booleans()) else 1, 3)) for _ in range(count)]
    steps = [draw(st.integers(1, 2)) for _ in range(count)]
    order = draw(st.permutations(range(count)))
    base = torch.zeros([size * step for size, step in zip(sizes, steps, strict=True)])
    for dim, step in enumerate(steps):
        base = base[(slice(None),) * dim + (slice(None, None, step),)]
    base = base.permute(*order) if count else base
    repeated = [
        draw(st.integers(2, 3)) if size == 1 and draw(st.booleans()) else size
        for size in base.shape
    ]
    return base.expand(repeated) if count else base


@settings(max_examples=300, deadline=None)
@given(tensors())
def test_layout_questions_are_answered_as_torch_does(tensor: torch.Tensor) -> None:
    sizes, strides = tuple(tensor.shape), tensor.stride()
    assert is_contiguous(sizes, strides) == tensor.is_contiguous()
    assert preserved_strides(sizes, strides) == torch.empty_like(tensor).stride()
    dense = (
        torch.empty_strided(sizes, strides).is_non_overlapping_and_dense()
        if hasattr(tensor, "is_non_overlapping_and_dense")
        else None
    )
    if dense is not None:
        assert is_non_overlapping_and_dense(sizes, strides) == dense
    if tensor.dim() == 4 and 0 not in sizes:
        assert is_channels_last(sizes, strides) == tensor.is_contiguous(
            memory_format=torch.channels_last
        )


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_strides_of_pointwise_results_are_eager_s(data: st.DataObject) -> None:
    first, second = data.draw(tensors()), data.draw(tensors())
    record = lookup("aten.add.Tensor")
    assert record.shape is not None
    types = [TensorType.of(each) for each in (first, second)]
    try:
        real = first + second
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as ours:
            record.shape(*types)
        assert str(ours.value) == str(error)
        return
    found = record.shape(*types)
    assert (found.sizes, found.strides) == (tuple(real.shape), real.stride())


@settings(max_examples=200, deadline=None)
@given(tensors(rank=4))
def test_memory_format_is_guessed_as_in_cat(tensor: torch.Tensor) -> None:
    """`cat` of one kind of tensors shows what `suggest_memory_format` says of them."""
    if 0 in tensor.shape:
        return
    joined = torch.cat([tensor, tensor])
    guess = looks_channels_last(tuple(tensor.shape), tensor.stride())
    record = lookup("aten.cat.default")
    assert record.shape is not None
    found = record.shape([TensorType.of(tensor)] * 2)
    assert found.strides == joined.stride(), guess


def test_symbolic_sizes_pass_through_rules() -> None:
    size = symbol("s0", 2, None)
    x = TensorType.contiguous(torch.float32, (size, 4))
    for name, arguments, sizes in (
        ("aten.add.Tensor", (x, TensorType.contiguous(torch.float32, (4,))), (7, 4)),
        ("aten.sum.dim_IntList", (x, [1]), (7,)),
        ("aten.mm.default", (x, TensorType.contiguous(torch.float32, (4, 3))), (7, 3)),
        ("aten.view.default", (x, [-1]), (28,)),
        ("aten.permute.default", (x, [1, 0]), (4, 7)),
        ("aten.cat.default", ([x, x], 0), (14, 4)),
        ("aten.slice.Tensor", (x, 0, 1, 2**63 - 1), (6, 4)),
    ):
        record = lookup(name)
        assert record.shape is not None
        found = record.shape(*arguments)
        assert tuple(evaluate(each, {"s0": 7}) for each in found.sizes) == sizes, name


def test_sizes_that_may_be_equal_are_decided_by_assumption_alone() -> None:
    size = size_symbol("s0", 3)
    assert differ(2, 3) and not differ(size, size) and differ(size, 1)
    with pytest.raises(Specialise):
        differ(size, 3)
    with pytest.raises(Specialise):
        broadcast_sizes((size, 4), (3, 4))
    with Assumptions() as assumed:
        assert broadcast_sizes((size, 4), (3, 4)) == (3, 4)
        assert not differ(size, 3)
    assert [str(one) for one in assumed.relations] == ["s0 == 3"]
    assert broadcast_sizes((size, 4), (1, 4)) == (size, 4)


def test_dimensions_out_of_range_have_eager_s_text() -> None:
    with pytest.raises(IndexError) as real:
        torch.zeros(2, 3).sum(5)
    with pytest.raises(IndexError) as ours:
        normalise_dim(5, 2)
    assert str(ours.value) == str(real.value)


@pytest.mark.parametrize(
    ("name", "call", "types"),
    [
        ("aten.mm.default", torch.mm, ((2, 3), (4, 5))),
        ("aten.bmm.default", torch.bmm, ((2, 3, 4), (2, 3, 4))),
        ("aten.add.Tensor", torch.add, ((2, 3), (4,))),
        ("aten.dot.default", torch.dot, ((2,), (3,))),
        ("aten.mv.default", torch.mv, ((2, 3), (4,))),
    ],
)
def test_errors_have_eager_s_text(
    name: str, call: object, types: tuple[tuple[int, ...], ...]
) -> None:
    record = lookup(name)
    assert record.shape is not None and callable(call)
    with pytest.raises(RuntimeError) as real:
        call(*(torch.zeros(sizes) for sizes in types))
    with pytest.raises(RuntimeError) as ours:
        record.shape(*(TensorType.contiguous(torch.float32, sizes) for sizes in types))
    assert str(ours.value) == str(real.value)
