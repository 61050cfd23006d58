"""How two answers differ: values, dtypes, sizes, strides, and whether they need gradients.

Enters: what eager answered and what compiled code answered. Leaves: lines, one for each difference,
with the path to it; none: they agree. Invariant: whole numbers, truths and texts agree exactly;
floating numbers as closely as another order of the same operations can be expected to: by their
dtype, relative to the element and to the largest one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

# By dtype: how far an element may be off, relative to itself, and to the largest one (or to 1: what
# is left where large terms cancel out, such as the gradient of a bias before a norm, is noise).
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (5e-4, 2e-5),
    torch.float16: (1e-2, 4e-3),
    torch.bfloat16: (5e-2, 2e-2),
    torch.complex64: (5e-4, 2e-5),
    torch.complex128: (1e-7, 1e-9),
}


def differences(expected: Any, actual: Any, path: str = "result") -> Iterator[str]:
    """Each difference, told."""
    if isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor):
        yield from _of_tensors(expected, actual, path)
    elif type(expected) is not type(actual):
        yield f"{path} is {_kind(actual)}, eager's is {_kind(expected)}"
    elif isinstance(expected, list | tuple):
        if len(expected) != len(actual):
            yield f"{path} has {len(actual)} elements, eager's has {len(expected)}"
            return
        for at, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(one, other, f"{path}[{at}]")
    elif isinstance(expected, Mapping):
        yield from _of_mappings(expected, actual, path)
    elif dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            one, other = (getattr(each, field.name, None) for each in (expected, actual))
            yield from differences(one, other, f"{path}.{field.name}")
    elif not _same_plain(expected, actual):
        yield f"{path} is {actual!r}, eager's is {expected!r}"


def _same_plain(expected: Any, actual: Any) -> bool:
    """Of two objects of one class: numbers and texts are compared, others count as the same."""
    if not isinstance(expected, bool | int | str | bytes | complex | float):
        return True
    if expected == actual or (expected != expected and actual != actual):
        return True
    return isinstance(expected, float) and abs(expected - actual) <= 1e-5 * abs(expected)


def _of_mappings(expected: Mapping[Any, Any], actual: Any, path: str) -> Iterator[str]:
    if list(expected) != list(actual):
        yield f"{path} has the keys {list(actual)}, eager's has {list(expected)}"
        return
    for key in expected:
        yield from differences(expected[key], actual[key], f"{path}[{key!r}]")


def _kind(value: Any) -> str:
    return "None" if value is None else f"of {type(value).__name__}"


def _of_tensors(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if not (isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor)):
        yield f"{path} is {_kind(actual)}, eager's is {_kind(expected)}"
        return
    for name in ("dtype", "shape", "device", "layout", "requires_grad"):
        one, other = getattr(expected, name), getattr(actual, name)
        if one != other:
            yield f"{path}.{name} is {other}, eager's is {one}"
            if name in ("dtype", "shape", "layout"):
                return
    if expected.layout == torch.strided and _strides(expected) != _strides(actual):
        yield f"{path}.stride() is {actual.stride()}, eager's is {expected.stride()}"
    told = _of_values(expected.detach(), actual.detach())
    if told:
        yield f"{path}: {told}"


def _strides(value: torch.Tensor) -> tuple[int, ...]:
    """Those that can be told: of dimensions with more than one element."""
    if not value.numel():
        return ()
    pairs = zip(value.shape, value.stride(), strict=True)
    return tuple(stride for size, stride in pairs if size > 1)


def _of_values(expected: torch.Tensor, actual: torch.Tensor) -> str:
    if expected.layout != torch.strided:
        expected, actual = expected.to_dense(), actual.to_dense()
    if not expected.numel():
        return ""
    tolerance = TOLERANCES.get(expected.dtype)
    if tolerance is None:
        wrong = expected != actual
    else:
        wide = torch.complex128 if expected.is_complex() else torch.float64
        expected, actual = expected.to(wide), actual.to(wide)
        finite = torch.isfinite(expected)
        largest = expected[finite].abs().max().item() if bool(finite.any()) else 0.0
        allowed = tolerance[0] * expected.abs() + tolerance[1] * max(largest, 1.0)
        off = (expected - actual).abs()
        equal = (expected == actual) | (expected.isnan() & actual.isnan())
        wrong = ~(equal | (off <= allowed))
    if not bool(wrong.any()):
        return ""
    at = tuple(int(one) for one in wrong.nonzero()[0])
    count = int(wrong.sum())
    return (
        f"{count} of {wrong.numel()} elements differ; the first at {list(at)}: "
        f"{actual[at].item()!r}, eager has {expected[at].item()!r}"
    )
