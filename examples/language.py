"""A small GPT-2 learns the repository's LICENSE, byte by byte, then writes some.

    python examples/language.py windfall      # or: eager

Trains with AdamW and dropout, generates, and prints one JSON object: times, memory, losses, text
and (for windfall) what `windfall.explain` says in short. `make demo` runs it once for each
contender, in a process of its own, so that first calls and memory are each contender's own; on one
thread, because a second does nothing for a model of this size but to wait.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TEXT = Path(__file__).resolve().parents[1] / "LICENSE"
LAYERS, WIDTH, HEADS = 6, 128, 4
CONTEXT, BATCH, STEPS = 64, 8, 240
WRITTEN = 160  # bytes generated
PROMPT = b"You may reproduce and distribute copies of the Work or Derivative Works"

Forward = Callable[..., Any]


def transformers() -> Any:
    """The library, with no thought of the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return importlib.import_module("transformers")


def language_model() -> Any:
    """GPT-2 over bytes."""
    library = transformers()
    config = library.GPT2Config(
        n_layer=LAYERS,
        n_embd=WIDTH,
        n_head=HEADS,
        n_positions=CONTEXT,
        vocab_size=256,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return library.GPT2LMHeadModel(config)


class Objective(nn.Module):
    """The model and its loss: each byte is to be told from those before it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, text: Tensor) -> Tensor:
        scores = self.model(text[:, :-1]).logits
        return F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


def train(forward: Forward, objective: nn.Module, text: Tensor) -> dict[str, Any]:
    """STEPS steps on random pieces of the text."""
    optimizer = torch.optim.AdamW(objective.parameters(), lr=5e-4, fused=True)
    pieces = text.unfold(0, CONTEXT + 1, 1)
    losses, times = [], []
    for number in range(STEPS):
        batch = pieces[torch.randint(len(pieces), (BATCH,))]
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = forward(batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        times.append(time.perf_counter() - started)
        if number == 1:
            forget_peak()  # compiling is over; what it left behind still counts
    return {"losses": losses, "first_step": times[0], "step": statistics.median(times[2:])}


def write(forward: Forward) -> dict[str, Any]:
    """Go on from PROMPT, byte by byte; a window of CONTEXT bytes moves along."""
    window = torch.tensor([list(PROMPT[-CONTEXT:])])
    written, times = bytearray(), []
    with torch.no_grad():
        for _ in range(WRITTEN):
            started = time.perf_counter()
            chances = (forward(window).logits[0, -1] / 0.7).softmax(-1)
            byte = torch.multinomial(chances, 1)
            window = torch.cat((window[:, 1:], byte[None]), 1)
            written.append(int(byte))
            times.append(time.perf_counter() - started)
    return {
        "text": (PROMPT + bytes(written)).decode("utf-8", "replace"),
        "first_answer": times[0],
        "tokens_per_second": (WRITTEN - 2) / sum(times[2:]),
    }


def forget_peak() -> None:
    """Set the high-water mark of memory back to what is held now (Linux)."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def memory(name: str) -> int | None:
    """`VmRSS`: bytes held now; `VmHWM`: at the peak. None where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 if found else None


def told(objective: nn.Module, batch: Tensor) -> list[str]:
    """What `windfall.explain` says of the training forward, in a few lines."""
    import windfall

    report = windfall.explain(objective)(batch)
    facts = report.to_dict()
    operations = [sum(n.op.startswith("call") for n in one.graph.nodes) for one in report.graphs]
    made = [kernel["kind"] for kernel in facts["kernels"]]
    kinds = ", ".join(f"{made.count(kind)} {kind}" for kind in dict.fromkeys(made))
    spent = ", ".join(f"{stage} {s * 1e3:.0f}" for stage, s in facts["seconds"].items())
    return [
        f"{facts['graph_count']} graph(s) of {sum(operations)} operations, "
        f"{facts['break_count']} break(s), {len(facts['fallbacks'])} fall-back(s) to eager",
        *(f"ran eagerly: {reason[:100]}" for reason in facts["fallbacks"][:3]),
        *(f"break W{one['number']:04d}: {one['detail'][:100]}" for one in facts["breaks"][:3]),
        f"{sum(map(len, facts['guards']))} guards; kernels: {kinds or 'none'}",
        f"milliseconds by stage: {spent}",
    ]


def main(contender: str) -> None:
    """Train, write, print."""
    text = torch.tensor(list(TEXT.read_bytes()))
    ready: Callable[[nn.Module], Forward] = lambda module: module  # noqa: E731
    if contender == "windfall":
        import windfall

        ready = windfall.compile
    transformers()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = memory("VmRSS")
    model = language_model()
    objective = Objective(model).train()
    found = train(ready(objective), objective, text)
    peak = memory("VmHWM")
    found["peak"] = None if before is None or peak is None else peak - before
    model.eval()
    found |= write(ready(model))
    objective.train()
    found["told"] = told(objective, text[None, : CONTEXT + 1]) if contender == "windfall" else []
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
