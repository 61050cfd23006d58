"""What users put in the place of torch's own operators, methods, attributes and functions, before
and after a capture: the entry that was made without the patch never answers for it, and answers
again once the patch is gone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import windfall

Patch = pytest.MonkeyPatch


def _tripled(self: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.mul(self, 3.0)


def _filled(self: torch.Tensor, key: Any, value: Any) -> None:
    self.fill_(7.0)


def _write(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    copy[0] = 1.0
    return copy


def _in_place(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    copy += 1.0
    copy *= 2.0
    return copy


def _whole(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int64)


OPERATORS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "add": ("__add__", lambda x: x + 1),
    "sub": ("__sub__", lambda x: x - x.detach()),
    "mul": ("__mul__", lambda x: x * 2),
    "truediv": ("__truediv__", lambda x: x / 2),
    "floordiv": ("__floordiv__", lambda x: x.detach() // 2),
    "mod": ("__mod__", lambda x: x % 2),
    "pow": ("__pow__", lambda x: x**2),
    "matmul": ("__matmul__", lambda x: x @ x.detach()),
    "radd": ("__radd__", lambda x: 1 + x),
    "rsub": ("__rsub__", lambda x: 1 - x),
    "rmul": ("__rmul__", lambda x: 2 * x),
    "rtruediv": ("__rtruediv__", lambda x: 2 / x),
    "rpow": ("__rpow__", lambda x: 2**x),
    "and": ("__and__", lambda x: _whole(x) & 3),
    "ror": ("__ror__", lambda x: 3 | _whole(x)),
    "lshift": ("__lshift__", lambda x: _whole(x) << 1),
    "iadd": ("__iadd__", _in_place),
    "imul": ("__imul__", _in_place),
    "neg": ("__neg__", lambda x: -x),
    "invert": ("__invert__", lambda x: ~_whole(x)),
    "abs": ("__abs__", lambda x: abs(x)),
    "eq": ("__eq__", lambda x: x == 2),
    "lt": ("__lt__", lambda x: x < 2),
    "mirrored": ("__gt__", lambda x: 2 < x),  # noqa: SIM300
    "getitem": ("__getitem__", lambda x: x[0]),
    "slice": ("__getitem__", lambda x: x[1:]),
    "iter": ("__iter__", lambda x: torch.stack(list(x))),
    "setitem": ("__setitem__", _write),
    "method": ("sigmoid", lambda x: x.sigmoid()),
}
REPLACED: dict[str, Any] = {
    "__setitem__": _filled,
    "__iter__": lambda self: iter([torch.zeros(1)] * 3),
}


def answer(function: Callable[..., Any], training: bool) -> list[torch.Tensor]:
    """What a program answers, with its gradient."""
    x = (torch.arange(9.0).view(3, 3) / 4 + 0.5).requires_grad_(training)
    found = function(x)
    if not found.requires_grad:
        return [found]
    return [found, *torch.autograd.grad(torch.sum(found), x, allow_unused=True)]


def agrees(compiled: Any, function: Callable[..., Any], training: bool) -> None:
    for found, expected in zip(answer(compiled, training), answer(function, training), strict=True):
        if found is None or expected is None:
            assert found is expected
        else:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_is_patched_after_a_capture(
    name: str, training: bool, monkeypatch: Patch
) -> None:
    special, function = OPERATORS[name]
    compiled = windfall.compile(function)
    agrees(compiled, function, training)
    before = answer(function, training)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, special, REPLACED.get(special, _tripled), raising=False)
        patched = answer(function, training)
        found = answer(compiled, training)
        agrees(windfall.compile(function), function, training)
    for one, other in zip(found, patched, strict=True):
        assert one is other or one.eq(other).all(), special
    assert patched[0].shape != before[0].shape or not patched[0].eq(before[0]).all()
    agrees(compiled, function, training)


def test_entries_from_before_a_patch_are_used_after_it(monkeypatch: Patch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = windfall.compile(program)
    x = torch.ones(3)
    compiled(x)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "__add__", _tripled)
            assert compiled(x).tolist() == [3.0] * 3
        assert compiled(x).tolist() == [2.0] * 3
    entries = [one for found in compiled.entries().values() for one in found]
    assert len(entries) <= 3, "the first entry, the break, and what follows it"


def test_why_a_patched_operator_missed(monkeypatch: Patch) -> None:
    from windfall.frontend.guard_failures import why_missed

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) * 2

    compiled = windfall.compile(program)
    compiled(torch.ones(3))
    (entry,) = (one for found in compiled.entries().values() for one in found)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__mul__", _tripled)
        text = why_missed(entry.segment.capture.guards, (torch.ones(3),))
    assert "__add__, __mul__" in text and "got another __mul__" in text


def test_the_class_of_a_parameter_is_asked_too(monkeypatch: Patch) -> None:
    weight = nn.Parameter(torch.full((3,), 2.0))
    programs: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        ("__mul__", lambda x: weight * x),
        ("__rmul__", lambda x: x * weight),  # a subclass on the right is asked first
        ("__gt__", lambda x: x < weight),
        ("__neg__", lambda x: -weight),
    ]
    for name, program in programs:
        compiled = windfall.compile(program)
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x), program(x))
        with monkeypatch.context() as patch:
            patch.setattr(nn.Parameter, name, lambda self, *other: torch.zeros(5), raising=False)
            assert program(x).shape == compiled(x).shape == (5,), name
        torch.testing.assert_close(compiled(x), program(x))


class Logged(torch.Tensor):
    """A tensor with operators of its own."""

    def __add__(self, other: Any) -> Any:
        return torch.mul(self.as_subclass(torch.Tensor), 10.0)

    def __radd__(self, other: Any) -> Any:
        return torch.mul(self.as_subclass(torch.Tensor), 20.0)


def test_a_subclass_with_operators_of_its_own() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    compiled = windfall.compile(program)
    plain, logged = torch.ones(3), torch.ones(3).as_subclass(Logged)
    for one, other in ((plain, plain), (logged, plain), (plain, logged), (plain, plain)):
        torch.testing.assert_close(compiled(one, other), program(one, other))


def test_attributes_and_builtin_patches(monkeypatch: Patch) -> None:
    programs: list[tuple[str, Any, Callable[[torch.Tensor], Any]]] = [
        ("T", property(lambda self: torch.zeros(7)), lambda x: x.T),
        ("shape", property(lambda self: (4, 5)), lambda x: torch.ones(x.shape)),
        ("__len__", lambda self: 12, lambda x: torch.ones(len(x))),
        ("__add__", torch.Tensor.__sub__, lambda x: x + 1),
        ("sum", torch.Tensor.prod, lambda x: x.sum()),
    ]
    x = torch.arange(6.0).view(2, 3) + 1
    for name, replaced, program in programs:
        compiled = windfall.compile(program)
        torch.testing.assert_close(compiled(x), program(x))
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, name, replaced, raising=False)
            expected, found = program(x), compiled(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(compiled(x), program(x))


def test_a_patch_that_calls_what_it_replaces(monkeypatch: Patch) -> None:
    """In a graph, a method has a name only: that of the patch."""
    original, wrapped = torch.Tensor.relu, torch.Tensor.__rsub__

    @functools.wraps(wrapped)
    def reflected(self: torch.Tensor, other: Any) -> torch.Tensor:
        return wrapped(self, other) * 5

    x = torch.tensor([-1.0, 2.0])
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "relu", lambda self: original(self) * 2)
        patch.setattr(torch.Tensor, "__rsub__", reflected)
        assert windfall.compile(lambda x: x.relu())(x).tolist() == [0.0, 4.0]
        assert windfall.compile(lambda x: 1 - x)(x).tolist() == [10.0, -5.0]


def test_functions_of_torch_and_calls_of_modules(monkeypatch: Patch) -> None:
    relu, linear = nn.ReLU(), nn.Linear(3, 3)
    model = nn.Sequential(linear, relu)
    call, impl, forward = nn.Module.__call__, nn.Module._call_impl, nn.Linear.forward
    add, functional = torch.add, F.relu
    patches: list[tuple[Any, str, Any, Callable[..., Any]]] = [
        (torch, "add", lambda *a: add(*a) * 3, lambda x: torch.add(x, 1)),
        (F, "relu", lambda x, inplace=False: functional(x) * 3, lambda x: F.relu(x) + relu(x)),
        (nn.Module, "__call__", lambda self, *a: call(self, *a) * 3, model),
        (nn.Module, "_call_impl", lambda self, *a: impl(self, *a) * 3, model),
        (nn.Linear, "forward", lambda self, x: forward(self, x) * 3, model),
    ]
    x = torch.arange(3.0)
    for owner, name, replaced, program in patches:
        compiled = windfall.compile(program)
        torch.testing.assert_close(compiled(x), program(x))
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, replaced)
            torch.testing.assert_close(compiled(x), program(x))
        torch.testing.assert_close(compiled(x), program(x))
