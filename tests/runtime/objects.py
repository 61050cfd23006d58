"""Objects of every sort, for tests that ask the same question of all of them. Those of classes of
our own have every method that a careless reader would run, and note when one is."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

RAN: list[str] = []  # methods of the classes below that were called
_METHODS = (
    "__len__",
    "__eq__",
    "__ne__",
    "__lt__",
    "__hash__",
    "__bool__",
    "__getitem__",
    "__contains__",
    "__iter__",
    "__missing__",
    "__getattr__",
    "__getattribute__",
    "__repr__",
    "__str__",
    "__format__",
    "__index__",
    "__int__",
    "__float__",
    "__complex__",
    "__call__",
    "__instancecheck__",
    "__subclasscheck__",
    "__length_hint__",
    "__reversed__",
    "__array__",
    "__reduce__",
)


def _noting(name: str) -> Callable[..., Any]:
    def method(*arguments: Any, **keywords: Any) -> Any:
        RAN.append(name)
        raise ZeroDivisionError(name)

    return method


NOTING: dict[str, Any] = {name: _noting(name) for name in _METHODS}
NOTING["__class__"] = property(_noting("__class__"))


def noting(*bases: type, **more: Any) -> Any:
    """A class whose methods all note that they ran."""
    return type(f"Noting{bases[0].__name__ if bases else ''}", bases, {**NOTING, **more})


class _Meta(type):
    """A metaclass of which the same is true."""


for _name in _METHODS:
    if _name not in ("__call__", "__reduce__"):
        setattr(_Meta, _name, NOTING[_name])


class Plain:
    """An object with attributes."""

    shared = 1

    def method(self) -> int:
        return self.shared


class Slotted:
    __slots__ = ("first",)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    left: int = 1


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


class Subclassed(torch.Tensor):
    """A tensor whose every function is the user's."""

    @classmethod
    def __torch_function__(cls, *arguments: Any, **keywords: Any) -> Any:
        RAN.append("__torch_function__")
        raise ZeroDivisionError


def _numbers() -> list[Any]:
    return [
        0,
        1,
        -1,
        2,
        3,
        7,
        1 << 30,
        -(1 << 30),
        (1 << 63) - 1,
        1 << 63,
        -(1 << 63),
        1 << 100,
        -(1 << 100),
        1 << 20_000,
        True,
        False,
        0.0,
        -0.0,
        1.0,
        3.0,
        2.5,
        -2.5,
        1e300,
        float("inf"),
        -float("inf"),
        float("nan"),
        -float("nan"),
        0j,
        1 + 2j,
        complex(0.0, -0.0),
        complex(float("nan"), 1.0),
        noting(int)(3),
        noting(float)(2.5),
        noting(complex)(1j),
        Number.ONE,
    ]


def _texts() -> list[Any]:
    return [
        "",
        "a",
        "b",
        "training",
        "späße 🙂",
        "\udc80",
        "\ud800x",
        "\0",
        "".join(["train", "ing"]),
        b"",
        b"a",
        bytearray(b"a"),
        noting(str)("a"),
        noting(bytes)(b"a"),
    ]


