"""What libraries ask of classes, flags and constants before they compute, each without a break."""

from __future__ import annotations

import abc
import collections.abc
import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall


def _way(compiled: Any) -> tuple[int, list[int], int]:
    told = windfall.explanation(compiled)
    return len(told.graphs), [one.number for one in told.breaks], len(told.fallbacks)


# ------------------------------------------------------------------------------ abstract classes


class Meta(abc.ABCMeta):
    def __instancecheck__(cls, value: Any) -> bool:
        return super().__instancecheck__(value)


class Plain(abc.ABC):  # noqa: B024
    pass


class Mapped(collections.abc.MutableMapping[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __delitem__(self, key: Any) -> None:
        pass

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


class Derived(Mapped):
    pass


class OfMeta(metaclass=Meta):
    pass


class BelowMeta(Mapped, metaclass=Meta):
    pass


class Sized:
    def __len__(self) -> int:
        return 3


class Hooked(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return True if "is_hooked" in vars(other) else NotImplemented


class Taken:
    is_hooked = True


_CLASSES = (Plain, Mapped, Derived, OfMeta, BelowMeta, Hooked, collections.abc.Sized)
_OBJECTS: tuple[Callable[[], Any], ...] = (
    Mapped,
    Derived,
    OfMeta,
    BelowMeta,
    Sized,
    Taken,
    dict,
    lambda: torch.ones(2),
    lambda: 3,
)


@pytest.mark.parametrize("cls", _CLASSES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("make", _OBJECTS, ids=lambda one: one.__name__)
def test_who_is_an_instance_of_an_abstract_class(make: Callable[[], Any], cls: type) -> None:
    def f(x: torch.Tensor, value: Any) -> Any:
        return x + 1, isinstance(value, cls), issubclass(type(value), cls)

    compiled = windfall.compile(f)
    x, value = torch.ones(2), make()
    for _ in range(2):
        assert compiled(x, value)[1:] == f(x, value)[1:]
    asks = cls is Hooked  # its hook is asked natively
    assert asks or _way(compiled) == (1, [], 0)


def test_a_class_that_is_registered_later() -> None:
    class Open(collections.abc.Sized):
        pass

    class Late:
        pass

    def f(x: torch.Tensor, value: Any) -> Any:
        return x + 1, isinstance(value, Open)

    compiled = windfall.compile(f)
    x, late = torch.ones(2), Late()
    assert compiled(x, late)[1] is False
    Open.register(Late)
    assert compiled(x, late)[1] is True


# ----------------------------------------------------------------------------------------- flags


def test_a_flag_of_a_backend_is_read_and_relied_upon() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.backends.mkldnn.enabled else x + 2

    compiled = windfall.compile(f)
    x = torch.ones(2)
    assert torch.equal(compiled(x), f(x))
    assert _way(compiled) == (1, [], 0)
    before = torch.backends.mkldnn.enabled
    torch._C._set_mkldnn_enabled(not before)  # the attribute may be frozen by torch's test suite
    try:
        assert torch.equal(compiled(x), f(x))
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert torch.equal(compiled(x), f(x))


def test_whether_a_transform_is_under_way() -> None:
    active = torch._C._are_functorch_transforms_active

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if active() else x + 2

    def f(x: torch.Tensor) -> Any:
        return inner(x), torch.vmap(inner)(x), torch.func.grad(lambda y: inner(y).sum())(x)

    compiled = windfall.compile(f)
    x = torch.ones(3)
    for mine, theirs in zip(compiled(x), f(x), strict=True):
        assert torch.equal(mine, theirs)
    assert _way(compiled) == (1, [], 0)
    plain = windfall.compile(inner)
    assert torch.equal(plain(x), inner(x))
    assert torch.equal(torch.vmap(plain)(x), torch.vmap(inner)(x))


# ------------------------------------------------------------------------------------- constants


@pytest.mark.parametrize(
    "counted",
    [
        lambda: torch.arange(3),
        lambda: torch.arange(1, 3),
        lambda: torch.arange(4, 0, -2),
        lambda: torch.arange(0),
        lambda: torch.arange(1, 40),
    ],
)
def test_the_integers_of_an_arange(counted: Callable[[], torch.Tensor]) -> None:
    def f(x: torch.Tensor) -> Any:
        found = counted().tolist()
        found.append(7)
        return x + sum(found), found

    compiled = windfall.compile(f)
    x = torch.ones(2)
    for _ in range(2):
        assert compiled(x)[1] == f(x)[1]
        assert torch.equal(compiled(x)[0], f(x)[0])
    assert _way(compiled) == (1, [], 0)


@pytest.mark.parametrize("kind", ["written", "of a view", "floats"])
def test_what_is_not_counted_is_read(kind: str) -> None:
    def f(x: torch.Tensor) -> Any:
        counted = torch.arange(3.0) if kind == "floats" else torch.arange(3)
        if kind == "written":
            counted.add_(1)
        elif kind == "of a view":
            counted[1:].mul_(5)
        return x + 1, counted.tolist()

    compiled = windfall.compile(f)
    assert compiled(torch.ones(2))[1] == f(torch.ones(2))[1]


class Configuration:
    def __init__(self, width: int) -> None:
        self.width = width
        self.sizes = [width, 2]
        self.inner: Any = None


def test_a_deep_copy_of_the_attributes_of_an_object_that_was_made() -> None:
    def f(x: torch.Tensor) -> Any:
        made = Configuration(3)
        made.inner = made.sizes
        copied = copy.deepcopy(made.__dict__)
        copied["sizes"].append(9)
        copied["width"] = 4
        return x * made.width, made.sizes, copied, copied["inner"] is copied["sizes"]

    compiled = windfall.compile(f)
    x = torch.ones(2)
    for _ in range(2):
        mine, theirs = compiled(x), f(x)
        assert mine[1:] == theirs[1:] and torch.equal(mine[0], theirs[0])
        assert type(mine[2]) is dict
    assert _way(compiled) == (1, [], 0)


def test_a_function_that_holds_a_class_returns_without_a_break() -> None:
    """Behind a break its variables are objects from outside: a class has weak references."""

    def inner(x: torch.Tensor, table: dict[str, type]) -> torch.Tensor:
        kind = table["one"]
        y = x + 1
        gc.isenabled()
        return y * (2 if kind is Configuration else 3)

    def f(x: torch.Tensor) -> torch.Tensor:
        return inner(x, {"one": Configuration}) - 1

    compiled = windfall.compile(f)
    x = torch.ones(2)
    assert torch.equal(compiled(x), f(x))
    assert _way(compiled)[1:] == ([1], 0)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_tuple_times_a_number(count: int) -> None:
    """Once, it is the very tuple."""

    def f(x: torch.Tensor, given: tuple[Any, ...]) -> Any:
        made = (0, x.shape[0])
        left, right, outside = count * made, made * count, count * given
        padded = torch.nn.functional.pad(x, (*left, 1, 1)[-2:])
        return padded, left, right is made, left is made, outside is given

    compiled = windfall.compile(f)
    x, given = torch.ones(2), (1, 2)
    for _ in range(2):
        assert compiled(x, given)[1:] == f(x, given)[1:]
    assert _way(compiled) == (1, [], 0)


def test_a_module_is_moved_to_where_a_tensor_is() -> None:
    def f(x: torch.Tensor) -> Any:
        return _MOVED.to(x)(x), _MOVED.to(torch.float32) is _MOVED

    compiled = windfall.compile(f)
    x = torch.ones(1, 2)
    for _ in range(2):
        mine, theirs = compiled(x), f(x)
        assert torch.allclose(mine[0], theirs[0]) and mine[1] is theirs[1]
    wide = x.double()
    assert compiled(wide)[0].dtype is f(wide)[0].dtype is torch.float64


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.scale


_MOVED = _Scaled()
