"""Whether the methods by which a tensor subclass takes part in operations may be run in a capture.

Enters: a class of tensors that can be taken apart (`ops/wrapped.py`). Leaves: nothing, and guards
on all that its methods read besides their arguments; or a break that says what is in the way.
Invariant: methods that pass do nothing but compute their answer, as far as their code shows: they
write no global, no attribute but of what they have just made, no container that outlives them, and
call only functions of the same kind, pure builtins and torch.

They are the one code of users' that a capture runs instead of interpreting it (ADR 0052): operators
reach them through torch's dispatcher, from autograd's backward too, where no interpreter of ours
can stand. So they are read beforehand, with whatever they name, and run on tensors without data.
"""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.frontend.breaks import SUBCLASS, stop
from windfall.frontend.bytecode import decode
from windfall.frontend.name_tables import words
from windfall.identity_map import IdentityMap
from windfall.ir.guard import ABSENT, Check, ContentsAre, Equals, HasKey, IdentityIs
from windfall.ir.reading import class_dict, class_name, mro_of
from windfall.ir.source import Attribute, CellContents, Item, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

# What torch's dispatcher, autograd and we ask of a class.
ROOTS = words("""
    __torch_dispatch__ __torch_function__ __tensor_flatten__ __tensor_unflatten__ __new__ __init__
    __coerce_same_metadata_as_tangent__ __coerce_tangent_metadata__ __post_init__
""")
_SHOWN = words("__repr__ __str__ __format__ __reduce__ __reduce_ex__ __getstate__ __setstate__")
_MAKERS = words("__new__ __init__ __tensor_unflatten__ __post_init__")
_WRITES = words("STORE_GLOBAL DELETE_GLOBAL STORE_NAME DELETE_NAME DELETE_ATTR IMPORT_STAR")
_ITEM_WRITES = words("STORE_SUBSCR DELETE_SUBSCR STORE_SLICE")
_CHANGING = words("""
    append add update pop popitem extend insert setdefault remove clear discard sort reverse
    appendleft popleft subtract move_to_end
""")
_IMPURE = words("""
    print open input exec eval compile globals locals vars setattr delattr __import__ breakpoint
    exit quit
""")
_STANDARD = words("""
    math cmath operator functools itertools typing collections dataclasses enum abc numbers
    contextlib types inspect
""")
_CONSTANTS = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
_CONSTANTS_OF_TORCH = (torch.layout, torch.memory_format, torch.Size)
_POLICY = "dispatch_sizes_strides_policy"  # then even sizes are asked of the class


def rely_on_protocol(machine: Machine, cls: type) -> None:
    """Rely on what the methods of a class do; a break, if they cannot be run in a capture."""
    if cls.__module__.partition(".")[0] == "torch" and not cls.__module__.startswith(
        "torch.testing."
    ):
        stop(SUBCLASS, f"{class_name(cls)}, a class of torch's own")
    _Reader(machine, cls).read()


def _is_trusted(module: Any) -> bool:
    return str(module).partition(".")[0] in ("torch", "windfall", *_STANDARD)


