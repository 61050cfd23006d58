"""The kinds of object that the swap matrix puts in each other's place.

Enters: nothing. Leaves: `KINDS`, by name, the simplest first. A kind is a *factory*: every call of
`make` gives a fresh object, so that what eager used up or changed (an iterator, a list) is not what
the compiled function gets. Invariant: two objects of one kind are described alike
(`describe.py`); classes, functions and modules are the same object each time (`shared`), since it
is their identity that programs rely on.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import math
import operator
import pathlib
import re
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch


@dataclass(frozen=True)
class Kind:
    """One kind of object. Kinds of one `family` are taken to be close to each other: pairs of them
    always take the true protocol."""

    name: str
    family: str
    make: Callable[[], Any]
    stateful: bool = False  # an operation may change it, so it is described after the call too
    shared: bool = False  # each call of `make` gives the same object: it must not be written to


KINDS: dict[str, Kind] = {}


def _add(
    family: str, name: str, make: Callable[[], Any], stateful: bool = False, shared: bool = False
) -> None:
    assert name not in KINDS, name
    KINDS[name] = Kind(name, family, make, stateful, shared)


def _constants(family: str, **values: Any) -> None:
    for name, value in values.items():
        _add(family, name, functools.partial(_same, value))


def _same(value: Any) -> Any:
    return value


def _shared(family: str, **values: Any) -> None:
    for name, value in values.items():
        _add(family, name, functools.partial(_same, value), shared=True)


def _fresh(family: str, **makers: Callable[[], Any]) -> None:
    for name, make in makers.items():
        _add(family, name, make, stateful=True)


def _class(name: str, *bases: type, metaclass: Any = type, **members: Any) -> Any:
    """A class as a class statement of this module would make it."""
    members = {"__module__": __name__, "__qualname__": name, **members}
    return metaclass(name, bases or (object,), members)


# ------------------------------------------------------------------------------------- constants

_constants(
    "int", zero=0, one=1, two=2, three=3, minus_one=-1, four=4, large=2**63, huge=10**30,
    true=True, false=False,
)  # fmt: skip
_constants(
    "float", float_zero=0.0, float_minus_zero=-0.0, float_one=1.0, float_two=2.0, one_and_half=1.5,
    two_and_half=2.5, nan=math.nan, infinity=math.inf,
)  # fmt: skip
_constants("complex", complex_zero=0j, complex_one=1 + 0j, complex_mixed=1.5 - 2j)
_constants(
    "text", text_empty="", text_x="x", text_one="1", text_number="1.5", text_three="abc",
    text_wide="é€𝄞", text_format="{} %s", bytes_empty=b"", bytes_ab=b"ab",
)  # fmt: skip
_fresh("text", bytearray_ab=lambda: bytearray(b"ab"), memoryview_ab=lambda: memoryview(b"ab"))
_constants("singleton", none=None, ellipsis=Ellipsis, not_implemented=NotImplemented)

# ------------------------------------------------------------------------------------ containers

_fresh(
    "sequence",
    list_empty=lambda: [],
    list_one=lambda: [1],
    list_three=lambda: [1, 2, 3],
    list_texts=lambda: ["x", "y"],
    list_nested=lambda: [[1, 2], [3, 4]],
    list_tensors=lambda: [torch.ones(2), torch.zeros(2)],
    tuple_empty=lambda: (),
    tuple_one=lambda: (1,),
    tuple_two=lambda: (1, 2),
    tuple_three=lambda: (1, 2, 3),
    tuple_texts=lambda: ("x", "y"),
    tuple_pairs=lambda: ((1, 2), (3, 4)),
    tuple_tensor=lambda: (torch.ones(2), 1),
    deque_empty=lambda: collections.deque(),
    deque_two=lambda: collections.deque([1, 2]),
    deque_bounded=lambda: collections.deque([1, 2], 2),
    range_empty=lambda: range(0),
    range_three=lambda: range(3),
    range_stepped=lambda: range(1, 7, 2),
    size_empty=lambda: torch.Size([]),
    size_two=lambda: torch.Size([2, 3]),
    user_list=lambda: collections.UserList([1, 2]),
)
_constants("slice", slice_all=slice(None), slice_two=slice(0, 2))
_fresh(
    "mapping",
    dict_empty=lambda: {},
    dict_number=lambda: {1: 2},
    dict_text=lambda: {"x": 1},
    dict_two=lambda: {"x": 1, "y": 2},
    dict_tensor=lambda: {"x": torch.ones(2)},
    ordered_empty=lambda: collections.OrderedDict(),
    ordered_two=lambda: collections.OrderedDict(x=1, y=2),
    default_empty=lambda: collections.defaultdict(list),
    default_int=lambda: collections.defaultdict(int, {"x": 1}),
    counter_empty=lambda: collections.Counter(),
    counter_two=lambda: collections.Counter("xxy"),
    chain_map=lambda: collections.ChainMap({"x": 1}, {"y": 2}),
    user_dict=lambda: collections.UserDict({"x": 1}),
    mapping_proxy=lambda: types.MappingProxyType({"x": 1}),
    dict_keys=lambda: {"x": 1, "y": 2}.keys(),
    dict_values=lambda: {"x": 1, "y": 2}.values(),
    dict_items=lambda: {"x": 1, "y": 2}.items(),
    set_empty=lambda: set(),
    set_two=lambda: {1, 2},
    set_text=lambda: {"x"},
    frozenset_empty=lambda: frozenset(),
    frozenset_two=lambda: frozenset({1, 2}),
)

# --------------------------------------------------------------------------- subclasses of builtins

PLAIN_SUBCLASSES: dict[str, Any] = {
    base.__name__: _class(f"Plain{base.__name__.title()}", base)
    for base in (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}
_fresh(
    "subclass",
    plain_int=lambda: PLAIN_SUBCLASSES["int"](2),
    plain_int_zero=lambda: PLAIN_SUBCLASSES["int"](0),
    plain_float=lambda: PLAIN_SUBCLASSES["float"](1.5),
    plain_complex=lambda: PLAIN_SUBCLASSES["complex"](1j),
    plain_str=lambda: PLAIN_SUBCLASSES["str"]("x"),
    plain_bytes=lambda: PLAIN_SUBCLASSES["bytes"](b"ab"),
    plain_list=lambda: PLAIN_SUBCLASSES["list"]([1, 2]),
    plain_list_empty=lambda: PLAIN_SUBCLASSES["list"](),
    plain_tuple=lambda: PLAIN_SUBCLASSES["tuple"]([1, 2]),
    plain_dict=lambda: PLAIN_SUBCLASSES["dict"](x=1),
    plain_set=lambda: PLAIN_SUBCLASSES["set"]([1, 2]),
    plain_frozenset=lambda: PLAIN_SUBCLASSES["frozenset"]([1, 2]),
)


def _odd(value: Any, *others: Any) -> Any:
    return "odd"


class OddInt(int):
    """Whose operators and conversions are others than an int's."""

    def __bool__(self) -> bool:
        return False

    def __add__(self, other: Any) -> Any:
        return "added"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __int__(self) -> int:
        return 40

    def __index__(self) -> int:
        return 41

    def __float__(self) -> float:
        return 42.0

    def __str__(self) -> str:
        return "odd"

    def __format__(self, spec: str) -> str:
        return "formatted"


