"""What a builtin takes as it is: the kinds of its arguments for which its rule is written.

Enters: the arguments of a call that has a rule. Leaves: the first one that is none of what the rule
is written for. Such a call is left to CPython, natively: it asks `__index__` and its like, looks
which of several faults it tells first, and says it in its own words. Invariant: an argument is
judged by its exact class (and an integer by its size); nothing of the user's runs.
"""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from windfall.frontend.values.arity import HASHED
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.constant import Constant
from windfall.ir.reading import class_dict, is_among, mro_of

Demand = Callable[[Value], bool]


def has(value: Value, name: str) -> bool:
    """Whether its class has this method."""
    return any(class_dict(base).get(name) is not None for base in mro_of(value.python_type()))


def is_integer(value: Value) -> bool:
    """An integer that fits an index."""
    if isinstance(value, Constant):
        return type(value.value) is int and abs(value.value) <= sys.maxsize
    return value.python_type() is int


def is_none(value: Value) -> bool:
    """None."""
    return value.python_type() is type(None)


def _maybe_integer(value: Value) -> bool:
    return is_none(value) or is_integer(value)


def _is_flag(value: Value) -> bool:
    return value.python_type() is bool or is_integer(value)


def _is_number(value: Value) -> bool:
    return is_among(value.python_type(), (int, float, complex, bool))


def is_name(value: Value) -> bool:
    """A string, not of a subclass."""
    return value.python_type() is str


def _is_list(value: Value) -> bool:
    return value.python_type() is list


def _is_dict(value: Value) -> bool:
    return issubclass(value.python_type(), dict)


def is_callable(value: Value) -> bool:
    """Can be called."""
    return has(value, "__call__")


def _maybe_callable(value: Value) -> bool:
    return is_none(value) or is_callable(value)


def is_iterable(value: Value) -> bool:
    """`iter` of it is no `TypeError`, unless what it asks for says so."""
    return has(value, "__iter__") or has(value, "__getitem__")


def _is_iterator(value: Value) -> bool:
    return has(value, "__next__")


def _is_sequence(value: Value) -> bool:
    return is_among(value.python_type(), (list, tuple, str, bytes, collections.deque))


def _is_reversible(value: Value) -> bool:
    return is_among(value.python_type(), _REVERSIBLE) or has(value, "__reversed__")


_REVERSIBLE = (list, tuple, str, bytes, range, dict, torch.Size)


def _is_no_text(value: Value) -> bool:
    return not issubclass(value.python_type(), str | bytes | bytearray)


_COUNTED: dict[int | str, Demand] = {1: is_integer, "r": is_integer}
_NAMED: dict[int | str, Demand] = {1: is_name}

# Of methods the object itself stands first.
DEMANDS: dict[Any, dict[int | str, Demand]] = {
    getattr: _NAMED,
    hasattr: _NAMED,
    setattr: _NAMED,
    delattr: _NAMED,
    object.__getattribute__: _NAMED,
    object.__setattr__: _NAMED,
    next: {0: _is_iterator},
    reversed: {0: _is_reversible},
    enumerate: {1: is_integer, "start": is_integer},
    sum: {1: _is_no_text, "start": _is_no_text},
    sorted: {"reverse": _is_flag},
    types.MethodType: {0: is_callable},
    functools.partial: {0: is_callable},
    functools.reduce: {1: is_iterable},
    collections.defaultdict: {0: _maybe_callable},
    collections.deque: {1: _maybe_integer, "maxlen": _maybe_integer},
    getattr(collections, "_count_elements"): {0: _is_dict},  # noqa: B009
    operator.concat: {0: _is_sequence},
    operator.iconcat: {0: _is_sequence},
    list.insert: {1: is_integer},
    list.pop: {1: is_integer},
    list.index: {2: is_integer, 3: is_integer},
    list.sort: {"reverse": _is_flag, "key": _maybe_callable},
    tuple.index: {2: is_integer, 3: is_integer},
    collections.deque.insert: {1: is_integer},
    collections.deque.rotate: {1: is_integer},
    itertools.islice: {1: _maybe_integer, 2: _maybe_integer, 3: _maybe_integer},
    itertools.tee: {1: is_integer, "n": is_integer},
    itertools.product: {"repeat": is_integer},
    itertools.permutations: {1: _maybe_integer, "r": _maybe_integer},
    itertools.combinations: _COUNTED,
    itertools.combinations_with_replacement: _COUNTED,
    itertools.repeat: {1: is_integer, "times": is_integer},
    itertools.count: {0: _is_number, 1: _is_number, "start": _is_number, "step": _is_number},
    heapq.heapify: {0: _is_list},
    heapq.heappush: {0: _is_list},
    heapq.heappop: {0: _is_list},
    heapq.heapreplace: {0: _is_list},
    heapq.heappushpop: {0: _is_list},
}


def misfit(function: Any, arguments: Arguments, keywords: Keywords) -> Value | None:
    """The first argument for which the rule of `function` is not written."""
    demands = DEMANDS.get(function) if type(function) in HASHED else None
    if demands is None:
        return None
    places: list[tuple[int | str, Value]] = [*enumerate(arguments), *keywords.items()]
    for place, value in places:
        demand = demands.get(place)
        if demand is not None and not demand(value):
            return value
    return None
