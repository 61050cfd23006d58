"""Whether a call fits the parameters of a builtin, as CPython counts and names them.

Enters: a callable that has a rule, and what it is called with. Leaves: whether that can be bound.
A rule is only asked for calls that fit: `calls.calls` and `KindMethod` ask here first, and a misfit
is raised by CPython itself, natively, in its own words.

Invariant: the parameters are those that `inspect.signature` reads from the callable; one that tells
nothing has a row here. One with neither is not checked, and a test demands that no callable of the
standard library that has a rule is such a one.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import math
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

Shape = Callable[..., None]

_NONE: Shape = lambda self, /: None  # noqa: E731  (a row is its parameter list)
_ONE: Shape = lambda self, item, /: None  # noqa: E731
_MAYBE: Shape = lambda self, item=0, /: None  # noqa: E731
_ANY: Shape = lambda *items: None  # noqa: E731
_FILLED: Shape = lambda self, items=(), /, **named: None  # noqa: E731
_LIMITED: Shape = lambda self, item, start=0, stop=0, /: None  # noqa: E731

_SHAPES: dict[Any, Shape] = {
    bool: lambda value=0, /: None,
    classmethod: _NONE,
    collections.OrderedDict: lambda items=(), /, **named: None,
    collections.defaultdict: lambda factory=None, items=(), /, **named: None,
    collections.deque: lambda iterable=(), maxlen=None: None,
    dict: lambda items=(), /, **named: None,
    filter: _ONE,
    frozenset: lambda items=(), /: None,
    functools.partial: lambda function, /, *items, **named: None,
    functools.reduce: lambda function, iterable, initial=None, /: None,
    getattr: lambda owner, name, default=None, /: None,
    int: lambda x=0, /, base=10: None,
    iter: _MAYBE,
    itertools.chain: _ANY,
    itertools.islice: lambda iterable, start, stop=0, step=1, /: None,
    itertools.product: lambda *iterables, repeat=1: None,
    itertools.repeat: lambda object, times=0: None,
    itertools.zip_longest: lambda *iterables, fillvalue=None: None,
    map: lambda function, iterable, /, *iterables: None,
    math.log: _MAYBE,
    max: lambda item, /, *items, key=None, default=None: None,
    min: lambda item, /, *items, key=None, default=None: None,
    next: _MAYBE,
    operator.attrgetter: lambda name, /, *names: None,
    operator.itemgetter: lambda item, /, *items: None,
    operator.methodcaller: lambda name, /, *items, **named: None,
    range: lambda start, stop=0, step=1, /: None,
    set: lambda items=(), /: None,
    slice: lambda start, stop=0, step=1, /: None,
    types.MappingProxyType: lambda mapping: None,
    staticmethod: _NONE,
    str: lambda object="", encoding="", errors="": None,
    type: lambda of, bases=(), body=(), /, **named: None,
    zip: lambda *iterables, strict=False: None,
    # Methods; the object comes first.
    dict.pop: lambda self, key, default=None, /: None,
    collections.OrderedDict.pop: lambda self, key, default=None: None,
    collections.deque.insert: lambda self, index, item, /: None,
    collections.deque.rotate: _MAYBE,
    collections.deque.index: _LIMITED,
    types.GeneratorType.throw: _LIMITED,
}

_METHODS: tuple[tuple[type, str, Shape], ...] = (
    (list, "__getitem__", _ONE),
    (dict, "clear copy items keys values", _NONE),
    (dict, "update", _FILLED),
    (dict, "__getitem__", _ONE),
    (set, "clear copy pop", _NONE),
    (set, "__contains__ add discard remove isdisjoint issubset issuperset", _ONE),
    (set, "symmetric_difference symmetric_difference_update", _ONE),
    (set, "difference difference_update intersection intersection_update union update", _ANY),
    (frozenset, "copy", _NONE),
    (frozenset, "__contains__ isdisjoint issubset issuperset symmetric_difference", _ONE),
    (frozenset, "difference intersection union", _ANY),
    (collections.deque, "__copy__ __reversed__ clear copy pop popleft reverse", _NONE),
    (collections.deque, "append appendleft count extend extendleft remove", _ONE),
    (collections.OrderedDict, "__reversed__ clear copy items keys values", _NONE),
    (collections.OrderedDict, "update", _FILLED),
    (collections.defaultdict, "__copy__ copy", _NONE),
    (collections.defaultdict, "__missing__", _ONE),
    (types.GeneratorType, "close", _NONE),
    (types.GeneratorType, "send", _ONE),
    (type({}.keys()), "__reversed__", _NONE),
    (type({}.items()), "__reversed__", _NONE),
    (type({}.values()), "__reversed__", _NONE),
    (type({}.keys()), "isdisjoint", _ONE),
    (type({}.items()), "isdisjoint", _ONE),
    (type(iter([])), "__length_hint__", _NONE),
    (type(iter([])), "__setstate__", _ONE),
    (zip, "__setstate__", _ONE),
)
for _owner, _names, _shape in _METHODS:
    _SHAPES.update({getattr(_owner, name): _shape for name in _names.split()})


# Callables that may be looked up in a table: C hashes them, by identity or by what they wrap.
HASHED = frozenset(
    {
        type,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.MethodWrapperType,
    }
)


@functools.cache
def parameters(function: Any) -> inspect.Signature | None:
    """The parameters of a callable; None: nothing is known of them."""
    try:
        return inspect.signature(_SHAPES.get(function, function), follow_wrapped=False)
    except (TypeError, ValueError):  # a callable of C that tells nothing
        return None


def fits(function: Any, count: int, names: Iterable[str]) -> bool:
    """Whether `function` can be called with so many arguments, and others of these names."""
    if type(function) not in HASHED:
        return True
    return _fits(function, count, tuple(names))


@functools.lru_cache(4096)
def _fits(function: Any, count: int, names: tuple[str, ...]) -> bool:
    known = parameters(function)
    if known is None:
        return True
    try:
        known.bind(*(None,) * count, **dict.fromkeys(names))
    except TypeError:
        return False
    return True
