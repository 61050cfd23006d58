"""A rule that is asked about sizes that vary, tried at sizes that do not.

Enters: a shape rule and its arguments, in which expressions stand. Leaves: its answer, which was
found to be the rule's answer at other sizes too. Invariant: an answer that holds only now, and a
rule that cannot deal with expressions, are a `Specialise`, never a wrong size; arguments that do
not fit raise what eager raises.

The sizes at which a rule is tried satisfy what has been assumed of them (`ir/relation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.relation import assumptions, questions
from windfall.ir.symint import Atom, Expression, Size, evaluate, floor_divide, modulo
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
