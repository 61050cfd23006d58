"""The rows of each suite. A new row is one line here.

`overhead` measures calls, `compile` first results, `kernels` single kernels; `models` are whole
models, whose first results stand in `compile` too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks import programs as p
from benchmarks.case import Case, Subject
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
        Case("gelu(x*y+1).sum(-1)", on(p.gelu_sum, *pair), goals={"torch.compile": 1 / 15}),
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
