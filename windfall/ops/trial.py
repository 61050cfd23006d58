"""A rule that is asked about sizes that vary, tried at sizes that do not.

Enters: a shape rule and its arguments, in which expressions stand. Leaves: its answer, which was
found to be the rule's answer at other sizes too. Invariant: an answer that holds only now, and a
rule that cannot deal with expressions, are a `Specialise`, never a wrong size; arguments that do
not fit raise what eager raises.

The sizes at which a rule is tried satisfy what has been assumed of them (`ir/relation.py`). What is
read from data has no value to begin with: rules are tried at all sorts of values for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.relation import Relation, assumptions, depends_on_assumptions, questions
from windfall.ir.symint import (
    Atom,
    Expression,
    Read,
    Size,
    evaluate,
    floor_divide,
    maximum,
    minimum,
    modulo,
    reads_of,
)
from windfall.ops.symbolic import at, symbols_in

Values = dict[str, int]

# What rules raise of themselves, and what arithmetic on expressions raises.
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError)


def hints(symbols: frozenset[Atom]) -> Values:
    """What the symbols are in the call being compiled."""
    return {atom.key: atom.payload.value for atom in symbols}


def trials(symbols: frozenset[Atom]) -> Iterator[Values]:
    """Other sizes that may occur: first some that tell symbols apart which are equal now."""
    atoms = sorted(symbols, key=lambda atom: atom.key)
    assumed = assumptions()
    relations = [
        one
        for one in (assumed.relations if assumed is not None else ())
        if symbols_in((one.left, one.right)) <= symbols
    ]
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


def _in_range(atom: Atom, value: int) -> bool:
    return (atom.low is None or value >= atom.low) and (atom.high is None or value <= atom.high)


def confirmed(
    subject: Any, given: Sequence[Any], result: Any, ask: Callable[[Values], Any]
) -> None:
    """Whether a whole function, of which torch's own code may have taken something for granted,
    answers `result` (types and sizes) whatever is read; else a `Specialise`."""
    symbols = symbols_in((*given, result))
    names = _reads(symbols)
    for values in itertools.islice(unread_points(symbols, given), _CONFIRMED):
        there = ask(values)  # NotImplemented: it raises, here and where it runs
        if there is not NotImplemented and not _alike(at(result, values), there):
            wrong = f"{subject}: {at(result, values)} would be {there}, which"
            raise Specialise(names, wrong)


_CONFIRMED = 10


def tried(
    subject: Any, rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """`rule(*args, **kwargs)`, found to be right at two sizes. What rests on no assumption is
    remembered: the layers of a model ask the same again and again."""
    key = (rule, _frozen(args), _frozen(tuple(kwargs.items())))
    found = _TRIED.get(key)
    if found is not None:
        return found
    asked = questions()
    answer = _tried(subject, rule, args, kwargs)
    if questions() == asked:
        if len(_TRIED) >= _KEPT:
            _TRIED.clear()
        _TRIED[key] = answer
    return answer


_TRIED: dict[Any, Any] = {}
_KEPT = 4096


def _frozen(value: Any) -> Any:
    """A key for an argument; numbers that are equal but of different types are different."""
    kind = value.__class__
    if kind is TensorType or kind is Expression or kind is int:
        return value
    if isinstance(value, list | tuple):
        return tuple([_frozen(one) for one in value])
    return kind, value


def _tried(
    subject: Any, rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    symbols = symbols_in((*args, *kwargs.values()))
    if any(atom.payload.__class__ is Read for atom in symbols):
        depends_on_assumptions()  # what is told of reads decides where they are tried
        return _tried_unread(subject, rule, args, kwargs, symbols)
    names = frozenset(atom.key for atom in symbols)
    failure: Exception | None = None
    answer: Any = None
    try:
        answer = rule(*args, **kwargs)
    except _FAILURES as error:
        failure = error
    if answer is NotImplemented:
        return answer
    now = hints(symbols)
    here = _at(rule, args, kwargs, now)  # eager's error, if it is one
    if failure is not None:
        raise Specialise(names, f"{subject} ({failure})") from failure
    if here is NotImplemented:
        return here
    if at(answer, now) != here:
        raise Specialise(names, f"{subject}: {at(answer, now)} is {here}, which")
    for values in trials(symbols):
        try:
            there = _at(rule, args, kwargs, values)
        except _FAILURES as error:
            raise Specialise(names, f"{subject} ({error})") from error
        if at(answer, values) != there:
            raise Specialise(names, f"{subject}: {at(answer, values)} would be {there}, which")
        break
    return answer


def _at(
    rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], values: Values
) -> Any:
    return rule(*at(list(args), values), **{name: at(one, values) for name, one in kwargs.items()})


# -------------------------------------------------------------------------------- by examples


def generalised(
    subject: Any,
    ask: Callable[[Values], Any],
    symbols: frozenset[Atom],
    given: Sequence[Any],
) -> Any:
    """The answer of something that deals only with known sizes: asked at several of them; a size of
    the result that is always some size of an argument (in `given`), or a multiple or a part of it,
    is that one."""
    names = frozenset(atom.key for atom in symbols)
    if any(atom.payload.__class__ is Read for atom in symbols):
        return _generalised_unread(subject, ask, symbols, given)
    points = [hints(symbols)]
    answers = [ask(points[0])]
    for values in trials(symbols):
        points.append(values)
        try:
            answers.append(ask(values))
        except _FAILURES as error:
            raise Specialise(names, f"{subject} ({error})") from error
        if len(points) == _EXAMPLES:
            break
    if len(points) < 3:
        raise Specialise(names, f"{subject}, of which too few sizes are possible,")
    found = _General(points, _sizes_of(given)).value(answers)
    if found is _NONE:
        raise Specialise(names, f"{subject}, whose result no rule describes,")
    return found


_NONE: Any = object()
_EXAMPLES = 5


def _sizes_of(given: Sequence[Any]) -> list[Expression]:
    found: dict[Expression, None] = {}
    for one in given:
        if isinstance(one, TensorType):
            found |= dict.fromkeys(_sizes_of((*one.sizes, *one.strides)))
        elif isinstance(one, list | tuple):
            found |= dict.fromkeys(_sizes_of(one))
        elif isinstance(one, Expression):
            found[one] = None
    return list(found)


class _General:
    """What fits several examples."""

    def __init__(self, points: Sequence[Values], candidates: Sequence[Expression]) -> None:
        self._by_values: dict[tuple[int, ...], Size] = {}
        for one in candidates:
            self._by_values.setdefault(tuple(one.evaluate(p) for p in points), one)
        self._points = points

    def value(self, answers: Sequence[Any]) -> Any:
        first = answers[0]
        if any(one.__class__ is not first.__class__ for one in answers):
            return _NONE
        if isinstance(first, TensorType):
            return self._type(answers)
        if isinstance(first, list | tuple):
            if any(len(one) != len(first) for one in answers):
                return _NONE
            parts = [self.value(each) for each in zip(*answers, strict=True)]
            return _NONE if any(one is _NONE for one in parts) else tuple(parts)
        return first if all(one == first for one in answers) else _NONE

    def _type(self, answers: Sequence[TensorType]) -> Any:
        first = answers[0]
        if any(one.rank != first.rank or one.dtype != first.dtype for one in answers):
            return _NONE
        sizes = [self._size(each) for each in zip(*(one.sizes for one in answers), strict=True)]
        if any(one is _NONE for one in sizes):
            return _NONE
        strides = contiguous_strides(tuple(sizes))
        if any(
            tuple(evaluate(stride, values) for stride in strides) != one.strides
            for one, values in zip(answers, self._points, strict=True)
        ):
            strides = tuple(
                self._size(each) for each in zip(*(one.strides for one in answers), strict=True)
            )
        if any(one is _NONE for one in strides):
            return _NONE
        return TensorType(first.dtype, tuple(sizes), strides, first.device)

    def _size(self, values: tuple[Any, ...]) -> Any:
        if all(one == values[0] for one in values):
            return values[0]
        found = self._by_values.get(values, _NONE)
        return self._in_proportion(values) if found is _NONE else found

    def _in_proportion(self, values: tuple[Any, ...]) -> Any:
        for known, size in self._by_values.items():
            if all(a * known[0] == values[0] * b for a, b in zip(values, known, strict=True)):
                common = gcd(values[0], known[0])
                whole, part = size * (values[0] // common), known[0] // common
                if common and modulo(whole, part) == 0:
                    return floor_divide(whole, part)
        return _NONE


# ------------------------------------------------------------------------- what is read from data


def unread_points(symbols: frozenset[Atom], given: Sequence[Any]) -> Iterator[Values]:
    """Values that may occur where some are read from data: small ones, 0 and 1 among them, and
    those about the sizes that stand beside them."""
    reads = sorted((a for a in symbols if a.payload.__class__ is Read), key=lambda a: a.key)
    others = symbols - frozenset(reads)
    assumed = assumptions()
    relations = [
        one
        for one in (assumed.all_relations() if assumed is not None else ())
        if symbols_in((one.left, one.right)) <= symbols
    ]
    seen: set[tuple[int, ...]] = set()
    for base in (hints(others), next(trials(others), {})) if others else ({},):
        few = [_few(atom) for atom in reads]
        for chosen in few[0] if len(few) == 1 and few[0] else _chosen(reads, _edges(given, base)):
            values = base | {atom.key: one for atom, one in zip(reads, chosen, strict=True)}
            key = tuple(values.values())
            if key in seen or not all(_in_range(atom, values[atom.key]) for atom in reads):
                continue
            seen.add(key)
            if all(one.holds(values) for one in relations):
                yield values


def _edges(given: Sequence[Any], values: Values) -> list[int]:
    """Numbers at which something may change: about sizes that are known. Where `u0 - 1` is given,
    these are for `u0` one further."""
    found = _size_edges(given, values) if len(given) > 1 else set()  # one tensor has no edges
    for number in _flat(given):
        if _is_shifted(number):
            found |= {edge - number.constant for edge in found}
    return sorted(found)


def _is_shifted(number: Expression) -> bool:
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
        elif type(one) is int and abs(one) <= _NEAR:
            found |= {one - 1, one, one + 1, -one - 1, -one, 1 - one}
    return found


_NEAR = 1 << 20  # constants beyond are no places in a tensor


def _named(size: Size, values: Values) -> list[Atom]:
    return [atom for atom in symbols_in([size]) if atom.key in values]


_ALL = 20  # values of one number that are all tried


def _few(atom: Atom) -> list[tuple[int, ...]]:
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
    return 5 if end is None or abs(end) > _NEAR else end


def _tried_unread(
    subject: Any,
    rule: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    symbols: frozenset[Atom],
) -> Any:
    """As `_tried`, at all of `unread_points`. Where a rule cannot tell from expressions, the
    answers at these points do."""
    answer: Any = _NONE
    try:
        answer = rule(*args, **kwargs)
    except Specialise as reason:
        if not reason.names & _reads(symbols):
            raise
    except _FAILURES:
        pass  # what it raises at known values counts
    if answer is NotImplemented:
        return answer
    given = (*args, *kwargs.values())

    def ask(values: Values) -> Any:
        return _at(rule, args, kwargs, values)

    points, answers = _asked(subject, ask, symbols, given)
    if any(one is NotImplemented for one in answers):
        return NotImplemented
    if answer is not _NONE and all(
        _alike(at(answer, values), there) for values, there in zip(points, answers, strict=True)
    ):
        return answer
    return _fitting(subject, points, answers, symbols, given)


def _generalised_unread(
    subject: Any,
    ask: Callable[[Values], Any],
    symbols: frozenset[Atom],
    given: Sequence[Any],
) -> Any:
    points, answers = _asked(subject, ask, symbols, given)
    return _fitting(subject, points, answers, symbols, given)


def _reads(symbols: frozenset[Atom]) -> frozenset[str]:
    return frozenset(atom.key for atom in symbols if atom.payload.__class__ is Read)


def _asked(
    subject: Any, ask: Callable[[Values], Any], symbols: frozenset[Atom], given: Sequence[Any]
) -> tuple[list[Values], list[Any]]:
    """The answers where there are any. Elsewhere the op raises, in eager and where it runs: then
    what it was given is told to be such that it does not."""
    points, answers, refused = [], [], []
    failure: Exception | None = None
    for values in unread_points(symbols, given):
        try:
            answers.append(ask(values))
        except _FAILURES as error:
            failure = failure or error
            refused.append(values)
        else:
            points.append(values)
    if failure is not None and not points:
        raise failure  # eager's error, whatever is read
    names = _reads(symbols)
    reads = [atom for atom in symbols if atom.key in names]
    if len(points) < (1 if all(map(_few, reads)) else _FEWEST):
        raise Specialise(names, f"{subject}, of which too few sizes are possible,")
    if failure is not None:
        _expect(subject, points, refused, given, names, failure)
    return points, answers


_FEWEST = 3


def _expect(
    subject: Any,
    points: Sequence[Values],
    refused: Sequence[Values],
    given: Sequence[Any],
    names: frozenset[str],
    failure: Exception,
) -> None:
    """Tell what numbers must be where an op does not refuse them."""
    numbers = [one for one in _flat(given) if reads_of(one)]
    sizes = {s for one in given if isinstance(one, TensorType) for s in one.sizes}
    candidates = [Relation(">=", one, 0) for one in numbers if _tells_sign(one, points, refused)]
    enough = {1, *(one + 1 if one >= 0 else -one for one in _flat(given, int))}
    candidates += [
        Relation(">=", one, least) for least in sorted(enough) for one in sizes if reads_of(one)
    ]
    # Only of these it was asked at the edge itself.
    for one in filter(_is_shifted, numbers):
        for size in sorted((one for one in sizes if not reads_of(one)), key=str):
            candidates += [Relation("<", one, size), Relation("<=", one, size)]
            candidates += [Relation(">=", one, -size)]
    holding = [one for one in candidates if all(one.holds(values) for values in points)]
    left = list(refused)
    assumed = assumptions()
    for one in holding:
        remaining = [values for values in left if one.holds(values)]
        if len(remaining) < len(left) and assumed is not None:
            assumed.expect(one)
            left = remaining
    if left or assumed is None:
        raise Specialise(names, f"{subject} ({failure})") from failure


def _tells_sign(size: Expression, points: Sequence[Values], refused: Sequence[Values]) -> bool:
    """Whether numbers about 0 were among those that were tried."""
    return any(-2 <= size.evaluate(values) < 0 for values in refused) and any(
        0 <= size.evaluate(values) < 2 for values in points
    )


def _flat(given: Sequence[Any], kind: type = Expression) -> list[Any]:
    """The numbers of a kind among arguments, in lists too; not those in types."""
    found: list[Any] = []
    for one in given:
        if isinstance(one, list | tuple):
            found += _flat(one, kind)
        elif type(one) is kind:
            found.append(one)
    return found


def _fitting(
    subject: Any,
    points: Sequence[Values],
    answers: Sequence[Any],
    symbols: frozenset[Atom],
    given: Sequence[Any],
) -> Any:
    found = _Unread(points, _candidates(given)).value(answers)
    if found is _NONE or not all(
        _alike(at(found, values), there) for values, there in zip(points, answers, strict=True)
    ):
        raise Specialise(_reads(symbols), f"{subject}, whose result no rule describes,")
    return found


def _candidates(given: Sequence[Any]) -> list[Expression]:
    """What a size may be: one of those that are given, where a slice ends that is given its end,
    or a sum of a size and a number."""
    found = dict.fromkeys(_sizes_of(given))
    numbers = _flat(given)
    places = [one for one in _flat(given, int) if abs(one) <= _NEAR][:_PLACES]
    sizes = dict.fromkeys(s for one in given if isinstance(one, TensorType) for s in one.sizes)
    for size in sizes:
        ends = [minimum(one, size) for one in numbers]
        ends += [_end_of_slice(one, size) for one in numbers]
        if reads_of(size):
            ends += [minimum(one, size) if one >= 0 else maximum(size + one, 0) for one in places]
        made = [*ends, *(size - end for end in ends)]
        made += [maximum(one - other, 0) for one in ends for other in ends if one is not other]
        made += [size + one for one in numbers] + [size - one for one in numbers]
        found |= dict.fromkeys(one for one in made if isinstance(one, Expression))
    return list(found)


_PLACES = 4


def _end_of_slice(number: Size, size: Size) -> Size:
    """Where a slice of `size` ends: a negative number counts from the end, and both are cut."""
    below = maximum(minimum(number, -1) + size, 0)  # right for negative ones, else size - 1
    if isinstance(size, int) and not size:
        return 0
    return (
        minimum(maximum(number, 0), size) + below - (size - 1) * minimum(maximum(number + 1, 0), 1)
    )


class _Unread(_General):
    """Likewise, of what is read from data: strides count only where they mean something, and there
    are numbers that are no sizes."""

    def value(self, answers: Sequence[Any]) -> Any:
        if all(type(one) is int for one in answers):
            return self._size(tuple(answers))
        return super().value(answers)

    def _type(self, answers: Sequence[TensorType]) -> Any:
        first = answers[0]
        if any(one.rank != first.rank or one.dtype != first.dtype for one in answers):
            return _NONE
        sizes = [self._size(each) for each in zip(*(one.sizes for one in answers), strict=True)]
        if any(one is _NONE for one in sizes):
            return _NONE
        row_major = contiguous_strides(tuple(sizes))
        strides = [self._stride(answers, place, row_major[place]) for place in range(len(sizes))]
        if any(one is _NONE for one in strides):
            return _NONE
        return TensorType(first.dtype, tuple(sizes), tuple(strides), first.device)

    def _stride(self, answers: Sequence[TensorType], place: int, row_major: Size) -> Any:
        seen = [
            (one.strides[place], values)
            for one, values in zip(answers, self._points, strict=True)
            if 0 not in one.sizes and one.sizes[place] != 1
        ]
        for one in (row_major, *dict.fromkeys(have for have, _ in seen), *self._by_values.values()):
            if all(evaluate(one, values) == have for have, values in seen):
                return one
        return _NONE


def _alike(one: Any, other: Any) -> bool:
    """Equal, but for strides that mean nothing: of dimensions of size 1, of empty tensors."""
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        if one.sizes != other.sizes or one.dtype != other.dtype or one.device != other.device:
            return False
        return 0 in one.sizes or all(
            size == 1 or mine == its
            for size, mine, its in zip(one.sizes, one.strides, other.strides, strict=True)
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