class OddFloat(float):
    """Whose conversions are others than a float's."""

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 40

    def __mul__(self, other: Any) -> Any:
        return "multiplied"

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return "odd"


class OddStr(str):
    """Whose length, equality and hash are others than a string's."""

    __slots__ = ()

    def __len__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 3

    def __str__(self) -> str:
        return "odd"

    def __iter__(self) -> Iterator[Any]:
        return iter([5, 6])


class OddList(list[Any]):
    """Whose length, elements and truth are others than a list's."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        return iter(["i", "j"])

    def __getitem__(self, key: Any) -> Any:
        return ("item", key)

    def __contains__(self, item: Any) -> bool:
        return True

    def __bool__(self) -> bool:
        return False


class OddTuple(tuple[Any, ...]):
    """Whose elements are others than a tuple's."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(["i", "j"])

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        return ("item", key)


class OddDict(dict[Any, Any]):
    """Which answers for keys that are not there, and hides those that are."""

    def __missing__(self, key: Any) -> Any:
        return ("missing", key)

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[Any]:
        return iter(["k"])

    def keys(self) -> Any:
        return ["k"]

    def get(self, key: Any, default: Any = None) -> Any:
        return "got"


class OddSet(set[Any]):
    """Which holds everything."""

    def __contains__(self, item: Any) -> bool:
        return True

    def __len__(self) -> int:
        return 9


_fresh(
    "subclass",
    odd_int=lambda: OddInt(2),
    odd_float=lambda: OddFloat(1.5),
    odd_str=lambda: OddStr("x"),
    odd_list=lambda: OddList([1, 2]),
    odd_tuple=lambda: OddTuple([1, 2]),
    odd_dict=lambda: OddDict(x=1),
    odd_set=lambda: OddSet([1, 2]),
)

# ------------------------------------------------------------------------- objects with each dunder


class Plain:
    """No dunder, no attribute."""


class Attributes:
    """With attributes of its own."""

    def __init__(self, x: Any = 1) -> None:
        self.x = x
        self.y = 2

    def method(self) -> Any:
        return self.x


