"""What an answer is, as plain data that compares.

Enters: an answer (or an exception) and the operands that it was made from. Leaves: nested tuples of
strings. Equal ones mean: one type, recursively; one value (NaN equals NaN, −0.0 is not 0.0);
tensors of one class, dtype, shape and content; iterators with the same rest, which describing uses
up; the operand itself where it is the operand. Invariant: no dunder of the program's own is run,
and no address is in a description, so objects of one kind are described alike.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import functools
import itertools
import operator
import pathlib
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

Description = tuple[Any, ...]

# Whose classes keep no attribute that a program would see; paths remember what they computed.
_CLOSED = ("builtins", "torch", "numpy", "functools", "pathlib")

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_DEPTH = 7
_LONGEST = 40  # elements of a container or an iterator
# Objects without an identity that programs may rely on.
_VALUES = (
    int, float, complex, str, bytes, bool, tuple, frozenset, range, slice, type(None), torch.Size,
)  # fmt: skip


def type_name(cls: type) -> str:
    """Where a class says that it was defined."""
    return (
        f"{type.__getattribute__(cls, '__module__')}.{type.__getattribute__(cls, '__qualname__')}"
    )


def raised(error: BaseException, text: bool) -> Description:
    """An exception: its class, and what it says where that is asked for."""
    name = type_name(type(error))
    return ("raises", name, _ADDRESS.sub("0x", str(error))) if text else ("raises", name)


def describe(value: Any, operands: tuple[Any, ...] = (), depth: int = 0) -> Description:
    """An answer."""
    cls = type(value)
    if cls not in _VALUES:
        for number, one in enumerate(operands):
            if value is one:
                return ("the operand", number)
    if depth > _DEPTH:
        return ("deep", type_name(cls))
    inner = functools.partial(describe, operands=operands, depth=depth + 1)
    for base in cls.__mro__:
        rule = _RULES.get(base)
        if rule is not None:
            return (type_name(cls), *_by_rule(rule, value, inner), *_own(value, inner))
    if _is_builtin_iterator(cls):
        return (type_name(cls), *_rest(value, inner))
    return (type_name(cls), *_own(value, inner))


def _by_rule(rule: Rule, value: Any, inner: Callable[[Any], Description]) -> Description:
    """What a rule says; of an object that can no longer be read (a released view), the error."""
    try:
        return rule(value, inner)
    except Exception as error:
        return (raised(error, text=False),)


def _rest(iterator: Any, inner: Callable[[Any], Description]) -> Iterator[Description]:
    """What an iterator still gives, to its end or its error."""
    try:
        for one in itertools.islice(iterator, _LONGEST):
            yield inner(one)
    except Exception as error:
        yield raised(error, text=False)


def _own(value: Any, inner: Callable[[Any], Description]) -> Description:
    """The attributes of an instance of a Python class."""
    cls = type(value)
    if isinstance(value, type):  # a name says which
        return ()
    if cls.__module__.partition(".")[0] in _CLOSED:
        return ()
    names: dict[str, Any] = {}
    try:
        names |= object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        names = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    names[name] = member.__get__(value, cls)
                except AttributeError:
                    continue
    if isinstance(value, enum.Enum):  # a note that `~` makes on members, which all calls share
        names.pop("_inverted_", None)
    return tuple((name, inner(one)) for name, one in sorted(names.items()))


def _is_builtin_iterator(cls: type) -> bool:
    return hasattr(cls, "__next__") and cls.__module__ in ("builtins", "itertools", "collections")


Rule = Callable[[Any, Callable[[Any], Description]], Description]


def _text(value: Any, inner: Any) -> Description:
    return (_ADDRESS.sub("0x", str.__str__(value)),)


def _by(convert: Callable[[Any], Any]) -> Rule:
    return lambda value, inner: (_ADDRESS.sub("0x", repr(convert(value))),)


def _items(base: Any) -> Rule:
    return lambda value, inner: tuple(
        inner(one) for one in itertools.islice(base.__iter__(value), _LONGEST)
    )


def _unordered(base: Any) -> Rule:
    return lambda value, inner: tuple(sorted(map(str, map(inner, base.__iter__(value)))))


def _mapping(value: Any, inner: Any) -> Description:
    return tuple((inner(key), inner(one)) for key, one in dict.items(value))


def _tensor(value: Any, inner: Any) -> Description:
    with torch._C.DisableTorchFunctionSubclass():
        return (
            str(value.dtype), str(value.device), str(value.layout), tuple(value.shape),
            value.requires_grad, _content(value),
        )  # fmt: skip


def _content(value: torch.Tensor) -> str:
    if value.device.type == "meta":
        return "no content"
    if value.numel() > 1000:
        return "large"
    dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
    return str(dense.tolist())


def _array(value: Any, inner: Any) -> Description:
    return (str(value.dtype), value.shape, repr(numpy.ndarray.tolist(value)))


def _scalar(value: Any, inner: Any) -> Description:
    return (repr(value.item()),)


def _method(value: Any, inner: Any) -> Description:
    return (value.__func__.__qualname__, inner(value.__self__))


def _builtin_method(value: Any, inner: Any) -> Description:
    owner = value.__self__
    module = owner is None or isinstance(owner, types.ModuleType)
    return (value.__name__,) if module else (value.__name__, inner(owner))


def _exception(value: Any, inner: Any) -> Description:
    return tuple(map(inner, value.args))


def _partial(value: Any, inner: Any) -> Description:
    return (inner(value.func), inner(value.args), inner(value.keywords))


def _module(value: Any, inner: Any) -> Description:
    return tuple(
        (name, inner(one))
        for name, one in sorted(vars(value).items())
        if name in ("x", "weight", "training", "_parameters", "_modules", "_buffers")
    )


def _class(value: Any, inner: Any) -> Description:
    return (type_name(value),)


def _named(name: str) -> Rule:
    return lambda value, inner: (getattr(value, name),)


_RULES: dict[type, Rule] = {
    bool: _by(bool),
    int: _by(int.__int__),
    float: _by(float.__float__),
    complex: _by(complex.__complex__),
    str: _text,
    bytes: _by(bytes.__bytes__),
    bytearray: _by(bytes),
    memoryview: _by(bytes),
    list: _items(list),
    tuple: _items(tuple),
    range: _by(range.__repr__),
    slice: lambda value, inner: tuple(map(inner, (value.start, value.stop, value.step))),
    dict: _mapping,
    set: _unordered(set),
    frozenset: _unordered(frozenset),
    type({}.keys()): _items(type({}.keys())),
    type({}.values()): _items(type({}.values())),
    type({}.items()): _items(type({}.items())),
    torch.Tensor: _tensor,
    torch.nn.Module: _module,
    torch.dtype: _by(str),
    torch.device: _by(str),
    numpy.ndarray: _array,
    numpy.generic: _scalar,
    numpy.dtype: _by(str),
    types.FunctionType: _named("__qualname__"),
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin_method,
    types.MethodWrapperType: _named("__name__"),
    types.MethodDescriptorType: _named("__qualname__"),
    types.WrapperDescriptorType: _named("__qualname__"),
    types.GetSetDescriptorType: _named("__qualname__"),
    types.MemberDescriptorType: _named("__qualname__"),
    types.ModuleType: _named("__name__"),
    types.CodeType: _named("co_qualname"),
    types.GenericAlias: lambda value, inner: (inner(value.__origin__), inner(value.__args__)),
    types.UnionType: _by(repr),
    functools.partial: _partial,
    operator.itemgetter: _by(repr),
    operator.attrgetter: _by(repr),
    operator.methodcaller: _by(repr),
    torch.finfo: _by(repr),
    torch.iinfo: _by(repr),
    BaseException: _exception,
    type: _class,
    collections.deque: _items(collections.deque),
    types.MappingProxyType: lambda value, inner: _mapping(dict(value), inner),
    decimal.Decimal: _by(repr),
    datetime.timedelta: _by(repr),
    datetime.date: _by(repr),
    pathlib.PurePath: _by(str),
    re.Pattern: _by(repr),
    re.Match: _by(repr),
    types.CellType: lambda value, inner: (inner(value.cell_contents),),
}
