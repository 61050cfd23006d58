"""One recording serves every size: forward and gradients against eager at several sizes."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F

from tests.autograd.harness import OpByOp, check_gradients, linked, same_tensor
from tests.autograd.varying import Varying, check_varying, made, size_symbol, tensor
from tests.test_independence import run_in_a_bare_process
from windfall.autograd import differentiate, interpreter, split
from windfall.errors import Specialise

S = size_symbol("s0", 8)
T = size_symbol("s1", 6)
ONE = [(2,), (3,), (5,), (8,), (17,), (64,)]
TWO = [(2, 3), (8, 6), (5, 5), (17, 4), (3, 33)]


def test_mlp() -> None:
    def run(n: int, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)

    types = [
        tensor(S, 16, grad=True),
        tensor(32, 16, grad=True),
        tensor(32, grad=True),
        tensor(4, 32, grad=True),
        tensor(4, grad=True),
    ]
    found = check_varying(run, [S], types, ONE)
    assert found.relations == []
    assert len(found.backwards) == 1, "one backward serves all sizes"


def test_linear_of_three_dimensions() -> None:
    def run(b: int, t: int, x: Any, w: Any, bias: Any) -> Any:
        return F.linear(x, w, bias).relu()

    found = check_varying(
        run,
        [S, T],
        [tensor(S, T, 8, grad=True), tensor(5, 8, grad=True), tensor(5, grad=True)],
        TWO,
    )
    assert found.relations == []


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim: int) -> None:
    found = check_varying(
        lambda b, t, x: torch.softmax(x, dim), [S, T], [tensor(S, T, 4, grad=True)], TWO
    )
    assert found.relations == []


def test_layer_norm() -> None:
    def run(b: int, t: int, x: Any, w: Any, bias: Any) -> Any:
        return F.layer_norm(x, (16,), w, bias)

    types = [tensor(S, T, 16, grad=True), tensor(16, grad=True), tensor(16, grad=True)]
    assert check_varying(run, [S, T], types, TWO).relations == []


@pytest.mark.parametrize("causal", [False, True])
def test_attention_block(causal: bool) -> None:
    def run(b: int, t: int, x: Any, w: Any, out: Any) -> Any:
        q, k, v = F.linear(x, w).chunk(3, dim=-1)
        q, k, v = (one.view(b, t, 4, 8).transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return F.linear(y.transpose(1, 2).reshape(b, t, 32), out)

    types = [tensor(S, T, 32, grad=True), tensor(96, 32, grad=True), tensor(32, 32, grad=True)]
    found = check_varying(run, [S, T], types, TWO)
    assert found.relations == []


def test_attention_by_hand() -> None:
    def run(b: int, t: int, q: Any, k: Any, v: Any) -> Any:
        weights = (q @ k.transpose(-2, -1)) / 8**0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        return torch.softmax(weights.masked_fill(~mask, float("-inf")), -1) @ v

    types = [tensor(S, 4, T, 8, grad=True) for _ in range(3)]
    assert check_varying(run, [S, T], types, TWO).relations == []


@pytest.mark.parametrize("sizes", [(-1, 4), (-1,), (2, -1), (-1, 2, 2)])
def test_reshape_with_minus_one(sizes: tuple[int, ...]) -> None:
    found = check_varying(
        lambda n, x: x.reshape(sizes) * 2, [S], [tensor(S, 4, grad=True)], [(2,), (8,), (18,)]
    )
    assert found.relations == []


def test_view_that_divides_needs_a_relation() -> None:
    found = check_varying(
        lambda n, x: x.view(-1, 6).sum(0), [S], [tensor(S, 3, grad=True)], [(4,), (8,), (18,)]
    )
    assert [one for one in found.joint.relations if not one.holds({"s0": 7})]


def test_flatten_and_unflatten() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        return x.flatten(0, 1).unsqueeze(1).unflatten(0, (b, t)).squeeze(2) + 1

    assert check_varying(run, [S, T], [tensor(S, T, 3, grad=True)], TWO).relations == []


def test_cat_and_stack() -> None:
    def run(b: int, t: int, x: Any, y: Any) -> Any:
        return torch.cat([x, y, x], 0), torch.stack([x, x * 2], 1), torch.cat([x, x.sin()], -1)

    types = [tensor(S, 4, grad=True), tensor(T, 4, grad=True)]
    assert check_varying(run, [S, T], types, TWO).relations == []


def test_slices() -> None:
    n = size_symbol("n", 3)

    def run(s: int, n: int, x: Any) -> Any:
        return x[:, :n] * 2, x[:, 1:], x[:, -2:], x[:, :-1].sum(1), x[:, 0], x[:, -1].exp()

    found = check_varying(run, [S, n], [tensor(4, S, grad=True)], [(8, 3), (9, 2), (5, 5), (70, 9)])
    assert "n <= s0" in found.relations or "s0 >= n" in found.relations


def test_chunks_of_a_size_that_varies() -> None:
    def run(n: int, x: Any) -> Any:
        first, second = x.chunk(2, dim=0)
        return first * 2, second.exp()

    check_varying(run, [S], [tensor(S, 4, grad=True)], [(4,), (5,), (8,), (17,)])


def test_split_by_parts() -> None:
    def run(n: int, x: Any) -> Any:
        first, second = x.split([2, n - 2], 0)
        return first.sum(0) * second

    check_varying(run, [S], [tensor(S, 4, grad=True)], [(4,), (5,), (8,), (17,)])


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_of_a_batch_and_a_height_that_vary(stride: int) -> None:
    def run(b: int, h: int, x: Any, w: Any, bias: Any) -> Any:
        y = F.conv2d(x, w, bias, stride=stride, padding=1)
        return F.relu(y)

    types = [tensor(S, 3, T, 10, grad=True), tensor(4, 3, 3, 3, grad=True), tensor(4, grad=True)]
    check_varying(run, [S, T], types, [(2, 4), (8, 6), (3, 9), (5, 16)])


def test_convolution_network() -> None:
    def run(b: int, h: int, x: Any, w: Any, wide: Any, gamma: Any, beta: Any) -> Any:
        y = F.conv2d(x, w, stride=1, padding=1)
        y = F.batch_norm(y, None, None, gamma, beta, training=True)
        y = F.max_pool2d(F.relu(y), 2)
        y = F.avg_pool2d(y, 2)
        y = F.adaptive_avg_pool2d(y, 1).flatten(1)
        return F.linear(y, wide)

    types = [
        tensor(S, 3, T, 12, grad=True),
        tensor(4, 3, 3, 3, grad=True),
        tensor(5, 4, grad=True),
        tensor(4, grad=True),
        tensor(4, grad=True),
    ]
    t = size_symbol("s1", 12)
    types[0] = tensor(S, 3, t, 12, grad=True)
    check_varying(run, [S, t], types, [(2, 8), (8, 12), (3, 9), (5, 17)])


def test_batch_norm_updates_its_statistics() -> None:
    def run(b: int, x: Any, mean: Any, variance: Any, w: Any) -> Any:
        return F.batch_norm(x, mean, variance, w, None, training=True)

    types = [tensor(S, 4, 5, 5, grad=True), tensor(4), tensor(4), tensor(4, grad=True)]
    check_varying(run, [S], types, [(2,), (8,), (5,)])


def test_embedding_with_positions() -> None:
    def run(b: int, t: int, words: Any, table: Any, places: Any) -> Any:
        return F.embedding(words, table) + F.embedding(torch.arange(t), places)

    types = [tensor(S, T, dtype=torch.int64), tensor(7, 8, grad=True), tensor(80, 8, grad=True)]
    assert check_varying(run, [S, T], types, TWO).relations == []


def test_slice_of_a_table_of_positions() -> None:
    def run(b: int, t: int, x: Any, places: Any) -> Any:
        return x + places[:t]

    types = [tensor(S, T, 8, grad=True), tensor(80, 8, grad=True)]
    found = check_varying(run, [S, T], types, TWO)
    assert len(found.relations) == 1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: str) -> None:
    def run(n: int, x: Any, target: Any) -> Any:
        return F.cross_entropy(x, target, reduction=reduction)

    types = [tensor(S, 7, grad=True), tensor(S, dtype=torch.int64)]
    assert check_varying(run, [S], types, ONE).relations == []


def test_language_model_loss() -> None:
    def run(b: int, t: int, x: Any, w: Any, target: Any) -> Any:
        logits = F.linear(x, w)[:, :-1]
        return F.cross_entropy(logits.reshape(-1, 7), target[:, 1:].reshape(-1))

    types = [tensor(S, T, 8, grad=True), tensor(7, 8, grad=True), tensor(S, T, dtype=torch.int64)]
    check_varying(run, [S, T], types, [(2, 3), (8, 6), (5, 5), (3, 33)])


def test_dropout() -> None:
    def run(n: int, x: Any) -> Any:
        return F.dropout(x, 0.5) * 2

    assert check_varying(run, [S], [tensor(S, 4, grad=True)], ONE).relations == []


def test_means_and_other_reductions() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        return x.mean(), x.mean(1), x.sum((0, 2)), x.amax(1), x.var(2), x.std(-1), x.norm(dim=0)

    assert check_varying(run, [S, T], [tensor(S, T, 3, grad=True)], TWO).relations == []


def test_a_size_as_a_number() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        return x * b + t, x / t, torch.add(x, x, alpha=b), x.sum() / b

    found = check_varying(run, [S, T], [tensor(S, T, grad=True)], TWO)
    assert not any("7777777" in str(node.args) for node in found.joint.graph.nodes)


def test_numbers_made_of_sizes() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        return x.var(0), x.std(1), x.var(), x * (b / t), x - 1 / (b + 0.5), x.sum() * (t / 2)

    found = check_varying(run, [S, T], [tensor(S, T, 3, grad=True)], TWO)
    assert found.relations == []


def test_transposed_and_expanded() -> None:
    def run(b: int, t: int, x: Any, y: Any) -> Any:
        z = x.t() + 1
        return z, z.contiguous(), y.expand(b, t, 3) * 2, y.expand(b, -1, 3).sum(0)

    types = [tensor(S, T, grad=True), tensor(T, 1, grad=True)]
    assert check_varying(run, [S, T], types, TWO).relations == []


def test_channels_last() -> None:
    def run(b: int, h: int, x: Any, w: Any) -> Any:
        return F.conv2d(x, w).relu()

    types = [tensor(S, 3, T, 10, grad=True, order=(0, 2, 3, 1)), tensor(4, 3, 3, 3, grad=True)]
    check_varying(run, [S, T], types, [(2, 5), (8, 6), (3, 9)])


def test_writes_in_place() -> None:
    def run(n: int, x: Any, y: Any) -> Any:
        y.add_(1)
        h = x * 2
        h[1:].mul_(3)
        h[:, 0] = 0
        return h, y

    types = [tensor(S, 4, grad=True), tensor(S, 4)]
    check_varying(run, [S], types, [(3,), (8,), (17,)])


def test_outputs_that_are_views() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        y = x * 2
        return x[1:], y, y[:, : t - 1], y.view(-1), x.view(t, b), b * t

    check_varying(run, [S, T], [tensor(S, T, grad=True)], [(3, 4), (8, 6), (5, 5)])


def test_gathers() -> None:
    def run(b: int, t: int, x: Any, index: Any) -> Any:
        picked = torch.gather(x, 1, index)
        return picked, x.index_select(0, index[0, :2]), x[index[:, 0]]

    types = [tensor(S, 9, grad=True), tensor(S, T, dtype=torch.int64)]
    check_varying(run, [S, T], types, [(2, 3), (8, 6), (5, 5)], high=2)


def test_padding_and_where() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        y = F.pad(x, (1, 2))
        return torch.where(y > 0, y, torch.zeros(b, t + 3)), F.pad(x, (0, t), value=1.0)

    check_varying(run, [S, T], [tensor(S, T, grad=True)], TWO)


def test_making_tensors() -> None:
    def run(b: int, t: int, x: Any) -> Any:
        ramp = torch.arange(0, b * 2, 2, dtype=torch.float32)
        return (
            torch.zeros(b, t) + x,
            torch.full((t,), 3.0),
            ramp[:, None] * x,
            torch.eye(t),
            x.new_ones(t, b).tril(),
        )

    check_varying(run, [S, T], [tensor(S, T, grad=True)], TWO)


def test_batched_products() -> None:
    def run(b: int, t: int, x: Any, y: Any, m: Any) -> Any:
        return (
            torch.bmm(x, y),
            torch.einsum("bik,bkj->bij", x, y),
            x @ m,
            torch.baddbmm(x @ y, x, y),
        )

    types = [tensor(S, T, 4, grad=True), tensor(S, 4, T, grad=True), tensor(4, 5, grad=True)]
    assert check_varying(run, [S, T], types, TWO).relations == []


def test_equal_sizes_are_assumed_where_an_op_needs_it() -> None:
    u = size_symbol("u", 8)
    found = check_varying(
        lambda a, b, x, y: x + y,
        [S, u],
        [tensor(S, 4, grad=True), tensor(u, 4, grad=True)],
        [(2, 2), (9, 9)],
    )
    assert found.relations == ["s0 == u"]


def test_a_value_that_is_needed_is_specialised() -> None:
    with pytest.raises(Specialise) as found:
        Varying(lambda n, x: [x[i] for i in range(n)], [S], [tensor(S, 4)])
    assert found.value.names == {"s0"}
    for needing in (
        lambda n, x: x.unbind(0),
        lambda n, x: torch.linspace(0, 1, n),
        lambda n, x: x.clamp(max=n / 2),
        lambda n, x: x * (n / 2) ** 0.5,
    ):
        with pytest.raises(Specialise):
            Varying(needing, [S], [tensor(S, 4, grad=True)])


def test_arguments_that_do_not_fit_raise_as_eager() -> None:
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        Varying(lambda n, x, y: x + y, [S], [tensor(S, 4), tensor(5, 4)])


def test_a_size_of_one_is_not_assumed_to_vary() -> None:
    def run(n: int, x: Any) -> Any:
        return x[n // 2 :] + 1

    found = check_varying(run, [S], [tensor(S, 4, grad=True)], [(4,), (8,), (17,)])
    relation = [one for one in found.joint.relations if not one.holds({"s0": 2})]
    assert relation, "with 2, one is left, which is another program"


@pytest.mark.parametrize(
    ("arguments", "rank"),
    [
        ({"scale_factor": 2}, 2),
        ({"scale_factor": (1.5, 0.5), "mode": "bilinear"}, 2),
        ({"scale_factor": 2.0, "mode": "bilinear", "align_corners": True}, 2),
        ({"scale_factor": 0.5, "mode": "bicubic", "recompute_scale_factor": True}, 2),
        ({"size": (5, 9), "mode": "nearest-exact"}, 2),
        ({"size": 7, "mode": "linear"}, 1),
        ({"scale_factor": 2, "mode": "trilinear"}, 3),
    ],
)
def test_resampling(arguments: Any, rank: int) -> None:
    graph = torch.fx.Graph()
    placeholders = [graph.placeholder(name) for name in ("b", "h", "x")]
    graph.output((graph.call_function(F.interpolate, (placeholders[2],), arguments),))
    x = tensor(S, 3, T, *[8] * (rank - 1), grad=True)
    joint = differentiate(graph, [S, T, x])
    halves = split(joint)
    call = linked(joint, halves, OpByOp())
    for b, h in ((8, 6), (2, 4), (3, 9)):
        ours, eagers = (made(x, {"s0": b, "s1": h}) for _ in range(2))
        with torch.no_grad():
            eagers.copy_(ours)
        (found,), expected = call(b, h, ours), F.interpolate(eagers, **arguments)
        same_tensor(found, expected)
        check_gradients([found], [ours], [expected], [eagers])


def test_sizes_that_vary_load_nothing_that_is_replaced() -> None:
    report = run_in_a_bare_process(
        """
        import torch
        own = set(sys.modules)
        import torch.nn.functional as F
        from tests.autograd.varying import check_varying, size_symbol, tensor
        b, t = size_symbol("b", 4), size_symbol("t", 6)
        def run(b, t, x, w):
            y = F.linear(x, w).view(b, t, 2, 4).transpose(1, 2)
            y = F.scaled_dot_product_attention(y, y, y).transpose(1, 2).reshape(b, t, 8)
            return F.layer_norm(y, (8,)).softmax(-1)[:, 1:].mean(), y.std(0)
        types = [tensor(b, t, 8, grad=True), tensor(8, 8, grad=True)]
        check_varying(run, [b, t], types, [(4, 6), (2, 9)])
        """
    )
    assert report["loaded"] == []


def test_double_backward_replays_with_the_sizes_of_its_call() -> None:
    def run(n: int, x: Any) -> Any:
        return (x.sin() * n).sum(0)

    compiled = Varying(run, [S], [tensor(S, 4, grad=True)])
    for size in (8, 3):
        ours = torch.randn(size, 4, requires_grad=True)
        eagers = ours.detach().clone().requires_grad_()
        (found,), expected = compiled.call(size, ours), run(size, eagers)
        (first,) = torch.autograd.grad(found.sum(), ours, create_graph=True)
        (wanted,) = torch.autograd.grad(expected.sum(), eagers, create_graph=True)
        torch.testing.assert_close(first, wanted)
        (second,) = torch.autograd.grad(first.sum(), ours)
        (last,) = torch.autograd.grad(wanted.sum(), eagers)
        torch.testing.assert_close(second, last)


def test_tangents_with_other_strides_share_a_variant() -> None:
    compiled = Varying(lambda b, t, x: x * 2, [S, T], [tensor(S, T, grad=True)])
    for b, t in ((8, 6), (3, 5), (4, 9)):
        x = torch.randn(b, t, requires_grad=True)
        for tangent in (torch.randn(b, t), torch.ones(()).expand(b, t), torch.randn(t, b).t()):
            (found,) = compiled.call(b, t, x)
            (gradient,) = torch.autograd.grad(found, x, tangent)
            torch.testing.assert_close(gradient, tangent * 2)
    assert len(compiled.backwards) == 3, "row-major, expanded and transposed"


def test_tensors_of_sizes() -> None:
    graph = torch.fx.Graph()
    b, t, x = (graph.placeholder(name) for name in ("b", "t", "x"))
    sizes = graph.call_function(torch.tensor, ([b, 3, t],))
    scale = graph.call_function(torch.tensor, (t,), {"dtype": torch.float32})
    graph.output((sizes, graph.call_function(operator.truediv, (x, scale))))
    type = tensor(S, T, grad=True)
    joint = differentiate(graph, [S, T, type])
    call = interpreter(split(joint).forward, [S, T])
    assert joint.relations == ()
    for rows, columns in TWO:
        value = made(type, {"s0": rows, "s1": columns})
        found, scaled, *_ = call(rows, columns, value)
        assert torch.equal(found, torch.tensor([rows, 3, columns]))
        torch.testing.assert_close(scaled, value.detach() / columns)
