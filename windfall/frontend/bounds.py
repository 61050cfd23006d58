"""How much of a program's data a capture models: the one door through which elements come.

Enters: how many elements a container has or would have; the operands of a function that is to be
folded. Leaves: nothing, or the break `TOO_LARGE`, before anything of that size was made: the step
runs natively, at CPython's speed, and what it gives is an object from outside. Invariant: whatever
makes elements (`items`, `unpack`, repetition, growth, folding) asks here first, so that the time
and memory of a capture depend on the length of the program and not on the numbers in it.

    >>> admit(machine, 10**6, "list(range(n))")
    Traceback (most recent call last):
    windfall.errors.Unsupported: W0035: list(range(n)) has 1000000 elements
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import TOO_LARGE, stop

if TYPE_CHECKING:
    from windfall.frontend.services import Machine
    from windfall.frontend.values.base import Value


def admit(machine: Machine, count: int, what: Value | str) -> None:
    """Refuse to model a container of more elements than one may have, or many large ones."""
    admit_growth(machine, count, what)
    if count > _LARGE:
        machine.values.modelled += count
        if machine.values.modelled > _CONTAINERS * machine.facts.elements:
            stop(TOO_LARGE, f"{_named(what)}, and others: {machine.values.modelled} elements")


_LARGE = 256  # elements; smaller containers are not counted together
_CONTAINERS = 4  # as many of the largest size as a capture models


def admit_growth(machine: Machine, count: int, what: Value | str) -> None:
    """Refuse to let a container become larger than one may be."""
    if count > machine.facts.elements:
        stop(TOO_LARGE, f"{_named(what)} has {_number(count)} elements")


def admit_writes(machine: Machine, owner: Value, other: Value) -> None:
    """Refuse to replay many writes to an object from outside, a line of source each."""
    count = other.known_length()
    if owner.source is not None and count is not None and count > _LARGE:
        stop(TOO_LARGE, f"{count} writes to {owner.describe()}")


def admit_parts(
    machine: Machine, name: str, tensor: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Refuse an operation that takes a tensor apart into many: each is a node of the graph."""
    numbers = [one for one in (*arguments, *keywords.values()) if type(one) is int]
    if TAKEN_APART[name] == "rows":
        dim = numbers[0] if numbers else 0
        known = -tensor.dim() <= dim < tensor.dim() and type(tensor.shape[dim]) is int
        count = int(tensor.shape[dim]) if known else 0
    elif TAKEN_APART[name] == "count":
        count = max(numbers, default=0)
    else:  # whichever dimension it is, there are no more parts than this
        longest = max((one for one in tensor.shape if type(one) is int), default=0)
        count = longest // max(1, numbers[0]) if numbers else 0
    if count > machine.facts.parts:
        stop(TOO_LARGE, f"{name} gives {count} tensors")


TAKEN_APART = {"unbind": "rows", "split": "size", "chunk": "count", "tensor_split": "count"}


def admit_values(machine: Machine, values: Iterable[Value]) -> None:
    """Refuse to go through values that are known to have too many items."""
    for one in values:
        count = one.known_length()
        if count is not None and count > machine.facts.elements:
            stop(TOO_LARGE, f"{one.describe()} has {_number(count)} elements")


