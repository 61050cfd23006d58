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
from windfall.ir.dtype import TensorType
from windfall.ir.guard import (
    ABSENT,
    AmbientIs,
    Binds,
    Check,
    Equals,
    Guard,
    HasKey,
    Holds,
    IdentityIs,
    KeysAre,
    LengthIs,
    Resolves,
    SameObjects,
    TensorIs,
    TypeIs,
)
from windfall.ir.source import Overlap, ScalarOf, SizeOf, Source, StrideOf
from windfall.ir.symint import Expression, Size, known_at_least
from windfall.runtime import reading, support
from windfall.runtime.arithmetic import fits
from windfall.runtime.encoder import EncodedCheck, Encoder
from windfall.runtime.guard_text import check_text, python_check, slot_names, symbols_in
from windfall.runtime.machine import layout
from windfall.runtime.results import extent, is_static, static
from windfall.runtime.words import MASK, Place, Word

# How a check is made natively; False: it is left to Python.
Native = Callable[[Encoder, Place, Any], bool]


def _native_tensor(encoder: Encoder, cell: Place, check: TensorIs) -> bool:
    if check.type.device.type != "cpu":
        return False
    tensors = torch_abi.tensor_layout()
    assert tensors is not None
    step, words = _shape_words(check.type, tensors)
    wanted = (
        encoder.words.object(check.exact_class),
        check.dispatch_keys,
        torch_abi.scalar_type(check.type.dtype),
        check.type.rank,
        int(check.type.requires_grad),
        *words,
    )
    encoder.record(step, cell, encoder.shared(wanted))
    encoder.ranks[cell] = check.type.rank
    read = step == "shapeless_tensor"
    _native_dimensions(
        encoder,
        cell,
        [
            (dimension, strides, size)
            for strides, sizes in enumerate((check.type.sizes, check.type.strides))
            for dimension, size in enumerate(sizes)
            if read or isinstance(size, Expression)
        ],
    )
    return True


def _shape_words(type: TensorType, tensors: torch_abi.TensorLayout) -> tuple[str, list[int]]:
    """Which step looks at tensors of this type, and the words that its record has for its shape.
    What varies is masked out."""
    spare = tensors.inline_dims - type.rank
    if spare < 0:
        fixed = is_static(type.sizes) and is_static(type.strides)
        if not fixed:
            return "shapeless_tensor", []
        return "large_tensor", [*static(type.sizes), *static(type.strides)]
    wanted: list[int] = []
    masks: list[int] = []
    for sizes in (type.sizes, type.strides):
        wanted += [size if isinstance(size, int) else 0 for size in sizes] + [0] * spare
        masks += [MASK if isinstance(size, int) else 0 for size in sizes] + [0] * spare
    return "tensor", [*wanted, *masks]


def _native_dimensions(
    encoder: Encoder, cell: Place, wanted: Sequence[tuple[int, int, Size]]
) -> None:
    """Read sizes (0) or strides (1) of a tensor that a record has seen, and bind or compare."""
    tensors = torch_abi.tensor_layout()
    assert tensors is not None
    rank = encoder.ranks[cell]
    outside = rank > tensors.inline_dims
    apart = rank if outside else tensors.inline_dims
    rows: list[Word] = []
    for dimension, strides, size in wanted:
        place, least, greatest = (
            (encoder.fresh_cell(), size, size) if isinstance(size, int) else encoder.bind(size)
        )
        rows += [8 * (dimension + strides * apart), place, least, greatest]
    if rows:
        encoder.record("dimensions", cell, int(outside), len(wanted), *rows)


