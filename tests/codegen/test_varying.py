"""Sizes that vary: one program, right at every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.codegen.harness import run
from tests.codegen.varying import SIZES, Varying, agree
from windfall.codegen import build, emit, lower, plan, schedule
from windfall.errors import InternalError, Specialise
from windfall.ir.parse import parse_schedule
from windfall.ir.spec import verify_schedule
from windfall.ir.symint import Expression
from windfall.ir.text import schedule_text

aten = torch.ops.aten
Node = torch.fx.Node
Case = Callable[[], tuple[Varying, tuple[Node, ...]]]
CASES: dict[str, tuple[Case, dict[str, Any]]] = {}


def case(**options: Any) -> Callable[[Callable[[Varying], Any]], None]:
    """Add a graph: a function of a `Varying` that answers its results."""
    hints = options.pop("hints", {"s0": 8})
    extra = options.pop("extra", None)

    def add(function: Callable[[Varying], Any]) -> None:
        def made() -> tuple[Varying, tuple[Node, ...]]:
            trace = Varying(hints, extra)
            results = function(trace)
            return trace, results if isinstance(results, tuple) else (results,)

        CASES[function.__name__] = (made, options)

    return add


TWO = {"s0": 8, "s1": 5}
THREE = {"s0": 4, "s1": 6, "s2": 5}


def one(t: Varying) -> Any:
    return next(iter(t.symbols.values()))


def all_of(t: Varying) -> Any:
    return tuple(t.symbols.values())


def integers(low: int, high: Any) -> Any:
    """A maker of indices below `high`, a number or the name of a symbol."""

    def make(values: Any, *shape: int) -> torch.Tensor:
        return torch.randint(low, values[high] if isinstance(high, str) else high, shape)

    return make


# ------------------------------------------------------------------------------------ pointwise


@case(sizes=(*SIZES, 1000, 1 << 20))
def pointwise_chain(t: Varying) -> Any:
    x, y = t.input([one(t)]), t.input([one(t)])
    return t(aten.gelu.default, t(aten.add.Tensor, t(aten.mul.Tensor, x, y), x))


@case(hints=TWO)
def broadcasting(t: Varying) -> Any:
    s0, s1 = all_of(t)
    a, b, c = t.input([s0, s1]), t.input([s1]), t.input([s0, 1])
    return t(aten.mul.Tensor, t(aten.add.Tensor, a, b), c), t(aten.sub.Tensor, b, c)


@case(hints=TWO)
def transposed_operand(t: Varying) -> Any:
    s0, s1 = all_of(t)
    a, b = t.input([s0, s1]), t.input([s1, s0])
    return t(aten.add.Tensor, a, t(aten.t.default, b))


@case(hints=TWO)
def transposed_copy(t: Varying) -> Any:
    s0, s1 = all_of(t)
    turned = t(aten.t.default, t.input([s0, s1]))
    return t(aten.clone.default, turned, memory_format=torch.contiguous_format)


@case()
def size_as_number(t: Varying) -> Any:
    s = one(t)
    x = t.input([s, 3])
    return t(aten.mul.Tensor, x, s), t(aten.add.Tensor, x, 2 * s + 1), t(aten.div.Tensor, x, s)


@case()
def size_as_filling(t: Varying) -> Any:
    s = one(t)
    x, flags = t.input([s, 3]), t.input([s, 3], dtype=torch.bool)
    places = t(aten.arange.default, s, pin_memory=False)
    return (
        t(aten.scalar_tensor.default, s - 1, dtype=torch.int64),
        t(aten.full.default, [2, s], s + 1, dtype=torch.float32, pin_memory=False),
        t(aten.fill.Scalar, places, s - 2),
        t(aten.fill.Scalar, flags, s - 2),  # false where the size is 2
        t(aten.constant_pad_nd.default, places, [1, 0], s),
        t(aten.lt.Scalar, places, s - 1),
        t(aten.pow.Tensor_Scalar, x, s - s // 2 * 2 + 1),
        t(aten.clamp.default, places, 1, s - 2),
    )


@case(hints=TWO)
def masks(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0, s1])
    keep = t(aten.gt.Scalar, x, 0)
    return t(aten.where.self, keep, x, t(aten.neg.default, x)), t(
        aten.masked_fill.Scalar, x, keep, -1.0
    )


@case(hints=TWO)
def triangles(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0, s1])
    return t(aten.tril.default, x), t(aten.triu.default, x, 1)


@case(hints=TWO)
def half_precision(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0, s1], dtype=torch.bfloat16)
    return t(aten.mul.Tensor, t(aten.add.Tensor, x, 1), 2), t(aten.sum.dim_IntList, x, [1])


# ----------------------------------------------------------------------------------- reductions


@case(hints=TWO)
def reductions_inner(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.sum.dim_IntList, x, [1]), t(aten.amax.default, x, [-1], True)


@case(hints=TWO)
def reductions_outer(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.sum.dim_IntList, x, [0]), t(aten.mean.dim, x, [0], True)


@case(hints=TWO)
def reductions_both(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.sum.default, x), t(aten.mean.default, x), t(aten.amin.default, x)


@case(hints=THREE)
def reductions_middle(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.sum.dim_IntList, x, [1]), t(aten.mean.dim, x, [0, 2])


@case(hints={"s0": 1 << 20}, sizes=(2, 3, 100, 1000, 65536 * 5 + 3, 1 << 20), tolerance=1e-4)
def long_reduction(t: Varying) -> Any:
    x = t.input([one(t)])
    return (
        t(aten.sum.default, x),
        t(aten.amax.default, x),
        t(aten.mean.default, t(aten.mul.Tensor, x, x)),
    )


@case(hints={"s0": 1000, "s1": 300}, sizes=(2, 17, 300, 1000), tolerance=1e-4)
def long_reduction_of_matrix(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.sum.default, x), t(aten.amax.default, t(aten.t.default, x))


@case(hints={"s0": 8}, sizes=(2, 3, 17, 1000, 1 << 20), tolerance=1e-4)
def long_reduction_not_foreseen(t: Varying) -> Any:
    x = t.input([one(t)])
    return t(aten.sum.default, x), t(aten.mean.default, x)


@case(hints=TWO)
def positions(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.argmax.default, x, 1), t(aten.argmin.default, x, 0), t(aten.argmax.default, x)


@case(hints=TWO)
def variances(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    pair = t(aten.var_mean.correction, x, [1], correction=0, keepdim=True)
    return t.item(pair, 0), t.item(pair, 1), t(aten.std.correction, x, [0])


@case(hints=TWO, sizes=(*SIZES, 1000))
def softmax(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten._softmax.default, x, -1, False), t(aten._log_softmax.default, x, 1, False)


@case(hints=TWO)
def softmax_across(t: Varying) -> Any:
    return t(aten._softmax.default, t.input(list(all_of(t))), 0, False)


@case(hints={"s0": 2, "s1": 8}, sizes=(2, 3, 17, 40000))
def softmax_of_long_rows(t: Varying) -> Any:
    """A row that was foreseen to be short and does not fit on the stack."""
    x = t.input([3, all_of(t)[1]])
    return t(aten._softmax.default, x, 1, False)


@case(hints=TWO, sizes=(*SIZES, 1000))
def layer_norm(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, w, b = t.input([s0, s1]), t.input([s1]), t.input([s1])
    made = t(aten.native_layer_norm.default, x, [s1], w, b, 1e-5)
    return t.item(made, 0), t.item(made, 1), t.item(made, 2)


@case(hints={"s0": 4, "s1": 6})
def layer_norm_fixed_rows(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, w, b = t.input([s0, s1, 32]), t.input([32]), t.input([32])
    made = t(aten.native_layer_norm.default, x, [32], w, b, 1e-5)
    return t.item(made, 0)


@case(hints={"s0": 4})
def batch_norm(t: Varying) -> Any:
    x, w, b = t.input([one(t), 6, 5]), t.input([6]), t.input([6])
    made = t(aten._native_batch_norm_legit.no_stats, x, w, b, True, 0.1, 1e-5)
    return t.item(made, 0), t.item(made, 1)


# --------------------------------------------------------------------------------------- matmul


@case(hints=THREE, sizes=(*SIZES, 200), tolerance=1e-4)
def matmul(t: Varying) -> Any:
    m, k, n = all_of(t)
    a, b = t.input([m, k]), t.input([k, n])
    return t(aten.relu.default, t(aten.mm.default, a, b))


@case(hints=THREE, tolerance=1e-4)
def matmul_transposed(t: Varying) -> Any:
    m, k, n = all_of(t)
    a, b, c = t.input([m, k]), t.input([n, k]), t.input([n])
    return t(aten.addmm.default, c, a, t(aten.t.default, b))


@case(hints=THREE, tolerance=1e-4)
def matmul_of_sum(t: Varying) -> Any:
    m, k, n = all_of(t)
    a, b, c = t.input([m, k]), t.input([k, n]), t.input([k])
    return t(aten.mm.default, t(aten.add.Tensor, a, c), t(aten.exp.default, b))


@case(hints={"s0": 3, "s1": 4, "s2": 5}, tolerance=1e-4, sizes=(2, 3, 5, 8, 17))
def batched_matmul(t: Varying) -> Any:
    b, m, k = all_of(t)
    x, y = t.input([b, m, k]), t.input([b, k, 7])
    return t(aten.bmm.default, x, y)


@case(hints={"s0": 2, "s1": 6}, tolerance=1e-4)
def attention(t: Varying) -> Any:
    """Heads split from a projection, scores, softmax, values, heads joined."""
    b, n = all_of(t)
    x, w = t.input([b, n, 16]), t.input([48, 16])
    flat = t(aten.view.default, x, [b * n, 16])
    projected = t(aten.view.default, t(aten.mm.default, flat, t(aten.t.default, w)), [b, n, 48])
    parts = [t(aten.slice.Tensor, projected, 2, 16 * i, 16 * i + 16) for i in range(3)]
    q, k, v = (
        t(aten.transpose.int, t(aten.view.default, part, [b, n, 4, 4]), 1, 2) for part in parts
    )
    q, k, v = (
        t(aten.view.default, t(aten.clone.default, e, memory_format=torch.contiguous_format), sizes)
        for e, sizes in ((q, [4 * b, n, 4]), (k, [4 * b, n, 4]), (v, [4 * b, n, 4]))
    )
    scores = t(aten.bmm.default, q, t(aten.transpose.int, k, 1, 2))
    weights = t(aten._softmax.default, t(aten.mul.Tensor, scores, 0.5), -1, False)
    joined = t(aten.view.default, t(aten.bmm.default, weights, v), [b, 4, n, 4])
    turned = t(
        aten.clone.default,
        t(aten.transpose.int, joined, 1, 2),
        memory_format=torch.contiguous_format,
    )
    return t(aten.view.default, turned, [b, n, 16])


# ---------------------------------------------------------------------------------------- views


@case(hints=TWO)
def concatenation(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, y = t.input([s0, 3]), t.input([s1, 3])
    joined = t(aten.cat.default, [x, y, x])
    return joined, t(aten.mul.Tensor, joined, 2)


@case(hints=TWO)
def concatenation_inner(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, y = t.input([4, s0]), t.input([4, s1])
    return t(aten.relu.default, t(aten.cat.default, [x, y], 1))


@case(hints=TWO)
def concatenation_then_sum(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, y = t.input([s0, s1]), t.input([s0, 4])
    joined = t(aten.cat.default, [x, y], 1)
    return t(aten.sum.dim_IntList, joined, [1]), t(aten._softmax.default, joined, 1, False)


@case(hints=TWO)
def slices(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0 + 2, s1])
    head, tail = t(aten.slice.Tensor, x, 0, 0, s0), t(aten.slice.Tensor, x, 0, 2, s0 + 2)
    return t(aten.add.Tensor, head, tail), tail


@case(hints={"s0": 8})
def last_element(t: Varying) -> Any:
    s = one(t)
    x = t.input([3, s, 4])
    return t(aten.mul.Tensor, t(aten.select.int, x, 1, s - 1), 2), t(aten.select.int, x, 1, s - 1)


@case(hints=THREE, sizes=(2, 3, 5, 8, 17))
def merged_dims(t: Varying) -> Any:
    s0, s1, s2 = all_of(t)
    x = t.input([s0, s1, s2])
    merged = t(aten.view.default, x, [s0 * s1, s2])
    flat = t(aten.view.default, x, [s0 * s1 * s2])
    return t(aten.relu.default, merged), t(aten.exp.default, flat)


@case(hints=TWO)
def split_dims(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0, 12 * s1])
    parts = t(aten.view.default, x, [s0, s1, 3, 4])
    turned = t(aten.permute.default, parts, [0, 2, 1, 3])
    return t(aten.mul.Tensor, turned, 2), t(aten.sum.dim_IntList, turned, [2])


@case(hints=TWO)
def merged_after_turning(t: Varying) -> Any:
    s0, s1 = all_of(t)
    turned = t(aten.permute.default, t.input([s0, s1, 4]), [1, 0, 2])
    copied = t(aten.clone.default, turned, memory_format=torch.contiguous_format)
    return t(aten.view.default, copied, [s0 * s1, 4]), t(
        aten.add.Tensor, t(aten.view.default, copied, [4 * s0 * s1]), 1
    )


@case(hints=TWO)
def expanded(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0, 1, 3])
    wide = t(aten.expand.default, x, [s0, s1, 3])
    return t(aten.relu.default, wide), t(
        aten.view.default,
        t(aten.clone.default, wide, memory_format=torch.contiguous_format),
        [s0 * s1, 3],
    )


@case(hints=TWO)
def padding(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.constant_pad_nd.default, x, [1, 2, 0, 3], 0.5)


@case(hints=TWO)
def flipping(t: Varying) -> Any:
    x = t.input(list(all_of(t)))
    return t(aten.flip.default, x, [0, 1])


@case(hints={"s0": 8}, extra=lambda s: [(s + 1) // 2])
def every_second(t: Varying) -> Any:
    x = t.input([one(t), 3])
    thin = t(aten.slice.Tensor, x, 0, 0, 9223372036854775807, 2)
    return t(aten.mul.Tensor, thin, 3)


@case(hints=TWO)
def strided_input(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x = t.input([s0, s1], make=lambda values, m, n: torch.randn(n, m).t())
    y = t.input([s0, s1])
    return t(aten.add.Tensor, x, 1), t(aten.mul.Tensor, x, y), t(aten.sum.dim_IntList, x, [0])


# -------------------------------------------------------------------------------------- indices


@case(hints=TWO)
def embedding(t: Varying) -> Any:
    s0, s1 = all_of(t)
    table, places = t.input([s1, 6]), t.input([s0, 3], make=integers(0, "s1"))
    return t(aten.embedding.default, table, places)


@case(hints=TWO)
def gathered(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, places = t.input([s0, s1]), t.input([s0, 2], make=integers(0, "s1"))
    return t(aten.gather.default, x, 1, places)


@case(hints=TWO)
def indexed(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, places = t.input([s0, s1]), t.input([s1], make=integers(0, "s0"))
    return t(aten.index.Tensor, x, [places]), t(aten.index_select.default, x, 0, places)


@case()
def counting(t: Varying) -> Any:
    s = one(t)
    places = t(aten.arange.default, s, device=torch.device("cpu"), pin_memory=False)
    steps = t(aten.arange.start_step, 1, 3 * s + 1, 3, dtype=torch.int64)
    return places, t(aten.mul.Tensor, places, 2), steps


@case()
def filled(t: Varying) -> Any:
    s = one(t)
    return (
        t(aten.full.default, [s, 3], 2.0, pin_memory=False),
        t(aten.zeros.default, [2, s], pin_memory=False),
        t(aten.ones_like.default, t.input([s])),
    )


@case(hints=TWO)
def causal_mask(t: Varying) -> Any:
    s0, _ = all_of(t)
    x = t.input([3, s0, s0])
    rows = t(aten.arange.default, s0, pin_memory=False)
    across = t(aten.unsqueeze.default, rows, 0)
    keep = t(aten.le.Tensor, across, t(aten.unsqueeze.default, rows, 1))
    hidden = t(aten.full.default, [], float("-inf"), pin_memory=False)
    return t(aten._softmax.default, t(aten.where.self, keep, x, hidden), -1, False)


@case(hints=TWO)
def cross_entropy(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, goals = t.input([s0, s1]), t.input([s0], make=integers(0, "s1"))
    likely = t(aten._log_softmax.default, x, 1, False)
    loss = t(aten.nll_loss_forward.default, likely, goals, None, 1, -100)
    return t.item(loss, 0), t.item(loss, 1)


@case(hints=TWO)
def cross_entropy_backward(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, goals = t.input([s0, s1]), t.input([s0], make=integers(0, "s1"))
    likely = t(aten._log_softmax.default, x, 1, False)
    loss = t(aten.nll_loss_forward.default, likely, goals, None, 1, -100)
    grad = t.input([])
    back = t(aten.nll_loss_backward.default, grad, likely, goals, None, 1, -100, t.item(loss, 1))
    return t(aten._log_softmax_backward_data.default, back, likely, 1, torch.float32)


@case(hints=TWO)
def layer_norm_backward(t: Varying) -> Any:
    s0, s1 = all_of(t)
    x, w, b, grad = t.input([s0, s1]), t.input([s1]), t.input([s1]), t.input([s0, s1])
    made = t(aten.native_layer_norm.default, x, [s1], w, b, 1e-5)
    back = t(
        aten.native_layer_norm_backward.default,
        *(grad, x, [s1], t.item(made, 1), t.item(made, 2), w, b, [True, True, True]),
    )
    return t.item(back, 0), t.item(back, 1), t.item(back, 2)


# ---------------------------------------------------------------------------------------- calls


@case(hints=TWO)
def called_ops(t: Varying) -> Any:
    """Through torch's dispatcher: sizes and strides of handles are read when it runs."""
    s0, s1 = all_of(t)
    x = t.input([s0, s1])
    return t(aten.cumsum.default, t(aten.mul.Tensor, x, 2), 1), t(aten.cumsum.default, x, 0)


