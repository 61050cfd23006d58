"""Ops of somebody else's may keep what they are given: it stays what it was, whatever the program
does with its memory afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

LIBRARY = torch.library.Library("keeping", "FRAGMENT")
KEPT: list[torch.Tensor] = []


def _define(name: str, schema: str, run: Callable[..., Any], meta: Callable[..., Any]) -> None:
    LIBRARY.define(name + schema)
    LIBRARY.impl(name, run, "CPU")
    LIBRARY.impl(name, meta, "Meta")


def _one(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x)
    return x + 1


def _view(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x[1:])  # a view counts as well
    return x + 1


def _several(xs: list[torch.Tensor]) -> torch.Tensor:
    KEPT.extend(xs)
    return sum(xs, torch.zeros(()))


def _listing(x: torch.Tensor) -> list[torch.Tensor]:
    KEPT.append(x)
    return [x + 1, x + 2]


_define("one", "(Tensor x) -> Tensor", _one, torch.empty_like)
_define("view", "(Tensor x) -> Tensor", _view, torch.empty_like)
_define("several", "(Tensor[] xs) -> Tensor", _several, lambda xs: torch.empty_like(xs[0]))
_define("listing", "(Tensor x) -> Tensor[]", _listing, lambda x: [torch.empty_like(x)] * 2)

OPS = torch.ops.keeping
# The program, and how the op is called in it.
PROGRAMS: dict[str, tuple[Callable[..., Any], str]] = {
    "an intermediate value": (lambda x: OPS.one(x.sin() + 1).cos() * 2, "native call"),
    "a view of it": (lambda x: OPS.view(x.sin() + 1).cos() * 2, "native call"),
    "an input": (lambda x: OPS.one(x).cos() * 2, "native call"),
    "a list": (lambda x: OPS.several([x.sin(), x.cos()]).exp() + 1, "native call"),
    "twice": (lambda x: OPS.one(OPS.one(x.sin()).cos()).exp(), "native call"),
    "of a list of results": (lambda x: OPS.listing(x.sin() + 1)[1].cos() * 2, "python call"),
}


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kept_operands_stay(name: str, native: bool) -> None:
    program, how = PROGRAMS[name]
    compiled = windfall.compile(program, options={"native": native})
    calls = [torch.randn(32, 8) for _ in range(4)]
    kept = []
    for call in (program, compiled):
        KEPT.clear()
        for x in calls:
            call(x.clone())
        kept.append([one.clone() for one in KEPT])
    torch.testing.assert_close(*kept)
    assert how in {note.kind for note in windfall.explanation(compiled).kernels()}
