"""One run of a program, eager beside compiled, and what differs.

Enters: a function, the calls of it, and options. Leaves: a text: nothing where both agree, else
`differs: …` or `raises: …`. Invariant: both run on copies of the arguments, with the same random
numbers; an error of windfall's own is raised, not hidden by eager; what eager itself refuses is no
finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall.diagnosis.comparison import differences
from windfall.diagnosis.state_copies import Copies
from windfall.events import EventLog
from windfall.options import Options
from windfall.pipeline import Compiler

DIFFERS, RAISES = "differs: ", "raises: "
_SHOWN = 3  # differences that are told


def trial_options(options: Options, **changes: Any) -> Options:
    """As the user's, with nothing hidden, kept or taken from elsewhere."""
    return replace(options, strict=True, cache="off", report="", verify_calls=0, **changes)


def compiled(function: Any, options: Options) -> Any:
    """The function, compiled anew."""
    return Compiler(options, EventLog(records=False)).compiled(function)


def judged(function: Any, calls: Sequence[tuple[Any, ...]], options: Options) -> str:
    """What differs first, over the calls of one compiled object; "": nothing."""
    eager, ours = Copies(), Copies()
    theirs, mine = eager.of(function), compiled(ours.of(function), options)
    for number, args in enumerate(calls):
        told = _call(theirs, eager.of(args), mine, ours.of(args))
        told = told or _written(eager, ours)
        if told:
            kind, _, rest = told.partition(": ")
            return f"{kind}: call {number}: {rest}" if len(calls) > 1 else told
    return ""


def _call(theirs: Any, args: tuple[Any, ...], mine: Any, copied: tuple[Any, ...]) -> str:
    state = torch.get_rng_state()
    try:
        expected = theirs(*args)
    except Exception:
        return ""
    torch.set_rng_state(state)
    try:
        actual = mine(*copied)
        found = [*differences(expected, actual)]
        found += differences(*_gradients(expected, args, actual, copied), "gradient")
    except Exception as error:
        return f"{RAISES}{type(error).__name__}: {error}"
    return f"{DIFFERS}{'; '.join(found[:_SHOWN])}" if found else ""


def _written(eager: Copies, ours: Copies) -> str:
    """What differs in the memory that the program was given."""
    pairs = zip(eager.pairs, ours.pairs, strict=True)
    found = [
        text
        for at, ((_, one), (_, other)) in enumerate(pairs)
        for text in differences(one.detach(), other.detach(), f"tensor {at}, afterwards")
    ]
    return f"{DIFFERS}{'; '.join(found[:_SHOWN])}" if found else ""


def _gradients(expected: Any, args: Any, actual: Any, copied: Any) -> tuple[Any, Any]:
    """Of all results that have one, for the tensors that are given."""
    return gradients(expected, tensors_in(args)), gradients(actual, tensors_in(copied))


def gradients(result: Any, inputs: Iterator[torch.Tensor]) -> Any:
    """The gradients of a result for these tensors; what torch refuses, by its name."""
    results = [one for one in tensors_in(result) if one.requires_grad]
    wanted = [one for one in inputs if one.requires_grad]
    if not results or not wanted:
        return None
    generator = torch.Generator().manual_seed(0)
    tangents = [
        torch.randn(one.shape, generator=generator, dtype=_real(one.dtype)).to(one.dtype)
        for one in results
    ]
    try:
        return torch.autograd.grad(results, wanted, tangents, allow_unused=True, retain_graph=True)
    except RuntimeError as error:
        return type(error).__name__


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)


Question = Callable[[], str]
