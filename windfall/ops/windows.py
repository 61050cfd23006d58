"""Windows over the last dimensions of a tensor, as pooling moves them.

Enters: the arguments of an op (one number stands for all dimensions; without a stride, windows
stand side by side). Leaves: `Windows`, which knows how many there are and what type is left.

    >>> Windows.of(2, [3], [2], [1]).fitting(0, 8)
    4
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size
from windfall.ops.layout import smaller, suggested_strides

Sizes = Sequence[Size]


def spread(values: Sizes, count: int) -> tuple[Any, ...]:
    """One value for each of so many dimensions; a single one stands for all."""
    return tuple(values) * count if len(values) == 1 else tuple(values)


@dataclass(frozen=True, slots=True)
class Windows:
    """For each of the last dimensions: how long a window is, how far apart two of them start, how
    far the first sticks out, how far apart its elements are. Each is a `Size`."""

    lengths: tuple[Any, ...]
    steps: tuple[Any, ...]
    pads: tuple[Any, ...]
    gaps: tuple[Any, ...]
    ceil_mode: bool  # the last window may stick out further than the first

    @classmethod
    def of(
        cls,
        count: int,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        dilation: Sizes = (1,),
        ceil_mode: bool = False,
    ) -> Windows:
        """Over the last `count` dimensions."""
        lengths, pads, gaps = (spread(each, count) for each in (kernel, padding, dilation))
        return cls(lengths, spread(stride, count) if stride else lengths, pads, gaps, ceil_mode)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing about them varies."""
        numbers = (*self.lengths, *self.steps, *self.pads, *self.gaps)
        return all(isinstance(each, int) for each in numbers)

    def fitting(self, place: int, size: Size) -> Size:
        """How many fit into a dimension of this size, the one at `place`."""
        step, pad = self.steps[place], self.pads[place]
        free = size + 2 * pad - self.gaps[place] * (self.lengths[place] - 1) - 1
        count: Size = (free + (step - 1 if self.ceil_mode else 0)) // step + 1
        if self.ceil_mode and not smaller((count - 1) * step, size + pad):
            count = count - 1  # the last window would lie wholly in the padding
        return count

    def _make_sense(self) -> bool:
        """Whether eager takes these numbers, as far as they are known."""
        positive = (*self.lengths, *self.steps, *self.gaps)
        if any(isinstance(each, int) and each < 1 for each in positive):
            return False
        for length, pad, gap in zip(self.lengths, self.pads, self.gaps, strict=True):
            if all(isinstance(each, int) for each in (length, pad, gap)):
                reach = gap * (length - 1) + 1
                if not 0 <= pad <= reach // 2:
                    return False
        return True

    def left_of(self, x: TensorType) -> Any:
        """The type of what has one element for each window; NotImplemented for what eager may
        refuse."""
        outer = x.rank - len(self.lengths)
        if outer not in (1, 2) or 0 in x.sizes or not self._make_sense():
            return NotImplemented
        inner = [self.fitting(place, size) for place, size in enumerate(x.sizes[outer:])]
        if any(isinstance(size, int) and size <= 0 for size in inner):
            return NotImplemented
        sizes = (*x.sizes[:outer], *inner)
        return TensorType(x.dtype, sizes, suggested_strides(x, sizes))