def range_length(plain: range) -> int:
    """`len(plain)`, of any size."""
    gap = plain.stop - plain.start
    return max(0, -(-gap // plain.step))


def _named(what: Value | str) -> str:
    return what if isinstance(what, str) else what.describe()


def _number(count: int) -> str:
    return str(count) if count < 1 << 64 else f"about 2**{count.bit_length() - 1}"


# ------------------------------------------------------------------------------------------ folding


def admit_fold(
    machine: Machine,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> None:
    """Refuse to compute now what takes, or would give, a large constant."""
    limit = machine.facts.constant_size
    for one in arguments:
        _admit_operand(machine, function, one, limit)
    if foreseen(function, arguments, keywords) > limit:
        stop(TOO_LARGE, f"the result of {_shown(function)}")


def admit_constant(machine: Machine, value: Any) -> None:
    """Refuse to rely on a large constant from outside: the guard would compare all of it."""
    if size(value) > machine.facts.constant_size:
        stop(TOO_LARGE, f"{type(value).__name__} of {_number(size(value))} characters or bits")


def admit_result(machine: Machine, function: Callable[..., Any], result: Any) -> None:
    """Refuse a large constant that was not foreseen. (Containers are refused when wrapped.)"""
    if size(result) > machine.facts.constant_size:
        stop(TOO_LARGE, f"the result of {_shown(function)}")


def _admit_operand(machine: Machine, function: Callable[..., Any], one: Any, limit: int) -> None:
    kind = type(one)
    if kind is range:
        at_once = function in _AT_ONCE or isinstance(getattr(function, "__self__", None), range)
        if range_length(one) > machine.facts.elements and not at_once:
            stop(TOO_LARGE, f"{_shown(function)} of a range")
    elif size(one) > limit and function not in _AT_ONCE:
        stop(TOO_LARGE, f"{_shown(function)} of {kind.__name__}")


def _shown(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "a function"))


def size(value: Any) -> int:
    """Characters, bytes or bits of a constant."""
    kind = type(value)
    if kind is int:
        return int(value.bit_length())
    return len(value) if kind is str or kind is bytes else 0


# What looks neither at all characters of a text nor at all items of a range.
_AT_ONCE: frozenset[Any] = frozenset(
    (
        len, operator.getitem, operator.contains, operator.not_, operator.truth, operator.is_,
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, bool, hash,
        slice, range, enumerate,
    )
)  # fmt: skip


def foreseen(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> int:
    """How large a result will be, at least where operands do not tell; what a function refuses
    gives none."""
    # Of the name of `format` there is a method of strings too.
    rule = _of_format if function is format else _FORESEEN.get(getattr(function, "__name__", ""))
    if rule is None:
        return 0
    owner = getattr(function, "__self__", None)
    given = (owner, *arguments) if isinstance(owner, str | bytes | int) else arguments
    try:
        return rule(*given, **keywords)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return 0


def _of_product(left: Any, right: Any) -> int:
    if type(left) is int and type(right) is int:
        return size(left) + size(right)
    text, count = (right, left) if isinstance(left, int) else (left, right)
    return len(text) * max(0, count) if isinstance(text, str | bytes | tuple | list) else 0


def _of_power(base: Any, exponent: Any, modulus: Any = None, *, mod: Any = None) -> int:
    modulus = mod if modulus is None else modulus
    if not (isinstance(base, int) and isinstance(exponent, int)):
        return 0
    if modulus is not None:  # the work: as many products as the exponent has bits
        return exponent.bit_length() * size(int(modulus)) // _WORD
    return base.bit_length() * exponent if base not in (-1, 0, 1) and exponent > 0 else 0


_WORD = 64


def _of_shift(value: int, count: int) -> int:
    return value.bit_length() + count if value else 0


def _of_factorial(count: int) -> int:
    return count * count.bit_length()


def _of_choice(count: int, chosen: int | None = None) -> int:
    most = count if chosen is None else min(chosen, count)
    return most * count.bit_length()


def _of_width(text: Any, width: int, *rest: Any) -> int:
    return max(size(text), width)


def _of_replacement(text: Any, old: Any, new: Any, count: int = -1) -> int:
    return (len(text) // max(1, len(old)) + 1) * len(new) + len(text)


def _of_join(between: Any, parts: Any) -> int:
    held = list(parts) if isinstance(parts, list | tuple | str | bytes) else []
    return sum(len(one) + len(between) for one in held)


def _of_format(value: Any, specification: str = "") -> int:
    return _widest(specification)


def _of_filling(text: Any, given: Any) -> int:
    """`text % given` of strings; the remainder of numbers is small."""
    if not isinstance(text, str | bytes):
        return 0
    shown = text if isinstance(text, str) else text.decode("latin-1")
    return _widest(shown) + (_largest(given) if "*" in shown else 0)


def _of_template(text: Any, *given: Any, **named: Any) -> int:
    if not isinstance(text, str):
        return 0
    inner = _largest([*given, *named.values()]) if _NESTED.search(text) else 0
    return _widest(text) + inner


def _of_tabs(text: Any, width: int = 8, *, tabsize: int = 8) -> int:
    return len(text) * max(1, width, tabsize)


def _of_bytes(given: Any = b"", *rest: Any, **named: Any) -> int:
    return given if isinstance(given, int) else 0


def _widest(text: str) -> int:
    """The largest number that is written in a format."""
    return max((int(one[:20]) for one in _DIGITS.findall(text)), default=0)


_DIGITS = re.compile("[0-9]+")
_NESTED = re.compile(r"\{[^{}]*:[^{}]*\{")  # a field in the specification of another


def _largest(given: Any) -> int:
    """The largest integer among operands, which may be a width."""
    held = given if isinstance(given, tuple | list) else (given,)
    return max((abs(one) for one in held if type(one) is int), default=0)


# Functions whose results may be large although their operands are small, by name.
_FORESEEN: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("mul", "imul", "__mul__", "__rmul__"), _of_product),
    **dict.fromkeys(("pow", "ipow", "__pow__"), _of_power),
    **dict.fromkeys(("lshift", "ilshift", "__lshift__"), _of_shift),
    **dict.fromkeys(("ljust", "rjust", "center", "zfill", "to_bytes"), _of_width),
    **dict.fromkeys(("mod", "imod", "__mod__"), _of_filling),
    **dict.fromkeys(("formatted", "__format__"), _of_format),
    **dict.fromkeys(("bytes", "bytearray"), _of_bytes),
    **dict.fromkeys(("comb", "perm"), _of_choice),
    "factorial": _of_factorial,
    "expandtabs": _of_tabs,
    "format": _of_template,
    "replace": _of_replacement,
    "join": _of_join,
}


# ---------------------------------------------------------------------------------------- iterators


def chosen_count(how: str, count: int, length: int | None) -> int:
    """How many tuples `itertools.permutations` and its like give."""
    length = count if length is None else length
    if how == "combinations_with_replacement":
        count = count + length - 1 if count else 0
    if not 0 <= length <= count:
        return 0
    if how == "permutations":
        return _product(range(count - length + 1, count + 1))
    few = min(length, count - length)
    return math.comb(count, few) if few < _WORD else 1 << _WORD


def product_count(counts: list[int], repeat: int) -> int:
    """How many tuples `itertools.product` gives."""
    return _product(counts * min(repeat, _WORD)) if min(counts, default=0) else 0


def _product(factors: Iterable[int]) -> int:
    """Of positive numbers; past some size, that size."""
    total = 1
    for one in factors:
        total *= one
        if total > 1 << _WORD:
            break
    return total
