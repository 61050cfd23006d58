"""Guards as a check that runs in nanoseconds, in tiers.

Enters: `Guard`s and the number of slots. Leaves: a `CompiledCheck`: a builtin that answers True or
False, and the whole check as Python text, for people and for where no native code can be.

The first tier is a table of records that the machine code of `support.py` walks: thread state,
exact types, tensor metadata, constants, identities. Values in dictionaries are remembered together
with the version of the dictionary: while that stands, a read is one comparison; when it moved, the
names are looked up again, and only the names that are read. What has no native form is left to the
second tier, a generated Python function, called when the first tier holds.

Invariant: checking runs no user code and keeps no input alive. Identities are held weakly where
possible: when the object dies its word is overwritten, for its address may be used again.

To add a kind of check: its record in `ir/guard.py`, a predicate in `reading.py`, a row in `NATIVE`
if it can be native.
"""

from __future__ import annotations

import collections
import math
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from windfall import torch_abi
from windfall.ir.guard import (
    ABSENT,
    AmbientIs,
    Check,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    Resolves,
    SameObjects,
    TensorIs,
    TypeIs,
)
from windfall.ir.source import Overlap, Source
from windfall.runtime import reading, support
from windfall.runtime.encoder import EncodedCheck, Encoder
from windfall.runtime.guard_text import check_text, python_check, slot_names
from windfall.runtime.machine import layout
from windfall.runtime.results import extent, static
from windfall.runtime.words import MASK, Place, Word

# How a check is made natively; False: it is left to Python.
Native = Callable[[Encoder, Place, Any], bool]


def _native_tensor(encoder: Encoder, cell: Place, check: TensorIs) -> bool:
    shape = (*check.type.sizes, *check.type.strides)
    if not all(type(one) is int for one in shape) or check.type.device.type != "cpu":
        return False
    tensors = torch_abi.tensor_layout()
    assert tensors is not None
    step, words = _shape_words(static(check.type.sizes), static(check.type.strides), tensors)
    wanted = (
        encoder.words.object(check.exact_class),
        check.dispatch_keys,
        torch_abi.scalar_type(check.type.dtype),
        check.type.rank,
        int(check.type.requires_grad),
        *words,
    )
    encoder.record(step, cell, encoder.shared(wanted))
    return True


def _shape_words(
    sizes: tuple[int, ...], strides: tuple[int, ...], tensors: torch_abi.TensorLayout
) -> tuple[str, list[int]]:
    """Which step looks at tensors of this shape, and the words that its record has for it."""
    spare = tensors.inline_dims - len(sizes)
    if spare < 0:
        return "large_tensor", [*sizes, *strides]
    nothing, everything = [0] * spare, [MASK] * len(sizes)
    wanted = [*sizes, *nothing, *strides, *nothing]
    return "tensor", [*wanted, *everything, *nothing, *everything, *nothing]


def _native_type(encoder: Encoder, cell: Place, check: TypeIs) -> bool:
    encoder.record("type", cell, encoder.words.object(check.exact_class))
    return True


def _native_identity(encoder: Encoder, cell: Place, check: IdentityIs) -> bool:
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
    bits = int.from_bytes(struct.pack("=d", value), sys.byteorder)
    owner = encoder.words.object(float)
    encoder.record("word", cell, owner, encoder.objects.float_value, bits)
    return True


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


def _native_equals(encoder: Encoder, cell: Place, check: Equals) -> bool:
    known = EQUALITY.get(type(check.value))
    return known is not None and known(encoder, cell, check.value)


# Classes whose instances keep their length in one word: the field of the layout that says where.
SIZED: dict[type, str] = {
    **dict.fromkeys((list, tuple, dict, collections.OrderedDict), "size"),
    **dict.fromkeys((set, frozenset), "set_size"),
}


def _native_length(encoder: Encoder, cell: Place, check: LengthIs, owner: type | None) -> bool:
    if owner is None or owner not in SIZED:
        return False
    offset = getattr(encoder.objects, SIZED[owner])
    encoder.record("word", cell, encoder.words.object(owner), offset, check.length)
    return True


def _native_keys(encoder: Encoder, cell: Place, check: KeysAre) -> bool:
    if not all(type(key) is str for key in check.keys):
        return False
    names = [encoder.words.object(sys.intern(key)) for key in check.keys]
    encoder.record("keys", cell, 0, len(names), *names)
    return True


def _native_resolves(encoder: Encoder, cell: Place, check: Resolves) -> bool:
    name = encoder.words.object(sys.intern(check.name))
    if check.value is ABSENT:
        encoder.record("resolves", cell, name, 0)
    else:
        record = encoder.record("resolves", cell, name, id(check.value))
        encoder.identity(record, 2, check.value)
    return True


def _native_same(encoder: Encoder, cell: Place, check: SameObjects) -> bool:
    others = [encoder.cell(one) for one in check.others]
    cells = [cell, *(one for one in others if one is not None)]
    if None in others or (not check.same and len(cells) > 16):
        return False
    pairs = (
        [(cells[0], other) for other in cells[1:]]
        if check.same
        else [(one, other) for i, one in enumerate(cells) for other in cells[i + 1 :]]
    )
    for one, other in pairs:
        encoder.record("same", one, other, int(check.same))
    return True


NATIVE: dict[type[Check], Native] = {
    TensorIs: _native_tensor,
    TypeIs: _native_type,
    IdentityIs: _native_identity,
    Equals: _native_equals,
    KeysAre: _native_keys,
    Resolves: _native_resolves,
    SameObjects: _native_same,
}


