"""The curve of `memory_budget`: what a training step needs and takes, for each budget.

Enters: nothing, or names of recipes (`python -m benchmarks.budget bert-4`). Leaves: the table of
`docs/memory.md`. Each row is a process of its own (`python -m benchmarks.budget RECIPE BATCH WHO`).
Peaks are measured as `memory.py` says, so they hold the weights and AdamW's moments too; "saved" is
what autograd keeps between forward and backward, parameters not counted; times are CPU seconds of
one step on one thread, the median of STEPS. Batches are such that memory is needed for activations.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from typing import Any

import torch

from benchmarks import process
from benchmarks.case import runner
from benchmarks.memory import WARM_STEPS, forget_peak, peak, resident
from benchmarks.models import training_subject
from examples.models import transformers

RECIPES = {"bert-4": 16, "gpt2-6": 8, "resnet-18": 32}  # and their batches
BUDGETS = ("1", "0.75", "0.5", "0.25", "0")
STEPS = 5


def _ready(program: Any, who: str) -> Any:
    import windfall

    if who == "eager":
        return program
    return windfall.compile(program, options={"memory_budget": float(who)})


def _child(recipe: str, batch: str, who: str) -> None:
    torch.set_num_threads(1)
    transformers()
    _ready(torch.nn.Linear(4, 4), who)(torch.ones(2, 4)).sum().backward()
    gc.collect()
    before = resident()
    subject = training_subject(recipe, int(batch))()
    run = runner(subject, _ready(subject.program, who), "training")
    for _ in range(WARM_STEPS):
        run()
    gc.collect()
    forget_peak()
    times = []
    for _ in range(STEPS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    found = {"peak": peak() - before, "seconds": statistics.median(times)}
    print(json.dumps({**found, "saved": _saved(run, subject.leaves())}))


def _saved(run: Any, leaves: Any) -> int:
    known = {one.data_ptr() for one in leaves}
    bytes_of: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        if one.data_ptr() not in known:
            bytes_of[one.data_ptr()] = one.untyped_storage().nbytes()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        run()
    return sum(bytes_of.values())


def _table(recipes: list[str]) -> None:
    print("| model | | saved | peak | of eager's | time | of eager's |")
    print("|---|---|---|---|---|---|---|")
    for recipe in recipes:
        eager: dict[str, Any] = {}
        for who in ("eager", *BUDGETS):
            found = process.answer("benchmarks.budget", recipe, str(RECIPES[recipe]), who)
            eager = eager or found
            shares = [found[name] / eager[name] for name in ("peak", "seconds")]
            print(
                f"| {recipe}, batch {RECIPES[recipe]} | {who} | {found['saved'] / 1e6:.0f} MB "
                f"| {found['peak'] / 1e6:.0f} MB | {shares[0]:.2f} "
                f"| {found['seconds']:.2f} s | {shares[1]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _child(*sys.argv[1:])
    else:
        _table(sys.argv[1:] or list(RECIPES))
