"""When two constants are one, and how any object is written in a few words.

Enters: objects. Leaves: whether one may stand for the other; text. Invariant: no user code runs:
objects of classes that are not listed are equal only to themselves, and are shown by their class.
"""

from __future__ import annotations

import enum
import struct
import types
from collections.abc import Callable
from typing import Any

import numpy
import torch

from windfall.ir.dtype import TensorType
from windfall.ir.reading import UNREADABLE, attribute, class_name, facts, is_among


def _same_bits(one: float, other: float) -> bool:
    """0.0 is not -0.0. A NaN is only itself, as in containers and as a key, where C code asks
    whether it is the same object before it asks whether it is equal."""
    return one == one and struct.pack("d", one) == struct.pack("d", other)


def same_items(one: Any, other: Any) -> bool:
    """Two plain sequences of constants."""
    return len(one) == len(other) and all(map(same_constant, one, other))


def _same_limits(one: Any, other: Any) -> bool:
    """Slices, and ranges: `range(0)` and `range(5, 5)` are equal and yet not the same."""
    return same_items((one.start, one.stop, one.step), (other.start, other.stop, other.step))


def _plain_equal(one: Any, other: Any) -> bool:
    return bool(one == other)


_HASHED_PLAINLY = (int, str, bytes, bool, type(None))


def _same_set(one: Any, other: Any) -> bool:
    items = (*one, *other)
    if len(one) != len(other) or not all(is_among(type(each), _HASHED_PLAINLY) for each in items):
        return False
    return {(type(each), each) for each in one} == {(type(each), each) for each in other}


# Numbers with a class of NumPy's that torch takes for plain ones.
NUMPY_SCALARS: tuple[type, ...] = (
    numpy.float64, numpy.float32, numpy.float16,
    numpy.int64, numpy.int32, numpy.int16, numpy.int8, numpy.uint8, numpy.bool_,
)  # fmt: skip


def _same_bytes(one: Any, other: Any) -> bool:
    """Two numbers of one class of NumPy's; a NaN is only itself."""
    return bool(one == one) and bool(one.tobytes() == other.tobytes())


_EQUALITY: dict[type, Callable[[Any, Any], bool]] = {
    **dict.fromkeys((int, str, bytes, torch.device), _plain_equal),
    float: _same_bits,
    complex: lambda one, other: (
        _same_bits(one.real, other.real) and _same_bits(one.imag, other.imag)
    ),
    **dict.fromkeys((tuple, list, torch.Size), same_items),
    **dict.fromkeys((slice, range), _same_limits),
    frozenset: _same_set,
    **dict.fromkeys(NUMPY_SCALARS, _same_bytes),
}


def by_identity(value: Any) -> bool:
    """Whether nothing but the very object is the same constant."""
    return not is_among(type(value), _EQUALITY)


def same_constant(one: Any, other: Any) -> bool:
    """One exact type and one value; objects of other types only when they are one object."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other) or not is_among(kind, _EQUALITY):
        return False
    return _EQUALITY[kind](one, other)


_SHORT = 60
_DEEP = 8  # containers in containers that are still written out
_BITS = 1 << 10  # of an integer whose digits Python still writes without a limit
# Classes whose repr is C code and shows no other object.
_WRITTEN: set[type] = {
    int, float, bool, complex, str, bytes, range, type, types.NoneType, types.EllipsisType,
    types.NotImplementedType, types.FunctionType, types.BuiltinFunctionType, types.CodeType,
    torch.dtype, torch.device, torch.layout, torch.memory_format, *NUMPY_SCALARS,
}  # fmt: skip
_BRACKETS: dict[type, tuple[str, str]] = {
    tuple: ("(", ")"),
    list: ("[", "]"),
    torch.Size: ("torch.Size([", "])"),
    frozenset: ("frozenset({", "})"),
    slice: ("slice(", ")"),
}


def shown(value: Any, depth: int = _DEEP) -> str:
    """A plain constant as Python writes it; anything else by its class: its own repr is user
    code."""
    kind = type(value)
    if kind is int and value.bit_length() > _BITS:
        return f"an int of {value.bit_length()} bits"
    if is_among(kind, _WRITTEN):
        return repr(value)
    if depth and is_among(kind, _BRACKETS):
        opening, closing = _BRACKETS[kind]
        parts = (value.start, value.stop, value.step) if kind is slice else value
        text = ", ".join(shown(one, depth - 1) for one in parts)
        return opening + text + ("," if kind is tuple and len(value) == 1 else "") + closing
    if issubclass(kind, enum.Enum):
        return f"{class_name(kind)}.{attribute(value, '__dict__').get('_name_')}"
    return f"<{class_name(kind)} at {id(value):#x}>"


def written(value: Any) -> str:
    """An object in a few words; a tensor by its type."""
    if not issubclass(type(value), torch.Tensor):
        return cut(shown(value))
    try:
        return str(TensorType(*facts(value)))
    except UNREADABLE:  # a tensor without such sizes
        return f"<{class_name(type(value))}>"


def cut(text: str) -> str:
    """Text of a bearable length."""
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
