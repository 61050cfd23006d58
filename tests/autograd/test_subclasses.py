"""Tensor subclasses: flattened at the entry, one graph over plain tensors, wrapped at the exit.

Each test says how it ran: `compiled` asserts that there was one graph, no break, nothing eager and
a stage that flattened it; what is not covered is run by eager, and counted, never otherwise.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map_only

import windfall
from windfall.events import EventKind

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """An int8 weight and a scale: what quantisation libraries make of weights."""

    def __new__(cls, data: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, data.shape, strides=data.stride(), dtype=dtype
        )

    def __init__(self, data: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> None:
        self.data_, self.scale = data, scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def of(cls, weight: torch.Tensor) -> Scaled:
        scale = weight.detach().abs().amax(1, keepdim=True) / 127
        return cls((weight.detach() / scale).round().to(torch.int8), scale, weight.dtype)

    def plain(self) -> torch.Tensor:
        return self.data_.to(self.dtype) * self.scale

    def __tensor_flatten__(self) -> Any:
        return ["data_", "scale"], self.dtype

    @staticmethod
    def __tensor_unflatten__(inner: Any, dtype: Any, size: Any, stride: Any) -> Scaled:
        return Scaled(inner["data_"], inner["scale"], dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return cls(args[0].data_, args[0].scale, args[0].dtype)
        if func is aten.t.default:
            return Turned(args[0])
        plain = tree_map_only(Scaled, lambda one: one.plain(), (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def Turned(weight: Scaled) -> torch.Tensor:
    return weight.plain().t()


class Tagged(torch.Tensor):
    """One tensor with a number that changes what is computed; `factor` stands in the context."""

    def __new__(cls, inner: torch.Tensor, factor: float) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype
        )

    def __init__(self, inner: torch.Tensor, factor: float) -> None:
        self.inner, self.factor = inner, factor

    def inside(self) -> torch.Tensor:
        return self.inner

    def __tensor_flatten__(self) -> Any:
        return ["inner"], (self.factor,)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Tagged:
        return Tagged(inner["inner"], context[0])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        (factor,) = {one.factor for one in args if isinstance(one, Tagged)} or {1.0}
        plain = tree_map_only(Tagged, lambda one: one.inner, (args, kwargs or {}))
        found = func(*plain[0], **plain[1])
        if func is aten.mul.Tensor:
            found = found * factor
        return tree_map_only(torch.Tensor, lambda one: cls(one, factor), found)


class Counting(Tagged):
    """A class whose methods have an effect."""

    calls: int = 0

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Counting.calls += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


def leaves(value: Any) -> list[Any]:
    """Classes, plain numbers and leaves, in order, of tensors inside of tensors and sequences."""
    if isinstance(value, tuple | list):
        return [one for item in value for one in leaves(item)]
    if hasattr(value, "__tensor_flatten__"):
        names, context = value.__tensor_flatten__()
        parts = [one for name in names for one in leaves(getattr(value, name))]
        return [type(value), context, tuple(value.shape), tuple(value.stride()), *parts]
    return [value]


def same(one: Any, other: Any) -> None:
    """The same classes, contexts, metadata and numbers."""
    mine, theirs = leaves(one), leaves(other)
    assert len(mine) == len(theirs)
    for left, right in zip(mine, theirs, strict=True):
        assert type(left) is type(right)
        if isinstance(left, torch.Tensor):
            assert (left.dtype, left.stride()) == (right.dtype, right.stride())
            torch.testing.assert_close(left, right)
        else:
            assert left == right


def two(*sizes: int, grad: bool = False) -> TwoTensor:
    return TwoTensor(torch.randn(sizes), torch.randn(sizes)).requires_grad_(grad)


def again(value: Any) -> Any:
    """A tensor as it is, apart from the first."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    if isinstance(value, Scaled):
        return Scaled(value.data_.clone(), value.scale.clone(), value.dtype)
    if isinstance(value, Tagged):
        return type(value)(again(value.inner), value.factor).requires_grad_(value.requires_grad)
    if isinstance(value, TwoTensor):
        return TwoTensor(again(value.a), again(value.b)).requires_grad_(value.requires_grad)
    return value.detach().clone().requires_grad_(value.requires_grad)


def flattened(explained: Any) -> bool:
    return any(event.kind is EventKind.FLATTEN for event in explained.events)


