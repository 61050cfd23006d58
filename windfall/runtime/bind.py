"""A program as something to call: tensors in, a tuple of tensors out.

Enters: a `Program`. Leaves: `bind(program)`, a callable that takes by position the values of the
program's symbols, then the graph's input tensors, and answers a tuple of results (None where the
program says so).

* native: one builtin; it takes pointers, allocates results, runs the step, wraps;
* public: a driver in Python over `data_ptr()` and `torch.empty_strided`, for programs with Python
  steps, and for where native code cannot be.

Invariant: results are fresh tensors that need no gradient, or views of the very inputs; two
results that are the same part of the same buffer are one object. Any number of threads may call;
a call inside a call has its own arena and its own sizes. Types of the inputs are not checked: the
guards did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.stages import Program
from windfall.ir.symint import evaluate, symbol_atom
from windfall.runtime import support
from windfall.runtime.machine import layout
from windfall.runtime.memory import ALIGNMENT
from windfall.runtime.plan import add_plan, can_be_native
from windfall.runtime.public import Places, PublicProgram
from windfall.runtime.results import check_program, result_types
from windfall.runtime.words import Words, after

Bound = Callable[..., tuple[Any, ...]]


def bind(
    program: Program, *, native: bool = True, verify: bool = False, keep: bool = False
) -> Bound:
    """The program as a function of the values of its symbols and its input tensors. `verify`: their
    types are checked first. `keep`: memory of large results is kept for the next call, once nobody
    holds them any more: gradients, which are thrown away and made anew in each step."""
    check_program(program)
    if verify:
        return _verified(program, bind(program, native=native, keep=keep))
    if not (native and can_be_native(program)):
        return PublicProgram(program)
    return _builtin(program, "run", keep)


def bind_placed(program: Program, *, native: bool = True) -> Bound:
    """The program as a function of an arena, of memory for its results, then as of `bind`. The
    arena is a tensor of bytes, as `MEMORY.take` gives it (None: one of the owner's); memory for
    results are tensors of `result_types` (or None: fresh ones), which the caller may use again as
    it likes: what is returned are these very tensors, and views of them."""
    check_program(program)
    symbols = [symbol_atom(one).key for one in program.symbols]
    types = result_types(program)
    natively = native and can_be_native(program)
    run: Bound = _builtin(program, "run_placed", False) if natively else PublicProgram(program).run

    def placed(arena: torch.Tensor | None, places: Places, *values: Any) -> tuple[Any, ...]:
        sizes = dict(zip(symbols, values, strict=False))
        needed = evaluate(program.arena_bytes, sizes)
        if arena is not None and (arena.nbytes < needed or arena.data_ptr() % ALIGNMENT):
            raise InternalError(f"an arena of {arena.nbytes} bytes for a program of {needed}")
        for place, type in zip(places, types, strict=True):
            wanted = _at(type.without_grad(), sizes)
            if place is not None and TensorType.of(place).without_grad() != wanted:
                raise InternalError(f"memory of {TensorType.of(place)} for a result of {wanted}")
        address = 0 if arena is None else arena.data_ptr()
        return run(address if natively else arena, tuple(places), *values)

    return placed


def _builtin(program: Program, name: str, keep: bool) -> Bound:
    """A native program as a builtin, by a function of the machine."""
    words = Words()
    header = words.add(*[0] * layout.BLOCK.size)
    everything = tuple(range(len(program.results)))
    plan = add_plan(words, program, everything, "tuple", keep=keep)
    for word, value in (("slots", len(program.symbols) + len(program.inputs)), ("plan", plan)):
        words.set(after(header, layout.BLOCK.places[word]), value)
    code = support.support()
    assert code is not None
    words.keep.append(code)
    return torch_abi.make_builtin(name, code.address(name), words.build(), (words.keep,))


def _verified(program: Program, call: Bound) -> Bound:
    names = [symbol_atom(one).key for one in program.symbols]

    def checked(*inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(names, inputs, strict=False))
        found = tuple(TensorType.of(one).without_grad() for one in inputs[len(names) :])
        wanted = tuple(_at(one.without_grad(), values) for one in program.inputs)
        if found != wanted:
            raise InternalError(f"a program of {wanted} was given {found}")
        return call(*inputs)

    return checked


def _at(type: TensorType, values: Mapping[str, int]) -> TensorType:
    """The type with these values of symbols."""
    sizes, strides = (
        tuple(evaluate(size, values) for size in sizes) for sizes in (type.sizes, type.strides)
    )
    return replace(type, sizes=sizes, strides=strides)
