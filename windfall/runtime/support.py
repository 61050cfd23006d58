"""The machine code that every entry shares: it is compiled once, and what differs between entries
is data (`words.py`). So building an entry costs microseconds, not an LLVM module.

Enters: the offsets of `torch_abi`. Leaves: LLVM text and, once loaded, the addresses of

* `op.*`: one step of a guard check, `i32 (ptr record, ptr args)`: 0 miss, 1 holds, 2 start again;
* `check`, `entry`, `run`, `dispatch`, `chain`, `pair`: bodies of builtins;
* `arena.trim`, `kept.trim`: give memory that is kept for reuse back to the system.

A record of a check: address of its step, its size in bytes, operands (`machine/basics.py`). One
that stands for a value is the address of a cell; a cell holds a borrowed pointer to a Python
object. Cells belong to the block: checking runs without a break under the GIL and executes no
Python code, so no other call can meet them half written (`rest`, which is Python, runs between two
complete checks).

Invariant: no step runs user code, raises, or keeps an object alive.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall import jit, locks, torch_abi
from windfall.llvm import Assembly
from windfall.runtime.machine import builtin_bodies, chain, object_steps, tensor_step, thread_step
from windfall.runtime.machine.basics import FUNCTIONS, AbiFacts

# With what they import: all functions.
MODULES = (builtin_bodies, chain, object_steps, tensor_step, thread_step)


def text() -> str | None:
    """The LLVM text for this build of torch and CPython; None where a needed fact is missing."""
    objects, tensors = torch_abi.object_layout(), torch_abi.tensor_layout()
    thread = torch_abi.thread_layout()
    if objects is None or tensors is None or thread is None:
        return None
    if not all(map(torch_abi.symbol, torch_abi.NATIVE_SYMBOLS)):
        return None
    if not torch_abi.thread_layout_holds_here():
        return None
    version, count = torch_abi.dict_version_offset(), torch_abi.storage_count()
    facts = AbiFacts(objects, tensors, thread, version, count)
    assembly = Assembly()
    for each in FUNCTIONS:
        each.write(assembly, facts)
    return assembly.text()


Compiled = Callable[[str], jit.CompiledObject]


def quickly(source: str) -> jit.CompiledObject:
    """The shared text as an object file."""
    return jit.compile_object(source, quick=True)


class _Shared:
    """The code of this process, once it is made."""

    def __init__(self) -> None:
        self.lock = locks.lock()
        self.is_made = False
        self.code: jit.NativeCode | None = None


_shared = _Shared()


def support(compiled: Compiled = quickly) -> jit.NativeCode | None:
    """The shared machine code; None: everything takes the public path (`torch_abi.report()`).
    Whoever asks first says how its text is compiled: one who has a cache looks there."""
    shared = _shared
    if not shared.is_made:
        with shared.lock:
            if not shared.is_made:
                source = text()
                shared.code = None if source is None else jit.link(compiled(source))
                shared.is_made = True
    return shared.code