def compiled(function: Any, *args: Any) -> Any:
    """The result of compiled code; it ran natively, in one graph over plain tensors."""
    explained = windfall.explain(function)(*args)
    assert not explained.breaks and not explained.eager, str(explained)
    assert len(explained.graphs) == 1 and flattened(explained)
    assert all(note.kind != "python call" for note in explained.kernels()), str(explained)
    return explained.result


def backward(results: Any) -> None:
    found = results if isinstance(results, tuple) else (results,)
    for one in found:
        if one.requires_grad:
            one.sum().backward(retain_graph=True)


PROGRAMS = {
    "pointwise": (lambda a: (a * 2 + 1).sin(), [two(3, 4)]),
    "gradient": (lambda a: (a * 2).sin() * a, [two(3, 4, grad=True)]),
    "with plain": (lambda a, x: a * x.cos(), [two(3, 4), torch.randn(3, 4)]),
    "plain input, subclass gradient": (
        lambda a, x: a * x.cos(),
        [two(3, 4), torch.randn(3, 4, requires_grad=True)],
    ),
    "both": (
        lambda a, x: a.exp() * x.cos(),
        [two(3, 4, grad=True), torch.randn(3, 4, requires_grad=True)],
    ),
    "matmul": (lambda a, x: x @ a, [two(4, 5, grad=True), torch.randn(3, 4)]),
    "nested": (lambda a: (a * 3).tanh(), [TwoTensor(two(2, 3), two(2, 3)).requires_grad_()]),
    "in a tag": (lambda a: (a * 3).tanh(), [Tagged(two(2, 3), 2.0).requires_grad_()]),
    "sibling": (lambda a, x: (a * x, x * 2), [two(3, grad=True), torch.randn(3)]),
    "reduction": (lambda a: a.sum(1).relu(), [two(3, 4, grad=True)]),
    "views inside": (lambda a: (a.t().reshape(2, 6) * 2).view(12) + 1, [two(3, 4, grad=True)]),
    "in place inside": (lambda a: (a * 2).add_(1).relu_(), [two(3, 4)]),
    "context": (lambda a: a * 2, [Tagged(torch.randn(3), 3.0).requires_grad_()]),
    "quantised": (
        lambda w, x: torch.nn.functional.linear(x, w).relu(),
        [Scaled.of(torch.randn(4, 6)), torch.randn(2, 6, requires_grad=True)],
    ),
    "same result twice": (lambda a: (y := a * 2, y), [two(3, grad=True)]),
    "input returned": (lambda a: (a, a * 2), [two(3, grad=True)]),
    "sizes": (lambda a: a * a.shape[0] + a.size(1) + a.dim(), [two(3, 4)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    function, args = PROGRAMS[name]
    mine, theirs = [again(one) for one in args], [again(one) for one in args]
    expected = function(*theirs)
    result = compiled(function, *mine)
    same(result, expected)
    backward(expected)
    backward(result)
    for one, other in zip(mine, theirs, strict=True):
        if one.requires_grad:
            same(one.grad, other.grad)


def test_what_it_is_made_of_can_be_read() -> None:
    function = lambda a: a.inside() * 2 + a.inner * a.factor  # noqa: E731
    one = Tagged(torch.randn(3), 3.0)
    explained = windfall.explain(function)(one)
    assert not explained.breaks and not explained.eager and len(explained.graphs) == 1
    same(explained.result, function(one))


def test_inner_tensors_with_other_strides() -> None:
    """A class may hold tensors that lie in memory in different ways."""

    def made() -> Any:
        torch.manual_seed(0)
        return Pair(torch.randn(3, 4), torch.randn(4, 3).t()).requires_grad_()

    one, other = made(), made()
    function = lambda pair: (pair * 2).sin()  # noqa: E731
    result, expected = compiled(function, one), function(other)
    same(result, expected)
    backward(result)
    backward(expected)
    same(one.grad, other.grad)


class Pair(TwoTensor):
    """Two tensors of one shape, however they lie."""

    def __new__(cls, a: Any, b: Any, outer_size: Any = None, outer_stride: Any = None) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, a.shape, strides=a.stride(), dtype=a.dtype
        )

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return Pair(inner["a"], inner["b"])


class Weighted(nn.Module):
    """A module whose parameter is a subclass."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=weight.dtype.is_floating_point)
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> Any:
        assert isinstance(self.weight, nn.Parameter)
        return torch.nn.functional.linear(x, self.weight, self.bias).tanh()


def test_parameters_of_modules() -> None:
    module = Weighted(two(4, 3))
    other = copy.deepcopy(module)
    other.weight = nn.Parameter(again(module.weight.detach()))
    x = torch.randn(2, 3)
    result, expected = compiled(module, x), other(x)
    same(result, expected)
    backward(result)
    backward(expected)
    same(module.weight.grad, other.weight.grad)
    same(module.bias.grad, other.bias.grad)


def test_missing_tangents_of_a_subclass() -> None:
    function = lambda a, x: (a * 2, a.sin() * x, x * 3)  # noqa: E731
    args = [two(3, grad=True), torch.randn(3, requires_grad=True)]
    for wanted in ((0,), (1,), (0, 1)):
        mine, theirs = [again(one) for one in args], [again(one) for one in args]
        explained = windfall.explain(function)(*mine)
        assert list(explained.eager) == ["a graph, op by op"] and "W0217" in str(explained)
        result, expected = explained.result, function(*theirs)
        for found in (result, expected):
            for index in wanted:
                found[index].sum().backward(retain_graph=True)
        for one, other in zip(mine, theirs, strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                same(one.grad, other.grad)


@pytest.mark.parametrize("wanted", [0, 1])
def test_35_a_result_whose_sibling_is_not_used(wanted: int) -> None:
    function = lambda a, x: (a * 2, a.sin() + x)  # noqa: E731
    args = [two(3, grad=True), two(3)]
    mine, theirs = [again(one) for one in args], [again(one) for one in args]
    explained = windfall.explain(function)(*mine)
    assert len(explained.graphs) == 1 and not explained.eager and not explained.breaks
    for found in (explained.result, function(*theirs)):
        found[wanted].sum().backward()
    same(mine[0].grad, theirs[0].grad)


def test_a_gradient_that_is_made_in_two_ways_is_left_to_eager() -> None:
    """`x` gets a plain gradient from one result and a subclass's from the other."""
    function = lambda a, x: (a * x, x * 3)  # noqa: E731
    args = [two(3), torch.randn(3, requires_grad=True)]
    for wanted in ((0,), (1,)):
        mine, theirs = [again(one) for one in args], [again(one) for one in args]
        explained = windfall.explain(function)(*mine)
        assert list(explained.eager) == ["a graph, op by op"] and "W0217" in str(explained)
        result, expected = explained.result, function(*theirs)
        for index in wanted:
            result[index].sum().backward()
            expected[index].sum().backward()
        same(mine[1].grad, theirs[1].grad)


def test_double_backward() -> None:
    function = lambda a: (a * a).sin()  # noqa: E731
    one, other = two(3, grad=True), None
    other = again(one)
    found = []
    for tensor, call in ((one, windfall.compile(function)), (other, function)):
        (first,) = torch.autograd.grad(call(tensor).sum(), tensor, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), tensor)
        found.append((first.detach(), second))
    same(*found)


def test_a_tangent_of_another_class_is_an_error() -> None:
    """Eager would make another gradient of it; what was compiled cannot."""
    one = two(3, grad=True)
    result = windfall.compile(lambda a: a * 2)(one)
    with pytest.raises(RuntimeError, match="not made as the tensor is"):
        result.backward(torch.ones(3))


def test_writes_before_backward_are_seen() -> None:
    for call in (windfall.compile(lambda a: a * a), lambda a: a * a):
        one = two(3, grad=True)
        result = call(one)
        with torch.no_grad():
            one.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_context_and_parts_are_guarded() -> None:
    function = windfall.compile(lambda a: a * 2)
    for one in (
        Tagged(torch.ones(3), 3.0),
        Tagged(torch.ones(3), 5.0),
        Tagged(torch.ones(3, dtype=torch.float64), 5.0),
        Tagged(two(3), 5.0),
        Tagged(torch.ones(3), 3.0),
        torch.ones(3),
    ):
        same(function(one), one * 2)


def test_an_attribute_that_changes_is_seen() -> None:
    function = windfall.compile(lambda a: a * 2)
    one = Tagged(torch.ones(3), 3.0)
    same(function(one), one * 2)
    one.factor = 7.0
    same(function(one), one * 2)
    one.inner = torch.ones(3) * 4
    same(function(one), one * 2)


FACTOR = 2.0


class Global(Tagged):
    """A class whose methods read a global."""

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Tagged:
        return Global(inner["inner"], context[0])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(args[0].inner, *args[1:]) * FACTOR, 1.0)


