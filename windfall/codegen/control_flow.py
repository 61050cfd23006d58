"""Operations with bodies, in the driver: each body is a part, called where its turn comes.

Enters: a `Call` whose attributes are `BodyParts`. Leaves: LLVM text. Invariant: a body is given the
addresses of operands and results, and a block for its temporaries, which all bodies of one call
share since none of them runs inside another; what fails in it fails here.

    call branch(flag, x, w) -> (y, block)     if flag: @body0(block, x, w, y) else: @body1(…)
    call scan(c, x, w) -> (last, y, next, block)   last = c
                                              for i: @body0(block, last, x[i], w, next, y[i])
                                                     last = next
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from windfall.ir.control_flow import Scan, Subgraphs, While
from windfall.ir.dtype import TensorType
from windfall.ir.loop import BodyParts, BufferView, Call, Part
from windfall.ir.symint import Size, maximum
from windfall.llvm import NULL, ZERO, Value

if TYPE_CHECKING:
    from windfall.codegen.emit import Driver


def scratch(target: Subgraphs, parts: Sequence[Part]) -> list[TensorType]:
    """Memory that a call needs besides its results: for what a body carries on while it still reads
    what was carried to it, for a flag, then a block for temporaries."""
    types: list[TensorType] = []
    if isinstance(target, Scan | While):
        types += target.result_types[: target.carried]
    if isinstance(target, While):
        types.append(TensorType.contiguous(torch.bool, ()))
    block: Size = 0
    for part in parts:
        block = maximum(block, part.plan.arena_bytes)
    if block != 0:
        types.append(TensorType.contiguous(torch.uint8, (block,)))
    return types


def _results(driver: Driver, call: Call) -> list[BufferView]:
    return [driver.result(call, place) for place in range(len(call.results))]


def _block(driver: Driver, call: Call, part: Part) -> Value:
    """Memory for temporaries: the last result."""
    return driver.pointer(_results(driver, call)[-1]) if part.plan.arena_bytes != 0 else NULL


def branch(driver: Driver, call: Call) -> None:
    """One of two bodies."""
    bodies: BodyParts = call.attributes
    code = driver.code
    flag, *operands = call.arguments
    chosen = code.different(code.load("i8", driver.pointer(flag)), 0)
    yes, no = bodies.parts

    def write(part: Part) -> None:
        given = [driver.pointer(one) for one in operands]
        results = _results(driver, call)[: len(part.schedule.results)]
        driver.body(part, _block(driver, call, part), given, [*map(driver.pointer, results)])

    code.one_of(chosen, lambda: write(yes), lambda: write(no), ("true", "false", "after"))


def scan(driver: Driver, call: Call) -> None:
    """One body for each slice."""
    bodies: BodyParts = call.attributes
    target: Scan = bodies.target
    (part,) = bodies.parts
    code = driver.code
    count, last = target.carried, target.carried + target.scanned
    results = _results(driver, call)
    carried, stacked = results[:count], results[count : len(target.result_types)]
    following = results[len(target.result_types) :][:count]
    for view, start in zip(carried, call.arguments, strict=False):
        driver.copy_bytes(driver.pointer(view), driver.pointer(start), view.type)
    scanned, others = call.arguments[count:last], call.arguments[last:]
    rows = [(view, driver.pointer(view), _step(driver, view)) for view in (*scanned, *stacked)]
    end = driver.size(target.length)
    fixed = [driver.pointer(view) for view in others]
    held, next_held = [*map(driver.pointer, carried)], [*map(driver.pointer, following)]
    block = _block(driver, call, part)
    with code.repeat(ZERO, end, certain=isinstance(target.length, int)) as loop:
        index = loop.index
        if target.backward:
            index = code.binary("sub", code.binary("sub", end, 1), index)
        slices = [code.element(base, code.binary("mul", index, step)) for _, base, step in rows]
        given = [*held, *slices[: len(scanned)], *fixed]
        driver.body(part, block, given, [*next_held, *slices[len(scanned) :]])
        for view, source, place in zip(carried, next_held, held, strict=True):
            driver.copy_bytes(place, source, view.type)


def _step(driver: Driver, view: BufferView) -> Value:
    """How many bytes lie from one slice to the next."""
    return driver.size(view.type.strides[0] * view.type.dtype.itemsize)


def while_loop(driver: Driver, call: Call) -> None:
    """A body for as long as the condition holds."""
    bodies: BodyParts = call.attributes
    target: While = bodies.target
    condition, body = bodies.parts
    code = driver.code
    results = _results(driver, call)
    count = target.carried
    carried, following, flag = results[:count], results[count : 2 * count], results[2 * count]
    for view, start in zip(carried, call.arguments, strict=False):
        driver.copy_bytes(driver.pointer(view), driver.pointer(start), view.type)
    given = [driver.pointer(view) for view in (*carried, *call.arguments[count:])]
    held, next_held = given[:count], [*map(driver.pointer, following)]
    holds = driver.pointer(flag)
    blocks = [_block(driver, call, one) for one in (condition, body)]
    head, inside, after = map(code.label, ("head", "round", "done"))
    code.jump(head)
    code.start(head)
    driver.body(condition, blocks[0], given, [holds])
    code.branch(code.different(code.load("i8", holds), 0), inside, after)
    code.start(inside)
    driver.body(body, blocks[1], given, next_held)
    for view, source, place in zip(carried, next_held, held, strict=True):
        driver.copy_bytes(place, source, view.type)
    code.jump(head)
    code.start(after)
