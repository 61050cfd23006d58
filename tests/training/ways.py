"""Who is compiled of a training loop: the step, the model, the optimizer's step, passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import windfall
from tests.training.loops import Ways


@dataclass(frozen=True)
class Compiled:
    """Who is compiled in a way, and whether passes are taken over."""

    ways: Callable[[Any], Ways]
    takes_over: bool = False


COMPILED = {
    "step": Compiled(lambda compiled: Ways(step=compiled)),
    "engine": Compiled(lambda compiled: Ways(model=compiled), takes_over=True),
    "model": Compiled(lambda compiled: Ways(model=compiled)),
    "update": Compiled(lambda compiled: Ways(update=compiled)),
}


def pair(make: Callable[[Ways], Any], way: str, seed: int) -> tuple[Any, Any, list[Any]]:
    """What is made of eager's parts, of compiled ones, and all that was compiled."""
    functions: list[Any] = []

    def compiled(one: Any) -> Any:
        functions.append(windfall.compile(one))
        return functions[-1]

    made = []
    for ways in (Ways(), COMPILED[way].ways(compiled)):
        torch.manual_seed(seed)
        made.append(make(ways))
    return made[0], made[1], functions
