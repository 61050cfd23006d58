"""Native records for what checks say of Python objects: classes, constants, containers.

Enters: what a check says to a writer (`ir/check_writer.py`). Leaves: records in the table; False
where machine code cannot tell. Invariant: what a record compares is compared by C code: no method
of a user's class runs, of a subclass of a container neither.
"""

from __future__ import annotations

import collections
import struct
import sys
from typing import Any

import torch

from windfall.ir.check_writer import Cell
from windfall.ir.guard import ABSENT
from windfall.ir.reading import is_among
from windfall.ir.source import ByMethod, KeysOf, Source
from windfall.ir.symint import Size
from windfall.runtime.encoder import Encoder, is_plain_key
from windfall.runtime.machine.basics import STEPS
from windfall.runtime.machine.object_steps import FOUND_ROW
from windfall.runtime.size_code import COMPARISON_CODES, fits
from windfall.runtime.words import Word

# Classes whose instances, and those of subclasses, keep their length in one word: the field of the
# layout that says where.
_SIZED: dict[type, str] = {
    **dict.fromkeys((list, tuple, dict, collections.deque), "size"),
    **dict.fromkeys((set, frozenset), "set_size"),
}
# Classes that are iterated without user code.
_OWN_ORDER = (dict, collections.OrderedDict, collections.defaultdict, set, frozenset)


def float_bits(value: float) -> int:
    """The bits of a double, as a word."""
    return int.from_bytes(struct.pack("=d", value), sys.byteorder)


