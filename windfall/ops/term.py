"""Arithmetic notation for scalar expressions, so that an op's body is one readable line.

Enters: a `Builder` and a `Scalar`. Leaves: `Term`s, whose operators and methods apply rows of
SCALAR_OPS. Invariant: a Python number beside a term has that term's dtype; a term never changes
its dtype unless `to` is called or the row gives a bool.

    body = lambda x: x * (x + 3).maximum(0).minimum(6) / 6          # hardswish
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from windfall.ir.loop import SCALAR_OPS, Builder, Scalar


class Term:
    """A scalar expression together with the builder that makes more of them."""

    __slots__ = ("builder", "scalar")

    def __init__(self, builder: Builder, scalar: Scalar) -> None:
        self.builder = builder
        self.scalar = scalar

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the value."""
        return self.scalar.dtype

    def apply(self, op: str, *others: Any) -> Term:
        """A row of SCALAR_OPS with this term as its first argument."""
        arguments = (self._scalar(other) for other in others)
        return Term(self.builder, self.builder.apply(op, self.scalar, *arguments))

    def to(self, dtype: torch.dtype) -> Term:
        """The value converted as `tensor.to(dtype)` does it."""
        if dtype is self.scalar.dtype:
            return self
        return Term(self.builder, self.builder.cast(self.scalar, dtype))

    def where(self, yes: Any, no: Any) -> Term:
        """`yes` where this bool holds, else `no`; one of the two may be a number."""
        if not isinstance(yes, Term):
            yes = no.like(yes)
        return Term(
            self.builder, self.builder.apply("where", self.scalar, yes.scalar, yes._scalar(no))
        )

    def like(self, value: Any) -> Term:
        """A number of this term's dtype."""
        dtype = self.scalar.dtype
        if isinstance(value, float) and not dtype.is_floating_point and dtype is not torch.bool:
            value = int(value)
        return Term(self.builder, self.builder.constant(value, dtype))

    def _scalar(self, other: Any) -> Scalar:
        return other.scalar if isinstance(other, Term) else self.like(other).scalar

    def __getattr__(self, name: str) -> Callable[..., Term]:
        if name not in SCALAR_OPS:
            raise AttributeError(name)
        return lambda *others: self.apply(name, *others)

    def __add__(self, other: Any) -> Term:
        return self.apply("add", other)

    def __radd__(self, other: Any) -> Term:
        return self.like(other).apply("add", self)

    def __sub__(self, other: Any) -> Term:
        return self.apply("sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self.like(other).apply("sub", self)

    def __mul__(self, other: Any) -> Term:
        return self.apply("mul", other)

    def __rmul__(self, other: Any) -> Term:
        return self.like(other).apply("mul", self)

    def __truediv__(self, other: Any) -> Term:
        return self.apply("div", other)

    def __rtruediv__(self, other: Any) -> Term:
        return self.like(other).apply("div", self)

    def __neg__(self) -> Term:
        return self.apply("neg")

    def __abs__(self) -> Term:
        return self.apply("abs")

    def __lt__(self, other: Any) -> Term:
        return self.apply("lt", other)

    def __le__(self, other: Any) -> Term:
        return self.apply("le", other)

    def __gt__(self, other: Any) -> Term:
        return self.apply("gt", other)

    def __ge__(self, other: Any) -> Term:
        return self.apply("ge", other)

    def __and__(self, other: Any) -> Term:
        return self.apply("logical_and", other)

    def __or__(self, other: Any) -> Term:
        return self.apply("logical_or", other)

    def __invert__(self) -> Term:
        return self.apply("logical_not")
