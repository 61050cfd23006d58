"""Matrix products, lowered to the native entry `gemm` and pointwise work around it.

Enters: nothing. Leaves: records in the registry. Invariant: operands keep their strides (a
transposed weight is not copied); a bias is added pointwise afterwards, so that it fuses with what
follows; dtypes that `gemm` does not take are left to ATen.

`native_call("gemm", (a, b), (result,), attributes={"alpha": 1.0})`: 2-d operands, or 3-d ones with
equal batch sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.folding import can_lower, fold, fresh, listed, op, reading, stored
from windfall.ops.layout import differ
from windfall.ops.pointwise_rule import broadcast_places
from windfall.ops.promotion import FLOATS, category, compute_dtype
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

GEMM_DTYPES = (torch.float32, torch.float64)
NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long",
    torch.int32: "int",
    torch.bool: "bool",
}


def _same_dtype(first: TensorType, second: TensorType) -> None:
    if first.dtype is not second.dtype:
        names = [NAMES.get(each.dtype, str(each.dtype)) for each in (first, second)]
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}"
        )


def _mm_shape(a: TensorType, b: TensorType) -> TensorType:
    for name, each in (("self", a), ("mat2", b)):
        if each.rank != 2:
            raise RuntimeError(f"{name} must be a matrix")
    if differ(a.sizes[1], b.sizes[0]):
        raise RuntimeError(
            f"{_name_before()}mat1 and mat2 shapes cannot be multiplied ({a.sizes[0]}x{a.sizes[1]} "
            f"and {b.sizes[0]}x{b.sizes[1]})"
        )
    _same_dtype(a, b)
    return fresh(a.dtype, (a.sizes[0], b.sizes[1]))


@functools.cache
def _name_before() -> str:
    """What this torch says before that sentence: from 2.15 on, the op's name."""
    try:
        torch.mm(torch.empty(1, 2, device="cpu"), torch.empty(3, 1, device="cpu"))
    except RuntimeError as error:
        return str(error).partition("mat1 ")[0]
    return ""


def _bmm_shape(a: TensorType, b: TensorType) -> TensorType:
    for name, each in (("batch1", a), ("batch2", b)):
        if each.rank != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    if differ((a.sizes[0], a.sizes[2]), b.sizes[:2]):
        wanted = f"[{a.sizes[0]}, {a.sizes[2]}]"
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"{wanted} but got: [{b.sizes[0]}, {b.sizes[1]}]."
        )
    # Eager compares the dtypes where it multiplies; of no elements it makes what `b` is.
    return fresh(b.dtype, (a.sizes[0], a.sizes[1], b.sizes[2]))


def _gemm(builder: Builder, a: Lazy, b: Lazy, result: TensorType, alpha: float = 1.0) -> Any:
    if a.type.dtype not in GEMM_DTYPES or b.type.dtype is not a.type.dtype:
        return NotImplemented
    return builder.native_call("gemm", (a, b), (result,), attributes={"alpha": float(alpha)})[0]


def _mm(builder: Builder, a: Lazy, b: Lazy) -> Any:
    return _gemm(builder, a, b, _mm_shape(a.type, b.type))


def _bmm(builder: Builder, a: Lazy, b: Lazy) -> Any:
    return _gemm(builder, a, b, _bmm_shape(a.type, b.type))


def _expandable(bias: TensorType, sizes: tuple[Size, ...]) -> None:
    """Eager's error where a bias cannot be repeated to `sizes`."""
    missing = len(sizes) - bias.rank
    if missing < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(sizes)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({bias.rank})"
        )
    for place, size in enumerate(bias.sizes, missing):
        if size != 1 and differ(size, sizes[place]):
            raise RuntimeError(
                f"The expanded size of the tensor ({sizes[place]}) must match the existing size "
                f"({size}) at non-singleton dimension {place}.  Target sizes: {list(sizes)}.  "
                f"Tensor sizes: {list(bias.sizes)}"
            )


def _addmm_shape(
    bias: TensorType, a: TensorType, b: TensorType, *, beta: Any = 1, alpha: Any = 1
) -> TensorType:
    if bias.dtype is not a.dtype:
        raise RuntimeError(
            "self and mat2 must have the same dtype, but got "
            f"{NAMES.get(bias.dtype, bias.dtype)} and "
            f"{NAMES.get(b.dtype, b.dtype)}"
        )
    result = _mm_shape(a, b)
    _expandable(bias, result.sizes)
    return result


def _baddbmm_shape(
    bias: TensorType, a: TensorType, b: TensorType, *, beta: Any = 1, alpha: Any = 1
) -> TensorType:
    result = _bmm_shape(a, b)
    _expandable(bias, result.sizes)
    return result


