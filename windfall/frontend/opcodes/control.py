"""Jumps, loops, returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.errors import InternalError
from windfall.frontend.breaks import (
    BUDGET,
    GENERATOR,
    IDLE_LOOP,
    LARGE_GRAPH,
    LEFT_GENERATOR,
    UNKNOWN_OPERATION,
    stop,
)
from windfall.frontend.bytecode import Instruction
from windfall.frontend.flow import only_raises
from windfall.frontend.idle import idle_loop
from windfall.frontend.opcodes.operators import push, unary_not
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.state import Start
from windfall.frontend.values.base import Raised, Value
from windfall.frontend.values.checks import asserted, made_sure
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.iterator import END, ForeignIterator, Iterator, is_end
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sym_bool import SymBool
from windfall.frontend.values.symbolic import Question
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import is_held_by, is_missed_variable, made_here
from windfall.ir.reading import ABSENT, class_name, resolve

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """A loop that does nothing with tensors is better run by CPython. Many short ones, as of a
    library that looks through its configuration, are let pass for longer."""
    if "BACKWARD" in instruction.name:
        _count_round(machine, frame, instruction)
    frame.ip = instruction.target


def _count_round(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    count, size = frame.rounds
    now = machine.graph.mark() - machine.graph.scalars
    count = count + 1 if size == now else 1
    frame.rounds = count, now
    machine.graph.idle += 1
    if now > machine.facts.nodes or (now and _began_here(machine, frame)):
        _end_graph(machine, frame, now)
    if count > machine.facts.idle or machine.graph.idle > _MANY * machine.facts.idle:
        for one in machine.frames.stack[:-1]:
            if one.code is frame.code:
                machine.frames.leave_recursion(frame.code)
        row = IDLE_LOOP if idle_loop(machine, frame, instruction.index) is not None else BUDGET
        stop(row, f"{machine.graph.idle} rounds without a tensor")


_PARAMETERS = 20_000  # operations in the loops of an optimizer


def _end_graph(machine: Machine, frame: Frame, size: int) -> None:
    """A loop is unrolled no further, unless what it stands in cannot be cut in two."""
    if size < _PARAMETERS and str(frame.globals.get("__name__")).startswith("torch.optim."):
        return  # one round for each parameter, of which there are as many in each call
    if not machine.frames.holds_together and frame.generator is None:
        stop(LARGE_GRAPH, f"a loop after {size} operations")


def _began_here(machine: Machine, frame: Frame) -> bool:
    """Whether the capture began at this very jump, and so has gone round once: where one loop was
    too long for a graph, the rounds that follow share what is compiled for one."""
    point = machine.state.point
    if isinstance(point, Start) or len(machine.frames.stack) != len(point.frames):
        return False
    shape = point.frames[-1]
    return shape.code is frame.code and shape.ip == frame.last


_MANY = 20  # how much longer loops may be in sum than one alone


@opcode(
    "POP_JUMP_FORWARD_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_TRUE",
    "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE",
    "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_FALSE",
)
def pop_jump_if(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """A truth that interpreted code must tell lands on the stack; then this is done again."""
    found = _condition(machine, frame, instruction, frame.stack.pop())
    if isinstance(found, Value):
        push(frame, found)
        frame.retry()
        return
    if found == instruction.name.endswith("TRUE"):
        if "BACKWARD" in instruction.name:
            _count_round(machine, frame, instruction)
        frame.ip = instruction.target


def _condition(machine: Machine, frame: Frame, jump: Instruction, value: Value) -> bool | Value:
    """The truth that a jump goes by, as `truth` tells it; where it is read from data, the program
    may have made sure of it."""
    if isinstance(value, Question | Tensor | SymBool):
        sure = _sure(machine, frame, jump, value)
        if sure is not None:
            return sure
        if jump.name.endswith("IF_TRUE"):
            value = asserted(machine, value, frame.instructions[jump.index + 1 : jump.target])
    return value.truth(machine)


def _sure(machine: Machine, frame: Frame, jump: Instruction, value: Value) -> bool | None:
    """The truth of a condition on data that the program raises without; None: it is unknown."""
    for index, is_jump in ((jump.index + 1, False), (jump.target, True)):
        if index > jump.index and only_raises(frame.listing, index):
            wanted = jump.name.endswith("TRUE") != is_jump
            return wanted if made_sure(machine, value, wanted) else None
    return None


@opcode("TO_BOOL", since=(3, 13))
def to_bool(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """The truth of a value, for the jump or the `not` behind it."""
    after = frame.instructions[instruction.index + 1]
    if after.name == "UNARY_NOT":  # as one: what `not` makes of it may be no truth that is known
        unary_not(machine, frame, after)
        frame.ip += frame.ip == after.index
        return
    value = frame.stack.pop()
    is_condition = after.name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
    found = _condition(machine, frame, after, value) if is_condition else value.truth(machine)
    if isinstance(found, Value):
        push(frame, found)
        frame.retry()
    else:
        frame.stack.append(machine.values.literal(found))


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", until=(3, 12))
def jump_if_or_pop(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    if frame.phase == 0:
        found = frame.stack[-1].truth(machine)
        if isinstance(found, Value):
            push(frame, found)
            frame.retry()
            return
    else:
        answer = frame.stack.pop().truth(machine)
        assert isinstance(answer, bool), "what __bool__ answers is a constant"
        found = answer
    if found == ("TRUE" in instruction.name):
        frame.ip = instruction.target
    else:
        frame.stack.pop()


@opcode(
    "POP_JUMP_FORWARD_IF_NONE",
    "POP_JUMP_BACKWARD_IF_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
    "POP_JUMP_IF_NONE",
    "POP_JUMP_IF_NOT_NONE",
)
def pop_jump_if_none(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.stack.pop()
    if value.python_type() is type(None):
        value.as_constant(machine)
        is_none = True
    else:
        value.guard_type(machine)
        is_none = False
    if is_none != ("NOT_NONE" in instruction.name):
        frame.ip = instruction.target


@opcode("GET_ITER")
def get_iter(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    push(frame, frame.stack.pop().iterate(machine))


@opcode("FOR_ITER")
def for_iter(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """An iterator written in Python is asked by a polyfill, which gives END where it stops."""
    values = machine.values
    if frame.phase:
        item: Value | None = frame.stack.pop()
        if is_end(item):
            item = None
    elif isinstance(frame.stack[-1], Generator):
        frame.retry()
        machine.frames.resume(frame.stack[-1], values.literal(None), "iterate")
        return
    elif isinstance(frame.stack[-1], Object):
        kind = frame.stack[-1].python_type()
        if resolve(kind, "__next__") is ABSENT:
            stop(UNKNOWN_OPERATION, f"{class_name(kind)} has no __next__ any more")
        frame.retry()
        push(frame, values.polyfill("next_of_object", [frame.stack[-1], values.literal(END)]))
        return
    else:
        foreign = isinstance(frame.stack[-1], ForeignIterator)
        if foreign and idle_loop(machine, frame, instruction.index) is not None:
            stop(IDLE_LOOP, "plain items, and nothing is called")
        item = frame.stack[-1].advance(machine)
    if item is None:
        frame.stack.pop()
        frame.ip = instruction.target
    else:
        push(frame, item)


@opcode("RETURN_VALUE")
def return_value(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.stack[-1]
    for one in frame.variables:
        if one is None or one is value:
            continue
        if made_here(one, Generator) and one.sees_its_end:
            stop(LEFT_GENERATOR, frame.code.co_name)
        waiting = machine.frames.stack[:-1]
        if waiting and is_missed_variable(one) and not is_held_by(waiting, one):
            stop(LEFT_GENERATOR, frame.code.co_name)
    machine.frames.pop(frame.stack.pop())


@opcode("RETURN_GENERATOR")
def return_generator(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """The call of a generator function ends here; its frame waits to be resumed."""
    frame.generator = machine.frames.generator(frame)
    machine.frames.stack.pop()
    if not machine.frames.stack:
        machine.frames.result = frame.generator
    elif not frame.discard:
        machine.frames.stack[-1].stack.append(frame.generator)


@opcode("YIELD_VALUE")
def yield_value(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    machine.frames.suspend(frame.stack.pop())


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    push(frame, frame.stack.pop().iterate(machine))


@opcode("SEND", until=(3, 12))
def send(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """`yield from`: the receiver is below what is sent. Its end leaves its value and jumps."""
    if _sent(machine, frame, instruction):
        end_send(machine, frame, instruction)


@opcode("SEND", since=(3, 12))
def send_and_keep(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """The same; the receiver stays below the value, for END_SEND to drop."""
    _sent(machine, frame, instruction)


@opcode("END_SEND", since=(3, 12))
def end_send(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.stack.pop()
    frame.stack[-1] = value


def _sent(machine: Machine, frame: Frame, instruction: Instruction) -> bool:
    """Whether the receiver came to its end: its value is on the stack, and we have jumped."""
    stack = frame.stack
    if frame.phase:
        if is_end(stack[-1]):
            stack.pop()
            frame.ip = instruction.target
            return True
        return False
    receiver, value = stack[-2], stack[-1]
    if isinstance(receiver, Generator):
        stack.pop()
        frame.retry()
        machine.frames.resume(receiver, value, "send")
        return False
    if value.python_type() is not type(None) or not isinstance(receiver, Iterator):
        stop(GENERATOR, f"yield from {receiver.describe()}")
    item = receiver.advance(machine)
    stack.pop()
    stack.append(machine.values.literal(None) if item is None else item)
    if item is None:
        frame.ip = instruction.target
    return item is None


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """What was thrown into a `yield from` came back from its receiver: its end, or an error."""
    exception = frame.stack[-1]
    exception.guard_type(machine)
    if not issubclass(exception.python_type(), StopIteration):
        raise Raised(exception)
    value = exception.get_attribute(machine, "value")
    del frame.stack[-3:]
    frame.stack.append(machine.values.literal(None))
    push(frame, value)


@opcode("END_FOR", since=(3, 12))
def end_for(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """FOR_ITER jumps over it; CPython runs it when a generator returns into its loop."""
    raise InternalError("END_FOR is never reached")


@opcode(
    "GET_AWAITABLE",
    "GET_AITER",
    "GET_ANEXT",
    "END_ASYNC_FOR",
    "ASYNC_GEN_WRAP",
    "BEFORE_ASYNC_WITH",
)
def generators(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    stop(GENERATOR, instruction.name)