class ClassAttributes:
    """With an attribute of its class."""

    x = "of the class"


class Slots:
    """Without a dict."""

    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 3


class EmptySlots:
    """With a slot that was never filled."""

    __slots__ = ("x",)


class Property:
    """Whose attribute is computed."""

    @property
    def x(self) -> Any:
        return "property"


class RaisingProperty:
    """Whose attribute is refused."""

    @property
    def x(self) -> Any:
        raise AttributeError("x")


class Context:
    """A context manager."""

    def __enter__(self) -> Any:
        return "entered"

    def __exit__(self, *error: Any) -> bool:
        return True


class OwnIterator:
    """An iterator in Python."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.count += 1
        if self.count > 2:
            raise StopIteration
        return self.count


def _no(self: Any) -> Any:
    raise ValueError("refused")


# Name of the kind → its dunders.
DUNDERS: dict[str, dict[str, Any]] = {
    "bool_true": {"__bool__": lambda self: True},
    "bool_false": {"__bool__": lambda self: False},
    "bool_wrong": {"__bool__": lambda self: 1},
    "bool_raises": {"__bool__": _no},
    "len_zero": {"__len__": lambda self: 0},
    "len_two": {"__len__": lambda self: 2},
    "len_negative": {"__len__": lambda self: -1},
    "len_float": {"__len__": lambda self: 0.5},
    "len_true": {"__len__": lambda self: True},
    "len_false_bool_true": {"__len__": lambda self: 0, "__bool__": lambda self: True},
    "iter_two": {"__iter__": lambda self: iter([1, 2])},
    "iter_wrong": {"__iter__": lambda self: 1},
    "iter_none": {"__iter__": None},
    "getitem": {"__getitem__": lambda self, key: ("item", key) if key in (0, 1) else [][0]},
    "getitem_any": {"__getitem__": lambda self, key: ("item", key), "__iter__": None},
    "index_one": {"__index__": lambda self: 1},
    "index_two": {"__index__": lambda self: 2},
    "index_wrong": {"__index__": lambda self: "1"},
    "int_three": {"__int__": lambda self: 3},
    "trunc": {"__trunc__": lambda self: 3, "__round__": lambda self, *n: ("rounded", n)},
    "float_half": {"__float__": lambda self: 0.5},
    "float_wrong": {"__float__": lambda self: 1},
    "complex_j": {"__complex__": lambda self: 1j},
    "eq_true": {"__eq__": lambda self, other: True, "__hash__": lambda self: 1},
    "eq_false": {"__eq__": lambda self, other: False, "__hash__": lambda self: 1},
    "eq_odd": {"__eq__": _odd, "__ne__": _odd, "__lt__": _odd, "__gt__": _odd, "__hash__": None},
    "eq_tensor": {"__eq__": lambda self, other: torch.ones(2)},
    "hash_one": {"__hash__": lambda self: 1},
    "hash_wrong": {"__hash__": lambda self: "1"},
    "unhashable": {"__hash__": None},
    "call_one": {"__call__": lambda self, *args, **kwargs: ("called", len(args))},
    "getattr_any": {"__getattr__": lambda self, name: ("attribute", len(name))},
    "getattribute": {"__getattribute__": lambda self, name: _bare(self, name)},
    "contains_true": {"__contains__": lambda self, item: True},
    "contains_odd": {"__contains__": lambda self, item: [1]},
    "add": {"__add__": _odd, "__radd__": lambda self, other: "reflected"},
    "add_not_implemented": {"__add__": lambda self, other: NotImplemented},
    "iadd": {"__iadd__": lambda self, other: "in place"},
    "mul": {"__mul__": _odd, "__rmul__": lambda self, other: "reflected", "__matmul__": _odd},
    "arithmetic": {
        "__sub__": _odd, "__rsub__": _odd, "__truediv__": _odd, "__mod__": _odd, "__neg__": _odd,
        "__floordiv__": _odd, "__pow__": _odd, "__and__": _odd, "__or__": _odd, "__lshift__": _odd,
        "__invert__": _odd, "__pos__": _odd, "__abs__": _odd, "__divmod__": _odd,
    },
    "str": {"__str__": lambda self: "its str"},
    "str_wrong": {"__str__": lambda self: 1},
    "repr": {"__repr__": lambda self: "its repr"},
    "format": {"__format__": lambda self, spec: f"its format {spec}"},
    "bytes": {"__bytes__": lambda self: b"its bytes"},
    "reversed": {"__reversed__": lambda self: iter([9])},
    "length_hint": {"__length_hint__": lambda self: 3, "__iter__": lambda self: iter([1])},
    "next": {"__next__": lambda self: 6},
    "keys": {"keys": lambda self: ["x"], "__getitem__": lambda self, key: {"x": "item"}[key]},
    "copy": {"__copy__": lambda self: "a copy"},
    "class": {"__class__": property(lambda self: int)},
    "setitem": {"__setitem__": lambda self, key, one: None, "__delitem__": lambda self, key: None},
    "setattr": {"__setattr__": lambda self, name, value: None},
    "missing": {"__getitem__": lambda self, key: {}[key]},
    "torch_function": {"__torch_function__": classmethod(lambda cls, *rest: "overridden")},
    "array": {"__array__": lambda self, *rest, **more: numpy.ones(2)},
    "match_args": {"__match_args__": ("x", "y"), "x": 1, "y": 2},
}  # fmt: skip


def _bare(instance: Any, name: str) -> Any:
    return 11 if name == "x" else object.__getattribute__(instance, name)


DUNDER_CLASSES = {name: _class(f"With_{name}", **own) for name, own in DUNDERS.items()}
for _name, _made in DUNDER_CLASSES.items():
    _add("object", f"with_{_name}", _made, stateful=True)

_fresh(
    "object",
    plain_object=Plain,
    bare_object=object,
    attributes=Attributes,
    attributes_tensor=lambda: Attributes(torch.ones(2)),
    attributes_none=lambda: Attributes(None),
    class_attributes=ClassAttributes,
    slots=Slots,
    slots_empty=EmptySlots,
    with_property=Property,
    with_raising_property=RaisingProperty,
    context=Context,
    simple_namespace=lambda: types.SimpleNamespace(x=1),
)

# ------------------------------------------------------------------------ classes, with metaclasses

_METACLASSES: dict[str, dict[str, Any]] = {
    "bool": {"__bool__": lambda cls: False},
    "len": {"__len__": lambda cls: 0},
    "iter": {"__iter__": lambda cls: iter([1, 2])},
    "call": {"__call__": lambda cls, *args, **kwargs: ("made", len(args))},
    "getattr": {"__getattr__": lambda cls, name: ("attribute", len(name))},
    "getitem": {"__getitem__": lambda cls, key: ("item", key) if key in (0, 1) else [][0]},
    "contains": {"__contains__": lambda cls, item: True},
    "eq": {"__eq__": lambda cls, other: True, "__hash__": lambda cls: 1},
    "instancecheck": {
        "__instancecheck__": lambda cls, one: True,
        "__subclasscheck__": lambda cls, one: True,
    },
    "repr": {"__repr__": lambda cls: "its repr", "__add__": _odd},
}
METACLASSES = {name: _class(f"Meta_{name}", type, **own) for name, own in _METACLASSES.items()}
CLASSES = {name: _class(f"Of_{name}", metaclass=made) for name, made in METACLASSES.items()}
_shared(
    "class",
    class_int=int,
    class_float=float,
    class_str=str,
    class_list=list,
    class_dict=dict,
    class_tuple=tuple,
    class_object=object,
    class_type=type,
    class_plain=Plain,
    class_attribute=ClassAttributes,
    class_of_attributes=Attributes,
    class_subclass=PLAIN_SUBCLASSES["int"],
    class_item=_class("Subscripted", __class_getitem__=classmethod(lambda cls, key: ("of", key))),
    class_tensor=torch.Tensor,
    class_module=torch.nn.ReLU,
    **{f"class_with_{name}": made for name, made in CLASSES.items()},
)
_fresh("object", **{f"instance_of_{name}": CLASSES[name] for name in ("bool", "len", "eq")})


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = "x"


class Falsy(enum.Enum):
    """An enumeration whose members are false."""

    A = 0

    def __bool__(self) -> bool:
        return False


class Number(enum.IntEnum):
    """Members that are integers."""

    ZERO = 0
    TWO = 2


class Word(enum.StrEnum):
    """Members that are strings."""

    X = "x"


class Rights(enum.Flag):
    """Members that combine."""

    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    """Members that combine and are integers."""

    LOW = 1
    HIGH = 2


_shared(
    "enum",
    enum_red=Colour.RED,
    enum_blue=Colour.BLUE,
    enum_falsy=Falsy.A,
    enum_int_zero=Number.ZERO,
    enum_int_two=Number.TWO,
    enum_str=Word.X,
    flag_none=Rights(0),
    flag_read=Rights.READ,
    flag_both=Rights.READ | Rights.WRITE,
    flag_int=Bits.LOW,
)
_shared("class", enum_class=Colour, enum_int_class=Number, flag_class=Rights)

Point = collections.namedtuple("Point", ["x", "y"])


class Typed(typing.NamedTuple):
    """A named tuple with a default."""

    x: int
    y: Any = None


@dataclass
class Record:
    """A plain dataclass."""

    x: int = 1
    y: Any = None


@dataclass(frozen=True)
class Frozen:
    """A dataclass that cannot be written to."""

    x: int = 1
    y: Any = None


@dataclass(order=True, slots=True)
class Ordered:
    """A dataclass with slots that compares."""

    x: int = 1
    items: list[int] = dataclasses.field(default_factory=list)


_fresh(
    "record",
    named_tuple=lambda: Point(1, 2),
    named_tuple_zero=lambda: Point(0, 0),
    named_tuple_typed=lambda: Typed(1),
    torch_record=lambda: torch.max(torch.tensor([[1.0, 2.0]]), 1),
    dataclass=Record,
    dataclass_tensor=lambda: Record(2, torch.ones(2)),
    dataclass_frozen=Frozen,
    dataclass_ordered=Ordered,
)

# --------------------------------------------------------------------------- functions, iterators


def function(*args: Any, **kwargs: Any) -> Any:
    """A function that takes whatever comes."""
    return ("function", len(args), sorted(kwargs))


def picky(x: Any, y: Any = 2) -> Any:
    """A function that takes one or two arguments."""
    return ("picky", y)


def raising(*args: Any) -> Any:
    """A function that refuses."""
    raise KeyError("refused")


def marked(*args: Any) -> Any:
    """A function with an attribute."""
    return "marked"


marked.x = "of a function"  # type: ignore[attr-defined]


def generating(*args: Any) -> Iterator[Any]:
    """A generator function."""
    yield 1
    yield 2


class Methods:
    """Methods of each sort."""

    def bound(self, *args: Any) -> Any:
        return ("bound", len(args))

    @classmethod
    def of_class(cls, *args: Any) -> Any:
        return (cls.__name__, len(args))

    @staticmethod
    def static(*args: Any) -> Any:
        return ("static", len(args))


_METHODS = Methods()
_shared(
    "function",
    function=function,
    function_picky=picky,
    function_raising=raising,
    function_marked=marked,
    function_lambda=lambda *args: ("lambda", len(args)),
    function_builtin=len,
    function_builtin_abs=abs,
    function_generating=generating,
    function_torch=torch.sin,
    function_torch_python=torch.nn.functional.relu,
    function_cached=functools.lru_cache(picky),
    method_bound=_METHODS.bound,
    method_class=Methods.of_class,
    method_static=Methods.static,
    method_unbound=str.upper,
    method_wrapper=(1).__add__,
    item_getter=operator.itemgetter(0),
    attribute_getter=operator.attrgetter("x"),
    torch_operation=torch.ops.aten.sin.default,
)
_fresh(
    "function",
    partial=lambda: functools.partial(function, 1),
    partial_keyword=lambda: functools.partial(picky, y=3),
    method_builtin=lambda: [1, 2].index,
    method_fresh=lambda: Attributes().method,
    static_method=lambda: staticmethod(function),
)
_fresh(
    "iterator",
    generator=generating,
    generator_empty=lambda: (one for one in tuple[int, ...]()),
    generator_started=lambda: _started(generating()),
    iterator_list=lambda: iter([1, 2]),
    iterator_list_empty=lambda: iter([]),
    iterator_tuple=lambda: iter((1, 2)),
    iterator_dict=lambda: iter({"x": 1}),
    iterator_range=lambda: iter(range(2)),
    iterator_text=lambda: iter("ab"),
    iterator_own=OwnIterator,
    iterator_zip=lambda: zip([1], [2], strict=False),
    iterator_map=lambda: map(str, [1, 2]),
    iterator_filter=lambda: filter(None, [0, 1]),
    iterator_enumerate=lambda: enumerate(["x"]),
    iterator_reversed=lambda: reversed([1, 2]),
    iterator_chain=lambda: itertools.chain([1], [2]),
    iterator_count=lambda: itertools.islice(itertools.count(), 3),
    iterator_callable=lambda: iter(lambda: 1, 1),
)


def _started(iterator: Any) -> Any:
    next(iterator)
    return iterator


# ------------------------------------------------------------------------- modules, exceptions, …

_MODULE = types.ModuleType("a_module")
_MODULE.x = 5  # type: ignore[attr-defined]
_MODULE_BARE = types.ModuleType("a_bare_module")


class Layer(torch.nn.Module):
    """A module of the user with a parameter and an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.x = 4

    def forward(self, *given: Any) -> Any:
        return self.weight * 2


