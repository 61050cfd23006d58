"""What libraries ask before they compute: where they run, who an object is, whether two are equal.

Enters: `torch.distributed.is_initialized()`, `torch.onnx.is_in_onnx_export()`, `id(module)`,
`torch.equal(x, y)` and their like. Leaves: constants, relied upon; a truth of the graph where data
are asked. Invariant: a setting of the process is read again by the guard; an object whose address
was told is relied upon by identity.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from windfall import torch_abi
from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.calls import calls, calls_of_module
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.function import Function
from windfall.frontend.values.modes import setting
from windfall.frontend.values.module import Module
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sym_bool import read
from windfall.frontend.values.tensor import METHOD_RULES, Tensor
from windfall.frontend.values.unseen import look
from windfall.ir.guard import IdentityIs
from windfall.ir.reading import is_a, is_among
from windfall.ir.source import AddressOf, Known

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@calls(torch.distributed.is_available)
def _is_available(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(torch.distributed.is_available())  # how torch was built


if torch.distributed.is_available():

    @calls(torch.distributed.is_initialized)
    def _is_initialized(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        return setting(machine, torch.distributed.is_initialized)


@calls_of_module("torch.onnx", "is_in_onnx_export")
def _is_in_onnx_export(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return setting(machine, torch.onnx.is_in_onnx_export)


@calls(torch.jit.annotate)
def _annotate(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords or len(arguments) != 2:
        stop(ARGUMENTS, "annotate")
    return arguments[1]


@calls(torch_abi.parse_to)
def _parse_to(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """`module.to(other)`: of a tensor, where it is and what it holds."""
    other = look(arguments[0]) if arguments else None
    if isinstance(other, Tensor) and len(arguments) == 1 and not keywords:
        fake = other.fake(machine)
        return machine.values.literal((fake.device, fake.dtype, False, None))
    given = [*arguments, *keywords.values()]
    if not all(one.is_constant() for one in given):
        stop(ARGUMENTS, "to")
    plain = [one.as_constant(machine) for one in arguments]
    named = {name: one.as_constant(machine) for name, one in keywords.items()}
    try:
        return machine.values.literal(torch_abi.parse_to(*plain, **named))
    except (TypeError, RuntimeError):  # eager says it
        stop(ARGUMENTS, "to")


@calls(id)
def _id(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """The address of an object from outside. Modules, parameters, classes and functions last: they
    are told by their identity. Others come anew with each call: their address is a number that
    varies, as any other."""
    value = look(arguments[0])
    real = getattr(value, "real", None)
    parameter = isinstance(value, Tensor) and is_a(real, torch.nn.Parameter)
    lasting = parameter or isinstance(value, Module | Class | Function)
    if value.source is None or real is None or not (lasting or isinstance(value, Object)):
        stop(UNKNOWN_CALL, f"id of {value.describe()}")
    if not lasting and not isinstance(value.source, Known):
        value.guard_type(machine)
        return machine.values.wrap(id(real), AddressOf(value.source))
    if isinstance(value, Given):
        value.rely(machine)
    else:
        value.guard(machine, "identity", IdentityIs(real), "its address is asked for")
    machine.guards.take_from_process("an address was asked for")
    return machine.values.literal(id(real))


def _equal(machine: Machine, left: Value, right: Value) -> Value:
    """Of the same shape, and all elements equal: a NaN is not."""
    values = machine.values
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        stop(UNKNOWN_CALL, "torch.equal")
    one, other = left.fake(machine), right.fake(machine)
    if (one.dtype, one.device, one.layout) != (other.dtype, other.device, other.layout):
        stop(UNKNOWN_CALL, "torch.equal of tensors of two kinds")
    if one.dim() != other.dim() or any(a != b for a, b in zip(one.shape, other.shape, strict=True)):
        return values.literal(False)
    alike = values.torch_call("call_function", torch.eq, [left, right], {})
    found = values.torch_call("call_function", torch.all, [alike], {})
    assert isinstance(found, Tensor)
    truth = read(machine, found)
    if truth is None:
        stop(UNKNOWN_CALL, "torch.equal")
    return truth


@calls(torch.equal)
def _equal_of_two(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords or len(arguments) != 2:
        stop(ARGUMENTS, "equal")
    return _equal(machine, *arguments)


def _equal_to(tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords or len(arguments) != 1:
        stop(ARGUMENTS, "equal")
    tensor.rely_on(machine, "equal")
    return _equal(machine, tensor, arguments[0])


METHOD_RULES["equal"] = _equal_to


@calls(pickle.dumps)
def _dumps(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Of constants, as a library keys a cache by its arguments. Text that stands in it twice is
    written once where it is one object, so it is left to CPython."""
    if keywords or len(arguments) != 1 or not arguments[0].is_constant():
        stop(UNKNOWN_CALL, "dumps")
    constant = arguments[0].as_constant(machine)
    leaves = list(_leaves(constant))
    texts = [one for one in leaves if isinstance(one, str | bytes)]
    plain = all(is_among(type(one), _PICKLED) for one in leaves)
    if not plain or len({*texts}) < len(texts):
        stop(UNKNOWN_CALL, "dumps")
    return machine.values.literal(pickle.dumps(constant))


_PICKLED = (int, float, bool, type(None), str, bytes)


def _leaves(constant: Any) -> Iterator[Any]:
    if type(constant) in (tuple, list):
        for one in constant:
            yield from _leaves(one)
    elif type(constant) is dict:
        for key, one in constant.items():
            yield key
            yield from _leaves(one)
    else:
        yield constant


@calls(type.__call__)
def _call_of_type(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """`super().__call__(...)` in a metaclass: the instance is made as always."""
    values: Any = machine.values
    if not arguments or not isinstance(arguments[0], Class):
        stop(UNKNOWN_CALL, "type.__call__")
    made: Value = values.instantiate(arguments[0], arguments[1:], keywords, plainly=True)
    return made
