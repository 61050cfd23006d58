"""`torch.distributions`: what of it is not simply followed.

Enters: calls of constraints that branch on data. Leaves: the same without the branch (polyfills).
All else there is Python that is interpreted; its checks of arguments are branches that raise, and
stand in the graph (`checks.made_sure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributions import constraints

from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def _checked_by(constraint: Any, name: str) -> None:
    @calls(type(constraint).check)
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        return machine.values.polyfill(name, arguments, keywords)


_checked_by(constraints.symmetric, "symmetric_matrices")
_checked_by(constraints.positive_definite, "positive_definite_matrices")
_checked_by(constraints.positive_semidefinite, "positive_semidefinite_matrices")