def _containers() -> list[Any]:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    ordered = collections.OrderedDict(a=1, b=2)
    moved = collections.OrderedDict(b=2, a=1)
    moved.move_to_end("b")
    return [
        [],
        [1],
        [True],
        [1, 2],
        [1, 2, 3],
        cyclic,
        (),
        (1,),
        (True,),
        (1.0,),
        (1, 2),
        (1, 2.0, "a"),
        ((1,), (2, None)),
        (float("nan"),),
        (b"a",),
        (noting()(),),
        (Plain,),
        Pair(1, 2),
        Pair(1, 3),
        torch.Size([1]),
        torch.Size([1, 2]),
        torch.Size([]),
        {},
        {"a": 1},
        {"a": 2},
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        {1: 0},
        {True: 0},
        {1.0: 0},
        {None: 0},
        {(1,): 0},
        {Plain: 0},
        {1 << 70: 0},
        {noting(str, __hash__=str.__hash__)("z"): 0},
        collections.OrderedDict(),
        ordered,
        moved,
        collections.defaultdict(int, a=1),
        collections.Counter("ab"),
        set(),
        {1},
        {1, 2},
        frozenset(),
        frozenset({1}),
        frozenset({True}),
        frozenset({"a", 1}),
        frozenset({noting(__hash__=object.__hash__)()}),
        collections.deque(),
        collections.deque([1, 2], maxlen=3),
        range(0),
        range(5, 5),
        range(3),
        range(0, 3, 2),
        range(0, 4, 2),
        slice(None),
        slice(1, 2),
        slice(True, 2),
        slice(noting()(), None),
        noting(list)(),
        noting(list)([1, 2]),
        noting(tuple)([1, 2]),
        noting(dict)(),
        noting(dict)({"a": 1}),
        noting(collections.OrderedDict)(),
        noting(collections.deque)([1]),
        noting(collections.defaultdict)(int, {"a": 1}),
        noting(set)([1]),
        noting(frozenset)([1]),
        types.MappingProxyType({"a": 1}),
        types.MappingProxyType(noting(dict)({"a": 1})),
        {}.keys(),
        {"a": 1}.keys(),
        memoryview(b"a"),
        iter([1, 2]),
    ]


def _objects() -> list[Any]:
    def function(a: int = 1) -> int:
        return a

    plain, attached = Plain(), Plain()
    attached.shared = 2
    patched = type("Patched", (Plain,), {"method": function})
    return [
        None,
        ...,
        NotImplemented,
        object(),
        plain,
        attached,
        plain.method,
        Slotted(),
        Record(),
        noting()(),
        noting(Plain)(),
        noting(types.ModuleType)("m"),
        types.ModuleType("m"),
        enum,
        Plain,
        patched,
        Slotted,
        int,
        bool,
        type,
        object,
        torch.Tensor,
        torch.nn.Module,
        _Meta,
        _Meta("Meant", (), {}),
        _Meta("Meant", (), {})(),
        _Meta("Meant", (Plain,), {}),
        Colour,
        Colour.RED,
        Colour.BLUE,
        function,
        lambda: 1,
        len,
        [].append,
        Plain.method,
        classmethod,
        functools.partial(len),
        types.CellType(1),
        types.CellType(),
        function.__code__,
        ValueError(1),
        (one for one in ()),
        property(),
        NotImplementedError,
        torch.nn.Linear(1, 1),
        torch.add,
        torch.ops.aten.add.Tensor,
    ]


def _torch() -> list[Any]:
    base = torch.zeros(4, 3)
    with torch.inference_mode():
        inferred = torch.zeros(2, 3)
    held = [
        torch.zeros(2, 3),
        torch.zeros(2, 3),
        torch.ones(3, 2).t(),
        torch.zeros(()),
        torch.zeros(0),
        torch.zeros(2, 0),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, dtype=torch.int64),
        torch.zeros(2, dtype=torch.bool),
        torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3, requires_grad=True) + 1,
        torch.nn.Parameter(torch.zeros(2, 3)),
        torch.zeros(2, 3, device="meta"),
        torch.zeros(1, 1, 1, 1, 1, 1, 1),
        base[1:3],
        base[:, 1],
        base.expand(2, 4, 3),
        torch.zeros(2, 3).to_sparse(),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, dtype=torch.complex64).conj(),
        torch.zeros(2, 3, dtype=torch.bfloat16),
        inferred,
        torch.zeros(2, 3).as_subclass(Subclassed),
        torch.float32,
        torch.float64,
        torch.strided,
        torch.device("cpu"),
        torch.device("meta"),
        torch.channels_last,
        torch.Generator(),
        torch.zeros(2).untyped_storage(),
    ]
    return held


def everything() -> list[Any]:
    """Fresh objects, some equal to others; nothing of ours has run."""
    found = [*_numbers(), *_texts(), *_containers(), *_objects(), *_torch()]
    RAN.clear()
    return found
