"""A machine with torch, llvmlite and nothing else: no C compiler, no child process, and none of the
systems that windfall replaces, nor sympy, which takes half a second to load. Each runs in a fresh
interpreter with an empty PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Stands first in the child: sees every start of a process and every search for a program.
WATCH = """
import json, os, resource, shutil, sys
seen, own = [], set()
before = resource.getrusage(resource.RUSAGE_CHILDREN)
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn",
          "os.system", "pty.spawn"}
sys.addaudithook(lambda event, args: seen.append(event) if event in STARTS else None)
which = shutil.which
def watched(command, *args, **kwargs):
    seen.append(f"which {command}")
    return which(command, *args, **kwargs)
shutil.which = watched
"""

REPORT = """
children = resource.getrusage(resource.RUSAGE_CHILDREN)
if (children.ru_utime, children.ru_maxrss) != (before.ru_utime, before.ru_maxrss):
    seen.append("a child process took time")
replaced = ("torch._dynamo", "torch._inductor", "torch._functorch")
new = sys.modules.keys() - own
loaded = sorted(name for name in new if name.startswith(replaced))
print(json.dumps({"seen": seen, "loaded": loaded, "slow": sorted({"sympy"} & new)}))
"""

FIRST = """
import torch
own = set(sys.modules)  # torch loads some of _functorch by itself
before = resource.getrusage(resource.RUSAGE_CHILDREN)
seen.clear()  # a build of torch for CUDA looks for its libraries, with a child process
import windfall
def first(x, y):
    return torch.nn.functional.gelu(x * y + 1).sum(-1)
x, y = torch.randn(5, 7), torch.randn(5, 7)
compiled = windfall.compile(first, options={"strict": True})
for _ in range(2):
    assert torch.allclose(compiled(x, y), first(x, y), atol=1e-5)  # torch.testing loads sympy
x.requires_grad_()
compiled(x, y).sum().backward()
actual, x.grad = x.grad, None
first(x, y).sum().backward()
assert torch.allclose(actual, x.grad, atol=1e-5)
"""


def run_in_a_bare_process(program: str) -> dict[str, list[str]]:
    environment = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", WATCH + textwrap.dedent(program) + REPORT],
        env={**environment, "PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_first_function_needs_torch_and_llvmlite_alone() -> None:
    report = run_in_a_bare_process(FIRST)
    assert report["seen"] == []
    assert report["loaded"] == []
    assert report["slow"] == []


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (f"import subprocess; subprocess.run([{sys.executable!r}, '-c', '0'])", "subprocess.Popen"),
        ("pid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)", "os.fork"),
        ("shutil.which('g++')", "which g++"),
    ],
)
def test_the_watch_can_fail(program: str, expected: str) -> None:
    assert expected in run_in_a_bare_process(program)["seen"]


def test_a_loaded_peer_is_seen() -> None:
    assert "torch._dynamo" in run_in_a_bare_process("import torch._dynamo")["loaded"]
