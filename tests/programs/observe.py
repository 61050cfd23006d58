"""Whether two worlds look the same: values, types, identity, aliasing, exceptions.

Enters: pairs of objects, one of each world. Leaves: `Difference`s, each with a path and an aspect.
The two object graphs are walked in step; objects met at one place in one world must be met at the
same places in the other, so that `a is b` and shared storage are compared too.

Invariant: looking changes nothing (iterators are copied before they are read).
"""

from __future__ import annotations

import collections
import copy
import functools
import io
import math
import re
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

# Compared by their value alone: identity of such objects is nobody's business.
ATOMS = (
    int, bool, str, bytes, complex, type(None), type(...), type(NotImplemented), range, slice,
    torch.dtype, torch.device, torch.memory_format, torch.layout, types.CodeType,
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType,
)  # fmt: skip

ITERATORS = tuple(
    type(one)
    for one in (
        iter([]), iter(()), iter(range(0)), iter({}), iter({}.values()), iter({}.items()), iter(""),
        iter(set()), reversed([]), enumerate([]), zip(), map(abs, []), filter(None, []),
    )
)  # fmt: skip

# Attributes of a class that say nothing of the program.
_CLASS_NOISE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl", "__annotations__",
    "__firstlineno__", "__static_attributes__",
}  # fmt: skip


# Names that torch.compile leaves in the user's namespaces: not held against it.
_PEER_MARKS = re.compile(r"__compiled|__resume|__builtins__|_dynamo_|_is_torch_compile|_\d+_c\d+")


_ARGUMENT = re.compile(r"call \d+: calls\[\d+\]\[[01]\]\[[^]]+\]")


@dataclass(frozen=True)
class Difference:
    """`aspect` is the kind of thing that differs; `path` says where."""

    aspect: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"[{self.aspect}] {self.path}: {self.text}"


class Comparison:
    """Two worlds, walked in step. `exact`: numbers bit for bit, not nearly."""

    def __init__(self, file: str, exact: bool = True, versions: bool = False) -> None:
        self.file = file
        self.exact = exact
        self.versions = versions
        self.differences: list[Difference] = []
        self._forth: dict[tuple[str, int], int] = {}
        self._back: dict[tuple[str, int], int] = {}
        self._walked: set[tuple[int, int]] = set()
        self._alive: list[Any] = []

    def differ(self, aspect: str, path: str, text: str) -> None:
        """Note a difference."""
        self.differences.append(Difference(aspect, path, text))

    def equal(self, aspect: str, path: str, expected: Any, actual: Any) -> bool:
        """Two plain values."""
        if expected == actual:
            return True
        self.differ(aspect, path, f"expected {_short(expected)}, got {_short(actual)}")
        return False

    def paired(self, expected: Any, actual: Any, path: str, space: str = "object") -> None:
        """The two keys (addresses) stand for each other, everywhere."""
        known, back = self._forth.get((space, expected)), self._back.get((space, actual))
        if known is None and back is None:
            self._forth[space, expected], self._back[space, actual] = actual, expected
        elif known != actual or back != expected:
            told = (
                "two are expected to be one" if known is not None else "one is expected to be two"
            )
            self.differ("identity" if space == "object" else "aliasing", path, told)

    def walk(self, expected: Any, actual: Any, path: str) -> None:
        """Compare two values and all that they reach."""
        pair = (id(expected), id(actual))
        if pair in self._walked:
            return
        handler = _handler(type(expected))
        if handler is not _object and type(expected) in ATOMS:
            handler(self, expected, actual, path)
            return
        if not self._same_type(expected, actual, path):
            return
        self._walked.add(pair)
        self._alive.append((expected, actual))
        if type(expected) not in _WITHOUT_IDENTITY:
            self.paired(id(expected), id(actual), path)
        handler(self, expected, actual, path)

    def strides(self, expected: torch.Tensor, actual: torch.Tensor, path: str) -> None:
        """How two tensors of equal sizes lie in memory."""
        self.equal("strides", f"{path}.stride()", expected.stride(), actual.stride())

    def close(self, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        """Whether the numbers of two tensors are equal, or nearly."""
        return _close(self, expected, actual)

    def _counts(self, path: str) -> bool:
        """Whether a version counter is compared: not of gradients (how often they were added to is
        the engine's), and of compiled code only for arguments, which are there before it runs."""
        if not self.versions or path.endswith(".grad"):
            return False
        return self.exact or _ARGUMENT.fullmatch(path) is not None

    def _same_type(self, expected: Any, actual: Any, path: str) -> bool:
        one, other = type(expected), type(actual)
        if one is other or (
            one.__qualname__ == other.__qualname__ and _is_user_class(one) and _is_user_class(other)
        ):
            return True
        return self.equal("type", path, one.__qualname__, other.__qualname__)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:297] + "..."


