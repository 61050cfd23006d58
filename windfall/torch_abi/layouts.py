"""Where CPython keeps what guards read: offsets in its objects, types, functions and dictionaries.

Enters: objects made here. Leaves: `ObjectLayout` and its like, in bytes; None where a probe did not
find its place (see `probes.py`), and then guards go through public calls. Invariant: an offset is
found on this interpreter, never taken from a header.

    >>> object_layout().tuple_items
    24
"""

from __future__ import annotations

import ctypes
import struct
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.probes import (
    NotFound,
    NotThere,
    bytes_at,
    fact,
    only,
    peek,
    word_offset,
    words_at,
)


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Byte offsets in CPython's objects, and the flag of a type whose instances have their
    dictionary before the object."""

    type: int
    size: int  # of a tuple, list and dict: how many items
    tuple_items: int
    list_items: int  # a pointer to them
    set_size: int
    cell_contents: int
    float_value: int
    int_tag: int  # sign and number of digits; the digits follow
    proxy_target: int  # of a mappingproxy
    type_flags: int
    type_dict_offset: int
    type_dict: int
    static_type_dict: int  # 0: a class written in C has its dictionary elsewhere (from 3.12 on)
    managed_dict_flag: int
    managed_dict: int
    managed_dict_tag: int  # a bit of what stands there: no dictionary, attributes alone (3.12)
    structure_data: int  # of a ctypes object: the pointer to its memory


_FUNCTION_FIELDS = (
    *("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__"),
    *("__name__", "__qualname__"),
)


@fact
def object_layout() -> ObjectLayout:
    """Where CPython's own objects keep what guards read."""
    if sys.implementation.name != "cpython" or not hasattr(sys, "getrefcount"):
        raise NotFound("not CPython")
    pair = (object(), object(), object())
    several, table = list(pair), {1: 1, 2: 2}
    cell = types.CellType(pair)
    number, structure = 1.2345678901234567e-89, ctypes.c_uint64(0x0123456789ABCDEF)
    bits = int.from_bytes(struct.pack("=d", number), sys.byteorder)
    kind = word_offset([id(pair), id(several)], [id(tuple), id(list)], 3, "an object's type")
    size = word_offset([id(pair), id(several), id(table)], [3, 3, 2], 4, "the size of a sequence")
    items = word_offset([id(pair)], [id(pair[0])], 5, "a tuple's items")
    digits = size  # int is laid out as other sized objects: one word of size, then digits
    return _verified_objects(
        ObjectLayout(
            type=kind,
            size=size,
            tuple_items=items,
            list_items=only(
                (
                    8 * place
                    for place, word in enumerate(words_at(id(several), 4))
                    if place > 2 and peek(word) == id(pair[0])
                ),
                "a list's items",
            ),
            set_size=_set_size_offset(),
            cell_contents=word_offset([id(cell)], [id(pair)], 3, "a cell's contents"),
            float_value=word_offset([id(number)], [bits], 3, "a float's value"),
            int_tag=digits,
            structure_data=word_offset(
                [id(structure)], [ctypes.addressof(structure)], 4, "a structure's memory"
            ),
            **_type_offsets(),
        )
    )


def _set_size_offset() -> int:
    # A set that shrank has more used slots than members: that tells the two counts apart.
    shrunk = set(range(7))
    shrunk -= {1, 2, 3}
    return word_offset([id(shrunk)], [4], 6, "the size of a set")


class _Probe:
    """A class with a managed instance dictionary, as users' classes have."""


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement made it


