"""What a live thing is, told by its content: whether another process means the same by a name.

Enters: a function, class, code, module, descriptor, constant or plain container of these. Leaves: a
text that is equal in two processes only where the thing is the same to a capture that relied on it;
or `Unnameable` with the reason. Invariant: nothing of the user's is run, and no text depends on
addresses, on the hash seed or on the order in which modules were loaded.

    >>> Fingerprints().of((1, True)) == Fingerprints().of((1, 1))
    False

What is mutable and was looked into is relied upon by guards of its own, which are checked when an
entry is loaded: of a cell or a tensor only the kind counts here. What was relied upon by identity
alone (defaults of a function, a table of functions) is told by all that it holds.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import hashlib
import marshal
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from windfall import torch_abi
from windfall.identity_map import IdentityMap
from windfall.ir.names import Unnameable, operator_name, packet_name
from windfall.ir.reading import ABSENT, class_dict, class_name, is_among, mro_of

DEEP = 6  # containers in containers
MANY = 4096  # items of one container

# Of these, members of a class are told by torch's build or the interpreter's version; what a
# program has asked of them is relied upon by guards.
_KNOWN_BY_VERSION = frozenset({"torch", "builtins", *sys.stdlib_module_names}) - {"__main__"}


class Fingerprints:
    """The fingerprints of one look: what stays as it is meanwhile is told once."""

    def __init__(self) -> None:
        self._known: IdentityMap[Any, str] = IdentityMap()

    def of(self, value: Any, depth: int = DEEP) -> str:
        """The fingerprint of a thing."""
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        known = self._known.get(value)
        if known is None:
            known = self._told(value, kind, depth)
            self._known[value] = known
        return known

    def _told(self, value: Any, kind: type, depth: int) -> str:
        rule = _RULES.get(kind)
        if rule is not None:
            return rule(self, value, depth)
        for base, rule in _FAMILIES.items():
            if issubclass(kind, base):
                return rule(self, value, depth)
        raise Unnameable(f"an object of {class_name(kind)} is told by its identity alone")

    def parts(self, values: Any, depth: int) -> list[str]:
        """Those of what stands in a container."""
        if depth == 0 or len(values) > MANY:
            raise Unnameable("a container with too much in it")
        return [self.of(one, depth - 1) for one in values]

    def of_class(self, cls: type) -> str:
        """Its name, what it derives from, how its objects lie in memory, and the code of its
        methods."""
        known = self._known.get(cls)
        if known is not None:
            return known
        order = mro_of(cls)
        lines = [f"{_module_of(one)}:{class_name(one)}" for one in order]
        layout = (cls.__basicsize__, cls.__itemsize__, cls.__dictoffset__, cls.__weakrefoffset__)
        lines += [f"made by {_module_of(type(cls))}:{class_name(type(cls))}", repr(layout)]
        for one in order:
            if _module_of(one).partition(".")[0] not in _KNOWN_BY_VERSION:
                lines.append(self._members(one))
        if issubclass(cls, enum.Enum):
            lines += [f"{one.name} = {self.of(one.value)}" for one in cls]
        text = self._known[cls] = f"class {lines[0]} {_digest(lines)}"
        return text

    def _members(self, cls: type) -> str:
        """The code of what a class statement defines."""
        lines = []
        for name, member in sorted(class_dict(cls).items()):
            if type(member) in (types.FunctionType, staticmethod, classmethod, property):
                lines.append(f"{name} {self.of(member)}")
        return _digest(lines)

    def of_code(self, code: types.CodeType) -> str:
        """Instructions, names, constants, file and lines."""
        known = self._known.get(code)
        if known is None:
            known = self._known[code] = f"code {code.co_qualname} {code_digest(code)}"
        return known


def code_digest(code: types.CodeType) -> str:
    """Of all that a code object says. (The second version of the format has no references, which
    depend on how often an object is in use.)"""
    return hashlib.blake2b(marshal.dumps(_in_order(code), 2), digest_size=16).hexdigest()


def _in_order(constant: Any) -> Any:
    """The same with sets as sorted tuples: their order depends on the process's hash seed."""
    kind = type(constant)
    if kind is types.CodeType:
        held = tuple(map(_in_order, constant.co_consts))
        same = all(one is other for one, other in zip(held, constant.co_consts, strict=True))
        return constant if same else constant.replace(co_consts=held)
    if kind is frozenset:
        return ("frozenset", *sorted(map(repr, constant)))
    if kind is tuple and any(type(one) in (tuple, frozenset) for one in constant):
        return tuple(map(_in_order, constant))
    return constant


