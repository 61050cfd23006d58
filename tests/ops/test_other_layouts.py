"""Sparse and quantised results: no graph takes them, eager makes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import windfall

Program = Callable[[torch.Tensor], object]

PROGRAMS: dict[str, Program] = {
    "coordinates": lambda x: torch.sparse_coo_tensor(x.long()[None], x, (8,)).to_dense() + 1,
    "coordinates, returned": lambda x: torch.sparse_coo_tensor(x.long()[None], x, (8,)),
    "coordinates, unread": lambda x: (torch.sparse_coo_tensor(x.long()[None], x, (8,)), x + 1)[1],
    "a product": lambda x: torch.sparse.mm(
        torch.sparse_coo_tensor(torch.stack([x.long(), x.long()]), x, (8, 8)), torch.ones(8, 2)
    ),
    "zeros": lambda x: torch.zeros(3, 3, layout=torch.sparse_coo).to_dense() + x[0],
    "zeros like": lambda x: torch.zeros_like(x, layout=torch.sparse_coo).to_dense() + x[0],
    "empty": lambda x: torch.empty(3, 3, layout=torch.sparse_coo).to_dense() + x[0],
    "made sparse": lambda x: x.to_sparse().to_dense() + 1,
    "by rows": lambda x: x[None].to_sparse_csr().to_dense() + 1,
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8).dequantize() + 1,
    "quantised, unread": lambda x: (torch.quantize_per_tensor(x, 0.5, 0, torch.qint8), x + 1)[1],
    "quantised by itself": lambda x: torch.quantize_per_tensor_dynamic(
        x, torch.qint8, False
    ).dequantize(),
    "quantised, returned": lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8),
    "of channels": lambda x: torch.quantize_per_channel(
        x, torch.ones(2), torch.zeros(2), 0, torch.qint8
    ).dequantize(),
    "plain": lambda x: torch.zeros(3, layout=torch.strided) + x[0],
}
IN_A_GRAPH = {"plain"}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_a_result_that_no_graph_takes_is_eagers(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = windfall.compile(program, dynamic=dynamic)
    for x in (torch.tensor([0.0, 1.0]), torch.tensor([3.0, 0.0])):
        assert repr(compiled(x)) == repr(program(x))
    explanation = windfall.explanation(compiled)
    assert bool(explanation.breaks) == (name not in IN_A_GRAPH)
    assert not explanation.fallbacks
