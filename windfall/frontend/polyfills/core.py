"""Builtins of Python, as Python."""

from __future__ import annotations

from typing import Any


def instantiate(new: Any, init: Any, cls: Any, arguments: Any, keywords: Any) -> Any:
    """`cls(*arguments, **keywords)` of a class with its own `__new__`."""
    made = new(cls, *arguments, **keywords)
    if isinstance(made, cls):
        init(made, *arguments, **keywords)
    return made


def fill_mapping(mapping: Any, other: Any, keywords: Any) -> None:
    """`OrderedDict.update(mapping, other, **keywords)`."""
    if isinstance(other, dict):
        for key in other:
            mapping[key] = other[key]
    elif hasattr(other, "keys"):
        for key in other.keys():  # noqa: SIM118  (not `other.__iter__`)
            mapping[key] = other[key]
    else:
        for pair in other:
            key, value = pair
            mapping[key] = value
    for key in keywords:
        mapping[key] = keywords[key]


def filled_mapping(mapping: Any, arguments: Any, keywords: Any) -> Any:
    """A new `OrderedDict` of the user's class, filled as its `__init__` does."""
    fill_mapping(mapping, arguments[0] if arguments else (), keywords)
    return mapping


def first_implemented(candidates: Any, operation: str, left: Any, right: Any) -> Any:
    """A binary operator through special methods, in the order given."""
    for method, argument in candidates:
        result = method(argument)
        if result is not NotImplemented:
            return result
    if operation == "==":
        return left is right
    if operation == "!=":
        return left is not right
    raise TypeError(
        f"unsupported operand type(s) for {operation}: "
        f"'{type(left).__name__}' and '{type(right).__name__}'"
    )


def truth(value: Any) -> bool:
    """`bool(value)`."""
    return True if value else False  # noqa: SIM210  (this is what `bool` means)


def hasattr_(owner: Any, name: str) -> bool:
    """`hasattr(owner, name)`."""
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def getattr_or(owner: Any, name: str, default: Any) -> Any:
    """`getattr(owner, name, default)`."""
    try:
        return getattr(owner, name)
    except AttributeError:
        return default


def getattribute_or(owner: Any, name: str, hook: Any, fallback: Any) -> Any:
    """An attribute by the class's own `__getattribute__`, then by `__getattr__`."""
    try:
        return hook(owner, name)
    except AttributeError:
        return fallback(owner, name)


def match_class(subject: Any, cls: Any, count: int, names: Any) -> Any:
    """The attributes that a class pattern asks for, or None where it does not match."""
    if not isinstance(subject, cls):
        return None
    found = []
    if count:
        if cls in MATCHED_WHOLE:
            fields = None
            found.append(subject)
        else:
            fields = getattr(cls, "__match_args__", ())
        given = 1 if fields is None else len(fields)
        if count > given:
            raise TypeError(
                f"{cls.__name__}() accepts {given} positional sub-patterns ({count} given)"
            )
        for name in (fields or ())[:count]:
            if not hasattr(subject, name):
                return None
            found.append(getattr(subject, name))
    for name in names:
        if not hasattr(subject, name):
            return None
        found.append(getattr(subject, name))
    return (*found,)


# Classes whose one positional sub-pattern is the subject itself.
MATCHED_WHOLE = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def cached_property(owner: Any, function: Any, name: str) -> Any:
    """The first read of a `functools.cached_property`."""
    value = function(owner)
    owner.__dict__[name] = value
    return value


def contains(container: Any, item: Any) -> bool:
    """`item in container`, one by one."""
    for one in container:  # noqa: SIM110  (`any` itself is a polyfill)
        if one is item or one == item:
            return True
    return False


def contains_by_method(method: Any, item: Any) -> bool:
    """`item in container`, by `__contains__`."""
    return True if method(item) else False  # noqa: SIM210


def iterate_by_index(owner: Any) -> Any:
    """`iter` of an object that has only `__getitem__`, all at once."""
    items = []
    index = 0
    while True:
        try:
            items.append(owner[index])
        except IndexError:
            return iter(items)
        index += 1


def next_or(iterator: Any, default: Any) -> Any:
    """`next(iterator, default)`."""
    try:
        return iterator.__next__()
    except StopIteration:
        return default


def list_(iterable: Any) -> Any:
    """`list(iterable)`."""
    result = []
    for item in iterable:
        result.append(item)
    return result


def tuple_(iterable: Any) -> Any:
    """`tuple(iterable)`."""
    result = []
    for item in iterable:
        result.append(item)
    return (*result,)


def set_(iterable: Any) -> Any:
    """`set(iterable)`."""
    result = set()
    for item in iterable:
        result.add(item)
    return result


def frozenset_(iterable: Any) -> Any:
    """`frozenset(iterable)`."""
    result = []
    for item in iterable:
        result.append(item)
    return frozenset(result)


def sum_(iterable: Any, /, start: Any = 0) -> Any:
    """`sum(iterable, start)`."""
    for item in iterable:
        start = start + item
    return start


def any_(iterable: Any, /) -> bool:
    """`any(iterable)`."""
    for item in iterable:  # noqa: SIM110
        if item:
            return True
    return False


def all_(iterable: Any, /) -> bool:
    """`all(iterable)`."""
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def close_generator(generator: Any) -> None:
    """`generator.close()`."""
    try:
        generator.throw(GeneratorExit)
    except (GeneratorExit, StopIteration):
        return
    raise RuntimeError("generator ignored GeneratorExit")


def map_(function: Any, /, *iterables: Any) -> Any:
    """`map(function, *iterables)`."""
    for items in zip(*iterables):  # noqa: B905
        yield function(*items)


def filter_(function: Any, iterable: Any, /) -> Any:
    """`filter(function, iterable)`."""
    for item in iterable:
        if item if function is None else function(item):
            yield item


def enumerate_(iterable: Any, start: int) -> Any:
    """`enumerate(iterable, start)`."""
    for item in iterable:
        yield start, item
        start += 1


def zip_(*iterables: Any) -> Any:
    """`zip(*iterables)`."""
    iterators = []
    for iterable in iterables:
        iterators.append(iter(iterable))
    while iterators:
        items = []
        for iterator in iterators:
            try:
                items.append(next(iterator))
            except StopIteration:
                return
        yield (*items,)


def zip_strict(iterables: Any) -> Any:
    """`zip(*iterables, strict=True)`, all at once."""
    lists = []
    for iterable in iterables:
        lists.append([*iterable])
    for index, one in enumerate(lists):
        if len(one) != len(lists[0]):
            word = "shorter" if len(one) < len(lists[0]) else "longer"
            raise ValueError(f"zip() argument {index + 1} is {word} than argument 1")
    return zip(*lists)  # noqa: B905
