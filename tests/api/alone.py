"""Our words, in a process of their own: nothing of torch's compiler is loaded for them."""

from __future__ import annotations

import sys
from typing import Any

import torch

import windfall
from windfall import plugins


@windfall.disable(reason="r")
def native(x: torch.Tensor) -> torch.Tensor:
    return x


@windfall.allow_in_graph
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def program(x: torch.Tensor) -> torch.Tensor:
    windfall.graph_break()
    torch.compiler.cudagraph_mark_step_begin()
    return native(opaque(x)) if torch.compiler.is_compiling() else x


def entry_points() -> None:
    """They are read when a name is asked for that is not our own, and not before."""
    windfall.compile(lambda x: x + 1)(torch.ones(2))
    assert plugins.offered.cache_info().misses == 0
    assert windfall.list_backends() == sorted({"aot_eager", "eager", *plugins.offered()})
    assert plugins.offered()["windfall"].value == "windfall.dynamo_plugin:windfall"


def words() -> None:
    compiled: Any = windfall.compile(program)
    for _ in range(2):
        compiled(torch.ones(3))
    with windfall.set_stance("eager_on_recompile"):
        compiled(torch.ones(3))
    windfall.reset()
    loaded = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
    assert not loaded, loaded


if __name__ == "__main__":
    entry_points()
    words()