def _biased(builder: Builder, product: Any, bias: Lazy, beta: Any, result: TensorType) -> Any:
    """The product plus `beta` times the bias, pointwise; a bias times 0 is not read (NaN or "
    "not)."""
    if product is NotImplemented or beta == 0:
        return product
    places = broadcast_places(bias.type.sizes, result.rank)

    def at(index: Index) -> Term:
        own = tuple([0 if place is None else index[place] for place in places])
        added = Term(builder, bias.at(own))
        return Term(builder, product.at(index)) + (added if beta == 1 else added * beta)

    return stored(builder, result, at)


def _addmm(builder: Builder, bias: Lazy, a: Lazy, b: Lazy, *, beta: Any = 1, alpha: Any = 1) -> Any:
    result = _addmm_shape(bias.type, a.type, b.type)
    return _biased(builder, _gemm(builder, a, b, result, alpha), bias, beta, result)


def _baddbmm(
    builder: Builder, bias: Lazy, a: Lazy, b: Lazy, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    result = _baddbmm_shape(bias.type, a.type, b.type)
    if bias.type.dtype is not a.type.dtype:
        return NotImplemented
    return _biased(builder, _gemm(builder, a, b, result, alpha), bias, beta, result)


# -------------------------------------------------------------------------------- matrix and vector


def _mv_shape(matrix: TensorType, vector: TensorType) -> TensorType:
    if matrix.rank != 2 or vector.rank != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got 1, {matrix.rank}, {vector.rank}"
        )
    if differ(matrix.sizes[1], vector.sizes[0]):
        raise RuntimeError(
            f"size mismatch, got input ({matrix.sizes[0]}), mat "
            f"({matrix.sizes[0]}x{matrix.sizes[1]}), "
            f"vec ({vector.sizes[0]})"
        )
    return fresh(matrix.dtype, (matrix.sizes[0],))


def _mv(builder: Builder, matrix: Lazy, vector: Lazy) -> Any:
    result = _mv_shape(matrix.type, vector.type)
    if not can_lower(matrix, vector) or category(result.dtype) < 1:
        return NotImplemented
    dtype = compute_dtype(result.dtype)
    left, right = reading(builder, matrix, dtype), reading(builder, vector, dtype)
    total = fold(
        builder,
        "sum",
        matrix.type.sizes,
        (1,),
        lambda index: left(index) * right(index[1:]),
    )
    return stored(builder, result, lambda index: total((index[0], 0)))


def _addmv_shape(
    bias: TensorType, matrix: TensorType, vector: TensorType, *, beta: Any = 1, alpha: Any = 1
) -> TensorType:
    if matrix.rank != 2 or vector.rank != 1 or bias.rank > 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {bias.rank}, {matrix.rank}, {vector.rank}"
        )
    rows, columns = matrix.sizes
    count: Size = bias.sizes[0] if bias.rank else 1
    if differ((columns,), vector.sizes) or (count != 1 and differ(rows, count)):
        raise RuntimeError(
            f"size mismatch, got input ({count}), mat ({rows}x{columns}), vec ({vector.sizes[0]})"
        )
    # Without a product the bias stays alone, in its own sizes.
    return fresh(matrix.dtype, bias.sizes if beta != 0 and 0 in matrix.sizes else (rows,))


def _addmv(
    builder: Builder, bias: Lazy, matrix: Lazy, vector: Lazy, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    if 0 in matrix.type.sizes:
        return NotImplemented
    if bias.type.dtype is not matrix.type.dtype or matrix.type.dtype not in FLOATS:
        return NotImplemented
    product = _mv(builder, matrix, vector)
    if alpha != 1:
        whole = product
        product = stored(builder, whole.type, lambda index: Term(builder, whole.at(index)) * alpha)
    return _biased(builder, product, bias, beta, _mv_shape(matrix.type, vector.type))


def _dot_shape(a: TensorType, b: TensorType) -> TensorType:
    if a.rank != 1 or b.rank != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.rank}D and {b.rank}D tensors")
    if a.dtype is not b.dtype:
        names = [NAMES.get(each.dtype, str(each.dtype)).capitalize() for each in (a, b)]
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {names[0]} and {names[1]}"
        )
    if differ(a.sizes, b.sizes):
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a.sizes[0]}] and src [{b.sizes[0]}] "
            "to have "
            f"the same number of elements, but got {a.sizes[0]} and {b.sizes[0]} elements "
            "respectively"
        )
    return fresh(a.dtype, ())


def _dot(builder: Builder, a: Lazy, b: Lazy) -> Any:
    result = _dot_shape(a.type, b.type)
    if not can_lower(a, b) or category(result.dtype) < 1:
        return NotImplemented
    dtype = compute_dtype(result.dtype)
    left, right = reading(builder, a, dtype), reading(builder, b, dtype)
    total = fold(builder, "sum", a.type.sizes, (0,), lambda index: left(index) * right(index))
    return stored(builder, result, lambda index: total((0,)))


