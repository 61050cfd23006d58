"""`make demo`: a transformer block, a training step, and a small GPT-2, eager against windfall.

Prints, for the first two: the first call, the steady state, and how far the answers differ; then
what `windfall.explain` has to say. The GPT-2 (`language.py`) learns a text and goes on with it,
once for each contender in a process of its own. At the end: where a report of the first two is.
Nothing here but `windfall.compile`, `windfall.explain` and `windfall.report` is windfall's.
"""

from __future__ import annotations

import copy
import json
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import windfall

ROUNDS = 15
SAMPLE_SECONDS = 0.02
KEPT: list[Any] = []  # what was compiled, for the report


def compiled(model: nn.Module) -> Any:
    """The model compiled, and kept."""
    KEPT.append(windfall.compile(model, options={"records": True}))
    return KEPT[-1]


class Block(nn.Module):
    """A pre-norm transformer block, as in any tutorial."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return projected

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        hidden = F.gelu(self.expand(self.norm_mlp(x)))
        result: Tensor = x + self.contract(hidden)
        return result


def inference() -> None:
    """The block, without gradients."""
    torch.manual_seed(0)
    block = Block(width=128, heads=4).eval()
    x = torch.randn(1, 32, 128)
    with torch.no_grad():
        compare("Transformer block, inference (1 × 32 × 128)", block, compiled(block), x)
        show_explanation(block, x)


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10)
    )


def training_step(forward: Callable[..., Any], model: nn.Module) -> Callable[[], Tensor]:
    """Forward, loss, backward and an AdamW step on one batch; answers the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 64, generator=generator)
    labels = torch.randint(10, (32,), generator=generator)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


def training() -> None:
    """Two equal models train side by side, one eagerly, one compiled."""
    torch.manual_seed(0)
    first = perceptron()
    twins = [copy.deepcopy(first) for _ in range(4)]
    compare(
        "MLP training step: forward, loss, backward, AdamW",
        training_step(twins[0], twins[0]),
        training_step(compiled(twins[1]), twins[1]),
    )
    steps = (
        training_step(twins[2], twins[2]),
        training_step(windfall.compile(twins[3]), twins[3]),
    )
    for name, step in zip(("eager", "windfall"), steps, strict=True):
        losses = "  ".join(f"{float(step()):.5f}" for _ in range(6))
        print(f"  losses, {name:10}{losses}")


def compare(title: str, eager: Callable[..., Tensor], ours: Callable[..., Tensor], *x: Any) -> None:
    """First call and steady state of both, and the largest difference."""
    print(f"\n{title}")
    eager_first, expected = timed(eager, *x)
    ours_first, actual = timed(ours, *x)
    counts = [max(1, int(SAMPLE_SECONDS / timed(run, *x)[0])) for run in (eager, ours)]
    pairs = [(sample(eager, counts[0], x), sample(ours, counts[1], x)) for _ in range(ROUNDS)]
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    print(f"  {'':12}{'eager':>12}{'windfall':>12}")
    print(f"  {'first call':12}{shown(eager_first):>12}{shown(ours_first):>12}")
    best = [min(column) for column in zip(*pairs, strict=True)]
    print(f"  {'each call':12}{shown(best[0]):>12}{shown(best[1]):>12}   ratio {ratio:.2f}")
    print(f"  largest difference {float((actual - expected).abs().max()):.1e}")


def timed(run: Callable[..., Tensor], *x: Any) -> tuple[float, Tensor]:
    started = time.perf_counter()
    result = run(*x)
    return time.perf_counter() - started, result


def sample(run: Callable[..., Tensor], count: int, x: tuple[Any, ...]) -> float:
    started = time.perf_counter()
    for _ in repeat(None, count):
        run(*x)
    return (time.perf_counter() - started) / count


def shown(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def show_explanation(function: Callable[..., Any], *x: Any, lines: int = 24) -> None:
    """The beginning of what windfall tells about a function."""
    text = str(windfall.explain(function)(*x)).splitlines()
    print("\n  windfall.explain(block)(x) says, in the beginning:\n")
    print("\n".join(f"    {line[:110]}".rstrip() for line in text[:lines]))
    if len(text) > lines:
        print(f"    … and {len(text) - lines} lines more")


# ------------------------------------------------------------------------------------------ GPT-2


def language() -> None:
    """Train and write, eagerly and compiled, and put both side by side."""
    print("\nGPT-2 of transformers, 6 layers, learns the bytes of LICENSE, then writes; one thread")
    found = {name: in_a_process(name) for name in ("eager", "windfall")}
    if None in found.values():
        return
    eager, ours = found["eager"], found["windfall"]
    assert eager is not None and ours is not None
    print(f"  {'':22}{'eager':>12}{'windfall':>12}")
    line("first training step", eager["first_step"], ours["first_step"], shown)
    line("each training step", eager["step"], ours["step"], shown, ratio=True)
    line("first answer", eager["first_answer"], ours["first_answer"], shown)
    speeds = (eager["tokens_per_second"], ours["tokens_per_second"])
    line("tokens per second", *speeds, lambda value: f"{value:.0f}", ratio=True)
    if eager["peak"] and ours["peak"]:
        line("memory of training", eager["peak"], ours["peak"], megabytes, ratio=True)
    for number in (0, 9, 19, 59, 119, len(eager["losses"]) - 1):
        pair = (eager["losses"][number], ours["losses"][number])
        line(f"loss of step {number + 1}", *pair, lambda value: f"{value:.5f}")
    start = zip(eager["losses"][:20], ours["losses"][:20], strict=True)
    print(f"  largest difference of the first 20 losses {max(abs(a - b) for a, b in start):.1e}")
    print("\n  windfall.explain(objective)(batch) says, in short:")
    print("\n".join(f"    {one}" for one in ours["told"]))
    for name, one in (("eager", eager), ("windfall", ours)):
        print(f"\n  {name} writes:")
        print(textwrap.indent(one["text"], "    "))


def line(
    title: str, eager: float, ours: float, show: Callable[[float], str], ratio: bool = False
) -> None:
    """One figure of both, and windfall's over eager's where that means something."""
    relative = f"   ratio {ours / eager:.2f}" if ratio else ""
    print(f"  {title:22}{show(eager):>12}{show(ours):>12}{relative}")


def megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


def in_a_process(contender: str) -> dict[str, Any] | None:
    """What `language.py` found; None (and its last words) where it failed."""
    script = Path(__file__).with_name("language.py")
    done = subprocess.run(
        [sys.executable, str(script), contender], capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        print(f"  {contender} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """All parts, and what was not needed for the first."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    inference()
    # Asked here, because torch's optimizers, below, load torch._dynamo by themselves.
    loaded = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
    print(f"\n  loaded of torch's own compiler stack: {', '.join(loaded) or 'nothing'}")
    training()
    language()
    path = Path(tempfile.gettempdir()) / "windfall-demo.html"
    print(f"\nWhat was compiled here, as a page: {windfall.report(path, *KEPT)}")


if __name__ == "__main__":
    main()
