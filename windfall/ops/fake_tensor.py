"""Fake tensors themselves: a type and a place in a memory that does not exist.

Enters: `TensorType`s, and values that may hold tensors or numbers that vary. Leaves: `FakeTensor`s;
what rules see in place of arguments (`typed`). Invariant: tensors that would share memory share one
`Storage`, at the offset they would have. How ops run on fakes is told by `fake.py`, which needs
this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeGuard

import torch

from windfall import torch_abi
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Expression, Size, payloads
from windfall.ops.symbolic import (
    Number,
    as_torch,
    is_symbolic,
    plain,
    settled,
)

# The numbered reasons of this file (see `frontend/breaks.py` for the table's shape).
REASONS = {
    100: "a value of a tensor is read while only its type is known",
    101: "an op has neither a shape rule nor a meta kernel",
    102: "a tensor that is not an input of the graph is written",
}


class DataDependent(Unsupported):
    """The result of this step depends on a tensor's data: the program must run up to here."""

    def __init__(self, detail: str) -> None:
        super().__init__(100, detail)


class Storage:
    """Memory that tensors share: an identity with a number to print."""

    __slots__ = ("number", "written")
    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.written = False  # so that constants in it are none any more

    def __repr__(self) -> str:
        return f"Storage({self.number})"


class Marks(NamedTuple):
    """What is read from a memory is its conjugate, or has the other sign: only marked, as torch's
    tensors are, and not known to torch of ours."""

    conjugate: bool = False
    negative: bool = False


