"""What a thread and the process are in: everything that a fault must leave as it was.

Enters: nothing. Leaves: a dict of named facts that two moments can be compared by; which locks of
windfall's are held. Invariant: looking changes nothing.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import warnings
from typing import Any

import torch

from windfall import directives, locks, stance, torch_abi
from windfall.ir import relation
from windfall.ops import size_nodes


def now() -> dict[str, Any]:
    """The state of this thread and of the process."""
    return {
        **torch_abi.ambient()._asdict(),
        **torch_abi.modes(),
        "saved tensor hooks": _hooks(),
        "default device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "anomaly": torch.is_anomaly_enabled(),
        "forward level": torch_abi.forward_level(),
        "autograd node": torch_abi.running_autograd_sequence(),
        "is_compiling": directives.is_compiling(),
        "assumptions": relation.assumptions(),
        "tries reads": size_nodes.tries_reads(),
        "asking": size_nodes.asking.where,
        "stance": stance.current(),
        # Without that of sympy, which meta kernels of torch (torch._check) load in a cold process.
        "warnings": [one for one in warnings.filters if "sympy" not in one[2].__module__],
        "trace": sys.gettrace(),
        "profile": sys.getprofile(),
        "recursion limit": sys.getrecursionlimit(),
        "collector": gc.isenabled(),
        "python random": random.getstate(),
    }


def _hooks() -> int:
    """How many pairs of hooks for saved tensors are in force. They can only be counted by taking
    them off."""
    state = torch._C._autograd
    taken = []
    while (top := state._top_saved_tensors_default_hooks(False)) is not None:
        taken.append(top)
        state._pop_saved_tensors_default_hooks()
    for pack, unpack in reversed(taken):
        state._push_saved_tensors_default_hooks(pack, unpack)
    return len(taken)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    return [
        f"{name}: {before[name]} became {after[name]}"
        for name in before
        if before[name] != after[name]
    ]


def held_locks() -> int:
    """How many of windfall's locks nobody can take now. Asked from another thread: this one may
    take a recursive lock that it holds."""
    found: list[int] = []

    def look() -> None:
        held = 0
        for one in list(locks._known):
            if one.acquire(blocking=False):
                one.release()
            else:
                held += 1
        found.append(held)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]
