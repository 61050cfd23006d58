"""A segment as something to call: guards, graph, results in one native call where that can be.

Enters: a `Segment`, and its graph as a `Program` or as any callable. Leaves: an `Entry`, whose
`call(*slots)` answers what the segment returns, or MISS when a guard does not hold.

Three forms, the first that fits:
* one builtin for all: the segment only returns results of its graph (`segment.direct`), the
  program is native, and every input of the graph can be found natively;
* one builtin that checks the guards, then calls the segment's generated Python function;
* all in Python (`native=False`, or facts of `torch_abi` missing).

Invariant: a call that misses has changed nothing. The entry holds what it guards weakly where it
can, and no input at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windfall.ir.dtype import TensorType
from windfall.ir.guard import Guard
from windfall.ir.source import ScalarOf
from windfall.ir.stages import MISS, Entry, Program, Segment
from windfall.runtime import guards, support
from windfall.runtime.bind import bind
from windfall.runtime.encoder import EncodedCheck
from windfall.runtime.execution_table import add_plan, can_be_floats, can_be_native
from windfall.runtime.guard_text import check_text, python_check
from windfall.runtime.results import check_program
from windfall.runtime.segment_chain import pair_maker
from windfall.runtime.usage import CLOCK, Usage

CONTINUE = "Continue"  # what generated source calls to say where the program goes on


def enter(
    segment: Segment,
    program: Program | None,
    graph_callable: Callable[..., Any] | None,
    *,
    native: bool = True,
) -> Entry:
    """The segment, ready to be called."""
    ordered = guards.in_order(segment.capture.guards)
    weak = tuple(guard.weakly() for guard in ordered)
    kept = replace(segment, capture=replace(segment.capture, guards=weak))
    text = functools.partial(check_text, weak, segment.slots)
    usable = native and support.support() is not None
    usage = Usage()
    call = _direct(segment, program, ordered, usage) if usable and program is not None else None
    if call is not None:
        return Entry(call, kept, True, text, usage.last)
    body = _body(segment, program, graph_callable, native)
    checked = _checked(segment, ordered, body, usage) if usable else None
    if checked is not None:
        return Entry(checked, kept, False, text, usage.last)
    check = python_check(ordered, segment.slots)
    call = _in_python(check, body, len(segment.slots), usage)
    return Entry(call, kept, False, text, usage.last)


def _direct(
    segment: Segment, program: Program, ordered: list[Guard], usage: Usage
) -> Callable[..., Any] | None:
    """Everything in one builtin; None where that cannot be."""
    direct = segment.direct
    if direct is None or not can_be_native(program):
        return None
    # What is no tensor is a symbol, whose value the guards find.
    tensors = [one for one in segment.capture.inputs if isinstance(one.type, TensorType)]
    floats = [i for i, one in enumerate(tensors) if isinstance(one.source, ScalarOf)]
    if len(tensors) != len(program.inputs) or not can_be_floats(program, floats):
        return None
    check_program(program)
    encoded = guards.encode(ordered, [one.source for one in tensors], segment.slots)
    if encoded is None or not encoded.symbols.keys() >= set(program.symbols):
        return None
    words = encoded.words
    symbols = [encoded.symbols[one] for one in program.symbols]
    plan = add_plan(words, program, direct.results, direct.structure, floats)
    encoded.set(
        plan=plan,
        miss=words.object(MISS),
        input_count=len(encoded.inputs),
        input_cells=words.add(*encoded.inputs, 0),
        symbol_cells=words.add(*symbols, 0),
    )
    _note_uses(encoded, usage)
    return encoded.builtin(segment.name, "entry")


def _note_uses(encoded: EncodedCheck, usage: Usage) -> None:
    """Let the machine code write down when the entry is used."""
    encoded.set(clock=int(CLOCK), last=int(usage.memory))
    encoded.words.keep.append((CLOCK, usage.memory))


def _checked(
    segment: Segment, ordered: list[Guard], body: Callable[..., Any], usage: Usage
) -> Callable[..., Any] | None:
    """A builtin that checks, then calls the segment's Python function."""
    encoded = guards.encode(ordered, (), segment.slots)
    if encoded is None:
        return None
    encoded.set(miss=encoded.words.object(MISS), body=encoded.words.object(body))
    _note_uses(encoded, usage)
    return encoded.builtin(segment.name, "entry")


def _in_python(
    check: Callable[..., bool], body: Callable[..., Any], slot_count: int, usage: Usage
) -> Callable[..., Any]:
    def call(*slots: Any) -> Any:
        if len(slots) != slot_count or not check(*slots):
            return MISS
        usage.note()
        return body(*slots)

    return call


def _body(
    segment: Segment,
    program: Program | None,
    graph_callable: Callable[..., Any] | None,
    native: bool,
) -> Callable[..., Any]:
    """The function that the segment's source defines, with its graph filled in."""
    if graph_callable is None and program is not None:
        graph_callable = bind(program, native=native)
    kind = segment.namespace.get(CONTINUE)
    if native and isinstance(kind, type):
        faster = {**segment.namespace, CONTINUE: pair_maker(kind)}
        segment = replace(segment, namespace=faster)
    return segment.load(graph_callable)
