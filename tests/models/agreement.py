"""When a compiled model's answer is as good as eager's.

Enters: what eager answered, what windfall answered, and what eager answers in float64. An answer
agrees where it equals eager's to a relative 1e-4; or, where eager itself is off by more than that
from the float64 answer, where windfall is not further off than twice eager's own error. That error
is the largest of several runs of eager, with every weight moved by its last bit: beyond a relu or a
maximum, one bit may decide over whole gradients, and a single run shows only one of its throws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

RELATIVE = 1e-4
ABSOLUTE = 1e-5  # of the largest value of the tensor: a sum's error does not shrink with the sum
Values = Mapping[str, Tensor]
# More answers of eager, each from weights that differ in their last bit.
Others = Callable[[], Iterable[Values]]


def tensors(value: Any) -> dict[str, Tensor]:
    """Every tensor in a result, under the path that leads to it."""
    found: dict[str, Tensor] = {}
    if isinstance(value, Tensor):
        found[""] = value
    elif isinstance(value, Mapping | list | tuple):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in parts:
            found |= {f"[{key!r}]{path}": one for path, one in tensors(part).items()}
    else:
        assert value is None, f"a result holds {value!r}, which is not compared"
    return found


def assert_results_agree(actual: Any, expected: Any, exact: Any) -> None:
    """Structure, dtypes, strides and values of a whole result."""
    assert type(actual) is type(expected)
    ours, theirs, reference = tensors(actual), tensors(expected), tensors(exact)
    assert ours.keys() == theirs.keys()
    for path, one in ours.items():
        other = theirs[path]
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert one.requires_grad == other.requires_grad, f"result{path}"
    assert_values_agree(ours, theirs, reference)


def assert_values_agree(
    actual: Values, expected: Values, exact: Values, others: Others = tuple
) -> None:
    """All values; the message names every tensor that is off, by how much, and by how much eager
    is off there. The floor is of the largest value of all: where the true value is nought (the
    gradient of a key's bias), there is nothing to be relative to."""
    floor = 1e-7 * max((_largest(one) for one in exact.values()), default=0.0)
    unequal = [name for name in actual if not _equal(actual[name], expected[name], floor)]
    if not unequal:
        return
    eager = {name: _error(expected, exact, name) for name in unequal}
    ours = {name: _error(actual, exact, name) for name in unequal}
    if _worse(ours, eager, floor):
        for other in others():
            eager = {name: max(eager[name], _error(other, exact, name)) for name in unequal}
    wrong = _worse(ours, eager, floor)
    assert not wrong, "\n".join(wrong)


def _worse(ours: Mapping[str, float], eager: Mapping[str, float], floor: float) -> list[str]:
    return [
        f"{name or 'the result'}: off by {ours[name]:.2e}, eager by {eager[name]:.2e}"
        for name in ours
        if not ours[name] <= 2 * eager[name] + floor  # NaN is never below
    ]


def _equal(actual: Tensor, expected: Tensor, floor: float) -> bool:
    one, other = actual.detach(), expected.detach()
    bound = RELATIVE * other.abs() + ABSOLUTE * _largest(other) + floor
    return bool(((one - other).abs() <= bound).all())


def _error(values: Values, exact: Values, name: str) -> float:
    return _largest(values[name].detach() - exact[name].detach())


def _largest(values: Tensor) -> float:
    return float(values.detach().abs().max()) if values.numel() else 0.0
