"""A part of torch's own list of ops; `make conformance` runs the whole of it."""

from __future__ import annotations

import pytest

from tests.autograd.sweep import DTYPES, sweep
from tests.autograd.sweep_second import sweep as sweep_second
from tests.autograd.sweep_varying import sweep as sweep_varying

NAMES = (
    "add", "addmm", "argmax", "baddbmm", "bmm", "cat", "chunk", "clamp", "cumsum", "diagonal",
    "div", "einsum", "expand", "gather", "index_add", "index_put", "index_select", "linalg.norm",
    "log_softmax", "masked_fill", "matmul", "max", "mean", "nn.functional.batch_norm",
    "nn.functional.conv2d", "nn.functional.cross_entropy", "nn.functional.dropout",
    "nn.functional.embedding", "nn.functional.gelu", "nn.functional.group_norm",
    "nn.functional.layer_norm", "nn.functional.max_pool2d", "nn.functional.mse_loss",
    "nn.functional.scaled_dot_product_attention", "norm", "pow", "prod", "roll", "scatter",
    "select_scatter", "slice_scatter", "softmax", "split", "squeeze", "stack", "std", "sum",
    "take_along_dim", "tril", "unbind", "unfold", "var_mean", "where",
)  # fmt: skip


def test_ops_agree_with_eager() -> None:
    outcomes = list(sweep(NAMES))
    assert len(outcomes) >= len(NAMES)
    odd = [one for one in outcomes if one.kind != "equal"]
    if any("expecttest" in one.detail for one in odd):
        pytest.skip("torch's list of ops needs expecttest")
    assert not odd, "\n".join(f"{one.kind} {one.name}: {one.detail}" for one in odd)


def test_ops_agree_with_eager_at_sizes_that_vary() -> None:
    outcomes = list(sweep_varying(NAMES[1::2]))
    if any("expecttest" in one.detail for one in outcomes):
        pytest.skip("torch's list of ops needs expecttest")
    assert not [one for one in outcomes if one.kind in ("wrong", "unsupported")]
    specialised = {one.name for one in outcomes if one.kind == "specialises"}
    assert specialised == SPECIALISED


def test_second_derivatives_agree_with_eager() -> None:
    outcomes = list(sweep_second((*NAMES[::2], "linalg.eigvalsh", "linalg.solve", "div")))
    if any("expecttest" in one.detail for one in outcomes):
        pytest.skip("torch's list of ops needs expecttest")
    odd = [one for one in outcomes if one.kind not in ("equal", "skipped")]
    assert not odd, "\n".join(f"{one.kind} {one.name}: {one.detail}" for one in odd)
    assert sum(one.kind == "equal" for one in outcomes) > 25


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_ops_agree_with_eager(dtype: str) -> None:
    outcomes = list(sweep((), DTYPES[dtype]))
    wrong = [one for one in outcomes if one.kind == "wrong" and one.name not in REFUSED]
    assert not wrong, "\n".join(f"{one.name}: {one.detail}" for one in wrong)
    assert sum(one.kind == "equal" for one in outcomes) > 350


# Eager refuses the gradient of complex eigenvectors when it sees the tangent.
REFUSED = {"linalg.eigh"}


# The value that `trace` fills with is read from the tangent, which raises when it is tried.
NOT_TWICE = {"trace"}
# Their second derivatives compare data on the way (`allclose`), and raise when they are tried.
NOT_TWICE_COMPLEX = {"norm.nuc", "linalg.cond", "linalg.svdvals"}


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", DTYPES)
def test_second_derivatives_of_all_ops_agree_with_eager(dtype: str) -> None:
    outcomes = list(sweep_second((), DTYPES[dtype]))
    odd = NOT_TWICE | REFUSED | (NOT_TWICE_COMPLEX if dtype == "complex64" else set())
    wrong = [one for one in outcomes if one.kind == "wrong" and one.name not in odd]
    assert not wrong, "\n".join(f"{one.name}: {one.detail}" for one in wrong)
    assert sum(one.kind == "equal" for one in outcomes) > 300


# As many results as the size says; sizes as integers in C++.
SPECIALISED = {"take_along_dim", "unbind"}


@pytest.mark.conformance
@pytest.mark.parametrize(("dim", "skip"), [(0, 0), (-1, 0), (0, 1), (-1, 2)])
def test_all_ops_agree_with_eager_at_sizes_that_vary(dim: int, skip: int) -> None:
    outcomes = list(sweep_varying((), dim, skip))
    wrong = [one for one in outcomes if one.kind == "wrong"]
    assert not wrong, "\n".join(f"{one.name}: {one.detail}" for one in wrong)
    assert sum(one.kind in ("equal", "related") for one in outcomes) > 300
