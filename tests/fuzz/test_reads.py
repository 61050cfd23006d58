"""Random programs that read data on their way, eager against compiled."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
import torch.nn.functional

import windfall
from tests.fuzz import reading

SEEDS = range(16)


@pytest.mark.parametrize("backend", ["eager", "windfall"])
@pytest.mark.parametrize("seed", SEEDS)
def test_reads(seed: int, backend: str) -> None:
    source = reading.program(seed)
    file = f"<reads {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, file, "exec"), namespace)
    function = namespace["f"]
    compiled = windfall.compile(function, backend=backend)
    for count, rows in reading.CALLS:
        given = reading.inputs(seed, count, rows)
        expected = reading.outcome(function, given, grad=seed % 3 == 0)
        found = reading.outcome(compiled, given, grad=seed % 3 == 0)
        assert reading.same(found, expected), f"{source}\n{count} of {rows}\n{found}\n{expected}"
