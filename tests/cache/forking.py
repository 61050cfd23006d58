"""A process whose forks are like fresh ones, but for what takes them long: loading windfall.

Enters: nothing. Leaves: a parent in which a program was compiled that no row has, without a cache:
modules, LLVM and the runtime's own machine code are there. Invariant: no cache has been opened, and
no thread runs that a fork would lose.
"""

from __future__ import annotations

import tempfile

import torch

import windfall
from windfall.cache import key


def load() -> None:
    """Before the first fork. Training, a break, a module: whatever loads something."""
    torch.set_num_threads(1)
    layer = torch.nn.Linear(3, 3)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = layer(x).relu()
        windfall.graph_break()
        return y.sum(-1)

    compiled = windfall.compile(program, options={"cache": "off"})
    with torch.no_grad():
        compiled(torch.ones(2, 3))
    compiled(torch.ones(2, 3)).sum().backward()
    with tempfile.TemporaryDirectory() as place:  # and what a cache loads
        chosen = {"cache": "on", "cache_dir": f"{place}/cache", "cache_entries": "always"}
        windfall.compile(lambda x: x - 3, options=chosen)(torch.ones(2))
    windfall.cache.cache._opened.cache_clear()
    windfall.reset()
    key.surroundings()
