"""With the last function all trees close. The functions of a process count, so this has its own."""

from __future__ import annotations

import subprocess
import sys

SOURCE = """
import gc, weakref
import torch, windfall
from tests.trees.test_cpu import broken, compiled, tree
f = compiled(broken)
f(torch.randn(8, 16), torch.randn(16, 16))
manager = weakref.ref(tree())
assert manager() is not None and not manager().closed
del f
gc.collect()
assert manager() is None or manager().closed
"""


def test_trees_go_with_the_last_function() -> None:
    done = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
