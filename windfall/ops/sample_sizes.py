"""The sizes at which a rule is tried.

Enters: the symbols that stand in its arguments. Leaves: values of them that may occur. Invariant:
they are in the symbols' ranges and satisfy what has been assumed of them (`ir/relation.py`). What
is read from data has no value to begin with: rules are tried at all sorts of values for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from windfall.ir.dtype import TensorType
from windfall.ir.relation import Relation, assumptions
from windfall.ir.symint import (
    Atom,
    Expression,
    Read,
    Size,
    evaluate,
)
from windfall.ops.symbolic import at, symbols_in

Values = dict[str, int]


def hints(symbols: frozenset[Atom]) -> Values:
    """What the symbols are in the call being compiled."""
    return {atom.key: atom.payload.value for atom in symbols}


def trials(symbols: frozenset[Atom]) -> Iterator[Values]:
    """Other sizes that may occur: first some that tell symbols apart which are equal now."""
    atoms = sorted(symbols, key=lambda atom: atom.key)
    assumed = assumptions()
    relations = _about(symbols, assumed.relations if assumed is not None else ())
    for change in _CHANGES:
        values = {atom.key: change(atom.payload.value, place) for place, atom in enumerate(atoms)}
        if all(_in_range(atom, values[atom.key]) for atom in atoms) and all(
            one.holds(values) for one in relations
        ):
            yield values


_CHANGES: tuple[Callable[[int, int], int], ...] = (
    lambda value, place: value + 1 + place,
    lambda value, place: value + 2,
    lambda value, place: value * 2,
    lambda value, place: value * 5,
    lambda value, place: value * 3,
    lambda value, place: value + 1,
    lambda value, place: value - 1,
)


def _about(symbols: frozenset[Atom], relations: Iterable[Relation]) -> list[Relation]:
    """Those that speak of no other symbols."""
    return [one for one in relations if symbols_in((one.left, one.right)) <= symbols]


def _in_range(atom: Atom, value: int) -> bool:
    return (atom.low is None or value >= atom.low) and (atom.high is None or value <= atom.high)


def unread_points(symbols: frozenset[Atom], given: Sequence[Any]) -> Iterator[Values]:
    """Values that may occur where some are read from data: small ones, 0 and 1 among them, and
    those about the sizes that stand beside them."""
    reads = sorted((a for a in symbols if a.payload.__class__ is Read), key=lambda a: a.key)
    others = symbols - frozenset(reads)
    assumed = assumptions()
    relations = _about(symbols, assumed.all_relations() if assumed is not None else ())
    seen: set[tuple[int, ...]] = set()
    for base in (hints(others), next(trials(others), {})) if others else ({},):
        few = [few_values(atom) for atom in reads]
        for chosen in few[0] if len(few) == 1 and few[0] else _chosen(reads, _edges(given, base)):
            values = base | {atom.key: one for atom, one in zip(reads, chosen, strict=True)}
            key = tuple(values.values())
            if key in seen or not all(_in_range(atom, values[atom.key]) for atom in reads):
                continue
            seen.add(key)
            if all(one.holds(values) for one in relations) and exist(at(list(given), values)):
                yield values


def exist(found: Any) -> bool:
    """Whether there are tensors of such types: no size is negative."""
    if isinstance(found, TensorType):
        return all(isinstance(size, int) and size >= 0 for size in found.sizes)
    return not isinstance(found, list | tuple) or all(map(exist, found))


def _edges(given: Sequence[Any], values: Values) -> list[int]:
    """Numbers at which something may change: about sizes that are known. Where `u0 - 1` is given,
    these are for `u0` one further."""
    found = _size_edges(given, values) if len(given) > 1 else set()  # one tensor has no edges
    for number in flat(given):
        if is_shifted(number):
            found |= {edge - number.constant for edge in found}
    return sorted(found)


def is_shifted(number: Expression) -> bool:
    """A number that is read, plus or minus a constant."""
    moved = number - number.constant
    atom = moved.atom if isinstance(moved, Expression) else None
    return atom is not None and atom.payload.__class__ is Read


def _size_edges(given: Sequence[Any], values: Values) -> set[int]:
    found: set[int] = set()
    for one in given:
        if isinstance(one, TensorType):
            sizes = [s for s in one.sizes if symbols_in([s]) <= frozenset(_named(s, values))]
            for size in (evaluate(s, values) for s in sizes):
                found |= {size - 1, size, size + 1, -size, -size - 1}
        elif isinstance(one, list | tuple):
            found |= _size_edges(one, values)
        elif type(one) is int and abs(one) <= NEAR:
            found |= {one - 1, one, one + 1, -one - 1, -one, 1 - one}
    return found


NEAR = 1 << 20  # constants beyond are no places in a tensor


def _named(size: Size, values: Values) -> list[Atom]:
    return [atom for atom in symbols_in([size]) if atom.key in values]


_ALL = 20  # values of one number that are all tried


def few_values(atom: Atom) -> list[tuple[int, ...]]:
    """All values of a number, where they are few."""
    if atom.low is None or atom.high is None or atom.high - atom.low >= _ALL:
        return []
    return [(one,) for one in range(atom.low, atom.high + 1)]


def _chosen(reads: Sequence[Atom], edges: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """For these reads: all different, all equal, each of them small or at an edge alone."""
    count = len(reads)
    for one in (3, 0, 1, 2, 6, 64):
        yield tuple(one + 2 * place for place in range(count))
        yield (one,) * count
    for one in (0, 1, *edges, -1, -2, -9):
        yield (one,) * count
        for place in range(count if count > 1 else 0):
            yield tuple(one if each == place else 3 + each for each in range(count))
    for step in range(4):  # about the ends of what is possible
        yield tuple(_near(atom.low) + step for atom in reads)
        yield tuple(_near(atom.high) - step for atom in reads)


def _near(end: int | None) -> int:
    return 5 if end is None or abs(end) > NEAR else end


def flat(given: Sequence[Any], kind: type = Expression) -> list[Any]:
    """The numbers of a kind among arguments, in lists too; not those in types."""
    found: list[Any] = []
    for one in given:
        if isinstance(one, list | tuple):
            found += flat(one, kind)
        elif type(one) is kind:
            found.append(one)
    return found
