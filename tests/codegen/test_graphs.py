"""Whole graphs against eager: values, dtypes, strides, and how many kernels they become."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.codegen.harness import Trace, agree, aten, kinds, run

R = torch.randn
SIZES = [(1, 1), (1, 7), (3, 8), (5, 33), (16, 64), (7, 1000), (64, 130)]


@pytest.mark.parametrize("sizes", SIZES)
def test_gelu_chain_summed(sizes: tuple[int, int]) -> None:
    t = Trace()
    x, y = t.input(R(*sizes)), t.input(R(*sizes))
    chain = t(aten.gelu.default, t(aten.add.Tensor, t(aten.mul.Tensor, x, y), 1))
    program = agree(t, t(aten.sum.dim_IntList, chain, [-1]))
    assert kinds(program) == ["generated"]


@pytest.mark.parametrize("sizes", SIZES)
def test_softmax_is_one_kernel(sizes: tuple[int, int]) -> None:
    t = Trace()
    program = agree(t, t(aten._softmax.default, t.input(3 * R(*sizes)), -1, False))
    assert kinds(program) == ["generated"]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_over_each_dim(dim: int) -> None:
    t = Trace()
    x = t.input(R(5, 17, 33))
    agree(t, t(aten._softmax.default, x, dim, False), t(aten._log_softmax.default, x, dim, False))


def test_softmax_of_a_dear_value_computes_it_once() -> None:
    t = Trace()
    x = t(aten.gelu.default, t.input(R(20, 300)))
    program = agree(t, t(aten._softmax.default, x, -1, False))
    assert kinds(program) == ["generated"]
    assert program.kernels[0].text.count("erf") == 1
    assert program.kernels[0].text.count("exp") == 1


@pytest.mark.parametrize("sizes", SIZES)
def test_a_value_is_folded_once(sizes: tuple[int, int]) -> None:
    """The sum that a softmax has inside, beside the same one written out: `jvp` comes to that. The
    second of two equal folds in a loop counted everything once more."""
    t = Trace()
    x = t.input(R(*sizes))
    powers = t(aten.exp.default, t(aten.sub.Tensor, x, t(aten.amax.default, x, [-1], True)))
    total = t(aten.sum.dim_IntList, powers, [-1], True)
    program = agree(t, t(aten._softmax.default, x, -1, False), t(aten.div.Tensor, powers, total))
    assert kinds(program) == ["generated"]


@pytest.mark.parametrize("sizes", [(4, 16, 96), (3, 5), (2, 2, 2, 1000)])
def test_layer_norm_is_one_kernel(sizes: tuple[int, ...]) -> None:
    t = Trace()
    x, w, b = t.input(R(*sizes)), t.input(R(sizes[-1])), t.input(R(sizes[-1]))
    y = t(aten.native_layer_norm.default, x, [sizes[-1]], w, b, 1e-5)
    program = agree(t, t.item(y, 0), t.item(y, 1), t.item(y, 2))
    assert kinds(program) == ["generated"]


def test_residual_and_layer_norm_are_one_kernel() -> None:
    t = Trace()
    h = t(aten.add.Tensor, t.input(R(64, 128)), t.input(R(64, 128)))
    y = t(aten.native_layer_norm.default, h, [128], None, None, 1e-5)
    program = agree(t, h, t.item(y, 0))
    assert kinds(program) == ["generated"]


def test_product_bias_softmax() -> None:
    t = Trace()
    x, w, b = t.input(R(32, 64)), t.input(R(48, 64)), t.input(R(48))
    y = t(aten.addmm.default, b, x, t(aten.t.default, w))
    program = agree(t, t(aten._softmax.default, y, -1, False))
    assert kinds(program) == ["native call", "generated"]


DIMS = [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("keep", [False, True])
def test_reductions_over_dims(dims: list[int], keep: bool) -> None:
    t = Trace()
    x = t.input(R(7, 33, 65))
    agree(
        t,
        t(aten.sum.dim_IntList, x, dims, keep),
        t(aten.mean.dim, x, dims, keep),
        t(aten.amax.default, x, dims, keep),
        t(aten.amin.default, x, dims, keep),
        t(aten.var.correction, x, dims, correction=1, keepdim=keep),
    )


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_long_sums_are_as_exact_as_eagers(rows: int) -> None:
    t = Trace()
    x = t.input(torch.rand(rows, 200_003))
    out = t(aten.sum.dim_IntList, x, [1])
    program = agree(t, out)
    assert "python call" not in kinds(program)
    exact = t.inputs[0].double().sum(1)
    ours = (run(program, t.inputs)[0].double() - exact).abs().max()
    eagers = (t.values[out].double() - exact).abs().max()
    assert ours <= 2 * eagers + 0.01


def test_sum_over_the_first_dim_is_as_exact_as_eagers() -> None:
    t = Trace()
    x = t.input(torch.rand(20_000, 40))
    out = t(aten.sum.dim_IntList, x, [0])
    program = agree(t, out)
    exact = t.inputs[0].double().sum(0)
    ours = (run(program, t.inputs)[0].double() - exact).abs().max()
    assert ours <= 2 * (t.values[out].double() - exact).abs().max() + 1e-3


def test_positions_of_extremes() -> None:
    t = Trace()
    x = t.input(R(12, 1021))
    ties = t.input(torch.randint(0, 3, (9, 50)).float())
    nans = R(4, 100)
    nans[1, 70] = nans[1, 30] = float("nan")
    odd = t.input(nans)
    agree(
        t,
        *(
            t(op.default, v, d)
            for op in (aten.argmax, aten.argmin)
            for v in (x, ties, odd)
            for d in (0, 1)
        ),
        t(aten.argmax.default, x),
    )


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cat(dim: int) -> None:
    t = Trace()
    sizes = [[4, 5, 6] for _ in range(3)]
    for place, each in enumerate(sizes):
        each[dim] += 3 * place
    parts = [t.input(R(*each)) for each in sizes]
    agree(t, t(aten.mul.Tensor, t(aten.cat.default, parts, dim), 2))


def test_where_and_masks() -> None:
    t = Trace()
    x, y = t.input(R(50, 13)), t.input(R(50, 13))
    mask = t(aten.gt.Tensor, x, y)
    agree(
        t,
        mask,
        t(aten.where.self, mask, x, y),
        t(aten.logical_not.default, mask),
        t(aten.bitwise_and.Tensor, mask, t(aten.gt.Scalar, x, 0.0)),
        t(aten.any.dim, mask, 1),
        t(aten.all.dim, mask, 0),
        t(aten.sum.dim_IntList, mask, [0]),
        t(aten.masked_fill.Scalar, x, mask, -1.0),
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers(dtype: torch.dtype) -> None:
    t = Trace()
    x, y = (t.input(torch.randint(0, 100, (70,)).to(dtype)) for _ in range(2))
    agree(
        t,
        t(aten.add.Tensor, x, y),
        t(aten.mul.Tensor, x, y),  # wraps
        t(aten.sub.Tensor, x, y),
        t(aten.bitwise_xor.Tensor, x, y),
        t(aten.maximum.default, x, y),
        t(aten.sum.default, x),
        t(aten.lt.Tensor, x, y),
    )


@pytest.mark.parametrize(
    "shapes",
    [((5, 1, 7), (6, 1)), ((5, 9, 7), (7,)), ((4, 1), (1, 6)), ((3, 4, 5), ()), ((8,), (3, 8))],
)
def test_broadcasting(shapes: tuple[tuple[int, ...], ...]) -> None:
    t = Trace()
    x, y = (t.input(R(shape)) for shape in shapes)
    agree(t, t(aten.add.Tensor, x, y), t(aten.mul.Tensor, y, x))


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: R(50, 30).t(),
    "expanded": lambda: R(1, 50).expand(30, 50),
    "every second": lambda: R(60, 100)[::2, ::2],
    "offset": lambda: R(31, 51)[1:, 1:],
    "overlapping": lambda: R(100).as_strided((30, 50), (1, 1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layout: str) -> None:
    t = Trace()
    x, y = t.input(LAYOUTS[layout]()), t.input(R(30, 50))
    z = t(aten.add.Tensor, x, y)
    agree(t, z, t(aten.sum.dim_IntList, x, [0]), t(aten.sum.dim_IntList, z, [1]))


def test_no_dims_and_no_elements() -> None:
    t = Trace()
    x, e = t.input(R(())), t.input(R(0, 5))
    agree(
        t,
        t(aten.mul.Tensor, x, x),
        t(aten.sum.default, x),
        t(aten.mul.Tensor, e, 2),
        t(aten.sum.dim_IntList, e, [0]),
        t(aten.sum.dim_IntList, e, [1]),
        t(aten.cat.default, [e, e], 0),
    )


def test_results_that_are_inputs_and_nothing() -> None:
    t = Trace()
    x = t.input(R(3, 5))
    program = agree(t, x, None, x)
    assert program.results[0] == program.results[2]
    assert program.buffers[program.results[0].buffer or 0].place == "input"


def test_views_as_results_share_storage() -> None:
    t = Trace()
    x = t.input(R(3, 5))
    y = t(aten.add.Tensor, x, 1)
    program = agree(
        t,
        t(aten.t.default, x),
        t(aten.select.int, x, 0, 1),
        y,
        t(aten.t.default, y),
        t(aten.slice.Tensor, y, 1, 2, 5),
    )
    buffers = [note.buffer for note in program.results]
    assert buffers[0] == buffers[1] == 0
    assert buffers[2] == buffers[3] == buffers[4]
    assert program.results[1].offset == 5


def test_a_clone_as_result_has_its_own_storage() -> None:
    t = Trace()
    x = t.input(R(3, 5))
    program = agree(t, t(aten.clone.default, x))
    assert program.buffers[program.results[0].buffer or 0].place == "result"


def test_half_floats() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        t = Trace()
        x, y = t.input(R(30, 100).to(dtype)), t.input(R(100).to(dtype))
        z = t(aten.mul.Tensor, x, y)
        agree(
            t,
            z,
            t(aten.gelu.default, z),
            t(aten._softmax.default, z, -1, False),
            t(aten.sum.dim_IntList, z, [0]),
            tolerance=2e-2,
        )


def test_pointwise_half_floats_round_as_eager() -> None:
    t = Trace()
    x = t.input(torch.cat([R(500), torch.tensor([float("nan"), float("inf"), -0.0, 1e-40, 3e38])]))
    agree(
        t,
        *(t(aten._to_copy.default, x, dtype=d) for d in (torch.bfloat16, torch.float16)),
        tolerance=0,
    )


def test_doubles() -> None:
    t = Trace()
    x = t.input(R(30, 101).double())
    z = t(aten.exp.default, x)
    agree(
        t,
        z,
        t(aten.sum.dim_IntList, z, [1]),
        t(aten._softmax.default, x, 1, False),
        tolerance=1e-12,
    )


def test_a_reshape_between_ops_does_not_part_them() -> None:
    t = Trace()
    x = t.input(R(6, 8, 32))
    y = t(aten.exp.default, t(aten.view.default, x, [48, 32]))
    z = t(aten.view.default, y, [6, 8, 32])
    program = agree(t, t(aten.sum.dim_IntList, z, [-1]), t(aten.add.Tensor, z, 1))
    assert kinds(program) == ["generated"]


def test_batched_products_and_odd_strides() -> None:
    t = Trace()
    a, b = t.input(R(3, 4, 5)), t.input(R(3, 6, 5))
    agree(
        t,
        t(aten.bmm.default, a, t(aten.transpose.int, b, 1, 2)),
        t(aten.mm.default, t.input(R(8, 10)[::2, ::2]), t.input(R(5, 6))),
        t(aten.mm.default, t.input(R(1, 5)), t.input(R(5, 1))),
        t(aten.mm.default, t.input(R(4, 0)), t.input(R(0, 3))),
        t(aten.mm.default, t.input(R(4, 5).double()), t.input(R(5, 3).double())),
    )


def test_equal_kernels_are_written_once() -> None:
    t = Trace()
    x = t.input(R(4, 64))
    outs = []
    for _ in range(3):
        x = t(aten.mm.default, t(aten.tanh.default, x), t.input(R(64, 64)))
        outs.append(x)
    program = agree(t, outs[-1])
    generated = [note.name for note in program.kernels if note.kind == "generated"]
    assert len(generated) == 3 and len(set(generated)) == 1


@pytest.mark.parametrize("sizes", [(64, 32), (40, 24), (7, 16), (33, 17), (8, 8), (100, 200)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float64, torch.int16])
def test_transposed_operands(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    t = Trace()
    x = t.input((100 * R(*sizes)).to(dtype))
    y = t.input((100 * R(sizes[1], sizes[0])).to(dtype))
    across = t(aten.t.default, x)
    agree(
        t,
        t(aten.add.Tensor, across, y),
        t(aten.clone.default, across, memory_format=torch.contiguous_format),
    )


def test_transposed_heads() -> None:
    t = Trace()
    x = t.input(R(2, 16, 4, 24))
    outs = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [3, 2, 1, 0], [1, 3, 0, 2]):
        y = t(aten.permute.default, x, order)
        outs.append(t(aten.clone.default, y, memory_format=torch.contiguous_format))
    agree(t, *outs)


def test_long_chains_need_no_deep_recursion() -> None:
    t = Trace()
    x = t.input(R(100))
    for place in range(600):
        x = t(aten.mul.Tensor, t(aten.add.Tensor, x, 0.001 * (place % 7)), 0.999)
    agree(t, x, tolerance=1e-3)


def test_complex_numbers_are_moved_and_called() -> None:
    t = Trace()
    x = t.input(torch.randn(10, 20, dtype=torch.complex64))
    across = t(aten.t.default, x)
    agree(
        t,
        t(aten.mul.Tensor, across, 2.0),
        t(aten.clone.default, across, memory_format=torch.contiguous_format),
        t(aten.cat.default, [x, x], 0),
    )
