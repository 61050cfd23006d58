"""A program as something to call: tensors in, a tuple of tensors out.

Enters: a `Program`. Leaves: `bind(program)`, a callable that takes the graph's input tensors by
position and answers a tuple of results (None where the program says so).

* native: one builtin; it takes pointers, allocates results, runs the step, wraps;
* public: a driver in Python over `data_ptr()` and `torch.empty_strided`, for programs with Python
  steps, and for where native code cannot be.

Invariant: results are fresh tensors that need no gradient, or views of the very inputs; two
results that are the same part of the same buffer are one object. Any number of threads may call;
a call inside a call has its own arena. Types of the inputs are not checked: the guards did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from windfall import torch_abi
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.stages import Program
from windfall.runtime import support
from windfall.runtime.machine import layout
from windfall.runtime.plan import add_plan, can_be_native
from windfall.runtime.public import PublicProgram
from windfall.runtime.results import check_program
from windfall.runtime.words import Words

Bound = Callable[..., tuple[Any, ...]]


def bind(program: Program, *, native: bool = True, verify: bool = False) -> Bound:
    """The program as a function of its input tensors. `verify`: their types are checked first."""
    check_program(program)
    if verify:
        return _verified(program, bind(program, native=native))
    if not (native and can_be_native(program)):
        return PublicProgram(program)
    words = Words()
    header = words.add(*[0] * (layout.INPUT_CELLS + 1))
    words.set(header + layout.SLOTS, len(program.inputs))
    everything = tuple(range(len(program.results)))
    words.set(header + layout.PLAN, add_plan(words, program, everything, "tuple"))
    code = support.support()
    assert code is not None
    words.keep.append(code)
    return torch_abi.make_builtin("run", code.address("run"), words.build(), (words.keep,))


def _verified(program: Program, call: Bound) -> Bound:
    def checked(*inputs: torch.Tensor) -> tuple[Any, ...]:
        found = tuple(TensorType.of(one).without_grad() for one in inputs)
        wanted = tuple(one.without_grad() for one in program.inputs)
        if found != wanted:
            raise InternalError(f"a program of {wanted} was given {found}")
        return call(*inputs)

    return checked
