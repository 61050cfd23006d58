"""A program as something to call: tensors in, a tuple of tensors out.

Enters: a `Program`. Leaves: `bind(program)`, a callable that takes by position the values of the
program's symbols, then the graph's input tensors, and answers a tuple of results (None where the
program says so).

* native: one builtin; it takes pointers, allocates results, runs the step, wraps;
* public: a driver in Python over `data_ptr()` and `torch.empty_strided`, for programs with Python
  steps, and for where native code cannot be.

Invariant: results are fresh tensors that need no gradient, or views of the very inputs; two
results that are the same part of the same buffer are one object. Any number of threads may call;
a call inside a call has its own arena and its own sizes. Inputs are checked where that is asked
for (`verify`): of those of a forward pass the guards did, of saved values and tangents nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.errors import InternalError, UnfitInput
from windfall.ir.dtype import TensorType
from windfall.ir.stages import Program
from windfall.ir.symint import Expression, evaluate, symbol_atom
from windfall.runtime import support
from windfall.runtime.execution_table import add_plan, can_be_native
from windfall.runtime.machine import offsets
from windfall.runtime.memory import ALIGNMENT
from windfall.runtime.public import Places, PublicProgram
from windfall.runtime.results import check_program, result_types
from windfall.runtime.words import Words, after

Bound = Callable[..., tuple[Any, ...]]


def bind(
    program: Program,
    *,
    native: bool = True,
    verify: bool = False,
    keep: bool = False,
    recycled: Container[int] = (),
) -> Bound:
    """The program as a function of the values of its symbols and its input tensors. `verify`: these
    are checked first, and what does not fit raises `UnfitInput`. `keep`: memory of large results is
    kept for the next call, once nobody holds them any more: gradients, which are thrown away and
    made anew in each step. `recycled`: of these results (by their position among the result
    buffers) the very objects are used again, once nobody has them."""
    check_program(program)
    if native and can_be_native(program):
        return _builtin(program, "run", keep, verify, recycled)
    call = PublicProgram(program)
    return verified(program.inputs, program.symbols, call) if verify else call


def bind_placed(program: Program, *, native: bool = True) -> Bound:
    """The program as a function of an arena, of memory for its results, then as of `bind`. The
    arena is a tensor of bytes, as `MEMORY.take` gives it (None: one of the owner's); memory for
    results are tensors of `result_types` (or None: fresh ones), which the caller may use again as
    it likes: what is returned are these very tensors, and views of them."""
    check_program(program)
    symbols = [symbol_atom(one).key for one in program.symbols]
    types = result_types(program)
    natively = native and can_be_native(program)
    run: Bound = _builtin(program, "run_placed") if natively else PublicProgram(program).run

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


def placed_run(
    program: Program, *, native: bool = True, verify: bool = False, keep: bool = False
) -> tuple[Bound, bool]:
    """As `bind_placed`, for who plans once and runs often: nothing is checked of the arena and of
    the memory for results. Whether it is one builtin: then the arena is an address (0: one of the
    owner's), else a tensor or None. `verify` and `keep` as of `bind`."""
    check_program(program)
    if native and can_be_native(program):
        return _builtin(program, "run_placed", keep, verify), True
    run: Bound = PublicProgram(program).run
    if not verify:
        return run, False

    fits = verified(program.inputs, program.symbols, lambda *inputs: inputs)

    def checked(arena: torch.Tensor | None, places: Places, *values: Any) -> tuple[Any, ...]:
        return run(arena, places, *fits(*values))

    return checked, False


def _builtin(
    program: Program,
    name: str,
    keep: bool = False,
    verify: bool = False,
    recycled: Container[int] = (),
) -> Bound:
    """A native program as a builtin, by a function of the machine."""
    words = Words()
    header = words.add(*[0] * offsets.BLOCK.size)
    everything = tuple(range(len(program.results)))
    plan = add_plan(
        words, program, everything, "tuple", keep=keep, verify=verify, recycled=recycled
    )
    for word, value in (("slots", len(program.symbols) + len(program.inputs)), ("plan", plan)):
        words.set(after(header, offsets.BLOCK.places[word]), value)
    code = support.support()
    assert code is not None
    words.keep.append(code)
    return torch_abi.make_builtin(name, code.address(name), words.build(), (words.keep,))


def verified(
    types: Sequence[TensorType], symbols: Sequence[Expression], call: Bound, device: str = "cpu"
) -> Bound:
    """`call`, of tensors of this type of device that are as `types` say, and whose memory may be
    read as it lies."""
    names = [symbol_atom(one).key for one in symbols]

    def checked(*inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(names, inputs, strict=False))
        for type, one in zip(types, inputs[len(names) :], strict=True):
            plain = one.device.type == device and torch_abi.is_plain_tensor(one)
            if not plain or not _fits(one, _at(type, values)):
                raise UnfitInput(offsets.UNFIT)
        return call(*inputs)

    return checked


def _fits(tensor: torch.Tensor, type: TensorType) -> bool:
    sizes = tuple(tensor.shape)
    if (tensor.dtype, sizes) != (type.dtype, type.sizes):
        return False
    pairs = zip(sizes, tensor.stride(), type.strides, strict=True)
    return 0 in sizes or all(size == 1 or have == want for size, have, want in pairs)


def _at(type: TensorType, values: Mapping[str, int]) -> TensorType:
    """The type with these values of symbols."""
    sizes, strides = (
        tuple(evaluate(size, values) for size in sizes) for sizes in (type.sizes, type.strides)
    )
    return replace(type, sizes=sizes, strides=strides)
