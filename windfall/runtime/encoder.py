"""The table of a native guard check under construction: cells, records, and how sources are walked.

Enters: sources. Leaves: the cells at which their values are found while the check runs, and the
records that put them there. A kind of source that can be walked natively has a row in `WALKS`.

Invariant: each source is walked once; every key that is read from one dictionary is read by one
record, which remembers the values together with the dictionary's version.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.guard import Guard, HasKey, TensorIs, symbol_of
from windfall.ir.reading import is_among
from windfall.ir.relation import Relation
from windfall.ir.source import (
    Attribute,
    ByMethod,
    CellContents,
    DictOf,
    Distance,
    Item,
    ItemOfObject,
    Known,
    Overlap,
    Slot,
    Source,
    SourceNumbers,
    TypeOf,
)
from windfall.ir.symint import Expression
from windfall.runtime import support
from windfall.runtime.machine import offsets
from windfall.runtime.machine.basics import RECORD_WORDS, STEPS
from windfall.runtime.machine.object_steps import READ_ROW
from windfall.runtime.size_code import GREATEST, LEAST, Arithmetic, word_range
from windfall.runtime.words import Place, Word, Words, after

DEAD = 1  # an address that no object has: what stands where an identity was that died


class Encoder:
    """The table of a native check under construction."""

    def __init__(self, guards: Sequence[Guard], inputs: Sequence[Source], slot_count: int) -> None:
        objects = torch_abi.object_layout()
        code = support.support()
        assert objects is not None and code is not None, "only made where native code can be"
        self.objects = objects
        self.code = code
        self.words = Words()
        self.words.keep.append(code)
        self.header = self.words.add(*[0] * offsets.BLOCK.size)
        self._slot_cells = self.words.add(*[0] * slot_count)
        self._slot_count = slot_count
        self._records: list[tuple[Word, ...]] = []
        self.numbers = SourceNumbers()
        self._cells: dict[int, Place | None] = {}  # by the number of the source, as all that follow
        self._shared: dict[tuple[int, ...], Place] = {}
        self._weak: list[tuple[int, int, Any]] = []  # record, word, object
        self._types = {
            self.numbers[g.source]: kind
            for g in guards
            if (kind := g.check.implied_class()) is not None
        }
        self._tensors = {
            self.numbers[g.source]: g.check.type for g in guards if isinstance(g.check, TensorIs)
        }
        self.arithmetic = Arithmetic(self.words.add)
        self.symbols: dict[Expression, Word] = {}  # those bound so far: where their values stand
        self.ranks: dict[int, int] = {}  # of tensors that a record has seen, by their cell
        self._relations: list[tuple[Word | None, Relation]] = []
        self._keys = _string_keys(inputs, guards, self.numbers)
        self._read_dicts: set[int] = set()

    def record(self, op: str, *operands: Word) -> int:
        """Append a step of the check; the answer is its number."""
        step = STEPS[op]
        words = step.struct.words(*operands)
        size = 8 * (RECORD_WORDS + len(words))
        self._records.append((self.code.address(step.name), size, *words))
        return len(self._records) - 1

    def bind(self, size: Expression) -> tuple[Place, int, int]:
        """Where a number that is read must be put so that it is this size, and the least and the
        greatest that it may be: a symbol that has no value yet is bound by it."""
        place = self.fresh_cell()
        if symbol_of(size) is not None and size not in self.symbols:
            self.symbols[size] = place
            self.arithmetic.bind(size, place)
            return (place, *word_range(size))
        self._relations.append((place, Relation("==", 0, size)))
        return place, LEAST, GREATEST

    def relate(self, relation: Relation) -> None:
        """Check a relation once all symbols are bound."""
        self._relations.append((None, relation))

    def settle(self) -> bool:
        """Check what waited for symbols. False: some of it needs one that is not bound here."""
        waiting, self._relations = self._relations, []
        complete = True
        for place, relation in waiting:
            if not (self.arithmetic.knows(relation.left) and self.arithmetic.knows(relation.right)):
                complete = False
            else:
                self.arithmetic.relate(relation, place)
        self.calculate()
        return complete

    def calculate(self) -> None:
        """Do the arithmetic that was asked for so far."""
        instructions = self.arithmetic.take()
        if instructions:
            flat = [word for row in instructions for word in row]
            self.record("arithmetic", len(instructions), *flat)

    def identity(self, record: int, place: int, value: Any) -> None:
        """Hold the object that a word of a record names: weakly, where that is possible."""
        try:
            weakref.ref(value)
        except TypeError:
            self.words.object(value)
        else:
            self._weak.append((record, place, value))

    def cell(self, source: Source) -> Place | None:
        """Where the value at `source` is found during the check; None: it has no native walk."""
        number = self.numbers[source]
        if number not in self._cells:
            walk = WALKS.get(type(source))
            self._cells[number] = None if walk is None else walk(self, source)
        return self._cells[number]

    def type_of(self, source: Source) -> type | None:
        """The exact class that the value at `source` is guarded to have."""
        return self._types.get(self.numbers[source])

    def tensor_type(self, source: Source) -> TensorType | None:
        """The type that the tensor at `source` is guarded to have."""
        return self._tensors.get(self.numbers[source])

    def shared(self, row: tuple[int, ...]) -> Place:
        """Words that several records refer to: kept once, so that they stay in the cache."""
        if row not in self._shared:
            self._shared[row] = self.words.add(*row)
        return self._shared[row]

    def fresh_cell(self) -> Place:
        """A cell for a value on the way."""
        return self.words.add(0)

    def slot(self, index: int) -> Place | None:
        """The cell of an argument."""
        return after(self._slot_cells, index) if index < self._slot_count else None

    def key_cell(self, table: Source, key: str) -> Place | None:
        """The cell of a value in a dict; the first request reads every key that will be asked."""
        number = self.numbers[table]
        keys = self._keys[number]
        if number not in self._read_dicts:
            # The dictionary of an object is found and read in one step.
            attributes = isinstance(table, DictOf)
            dictionary = self.cell(table.of if isinstance(table, DictOf) else table)
            if dictionary is None:
                return None
            self._read_dicts.add(number)
            rows = [
                READ_ROW.words(self.words.object(name), place, int(present))
                for name, (place, present) in keys.items()
            ]
            flat = [word for row in rows for word in row]
            step = "attributes" if attributes else "dict_read"
            self.record(step, dictionary, 0, len(rows), *flat)
        return keys[key][0]

    def reserve_keys(self) -> None:
        """Give each key that is read a cell."""
        for keys in self._keys.values():
            for name, (_, present) in list(keys.items()):
                keys[name] = (self.words.add(0), present)

    def finish(self) -> EncodedCheck:
        """The table, complete but for what the entry adds to its header."""
        self.record("end")
        places = [self.words.add(*record) for record in self._records]
        weak = [(after(places[record], place), value) for record, place, value in self._weak]
        check = EncodedCheck(self.words, self.header, weak, symbols=self.symbols)
        check.set(slots=self._slot_count, slot_cells=self._slot_cells, start=places[0])
        return check


@dataclass(slots=True)
class EncodedCheck:
    """A native check as a table: the entry fills in its header and builds it."""

    words: Words
    header: Place
    weak: list[tuple[Place, Any]]
    inputs: tuple[Place, ...] = ()
    symbols: dict[Expression, Word] = field(default_factory=dict)  # where their values stand

    def set(self, **words: Word) -> None:
        """Fill in words of the header."""
        for name, word in words.items():
            self.words.set(after(self.header, offsets.BLOCK.places[name]), word)

    def builtin(self, name: str, function: str) -> Callable[..., Any]:
        """The builtin whose code is `function` of the shared code and whose data is this table."""
        code = support.support()
        assert code is not None
        block = self.words.build()
        watching = []
        for place, value in self.weak:
            address = Words.address(block, place)
            watching.append(weakref.ref(value, functools.partial(_forget, address)))
        keep = (self.words.keep, watching)
        return torch_abi.make_builtin(name, code.address(function), block, keep)


def _forget(address: int, _: object) -> None:
    torch_abi.write_word(address, DEAD)


def _string_keys(
    inputs: Iterable[Source], guards: Sequence[Guard], numbers: SourceNumbers
) -> dict[int, dict[str, tuple[Place, bool]]]:
    """For each dict that is read: the names read from it, and whether they must be there."""
    found: dict[int, dict[str, tuple[Place, bool]]] = {}
    nowhere = Place(0)
    noted: set[int] = set()

    def note(source: Source | None) -> None:
        while source is not None and (number := numbers[source]) not in noted:
            noted.add(number)
            if isinstance(source, Item) and type(source.key) is str:
                table = found.setdefault(numbers[source.of], {})
                table[sys.intern(source.key)] = (nowhere, True)
            source = source.base

    for source in _all_sources(inputs, guards):
        note(source)
    for guard in guards:
        if isinstance(guard.check, HasKey) and type(guard.check.key) is str:
            table = found.setdefault(numbers[guard.source], {})
            table[sys.intern(guard.check.key)] = (nowhere, guard.check.present)
    return found


def _all_sources(inputs: Iterable[Source], guards: Iterable[Guard]) -> Iterator[Source]:
    yield from inputs
    for guard in guards:
        yield guard.source
        yield from guard.check.reads()
        if isinstance(guard.source, Overlap):
            yield from guard.source.written
            yield from guard.source.others
        elif isinstance(guard.source, Distance):
            yield from (guard.source.start, guard.source.end)


# How a source is walked natively: the cell of its value, or None where it cannot be.
Walk = Callable[[Encoder, Any], Place | None]


def _walk_slot(encoder: Encoder, source: Slot) -> Place | None:
    return encoder.slot(source.index)


def _walk_known(encoder: Encoder, source: Known) -> Place | None:
    return encoder.words.add(encoder.words.object(source.value))


def _walk_dict(encoder: Encoder, source: DictOf) -> Place | None:
    base = encoder.cell(source.of)
    if base is None:
        return None
    target = encoder.fresh_cell()
    encoder.record("dict_of", base, target)
    return target


# Keys whose hash and equality are C code.
_PLAIN_KEYS = (int, bool, type(None), bytes, float)
_PLAIN_OBJECTS = (type, types.FunctionType, types.BuiltinFunctionType)  # by identity


def is_plain_key(encoder: Encoder, container: Source, key: Any) -> bool:
    """Whether a key can be looked up without user code."""
    if is_among(type(key), _PLAIN_KEYS):
        return True
    return is_among(type(key), _PLAIN_OBJECTS) and issubclass(
        encoder.type_of(container) or object, dict
    )


def _walk_item(encoder: Encoder, source: Item) -> Place | None:
    if type(source.key) is str:
        return encoder.key_cell(source.of, sys.intern(source.key))
    return _item_cell(encoder, source.of, source.key)


def _item_cell(encoder: Encoder, container: Source, key: Any) -> Place | None:
    """The cell of an item of a list, tuple or dict, past any `__getitem__` of a subclass."""
    base = encoder.cell(container)
    if base is None or not is_plain_key(encoder, container, key):
        return None
    index = key if type(key) in (int, bool) else None
    if index is not None and abs(index) >= 1 << 62:
        return None
    target = encoder.fresh_cell()
    # A key that is no index only fits a dict: no sequence is as long as this number.
    place = (1 << 62) if index is None else int(index)
    encoder.record("item", base, target, place, encoder.words.object(key))
    return target


def _walk_item_of_object(encoder: Encoder, source: ItemOfObject) -> Place | None:
    base = encoder.cell(source.of)
    if base is None:
        return None
    target = encoder.fresh_cell()
    key = encoder.words.object(source.key)
    encoder.record("item_of_object", base, target, key, hash(source.key))
    return target


# Methods that answer an item, and of which classes.
_ITEM_METHODS: dict[str, tuple[type, ...]] = {"__getitem__": (tuple, list, dict), "get": (dict,)}


def _walk_method(encoder: Encoder, source: ByMethod) -> Place | None:
    owner = encoder.type_of(source.of)
    known = _ITEM_METHODS.get(source.name, ())
    if owner is None or len(source.arguments) != 1 or not issubclass(source.kind, known):
        return None
    # The class itself may not be `kind`, but neither does it stand between it and the builtin.
    if not issubclass(owner, source.kind) or source.kind not in (*known, OrderedDict):
        return None
    (key,) = source.arguments
    if type(key) is not str:
        return _item_cell(encoder, source.of, key)
    base = encoder.cell(source.of)
    if base is None or not issubclass(owner, dict):
        return None
    target = encoder.fresh_cell()
    encoder.record("item", base, target, 1 << 62, encoder.words.object(sys.intern(key)))
    return target


_TENSORS = (torch.Tensor, torch.nn.Parameter)


def _walk_gradient(encoder: Encoder, source: Attribute) -> Place | None:
    """Of a tensor, which has it behind a function of C that makes an object of it."""
    owner, base = encoder.type_of(source.of), encoder.cell(source.of)
    if base is None or owner is None or not is_among(owner, _TENSORS):
        return None
    target = encoder.fresh_cell()
    name = encoder.words.object(sys.intern(source.name))
    encoder.record("gradient", base, target, encoder.words.object(owner), name)
    return target


def _walk_attribute(encoder: Encoder, source: Attribute) -> Place | None:
    if source.name == "grad":
        return _walk_gradient(encoder, source)
    owner, offset, default = _field(encoder, source)
    base = encoder.cell(source.of) if owner is not None else None
    if base is None or owner is None:
        return None
    target = encoder.fresh_cell()
    encoder.record("load", base, target, encoder.words.object(owner), offset, default)
    return target


def _field(encoder: Encoder, source: Attribute) -> tuple[type | None, int, int]:
    """The exact class, the offset and what null means, of a field that is one load."""
    owner = type(source.of.value) if isinstance(source.of, Known) else encoder.type_of(source.of)
    functions = torch_abi.function_layout() or {}
    named = source.name in ("__name__", "__qualname__")  # which others have too
    if source.name in functions and (owner is types.FunctionType or not named):
        optional = source.name in ("__defaults__", "__kwdefaults__", "__closure__")
        return types.FunctionType, functions[source.name], id(None) if optional else 0
    methods = torch_abi.method_layout() or {}
    if source.name in methods:
        return types.MethodType, methods[source.name], 0
    offset = None if owner is None else torch_abi.member_offset(owner, source.name)
    if owner is None or offset is None:
        return None, 0, 0
    return owner, offset, torch_abi.null_member(owner, source.name)


def _walk_cell(encoder: Encoder, source: CellContents) -> Place | None:
    base = encoder.cell(source.of)
    if base is None:
        return None
    target = encoder.fresh_cell()
    owner = encoder.words.object(types.CellType)
    encoder.record("load", base, target, owner, encoder.objects.cell_contents, 0)
    return target


def _walk_type(encoder: Encoder, source: TypeOf) -> Place | None:
    base = encoder.cell(source.of)
    if base is None:
        return None
    target = encoder.fresh_cell()
    encoder.record("type_of", base, target)
    return target


WALKS: dict[type[Source], Walk] = {
    Slot: _walk_slot,
    Known: _walk_known,
    DictOf: _walk_dict,
    Item: _walk_item,
    ItemOfObject: _walk_item_of_object,
    Attribute: _walk_attribute,
    CellContents: _walk_cell,
    TypeOf: _walk_type,
    ByMethod: _walk_method,
}