def _is_user_class(kind: type) -> bool:
    return kind.__module__.startswith("program_")


# -------------------------------------------------------------------------- one row for each kind

Handler = Callable[[Comparison, Any, Any, str], None]


def _atom(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    if type(expected) is not type(actual):
        self.equal("type", path, type(expected).__qualname__, type(actual).__qualname__)
    else:
        self.equal("value", path, expected, actual)


def _code_object(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    name = "co_firstlineno"
    if type(actual) is types.CodeType:
        self.equal("value", path, getattr(expected, name), getattr(actual, name))
    else:
        _atom(self, expected, actual, path)


def _float(self: Comparison, expected: float, actual: Any, path: str) -> None:
    if math.isnan(expected) and math.isnan(actual):
        return
    if expected == actual and math.copysign(1, expected) == math.copysign(1, actual):
        return
    if self.exact or not math.isclose(expected, actual, rel_tol=2e-5, abs_tol=1e-5):
        self.equal("value", path, repr(expected), repr(actual))


def _tensor(self: Comparison, expected: torch.Tensor, actual: torch.Tensor, path: str) -> None:
    for name in ("dtype", "shape", "device", "layout", "requires_grad", "is_leaf"):
        if not self.equal(
            "metadata", f"{path}.{name}", getattr(expected, name), getattr(actual, name)
        ):
            return
    self.equal("metadata", f"{path}.is_inference", expected.is_inference(), actual.is_inference())
    if expected.layout is torch.strided:
        self.strides(expected, actual, path)
        if expected.numel():
            self.paired(_storage(expected), _storage(actual), path, "storage")
            offsets = expected.storage_offset(), actual.storage_offset()
            self.equal("strides", f"{path}.storage_offset()", *offsets)
    if self.exact:  # compiled code need not keep a base that nobody else can reach
        self.equal("view", f"{path}._is_view()", expected._is_view(), actual._is_view())
    if self._counts(path) and not expected.is_inference() and not actual.is_inference():
        self.equal("version", f"{path}._version", expected._version, actual._version)
    if not self.close(expected.detach(), actual.detach()):
        self.differ("value", path, f"expected {_short(expected)}, got {_short(actual)}")
    if expected.is_leaf:
        self.walk(expected.grad, actual.grad, f"{path}.grad")
    self.walk(vars(expected), vars(actual), f"{path}.__dict__")


def _close(self: Comparison, expected: torch.Tensor, actual: torch.Tensor) -> bool:
    if expected.layout is not torch.strided:
        expected, actual = expected.to_dense(), actual.to_dense()
    expected, actual = _plain(expected), _plain(actual)
    numeric = expected.is_floating_point() or expected.is_complex()
    near = {"rtol": 1e-4, "atol": 1e-5} if expected.element_size() >= 4 else {}
    tolerance = near if numeric and not self.exact else {"rtol": 0, "atol": 0}
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
    except AssertionError:
        return False
    return True


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is an ordinary tensor, whatever the class or the modes."""
    with torch.no_grad():
        return tensor.clone().resolve_conj().resolve_neg().as_subclass(torch.Tensor)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _items(sequence: Any) -> list[Any]:
    """Past the methods of a subclass, which the program may have changed."""
    kind = next(
        (one for one in (list, tuple, collections.deque) if isinstance(sequence, one)), None
    )
    return list(kind.__iter__(sequence)) if kind is not None else list(sequence)


def _sequence(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    expected, actual = _items(expected), _items(actual)
    if self.equal("length", f"len({path})", len(expected), len(actual)):
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            self.walk(one, other, f"{path}[{index}]")


def _deque(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    self.equal("value", f"{path}.maxlen", expected.maxlen, actual.maxlen)
    _sequence(self, expected, actual, path)


def _mapping(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    if "_hooks" in path.rpartition("[")[2]:  # torch numbers hooks in one count for all modules
        _sequence(self, list(expected.values()), list(actual.values()), path)
        return
    _dictionary(self, _shown(expected), _shown(actual), path)
    if isinstance(expected, collections.defaultdict):
        self.walk(expected.default_factory, actual.default_factory, f"{path}.default_factory")


def _shown(mapping: Any) -> dict[Any, Any]:
    return {
        key: value
        for key, value in dict.items(mapping)
        if not (type(key) is str and _PEER_MARKS.match(key))
    }


def _dictionary(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    names = [[_key(key) for key in one] for one in (expected, actual)]
    if names[0] != names[1]:
        if sorted(names[0]) == sorted(names[1]):
            self.equal("order", f"{path}.keys()", *names)
        else:
            lost, new = ([key for key in a if key not in b] for a, b in (names, names[::-1]))
            self.differ("keys", f"{path}.keys()", f"lost {lost}, new {new}")
        return
    for one, other in zip(expected.items(), actual.items(), strict=True):
        if type(one[0]) not in ATOMS:
            self.walk(one[0], other[0], f"key {_key(one[0])} of {path}")
        self.walk(one[1], other[1], f"{path}[{_key(one[0])}]")


def _key(key: Any) -> str:
    return (
        repr(key) if type(key) in ATOMS or type(key) in (tuple, float) else type(key).__qualname__
    )


def _set(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    ordered = [sorted(one, key=lambda item: (_key(item), id(item))) for one in (expected, actual)]
    if self.equal("length", f"len({path})", len(ordered[0]), len(ordered[1])):
        for one, other in zip(*ordered, strict=True):
            self.walk(one, other, f"{path}{{{_key(one)}}}")


def _function(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    if expected is actual:
        return
    for name in ("__name__", "__qualname__", "__code__", "__defaults__", "__kwdefaults__"):
        self.walk(getattr(expected, name), getattr(actual, name), f"{path}.{name}")
    self.walk(vars(expected), vars(actual), f"{path}.__dict__")
    cells = expected.__closure__ or (), actual.__closure__ or ()
    if self.equal("length", f"len({path}.__closure__)", len(cells[0]), len(cells[1])):
        for name, one, other in zip(expected.__code__.co_freevars, *cells, strict=True):
            self.walk(one, other, f"{path}.<{name}>")


EMPTY = "an empty cell"


def _cell(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    contents = [_contents(one) for one in (expected, actual)]
    self.walk(contents[0], contents[1], path)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def _method(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    self.walk(expected.__self__, actual.__self__, f"{path}.__self__")
    self.walk(expected.__func__, actual.__func__, f"{path}.__func__")


def _attributes(*names: str) -> Handler:
    def walk(self: Comparison, expected: Any, actual: Any, path: str) -> None:
        for name in names:
            self.walk(getattr(expected, name), getattr(actual, name), f"{path}.{name}")

    return walk


def _iterator(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    left = []
    for one in (expected, actual):
        try:
            left.append(list(copy.deepcopy(one)))
        except TypeError:  # something in it cannot be copied
            return
    fresh = Comparison(self.file, self.exact)  # what a copy holds is nobody's identity
    fresh.walk(left[0], left[1], f"list({path})")
    self.differences += fresh.differences


def _class(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    if expected is actual:
        return
    if not self.equal("value", path, expected.__qualname__, actual.__qualname__):
        return
    if _is_user_class(expected):
        self.walk(expected.__bases__, actual.__bases__, f"{path}.__bases__")
        names = [
            [name for name in vars(one) if name not in _CLASS_NOISE] for one in (expected, actual)
        ]
        if self.equal("keys", f"vars({path})", *names):
            for name in names[0]:
                self.walk(vars(expected)[name], vars(actual)[name], f"{path}.{name}")


def _exception(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    self.walk(_arguments(expected), _arguments(actual), f"{path}.args")
    for name in ("__cause__", "__context__", "__suppress_context__"):
        self.walk(getattr(expected, name), getattr(actual, name), f"{path}.{name}")
    if isinstance(expected, BaseExceptionGroup):
        self.walk(expected.exceptions, actual.exceptions, f"{path}.exceptions")
    _state(self, expected, actual, path)
    if isinstance(expected, UnboundLocalError):
        return  # once CPython 3.11 has fused two instructions it names the line of the first
    lines = [user_frames(one, self.file) for one in (expected, actual)]
    if bool(lines[0]) != bool(lines[1]) or (lines[0] and lines[0][-1] != lines[1][-1]):
        self.equal("line", f"line of {path}", *lines)
    elif lines[0] != lines[1]:
        self.equal("traceback", f"traceback of {path}", *lines)


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Without the stack of C++ frames that torch writes into some messages."""
    return tuple(
        one.partition("\nException raised from")[0] if type(one) is str else one
        for one in error.args
    )


def user_frames(error: BaseException, file: str) -> list[tuple[str, int]]:
    """The functions and lines of a traceback that stand in the user's file."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            frames.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return frames


def _object(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    for kind, walk in _CONTENTS.items():
        if isinstance(expected, kind):
            walk(self, expected, actual, path)
    _state(self, expected, actual, path)


def _state(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    if hasattr(expected, "__dict__"):
        self.walk(expected.__dict__, actual.__dict__, f"{path}.__dict__")
    for name in _slots(type(expected)):
        values = [getattr(one, name, EMPTY) for one in (expected, actual)]
        self.walk(values[0], values[1], f"{path}.{name}")


def _slots(kind: type) -> Iterator[str]:
    for one in kind.__mro__:
        for name, value in vars(one).items():
            if isinstance(value, types.MemberDescriptorType) and _is_user_class(one):
                yield name


def _nothing(self: Comparison, expected: Any, actual: Any, path: str) -> None:
    """Only the type can be compared."""


def _called(read: Callable[[Any], Any]) -> Handler:
    def walk(self: Comparison, expected: Any, actual: Any, path: str) -> None:
        self.walk(read(expected), read(actual), path)

    return walk


HANDLERS: dict[type, Handler] = {
    **dict.fromkeys(ATOMS, _atom),
    types.CodeType: _code_object,
    float: _float,
    list: _sequence,
    tuple: _sequence,
    torch.Size: _sequence,
    collections.deque: _deque,
    dict: _mapping,
    collections.OrderedDict: _mapping,
    collections.defaultdict: _mapping,
    collections.Counter: _mapping,
    set: _set,
    frozenset: _set,
    types.FunctionType: _function,
    types.CellType: _cell,
    types.MethodType: _method,
    types.GeneratorType: _nothing,
    types.CoroutineType: _nothing,
    types.FrameType: _nothing,
    types.TracebackType: _nothing,
    types.ModuleType: _nothing,
    torch.Generator: _called(lambda one: one.get_state()),
    weakref.ReferenceType: _called(lambda one: one()),
    io.StringIO: _called(lambda one: one.getvalue()),
    functools.partial: _attributes("func", "args", "keywords"),
    functools._lru_cache_wrapper: _called(lambda one: tuple(one.cache_info())),
    property: _attributes("fget", "fset", "fdel"),
    staticmethod: _attributes("__func__"),
    classmethod: _attributes("__func__"),
    types.GetSetDescriptorType: _attributes("__name__"),
    types.MemberDescriptorType: _attributes("__name__"),
    types.MethodWrapperType: _attributes("__name__", "__self__"),
    types.MappingProxyType: _called(dict),
    type: _class,
    **dict.fromkeys(ITERATORS, _iterator),
}
_WITHOUT_IDENTITY = {
    tuple, frozenset, float, torch.Size, types.MethodType, property, staticmethod, classmethod,
    types.MethodWrapperType,
}  # fmt: skip
# What a subclass of a container holds, besides its attributes.
_CONTENTS: dict[type, Handler] = {
    tuple: _sequence,
    list: _sequence,
    collections.deque: _deque,
    dict: _mapping,
    set: _set,
    frozenset: _set,
    str: lambda self, a, b, path: self.walk(str.__str__(a), str.__str__(b), path),
    int: lambda self, a, b, path: self.walk(int.__int__(a), int.__int__(b), path),
    float: lambda self, a, b, path: self.walk(float.__float__(a), float.__float__(b), path),
}


@functools.cache
def _handler(kind: type) -> Handler:
    found = HANDLERS.get(kind)
    if found is not None:
        return found
    for base, handler in ((torch.Tensor, _tensor), (BaseException, _exception), (type, _class)):
        if issubclass(kind, base):
            return handler
    return _object
