"""The rows of each suite. A new row is one line here.

`overhead` measures calls, `compile` first results, `kernels` single kernels, `writes` programs that
write their inputs, `higher` gradients of gradients, `functions` transforms of `torch.func`;
`models` are whole models, whose first results stand in `compile` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks import programs as p
from benchmarks.case import Case, Mode, Subject
from benchmarks.jax_steps import jax_gelu_sum
from benchmarks.models import inference_subject, model_first_results
from benchmarks.programs import Maker, integers, module, normal, on

BFLOAT = torch.bfloat16


def overhead() -> list[Case]:
    """Calls of tiny functions: the cost of the call itself."""
    return [
        Case("x + 1, 8 elements", on(p.add_one, normal(8)), goals={"eager": 0.8}),
        Case("x + 1, 8 elements", on(p.add_one, normal(8, grad=True)), "training"),
        Case("chain of 10 ops, 16 elements", on(p.chain_of_ten, normal(16))),
        Case("chain of 10 ops, 16 elements", on(p.chain_of_ten, normal(16, grad=True)), "training"),
        Case("MLP, 8 layers of 32", module(_mlp, normal(1, 32))),
        Case("MLP, 8 layers of 32", module(_mlp, normal(1, 32)), "training"),
        Case(
            "module with 100 parameters",
            module(_many, normal(4)),
            goals={"torch.compile": 0.5},
        ),
        Case("module with 100 parameters", module(_many, normal(4)), "training"),
        Case(
            "the call of BERT-base, graph free",
            inference_subject("bert-12", 1),
            goals={"torch.compile": 0.25},
            call_only=True,
            quick=False,
        ),
    ]


def _mlp() -> torch.nn.Module:
    return p.perceptron(8, 32)


def _many() -> torch.nn.Module:
    return p.ManyParameters(100)


def first_results() -> list[Case]:
    """First calls in a fresh process; the goal is a part of torch.compile's time."""
    pair = (normal(64, 256), normal(64, 256))
    affine = (normal(32, 64), normal(64, 128), normal(128))
    return [
        Case("gelu(x*y+1).sum(-1)", _gelu_sum(*pair), goals={"torch.compile": 1 / 15}),
        Case("softmax(x@w+b)", on(p.affine_softmax, *affine), quick=False),
        Case("MLP, 3 layers", module(p.three_layers, normal(16, 64)), "training", quick=False),
        Case(
            "capture of BERT-base, 1 x 128",
            inference_subject("bert-12", 1),
            goals={"torch.compile": 0.5},
            call_only=True,  # nothing is compiled
            quick=False,
        ),
        *model_first_results(),
    ]


def _gelu_sum(*makers: Callable[[], torch.Tensor]) -> Maker:
    """With JAX's own program beside it."""

    def make() -> Subject:
        inputs = tuple(one() for one in makers)
        return Subject(p.gelu_sum, inputs, own={"jax": lambda: jax_gelu_sum(*inputs)})

    return make


def kernels() -> list[Case]:
    """One kernel each, one thread; --quick takes one size of each."""
    return [*_sized(), *_half(), *_single(), *_training()]


def _sized() -> Iterator[Case]:
    """Rows of three sizes (1e4, 1e6, 1e7 elements) or two; the middle one is quick."""
    for rows in (10, 1_000, 10_000):
        yield from _at(
            rows,
            ("gelu chain", on(p.gelu_chain, normal(rows, 1000), normal(rows, 1000))),
            ("softmax", on(p.softmax, normal(rows, 1000))),
            ("layer norm", on(p.layer_norm, normal(rows, 1000), normal(1000), normal(1000))),
            (
                "add + rms norm",
                on(p.add_rms_norm, normal(rows, 1000), normal(rows, 1000), normal(1000)),
            ),
            ("AdamW, 100 tensors", _adamw(rows * 10)),
        )
    for rows in (1_000, 10_000):
        yield from _at(
            rows,
            ("rope", on(p.rope, normal(1, 10, rows, 100), normal(rows, 100), normal(rows, 100))),
            ("cross entropy", on(p.cross_entropy, normal(rows, 1000), integers(1000, rows))),
            ("sum over dim 0", on(p.sum_rows, normal(rows, 1000))),
            ("sum over dim 1", on(p.sum_columns, normal(rows, 1000))),
            ("sum of squares, all", on(p.sum_of_squares, normal(rows, 1000))),
            ("transpose + add", on(p.transpose_add, normal(rows, 1000), normal(1000, rows))),
            ("strided multiply", on(p.strided_multiply, normal(rows, 2000), normal(rows, 2000))),
            (
                "embedding + add",
                on(p.embedding_add, integers(5000, rows), normal(5000, 1000), normal(1000)),
            ),
        )
        yield Case(
            _sized_name("dropout", rows),
            on(p.dropout, normal(rows, 1000)),
            quick=rows == 1_000,
            random=True,
        )


def _at(rows: int, *named: tuple[str, Maker]) -> Iterator[Case]:
    for name, make in named:
        yield Case(_sized_name(name, rows), make, quick=rows == 1_000)


def _sized_name(name: str, rows: int) -> str:
    return f"{name}, {rows * 1000:.0e}".replace("e+0", "e")


def _adamw(size: int) -> Maker:
    """A hundred tensors of `size` elements, with gradients and both moments."""

    def make() -> Subject:
        tensors = [[torch.rand(size) for _ in range(100)] for _ in range(4)]
        return Subject(p.adamw, tuple(tensors))

    return make


