"""One scenario, told by eager and by windfall: all that the user can see of it, and how it ran.

Enters: a scenario: a function of `compile`, which answers what it saw. Leaves: nothing, or the
difference. Invariant: a scenario makes its own tensors from a seed, so that both tell of equal
ones; what it answers says also what is no value: strides, leaves, who shares memory with whom.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import windfall
from tests.seeds import set_seed

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
NATIVE: dict[str, int] = {}


def leaf(*sizes: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A leaf that needs a gradient."""
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


def seen(*values: Any) -> list[Any]:
    """What can be seen of each tensor alone, and of all together. (Versions: `versions`.)"""
    tensors = [one for one in values if isinstance(one, torch.Tensor)]
    told: list[Any] = [_alone(one) if isinstance(one, torch.Tensor) else one for one in values]
    told.append([[a is b for b in tensors] for a in tensors])
    told.append([[_shares(a, b) for b in tensors] for a in tensors])
    return told


def _alone(one: torch.Tensor) -> Any:
    try:
        gradient = one.grad if one.is_leaf or one.retains_grad else None
    except RuntimeError as error:  # of a view to which this may not be done, eager says so late
        return _words(error)
    return {
        "value": one.detach().clone(),
        "strides": [s for s, size in zip(one.stride(), one.shape, strict=True) if size != 1],
        "leaf": one.is_leaf,
        "needs": one.requires_grad,
        "conjugate": (one.is_conj(), one.is_neg()),
        "gradient": None if gradient is None else gradient.detach().clone(),
    }


def versions(*values: torch.Tensor) -> list[int]:
    """How often each was written."""
    return [one._version for one in values]


def _shares(one: torch.Tensor, other: torch.Tensor) -> int | None:
    """How many bytes the second begins behind the first, if they lie in one memory."""
    if not one.numel() or not other.numel():  # what is empty has no address
        return None
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return None
    places = (each.storage_offset() * each.element_size() for each in (one, other))
    return -next(places) + next(places)


def eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of `compile`, where eager tells."""
    return function


def raised(call: Callable[[], Any]) -> Any:
    """What it raises: the class and the first words."""
    try:
        call()
    except Exception as error:
        return _words(error)
    return None


def _words(error: Exception) -> tuple[str, str]:
    text = re.sub(r"Output \d+ of \w+", "It", str(error))  # its own nodes have names of their own
    return type(error).__name__, " ".join(text.split()[:8])


def run(scenario: Callable[[Compile], Any], compile: Compile) -> Any:
    """What a scenario sees; the thread's state has to be as before."""
    set_seed(0)
    before = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    found = scenario(compile)
    assert (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")) == before
    return found, torch.get_rng_state()


def both(
    scenario: Callable[[Compile], Any], how: dict[str, int] | None = None, **settings: Any
) -> list[Any]:
    """Compare what is seen, and how it ran: `how`, as `Explanation.eager` counts it, or natively.
    The compiled functions."""
    made: list[Any] = []

    def compiling(function: Callable[..., Any]) -> Any:
        made.append(windfall.compile(function, **settings))
        return made[-1]

    wanted = run(scenario, eager)
    same(run(scenario, compiling), wanted)
    ran = Counter[str]()
    for one in made:
        ran.update(windfall.explanation(one).eager)
    reasons = [one for compiled in made for one in windfall.explanation(compiled).fallbacks]
    breaks = [str(one) for compiled in made for one in windfall.explanation(compiled).breaks]
    assert dict(ran) == (how or NATIVE), (dict(ran), reasons, breaks)
    assert any(windfall.explanation(one).kernels() for one in made) or how
    return made


# How near numbers have to be, by dtype, where it is not as `assert_close` has it.
Near = Mapping[torch.dtype, dict[str, float]]
_AS_USUAL: Near = {}


def same(ours: Any, eagers: Any, where: str = "", near: Near = _AS_USUAL) -> None:
    """Equal, in all that they say."""
    if isinstance(eagers, torch.Tensor):
        close = near.get(eagers.dtype, {})
        assert isinstance(ours, torch.Tensor), f"{where}: {ours} instead of a tensor"
        torch.testing.assert_close(
            ours, eagers, equal_nan=True, msg=lambda text: f"{where}: {text}", **close
        )
    elif isinstance(eagers, dict):
        assert ours.keys() == eagers.keys(), where
        for name, one in eagers.items():
            same(ours[name], one, f"{where}.{name}", near)
    elif isinstance(eagers, Sequence) and not isinstance(eagers, str):
        assert isinstance(ours, Sequence), f"{where}: {ours} instead of {eagers}"
        assert len(ours) == len(eagers), f"{where}: {ours} instead of {eagers}"
        for index, (one, other) in enumerate(zip(ours, eagers, strict=True)):
            same(one, other, f"{where}[{index}]", near)
    else:
        assert ours == eagers, f"{where}: {ours} instead of {eagers}"