@case(hints={"s0": 4}, sizes=(2, 3, 5, 8), tolerance=1e-4)
def convolution(t: Varying) -> Any:
    x, w = t.input([one(t), 3, 8, 8]), t.input([4, 3, 3, 3])
    made = t(aten.convolution.default, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return t(aten.relu.default, made)


@case(hints={"s0": 8}, sizes=(5, 8, 17))
def called_with_size(t: Varying) -> Any:
    s = one(t)
    x = t.input([s + 3, 4])
    made = t(aten.roll.default, x, [s - 1], [0])
    return made


@case(hints={"s0": 8}, sizes=(2, 5, 8, 17))
def called_with_sizes(t: Varying) -> Any:
    s = one(t)
    x = t.input([1, 2, s, 4])
    wide = t(aten.upsample_nearest2d.default, x, [2 * s, 3 + s])
    best = t(aten.topk.default, t(aten.view.default, x, [8 * s]), s + 1)
    return t(aten.add.Tensor, wide, 1), t.item(best, 0), t.item(best, 1)


@case(hints=TWO, sizes=(2, 5, 8, 17))
def called_from_python(t: Varying) -> Any:
    """An op that the dispatcher's C interface cannot carry: numbers of unknown kind."""
    s0, s1 = all_of(t)
    x = t.input([s0, s1])
    made = t(
        aten.bucketize.Scalar, 0.5, t(aten.cumsum.default, t(aten.exp.default, t.input([s0])), 0)
    )
    return t(aten.add.Tensor, made, 1), t(aten.renorm.default, x, 2, 0, s0)


@pytest.mark.parametrize("name", CASES)
def test_varying(name: str) -> None:
    made, options = CASES[name]
    trace, results = made()
    agree(trace, *results, **options)


# ----------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("name", ["softmax", "attention", "long_reduction", "slices", "gathered"])
def test_text_is_read_again(name: str) -> None:
    made, _ = CASES[name]
    trace, results = made()
    trace.returns(*results)
    _, kernels, _ = trace.stages()
    text = schedule_text(kernels)
    again = parse_schedule(text)
    assert schedule_text(again) == text
    verify_schedule(again)
    assert again.symbols == tuple(trace.symbols.values())
    program = build(emit(again, plan(again)))
    values = dict.fromkeys(trace.symbols, 17)
    inputs, expected = trace.eager(values)
    torch.testing.assert_close(run(program, inputs, values), expected, rtol=1e-4, atol=1e-4)


def test_equal_kernels_are_one_function() -> None:
    trace = Varying(TWO)
    s0, s1 = all_of(trace)
    results = []
    for size in (s0, s0, s1):
        x = trace.input([size])
        results.append(trace(aten.cumsum.default, trace(aten.exp.default, x), 0))
    program = agree(trace, *results)
    names = [note.name for note in program.kernels if note.kind == "generated"]
    assert len(names) == 3 and len(set(names)) == 2


# --------------------------------------------------------------------------------------- tables


def test_what_varies_in_records_is_in_the_table_of_sizes() -> None:
    trace = Varying(TWO)
    s0, s1 = all_of(trace)
    x = trace.input([s0, s1])
    y = trace(aten.mm.default, x, trace(aten.t.default, trace.input([s0, s1])))
    program = agree(trace, trace(aten.sum.dim_IntList, trace(aten.exp.default, y), [1]))
    assert program.symbols == (s0, s1)
    assert program.sizes[:2] == (s0, s1)
    assert len(set(program.sizes)) == len(program.sizes)
    assert isinstance(program.arena_bytes, Expression)
    assert program.arena_bytes in program.sizes


def test_slots_of_the_arena_are_used_again() -> None:
    trace = Varying({"s0": 8})
    s = one(trace)
    value = trace.input([s, s])
    for _ in range(6):
        value = trace(aten.cumsum.default, trace(aten.relu.default, value), 0)
    trace.returns(trace(aten.neg.default, value))
    _, kernels, _ = trace.stages()
    memory = plan(kernels)
    places = {str(offset) for offset in memory.offsets.values()}
    assert len(memory.offsets) > 4 and len(places) <= 3


def test_threads_are_asked_for_when_there_is_much_work() -> None:
    trace = Varying({"s0": 8})
    x = trace.input([one(trace)])
    trace.returns(trace(aten.exp.default, x))
    _, kernels, _ = trace.stages()
    text = emit(kernels, plan(kernels)).text
    assert "GOMP_parallel" in text and "kernel0.thread" in text


def test_symbol_that_nobody_passes() -> None:
    trace = Varying({"s0": 8})
    trace.returns(trace(aten.exp.default, trace.input([one(trace)])))
    with pytest.raises(InternalError, match="nobody passes"):
        kernels = schedule(lower(trace.graph))
        emit(kernels, plan(kernels))


def test_a_rule_that_needs_a_number_asks_for_it() -> None:
    trace = Varying(TWO)
    s0, s1 = all_of(trace)
    x = trace.input([s0, s1])
    trace.returns(trace(aten.clone.default, x))
    for node in trace.graph.nodes:
        if node.op == "call_function":
            node.target = aten.view.default
            node.args = (x, [s0, s0])  # whether that fits depends on values
    with pytest.raises(Specialise) as raised:
        lower(trace.graph, (s0, s1))
    assert raised.value.names == {"s0", "s1"}


@pytest.mark.parametrize("size", [2, 3])
def test_sizes_that_are_nothing(size: int) -> None:
    """A size of its own may be 0: loops do not run, and nothing is divided by it."""
    trace = Varying({"s0": 8})
    s = one(trace)
    x = trace.input([s, 3])
    rest = trace(aten.slice.Tensor, x, 0, 2, s)
    flat = trace(aten.view.default, rest, [3 * s - 6])
    results = (
        trace(aten.mul.Tensor, rest, 2),
        trace(aten.sum.dim_IntList, rest, [0]),
        trace(aten.exp.default, flat),
        trace(aten.sum.dim_IntList, rest, [1]),
    )
    agree(trace, *results, sizes=(size, 8, 17))