def _type_offsets() -> dict[str, int]:
    known = (int, dict, types.FunctionType, types.ModuleType, torch.nn.Module, _Probe)
    addresses = [id(one) for one in known]
    words = 60
    flags = word_offset(addresses, [one.__flags__ for one in known], words, "type flags")
    dict_offset = word_offset(
        addresses,
        [one.__dictoffset__ % (1 << 64) for one in known],
        words,
        "the offset of instance dictionaries",
    )
    proxies = [one.__dict__ for one in known]
    target = only(
        (
            place
            for place in (16, 24)
            if all(peek((peek(id(one) + place) or 0) + 8) == id(dict) for one in proxies)
        ),
        "the dictionary behind a mappingproxy",
    )
    dicts = [words_at(id(proxy) + target, 1)[0] for proxy in proxies]  # of the living classes
    written = [place for place, one in enumerate(known) if one.__flags__ & _HEAP]
    table = word_offset(
        [addresses[place] for place in written],
        [dicts[place] for place in written],
        words,
        "a type's dictionary",
    )
    return {
        "proxy_target": target,
        "type_flags": flags,
        "type_dict_offset": dict_offset,
        "type_dict": table,
        "static_type_dict": _static_dicts(addresses, dicts, table),
        **_managed_dict(),
    }


def _static_dicts(addresses: list[int], dicts: list[int], table: int) -> int:
    """Whether classes written in C have their dictionary where others have it, or null there."""
    held = [words_at(address + table, 1)[0] for address in addresses]
    if held == dicts:
        return 1
    if any(one and one != real for one, real in zip(held, dicts, strict=True)):
        raise NotFound("the dictionary of a class written in C")
    return 0


def _managed_dict() -> dict[str, int]:
    flag = 1 << 4  # Py_TPFLAGS_MANAGED_DICT, from 3.11 on
    if not _Probe.__flags__ & flag or types.FunctionType.__flags__ & flag:
        raise NotFound("the flag of managed instance dictionaries")
    places = []
    for place in (8, 16, 24, 32):
        instance = _Probe()
        table = instance.__dict__
        if words_at(id(instance) - place, 1) == [id(table)]:
            places.append(-place)
    place = only(places, "a managed dictionary")
    unmade = []
    for number in range(8):
        instance = _Probe()
        instance.value = number  # type: ignore[attr-defined]
        unmade.append(words_at(id(instance) + place, 1)[0])
    if not any(unmade):
        tag = 0
    elif all(word & 1 for word in unmade):
        tag = 1
    else:
        raise NotFound("what stands for a dictionary that was not made yet")
    return {"managed_dict_flag": flag, "managed_dict": place, "managed_dict_tag": tag}


def _verified_objects(layout: ObjectLayout) -> ObjectLayout:
    for number in (0, 1, -1, 2**31, -(2**40), 2**70):
        same = int(str(number))
        tag, again = (words_at(id(one) + layout.int_tag, 1) for one in (number, same))
        rest = number.__sizeof__() - layout.int_tag - 8
        digits = bytes_at(id(number) + layout.int_tag + 8, rest)
        if tag != again or digits != bytes_at(id(same) + layout.int_tag + 8, rest):
            raise NotFound("equal integers do not look alike")
    return layout


@fact
def function_layout() -> dict[str, int]:
    """Offsets of the fields of a Python function, by attribute; null stands for None."""

    def make(captured: object) -> Callable[..., object]:
        def sample(a: object = 1.5, *, b: object = 2.5) -> object:
            return (a, b, captured)

        return sample

    one: Any = make(object())
    two = types.FunctionType(
        compile("2", "two", "eval"), {}, "two", (object(),), (types.CellType(),)[:0]
    )
    two.__kwdefaults__ = {"b": object()}
    return {
        name: word_offset(
            [id(one), id(two)],
            [id(getattr(one, name)), id(getattr(two, name))],
            16,
            f"a function's {name}",
        )
        for name in _FUNCTION_FIELDS
    }


@fact
def method_layout() -> dict[str, int]:
    """Offsets of the fields of a bound method, by attribute."""
    method = types.MethodType(len, [])
    return {
        "__func__": word_offset([id(method)], [id(len)], 5, "a method's function"),
        "__self__": word_offset([id(method)], [id(method.__self__)], 5, "a method's self"),
    }


