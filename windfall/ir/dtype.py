"""What a tensor looks like from outside: element type, sizes, strides.

Enters: a real or fake tensor. Leaves: a `TensorType`, the only description of a tensor that
crosses rooms. Invariant: a `TensorType` holds no tensor, so no record keeps user data alive.

    >>> TensorType.contiguous(torch.float32, (2, 3)).strides
    (3, 1)
"""

from __future__ import annotations

from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.ir.symint import Expression, Size, maximum, product, reads_of

CPU = torch.device("cpu")

# Short names, as printed in graphs, loops and goldens.
SHORT_NAMES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
BY_SHORT_NAME = {name: dtype for dtype, name in SHORT_NAMES.items()}


def short_name(dtype: torch.dtype) -> str:
    """The name of `dtype` in printed records."""
    return SHORT_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def contiguous_strides(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Row-major strides of `sizes`, with torch's rule that a size of 0 counts as 1."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (size or 1 if isinstance(size, int) else _at_least_one(size))
    return tuple(reversed(strides))


def _at_least_one(size: Expression) -> Size:
    """Only a size that is read from data may be 0 and not say so."""
    low = size.bounds[0]
    sure = (low is not None and low > 0) or not reads_of(size)
    return size if sure else maximum(size, 1)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, sizes, strides (possibly symbolic), device and whether it needs a gradient."""

    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    device: torch.device = CPU
    requires_grad: bool = False

    @classmethod
    def contiguous(cls, dtype: torch.dtype, sizes: tuple[Size, ...]) -> TensorType:
        """A row-major tensor on the CPU that needs no gradient."""
        return cls(dtype, sizes, contiguous_strides(sizes))

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorType:
        """The type of a real tensor with plain integer sizes."""
        return cls(
            tensor.dtype,
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.device,
            tensor.requires_grad,
        )

    @property
    def rank(self) -> int:
        """How many dimensions."""
        return len(self.sizes)

    @property
    def elements(self) -> Size:
        """How many elements."""
        return product(self.sizes)

    @property
    def is_contiguous(self) -> bool:
        """Row-major, sizes of 1 ignored; only meant for static or syntactically equal sizes."""
        expected = contiguous_strides(self.sizes)
        return any(size == 0 for size in self.sizes) or all(
            size == 1 or stride == wanted
            for size, stride, wanted in zip(self.sizes, self.strides, expected, strict=True)
        )

    def without_grad(self) -> TensorType:
        """The same, needing no gradient."""
        if not self.requires_grad:
            return self
        return TensorType(self.dtype, self.sizes, self.strides, self.device)

    def __str__(self) -> str:
        text = f"{short_name(self.dtype)}[{', '.join(map(str, self.sizes))}]"
        if not self.is_contiguous:
            text += f"({', '.join(map(str, self.strides))})"
        return text + (" grad" if self.requires_grad else "")


@dataclass(frozen=True, slots=True)
class WrappedType(TensorType):
    """A tensor of a class that is made of others (`__tensor_flatten__`): the metadata that it
    shows, and what it is made of. `parts` are the tensors at the attributes `names`, which may be
    such again; `context` is what its class said of the rest."""

    wrapper: type = torch.Tensor
    names: tuple[str, ...] = ()
    parts: tuple[TensorType, ...] = ()
    context: Any = None

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name}: {part}" for name, part in zip(self.names, self.parts, strict=True)
        )
        return f"{self.wrapper.__name__}({parts})" + (" grad" if self.requires_grad else "")
