"""Where elements lie: broadcasting, and the strides that eager gives to results.

Enters: sizes and strides of operands. Leaves: sizes and strides of the result. Invariant: equal to
what torch's TensorIterator allocates: dense operands that agree keep their order of dimensions,
others are sorted by stride, the first operand that can tell deciding; in doubt row-major.

    >>> pointwise_layout((((2, 3), (1, 2)), ((2, 3), (1, 2))))
    ((2, 3), (1, 2))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.relation import assumptions, decide, known, questions, told
from windfall.ir.symint import Size, hint_of, reads_of

Sizes = tuple[Size, ...]
Layout = tuple[Sizes, Sizes]  # sizes, strides


Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(function: Function) -> Function:
    """A function of sizes that keeps its answers; not those that rest on an assumption, which must
    be made anew by each program."""
    answers: dict[Any, Any] = {}

    @wraps(function)
    def ask(*args: Any) -> Any:
        found = answers.get(args)
        if found is None:
            asked = questions()
            found = function(*args)
            if questions() == asked:
                if len(answers) >= _KEPT:
                    answers.clear()
                answers[args] = found
        return found

    return ask  # type: ignore[return-value]


_KEPT = 8192


def differ(first: Any, second: Any) -> bool:
    """Whether two sizes, or two tuples of sizes, are different; where that is not known, it is
    decided (`ir/relation.py`)."""
    if first == second:
        return False
    if isinstance(first, tuple) and isinstance(second, tuple):
        if len(first) != len(second):
            return True
        pairs = [(one, two) for one, two in zip(first, second, strict=True) if one is not two]
        return any(known("!=", one, two) for one, two in pairs) or any(
            decide("!=", one, two) for one, two in pairs
        )
    if isinstance(first, int) and isinstance(second, int):
        return True
    return decide("!=", first, second)


def same(first: Size, second: Size) -> bool:
    """Whether two sizes are equal as far as that is known, or may be assumed since they are equal
    now. (False decides nothing.)"""
    if surely_same(first, second):
        return True
    assumed = assumptions()
    if isinstance(first, int) and isinstance(second, int):
        return False
    if assumed is None or assumed.closed or reads_of(first, second):
        return False
    return hint_of(first) == hint_of(second) and decide("==", first, second)


def surely_same(first: Size, second: Size) -> bool:
    """Whether two sizes are known to be equal."""
    if first is second or first == second:
        return True
    if isinstance(first, int) and isinstance(second, int):
        return False
    return told("==", first, second) is True


def broadcast_sizes(first: Sizes, second: Sizes) -> Sizes:
    """The common shape of two operands, or eager's error."""
    if first == second:
        return first
    if len(first) < len(second):
        return _broadcast(first, second, swapped=True)
    return _broadcast(second, first, swapped=False)


def _broadcast(short: Sizes, long: Sizes, *, swapped: bool) -> Sizes:
    missing = len(long) - len(short)
    result = list(long)
    for position in range(len(long) - 1, missing - 1, -1):  # eager names the last that differs
        size, other = short[position - missing], long[position]
        if other == size or size == 1:
            continue
        if other != 1 and differ(other, size):
            a, b = (size, other) if swapped else (other, size)
            raise RuntimeError(
                f"The size of tensor a ({a}) must match the size of tensor b ({b}) at "
                f"non-singleton dimension {position}"
            )
        result[position] = size
    return tuple(result)


def channels_last_strides(sizes: Sizes) -> Sizes:
    """Strides with the channel dimension (1) innermost, for 4 or 5 dimensions."""
    strides = list(sizes)
    step: Size = 1
    for dim in (1, *range(len(sizes) - 1, 1, -1), 0):
        strides[dim] = step
        step = step * sizes[dim]  # by zero too, unlike row-major ones
    return tuple(strides)


def is_dense(sizes: Sizes, strides: Sizes, wanted: Sizes) -> bool:
    """Whether `strides` are `wanted`, dimensions of size 1 and empty tensors ignored."""
    if strides == wanted:
        return True
    apart = [
        (have, want)
        for size, have, want in zip(sizes, strides, wanted, strict=True)
        if size != 1 and have != want
    ]
    return not apart or not differ(*map(tuple, zip(*apart, strict=True)))


@remembered
def is_contiguous(sizes: Sizes, strides: Sizes) -> bool:
    """Row-major, dimensions of size 1 ignored; always true of an empty tensor."""
    return 0 in sizes or is_dense(sizes, strides, contiguous_strides(sizes))


@remembered
def is_channels_last(sizes: Sizes, strides: Sizes) -> bool:
    """Whether a 4-d tensor is stored with its channels innermost."""
    return len(sizes) == 4 and is_dense(sizes, strides, channels_last_strides(sizes))


