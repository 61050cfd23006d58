"""How the tests of this room compare a record with eager: its shape rule, then its lowering."""

from __future__ import annotations

from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.evaluate import evaluate
from windfall.ops.registry import Op


def overload(op: Op) -> Any:
    """The `OpOverload` that a record names."""
    _, name, overload_name = op.name.split(".")
    return getattr(getattr(torch.ops.aten, name), overload_name)


def types_of(value: Any) -> Any:
    """`value` with `TensorType`s in place of tensors."""
    if isinstance(value, torch.Tensor):
        return TensorType.of(value).without_grad()
    if isinstance(value, (list, tuple)):
        return type(value)(types_of(each) for each in value)
    return value


def flat(value: Any) -> list[Any]:
    """The results of an op as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def describe(arguments: Any, keywords: Any) -> str:
    """Arguments, short enough for a failure message."""

    def one(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{TensorType.of(value)}{tuple(value.stride())}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(one, value)) + "]"
        return repr(value)

    return ", ".join([*map(one, arguments), *(f"{k}={one(v)}" for k, v in keywords.items())])


def eager(op: Op, arguments: Any, keywords: Any) -> Any:
    """Eager's answer, or the exception it raises."""
    try:
        with torch.no_grad():
            return overload(op)(*arguments, **keywords)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return error


def check_shape(op: Op, arguments: Any, keywords: Any, answer: Any) -> str | None:
    """What is wrong with the shape rule for these arguments, or None."""
    assert op.shape is not None
    types = types_of(tuple(arguments))
    try:
        found = op.shape(*types, **{k: types_of(v) for k, v in keywords.items()})
    except (RuntimeError, IndexError, NotImplementedError) as error:
        return None if isinstance(answer, Exception) else f"raises {error!r}"
    if isinstance(answer, Exception) or found is NotImplemented:
        return None  # a dtype or a value that only the kernel itself refuses
    found_list, real = flat(found), flat(answer)
    if len(found_list) != len(real):
        return f"{len(found_list)} results, eager {len(real)}"
    for place, (one, tensor) in enumerate(zip(found_list, real, strict=True)):
        if tensor is None or (one is None and tensor.numel() == 0):
            if one is not None:
                return f"result {place} is {one}, eager None"
            continue
        have = (one.dtype, tuple(one.sizes), tuple(one.strides))
        want = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        if have != want:
            return f"result {place} is {have}, eager {want}"
    return None


TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (2e-5, 5e-5),
    torch.bfloat16: (1.6e-2, 3e-2),
    torch.float16: (2e-3, 4e-3),
}


def tolerance(arguments: Any, result: torch.Tensor) -> tuple[float, float]:
    """As much as the least precise dtype among arguments and result deserves."""
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    found = [TOLERANCE.get(each.dtype, (0.0, 0.0)) for each in (*tensors, result)]
    if result.dtype not in TOLERANCE:
        return 0.0, 0.0
    return max(found)


# Ops of which eager's own answer for infinities is another on some machines: oneDNN's kernel for
# AVX-512 answers NaN for gelu(inf), ATen's inf.
OF_THE_MACHINE = ("aten.gelu.default",)


def without_the_machine(name: str, x: Any, eager: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """Eager's answer, but where it depends on the machine."""
    if name not in OF_THE_MACHINE:
        return eager
    return torch.where(x.isinf() & eager.isnan(), ours, eager)


def check_lowering(op: Op, arguments: Any, keywords: Any, answer: Any) -> str | None:
    """What is wrong with the lowering for these arguments, or None."""
    assert op.lower is not None
    found = evaluate(op.lower, *arguments, **keywords)
    if found is NotImplemented or isinstance(answer, Exception):
        return None
    for place, (one, tensor) in enumerate(zip(flat(found), flat(answer), strict=True)):
        if one is None or tensor is None:
            continue
        relative, absolute = tolerance(arguments, tensor)
        if one.dtype is not tensor.dtype or one.shape != tensor.shape:
            return f"result {place} is {one.dtype}{tuple(one.shape)}"
        if one.stride() != tensor.stride():
            return f"result {place} has strides {one.stride()}, eager {tensor.stride()}"
        tensor = without_the_machine(op.name, arguments[0], tensor, one)
        if not torch.allclose(one, tensor, relative, absolute, equal_nan=True):
            return f"result {place} is\n{one}\neager\n{tensor}"
    return None