class _Reader:
    """Reads the code of one class and of all that it names."""

    def __init__(self, machine: Machine, cls: type) -> None:
        self._machine = machine
        self._cls = cls
        self._known: IdentityMap[Any, None] = IdentityMap()
        self._relied: set[tuple[int, Any]] = set()

    def read(self) -> None:
        """All that is reached from the class."""
        self._class(self._cls, sorted(ROOTS))

    def _refuse(self, what: str) -> None:
        stop(SUBCLASS, f"{class_name(self._cls)}: {what}")

    def _rely(self, source: Source, key: tuple[int, Any], check: Check) -> None:
        if key not in self._relied:
            self._relied.add(key)
            self._machine.guards.add(source, check, "a tensor subclass reads it")

    def _class(self, cls: type, names: Any) -> None:
        """Methods of a class, along its bases up to those of torch and the standard library."""
        for name in names:
            if self._machine.guards.rely_on_answer(cls, name) is not ABSENT:
                for base in _bases(cls):  # one may call another's by `super`
                    if name in class_dict(base):
                        found = class_dict(base)[name]
                        self._value(found, f"{class_name(base)}.{name}", name)

    def _value(self, value: Any, what: str, name: str = "", source: Source | None = None) -> None:
        """Something that code names."""
        if isinstance(value, functools.partial):
            for one in (value.func, *value.args, *value.keywords.values()):
                self._value(one, what)
            return
        if isinstance(value, types.MethodType) and not isinstance(value.__self__, type):
            self._refuse(f"{what} is a method of an object")
        value = _plainly(value)
        if value in self._known:
            return
        self._known[value] = None
        if isinstance(value, types.FunctionType):
            self._function(value, what, name)
        elif isinstance(value, type):
            self._named_class(value, what)
        elif isinstance(value, dict | list | set | frozenset | tuple):
            self._container(value, what, source)
        elif not self._is_harmless(value):
            self._refuse(f"{what} is a {type(value).__name__}")

    def _is_harmless(self, value: Any) -> bool:
        if type(value) is tuple:
            return all(map(self._is_harmless, value))
        if isinstance(value, types.ModuleType):
            return _is_trusted(value.__name__)
        if isinstance(value, (*_CONSTANTS, *_CONSTANTS_OF_TORCH, enum.Enum)):
            return True
        if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
            return value.__name__ not in _IMPURE
        if isinstance(value, types.WrapperDescriptorType | types.GetSetDescriptorType):
            return True
        if isinstance(value, types.MemberDescriptorType | types.GenericAlias | types.UnionType):
            return True
        return torch_abi.is_operation(value) or _is_trusted(type(value).__module__)

    def _named_class(self, cls: type, what: str) -> None:
        if cls.__module__ == "builtins" or _is_trusted(cls.__module__):
            return
        if issubclass(cls, BaseException | enum.Enum):
            return
        for base in _bases(cls):
            mine = {name for name, one in class_dict(base).items() if isinstance(one, _KINDS)}
            self._class(cls, sorted(mine - _SHOWN))

    def _container(self, value: Any, what: str, source: Source | None) -> None:
        """One that outlives its reader: what stands in it is relied upon."""
        if type(value) not in (dict, list, set, frozenset, tuple) or source is None:
            self._refuse(f"{what} is a {type(value).__name__}")
        if len(value) > _MANY:
            self._refuse(f"{what} has {len(value)} items")
        if type(value) not in (tuple, frozenset):
            self._rely(source or Known(value, what), (id(value), None), ContentsAre.of(value))
        for one in (*value.values(), *value) if isinstance(value, dict) else tuple(value):
            inside = None if self._is_plain(one) else Known(one, f"item of {what}")
            if not isinstance(one, tuple | list | dict) or inside is not None:
                self._value(one, f"an item of {what}", source=inside)

    def _is_plain(self, value: Any) -> bool:
        return isinstance(value, _CONSTANTS)

    def _function(self, function: types.FunctionType, what: str, name: str) -> None:
        if _is_trusted(function.__globals__.get("__name__")):
            return
        where = Known(function, what)
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            held = getattr(function, part)
            if held is None:
                continue
            self._rely(Attribute(where, part), (id(function), part), IdentityIs(held))
        for one in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if not self._is_harmless(one):
                self._refuse(f"a default of {what} is a {type(one).__name__}")
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in _codes(function.__code__):
            self._code(code, function, cells, what, name)

    def _code(
        self,
        code: types.CodeType,
        function: types.FunctionType,
        cells: dict[str, Any],
        what: str,
        name: str,
    ) -> None:
        self._refuse_kind(code, what)
        writes = any(one in _CHANGING for one in code.co_names)
        found: list[tuple[Any, str, Source]] = []
        for one in decode(code).instructions:
            if one.name in _WRITES or (one.name == "STORE_DEREF" and one.value in cells):
                self._refuse(f"{what} writes {one.value}")
            if one.name == "STORE_ATTR" and name not in _MAKERS:
                self._refuse(f"{what} writes the attribute {one.value}")
            writes |= one.name in _ITEM_WRITES
            if one.name in ("LOAD_GLOBAL", "LOAD_NAME"):
                found += self._global(function, str(one.value))
            elif one.name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE"):
                found += self._cell(cells, str(one.value), code)
            elif one.name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                found += self._attribute(str(one.value))
        for value, text, source in found:
            if writes and isinstance(value, dict | list | set):
                self._refuse(f"{what} reads {text}, which it may write")
            self._value(value, text, source=source)

    def _refuse_kind(self, code: types.CodeType, what: str) -> None:
        named = [one for one in code.co_consts if isinstance(one, tuple)]
        if _POLICY in code.co_consts or any(_POLICY in one for one in named):
            self._refuse("it answers for its sizes itself")
        if code.co_flags & (inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE):
            self._refuse(f"{what} is a coroutine")

    def _global(self, function: types.FunctionType, name: str) -> Iterator[tuple[Any, str, Source]]:
        space = function.__globals__
        where = Known(space, f"globals of {space.get('__name__')}")
        if name in space:
            value = space[name]
            place = Item(where, name)
            plain = isinstance(value, _CONSTANTS)
            self._rely(place, (id(space), name), Equals(value) if plain else IdentityIs(value))
            yield value, name, place
        else:
            self._rely(where, (id(space), name), HasKey(name, False))
            if name in _IMPURE:
                self._refuse(f"{name} is called")
            if not hasattr(builtins, name):
                self._refuse(f"{name} is not known")

    def _cell(
        self, cells: dict[str, Any], name: str, code: types.CodeType
    ) -> Iterator[tuple[Any, str, Source]]:
        if name not in cells:
            return
        try:
            value = cells[name].cell_contents
        except ValueError:
            self._refuse(f"{name} is not bound yet")
            return
        place = CellContents(Known(cells[name], name))
        plain = isinstance(value, _CONSTANTS)
        self._rely(place, (id(cells[name]), None), Equals(value) if plain else IdentityIs(value))
        yield value, name, place

    def _attribute(self, name: str) -> Iterator[tuple[Any, str, Source]]:
        """Whatever has an attribute of this name may be meant: the class itself is what matters,
        and other classes that are named beside it."""
        for base in _bases(self._cls):
            if name in class_dict(base):
                self._machine.guards.rely_on_answer(self._cls, name)
                found = class_dict(base)[name]
                yield found, f"{class_name(base)}.{name}", Known(found, name)


_MANY = 512  # items of a table
_KINDS: Any = (types.FunctionType, staticmethod, classmethod, property)


def _plainly(value: Any) -> Any:
    """The function that a class's attribute, or a bound method, comes to."""
    if isinstance(value, staticmethod | classmethod | types.MethodType):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _bases(cls: type) -> list[type]:
    """A class and those that it derives from, up to torch's and the language's own."""
    found = (one for one in mro_of(cls) if one.__module__ != "builtins")
    return [one for one in found if not _is_trusted(one.__module__)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _codes(one)
