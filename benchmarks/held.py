"""`python -m benchmarks.held TREE`: what compiling leaves in memory, here and in another checkout.

Enters: the folder of another checkout of windfall. Leaves: a line for each process: what it holds
behind the third training step of BERT with twelve layers, less what it held before it was compiled
(eager has taken a step by then, and something small was compiled). The recipe is this checkout's;
the child has a folder first on its path that holds nothing but the windfall of its tree.

    resident   of the process: what the allocators keep in holes counts
    in use     of glibc's malloc, and how many blocks of Python's own allocator
    objects    that the collector knows

Gradients are gone by then, but not the memory in which they stood: it is used again (ADR 28).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.memory import resident
from benchmarks.process import CACHE_VARIABLES
from examples.models import RECIPES

HERE = Path(__file__).resolve().parent.parent
STEPS = 3


class _Malloc(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def held() -> dict[str, int]:
    """What this process holds now."""
    gc.collect()
    libc: Any = ctypes.CDLL(None)
    libc.malloc_trim(0)
    libc.mallinfo2.restype = _Malloc
    malloc = libc.mallinfo2()
    return {
        "resident": resident(),
        "in use": malloc.uordblks + malloc.hblkhd,
        "blocks of Python": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
    }


def _child(recipe_name: str) -> None:
    import windfall

    torch.set_num_threads(1)
    recipe = RECIPES[recipe_name]()
    objective, batch = recipe.objective(), recipe.batch(1)

    def step(function: Any) -> None:
        function(*batch).backward()
        objective.zero_grad(set_to_none=True)

    step(objective)
    windfall.compile(torch.nn.Linear(4, 4))(torch.ones(2, 4)).sum().backward()
    before = held()
    compiled = windfall.compile(objective)
    for _ in range(STEPS):
        step(compiled)
    after = held()
    print(json.dumps({name: after[name] - before[name] for name in after}))


def measure(tree: Path, recipe: str) -> dict[str, int]:
    """What a fresh process with the windfall of a tree holds, its caches empty."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
        Path(folder, "windfall").symlink_to(tree / "windfall", target_is_directory=True)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.held", "--child", recipe],
            cwd=folder,
            env={
                **os.environ,
                **dict.fromkeys(CACHE_VARIABLES, empty),
                "PYTHONPATH": str(HERE),
            },
            capture_output=True,
            text=True,
        )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Measure both in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held", description=__doc__)
    parser.add_argument("tree", type=Path, help="folder of the other checkout")
    parser.add_argument("--recipe", default="bert-12", choices=RECIPES)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    if "--child" in sys.argv:
        _child(sys.argv[-1])
        return
    given = parser.parse_args()
    for _ in range(given.pairs):
        for tree in (given.tree.resolve(), HERE):
            told = measure(tree, given.recipe)
            print(
                f"{tree.name:12} resident {told['resident'] / 1e6:7.1f} MB, of malloc in use "
                f"{told['in use'] / 1e6:7.1f} MB, {told['blocks of Python']} blocks of Python's, "
                f"{told['objects']} objects",
                flush=True,
            )


if __name__ == "__main__":
    main()