def _half() -> Iterator[Case]:
    wide = normal(1000, 1000, dtype=BFLOAT)
    row = normal(1000, dtype=BFLOAT)
    for name, make in (
        ("gelu chain", on(p.gelu_chain, wide, wide)),
        ("softmax", on(p.softmax, wide)),
        ("layer norm", on(p.layer_norm, wide, row, row)),
        ("add + rms norm", on(p.add_rms_norm, wide, wide, row)),
    ):
        yield Case(f"{name}, bf16, 1e6", make, tolerance=3e-2, quick=False)


def _single() -> Iterator[Case]:
    yield Case("var_mean over dims 0 and 2, 1e6", on(p.var_mean, normal(32, 64, 500)))
    yield Case("argmax over dim 1, 1e6", on(p.argmax, normal(1000, 1000)))
    yield Case("cumsum over dim 1, 1e6", on(p.cumsum, normal(1000, 1000)))


def _training() -> Iterator[Case]:
    wide = normal(1000, 1000, grad=True)
    row = normal(1000, grad=True)
    for name, make in (
        ("gelu chain", on(p.gelu_chain, wide, wide)),
        ("softmax", on(p.softmax, wide)),
        ("layer norm", on(p.layer_norm, wide, row, row)),
        ("cross entropy", on(p.cross_entropy, wide, integers(1000, 1000))),
    ):
        yield Case(f"{name}, 1e6", make, "training")


def higher() -> list[Case]:
    """Losses that are made of gradients: the network is compiled, the loss is not."""
    rows = [
        ("gradient penalty", _used(p.gradient_penalty, 4, 512, normal(64, 256, grad=True))),
        ("gradient penalty, small", _used(p.gradient_penalty, 3, 64, normal(16, 64, grad=True))),
        ("heat equation (PINN)", _used(p.heat_equation, 5, 128, normal(1024, 2, grad=True))),
        ("heat equation (PINN), small", _used(p.heat_equation, 4, 32, normal(64, 2, grad=True))),
        ("three inner steps (MAML)", _adapted),
    ]
    return [Case(name, make, "training", goals={"eager": 0.9}) for name, make in rows]


def _used(
    use: Callable[..., torch.Tensor], layers: int, width: int, inputs: Callable[[], torch.Tensor]
) -> Maker:
    def make() -> Subject:
        given = inputs()
        network = p.smooth_perceptron(layers, width, given.shape[1])
        return Subject(network, (given,), used=use)

    return make


def _adapted() -> Subject:
    sizes = ((32, 128), (128, 128), (128, 128), (128, 1))
    weights = [torch.nn.Parameter(torch.randn(size) / size[0] ** 0.5) for size in sizes]
    return Subject(p.regression, (normal(64, 32)(), normal(64, 1)(), *weights), used=p.adapted)


def functions() -> list[Case]:
    """Transforms of `torch.func` inside of what is compiled."""
    return [
        Case("gradients of 64 samples", p.samples, goals={"torch.compile": 1.0}),
        Case("ensemble of 10", p.ensemble, goals={"torch.compile": 1.0}),
        Case("Hessian-vector product", p.hessian_vector, goals={"torch.compile": 1.0}),
        Case("Jacobians of 64 samples", p.jacobians, goals={"torch.compile": 1.0}),
    ]


def writes() -> list[Case]:
    """Programs that write their inputs: at most eager's time."""
    cache, row = normal(1, 8, 2048, 128), normal(1, 8, 1, 128)  # 8 MB
    return [
        *_written(
            ("a row of a cache", on(p.cache_row, cache, row)),
            ("a row of a cache, attention", on(p.cache_attention, cache, row, row)),
            ("index_copy_, 1 row", on(p.cache_index_copy, cache, _places(1), row)),
            ("index_copy_, 4 rows", on(p.cache_index_copy, cache, _places(4), _rows(4))),
            ("index_put_, 1 row", on(p.cache_index_put, cache, _places(1), row)),
            ("a row of a replay buffer", on(p.replay_row, *_memory())),
            ("moving average, 1e3", on(p.moving_average, normal(1000), normal(1000))),
            ("moving average, 1e6", on(p.moving_average, normal(1000, 1000), normal(1000, 1000))),
            ("moving averages of 100", _hundred(p.moving_averages)),
            ("moving averages of 100, foreach", _hundred(p.moving_averages_at_once)),
            ("gradients added, 100", _hundred(p.accumulate)),
            ("a parameter and its data", _shared()),
        ),
        *_written(
            ("gradients added, .backward()", _accumulating),
            ("a row of a buffer", module(lambda: p.Remembers(2048, 1024), normal(64, 1024))),
            ("a buffer", module(lambda: p.Averages(512, 1024), normal(512, 1024))),
            mode="training",
        ),
    ]


def _written(*named: tuple[str, Maker], mode: Mode = "inference") -> Iterator[Case]:
    for name, make in named:
        yield Case(name, make, mode, goals={"eager": 1.0})


def _places(count: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.arange(count) * 3 + 5


def _rows(count: int) -> Callable[[], torch.Tensor]:
    return normal(1, 8, count, 128)


def _memory() -> tuple[Callable[[], torch.Tensor], ...]:
    """Observations and rewards of ten thousand steps, and those of another one."""
    return normal(10_000, 256), normal(10_000), normal(256), normal()


def _hundred(program: Callable[..., None]) -> Maker:
    def make() -> Subject:
        lists = [[torch.rand(1000) for _ in range(100)] for _ in range(2)]
        return Subject(program, tuple(lists))

    return make


def _shared() -> Maker:
    def make() -> Subject:
        parameter = torch.randn(1000)
        return Subject(p.shared_memory, (parameter, parameter.data))

    return make


def _accumulating() -> Subject:
    """A parameter whose gradient is there already, and stays."""
    loss = p.Accumulates(100_000)
    loss.weight.grad = torch.zeros_like(loss.weight)
    return Subject(loss, (normal(100_000)(),), kept_gradients=True)
