"""Constraints of `torch.distributions` whose code asks data how to go on, without the question.

Enters: a constraint and a tensor. Leaves: which of its events satisfy it, as torch answers.
Invariant: both ways are computed and the answer is chosen among them; neither of them raises.
"""

from __future__ import annotations

from typing import Any

import torch


def symmetric_matrices(constraint: Any, matrices: Any) -> Any:
    """Whether each is square, which all of them are or none; then whether it is its own mirror."""
    rows, columns = matrices.shape[-2:]
    if rows != columns:
        return torch.zeros(matrices.shape[:-2], dtype=torch.bool, device=matrices.device)
    return torch.isclose(matrices, matrices.mT, atol=1e-6).all(-2).all(-1)


def positive_definite_matrices(constraint: Any, matrices: Any) -> Any:
    """Symmetry comes first: where one of the batch is not, that is the answer."""
    symmetric = symmetric_matrices(constraint, matrices)
    if matrices.shape[-2] != matrices.shape[-1]:
        return symmetric
    definite = torch.linalg.cholesky_ex(matrices).info.eq(0)
    return torch.where(symmetric.all(), definite, symmetric)


def positive_semidefinite_matrices(constraint: Any, matrices: Any) -> Any:
    """Likewise, by eigenvalues."""
    symmetric = symmetric_matrices(constraint, matrices)
    if matrices.shape[-2] != matrices.shape[-1]:
        return symmetric
    definite = torch.linalg.eigvalsh(matrices).ge(0).all(-1)
    return torch.where(symmetric.all(), definite, symmetric)
