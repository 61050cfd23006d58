"""Tables of rows that run one after the other: passes over a record, rules that decide.

Enters: rows, each with its name, its function, and the rows that it must come after or before, with
the reason. Leaves: a `Table`; the order of its rows is checked whenever it changes, at import first
of all. Invariant: a table whose order contradicts a row cannot be made, and a row that another one
names cannot go. A pass takes a record and answers the record that takes its place; under `verify`
the record is looked over after each row (`spec.py`), so that a fault is told with the pass's name.

    PASSES.add(Row("fold_constants", fold_constants, after=("share_equal",), reason="fewer nodes"))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.ir import spec

Function = TypeVar("Function", bound=Callable[..., Any])
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Row(Generic[Function]):
    """One function of a table. `after` and `before` name rows that it must follow or precede, for
    `reason`."""

    name: str
    run: Function
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    reason: str = ""


class Table(Generic[Function]):
    """Rows in an order that they agree with."""

    def __init__(self, *rows: Row[Function]) -> None:
        self._rows = _checked(rows)

    def __iter__(self) -> Iterator[Row[Function]]:
        return iter(self._rows)

    def add(self, row: Row[Function]) -> None:
        """One more row: the last one, or directly before the first of those it must precede."""
        rows = self._rows
        before = [place for place, one in enumerate(rows) if one.name in row.before]
        place = min(before, default=len(rows))
        self._rows = _checked((*rows[:place], row, *rows[place:]))

    def remove(self, name: str) -> None:
        """Take a row out."""
        self._rows = _checked(tuple(row for row in self._rows if row.name != name))

    @contextmanager
    def skipping(self, name: str, instead: Any) -> Iterator[None]:
        """While entered, `instead` stands for the function of a row: to see what that changes."""
        before = self._rows
        self._rows = tuple(replace(row, run=instead) if row.name == name else row for row in before)
        try:
            yield
        finally:
            self._rows = before

    def foreign(self) -> list[str]:
        """The rows that somebody else than windfall has added."""
        return [row.name for row in self._rows if not is_own(row.run)]


def is_own(function: Any) -> bool:
    """Whether a function stands in windfall itself; a partial is where its function is."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", "")).partition(".")[0] == "windfall"


def _checked(rows: tuple[Row[Function], ...]) -> tuple[Row[Function], ...]:
    places = {row.name: place for place, row in enumerate(rows)}
    for place, row in enumerate(rows):
        if places[row.name] != place:
            raise InternalError(f"two rows are called {row.name}")
        late = [name for name in row.after if places.get(name, place) >= place]
        early = [name for name in row.before if places.get(name, place) <= place]
        if late or early:
            wrong = " and ".join(
                f"{word} {names}" for word, names in (("after", late), ("before", early)) if names
            )
            raise InternalError(f"{row.name} must run {wrong}: {row.reason}")
    return rows


def run_passes(
    table: Table[Callable[[Record], Record]],
    record: Record,
    *,
    verify: bool = False,
    verifier: Callable[[Record], None] = spec.verify,
) -> Record:
    """What the passes of a table make of a record, in order."""
    for row in table:
        record = row.run(record)
        if verify:
            try:
                verifier(record)
            except InternalError as error:
                raise InternalError(f"after {row.name}: {error}") from error
    return record
