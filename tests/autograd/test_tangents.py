"""Every kind of tangent, by every way to give it: eager's answer, and how it was found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall
from windfall.events import Eager

Tangent = Callable[[torch.Tensor], torch.Tensor]
NATIVE: dict[str, int] = {}
OP_BY_OP = {str(Eager.BACKWARD): 1}


class Tagged(torch.Tensor):
    """A subclass with nothing of its own."""


class Wrapped(torch.Tensor):
    """A subclass without memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def inner(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapped) else value

        found = func(*torch.utils._pytree.tree_map(inner, args), **(kwargs or {}))
        return Wrapped(found) if isinstance(found, torch.Tensor) else found


def negative(t: torch.Tensor) -> torch.Tensor:
    if t.is_complex():
        return torch._neg_view(t)
    return torch.complex(torch.zeros_like(t), -t).conj().imag


def apart(t: torch.Tensor) -> torch.Tensor:
    """Every second column of something wider."""
    return torch.stack((t, torch.full_like(t, 99.0)), -1).flatten(-2)[..., ::2]


TANGENTS: dict[str, tuple[Tangent, dict[str, int]]] = {
    "dense": (lambda t: t.clone(), NATIVE),
    "transposed": (lambda t: t.t().contiguous().t(), NATIVE),
    "expanded": (lambda t: t.sum().expand(t.shape), NATIVE),
    "apart": (apart, NATIVE),
    "inference": (torch.inference_mode()(lambda t: t.clone()), NATIVE),
    "negative": (negative, NATIVE),
    "negative apart": (lambda t: negative(apart(t)), NATIVE),
    "sparse": (lambda t: t.to_sparse(), OP_BY_OP),
    "sparse rows": (lambda t: t.to_sparse_csr(), OP_BY_OP),
    "zero": (lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype), OP_BY_OP),
    "mkldnn": (lambda t: t.to_mkldnn(), OP_BY_OP),
    "subclass": (lambda t: t.clone().as_subclass(Tagged), OP_BY_OP),
    "wrapper": (lambda t: Wrapped(t.clone()), OP_BY_OP),
    "other dtype": (lambda t: t.to(torch.complex128 if t.is_complex() else torch.float64), NATIVE),
}
COMPLEX: dict[str, tuple[Tangent, dict[str, int]]] = {
    "conjugate": (lambda t: t.conj(), NATIVE),
    "conjugate apart": (lambda t: apart(t).conj(), NATIVE),
    "both": (lambda t: torch._neg_view(t.conj()), NATIVE),
}


def given(y: torch.Tensor, x: torch.Tensor, tangent: torch.Tensor) -> Any:
    return torch.autograd.grad(y, x, tangent)[0]


def accumulated(y: torch.Tensor, x: torch.Tensor, tangent: torch.Tensor) -> Any:
    y.backward(tangent)
    return x.grad


def of_a_node(y: torch.Tensor, x: torch.Tensor, tangent: torch.Tensor) -> Any:
    """A user's node comes after ours, and its gradient is the tangent."""

    class After(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, y: torch.Tensor) -> torch.Tensor:
            return y.sum()

        @staticmethod
        def backward(context: Any, g: torch.Tensor) -> torch.Tensor:
            return tangent

    return torch.autograd.grad(After.apply(y), x)[0]


def by_a_hook(y: torch.Tensor, x: torch.Tensor, tangent: torch.Tensor) -> Any:
    """What autograd does not look at at all."""
    y.grad_fn.register_prehook(lambda tangents: (tangent, *tangents[1:]))
    return torch.autograd.grad(y, x, torch.zeros_like(y))[0]


WAYS = (given, accumulated, of_a_node, by_a_hook)


def outcome(function: Any, way: Any, x: torch.Tensor, tangent: torch.Tensor) -> Any:
    """The gradient, or the error that there is instead."""
    x = x.clone().requires_grad_()
    y = function(x)
    try:
        return way(y[0] if isinstance(y, tuple) else y, x, tangent)
    except (RuntimeError, NotImplementedError) as error:
        return type(error)


def same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, Wrapped):
        found, wanted = found.inner, wanted.inner
    if isinstance(wanted, torch.Tensor):
        assert found.layout is wanted.layout
        torch.testing.assert_close(found, wanted, check_stride=False)
    else:
        assert found is wanted


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "computes": lambda x: x * x,
    "saves nothing": lambda x: x * 2,
    "passes it on": lambda x: x + 1,
    "two results": lambda x: (x * x, x.sum()),
}


