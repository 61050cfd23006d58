"""Where a program reads: every place below a value, as a path that works in either world.

Enters: the function and the arguments of a program. Leaves: paths of `Step`s: attributes, items,
cells, defaults, globals, entries of classes. Invariant: a path that was found in one world leads to
the same place in the other.
"""

from __future__ import annotations

import collections
import dis
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

MISSING: Any = object()
BY_PLACE: Any = object()  # an entry that could not be found again once it is removed


@dataclass(frozen=True)
class Step:
    """One step of a path: how it is read, and how it is written (None: it cannot be)."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None] | None = None
    key: Any = None


Path = tuple[Step, ...]


def attribute(name: str) -> Step:
    """A plain attribute."""
    return Step(f".{name}", lambda o: getattr(o, name), lambda o, v: set_attribute(o, name, v))


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """Write an attribute, or delete it."""
    delattr(owner, name) if value is MISSING else setattr(owner, name, value)


def item(key: Any) -> Step:
    """An item of a list or a dict."""
    return Step(f"[{key!r}]", lambda o: o[key], lambda o, v: _set_item(o, key, v), key)


def _set_item(owner: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        del owner[key]
    else:
        owner[key] = value


def entry(index: int) -> Step:
    """An entry of a dict by its place: torch numbers hooks in one count for all worlds."""
    return Step(
        f"[entry {index}]",
        lambda o: list(o.values())[index],
        lambda o, v: _set_item(o, list(o)[index], v),
        BY_PLACE,
    )


def position(index: int) -> Step:
    """An item of what cannot be written."""
    return Step(f"[{index}]", lambda o: o[index])


def class_entry(name: str) -> Step:
    """What a class itself holds under a name."""
    return Step(f".{name}", lambda o: vars(o)[name], lambda o, v: set_attribute(o, name, v))


def default(index: int) -> Step:
    """A positional default."""

    def write(function: Any, value: Any) -> None:
        values = list(function.__defaults__)
        values[index] = value
        function.__defaults__ = tuple(values)

    return Step(f".__defaults__[{index}]", lambda o: o.__defaults__[index], write)


def places(root: Any, seen: set[int], path: Path = ()) -> Iterator[Path]:
    """Every place below a value, each object once."""
    value = read(root, path)
    if path:
        yield path
    if id(value) in seen or len(path) > 12:
        return
    seen.add(id(value))
    for kind, steps in STEPS.items():
        if isinstance(value, kind):
            for step in steps(value):
                yield from places(root, seen, (*path, step))
            return


def read(root: Any, path: Path) -> Any:
    """What stands at a path."""
    for step in path:
        root = step.read(root)
    return root


def _of_function(function: types.FunctionType) -> Iterator[Step]:
    if not is_user(function.__module__):
        return
    yield from (default(index) for index in range(len(function.__defaults__ or ())))
    for name in function.__kwdefaults__ or ():
        yield Step(
            f".__kwdefaults__[{name!r}]",
            lambda o, name=name: o.__kwdefaults__[name],
            lambda o, v, name=name: o.__kwdefaults__.__setitem__(name, v),
        )
    for index, name in enumerate(function.__code__.co_freevars):
        yield Step(
            f".<{name}>",
            lambda o, index=index: o.__closure__[index].cell_contents,
            lambda o, v, index=index: setattr(o.__closure__[index], "cell_contents", v),
        )
    for name in sorted(_global_names(function.__code__) & function.__globals__.keys()):
        yield Step(
            f".globals[{name!r}]",
            lambda o, name=name: o.__globals__[name],
            lambda o, v, name=name: _set_item(o.__globals__, name, v),
        )
    yield from (item_of_dict(name) for name in vars(function))


def item_of_dict(name: str) -> Step:
    """An entry of an instance's dictionary, written there directly."""
    return Step(
        f".__dict__[{name!r}]",
        lambda o: o.__dict__[name],
        lambda o, v: _set_item(o.__dict__, name, v),
    )


def _global_names(code: types.CodeType) -> set[str]:
    names = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return names.union(*map(_global_names, inner))


def _of_object(owner: Any) -> Iterator[Step]:
    if isinstance(owner, torch.Tensor | types.ModuleType | types.BuiltinFunctionType | torch.Size):
        return
    yield from (item_of_dict(name) for name in list(getattr(owner, "__dict__", ())))
    if is_user(type(owner).__module__):
        for one in type(owner).__mro__:
            for name, value in vars(one).items():
                if isinstance(value, types.MemberDescriptorType):
                    yield attribute(name)
        yield Step(".__class__", type)


def _of_class(owner: type) -> Iterator[Step]:
    if is_user(owner.__module__):
        for name in list(vars(owner)):
            if not name.startswith("__"):
                yield class_entry(name)
        yield from (
            Step(f".__mro__[{i}]", lambda o, i=i: o.__mro__[i])
            for i in range(1, len(owner.__mro__))
        )


def is_user(module: str | None) -> bool:
    """Whether it is of the program's own module."""
    return (module or "").startswith("program_")


STEPS: dict[Any, Callable[[Any], Iterator[Step]]] = {
    types.FunctionType: _of_function,
    types.MethodType: lambda o: iter([attribute("__self__"), attribute("__func__")]),
    type: _of_class,
    tuple: lambda o: map(position, range(len(o))),
    (list, collections.deque): lambda o: map(item, range(len(o))),
    dict: lambda o: (entry(i) if type(key) is int else item(key) for i, key in enumerate(list(o))),
    property: lambda o: iter([Step(".fget", lambda p: p.fget)]),
    (staticmethod, classmethod): lambda o: iter([Step(".__func__", lambda p: p.__func__)]),
    object: _of_object,
}
