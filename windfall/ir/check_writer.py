"""What a check can say to machine code.

Enters: nothing. Leaves: the protocol that checks write their native form against. The table of
records of the runtime implements it (`object_guards.py`, `tensor_guards.py`), so `ir` knows no
offset of a C structure and no instruction. Invariant: what answers False has promised nothing: the
check is then left to its own `holds`, in Python.
"""

from __future__ import annotations

from typing import Any, Protocol

from windfall.ir.dtype import TensorType
from windfall.ir.relation import Relation
from windfall.ir.source import Distance, KeysOf, Overlap, Source
from windfall.ir.symint import Size
from windfall.torch_abi import Ambient

Cell = int  # where a value is found while the check runs


class NativeCheckWriter(Protocol):
    """The native form of a check under construction."""

    def cell(self, source: Source) -> Cell | None:
        """Where the value at `source` is found; None: machine code cannot walk there."""

    def part(self, cell: Cell, index: int) -> Cell:
        """Where an item of a tuple is found."""

    def type_of(self, source: Source) -> type | None:
        """The exact class that some check says the value at `source` has."""

    def class_is(self, cell: Cell, exact_class: type) -> None:
        """The exact class."""

    def object_is(self, cell: Cell, value: Any, *, weakly: bool) -> None:
        """This very object."""

    def int_is(self, cell: Cell, value: int) -> None:
        """An exact int."""

    def float_is(self, cell: Cell, value: float) -> None:
        """An exact float of these bits."""

    def text_is(self, cell: Cell, value: str) -> None:
        """An exact str."""

    def tuple_is(self, cell: Cell, exact_class: type, length: int) -> None:
        """A tuple of this exact class, with so many items."""

    def float_compares(
        self, cell: Cell, operation: str, other: float | int | None, outcome: bool
    ) -> bool:
        """An exact float beside a number, or itself."""

    def floats_compare(self, cell: Cell, other: Cell, operation: str, outcome: bool) -> None:
        """Two exact floats."""

    def length_is(self, source: Source, exact_class: type, length: int) -> bool:
        """How many items a container of this exact class has."""

    def keys_are(self, cell: Cell, exact_class: type, keys: tuple[Any, ...]) -> bool:
        """All keys of a dict of this exact class, in order."""

    def all_keys_are(self, source: KeysOf, keys: tuple[Any, ...]) -> bool:
        """All keys of a mapping, in its own order."""

    def has_key(self, source: Source, key: Any, present: bool) -> bool:
        """Whether a dict has a key."""

    def same(self, cell: Cell, other: Cell, same: bool) -> None:
        """Whether two values are one object."""

    def items_are(self, cell: Cell, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """What a dict holds under names."""

    def class_finds(self, cell: Cell, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """What a class finds along its MRO."""

    def tensor_is(
        self, cell: Cell, type: TensorType, exact_class: type, dispatch_keys: int
    ) -> bool:
        """Everything that a type says of a tensor; what varies is bound or compared."""

    def scalar_within(
        self, cell: Cell, source: Source, low: float, high: float, whole: bool
    ) -> bool:
        """What a tensor without dimensions holds, which an earlier check has seen to be one."""

    def is_plain_leaf(self, cell: Cell) -> bool:
        """A leaf without hooks, which an earlier check has seen to be a tensor."""

    def is_number(self, source: Source) -> bool:
        """Whether a number is read here that is no object (a size, a length)."""

    def number_is(self, source: Source, number: Size) -> bool:
        """An int, which binds a symbol that has no value yet."""

    def relate(self, relation: Relation) -> None:
        """A relation between symbols, looked at once all of them are bound."""

    def thread_is(self, state: Ambient) -> None:
        """The state of the thread."""

    def distance_is(self, source: Distance, bytes: int) -> bool:
        """That a tensor lies so many bytes behind another one."""

    def are_apart(self, source: Overlap) -> bool:
        """That no written tensor shares memory with another one."""