def check(
    function: Any, way: Any, dtype: torch.dtype, tangent: Tangent, how: Any, **options: Any
) -> None:
    """As eager: asked first with this tangent, and after a variant for its strides was compiled."""
    torch.manual_seed(4)
    x, t = torch.randn(3, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    given = tangent(t)
    wanted = outcome(function, way, x, given)
    for before in ([], [t, t.t().contiguous().t(), t.sum().expand(t.shape), apart(t)]):
        compiled = windfall.compile(function, **options)
        for one in before:
            outcome(compiled, way, x, one)
        same(outcome(compiled, way, x, given), wanted)
        if not isinstance(wanted, type):
            # What is only passed on needs no code, if that is known already.
            passed = before and function is FUNCTIONS["passes it on"]
            assert windfall.explanation(compiled).eager in ((how, NATIVE) if passed else (how,))


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR")
        yield


@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", TANGENTS)
def test_real(kind: str, function: str, way: Any) -> None:
    tangent, how = TANGENTS[kind]
    check(FUNCTIONS[function], way, torch.float32, tangent, how)


@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", ["dense", "apart", "negative", "negative apart", *COMPLEX])
def test_complex(kind: str, function: str, way: Any) -> None:
    tangent, how = {**TANGENTS, **COMPLEX}[kind]
    check(FUNCTIONS[function], way, torch.complex64, tangent, how)


@pytest.mark.parametrize("options", [{"options": {"native": False}}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("kind", TANGENTS)
def test_programs_in_python_and_sizes_that_vary(kind: str, options: Any) -> None:
    tangent, how = TANGENTS[kind]
    check(FUNCTIONS["computes"], given, torch.float32, tangent, how, **options)


def rows_of_identity(y: torch.Tensor, x: torch.Tensor) -> Any:
    rows = torch.eye(y.numel()).view(-1, *y.shape)
    return torch.autograd.grad(y, x, rows, is_grads_batched=True)[0]


def mapped(y: torch.Tensor, x: torch.Tensor) -> Any:
    rows = torch.eye(y.numel()).view(-1, *y.shape)
    one = lambda row: torch.autograd.grad(y, x, row, retain_graph=True)[0]  # noqa: E731
    return torch.func.vmap(one)(rows)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("way", [rows_of_identity, mapped])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_batched(function: str, way: Any, first: bool) -> None:
    eager = FUNCTIONS[function]
    compiled, x, t = windfall.compile(eager), torch.randn(3, 4), torch.randn(3, 4)
    if not first:
        outcome(compiled, given, x, t)
    found, wanted = (outcome(one, lambda y, x, _: way(y, x), x, t) for one in (compiled, eager))
    same(found, wanted)
    passed = not first and function == "passes it on"
    assert windfall.explanation(compiled).eager == (NATIVE if passed else OP_BY_OP)


def test_jacobian_by_vmap() -> None:
    function = FUNCTIONS["computes"]
    compiled, x = windfall.compile(function), torch.randn(3)
    jacobian = torch.autograd.functional.jacobian
    same(jacobian(compiled, x, vectorize=True), jacobian(function, x, vectorize=True))


def test_rows_of_an_embedding() -> None:
    index, weight = torch.tensor([0, 2, 2]), torch.randn(4, 3, requires_grad=True)

    def run(function: Any) -> Any:
        rows = F.embedding(index, function(weight), sparse=True)
        return torch.autograd.grad(rows.sum(), weight)[0]

    compiled = windfall.compile(lambda w: w * 2)
    for _ in range(2):
        found, wanted = run(compiled), run(lambda w: w * 2)
        assert found.is_sparse
        assert torch.equal(found.to_dense(), wanted.to_dense())
    assert windfall.explanation(compiled).eager == {str(Eager.BACKWARD): 2}


UNPACKED: dict[str, Tangent] = {
    "transposed": lambda t: t.t().contiguous().t(),
    "apart": apart,
    "negative": negative,
    "other dtype": lambda t: t.double(),
    "sparse": lambda t: t.to_sparse(),
    "zero": lambda t: torch._efficientzerotensor(t.shape),
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("kind", UNPACKED)
def test_what_hooks_unpack_is_checked_as_tangents_are(kind: str, native: bool) -> None:
    """Hooks answer what they like, and that is what eager multiplies by."""
    function = FUNCTIONS["computes"]
    compiled = windfall.compile(function, options={"native": native})

    def run(function: Any) -> Any:
        x = torch.arange(12.0).view(3, 4).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda one: one, UNPACKED[kind]):
            y = function(x)
        return torch.autograd.grad(y, x, torch.ones(3, 4))[0]

    same(run(compiled), run(function))
    assert windfall.explanation(compiled).eager == OP_BY_OP
