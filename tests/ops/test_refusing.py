"""What ops say of data that they refuse: class and words are eager's, whoever reads the result.

One row for each op that looks at its data. `ALSO_FINE` rows are those that eager takes: there our
checks, if they have any, must not be stricter than eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall
from windfall.ops.registry import lookup


def table() -> torch.Tensor:
    return torch.arange(20.0).reshape(5, 4) / 7 - 1


def far() -> torch.Tensor:
    return torch.tensor([0, 7, 2])


def below() -> torch.Tensor:
    return torch.tensor([0, -9, 2])


def square() -> torch.Tensor:
    return torch.tensor([[0, 7], [1, 2]])


def classes(last: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor([0, 1, 2, 3, last])


def constant(value: float, *sizes: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.full(sizes, value)


Row = tuple[Callable[[Any, Any], Any], Callable[[], torch.Tensor], Callable[[], torch.Tensor]]
ROWS: dict[str, Row] = {
    "index": (lambda x, i: x[i], table, far),
    "index below": (lambda x, i: x[i], table, below),
    "index of a column": (lambda x, i: x[:, i], table, far),
    "index of pairs": (lambda x, i: x[i, i], table, far),
    "index by one": (lambda x, i: x[i[1]], table, far),
    "index of 32 bits": (lambda x, i: x[i.int()], table, far),
    "index_put": (lambda x, i: x.index_put((i,), torch.ones(3, 4)), table, far),
    "index_put, adding": (
        lambda x, i: x.index_put((i,), torch.ones(3, 4), accumulate=True),
        table,
        far,
    ),
    "index_select": (lambda x, i: x.index_select(0, i), table, far),
    "index_select below": (lambda x, i: x.index_select(0, i), table, below),
    "index_select of columns": (lambda x, i: x.index_select(1, i), table, far),
    "gather": (lambda x, i: x.gather(1, i), table, square),
    "gather of rows": (lambda x, i: x.gather(0, i), table, square),
    "gather below": (lambda x, i: x.gather(1, i - 8), table, square),
    "take": (lambda x, i: x.take(i * 9), table, far),
    "scatter": (lambda x, i: x.scatter(1, i, torch.ones(2, 2)), table, square),
    "scatter of a number": (lambda x, i: x.scatter(1, i, 2.0), table, square),
    "scatter_add": (lambda x, i: x.scatter_add(1, i, torch.ones(2, 2)), table, square),
    "scatter_reduce": (
        lambda x, i: x.scatter_reduce(1, i, torch.ones(2, 2), "amax"),
        table,
        square,
    ),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(3, 4)), table, far),
    "index_copy": (lambda x, i: x.index_copy(0, i, torch.ones(3, 4)), table, far),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), table, far),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, torch.ones(3, 4), "prod"), table, far),
    "put": (lambda x, i: x.put(i * 9, torch.ones(3)), table, far),
    "embedding": (lambda x, i: F.embedding(i, x), table, far),
    "embedding below": (lambda x, i: F.embedding(i, x), table, below),
    "embedding with padding": (lambda x, i: F.embedding(i, x, padding_idx=0), table, far),
    "embedding_bag": (lambda x, i: F.embedding_bag(i, x, torch.tensor([0])), table, far),
    "one_hot": (lambda x, i: F.one_hot(i, 5) + x.sum(), table, far),
    "one_hot below": (lambda x, i: F.one_hot(i, 5) + x.sum(), table, below),
    "nll_loss": (lambda x, i: F.nll_loss(x, i), table, classes(9)),
    "nll_loss below": (lambda x, i: F.nll_loss(x, i), table, classes(-9)),
    "nll_loss of rows": (lambda x, i: F.nll_loss(x, i, reduction="none"), table, classes(9)),
    "nll_loss with weights": (lambda x, i: F.nll_loss(x, i, torch.ones(4)), table, classes(9)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), table, classes(9)),
    "cross_entropy, smoothed": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1),
        table,
        classes(9),
    ),
    "cross_entropy of images": (
        lambda x, i: F.cross_entropy(x.t()[None, :, :, None], i[None, :, None]),
        table,
        classes(9),
    ),
    "binary_cross_entropy": (
        lambda x, i: F.binary_cross_entropy(x, torch.ones_like(x)),
        table,
        far,
    ),
    "binary_cross_entropy of elements": (
        lambda x, i: F.binary_cross_entropy(x, torch.ones_like(x), reduction="none"),
        table,
        far,
    ),
    "binary_cross_entropy of NaN": (
        lambda x, i: F.binary_cross_entropy(x, torch.ones_like(x)),
        constant(float("nan"), 3),
        far,
    ),
    "multi_margin_loss": (lambda x, i: F.multi_margin_loss(x, i), table, classes(9)),
    "multilabel_margin_loss": (
        lambda x, i: F.multilabel_margin_loss(x, i[:, None].expand(5, 4)),
        table,
        classes(9),
    ),
    "cholesky": (lambda x, i: torch.linalg.cholesky(x), lambda: -torch.eye(3), far),
    "inv": (lambda x, i: torch.linalg.inv(x), constant(0.0, 3, 3), far),
    "cholesky, by its older name": (lambda x, i: torch.cholesky(x), lambda: -torch.eye(3), far),
    "inv_ex": (
        lambda x, i: torch.linalg.inv_ex(x, check_errors=True)[0],
        constant(0.0, 3, 3),
        far,
    ),
    "lu_factor_ex": (
        lambda x, i: torch.linalg.lu_factor_ex(x, check_errors=True)[0],
        constant(0.0, 3, 3),
        far,
    ),
    "ldl_factor_ex": (
        lambda x, i: torch.linalg.ldl_factor_ex(x, check_errors=True)[0],
        constant(0.0, 3, 3),
        far,
    ),
    "lu_solve": (
        lambda x, i: torch.linalg.lu_solve(x, i.int(), x),
        constant(1.0, 3, 3),
        below,
    ),
    "lu_unpack": (lambda x, i: torch.lu_unpack(x, i.int())[1], constant(1.0, 3, 3), below),
    "pinv": (lambda x, i: torch.linalg.pinv(x), constant(float("nan"), 3, 3), far),
    "histogram": (lambda x, i: torch.histogram(x, 3)[0], constant(float("nan"), 3), far),
    "histogramdd": (
        lambda x, i: torch.histogramdd(x, [2, 2])[0],
        constant(float("nan"), 3, 2),
        far,
    ),
    "solve": (lambda x, i: torch.linalg.solve(x, torch.ones(3)), constant(0.0, 3, 3), far),
    "eigh": (lambda x, i: torch.linalg.eigh(x)[0], constant(float("nan"), 3, 3), far),
    "svd": (lambda x, i: torch.linalg.svd(x)[1], constant(float("nan"), 3, 3), far),
    "floor division": (lambda x, i: i // (i - 7), table, far),
    "remainder": (lambda x, i: i % (i - 7), table, far),
    "fmod": (lambda x, i: torch.fmod(i, i - 7), table, far),
    "truncating division": (lambda x, i: torch.div(i, i - 7, rounding_mode="trunc"), table, far),
    "bernoulli": (lambda x, i: torch.bernoulli(x), table, far),
    "multinomial": (lambda x, i: torch.multinomial(x, 1), table, far),
    "multinomial of nothing": (lambda x, i: torch.multinomial(x * 0, 1), table, far),
    "normal": (lambda x, i: torch.normal(x, x), table, far),
    "poisson": (lambda x, i: torch.poisson(x), table, far),
    "bincount": (lambda x, i: torch.bincount(i), table, below),
    "repeat_interleave": (lambda x, i: x[:3].repeat_interleave(i, dim=0), table, below),
    "masked_scatter": (lambda x, i: x.masked_scatter(x == x, torch.ones(3)), table, far),
    "searchsorted": (
        lambda x, i: torch.searchsorted(x[0, :3].contiguous(), x[0], sorter=i),
        table,
        far,
    ),
    "max_unpool1d": (
        lambda x, i: F.max_unpool1d(x[None, :3], i[None, :, None].expand(1, 3, 4) + 99, 2),
        table,
        far,
    ),
    "histc": (lambda x, i: torch.histc(x), constant(float("inf"), 3), far),
    "quantile": (lambda x, i: torch.quantile(x, i.float()), table, far),
    "item": (lambda x, i: x[i[1].item()] + 1, table, far),
    "joined": (lambda x, i: torch.cat([x[i], x]), table, far),
    "chosen": (lambda x, i: torch.where(x[:2, :2] > 9, x.gather(1, i), 0.0), table, square),
    "multiplied": (lambda x, i: x[i] @ x.T, table, far),
    "an index of an index": (lambda x, i: x[i[i % 3]][:1], table, far),
    "gather of one number": (lambda x, i: x[0, 0].gather(0, i[1]), table, far),
    "remainder of a number": (lambda x, i: torch.remainder(5, i - 7), table, far),
    # Operands of which the lowering of what reads them needs nothing, or a part.
    "a zeroth power": (lambda x, i: x[i].pow(0), table, far),
    "one of two lists": (lambda x, i: torch._foreach_abs([x, x[i]])[0], table, far),
    "a bias times 0": (
        lambda x, i: torch.addmm(x[i], torch.ones(3, 3), torch.ones(3, 4), beta=0),
        table,
        far,
    ),
    "weights of a norm's mean": (
        lambda x, i: torch.native_layer_norm(torch.ones(2, 3), [3], x[:, 0][i], None, 1e-5)[1],
        table,
        far,
    ),
    "weights of a batch's mean": (
        lambda x, i: torch.native_batch_norm(
            torch.ones(2, 3), x[:, 0][i], None, None, None, True, 0.1, 1e-5
        )[1],
        table,
        far,
    ),
    "weights of other classes": (
        lambda x, i: F.nll_loss(torch.ones(2, 3), torch.tensor([0, 1]), x[:, 0][i]),
        table,
        far,
    ),
    "the other branch": (lambda x, i: torch.where(torch.tensor(True), x[:3], x[i]), table, far),
    "a mask that is emptied": (lambda x, i: (x > 0)[i] & False, table, far),
}
# A backward pass, or two results, cannot be asked of these.
WITHOUT_GRADIENT = {
    "one_hot", "one_hot below", "floor division", "remainder", "fmod", "truncating division",
    "remainder of a number", "a mask that is emptied",
    "bincount", "searchsorted", "index_reduce", "multinomial", "multinomial of nothing", "histc",
    "lu_unpack", "histogram", "histogramdd",
}  # fmt: skip
ALSO_FINE: dict[str, Row] = {
    "ignored class": (lambda x, i: F.nll_loss(x, i), table, classes(-100)),
    "ignored class of rows": (lambda x, i: F.cross_entropy(x, i, reduction="none")[:1], table,
                              classes(-100)),
    "index from the end": (lambda x, i: x[-i // 3][0], table, far),
    "take_along_dim": (lambda x, i: x[:2, :2].take_along_dim(i, 1), table, square),
    "probabilities": (lambda x, i: F.binary_cross_entropy(x.sigmoid(), x.sigmoid()), table, far),
    "division of floats": (lambda x, i: (x // (x - x))[0], table, far),
}  # fmt: skip

READERS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "all": lambda y, x: y * 2,
    "nobody": lambda y, x: x + 1,
    "a part": lambda y, x: y.reshape(-1)[:1] + 1,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Of two threads that find a fault each, eager names the fault of whichever is first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*arguments)
            if result.requires_grad:
                result.sum().backward()
                return result.detach(), arguments[0].grad
            return result
        except Exception as error:
            return type(error), str(error)


def both(row: Row, reader: str, grad: bool) -> tuple[Any, Any]:
    body, first, second = row
    read = READERS[reader]

    def program(x: torch.Tensor, i: torch.Tensor) -> Any:
        return read(body(x, i), x)

    compiled = windfall.compile(program, options={"strict": True, "verify": True})
    eager, ours = (
        outcome(one, first().requires_grad_(grad), second()) for one in (program, compiled)
    )
    return eager, ours


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ROWS)
def test_class_and_words_are_eagers(name: str, reader: str) -> None:
    eager, ours = both(ROWS[name], reader, False)
    assert isinstance(eager, tuple) and issubclass(eager[0], Exception), f"eager takes it: {eager}"
    assert ours == eager


@pytest.mark.parametrize("name", [name for name in ROWS if name not in WITHOUT_GRADIENT])
def test_class_and_words_are_eagers_in_training(name: str) -> None:
    eager, ours = both(ROWS[name], "all", True)
    assert isinstance(eager, tuple) and issubclass(eager[0], Exception), f"eager takes it: {eager}"
    assert ours == eager


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ALSO_FINE)
def test_what_eager_takes_is_taken(name: str, reader: str) -> None:
    eager, ours = both(ALSO_FINE[name], reader, False)
    torch.testing.assert_close(ours, eager, equal_nan=True)


def test_ops_that_refuse_are_known_by_their_overloads() -> None:
    aten = torch.ops.aten
    assert lookup(aten.embedding.default).refuses and lookup(aten.scatter.src).refuses
    assert not lookup(aten.add.Tensor).refuses and not lookup(aten.mm.default).refuses


@torch.library.custom_op("windfall_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    """An op of which nobody declared anything."""
    if not bool((x > 0).all()):
        raise ValueError("not positive")
    return x.clone()


@positive.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("reader", READERS)
def test_an_op_of_somebody_elses_may_refuse(reader: str) -> None:
    eager, ours = both((lambda x, i: positive(x), table, far), reader, False)
    assert ours == eager == (ValueError, "not positive")
