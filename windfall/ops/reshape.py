"""Reshaping: sizes with -1, strides that see the same memory with other sizes, and index maps.

Enters: sizes and strides. Leaves: sizes, strides, functions between indices. Invariant: elements
keep their row-major order.

    >>> reshaped_strides((4, 6), (6, 1), (2, 2, 6))
    (12, 6, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windfall.ir.dtype import contiguous_strides
from windfall.ir.loop import Index
from windfall.ir.symint import Size
from windfall.ops.layout import Sizes, differ, same, surely_same


def inferred_sizes(sizes: Sequence[Size], elements: Size) -> Sizes:
    """`sizes` with -1 replaced by what is left; eager's error if that does not fit."""
    known: Size = 1
    unknown = None
    for place, size in enumerate(sizes):
        if isinstance(size, int) and size == -1:
            if unknown is not None:
                raise RuntimeError("only one dimension can be inferred")
            unknown = place
        else:
            known = known * size
    if unknown is None:
        if differ(known, elements):
            raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {elements}")
        return tuple(sizes)
    if known == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    rest = elements // known
    if differ(rest * known, elements):
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {elements}")
    return tuple(rest if place == unknown else size for place, size in enumerate(sizes))


def reshaped_strides(sizes: Sizes, strides: Sizes, wanted: Sizes) -> Sizes | None:
    """Strides that see the same memory with other sizes, or None if there are none such."""
    if not sizes:
        return (1,) * len(wanted)
    if 0 in sizes:
        return strides if sizes == wanted else contiguous_strides(wanted)
    if strides == contiguous_strides(sizes):
        return contiguous_strides(wanted)
    result: list[Size] = [0] * len(wanted)
    place = len(wanted) - 1
    step, chunk, filled = strides[-1], 1, 1
    chunk_elements: Size = chunk
    view_elements: Size = filled
    for dim in range(len(sizes) - 1, -1, -1):
        chunk_elements = chunk_elements * sizes[dim]
        inside = chunk_elements * step
        ends = dim == 0 or (sizes[dim - 1] != 1 and not same(strides[dim - 1], inside))
        if not ends:
            continue
        while place >= 0 and (wanted[place] == 1 or not same(view_elements, chunk_elements)):
            fits = _divides(view_elements * wanted[place], chunk_elements)
            if not fits and not same(view_elements, chunk_elements):
                return None
            result[place] = view_elements * step
            view_elements = view_elements * wanted[place]
            place -= 1
        if not same(view_elements, chunk_elements):
            return None
        if dim > 0:
            step = strides[dim - 1]
            chunk_elements, view_elements = 1, 1
    return tuple(result) if place == -1 else None


def _divides(part: Size, whole: Size) -> bool:
    """False only where it is known that `part` cannot be a factor of `whole`."""
    if isinstance(part, int) and isinstance(whole, int):
        return part <= whole
    return True


def reshape_index(sizes: Sizes, wanted: Sizes) -> Callable[[Index], Index]:
    """From an index into `wanted` to the index into `sizes` of the same element in row-major
    order. Runs of dimensions with equal products are mapped on their own, so that most indices are
    passed on as they are."""
    runs = _matched_runs(sizes, wanted)

    def source(index: Index) -> Index:
        found: list[Size] = []
        for (first, last), (start, stop) in runs:
            inside = sizes[first:last]
            if stop - start == 1 and last - first == 1:
                found.append(index[start])
                continue
            flat: Size = 0
            for place in range(start, stop):
                flat = flat * wanted[place] + index[place]
            found.extend(_unflattened(flat, inside))
        return tuple(found)

    return source


def _unflattened(flat: Size, sizes: Sizes) -> list[Size]:
    """The index into `sizes` of the element at a row-major position."""
    result: list[Size] = []
    for place, size in enumerate(reversed(sizes)):
        if size == 1:
            result.append(0)
        elif place == len(sizes) - 1:
            result.append(flat)
        else:
            result.append(flat % size)
            flat = flat // size
    return result[::-1]


Run = tuple[tuple[int, int], tuple[int, int]]


def _matched_runs(sizes: Sizes, wanted: Sizes) -> list[Run]:
    """Cut both lists of sizes into runs with equal products, as short as possible."""
    runs: list[Run] = []
    first = start = last = stop = 0
    while last < len(sizes) or stop < len(wanted):
        have: Size = 1
        want: Size = 1
        if last < len(sizes):
            have, last = sizes[last], last + 1
        if stop < len(wanted):
            want, stop = wanted[stop], stop + 1
        while not surely_same(have, want) and (last < len(sizes) or stop < len(wanted)):
            grow = stop >= len(wanted) or (last < len(sizes) and _smaller(have, want))
            if grow:
                have, last = have * sizes[last], last + 1
            else:
                want, stop = want * wanted[stop], stop + 1
        runs.append(((first, last), (start, stop)))
        first, start = last, stop
    return runs


def _smaller(first: Size, second: Size) -> bool:
    if isinstance(first, int) and isinstance(second, int):
        return first < second
    return len(str(first)) <= len(str(second))  # either order ends at the same, or at the whole