_shared("module", module_python=_MODULE, module_bare=_MODULE_BARE, module_math=math)
_fresh(
    "module",
    layer=Layer,
    layer_relu=torch.nn.ReLU,
    layer_linear=lambda: _filled(torch.nn.Linear(2, 2)),
    layer_sequential=lambda: torch.nn.Sequential(torch.nn.ReLU()),
    layer_sequential_empty=lambda: torch.nn.Sequential(),
    layer_list=lambda: torch.nn.ModuleList([torch.nn.ReLU()]),
    layer_list_empty=lambda: torch.nn.ModuleList(),
    layer_dict=lambda: torch.nn.ModuleDict({"x": torch.nn.ReLU()}),
    parameter_list=lambda: torch.nn.ParameterList([torch.ones(2)]),
)


def _filled(layer: Any) -> Any:
    with torch.no_grad():
        for one in layer.parameters():
            one.fill_(0.5)
    return layer


class Problem(ValueError):
    """An exception of the user."""


_fresh(
    "exception",
    exception_value=lambda: ValueError("x"),
    exception_key=lambda: KeyError(1),
    exception_stop=lambda: StopIteration(3),
    exception_own=lambda: Problem(1, 2),
)
_shared("class", exception_class=ValueError, exception_own_class=Problem)

# ------------------------------------------------------------------------------------- tensors