def _native_number(encoder: Encoder, cell: Place, check: Binds) -> bool:
    encoder.record("number", cell, *encoder.bind(check.symbol))
    return True


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
    Binds: _native_number,
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
        if cell is None or type is None or cell not in encoder.ranks:
            return False
        span = extent(type)
        varies = not isinstance(span, int)
        if varies and not all(known_at_least(size, 1) for size in type.sizes):
            return False
        if not encoder.arithmetic.knows(span):
            return False
        rows += [cell, type.dtype.itemsize, encoder.arithmetic.place(span)]
    encoder.calculate()
    encoder.record("overlap", len(source.written), len(rows) // 3, *rows)
    return True


def _native_dimension(encoder: Encoder, source: SizeOf | StrideOf, check: Check) -> bool:
    """A size or stride of a tensor that was seen already, as a number of its own."""
    cell = encoder.cell(source.of)
    rank = None if cell is None else encoder.ranks.get(cell)
    if cell is None or rank is None or not -rank <= source.dimension < rank:
        return False
    place, strides = source.dimension % rank, int(isinstance(source, StrideOf))
    if isinstance(check, TypeIs):
        return check.exact_class is int
    if isinstance(check, Binds):
        _native_dimensions(encoder, cell, [(place, strides, check.symbol)])
        return True
    if isinstance(check, Equals) and type(check.value) is int and fits(check.value):
        _native_dimensions(encoder, cell, [(place, strides, check.value)])
        return True
    return False


def _encode_guard(encoder: Encoder, guard: Guard) -> bool:
    check = guard.check
    if isinstance(check, AmbientIs):
        _native_ambient(encoder, check)
        return True
    if isinstance(guard.source, Overlap):
        return isinstance(check, Equals) and _native_overlap(encoder, guard.source, check.value)
    if isinstance(check, Holds):
        encoder.relate(check.relation)
        return True
    if isinstance(guard.source, SizeOf | StrideOf):
        return _native_dimension(encoder, guard.source, check)
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


def _input_cell(encoder: Encoder, source: Source) -> Place | None:
    if not isinstance(source, ScalarOf):
        return encoder.cell(source)
    cell = encoder.cell(source.of)
    if cell is not None:
        encoder.record("type", cell, encoder.words.object(float))
    return cell


def depth(source: Source) -> int:
    """How many reads lie between a root and the value."""
    base = source.base
    return 0 if base is None else 1 + depth(base)


def in_order(guards: Iterable[Guard]) -> list[Guard]:
    """Cheapest and likeliest to fail first: the thread, arguments, what is reached from them; then
    what compares sizes, which those have bound; last what compares tensors with each other."""

    def rank(guard: Guard) -> tuple[int, int]:
        if isinstance(guard.check, AmbientIs):
            return 0, 0
        if isinstance(guard.source, Overlap):
            return 3, 0
        return (2, 0) if isinstance(guard.check, Holds) else (1, depth(guard.source))

    return sorted(guards, key=rank)


def encode(
    guards: Sequence[Guard], inputs: Sequence[Source], names: Sequence[str]
) -> EncodedCheck | None:
    """The native form of a check, with the cells at which `inputs` are found once it holds (of a
    float that a graph takes as a tensor, the float). Guards without a native form become a Python
    function that the native code calls. None: an input has no native walk."""
    encoder = Encoder(guards, inputs, len(names))
    encoder.reserve_keys()
    repeated = _repeated_classes(encoder, guards)
    needed = [
        guard
        for guard in guards
        if not (isinstance(guard.check, TypeIs) and encoder.numbers[guard.source] in repeated)
    ]
    last = [guard for guard in needed if isinstance(guard.source, Overlap)]
    left = [
        guard
        for guard in needed
        if not isinstance(guard.source, Overlap) and not _encode_guard(encoder, guard)
    ]
    settled = encoder.settle()
    left += [guard for guard in last if not _encode_guard(encoder, guard)]
    if not settled or any(map(symbols_in, left)):
        # Python binds symbols for itself, and so needs all guards that speak of any.
        kept = set(map(id, left))
        left = [guard for guard in guards if id(guard) in kept or symbols_in(guard)]
    cells = [_input_cell(encoder, source) for source in inputs]
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
        return reading.first_failure(self.guards, slots)


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