class FakeTensor(torch.Tensor):
    """A tensor without data. Made by `fake` and by ops on other fakes."""

    __slots__ = ("_fake_constant", "_fake_marks", "_fake_offset", "_fake_storage", "_fake_type")
    _fake_type: TensorType  # never marked requires_grad: autograd keeps that itself
    _fake_storage: Storage
    _fake_offset: Size
    _fake_constant: torch.Tensor | None
    _fake_marks: Marks | None
    _fake_run: ClassVar[Callable[..., Any]]  # (func, args, kwargs) -> result, outside of any mode

    __torch_function__ = torch_abi.disabled_torch_function

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(map(takes_ops_apart, types)):
            return NotImplemented
        return cls._fake_run(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"FakeTensor({type_of(self)}, {self._fake_storage})"

    # These read data without any dispatch.
    def tolist(self) -> NoReturn:
        """Reads data."""
        raise DataDependent("tolist()")

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Reads data."""
        raise DataDependent("numpy()")

    def data_ptr(self) -> NoReturn:
        """Reads an address."""
        raise DataDependent("data_ptr()")

    # These look at marks, or answer another thing where there are some.
    def is_conj(self) -> bool:
        """Whether it is a lazy conjugate."""
        return self._fake_marks is not None and self._fake_marks.conjugate

    def is_neg(self) -> bool:
        """Whether its sign is lazy."""
        return self._fake_marks is not None and self._fake_marks.negative

    def resolve_conj(self) -> torch.Tensor:
        """Itself, or a copy that is no lazy conjugate."""
        return self.clone() if self.is_conj() else self

    def resolve_neg(self) -> torch.Tensor:
        """Itself, or a copy whose sign is not lazy."""
        return self.clone() if self.is_neg() else self

    @property
    def real(self) -> torch.Tensor:  # type: ignore[override]
        """Its real numbers, where they lie."""
        if not self.is_conj():
            return torch.real(self)
        return torch.real(torch.ops.aten._conj(self))

    @property
    def imag(self) -> torch.Tensor:  # type: ignore[override]
        """Its imaginary numbers, where they lie: of a lazy conjugate, with the other sign."""
        if not self.is_conj():
            return torch.imag(self)
        pairs = torch.view_as_real(torch.ops.aten._conj(self))
        return torch.ops.aten._neg_view(pairs).select(-1, 1)  # type: ignore[no-any-return]


def is_wrapper_class(cls: type) -> bool:
    """Whether tensors of a class can be taken apart into others (`wrapped.py`)."""
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def takes_ops_apart(cls: type) -> bool:
    """Whether an op on a tensor of this class goes to its parts: the class is then asked before we
    are, wherever its tensor stands among the arguments."""
    return cls is not FakeTensor and is_wrapper_class(cls)


def is_fake(value: object) -> TypeGuard[FakeTensor]:
    """Whether `value` is a tensor without data."""
    return value.__class__ is FakeTensor


def make(
    type: TensorType,
    storage: Storage,
    offset: Size = 0,
    requires_grad: bool = False,
) -> FakeTensor:
    """A fake of this type at a place in a memory."""
    tensor: FakeTensor
    if payloads.varying and (is_symbolic(type) or offset.__class__ is Expression):
        type = settled_type(type)
        sizes, strides = tuple(map(as_torch, type.sizes)), tuple(map(as_torch, type.strides))
        start = as_torch(offset)
        tensor = torch_abi.wrapper_tensor(
            FakeTensor, sizes, strides, start, type.dtype, type.device, requires_grad, 0
        )
    else:
        type = _shared(type)
        tensor = torch_abi.wrapper_tensor(
            FakeTensor, type.sizes, type.strides, offset, type.dtype, type.device, requires_grad
        )
    tensor._fake_type = type
    tensor._fake_storage = storage
    tensor._fake_offset = offset
    tensor._fake_constant = None
    tensor._fake_marks = None
    return tensor


@lru_cache(maxsize=4096)
def _shared(type: TensorType) -> TensorType:
    """One record for equal types: a model has thousands of tensors, of few types."""
    return type


def settled_type(type: TensorType) -> TensorType:
    """A type of which each size is 0, 1 or surely at least 2 (see `settled`)."""
    sizes = tuple(map(settled, type.sizes))
    return type if sizes == type.sizes else replace(type, sizes=sizes)


def fake(
    type: TensorType,
    *,
    requires_grad: bool | None = None,
    storage: Storage | None = None,
    offset: Size = 0,
) -> torch.Tensor:
    """A fake of this type, a leaf; by default with memory of its own. `requires_grad` None: as the
    type says."""
    wanted = type.requires_grad if requires_grad is None else requires_grad
    return make(type.without_grad(), storage or Storage(), offset, wanted)


def type_of(tensor: torch.Tensor) -> TensorType:
    """The type of a fake or real tensor, with its present `requires_grad`."""
    if tensor.__class__ is not FakeTensor:
        return TensorType.of(tensor)
    known = tensor._fake_type
    if not tensor.requires_grad:
        return known
    return TensorType(known.dtype, known.sizes, known.strides, known.device, True)


def storage_of(tensor: torch.Tensor) -> Storage:
    """The memory that a fake lives in: one object for all views of a base."""
    assert tensor.__class__ is FakeTensor, "only fakes have a storage of ours"
    return tensor._fake_storage


def offset_of(tensor: torch.Tensor) -> Size:
    """Where a fake starts in its storage, in elements."""
    assert tensor.__class__ is FakeTensor, "only fakes have an offset of ours"
    return tensor._fake_offset


def constant_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The value of a fake that is a known constant (as `torch.tensor(2.0)` makes), else None."""
    if tensor.__class__ is not FakeTensor:
        return tensor
    return None if tensor._fake_storage.written else tensor._fake_constant


def lift(constant: torch.Tensor) -> FakeTensor:
    """A fake of which the value is known too."""
    result = make(TensorType.of(constant), Storage())
    result._fake_constant = constant
    return result


def typed(value: Any) -> Any:
    """`value` with types in place of tensors, lists included."""
    kind = value.__class__
    if kind is FakeTensor:
        return value._fake_type
    if kind is list or kind is tuple:
        return [typed(one) for one in value]
    if isinstance(value, torch.Tensor):
        return _number_or_type(value)
    if kind is torch.SymInt:
        return value.node.size
    return hint(value.node.number) if kind is torch.SymFloat else value


def hint(number: Any) -> Any:
    """A number that varies, as rules see it: only its kind matters to them."""
    return number.value if isinstance(number, Number) else number


def _number_or_type(value: torch.Tensor) -> Any:
    """The type of a real tensor; a number that torch wrapped in a tensor is that number again,
    because it takes part in dtype promotion as a number."""
    if torch_abi.is_wrapped_number(value):
        return hint(number_of(value))
    return TensorType.of(value).without_grad()


def varying_number(value: torch.Tensor) -> Any:
    """The size or `Number` that a real tensor stands for, or the tensor itself."""
    size = torch_abi.wrapped_size(value)
    return value if size is None else plain(size)


def number_of(wrapped: torch.Tensor) -> Any:
    """The number that torch wrapped in a tensor, or the size or `Number` that varies."""
    size = torch_abi.wrapped_size(wrapped) if payloads.varying else None
    return wrapped.item() if size is None else plain(size)


def place_of(base: torch.Tensor) -> tuple[Storage, Any]:
    """Where a base lives. A real tensor has no storage of ours: each view of it gets its own,
    which is right because real tensors may not be written."""
    if is_fake(base):
        return base._fake_storage, base._fake_offset
    return Storage(), base.storage_offset()


def forget_constant(target: Any) -> None:
    """A fake is written: its value is not known any more, nor that of its views."""
    if is_fake(target):
        target._fake_constant = None
        target._fake_storage.written = True
    elif isinstance(target, list | tuple):
        for one in target:
            forget_constant(one)
    elif isinstance(target, torch.Tensor):
        raise Unsupported(102, f"a real {TensorType.of(target)} is written while tracing")


def become(target: FakeTensor, type: TensorType, storage: Storage, offset: Size) -> None:
    """Change the metadata of a fake in place, as `t_` and `set_` do. Autograd's own record of the
    tensor (its version, its history) stays."""
    torch_abi.replace_data(target, make(type, storage, offset))
    target._fake_type, target._fake_storage, target._fake_offset = type, storage, offset


def as_fakes(value: Any) -> Any:
    """Fakes in place of types, lists included."""
    if isinstance(value, TensorType):
        return fake(value, requires_grad=False)
    if isinstance(value, list | tuple):
        return [as_fakes(one) for one in value]
    return as_torch(value) if isinstance(value, Expression) else value


def as_types(value: Any) -> Any:
    """Types in place of tensors, lists included."""
    if isinstance(value, torch.Tensor):
        return type_of(value).without_grad()
    if isinstance(value, list | tuple):
        return tuple(as_types(one) for one in value)
    return value
