"""`LlvmModule` → `Program`: machine code in this process.

Enters: LLVM text and tables. Leaves: what the runtime runs. Invariant: the program owns its code.
"""

from __future__ import annotations

from windfall import jit
from windfall.ir.stages import LlvmModule, Program


def build(module: LlvmModule) -> Program:
    """Compile a module for this processor."""
    return Program(
        code=jit.load(module.text, optimise=0),
        steps=module.steps,
        buffers=module.buffers,
        arena_bytes=module.arena_bytes,
        inputs=module.inputs,
        results=module.results,
        kernels=module.kernels,
        errors=module.errors,
        symbols=module.symbols,
        sizes=module.sizes,
    )