@remembered
def is_non_overlapping_and_dense(sizes: Sizes, strides: Sizes) -> bool:
    """Whether the elements fill a range of memory, in whatever order of dimensions."""
    if is_contiguous(sizes, strides):
        return True
    pairs = [(stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    if any(stride == 0 for stride, _ in pairs):
        return False
    expected: Size = 1
    while pairs:
        found = next((pair for pair in pairs if pair[0] == expected), None)
        if found is None:
            return False
        pairs.remove(found)
        expected = expected * found[1]
    return True


def looks_channels_last(sizes: Sizes, strides: Sizes) -> bool:
    """Torch's guess of the memory format from strides alone (`suggest_memory_format`): true of 4-d
    and 5-d tensors whose channel stride is the smallest."""
    rank = len(sizes)
    if rank not in (4, 5) or strides[1] == 0:
        return False
    least: Size = 0
    for dim in (1, *range(rank - 1, 1, -1), 0):
        if sizes[dim] == 0 or smaller(strides[dim], least):
            return False
        # A size of 1 in the batch with the channels' stride means row-major, by torch's choice.
        if dim == 0 and least == strides[1]:
            return False
        least = strides[dim]
        if sizes[dim] != 1:
            least = least * sizes[dim]
    return True


def suggested_strides(type: TensorType, sizes: Sizes) -> Sizes:
    """Strides for a fresh tensor of `sizes`, in the memory format that `type` seems to have."""
    if len(sizes) in (4, 5) and looks_channels_last(type.sizes, type.strides):
        return channels_last_strides(sizes)
    return contiguous_strides(sizes)


@remembered
def pointwise_layout(operands: tuple[Layout, ...]) -> Layout:
    """Sizes and strides of the fresh result of a pointwise op over tensor operands (a Python
    number counts as an operand without dimensions)."""
    sizes, strides = operands[0]
    if all(operand == operands[0] for operand in operands):
        if strides == contiguous_strides(sizes):
            return sizes, strides
        same = True
    else:
        same = all(operand[0] == sizes for operand in operands)
        for operand in operands[1:]:
            sizes = broadcast_sizes(sizes, operand[0])
    if same:
        fast = _fast_strides(sizes, operands)
        if fast is not None:
            return sizes, fast
    return sizes, sorted_strides(
        sizes, [broadcast_strides(sizes, *operand) for operand in operands]
    )


def _fast_strides(sizes: Sizes, operands: Sequence[Layout]) -> Sizes | None:
    """Strides where every operand has the same sizes and the same dense layout."""
    if all(is_contiguous(*operand) for operand in operands):
        return contiguous_strides(sizes)
    if all(is_channels_last(*operand) for operand in operands):
        return channels_last_strides(sizes)
    first = operands[0]
    if all(operand == first for operand in operands) and is_non_overlapping_and_dense(*first):
        return first[1]
    return None


def broadcast_strides(result: Sizes, sizes: Sizes, strides: Sizes) -> Sizes:
    """Strides of an operand seen with the result's sizes: 0 where it is repeated."""
    missing = len(result) - len(sizes)
    return (0,) * missing + tuple(
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(sizes, strides, result[missing:], strict=True)
    )


def smaller(first: Size, second: Size) -> bool:
    """Whether the first is less than the second; decided where that is not known."""
    if isinstance(first, int) and isinstance(second, int):
        return first < second
    return decide("<", first, second)


def _out_of_order(inner: int, outer: int, sizes: Sizes, operands: Sequence[Sizes]) -> int:
    """Whether `inner` should lie outside `outer` (1), rightly lies inside (-1), or nobody says."""
    for strides in operands:
        first, second = strides[inner], strides[outer]
        if first == 0 or second == 0:
            continue
        if first == second:
            if smaller(sizes[outer], sizes[inner]):
                return 1
        elif smaller(first, second):
            return -1
        elif smaller(second, first):
            return 1
    return 0


def sorted_strides(sizes: Sizes, operands: Sequence[Sizes]) -> Sizes:
    """Dense strides whose order of dimensions follows the operands' strides (which already have
    the result's rank)."""
    rank = len(sizes)
    order = list(range(rank - 1, -1, -1))  # innermost first
    for start in range(1, rank):
        moving = start
        for place in range(start - 1, -1, -1):
            wrong = _out_of_order(order[place], order[moving], sizes, operands)
            if wrong > 0:
                order[place], order[moving] = order[moving], order[place]
                moving = place
            elif wrong < 0:
                break
    if order == list(range(rank - 1, -1, -1)):
        return contiguous_strides(sizes)
    return strides_in_order(sizes, order)


def strides_in_order(sizes: Sizes, order: Sequence[int]) -> Sizes:
    """Dense strides with the dimensions laid out in `order`, innermost first."""
    strides: list[Size] = [0] * len(sizes)
    step: Size = 1
    for dim in order:
        strides[dim] = step
        step = step * sizes[dim]
    return tuple(strides)


def preserved_strides(sizes: Sizes, strides: Sizes) -> Sizes:
    """What `empty_like` with `preserve_format` gives: the same strides if dense, else dense ones
    in the same order of dimensions."""
    if strides == contiguous_strides(sizes) or is_non_overlapping_and_dense(sizes, strides):
        return strides
    return sorted_strides(sizes, [strides])


def normalise_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front; eager's error if there is none such."""
    bound = rank or 1
    if -bound <= dim < bound:
        return dim + bound if dim < 0 else dim
    raise IndexError(
        f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
        f"but got {dim})"
    )


def normalise_dims(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, sorted; none given means all."""
    if not dims:
        return tuple(range(rank))
    found = [normalise_dim(dim, rank) for dim in dims]
    for dim in found:
        if found.count(dim) > 1:
            raise RuntimeError(f"dim {dim} appears multiple times in the list of dims")
    return tuple(sorted(found)) if rank else ()
