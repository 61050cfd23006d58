"""A rule that is asked about sizes that vary, tried at sizes that do not.

Enters: a shape rule and its arguments, in which expressions stand. Leaves: its answer, which was
found to be the rule's answer at other sizes too. Invariant: an answer that holds only now, and a
rule that cannot deal with expressions, are a `Specialise`, never a wrong size; arguments that do
not fit raise what eager raises.

`sample_sizes.py` has the sizes at which rules are tried, `anti_unification.py` the sizes that
several answers have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.relation import Relation, assumptions, depends_on_assumptions, questions, told
from windfall.ir.symint import (
    Atom,
    Expression,
    Read,
    Size,
    reads_of,
)
from windfall.ops.anti_unification import NONE, General, Unread, alike, candidates_of, sizes_of
from windfall.ops.sample_sizes import (
    Values,
    exist,
    few_values,
    flat,
    hints,
    is_shifted,
    trials,
    unread_points,
)
from windfall.ops.symbolic import at, symbols_in

# What rules raise of themselves, and what arithmetic on expressions raises.
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError)


def confirmed(
    subject: Any, given: Sequence[Any], result: Any, ask: Callable[[Values], Any]
) -> None:
    """Whether a whole function, of which torch's own code may have taken something for granted,
    answers `result` (types and sizes) whatever is read; else a `Specialise`."""
    symbols = symbols_in((*given, result))
    names = _reads(symbols)
    for values in itertools.islice(unread_points(symbols, given), _CONFIRMED):
        there = ask(values)  # NotImplemented: it raises, here and where it runs
        if there is not NotImplemented and not alike(at(result, values), there):
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
    failure: str | None = None
    answer: Any = None
    try:
        answer = rule(*args, **kwargs)
    except _FAILURES as error:
        failure = str(error)
    if answer is NotImplemented:
        return answer
    now = hints(symbols)
    here = _at(rule, args, kwargs, now)  # eager's error, if it is one
    if failure is not None:
        raise Specialise(names, f"{subject} ({failure})")
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
    found = General(points, sizes_of(given)).value(answers)
    if found is NONE:
        raise Specialise(names, f"{subject}, whose result no rule describes,")
    return found


_EXAMPLES = 5


def _tried_unread(
    subject: Any,
    rule: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    symbols: frozenset[Atom],
) -> Any:
    """As `_tried`, at all of `unread_points`. Where a rule cannot tell from expressions, the
    answers at these points do."""
    demanding = _DEMANDS.get(str(subject))
    if demanding is not None:
        demands, then = demanding(*args, **kwargs)
        if _tell(demands):
            return then
    answer: Any = NONE
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
    if answer is not NONE and all(
        alike(at(answer, values), there) for values, there in zip(points, answers, strict=True)
    ):
        return answer
    return _fitting(subject, points, answers, symbols, given)


def _pieces(
    x: TensorType, lengths: Sequence[Size], dim: int = 0
) -> tuple[list[Relation], tuple[TensorType, ...]]:
    """`split_with_sizes`: hardly any numbers that are tried would fit each other."""
    total: Size = 0
    for one in lengths:
        total = total + one
    demands = [Relation(">=", one, 0) for one in lengths]
    place = dim % x.rank
    before, after = x.sizes[:place], x.sizes[place + 1 :]
    return [*demands, Relation("==", total, x.sizes[place])], tuple(
        replace(x, sizes=(*before, one, *after)) for one in lengths
    )


# Ops that refuse their arguments unless just this holds of them, and what they answer then.
_DEMANDS: dict[str, Callable[..., tuple[list[Relation], Any]]] = {
    "aten.split_with_sizes.default": _pieces,
}


def _tell(demanded: Sequence[Relation]) -> bool:
    """Behind the op, what it demands is known. False: it is not met."""
    assumed = assumptions()
    for one in demanded:
        known = told(one.operation, one.left, one.right)
        if known is False or assumed is None:
            return False
        if known is None:
            assumed.expect(one)
    return True


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
    try:
        for values in unread_points(symbols, given):
            try:
                there = ask(values)
                if not exist(there):
                    raise RuntimeError(f"no tensor is {there}")
            except _FAILURES as error:
                failure = failure or error
                refused.append(values)
            else:
                points.append(values)
                answers.append(there)
        if failure is not None and not points:
            raise failure  # eager's error, whatever is read
        names = _reads(symbols)
        reads = [atom for atom in symbols if atom.key in names]
        if len(points) < (1 if all(map(few_values, reads)) else _FEWEST):
            raise Specialise(names, f"{subject}, of which too few sizes are possible,")
        if failure is not None:
            _expect(subject, points, refused, given, names, failure)
        return points, answers
    finally:
        del failure  # which holds this very frame, and that the arguments of the program


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
    numbers = [one for one in flat(given) if reads_of(one)]
    sizes = {s for one in given if isinstance(one, TensorType) for s in one.sizes}
    candidates = [Relation(">=", one, 0) for one in numbers if _tells_sign(one, points, refused)]
    enough = {1, *(one + 1 if one >= 0 else -one for one in flat(given, int))}
    candidates += [
        Relation(">=", one, least) for least in sorted(enough) for one in sizes if reads_of(one)
    ]
    candidates += [Relation("==", *pair) for pair in _facing(given)]
    # Only of these it was asked at the edge itself.
    for one in filter(is_shifted, numbers):
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


def _facing(given: Sequence[Any]) -> Iterator[tuple[Size, Size]]:
    """Sizes of tensors that must be equal where neither is 1, as far as they are not."""
    types = [one for one in given if isinstance(one, TensorType)]
    for one, other in itertools.combinations(types, 2):
        for left, right in zip(reversed(one.sizes), reversed(other.sizes), strict=False):
            if left != right and reads_of(left, right):
                yield left, right


def _tells_sign(size: Expression, points: Sequence[Values], refused: Sequence[Values]) -> bool:
    """Whether numbers about 0 were among those that were tried."""
    return any(-2 <= size.evaluate(values) < 0 for values in refused) and any(
        0 <= size.evaluate(values) < 2 for values in points
    )


def _fitting(
    subject: Any,
    points: Sequence[Values],
    answers: Sequence[Any],
    symbols: frozenset[Atom],
    given: Sequence[Any],
) -> Any:
    found = Unread(points, candidates_of(given)).value(answers)
    if found is NONE or not all(
        alike(at(found, values), there) for values, there in zip(points, answers, strict=True)
    ):
        raise Specialise(_reads(symbols), f"{subject}, whose result no rule describes,")
    return found
