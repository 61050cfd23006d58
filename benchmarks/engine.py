"""What compiled autograd costs beside the arithmetic: `python -m benchmarks.engine`.

Enters: nothing. Leaves: three figures, printed beside their goals.

    verify     comparing a pass with its program and gathering what nodes have saved, eager forward
               of twelve layers of a transformer; µs of CPU time for each node, median
    compiled   the same where windfall compiled the forward, ms for the pass
    memory     bytes that a step leaves behind its `backward()`, the loss still alive: resident
               memory then, less that before the step; a process each for torch's engine and ours
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

import windfall
from windfall import torch_abi
from windfall.autograd import operations_of
from windfall.engine.backward_graph import BackwardGraph
from windfall.engine.verify import Verifier, verifier

ROUNDS = 40
NODE_GOAL, PASS_GOAL, MEMORY_GOAL = 2.5, 0.1, 1.05


def model(layers: int, width: int) -> nn.Module:
    """Layers of a transformer."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def _verifying(forward: nn.Module, x: torch.Tensor) -> tuple[float, float, int]:
    """CPU seconds of a comparison, of torch's backward behind it, and how many nodes there are."""
    for _ in range(3):
        forward(x).sum().backward()
    graph = BackwardGraph([torch_abi.edge_of(forward(x).sum())], operations_of)
    made = verifier(graph, ())
    assert isinstance(made, Verifier), "machine code is not at hand here"
    times, passes = [], []
    for _ in range(ROUNDS):
        loss = forward(x).sum()
        start = time.thread_time()
        matched = made.match([torch_abi.edge_of(loss)], ())
        times.append(time.thread_time() - start)
        assert matched is not None
        del matched
        start = time.thread_time()
        loss.backward()
        passes.append(time.thread_time() - start)
    return statistics.median(times), statistics.median(passes), len(graph.nodes)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _held(ours: bool) -> int:
    """Bytes after a backward pass, the loss and its graph still there."""
    torch.set_num_threads(1)
    forward, x = model(6, 256), torch.randn(8, 128, 256)
    before = 0
    loss = torch.zeros(())
    for _ in range(4):
        del loss
        forward.zero_grad()
        gc.collect()
        before = _resident()
        loss = forward(x).pow(2).mean()
        if ours:
            with windfall.compiled_autograd():
                loss.backward()
        else:
            loss.backward()
    gc.collect()
    return _resident() - before


def memory() -> tuple[int, int]:
    """What eager and we hold. Blocks of memory go back to the system when they are freed."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    found = []
    for name in ("eager", "ours"):
        command = [sys.executable, "-m", "benchmarks.engine", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(int(done.stdout))
    return found[0], found[1]


def main() -> None:
    if len(sys.argv) > 1:
        print(_held(sys.argv[1] == "ours"))
        return
    torch.set_num_threads(1)
    forward, x = model(12, 64), torch.randn(2, 16, 64)
    seconds, backward, nodes = _verifying(forward, x)
    node, torchs = seconds * 1e6 / nodes, backward * 1e6 / nodes
    print(f"verify and gather, eager forward: {node:.2f} µs a node (goal: {NODE_GOAL}), where")
    print(f"  torch's backward takes {torchs:.2f} on this machine now; {nodes} nodes")
    seconds, _, _ = _verifying(windfall.compile(forward), x)
    print(f"verify and gather, compiled forward: {seconds * 1e3:.3f} ms (goal: {PASS_GOAL})")
    eager, ours = memory()
    share = f"{ours / eager:.3f} of eager's (goal: {MEMORY_GOAL})"
    print(f"memory after backward: {ours / 2**20:.1f} MiB, eager {eager / 2**20:.1f}: {share}")


if __name__ == "__main__":
    main()