def _native_ambient(encoder: Encoder, check: AmbientIs) -> None:
    thread = torch_abi.thread_layout()
    assert thread is not None
    flags = thread.grad_flag * check.grad_enabled | thread.inference_flag * check.inference_mode
    dtype = getattr(torch, check.default_dtype.removeprefix("torch."))
    casts: list[int] = []
    for device, name in check.autocast:
        kind = getattr(torch, name.removeprefix("torch."))
        casts += [torch_abi.AUTOCAST_DEVICES.index(device), torch_abi.scalar_type(kind)]
    encoder.record(
        "ambient",
        flags,
        check.included_keys,
        check.excluded_keys,
        check.dispatch_modes,
        check.function_modes,
        check.function_state,
        int(check.profiled),
        torch_abi.scalar_type(dtype),
        int(check.deterministic),
        torch_abi.global_context(),
        len(check.autocast),
        *casts,
    )


def _native_overlap(encoder: Encoder, source: Overlap, wanted: object) -> bool:
    """No written tensor shares bytes with another; the spans follow from the guarded types."""
    if wanted is not False:
        return False
    rows: list[Word] = []
    for one in (*source.written, *source.others):
        cell, type = encoder.cell(one), encoder.tensor_type(one)
        if cell is None or type is None:
            return False
        rows += [cell, type.dtype.itemsize, extent(type)]
    encoder.record("overlap", len(source.written), len(rows) // 3, *rows)
    return True


def _encode_guard(encoder: Encoder, guard: Guard) -> bool:
    check = guard.check
    if isinstance(check, AmbientIs):
        _native_ambient(encoder, check)
        return True
    if isinstance(guard.source, Overlap):
        return isinstance(check, Equals) and _native_overlap(encoder, guard.source, check.value)
    if isinstance(check, HasKey):
        # The read of the dict's keys is the check.
        return type(check.key) is str and encoder.key_cell(guard.source, check.key) is not None
    cell = encoder.cell(guard.source)
    if cell is None:
        return False
    if isinstance(check, LengthIs):
        return _native_length(encoder, cell, check, encoder.type_of(guard.source))
    native = NATIVE.get(type(check))
    return native is not None and native(encoder, cell, check)


def _repeated_classes(encoder: Encoder, guards: Sequence[Guard]) -> set[int]:
    """Sources whose class need not be checked by itself: a native check looks at it anyway."""
    found: set[int] = set()
    for guard in guards:
        if isinstance(guard.check, TensorIs | LengthIs):
            kind = encoder.type_of(guard.source)
            sized = isinstance(guard.check, LengthIs) and kind in SIZED
            tensor = isinstance(guard.check, TensorIs) and guard.check.exact_class is kind
            if (sized or tensor) and encoder.cell(guard.source) is not None:
                found.add(encoder.numbers[guard.source])
    return found


def depth(source: Source) -> int:
    """How many reads lie between a root and the value."""
    base = source.base
    return 0 if base is None else 1 + depth(base)


def in_order(guards: Iterable[Guard]) -> list[Guard]:
    """Cheapest and likeliest to fail first: the thread, arguments, what is reached from them; last
    what compares tensors with each other."""

    def rank(guard: Guard) -> float:
        if isinstance(guard.check, AmbientIs):
            return -1
        return math.inf if isinstance(guard.source, Overlap) else depth(guard.source)

    return sorted(guards, key=rank)


def encode(
    guards: Sequence[Guard], inputs: Sequence[Source], names: Sequence[str]
) -> EncodedCheck | None:
    """The native form of a check, with the cells at which `inputs` are found once it holds. Guards
    without a native form become a Python function that the native code calls. None: an input has
    no native walk."""
    encoder = Encoder(guards, inputs, len(names))
    encoder.reserve_keys()
    repeated = _repeated_classes(encoder, guards)
    left = [
        guard
        for guard in guards
        if not (isinstance(guard.check, TypeIs) and encoder.numbers[guard.source] in repeated)
        and not _encode_guard(encoder, guard)
    ]
    cells = [encoder.cell(source) for source in inputs]
    found = tuple(cell for cell in cells if cell is not None)
    if len(found) != len(cells):
        return None
    encoded = encoder.finish()
    encoded.inputs = found
    if left:
        encoded.set(layout.REST, encoded.words.object(python_check(left, names)))
    return encoded


# -------------------------------------------------------------------------------------- the check


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """`call(*slots)` answers whether every guard holds; `text` is the same check for people."""

    call: Callable[..., bool]
    text: str
    native: bool
    guards: tuple[Guard, ...]

    def first_failure(self, *slots: Any) -> Guard | None:
        """The first guard that does not hold of these slots: why a call missed."""
        return next((guard for guard in self.guards if not reading.holds(guard, slots)), None)


def compile_check(
    guards: Sequence[Guard], slot_count: int, *, native: bool = True
) -> CompiledCheck:
    """A check of all `guards` against the slots of a call."""
    ordered = in_order(guards)
    names = slot_names(ordered, slot_count)
    text = check_text(ordered, names)
    encoded = encode(ordered, (), names) if native and support.support() is not None else None
    if encoded is None:
        call = _counting_slots(python_check(ordered, names), slot_count)
        return CompiledCheck(call, text, False, tuple(ordered))
    return CompiledCheck(encoded.builtin("check", "check"), text, True, tuple(ordered))


def _counting_slots(check: Callable[..., bool], slot_count: int) -> Callable[..., bool]:
    def counted(*slots: Any) -> bool:
        return len(slots) == slot_count and check(*slots)

    return counted