class OwnTensor(torch.Tensor):
    """A subclass without rules of its own."""


class OddTensor(torch.Tensor):
    """A subclass that answers for torch's functions."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("sin", "add", "__add__", "mul", "__len__", "__bool__", "sum"):
            return torch.full((2,), 7.0)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


_fresh(
    "tensor",
    tensor=lambda: torch.tensor([1.0, 2.0]),
    tensor_three=lambda: torch.tensor([1.0, 2.0, 3.0]),
    tensor_one=lambda: torch.tensor([2.0]),
    tensor_empty=lambda: torch.zeros(0),
    tensor_empty_rows=lambda: torch.zeros(2, 0),
    tensor_matrix=lambda: torch.arange(6.0).reshape(2, 3),
    tensor_transposed=lambda: torch.arange(6.0).reshape(2, 3).t(),
    tensor_double=lambda: torch.tensor([1.0, 2.0], dtype=torch.float64),
    tensor_half=lambda: torch.tensor([1.0, 2.0], dtype=torch.float16),
    tensor_int=lambda: torch.tensor([1, 2]),
    tensor_int_small=lambda: torch.tensor([1, 2], dtype=torch.int8),
    tensor_bool=lambda: torch.tensor([True, False]),
    tensor_complex=lambda: torch.tensor([1j]),
    scalar_int=lambda: torch.tensor(1),
    scalar_int_zero=lambda: torch.tensor(0),
    scalar_float=lambda: torch.tensor(1.5),
    scalar_float_zero=lambda: torch.tensor(0.0),
    scalar_nan=lambda: torch.tensor(math.nan),
    scalar_true=lambda: torch.tensor(True),
    scalar_false=lambda: torch.tensor(False),
    tensor_grad=lambda: torch.tensor([1.0, 2.0], requires_grad=True),
    tensor_computed=lambda: torch.tensor([1.0, 2.0], requires_grad=True) * 1,
    scalar_grad=lambda: torch.tensor(1.5, requires_grad=True),
    parameter=lambda: torch.nn.Parameter(torch.tensor([1.0, 2.0])),
    tensor_subclass=lambda: torch.tensor([1.0, 2.0]).as_subclass(OwnTensor),
    tensor_odd_subclass=lambda: torch.tensor([1.0, 2.0]).as_subclass(OddTensor),
    tensor_marked=lambda: _with_attribute(torch.tensor([1.0, 2.0])),
    tensor_meta=lambda: torch.zeros(2, device="meta"),
    tensor_sparse=lambda: torch.tensor([1.0, 0.0]).to_sparse(),
)


def _with_attribute(tensor: Any) -> Any:
    tensor.x = "of a tensor"
    return tensor


_shared(
    "torch",
    dtype_float=torch.float32,
    dtype_double=torch.float64,
    dtype_int=torch.int64,
    dtype_bool=torch.bool,
    layout=torch.strided,
    memory_format=torch.contiguous_format,
)
_fresh("torch", device_cpu=lambda: torch.device("cpu"), device_meta=lambda: torch.device("meta"))

# ------------------------------------------------------------------- NumPy, the standard library

_fresh(
    "numpy",
    numpy_int=lambda: numpy.int64(2),
    numpy_int_zero=lambda: numpy.int64(0),
    numpy_int_small=lambda: numpy.int8(1),
    numpy_float=lambda: numpy.float64(1.5),
    numpy_float_small=lambda: numpy.float32(1.5),
    numpy_bool=lambda: numpy.bool_(True),
    numpy_bool_false=lambda: numpy.bool_(False),
    numpy_str=lambda: numpy.str_("x"),
    numpy_array=lambda: numpy.array([1.0, 2.0]),
    numpy_array_int=lambda: numpy.array([1, 2]),
    numpy_array_empty=lambda: numpy.array([]),
    numpy_scalar_array=lambda: numpy.array(2),
    numpy_dtype=lambda: numpy.dtype("float32"),
)
_fresh(
    "library",
    fraction=lambda: fractions.Fraction(1, 2),
    decimal=lambda: decimal.Decimal("1.5"),
    decimal_zero=lambda: decimal.Decimal(0),
    time_span=lambda: datetime.timedelta(0),
    date=lambda: datetime.date(2020, 1, 1),
    path=lambda: pathlib.PurePosixPath("x"),
    pattern=lambda: re.compile("x"),
    match=lambda: re.match("(x)", "x"),
    generic_alias=lambda: list[int],
    union=lambda: int | str,
    cell=lambda: types.CellType(1),
    weak_dead=lambda: weakref.ref(Plain()),
    weak_alive=lambda: weakref.ref(_METHODS),
    code=lambda: picky.__code__,
    property=lambda: Property.x,
)

# ------------------------------------------------------------------------------------------ twins


def other(x: Any, y: Any = 3) -> Any:
    """Like `picky`, but not it."""
    return ("other", y)


class OtherProperty:
    """Like `Property`, but not it."""

    @property
    def x(self) -> Any:
        return "another property"


def _slots(x: Any) -> Slots:
    made = Slots()
    made.x = x
    return made


def _ones(layer: Any) -> Any:
    with torch.no_grad():
        for one in layer.parameters():
            one.fill_(1.0)
    return layer


# A second object of exactly the same type as one above, with other content: a guard on the type
# alone tells them not apart. Where a type has two kinds already, there is none here.
_fresh(
    "twin",
    bytearray_other=lambda: bytearray(b""),
    memoryview_other=lambda: memoryview(b"cde"),
    user_list_other=lambda: collections.UserList([]),
    chain_map_other=lambda: collections.ChainMap({}),
    user_dict_other=lambda: collections.UserDict({}),
    mapping_proxy_other=lambda: types.MappingProxyType({}),
    dict_keys_other=lambda: {}.keys(),
    dict_values_other=lambda: {"z": 7}.values(),
    dict_items_other=lambda: {}.items(),
    plain_float_other=lambda: PLAIN_SUBCLASSES["float"](0.0),
    plain_complex_other=lambda: PLAIN_SUBCLASSES["complex"](0j),
    plain_str_other=lambda: PLAIN_SUBCLASSES["str"](""),
    plain_bytes_other=lambda: PLAIN_SUBCLASSES["bytes"](b""),
    plain_tuple_other=lambda: PLAIN_SUBCLASSES["tuple"]([]),
    plain_dict_other=lambda: PLAIN_SUBCLASSES["dict"]({}),
    plain_set_other=lambda: PLAIN_SUBCLASSES["set"]([]),
    plain_frozenset_other=lambda: PLAIN_SUBCLASSES["frozenset"]([]),
    odd_int_other=lambda: OddInt(0),
    odd_float_other=lambda: OddFloat(0.0),
    odd_str_other=lambda: OddStr(""),
    odd_list_other=lambda: OddList([]),
    odd_tuple_other=lambda: OddTuple([]),
    odd_dict_other=lambda: OddDict({}),
    odd_set_other=lambda: OddSet([]),
    slots_other=lambda: _slots("of a slot"),
    namespace_other=lambda: types.SimpleNamespace(x=0, y=1),
    record_other=lambda: torch.max(torch.tensor([[5.0, 2.0, 1.0], [0.0, 1.0, 2.0]]), 1),
    frozen_other=lambda: Frozen(0),
    ordered_other=lambda: Ordered(5),
    static_other=lambda: staticmethod(other),
    wrapper_other=lambda: (5).__mul__,
    tuple_iterator_other=lambda: iter(()),
    dict_iterator_other=lambda: iter({1: 1, 2: 2}),
    range_iterator_other=lambda: iter(range(0)),
    text_iterator_other=lambda: iter("xyz"),
    zip_other=lambda: zip([], [], strict=False),
    map_other=lambda: map(abs, []),
    filter_other=lambda: filter(callable, [0, len]),
    enumerate_other=lambda: enumerate([], 5),
    reversed_other=lambda: reversed([]),
    chain_other=lambda: itertools.chain(),
    islice_other=lambda: itertools.islice([5, 6], 0),
    callable_iterator_other=lambda: iter(lambda: 1, 1),
    linear_other=lambda: _ones(torch.nn.Linear(2, 3, bias=False)),
    relu_other=lambda: torch.nn.ReLU(inplace=True),
    dict_layer_other=lambda: torch.nn.ModuleDict(),
    parameter_list_other=lambda: torch.nn.ParameterList(),
    value_error_other=lambda: ValueError(),
    key_error_other=lambda: KeyError("other"),
    stop_other=lambda: StopIteration(),
    problem_other=lambda: Problem("text"),
    parameter_other=lambda: torch.nn.Parameter(torch.zeros(3), requires_grad=False),
    own_tensor_other=lambda: torch.zeros(0).as_subclass(OwnTensor),
    odd_tensor_other=lambda: torch.zeros(3).as_subclass(OddTensor),
    small_int_other=lambda: numpy.int8(0),
    numpy_float_other=lambda: numpy.float64(0.0),
    small_float_other=lambda: numpy.float32(-2.0),
    numpy_str_other=lambda: numpy.str_(""),
    fraction_other=lambda: fractions.Fraction(0),
    time_span_other=lambda: datetime.timedelta(1),
    date_other=lambda: datetime.date(1999, 2, 3),
    path_other=lambda: pathlib.PurePosixPath("y/z"),
    pattern_other=lambda: re.compile("y(z)"),
    match_other=lambda: re.match("(y)z", "yz"),
    alias_other=lambda: dict[str, int],
    union_other=lambda: float | None,
    cell_other=lambda: types.CellType("x"),
    cell_empty=lambda: types.CellType(),
    finfo=lambda: torch.finfo(torch.float32),
    finfo_other=lambda: torch.finfo(torch.float64),
    method_caller=lambda: operator.methodcaller("upper"),
    method_caller_other=lambda: operator.methodcaller("lower"),
    counter_iterator=lambda: itertools.repeat(1, 2),
    counter_iterator_other=lambda: itertools.repeat(2, 1),
    hint=lambda: typing.List[int],  # noqa: UP006
    hint_other=lambda: typing.List[str],  # noqa: UP006
    choice=lambda: typing.Optional[int],  # noqa: UP045
    choice_other=lambda: typing.Union[str, float],  # noqa: UP007
)
_shared(
    "twin",
    cached_other=functools.lru_cache(other),
    unbound_other=list.append,
    item_getter_other=operator.itemgetter(1),
    attribute_getter_other=operator.attrgetter("y"),
    operation_other=torch.ops.aten.cos.default,
    layout_other=torch.sparse_coo,
    memory_format_other=torch.channels_last,
    code_other=other.__code__,
    property_other=OtherProperty.x,
    function_other=other,
)


# Every family, and in it what the front end tells apart: the fixed set whose every ordered pair is
# taken with each operation (`--kinds representative`). The others are drawn in samples.
REPRESENTATIVE: tuple[str, ...] = (
    "zero", "one", "two", "huge", "true", "float_zero", "one_and_half", "nan", "complex_mixed",
    "text_empty", "text_x", "text_number", "bytes_ab", "bytearray_ab", "none", "ellipsis",
    "not_implemented", "list_empty", "list_three", "list_tensors", "tuple_empty", "tuple_two",
    "deque_two", "range_three", "size_two", "slice_two", "dict_empty", "dict_number",
    "dict_text", "ordered_two", "default_int", "dict_keys", "set_two", "frozenset_empty",
    "plain_int", "plain_str", "plain_list", "plain_dict", "odd_int", "odd_float", "odd_list",
    "odd_tuple", "with_bool_false", "with_bool_raises", "with_len_zero", "with_len_negative",
    "with_iter_two", "with_getitem", "with_index_one", "with_float_half", "with_eq_true",
    "with_eq_tensor", "with_hash_one", "with_unhashable", "with_call_one", "with_getattr_any",
    "with_contains_true", "with_arithmetic", "with_str", "with_format", "with_keys",
    "with_torch_function", "plain_object", "attributes", "attributes_tensor", "slots",
    "with_property", "context", "instance_of_bool", "class_int", "class_plain", "class_tensor",
    "class_with_bool", "class_with_len", "enum_class", "exception_own_class", "enum_red",
    "enum_falsy", "enum_int_two", "flag_read", "named_tuple", "dataclass", "dataclass_frozen",
    "torch_record", "function", "function_builtin", "function_torch", "function_generating",
    "method_bound", "method_class", "partial", "generator", "iterator_list", "iterator_own",
    "iterator_zip", "module_math", "layer", "layer_linear", "layer_list", "exception_value",
    "tensor", "tensor_three", "tensor_empty", "tensor_matrix", "tensor_int", "tensor_bool",
    "scalar_int", "scalar_float", "scalar_true", "tensor_grad", "parameter", "tensor_subclass",
    "tensor_odd_subclass", "tensor_meta", "dtype_float", "dtype_int", "device_cpu", "numpy_int",
    "numpy_float", "numpy_array", "numpy_scalar_array", "fraction", "path", "weak_alive",
    "union_other", "odd_list_other",
)  # fmt: skip
