"""Tensors of other layouts that a program makes: a break, never taken for dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

PLACES = torch.tensor([[0, 1, 2, 2], [0, 1, 0, 1]])
MAKES: dict[str, Callable[[torch.Tensor], Any]] = {
    "of places": lambda v: torch.sparse_coo_tensor(PLACES, v, (3, 2)),
    "of places alone": lambda v: torch.sparse_coo_tensor(PLACES, v),
    "of rows": lambda v: torch.sparse_csr_tensor(PLACES[0], PLACES[1, :3], v[:3], (3, 2)),
    "zeros": lambda v: torch.zeros(2, 2, layout=torch.sparse_coo),
    "empty": lambda v: torch.empty(3, 2, layout=torch.sparse_coo),
    "zeros_like": lambda v: torch.zeros_like(v, layout=torch.sparse_coo),
    "new_zeros": lambda v: v.new_zeros((3, 2), layout=torch.sparse_coo),
    "to_sparse": lambda v: v.view(2, 2).to_sparse(),
    "to_mkldnn": lambda v: v.to_mkldnn(),
}
ASKS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the tensor": lambda made: made,
    "dense": lambda made: made.to_dense(),
    "is_sparse": lambda made: made.is_sparse,
    "layout": lambda made: made.layout,
    "added": lambda made: torch.zeros(made.shape) + made,
    "added in place": lambda made: torch.zeros(made.shape).add_(made, alpha=-2),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("make", MAKES)
def test_as_eager(make: str, ask: str) -> None:
    def run(v: torch.Tensor) -> Any:
        return ASKS[ask](MAKES[make](v))

    def answer(function: Callable[[torch.Tensor], Any]) -> Any:
        try:
            found = function(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        except RuntimeError as error:
            return str(error)
        return (found.layout, found.to_dense()) if isinstance(found, torch.Tensor) else found

    compiled = windfall.compile(run)
    for _ in range(2):
        wanted, found = answer(run), answer(compiled)
        if isinstance(wanted, tuple):
            assert found[0] is wanted[0] and torch.equal(found[1], wanted[1])
        else:
            assert found == wanted
    assert windfall.explanation(compiled).breaks
