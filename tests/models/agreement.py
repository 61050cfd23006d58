"""When a compiled model's answer is as good as eager's.

Enters: what eager answered, what windfall answered, and what eager answers in float64. An answer
agrees where it equals eager's to a relative 1e-4; or, where eager itself is off by more than that
from the float64 answer, where windfall is not further off than twice eager's own error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

RELATIVE = 1e-4
ABSOLUTE = 1e-5  # of the largest value of the tensor: a sum's error does not shrink with the sum
Values = Mapping[str, Tensor]


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
    wrong = disagreements(ours, theirs, reference)
    assert not wrong, "\n".join(wrong)


def disagreements(actual: Values, expected: Values, exact: Values) -> list[str]:
    """Every tensor that is off, by how much, and by how much eager is off there. The floor is of
    the largest value of all: where the true value is nought (the gradient of a key's bias), there
    is nothing to be relative to."""
    floor = 1e-7 * max((_largest(one) for one in exact.values()), default=0.0)
    wrong = []
    for name, one in actual.items():
        if _equal(one, expected[name], floor):
            continue
        ours = _largest(one.detach() - exact[name].detach())
        eager = _largest(expected[name].detach() - exact[name].detach())
        if not ours <= 2 * eager + floor:  # NaN is never below
            wrong.append(f"{name or 'the result'}: off by {ours:.2e}, eager by {eager:.2e}")
    return wrong


def relative_error(values: Values, exact: Values) -> float:
    """How far off the worst of all tensors is, each measured as a whole (root of squares)."""
    pairs = [(values[name].detach(), exact[name].detach()) for name in exact]
    floor = 1e-7 * max(float(truth.norm()) for _, truth in pairs)
    return max(float((one - truth).norm()) / (float(truth.norm()) + floor) for one, truth in pairs)


def _equal(actual: Tensor, expected: Tensor, floor: float) -> bool:
    one, other = actual.detach(), expected.detach()
    bound = RELATIVE * other.abs() + ABSOLUTE * _largest(other) + floor
    return bool(((one - other).abs() <= bound).all())


def _largest(values: Tensor) -> float:
    return float(values.detach().abs().max()) if values.numel() else 0.0