def _digest(lines: list[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _module_of(value: Any) -> str:
    """What a class says of its module."""
    found = class_dict(value).get("__module__", "builtins")
    return found if type(found) is str else "?"


# ----------------------------------------------------------------------------------- the kinds

Rule = Callable[[Fingerprints, Any, int], str]

_PLAIN = frozenset({bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented)})


def _function(told: Fingerprints, value: Any, depth: int) -> str:
    return f"function {value.__module__}:{value.__qualname__} {told.of_code(value.__code__)}"


def _builtin(told: Fingerprints, value: Any, depth: int) -> str:
    """A function of C; a method of one is bound to something, which must be a module or class."""
    owner = value.__self__
    if isinstance(owner, types.ModuleType):
        bound = owner.__name__
    elif owner is None or isinstance(owner, type):
        bound = "" if owner is None else told.of_class(owner)
    elif not value.__module__:
        bound = f"an object of {told.of_class(type(owner))}"  # of torch's tables of functions
        if _module_of(type(owner)).partition(".")[0] != "torch":
            raise Unnameable(f"{value.__qualname__} bound to an object")
    else:
        raise Unnameable(f"{value.__qualname__} bound to an object")
    return f"builtin {value.__module__}:{value.__qualname__} of {bound}"


def _descriptor(told: Fingerprints, value: Any, depth: int) -> str:
    owner = value.__objclass__
    return f"{type(value).__name__} {_module_of(owner)}:{class_name(owner)}.{value.__name__}"


def _property(told: Fingerprints, value: property, depth: int) -> str:
    parts = [told.of(one) for one in (value.fget, value.fset, value.fdel)]
    return f"property {' '.join(parts)}"


def _around(told: Fingerprints, value: Any, depth: int) -> str:
    return f"{type(value).__name__} of {told.of(value.__func__)}"


def _sequence(told: Fingerprints, value: Any, depth: int) -> str:
    return f"{type(value).__name__} {_digest(told.parts(value, depth))}"


def _slice(told: Fingerprints, value: slice, depth: int) -> str:
    return f"slice {told.parts((value.start, value.stop, value.step), depth)}"


def _set(told: Fingerprints, value: Any, depth: int) -> str:
    return f"{type(value).__name__} {_digest(sorted(told.parts(value, depth)))}"


def _mapping(told: Fingerprints, value: Any, depth: int) -> str:
    keys, values = told.parts(tuple(value), depth), told.parts(tuple(value.values()), depth)
    return f"{type(value).__name__} {_digest([*keys, *values])}"


def _module(told: Fingerprints, value: types.ModuleType, depth: int) -> str:
    return f"module {value.__name__} in {getattr(value, '__file__', None)}"


def _tensor(told: Fingerprints, value: torch.Tensor, depth: int) -> str:
    """Its sizes are a guard's, its elements are read when the program runs."""
    if not torch_abi.is_plain_tensor(value):
        raise Unnameable(f"a tensor of {class_name(type(value))}")
    return f"a {type(value).__name__}"


def _field(told: Fingerprints, value: Any, depth: int) -> str:
    """A field of a data class: what `fields` and generated methods go by."""
    flags = (value.name, value.init, value.repr, value.hash, value.compare, value.kw_only)
    held = [told.of(one, depth - 1) for one in (value.default, value.default_factory)]
    return f"field {flags} {value._field_type} {_digest(held)}"


def _member(told: Fingerprints, value: enum.Enum, depth: int) -> str:
    return f"member {value.name} of {told.of_class(type(value))}"


_RULES: dict[type, Rule] = {
    float: lambda told, value, depth: f"float {value.hex()}",
    complex: lambda told, value, depth: f"complex {value.real.hex()} {value.imag.hex()}",
    type(ABSENT): lambda told, value, depth: "nothing",
    types.FunctionType: _function,
    types.CodeType: lambda told, value, depth: told.of_code(value),
    types.BuiltinFunctionType: _builtin,
    types.CellType: lambda told, value, depth: "cell",
    types.ModuleType: _module,
    property: _property,
    enum.property: _property,
    staticmethod: _around,
    classmethod: _around,
    **dict.fromkeys(
        (
            types.MethodDescriptorType, types.WrapperDescriptorType,
            types.GetSetDescriptorType, types.MemberDescriptorType,
        ),
        _descriptor,
    ),
    **dict.fromkeys((tuple, list, torch.Size), _sequence),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((dict, collections.OrderedDict, types.MappingProxyType), _mapping),
    slice: _slice,
    range: lambda told, value, depth: repr(value),
    **dict.fromkeys(
        (torch.dtype, torch.layout, torch.memory_format, torch.device),
        lambda told, value, depth: str(value),
    ),
    dataclasses.Field: _field,
    type(dataclasses.MISSING): lambda told, value, depth: "missing",
    torch.Tensor: _tensor,
    torch.nn.Parameter: _tensor,
    type(torch.ops.aten.relu.default): lambda told, value, depth: operator_name(value),
    type(torch.ops.aten.relu): lambda told, value, depth: packet_name(value),
}  # fmt: skip

# Kinds with subclasses, in their order.
_FAMILIES: dict[type, Rule] = {
    enum.Enum: _member,
    type: lambda told, value, depth: told.of_class(value),
    types.ModuleType: _module,
}


def is_constant(value: Any) -> bool:
    """Whether equal objects of this kind need not be one."""
    return is_among(type(value), (int, float, complex, str, bytes, tuple, frozenset, torch.Size))