def _addr_shape(
    bias: TensorType, a: TensorType, b: TensorType, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    if bias.dtype is not a.dtype or a.dtype is not b.dtype or a.rank != 1 or b.rank != 1:
        return NotImplemented
    sizes = (a.sizes[0], b.sizes[0])
    _expandable(bias, sizes)
    return fresh(a.dtype, sizes)


_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)
_matrices: list[Callable[[], Sample]] = [
    lambda: ((make((3, 4)), make((4, 5))), {}),
    lambda: ((make((4, 3)).t(), make((5, 4)).t()), {}),
    lambda: ((make((3, 0)), make((0, 5))), {}),
    lambda: ((make((0, 4)), make((4, 5))), {}),
    lambda: ((make((3, 8))[:, ::2], make((4, 5))), {}),
    *(lambda dtype=dtype: ((make((3, 4), dtype), make((4, 5), dtype)), {}) for dtype in _DTYPES),
]
_batches: list[Callable[[], Sample]] = [
    lambda: ((make((2, 3, 4)), make((2, 4, 5))), {}),
    lambda: ((make((2, 4, 3)).transpose(1, 2), make((2, 5, 4)).transpose(1, 2)), {}),
    lambda: ((make((1, 3, 4)).expand(2, 3, 4), make((2, 4, 5))), {}),
    *(
        lambda dtype=dtype: ((make((2, 3, 4), dtype), make((2, 4, 5), dtype)), {})
        for dtype in _DTYPES
    ),
]
op("mm.default", _mm_shape, _mm, listed(*_matrices), from_memory=True)
_no_products: list[Callable[[], Sample]] = [
    lambda: ((make((2, 3, 0)), make((2, 0, 4), torch.float64)), {}),
    lambda: ((make((0, 3, 2), torch.float64), make((0, 2, 4))), {}),
]
op("bmm.default", _bmm_shape, _bmm, listed(*_batches, *_no_products), from_memory=True)
# The bias is not read where `beta` is 0.
op(
    "addmm.default",
    _addmm_shape,
    _addmm,
    listed(
        lambda: ((make((5,)), make((3, 4)), make((5, 4)).t()), {}),
        lambda: ((make((3, 1)), make((3, 4)), make((4, 5))), {"beta": 0.5, "alpha": 2}),
        lambda: ((make(()), make((3, 4)), make((4, 5))), {}),
        lambda: ((make((3, 5)) * float("nan"), make((3, 4)), make((4, 5))), {"beta": 0}),
        lambda: ((make((5,)), make((3, 0)), make((0, 5))), {}),
        lambda: (
            (make((5,), torch.float64), make((3, 4), torch.float64), make((4, 5), torch.float64)),
            {},
        ),
    ),
    reads=(1, 2),
    from_memory=True,
)
op(
    "baddbmm.default",
    _baddbmm_shape,
    _baddbmm,
    listed(
        lambda: ((make((2, 3, 5)), make((2, 3, 4)), make((2, 4, 5))), {"beta": 0.5, "alpha": 2}),
        lambda: ((make((5,)), make((2, 3, 4)), make((2, 4, 5))), {}),
    ),
    reads=(1, 2),
    from_memory=True,
)
_vectors: list[Callable[[], Sample]] = [
    lambda: ((make((3, 4)), make((4,))), {}),
    lambda: ((make((4, 3)).t(), make((8,))[::2]), {}),
    lambda: ((make((3, 4), torch.int64), make((4,), torch.int64)), {}),
]
op("mv.default", _mv_shape, _mv, listed(*_vectors))
op(
    "addmv.default",
    _addmv_shape,
    _addmv,
    listed(
        lambda: ((make((3,)), make((3, 4)), make((4,))), {"beta": 0.5, "alpha": 2}),
        lambda: ((make(()), make((3, 4)), make((4,))), {}),
        lambda: ((make((1,)), make((0, 4)), make((4,))), {}),
        lambda: ((make((1,)), make((0, 4)), make((4,))), {"beta": 0}),
        lambda: ((make(()), make((3, 0)), make((0,))), {}),
    ),
    reads=(1, 2),
)
op(
    "dot.default",
    _dot_shape,
    _dot,
    listed(
        lambda: ((make((4,)), make((8,))[::2]), {}),
        lambda: ((make((4,), torch.int64), make((4,), torch.int64)), {}),
        lambda: ((make((0,)), make((0,))), {}),
    ),
)
op(
    "vdot.default",
    _dot_shape,
    lambda builder, a, b: _dot(builder, a, b),
    listed(lambda: ((make((4,)), make((4,))), {})),
)
op("addr.default", _addr_shape, None, listed(lambda: ((make((3, 4)), make((3,)), make((4,))), {})))