@fact
def dict_version_offset() -> int:
    """Where a dict keeps its version: a number, unique in the process, that moves with each
    change. Tested on every way to change a dict before it is believed."""
    if sys.version_info >= (3, 13):
        raise NotThere("dicts have no version from CPython 3.13 on")
    places = [place for place in (16, 24, 32) if _version_moves(place)]
    return only(places, "the version of a dict")


def _changes() -> Iterator[tuple[dict[Any, Any], Callable[[], Any]]]:
    """Dictionaries and what changes them, one way each."""
    module = types.ModuleType("sample")
    holder = _Probe()
    holder.value = 1  # type: ignore[attr-defined]
    table: dict[Any, Any] = {"a": 1, "b": 2}
    yield table, lambda: table.__setitem__("c", 1)
    yield table, lambda: table.__setitem__("a", 3)
    yield table, lambda: table.update(b=5)
    yield table, lambda: table.pop("c")
    yield table, lambda: table.__delitem__("b")
    yield table, lambda: table.setdefault("z", 1)
    yield table, lambda: table.popitem()
    yield table, lambda: table.__ior__({"y": 1})
    yield table, lambda: table.clear()
    yield module.__dict__, lambda: setattr(module, "a", 1)
    yield module.__dict__, lambda: setattr(module, "a", 2)
    yield holder.__dict__, lambda: setattr(holder, "value", 3)
    yield holder.__dict__, lambda: setattr(holder, "fresh", 3)
    yield holder.__dict__, lambda: delattr(holder, "value")
    # Instructions that have run often are replaced by others, which write by themselves.
    for number in range(64):
        yield holder.__dict__, lambda: _store_attribute(holder, number)  # noqa: B023 (called at once)
        yield module.__dict__, lambda: _store_attribute(module, number)  # noqa: B023
        yield table, lambda: _store_item(table, number)  # noqa: B023


def _store_attribute(owner: Any, value: object) -> None:
    owner.stored = value


def _store_item(table: dict[Any, Any], value: object) -> None:
    table["stored"] = value


def _version_moves(place: int) -> bool:
    seen: set[int] = set()
    for table, change in _changes():
        (before,) = words_at(id(table) + place, 1)
        for _ in range(3):
            len(table), table.get("a"), list(table)
        if words_at(id(table) + place, 1) != [before]:
            return False
        change()
        (after,) = words_at(id(table) + place, 1)
        if after == before or after in seen:
            return False
        seen.add(after)
    fresh = [words_at(id(one) + place, 1)[0] for one in ({"a": 1}, {"a": 1}, dict(a=1))]
    return not seen.intersection(fresh)


# Past any metaclass.
_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_class_dict: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__


def member_offset(owner: type, name: str) -> int | None:
    """Where instances of `owner` keep the slot `name` (`__slots__`); None if it is not one."""
    found = _member(owner, name)
    return None if found is None else found[1]


def null_member(owner: type, name: str) -> int:
    """What a null there means: the address of None (a field of C), or 0: it is not set (a slot)."""
    found = _member(owner, name)
    return id(None) if found is not None and found[0] == _T_OBJECT else 0


_T_OBJECT, _T_OBJECT_EX = 6, 16


def _member(owner: type, name: str) -> tuple[int, int] | None:
    tables = (_class_dict(kind) for kind in _mro(owner))
    found = next((table[name] for table in tables if name in table), None)
    if type(found) is not types.MemberDescriptorType:
        return None
    described = words_at(id(found), 8)
    # PyMemberDescrObject: the pointer to its PyMemberDef is the last word: name, type, offset.
    for definition in described[5:7]:
        try:
            text, kind, offset = words_at(definition, 3)
            named = bytes_at(text, len(name) + 1) == name.encode() + b"\0"
        except NotFound:
            continue
        if named and kind & 0xFF in (_T_OBJECT, _T_OBJECT_EX):
            return kind & 0xFF, offset
    return None
