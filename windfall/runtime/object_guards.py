"""Native records for what guards say of Python objects: classes, constants, containers.

Enters: checks and the cells of their values. Leaves: records in the encoder's table; False where a
check is left to Python. Invariant: what a record compares is compared by C code: no method of a
user's class runs, of a subclass of a container neither.
"""

from __future__ import annotations

import collections
import math
import struct
import sys
from collections.abc import Callable
from typing import Any

import torch

from windfall.ir.guard import (
    ABSENT,
    Answers,
    Binds,
    Check,
    Compares,
    Equals,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    Resolves,
    SameObjects,
    TypeIs,
)
from windfall.ir.source import ByMethod, KeysOf, Source
from windfall.ir.symint import Expression
from windfall.runtime import reading
from windfall.runtime.arithmetic import COMPARISON_CODES, fits
from windfall.runtime.encoder import Encoder, is_plain_key
from windfall.runtime.words import Place


def native_type(encoder: Encoder, cell: Place, check: TypeIs) -> bool:
    """The exact class."""
    encoder.record("type", cell, encoder.words.object(check.exact_class))
    return True


def native_identity(encoder: Encoder, cell: Place, check: IdentityIs) -> bool:
    """This very object, held weakly where that can be."""
    encoder.identity(encoder.record("is", cell, id(check.value)), 1, check.value)
    return True


def _equals_singleton(encoder: Encoder, cell: Place, value: Any) -> bool:
    encoder.record("is", cell, encoder.words.object(value))
    return True


def _equals_int(encoder: Encoder, cell: Place, value: int) -> bool:
    digits = value.__sizeof__() - encoder.objects.int_tag - 8
    encoder.record("int", cell, encoder.words.object(value), digits)
    return True


def _equals_float(encoder: Encoder, cell: Place, value: float) -> bool:
    if math.isnan(value):
        return False
    owner = encoder.words.object(float)
    encoder.record("word", cell, owner, encoder.objects.float_value, _bits(value))
    return True


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("=d", value), sys.byteorder)


def _equals_string(encoder: Encoder, cell: Place, value: str) -> bool:
    encoder.record("string", cell, encoder.words.object(sys.intern(value)))
    return True


def _equals_tuple(encoder: Encoder, cell: Place, value: tuple[Any, ...]) -> bool:
    if not all(type(one) in EQUALITY for one in value):
        return False
    owner = encoder.words.object(type(value))
    encoder.record("word", cell, owner, encoder.objects.size, len(value))
    for index, one in enumerate(value):
        part = encoder.fresh_cell()
        encoder.record("item", cell, part, index, encoder.words.object(index))
        if not EQUALITY[type(one)](encoder, part, one):
            return False
    return True


EQUALITY: dict[type, Callable[[Encoder, Place, Any], bool]] = {
    **dict.fromkeys(
        (bool, type(None), type(Ellipsis), type(NotImplemented), type, torch.dtype, torch.layout),
        _equals_singleton,
    ),
    int: _equals_int,
    float: _equals_float,
    str: _equals_string,
    tuple: _equals_tuple,
    torch.Size: _equals_tuple,
}


def native_equals(encoder: Encoder, cell: Place, check: Equals) -> bool:
    """A constant."""
    known = EQUALITY.get(type(check.value))
    if known is None and reading.by_identity(check.value):
        known = _equals_singleton
    return known is not None and known(encoder, cell, check.value)


# Classes whose instances, and those of subclasses, keep their length in one word: the field of the
# layout that says where.
SIZED: dict[type, str] = {
    **dict.fromkeys((list, tuple, dict, collections.deque), "size"),
    **dict.fromkeys((set, frozenset), "set_size"),
}


def length_field(owner: type | None) -> str | None:
    """The field of the layout that says where instances of a class keep their length."""
    if owner is None:
        return None
    return next((field for base, field in SIZED.items() if issubclass(owner, base)), None)


def native_size(encoder: Encoder, source: Source, check: LengthIs) -> bool:
    """How many items."""
    return _native_length(encoder, source, check.length)


def _native_length(encoder: Encoder, source: Source, length: int) -> bool:
    """How many items, past any `__len__` of a subclass."""
    owner, cell = encoder.type_of(source), encoder.cell(source)
    field = length_field(owner)
    if owner is None or field is None or cell is None:
        return False
    offset = getattr(encoder.objects, field)
    encoder.record("word", cell, encoder.words.object(owner), offset, length)
    return True


def native_keys(encoder: Encoder, cell: Place, check: KeysAre) -> bool:
    """All keys of an exact dict, in order."""
    return _keys_in_order(encoder, cell, dict, check.keys)


