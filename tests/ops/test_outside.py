"""An op from outside: a record in a few lines is compiled; one that says nothing is as in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import windfall
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Lazy
from windfall.ops import registry
from windfall.ops.arguments import Arguments
from windfall.ops.folding import op
from windfall.ops.registry import EVERY, Op, declare
from windfall.ops.term import Term


@torch.library.custom_op("windfall_outside::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    """Its record has everything."""
    return x * factor


@scaled.register_fake
def _(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.factor = inputs[1]  # torch passes it by this name


scaled.register_autograd(lambda context, grad: (grad * context.factor, None), setup_context=_keep)


@torch.library.custom_op("windfall_outside::halves", mutates_args=())
def halves(x: torch.Tensor) -> list[torch.Tensor]:
    """Several results, a gradient, and data that it refuses."""
    if bool((x < 0).any()):
        raise ValueError("negative")
    return [x / 2, x.t().contiguous().t() / 2]


@halves.register_fake
def _(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.empty_like(x), torch.empty_like(x.t().contiguous().t())]


halves.register_autograd(lambda context, grads: (grads[0] + grads[1]) / 2)


@torch.library.custom_op("windfall_outside::count_", mutates_args=("x",))
def count_(x: torch.Tensor) -> torch.Tensor:
    """Writes its argument, answers something besides, and refuses data."""
    if bool((x < 0).any()):
        raise ValueError("negative")
    return x.add_(1).sum()


@count_.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(())


@pytest.fixture
def declared() -> Iterator[Callable[[Op], Op]]:
    """Declares records that are forgotten after the test."""
    before = dict(registry._OPS)
    yield declare
    registry._OPS.clear()
    registry._OPS.update(before)
    registry._BY_TARGET.clear()


def shape(x: TensorType, factor: float = 2.0) -> TensorType:
    return TensorType.contiguous(x.dtype, x.sizes)


def lower(builder: Builder, x: Lazy, factor: float = 2.0) -> Any:
    return builder.tensor(shape(x.type), lambda index: (Term(builder, x.at(index)) * factor).scalar)


def kernels(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The steps of a compiled function, by name."""
    report = windfall.explain(function)(*arguments).to_dict()
    assert not report["fallbacks"] and not report["break_count"]
    return [note["name"] for note in report["kernels"]]


def program(x: torch.Tensor) -> torch.Tensor:
    return scaled(x + 1, 3.0).sum(-1)


def test_a_record_in_a_few_lines_is_generated_and_fused(declared: Callable[[Op], Op]) -> None:
    x = torch.randn(8, 16)
    assert "windfall_outside.scaled.default" in kernels(program, x)
    declared(Op("windfall_outside.scaled.default", shape, lower, reads=EVERY, any_layout=True))
    assert kernels(program, x) == ["kernel0"]
    torch.testing.assert_close(windfall.compile(program)(x), program(x))


IMAGE, WEIGHT = torch.randn(2, 16, 24, 24), torch.randn(16, 16, 3, 3)

# What may be wrong with an op of which nothing is known: its results, layouts, gradients, what it
# refuses though nobody (or hardly anybody) reads it, what it writes.
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one result": lambda x: scaled(x, 0.5) + 1,
    "several": lambda x: halves(x.exp())[1] * halves(x.exp())[0],
    "a part is read": lambda x: halves(x)[0][:1] + 1,
    "one is read": lambda x: halves(x)[1],
    "nobody reads": lambda x: (halves(x), x + 1)[1],
    "written": lambda x: (lambda y: (count_(y), y))(x.detach() * 2),
    "written and dropped": lambda x: (count_(x.detach().clone()), x)[1] + 1,
    "after a convolution": lambda x: scaled(torch.conv2d(x.sum() * IMAGE, WEIGHT)),
}


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        result = function(x)
    except (ValueError, RuntimeError) as error:
        return type(error), str(error)
    tensors = result if isinstance(result, tuple) else (result,)
    grads = [
        torch.autograd.grad(one.sum(), x, retain_graph=True)[0]
        for one in tensors
        if one.requires_grad
    ]
    return [(one.detach(), one.stride()) for one in (*tensors, *grads)]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_op_that_says_nothing_is_as_in_eager(
    name: str, sign: int, grad: bool, declared: Callable[[Op], Op]
) -> None:
    for one in ("scaled", "halves", "count_"):
        declared(Op(f"windfall_outside.{one}.default"))
    x = (torch.arange(24.0).reshape(4, 6) + 1) * sign
    eager, ours = (
        outcome(one, x.clone().requires_grad_(grad))
        for one in (PROGRAMS[name], windfall.compile(PROGRAMS[name], options={"strict": True}))
    )
    if isinstance(eager, tuple):
        assert ours == eager
    else:
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-3)


# --------------------------------------------------------------------------------- by the schema


def test_rules_take_arguments_by_the_names_of_the_schema(declared: Callable[[Op], Op]) -> None:
    seen: list[dict[str, Any]] = []

    def rule(given: Arguments) -> Any:
        seen.append(dict(given.__dict__))
        return NotImplemented

    record = op("im2col.out", rule, named=True)  # an overload that nobody declares
    assert record.shape is not None
    record.shape("x", [2], dilation=[1])
    assert seen == [{"self": "x", "kernel_size": [2], "dilation": [1]}]


def test_what_is_not_passed_has_its_default() -> None:
    shape = registry.lookup("aten.avg_pool2d.default").shape
    assert shape is not None
    x = TensorType.contiguous(torch.float32, (1, 2, 6, 6))
    assert shape(x, [2, 2]) == shape(x, kernel_size=[2, 2], stride=[2, 2], ceil_mode=False)


NOTED: list[float] = []


@torch.library.custom_op("windfall_outside::note", mutates_args=())
def note(x: torch.Tensor) -> torch.Tensor:
    """Does something that no schema says."""
    NOTED.append(float(x.sum()))
    return x.clone()


@note.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


note.register_autograd(lambda context, grad: grad)


def _unread(x: torch.Tensor) -> torch.Tensor:
    note(x)
    return x * 2


def _in_order(x: torch.Tensor) -> torch.Tensor:
    note(x)
    y = x * 2
    note(y)
    return y


def _equal_calls(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        note(x)
    return note(x) + note(x)


def _alone(x: torch.Tensor) -> None:
    note(x)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("function", [_unread, _in_order, _equal_calls, _alone])
def test_it_is_called_as_often_as_eager_calls_it(function: Any, needs_grad: bool) -> None:
    def calls(function: Any) -> list[float]:
        NOTED.clear()
        for _ in range(2):
            found = function(torch.ones(3, requires_grad=needs_grad))
            if needs_grad and found is not None:
                found.sum().backward()
        return list(NOTED)

    compiled = windfall.compile(function)
    assert calls(compiled) == calls(function) != []
    assert windfall.explanation(compiled).eager == {}
