"""Higher-order functions of torch: their bodies become graphs of their own, inside of one node.

Enters: `torch.cond` and its like, with functions of the user. Leaves: a node whose target holds a
graph for each body (`ir/control_flow.py`); what a body uses from outside, closures included, is an
operand. Invariant: a body is interpreted as any function is, and taken out of the graph before the
next one begins; one that did anything but compute new tensors breaks, and the whole call is made
natively.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.frontend.breaks import ARGUMENTS, BODY, stop
from windfall.frontend.polyfills import control_flow
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.bodies import Bodies, built, graph_of, operands_of, put
from windfall.frontend.values.calls import calls, calls_of
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.ir.control_flow import Branch
from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ops.layout import is_non_overlapping_and_dense

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


# ----------------------------------------------------------------------------------------- cond


@calls(torch.cond)
def _cond(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = dict(zip(("pred", "true_fn", "false_fn", "operands"), arguments, strict=False))
    given |= keywords
    flag, operands = look(given["pred"]), given.get("operands") or machine.values.tuple(())
    yes, no = given["true_fn"], given["false_fn"]
    if not isinstance(flag, Tensor):
        if not issubclass(flag.python_type(), bool | int | float):
            stop(ARGUMENTS, f"torch.cond of {flag.describe()}")
        chosen = yes if flag.truth(machine) is True else no
        parts = [chosen, operands, machine.values.created_dict({})]
        return machine.values.polyfill("call_starred", parts)
    if flag.fake(machine).numel() != 1 or not _only_tensors(machine, operands):
        stop(ARGUMENTS, "torch.cond")
    machine.frames.hold_together()
    flag = _as_flag(machine, flag)
    return machine.values.polyfill("branch", [flag, yes, no, operands])


def _as_flag(machine: Machine, tensor: Tensor) -> Tensor:
    """A bool without dimensions."""
    values = machine.values
    if tensor.fake(machine).dim():
        shape = values.tuple(())
        tensor = values.torch_call("call_method", "reshape", [tensor, shape], {})  # type: ignore[assignment]
    if tensor.fake(machine).dtype is not torch.bool:
        zero = values.literal(0)
        tensor = values.torch_call("call_function", torch.ne, [tensor, zero], {})  # type: ignore[assignment]
    return tensor


def _only_tensors(machine: Machine, value: Value) -> bool:
    value = look(value)
    if isinstance(value, Tensor):
        return True
    if type(look(value)) in (Tuple, List):
        return all(_only_tensors(machine, one) for one in value.unpack(machine))
    if type(look(value)) is Dict:
        keys = value.iterate(machine).unpack(machine)
        return all(_only_tensors(machine, value.get_item(machine, one)) for one in keys)
    return False


@calls(control_flow.finish_branch)
def _finish_branch(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    bodies, flag = arguments
    assert isinstance(bodies, Bodies) and isinstance(flag, Tensor)
    yes, no = bodies.found
    if yes.structure != no.structure:
        stop(BODY, f"the bodies of {bodies.name} return different structures")
    for one, other in zip(yes.results, no.results, strict=True):
        _check_alike(bodies, info(one).type, info(other).type)
    sizes, tensors = operands_of(machine, bodies, [])
    target = Branch([graph_of(one, sizes, tensors) for one in bodies.found])
    leaves = put(machine, target, [flag.node(machine)], sizes, tensors)
    machine.frames.let_go()
    return built(machine, yes.structure, leaves)


def _check_alike(bodies: Bodies, one: Any, other: Any) -> None:
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        stop(BODY, f"the bodies of {bodies.name} return parts of results")
    if one.without_grad() != other.without_grad():
        stop(BODY, f"the bodies of {bodies.name} return {one} and {other}")
    if not is_non_overlapping_and_dense(one.sizes, one.strides):
        stop(BODY, f"a body of {bodies.name} returns {one}, which has gaps or overlaps")


# --------------------------------------------------------------------------- nested_compile_region


@calls_of(torch.compiler.nested_compile_region(lambda: None))
def _marked(machine: Machine, marked: Any, arguments: Arguments, keywords: Keywords) -> Value:
    """A function that torch's compiler would compile for itself: in eager it is just called.
    (Blocks that repeat themselves are found by what they do.)"""
    called: Value = marked.inline(machine, arguments, keywords)
    return called


@calls(torch_abi.call_region)
def _region(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    function, *given = arguments
    return function.call(machine, given, keywords)
