"""Functions made of others answer what torch's own answer: asked with known sizes, on torch's own
samples and on a few more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from windfall.ops import decompositions

Call = tuple[tuple[Any, ...], dict[str, Any]]


def agrees(function: Callable[..., Any], rule: Callable[..., Any], call: Call) -> bool:
    """Results, strides, gradients; False: the rule does not know these arguments."""
    args, kwargs = call
    leaves = [one for one in _flat([args, kwargs]) if one.is_floating_point()]
    for one in leaves:
        one.requires_grad_()
    found = rule(*args, **kwargs)
    if found is None:
        return False
    wanted = function(*args, **kwargs)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    ours, theirs = (_gradients(one, leaves) for one in (found, wanted))
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-4)
    return True


def _flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _flat(one)


def _gradients(result: Any, leaves: list[torch.Tensor]) -> list[Any]:
    total = sum((one.abs() * (i + 1)).sum() for i, one in enumerate(_flat(result)))
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return []
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros(()) if one is None else one for one in found]


ROWS: list[tuple[str, Any, Any]] = [
    ("cov", torch.cov, decompositions._cov),
    ("corrcoef", torch.corrcoef, decompositions._corrcoef),
    ("kron", torch.kron, decompositions._kron),
    ("take_along_dim", torch.take_along_dim, decompositions._take_along_dim),
    ("stft", torch.stft, decompositions._stft),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "function", "rule"), ROWS, ids=[one[0] for one in ROWS])
def test_torchs_own_samples(name: str, function: Any, rule: Any) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    (info,) = [one for one in op_db if one.name == name]
    tried = 0
    for sample in islice(info.sample_inputs("cpu", torch.float32), 40):
        if name == "stft" and not sample.kwargs.get("return_complex"):
            continue
        tried += agrees(function, rule, ((sample.input, *sample.args), sample.kwargs))
    assert tried


def _cell(gates: int) -> Call:
    w, u = torch.randn(gates * 4, 3), torch.randn(gates * 4, 4)
    b, c = torch.randn(gates * 4), torch.randn(gates * 4)
    x, h = torch.randn(2, 3), torch.randn(2, 4)
    return (x, [h, torch.randn(2, 4)] if gates == 4 else h, w, u, b, c), {}


def _kron(first: tuple[int, ...], second: tuple[int, ...]) -> Callable[[], Call]:
    return lambda: ((torch.randn(first), torch.randn(second)), {})


MORE: list[tuple[Any, Any, Callable[[], Call]]] = [
    (torch.gru_cell, decompositions._gru_cell, lambda: _cell(3)),
    (torch.lstm_cell, decompositions._lstm_cell, lambda: _cell(4)),
    (torch.rnn_tanh_cell, decompositions._tanh_cell, lambda: _cell(1)),
    (torch.rnn_relu_cell, decompositions._relu_cell, lambda: _cell(1)),
    (torch.kron, decompositions._kron, _kron((2, 3), (4,))),
    (torch.kron, decompositions._kron, _kron((2,), (3, 1, 4))),
    (torch.kron, decompositions._kron, _kron((), (3, 2))),
    (torch.stft, decompositions._stft, lambda: ((torch.randn(2, 40), 8), {"return_complex": True})),
    (
        torch.stft,
        decompositions._stft,
        lambda: (
            (torch.randn(40), 8, 3, 5, torch.hann_window(5), False),
            {"normalized": True, "onesided": False, "return_complex": True},
        ),
    ),
]


# torch says it once in a process: which test hears it depends on what ran before.
@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize(("function", "rule", "call"), MORE)
def test_cells_and_signals(function: Any, rule: Any, call: Callable[[], Call]) -> None:
    torch.manual_seed(0)
    assert agrees(function, rule, call())


def test_pooling_knows_what_is_all_there_is() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert not decompositions._pools_all(x, [4, 4], (0,), 2)
    assert not decompositions._pools_all(x, [4, 5], (1,), 2)
    assert decompositions._pools_all(x, [4, 5], (0,), 2) and decompositions._pools_all(
        x, 5, (0,), 1
    )
    assert F.max_pool2d(x, (4, 5)).shape == (2, 3, 1, 1)
