"""The least part of a graph that still goes wrong.

Enters: a `Case` that goes wrong, and who tells whether another one does. Leaves: one with as few
operations as were found: one if one alone does it, else those that one value needs (or the first
ones), thinned out.
Invariant: what is answered goes wrong in the same way (a difference, an error, a crash); with no
time left it is the best so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from windfall.diagnosis.cases import Case, ancestors

# Which of some cases is the first to go wrong; None: none does, or there is no time left.
FirstWrong = Callable[[Sequence[Case]], Case | None]


def reduced(case: Case, first_wrong: FirstWrong) -> Case:
    """As little of it as still goes wrong."""
    alone = first_wrong([Case(case.recorded, (one,), (one,)) for one in _distinct(case)])
    if alone is not None:
        return alone
    up_to = (
        Case(case.recorded, ancestors(one, case.operations), (one,))
        for one in case.operations
        if _is_answer(case, one)
    )
    least = first_wrong([one for one in up_to if len(one.operations) > 1])
    # What is written in place is read by nobody who says so: all values up to some place are then
    # answered.
    least = least or first_wrong([*_beginnings(case)])
    return _thinned(least if least is not None else case, first_wrong)


def _beginnings(case: Case) -> Iterator[Case]:
    for end in range(2, len(case.operations) + 1):
        begun = case.operations[:end]
        yield Case(case.recorded, begun, tuple(one for one in begun if _is_answer(case, one)))


def _thinned(case: Case, first_wrong: FirstWrong) -> Case:
    """Without whatever can be given as a value: large parts first."""
    part = max(1, len(case.operations) // 2)
    while True:
        smaller = first_wrong([*_without(case, part)])
        if smaller is not None:
            case = smaller
        elif part == 1:
            return case
        part = part if smaller is not None else part // 2
        part = max(1, min(part, len(case.operations) // 2))


def _without(case: Case, part: int) -> Iterator[Case]:
    operations = case.operations
    for start in range(0, len(operations), part):
        kept = operations[:start] + operations[start + part :]
        if kept and {*case.results} & {*kept}:
            results = tuple(one for one in case.results if one in kept)
            yield Case(case.recorded, kept, results)


def _distinct(case: Case) -> Iterator[torch.fx.Node]:
    """The operations, equal ones (of arguments of the same types) once."""
    seen: set[str] = set()
    for node in case.operations:
        if not _is_answer(case, node):
            continue
        key = f"{node.target} {_types(node.args, case)} {_types(tuple(node.kwargs.items()), case)}"
        if key not in seen:
            seen.add(key)
            yield node


def _is_answer(case: Case, node: torch.fx.Node) -> bool:
    """Whether its value can be a result: it is, or holds, a tensor."""
    value: Any = case.recorded.values.get(node)
    several = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(one, torch.Tensor) for one in several)


def _types(value: Any, case: Case) -> str:
    if isinstance(value, torch.fx.Node):
        value = case.recorded.values.get(value)
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{[*value.shape]}{value.stride()}{value.requires_grad}"
    if isinstance(value, list | tuple):
        return f"({' '.join(_types(one, case) for one in value)})"
    return repr(value)
