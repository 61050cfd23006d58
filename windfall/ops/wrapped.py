"""Tensors made of tensors: taken apart and put together again, also where autograd looks on.

Enters: tensors of classes with `__tensor_flatten__` and `__tensor_unflatten__`, real ones or such
made of fakes. Leaves: their structure (a `WrappedType`, of a plain tensor its `TensorType`), their
leaves (plain tensors, in order), and tensors made of leaves; `Wrap` and `Unwrap`, the same as
targets of nodes. Invariant: what is put together has the class, the context and the leaves that the
structure says; leaves that are handed out are aliases, never the objects inside of a tensor.

    gradients of `Wrap` are taken apart by `Unwrap`, and those of `Unwrap` are put together by
    `Wrap`: so both can be differentiated as often as one likes

A gradient need not be made of what its tensor is made of: an int8 weight has a plain gradient, a
plain factor of a wrapped tensor a wrapped one. So `Wrap` takes, behind the leaves of the value, one
carrier for each leaf of its gradient: a tensor whose data nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall.ir import codec
from windfall.ir.dtype import TensorType, WrappedType
from windfall.ops.fake import is_wrapper_class, type_of


def is_wrapper(value: object) -> bool:
    """Whether a tensor is of a class that says what it is made of."""
    return isinstance(value, torch.Tensor) and is_wrapper_class(type(value))


def structure_of(tensor: Any) -> TensorType:
    """What a tensor is made of."""
    if not is_wrapper(tensor):
        return type_of(tensor)
    names, context = tensor.__tensor_flatten__()
    return WrappedType(
        tensor.dtype,
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.device,
        tensor.requires_grad,
        type(tensor),
        tuple(names),
        tuple(structure_of(getattr(tensor, name)) for name in names),
        context,
    )


def same_structure(one: TensorType, other: TensorType) -> bool:
    """Whether two tensors are made alike, of leaves with the same elements; they may lie in memory
    in other ways."""
    if isinstance(one, WrappedType) and isinstance(other, WrappedType):
        return (
            one.wrapper is other.wrapper
            and (one.names, one.sizes, one.dtype) == (other.names, other.sizes, other.dtype)
            and bool(one.context == other.context)
            and all(map(same_structure, one.parts, other.parts))
        )
    plain = not isinstance(one, WrappedType) and not isinstance(other, WrappedType)
    return plain and (one.dtype, one.sizes) == (other.dtype, other.sizes)


def leaf_types(structure: TensorType) -> Iterator[TensorType]:
    """The plain tensors that one of this structure is made of, in order."""
    if isinstance(structure, WrappedType):
        for part in structure.parts:
            yield from leaf_types(part)
    else:
        yield structure


def leaves_of(tensor: Any, structure: TensorType) -> Iterator[torch.Tensor]:
    """The plain tensors inside: the very objects."""
    if isinstance(structure, WrappedType):
        for name, part in zip(structure.names, structure.parts, strict=True):
            yield from leaves_of(getattr(tensor, name), part)
    else:
        yield tensor


def put_together(structure: TensorType, leaves: Sequence[Any]) -> Any:
    """A tensor of this structure, made of these leaves. They may lie in memory otherwise: then the
    tensor says so where it looks like its first part."""
    return _made(structure, iter(leaves))


def _made(structure: TensorType, leaves: Iterator[Any]) -> Any:
    if not isinstance(structure, WrappedType):
        return next(leaves)
    parts = [_made(one, leaves) for one in structure.parts]
    strides, first = structure.strides, structure.parts[0]
    if (first.sizes, first.strides) == (structure.sizes, strides):
        strides = tuple(parts[0].stride())
    inner = dict(zip(structure.names, parts, strict=True))
    wrapper: Any = structure.wrapper
    return wrapper.__tensor_unflatten__(
        inner,
        structure.context,
        torch.Size(structure.sizes),  # type: ignore[arg-type]
        strides,
    )


def fake_of(structure: TensorType, made: Any) -> Any:
    """A tensor of this structure made of new fakes, a leaf; `made` makes a fake of a type."""
    found = put_together(structure, [made(one.without_grad()) for one in leaf_types(structure)])
    return found.requires_grad_() if structure.requires_grad else found


# ------------------------------------------------------------------------------ to autograd


class Target:
    """What the targets of nodes share: a name by which graphs show them."""

    __name__: str
    __module__ = __name__

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name


class Wrap(Target):
    """A tensor made of its leaves. Behind these come carriers: what is found to be the gradient of
    the tensor, of the structure `gradient`, is taken apart, and its leaves are theirs."""

    def __init__(self, value: TensorType, gradient: TensorType | None = None) -> None:
        super().__init__("wrap")
        self.value = value
        self.gradient = gradient
        self.leaves = len(list(leaf_types(value)))

    def __call__(self, *given: Any) -> Any:
        """The tensor."""
        return _Wrap.apply(self, *given)  # type: ignore[no-untyped-call]


class Unwrap(Target):
    """The leaves of a tensor of a structure: aliases of them."""

    def __init__(self, structure: TensorType) -> None:
        super().__init__("unwrap")
        self.structure = structure

    def __call__(self, tensor: Any) -> tuple[torch.Tensor, ...]:
        """Its leaves."""
        if not isinstance(self.structure, WrappedType):
            return (tensor,)
        found: tuple[torch.Tensor, ...] = _Unwrap.apply(self, tensor)  # type: ignore[no-untyped-call]
        return found


codec.add(Wrap, codec.Kind("Wrap", lambda one: (one.value, one.gradient), Wrap))
codec.add(Unwrap, codec.Kind("Unwrap", lambda one: (one.structure,), Unwrap))


def with_gradients(structure: TensorType, leaves: Sequence[Any]) -> Any:
    """A tensor made of leaves, with their history."""
    if not isinstance(structure, WrappedType):
        return leaves[0]
    return Wrap(structure, structure)(*leaves, *leaves)


class _Wrap(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, target: Wrap, *given: Any) -> Any:
        context.target, context.given = target, len(given)
        return put_together(target.value, [one.detach() for one in given[: target.leaves]])

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        target: Wrap = context.target
        nothing = (None,) * (1 + target.leaves)
        carriers = context.given - target.leaves
        if target.gradient is None or not carriers:
            return (*nothing, *[None] * carriers)
        return (*nothing, *Unwrap(target.gradient)(gradient))


class _Unwrap(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, target: Unwrap, tensor: Any) -> Any:
        context.target = target
        return tuple([one.detach() for one in leaves_of(tensor, target.structure)])

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return None, with_gradients(context.target.structure, gradients)
