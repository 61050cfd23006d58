"""`torch._check` and its like, and `assert`: what the program makes sure of.

Enters: a condition. Leaves: nothing where it is known; a node that checks it where it is about
numbers that are read from data, and from there on it is known. Invariant: a condition that fails
raises what eager raises, at its place among the operations; where somebody would catch that, or
see what was done before it, it is a break.

    n = count.item()
    torch._check(n <= x.shape[0])    check(n, 8); u0 <= 8 is known now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.errors import Specialise
from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, stop
from windfall.frontend.bytecode import Instruction
from windfall.frontend.reads import expected
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.function import Function
from windfall.frontend.values.readings import detached
from windfall.frontend.values.sym_bool import SymBool
from windfall.frontend.values.symbolic import Question, SymInt, question
from windfall.frontend.values.tensor import Tensor
from windfall.ir.check import DataCheck, Message
from windfall.ir.relation import Relation
from windfall.ir.rollback import KEPT_BYTES
from windfall.ir.symint import reads_of

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def _check(machine: Machine, error: type[Exception], condition: Value, message: Value) -> Value:
    if isinstance(condition, Question):
        _make_sure(machine, condition.relation, error, message)
    elif not isinstance(condition, Constant) or condition.as_constant(machine) is not True:
        stop(UNKNOWN_CALL, f"a check that fails: {condition.describe()}")
    return machine.values.literal(None)


def _make_sure(
    machine: Machine, relation: Relation, error: type[Exception], message: Value
) -> None:
    names = reads_of(relation.left, relation.right)
    expected(machine, relation, names)
    found, held = _message(machine, message, names)
    _note(machine, relation, DataCheck(relation.operation, error, found), held)


def _note(machine: Machine, relation: Relation, check: DataCheck, held: Sequence[Any]) -> None:
    graph = machine.graph
    sides = tuple(graph.size_node(one) for one in (relation.left, relation.right))
    graph.check(check, (*sides, *held))
    machine.symbols.assumed.tell(relation)


def _message(
    machine: Machine, value: Value, names: frozenset[str]
) -> tuple[Message | None, list[Any]]:
    """The message's code, and nodes or constants for what it closes over."""
    if isinstance(value, Constant) and value.as_constant(machine) is None:
        return None, []
    if not isinstance(value, Function) or value.code.co_argcount or value.code.co_kwonlyargcount:
        raise Specialise(names, f"the message {value.describe()}", machine.frames.where())
    held: list[Any] = []
    for cell in value.closure(machine):
        one = cell.get(machine)
        if isinstance(one, SymInt):
            held.append(machine.graph.size_node(one.bound(machine)))
        elif isinstance(one, Constant) and one.source is None:
            held.append(one.as_constant(machine))
        else:
            raise Specialise(names, f"what {value.describe()} closes over", machine.frames.where())
    return Message(value.code, value.globals), held


_RAISES = ("LOAD_ASSERTION_ERROR", "RAISE_VARARGS")
_RAISES_TEXT = ("LOAD_ASSERTION_ERROR", "LOAD_CONST", "CALL", "RAISE_VARARGS")


def asserted(machine: Machine, condition: Value, otherwise: Sequence[Instruction]) -> Value:
    """An `assert` of what is read from data, without a message or with a constant one: `otherwise`
    is what the program does where it fails. Of any other branch nothing is told. What is to be
    asked is the condition, or that a number which was read for it is not 0."""
    names = tuple(one.name for one in otherwise if one.name not in ("PRECALL", "CACHE"))
    texts = [one.value for one in otherwise if one.name == "LOAD_CONST"]
    if names not in (_RAISES, _RAISES_TEXT) or not all(isinstance(one, str) for one in texts):
        return condition
    if isinstance(condition, Tensor):
        condition = machine.values.flag(condition) or condition
    if isinstance(condition, SymBool):
        number = condition.number(machine)
        assert isinstance(number, SymInt), "or the read is a break"
        condition = question(machine, "!=", number.bound(machine), 0)
    if isinstance(condition, Question) and not condition.is_told():
        relation = condition.relation
        expected(machine, relation, reads_of(relation.left, relation.right))
        _note(machine, relation, DataCheck(relation.operation, AssertionError, tuple(texts)), ())
    return condition


def made_sure(machine: Machine, condition: Value, wanted: bool) -> bool:
    """Whether a graph sees to it that a truth which is read from data is `wanted`: of a branch
    whose other side raises. Where it is not, the graph comes to no end and eager does all of it
    (ADR 67): so the exception, its text and its handlers are eager's."""
    if not machine.facts.retried or machine.frames.is_one_operation:
        return False
    if _written_bytes(machine) > KEPT_BYTES:
        return False  # what runs op by op could not be taken back
    if isinstance(condition, Tensor):
        known = condition.fake(machine)
        if any(size != 1 for size in known.shape) or known.is_complex():
            return False
        held = detached(machine, condition)
    elif isinstance(condition, SymBool):
        held = condition.held
    else:
        return False
    values = machine.values
    if not wanted:
        held = values.torch_call("call_function", torch.logical_not, [held], {})
    where = values.literal(f"a branch that raises: {machine.frames.where()}")
    values.torch_call("call_function", torch_abi.HOLD, [held, where, held], {})
    return True


def _written_bytes(machine: Machine) -> int:
    """How large the inputs are that the graph has written."""
    graph = machine.graph
    found = [
        one.real
        for one in (graph.fakes.values() if graph.written else ())
        if isinstance(one, Tensor) and one.real is not None and one.is_written(machine)
    ]
    return sum(one.numel() * one.element_size() for one in found)


def _rule(function: Any, error: type[Exception]) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        given = dict(zip(("cond", "message"), arguments, strict=False)) | keywords
        if len(arguments) > 2 or not given.keys() <= {"cond", "message"} or "cond" not in given:
            stop(ARGUMENTS, f"{function.__name__}()")
        message = given.get("message", machine.values.literal(None))
        return _check(machine, error, given["cond"], message)

    calls(function)(rule)


for _function, _error in torch_abi.CHECKS.items():
    _rule(_function, _error)


@calls(torch_abi.check_is_size)
def _check_is_size(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = dict(zip(("i", "message"), arguments, strict=False)) | keywords
    number, most = given.get("i"), given.get("max", machine.values.literal(None))
    known = isinstance(most, SymInt | Constant) and given.keys() <= {"i", "message", "max"}
    if not isinstance(number, SymInt) or not known or not reads_of(number.size):
        stop(UNKNOWN_CALL, "torch._check_is_size")
    message = given.get("message", machine.values.literal(None))
    limits: list[tuple[str, Value]] = [(">=", machine.values.literal(0))]
    if not (isinstance(most, Constant) and most.as_constant(machine) is None):
        limits.append(("<=", most))
    for operation, limit in limits:
        right = limit.bound(machine) if isinstance(limit, SymInt) else limit.as_constant(machine)
        if not isinstance(limit, SymInt) and type(right) is not int:
            stop(UNKNOWN_CALL, "torch._check_is_size")
        asked = question(machine, operation, number.bound(machine), right)
        _check(machine, RuntimeError, asked, message)
    return machine.values.literal(None)
