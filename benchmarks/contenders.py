"""Who runs: name → how a program is made ready. A new peer is one row of CONTENDERS.

Enters: a `Subject`. Leaves: a callable used like its program. Invariant: nothing is loaded for a
contender that does not run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from benchmarks.case import Case, Subject

Program = Callable[..., Any]
Backend = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """`ready` compiles (or not); `note` says in a few words what it made of a case."""

    ready: Callable[[Program, Backend | None], Program]
    note: Callable[[Case], str] = lambda case: ""


def _torch_compile(program: Program, backend: Backend | None) -> Program:
    import torch._dynamo

    torch._dynamo.reset()  # each case stands alone: no dynamic shapes learnt from another
    return torch.compile(program, backend=backend or "inductor")


def _windfall(program: Program, backend: Backend | None) -> Program:
    import windfall

    compiled: Program = windfall.compile(program, backend=backend or "windfall")
    return compiled


def _trees(program: Program, backend: Backend | None) -> Program:
    import windfall

    chosen = backend or "windfall"
    compiled: Program = windfall.compile(program, backend=chosen, mode="reduce-overhead")
    return compiled


def remembering(module: torch.fx.GraphModule, examples: list[Any]) -> Program:
    """A backend whose graph costs nothing: it answers what it answered at its first call."""
    answer: Any = None

    def call(*inputs: Any) -> Any:
        nonlocal answer
        if answer is None:
            answer = module(*inputs)
        return answer

    return call


def _windfall_note(case: Case) -> str:
    """Whether windfall compiled the case: a ratio of 1.0 may mean that it ran eagerly."""
    import windfall

    subject: Subject = case.subject()
    with torch.set_grad_enabled(case.differentiates):
        facts: dict[str, Any] = windfall.explain(subject.program)(*subject.inputs).to_dict()
    if facts["fallbacks"]:
        return f"ran eagerly: {facts['fallbacks'][0]}"
    made = [kernel["kind"] for kernel in facts["kernels"]]
    counts = [f"{made.count(kind)} {kind}" for kind in dict.fromkeys(made)]
    breaks = [f"{facts['break_count']} breaks"] if facts["break_count"] else []
    return ", ".join([*breaks, *counts]) or "no kernel"


CONTENDERS: dict[str, Contender] = {
    "eager": Contender(lambda program, backend: program),
    "windfall": Contender(_windfall, _windfall_note),
    "torch.compile": Contender(_torch_compile),
    "windfall trees": Contender(_trees),
}
# Peers with programs of their own (`Subject.own`), where they are installed.
PEERS = tuple(name for name in ("jax",) if importlib.util.find_spec(name) is not None)
CONTENDERS |= {name: Contender(lambda program, backend: program) for name in PEERS}
USUAL = ("eager", "windfall", "torch.compile", *PEERS)  # where nobody is named
