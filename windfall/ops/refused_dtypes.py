"""Dtypes that eager's kernels refuse, and sizes of calls about nothing: eager itself is asked.

Enters: an ATen overload and its arguments as types. Leaves: the exception that eager raises of
tensors like these, if it does. Shape rules and meta kernels take dtypes that the kernels of the CPU
do not (`"bitwise_and_cpu" not implemented for 'Float'`); a call whose result is empty, or that
nobody reads, would then answer in silence. Dtypes are asked about once for each op. Invariant:
nothing of the user's is read or written, no random number is drawn, no operator of the user's runs;
refusing too much is no harm, for the call is then made natively.

    refuse(torch.ops.aten.bitwise_and.Scalar, [TensorType(torch.float32, (0,), (1,)), 1], {})
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from windfall.ir.dtype import CPU, TensorType
from windfall.ir.symint import Expression, hint_of, reads_of
from windfall.ops.fake_tensor import FakeTensor, typed
from windfall.ops.number_ranges import dtype_beside, holds
from windfall.ops.registry import lookup
from windfall.ops.schema import Plan, functional_name

LARGE = 4096  # elements of one operand: larger ones are asked about by a few elements
_OF_KERNELS = re.compile(r"not implemented for '|be cast to")
_OF_DTYPES = re.compile(
    r"dtype|scalar type|must not be None|not supported|not support|be cast to|not implemented"
    r"|\b(bool|boolean|complex|integral|integer|floating|float|half|long)\b",
    re.IGNORECASE,
)
# Of those whose names say that they are torch's own.
_ASKED = (
    "_softmax", "_log_softmax", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
    "_fft_r2c", "_fft_c2c", "_fft_c2r",
)  # fmt: skip
_ANYTHING = re.compile("")
_FINE: set[Any] = set()


def refuse(func: Any, types: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise what eager raises of operands of these dtypes."""
    key = (func, *map(_kind, types), *map(_kind, named.values()))
    if key in _FINE:
        return
    answers = [True]
    if _is_asked(func):
        ways = _ways((*types, *named.values()))
        answers = [_takes(func, types, named, sizes_of, words) for sizes_of, words in ways]
    if all(answers):
        _FINE.add(key)


def refuse_numbers(func: Any, plan: Plan, types: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise what eager raises of constants that the dtype beside them does not hold: a kernel of
    ours would wrap them, or make them infinite. (`number_ranges.py` is about those that vary.)"""
    # The dispatcher leaves out what is the default.
    given = [
        types[position]
        if position < len(types)
        else named.get(plan.names[position], plan.defaults[position])
        for position in plan.numbers
    ]
    numbers = [each for one in given for each in (one if isinstance(one, list) else (one,))]
    if all(one is None or holds(dtype_beside(plan, types, named), one) for one in numbers):
        return
    if not _is_asked(func) and "_foreach_" not in str(func):
        return
    for sizes_of, _ in _ways((*types, *named.values())):
        _takes(func, types, named, sizes_of, _OF_NUMBERS)
    if "arange" not in str(func) and not any(_tensors((*types, *named.values()))):
        # `torch.full` and its like: of few elements, and not of one, which it does not look at.
        small = [[2] if isinstance(one, list | tuple) else one for one in types]
        _takes(func, small, named, _plain, _OF_NUMBERS)


_OF_NUMBERS = re.compile("without overflow|unsigned type")


def refuse_empty(func: Any, args: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
    """Raise what eager raises of arguments of these sizes, if one of them or the result is empty:
    such a call is not made, as there is nothing to compute. (What refuses data is called; so is
    what does the same in place, or into `out`.)"""
    if not (_is_empty(args) or _is_empty((result,))):
        return
    if not _is_asked(func) or lookup(func).refuses or lookup(functional_name(func)).refuses:
        return
    types, by_name = typed(list(args)), {name: typed(one) for name, one in named.items()}
    tensors = list(_tensors((*types, *by_name.values())))
    if tensors and all(one.device == CPU and _count(one) <= LARGE for one in tensors):
        _takes(func, types, by_name, _plain, _ANYTHING)


def _is_empty(values: Sequence[Any]) -> bool:
    """Whether a fake among them, or in a list of them, has no elements."""
    for one in values:
        kind = one.__class__
        if kind is FakeTensor:
            if 0 in one._fake_type.sizes:
                return True
        elif kind in (list, tuple) and _is_empty(one):
            return True
    return False


def _kind(value: Any) -> Any:
    kind = value.__class__
    if kind is TensorType:
        return value.dtype
    if kind is torch.dtype:
        return value, kind
    return tuple(map(_kind, value)) if kind is list else kind


def _is_asked(func: Any) -> bool:
    schema = func._schema.name
    namespace, _, name = schema.partition("::")
    own = name.startswith("_") and name not in _ASKED and not name.endswith("__")
    op = lookup(func)
    return (
        namespace == "aten"
        and not own
        # A view has no kernel: our rule alone says what eager says.
        and not (op.view and op.shape is not None)
        and "backward" not in name
        and name not in ("copy_", "copy")  # warns, once
        and torch.Tag.nondeterministic_seeded not in func.tags
    )


Sizes = Any


def _ways(arguments: Sequence[Any]) -> Iterator[tuple[Sizes, re.Pattern[str]]]:
    """With which sizes eager is asked, and which of its words count then. With sizes that are not
    the program's, much may be wrong with them."""
    tensors = list(_tensors(arguments))
    if not tensors or any(one.device != CPU for one in tensors):
        return
    counts = [_count(one) for one in tensors]
    if all(count <= LARGE for count in counts):
        yield _plain, _OF_DTYPES
    if any(count in range(1, LARGE + 1) for count in counts):
        return
    # Two, not one, in each dimension: the variance of one element is a warning of its own.
    yield lambda type: (2,) * type.rank, _OF_KERNELS


def _tensors(value: Any) -> Iterator[TensorType]:
    if isinstance(value, TensorType):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _count(type: TensorType) -> int:
    """How many elements it has; many, where a size is read from data and so not known."""
    if reads_of(*type.sizes):
        return LARGE + 1
    return math.prod(_plain(type))


def _plain(type: TensorType) -> tuple[int, ...]:
    return tuple(map(hint_of, type.sizes))


def _sample(value: Any, sizes_of: Sizes) -> Any:
    """A tensor of this dtype; integers are 1, which is no index out of bounds of most operands."""
    if isinstance(value, TensorType):
        return torch.ones(sizes_of(value), dtype=value.dtype)
    if isinstance(value, list | tuple):
        return [_sample(one, sizes_of) for one in value]
    if isinstance(value, Expression):
        return 1 if reads_of(value) else hint_of(value)
    return value


def _takes(
    func: Any,
    types: Sequence[Any],
    named: Mapping[str, Any],
    sizes_of: Sizes,
    words: re.Pattern[str],
) -> bool:
    """Whether eager answers; what it raises of dtypes is raised. (Other faults may be those of
    values or sizes.)"""
    arguments = [_sample(one, sizes_of) for one in types]
    keywords = {name: _sample(one, sizes_of) for name, one in named.items()}
    try:
        with torch.no_grad():
            func(*arguments, **keywords)
    except Exception as error:
        if words.search(str(error)):
            raise
        return False
    return True