def _keys_in_order(encoder: Encoder, cell: Place, owner: type, keys: tuple[Any, ...]) -> bool:
    if not all(type(key) is str or (type(key) is int and fits(key)) for key in keys):
        return False
    shared = [sys.intern(key) if type(key) is str else key for key in keys]
    names = [encoder.words.object(key) for key in shared]
    encoder.record("keys", cell, 0, len(names), encoder.words.object(owner), *names)
    return True


def native_key(encoder: Encoder, source: Source, check: HasKey) -> bool:
    """Whether a key is there."""
    if type(check.key) is str:
        # The read of the dict's keys is the check.
        return encoder.key_cell(source, check.key) is not None
    cell = encoder.cell(source)
    if cell is None or not issubclass(encoder.type_of(source) or object, dict):
        return False
    if not is_plain_key(encoder, source, check.key):
        return False
    encoder.record("has_key", cell, encoder.words.object(check.key), int(check.present))
    return True


def native_all_keys(encoder: Encoder, source: KeysOf, check: Check) -> bool:
    """All keys of a mapping as a tuple, in its own order."""
    if not isinstance(check, Equals) or type(check.value) is not tuple:
        return False
    container = source.of
    if isinstance(container, ByMethod) and container.name == "keys":
        container = container.of
    owner, cell = encoder.type_of(container), encoder.cell(container)
    if owner is None or cell is None or (container is source.of and owner not in _OWN_ORDER):
        return False
    if not check.value:
        return _native_length(encoder, container, 0)
    if not issubclass(owner, dict) or issubclass(owner, collections.OrderedDict):
        return False
    return _keys_in_order(encoder, cell, owner, check.value)


# Classes that are iterated without user code.
_OWN_ORDER = (dict, collections.OrderedDict, collections.defaultdict, set, frozenset)


def native_method(encoder: Encoder, source: ByMethod, check: Check) -> bool | None:
    """A length; None: what the method answers is looked at like any other value."""
    if source.name != "__len__":
        return None
    owner = encoder.type_of(source.of)
    if owner is None or not issubclass(owner, source.kind) or source.kind not in SIZED:
        return False
    if isinstance(check, Equals) and type(check.value) is int and fits(check.value):
        return _native_length(encoder, source.of, check.value)
    if isinstance(check, Binds):
        return _native_count(encoder, source.of, check.symbol)
    return isinstance(check, TypeIs) and check.exact_class is int


def _native_count(encoder: Encoder, source: Source, symbol: Expression) -> bool:
    """A length that varies."""
    owner, cell = encoder.type_of(source), encoder.cell(source)
    field = length_field(owner)
    if owner is None or field is None or cell is None:
        return False
    offset = getattr(encoder.objects, field)
    encoder.record("count", cell, encoder.words.object(owner), offset, *encoder.bind(symbol))
    return True


def native_float(encoder: Encoder, cell: Place, check: Compares) -> bool:
    """A float beside a number."""
    other = 0.0 if check.other is None else check.other
    if type(other) is int and (not fits(other) or int(float(other)) != other):
        return False  # Python compares it as it is
    code, itself = COMPARISON_CODES[check.operation], int(check.other is None)
    encoder.record("float", cell, code, _bits(float(other)), itself, int(check.outcome))
    return True


def native_resolves(encoder: Encoder, cell: Place, check: Resolves) -> bool:
    """What a class finds under a name."""
    name = encoder.words.object(sys.intern(check.name))
    if check.value is ABSENT:
        encoder.record("resolves", cell, name, 0)
    else:
        record = encoder.record("resolves", cell, name, id(check.value))
        encoder.identity(record, 2, check.value)
    return True


def native_answers(encoder: Encoder, cell: Place, check: Answers) -> bool:
    """What a class finds under some names."""
    names = [encoder.words.object(sys.intern(name)) for name in check.names]
    found = [0 if value is ABSENT else id(value) for value in check.values]
    rows = [word for pair in zip(names, found, strict=True) for word in pair]
    record = encoder.record("answers", cell, len(names), *rows)
    for index, value in enumerate(check.values):
        if value is not ABSENT:
            encoder.identity(record, 3 + 2 * index, value)
    return True


def native_same(encoder: Encoder, cell: Place, check: SameObjects) -> bool:
    """The one object, or none of these."""
    others = [place for place in map(encoder.cell, check.others) if place is not None]
    for other in others:
        encoder.record("same", cell, other, int(check.same))
    return len(others) == len(check.others)