class ObjectRecords(Encoder):
    """Records of objects."""

    def class_is(self, cell: Cell, exact_class: type) -> None:
        """The exact class."""
        self.record("type", cell, self.words.object(exact_class))

    def object_is(self, cell: Cell, value: Any, *, weakly: bool) -> None:
        """This very object, held weakly if asked for and possible."""
        record = self.record("is", cell, id(value))
        if weakly:
            self.identity(record, STEPS["is"].struct.places["wanted"], value)
        else:
            self.words.object(value)

    def same(self, cell: Cell, other: Cell, same: bool) -> None:
        """Whether two values are one object."""
        self.record("same", cell, other, int(same))

    # ------------------------------------------------------------------------------- constants

    def int_is(self, cell: Cell, value: int) -> None:
        """All digits of an exact int."""
        digits = value.__sizeof__() - self.objects.int_tag - 8
        self.record("int", cell, self.words.object(value), digits)

    def float_is(self, cell: Cell, value: float) -> None:
        """All bits of an exact float."""
        owner = self.words.object(float)
        self.record("word", cell, owner, self.objects.float_value, float_bits(value))

    def text_is(self, cell: Cell, value: str) -> None:
        """An exact str."""
        self.record("string", cell, self.words.object(sys.intern(value)))

    def tuple_is(self, cell: Cell, exact_class: type, length: int) -> None:
        """The class and the length."""
        owner = self.words.object(exact_class)
        self.record("word", cell, owner, self.objects.size, length)

    def part(self, cell: Cell, index: int) -> Cell:
        """A cell that gets an item of a tuple."""
        part = self.fresh_cell()
        self.record("item", cell, part, index, self.words.object(index))
        return part

    def float_compares(
        self, cell: Cell, operation: str, other: float | int | None, outcome: bool
    ) -> bool:
        """A float beside a number, or beside itself."""
        number = 0.0 if other is None else other
        if type(number) is int and (not fits(number) or int(float(number)) != number):
            return False  # Python compares it as it is
        code, itself = COMPARISON_CODES[operation], int(other is None)
        self.record("float", cell, code, float_bits(float(number)), itself, int(outcome))
        return True

    def floats_compare(self, cell: Cell, other: Cell, operation: str, outcome: bool) -> None:
        """A float beside another one."""
        self.record("floats", cell, other, COMPARISON_CODES[operation], int(outcome))

    # ------------------------------------------------------------------------------ containers

    def length_is(self, source: Source, exact_class: type, length: int) -> bool:
        """How many items, past any `__len__` of a subclass."""
        cell, offset = self.cell(source), self._length_offset(exact_class)
        if cell is None or offset is None:
            return False
        self.record("word", cell, self.words.object(exact_class), offset, length)
        return True

    def _length_offset(self, owner: type) -> int | None:
        """Where instances of a class keep their length."""
        fields = (field for base, field in _SIZED.items() if issubclass(owner, base))
        field = next(fields, None)
        return None if field is None else getattr(self.objects, field)

    def has_count(self, source: ByMethod) -> bool:
        """Whether the method answers the length of a container that keeps it in one word."""
        owner = self.type_of(source.of) if source.name == "__len__" else None
        return (
            owner is not None
            and issubclass(owner, source.kind)
            and is_among(source.kind, _SIZED)
            and self.cell(source.of) is not None
        )

    def count_is(self, source: ByMethod, number: Size) -> bool:
        """A length that is known, or one that varies."""
        owner, cell = self.type_of(source.of), self.cell(source.of)
        offset = None if owner is None else self._length_offset(owner)
        if owner is None or cell is None or offset is None or not fits(number):
            return False
        if isinstance(number, int):
            self.record("word", cell, self.words.object(owner), offset, number)
        else:
            self.record("count", cell, self.words.object(owner), offset, *self.bind(number))
        return True

    def keys_are(self, cell: Cell, exact_class: type, keys: tuple[Any, ...]) -> bool:
        """All keys, in order, where they are text or integers of 64 bits."""
        if not all(type(key) is str or (type(key) is int and fits(key)) for key in keys):
            return False
        shared = [sys.intern(key) if type(key) is str else key for key in keys]
        names = [self.words.object(key) for key in shared]
        self.record("keys", cell, 0, len(names), self.words.object(exact_class), *names)
        return True

    def all_keys_are(self, source: KeysOf, keys: tuple[Any, ...]) -> bool:
        """All keys of a mapping whose order machine code can see, or that has none."""
        container: Source = source.of
        method: type | None = None
        if isinstance(source.of, ByMethod) and source.of.name == "keys":
            container, method = source.of.of, source.of.kind
        owner, cell = self.type_of(container), self.cell(container)
        if owner is None or cell is None:
            return False
        if not (is_among(owner, _OWN_ORDER) if method is None else issubclass(owner, method)):
            return False
        if not keys:
            return self.length_is(container, owner, 0)
        if not issubclass(owner, dict) or issubclass(owner, collections.OrderedDict):
            return False
        return self.keys_are(cell, owner, keys)

    def has_key(self, source: Source, key: Any, present: bool) -> bool:
        """Whether a key is there."""
        if type(key) is str:
            # The read of the dict's keys is the check.
            return self.key_cell(source, key) is not None
        cell = self.cell(source)
        if cell is None or not issubclass(self.type_of(source) or object, dict):
            return False
        if issubclass(type(key), torch.Tensor):
            self.record("has_object", cell, self.words.object(key), hash(key), int(present))
            return True
        if not is_plain_key(self, source, key):
            return False
        self.record("has_key", cell, self.words.object(key), int(present))
        return True

    # --------------------------------------------------------------------------------- classes

    def items_are(self, cell: Cell, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """What a dict holds under some names."""
        rows: list[Word] = []
        for name, value in zip(names, values, strict=True):
            rows += FOUND_ROW.words(self.words.object(sys.intern(name)), id(value))
        record = self.record("items", cell, 0, len(names), *rows)
        first = STEPS["items"].struct.size + FOUND_ROW.places["wanted"]
        for index, value in enumerate(values):
            self.identity(record, first + index * FOUND_ROW.size, value)

    def class_finds(self, cell: Cell, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """What a class finds under some names."""
        rows: list[Word] = []
        for name, value in zip(names, values, strict=True):
            wanted = 0 if value is ABSENT else id(value)
            rows += FOUND_ROW.words(self.words.object(sys.intern(name)), wanted)
        # The step for one name has no count and no loop.
        step, count = ("resolves", ()) if len(names) == 1 else ("answers", (len(names),))
        record = self.record(step, cell, *count, *rows)
        first = STEPS[step].struct.size + FOUND_ROW.places["wanted"]
        for index, value in enumerate(values):
            if value is not ABSENT:
                self.identity(record, first + index * FOUND_ROW.size, value)