def test_what_its_methods_read_is_guarded() -> None:
    global FACTOR
    function = windfall.compile(lambda a: a * 2)
    one = Global(torch.ones(3), 3.0)
    same(function(one), one * 2)
    FACTOR = 5.0
    try:
        same(function(one), one * 2)
    finally:
        FACTOR = 2.0


TABLE: dict[Any, Any] = {}


class Table(Global):
    """A class that finds what to do in a table, as quantisation libraries do."""

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Tagged:
        return Table(inner["inner"], context[0])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in TABLE:
            return TABLE[func](func, types, args, kwargs or {})
        return NotImplemented


def implements(func: Any) -> Any:
    def register(function: Any) -> Any:
        TABLE[func] = function
        return function

    return register


@implements(aten.mul.Tensor)
def _mul(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    return Table(args[0].inner * args[1] + 1, 1.0)


def test_tables_are_guarded() -> None:
    function = lambda a: a * 2  # noqa: E731
    one = Table(torch.ones(3), 3.0)
    same(compiled(function, one), one * 2)
    kept = windfall.compile(function)
    same(kept(one), one * 2)
    before = TABLE[aten.mul.Tensor]
    TABLE[aten.mul.Tensor] = lambda func, types, args, kwargs: Table(args[0].inner * 9, 1.0)
    try:
        same(kept(one), one * 2)
    finally:
        TABLE[aten.mul.Tensor] = before


def test_methods_with_effects_are_left_to_eager() -> None:
    one = Counting(torch.ones(3), 3.0)
    Counting.calls = 0
    _ = one * 2
    eager = Counting.calls
    Counting.calls = 0
    explained = windfall.explain(lambda a: a * 2)(one)
    assert Counting.calls == eager
    assert [found.number for found in explained.breaks] == [11] and not flattened(explained)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a.mul_(2),
        lambda a: a.t_(),
        lambda a: a.t(),
        lambda a: (a * 2).t_() + 1,
        lambda a: a.detach(),
        lambda a: (y := a * 2, y.t()),
        lambda a: (y := a * 2, y + 1),
        lambda a: a.zero_().add_(1),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_writes_and_views_are_right(function: Any, grad: bool) -> None:
    """Whoever runs them. In a thread of its own: torch's own help for subclasses leaves a dispatch
    key of the thread included after `t_`, in eager too."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(writes_and_views, function, grad).result()


def writes_and_views(function: Any, grad: bool) -> None:
    one = two(3, 4)
    mine, theirs = (
        again(one).requires_grad_(grad),
        again(one).requires_grad_(grad),
    )
    errors, results = [], []
    for call, given in ((windfall.compile(function), mine), (function, theirs)):
        try:
            results.append(call(given))
            errors.append("")
        except RuntimeError as error:
            errors.append(str(error))
    assert errors[0] == errors[1]
    same(mine.detach(), theirs.detach())
    assert mine._version == theirs._version and mine.a._version == theirs.a._version
    if results:
        same(*results)
        for found in results:
            backward(found)
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None:
            same(mine.grad, theirs.grad)


def test_plain_input_that_is_a_part_is_written() -> None:
    def function(a: Any, x: torch.Tensor) -> Any:
        x.add_(1)
        return a * 2

    found = []
    for call in (windfall.compile(function), function):
        torch.manual_seed(0)
        one = two(3)
        found.append(call(one, one.a))
        found.append(one)
    same(found[0], found[2])
    same(found[1], found[3])


def test_jagged_and_masked_tensors_are_eagers() -> None:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    explained = windfall.explain(lambda a: a * 2 + 1)(jagged)
    assert explained.eager and not flattened(explained)
    for one, other in zip(explained.result.unbind(), parts, strict=True):
        torch.testing.assert_close(one, other * 2 + 1)


def test_sizes_that_change() -> None:
    function = windfall.compile(lambda a, x: a * x)
    for size in (3, 4, 5, 6):
        one, x = two(size), torch.randn(size)
        same(function(one, x), one * x)
