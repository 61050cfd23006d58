"""Optimizers: torch's wrappers around their steps, and what the steps ask of torch.

Enters: calls of the wrappers (`_use_grad`, those that keep torch's own compiler away), of
`record_function`, of questions about devices, of fused steps. Leaves: the calls behind them, or
constants; a fused step is an effect, which runs behind the graph on the user's own tensors, by
torch's kernel. Invariant: what torch's wrappers do is done, but nothing of theirs that loads
torch's compiler. The arithmetic is eager's: in the files of `torch.optim` nobody is said to compile
(`torchapi.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.frontend.breaks import UNKNOWN_CALL, stop
from windfall.frontend.policy import Treatment
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import BY_CODE, calls
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.function import Function
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.ir.guard import IdentityIs

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def _wrapped(machine: Machine, wrapper: Function, name: str) -> Value:
    """The function that a wrapper holds."""
    wrapper.rely(machine)
    held = wrapper.closure(machine)[wrapper.code.co_freevars.index(name)].get(machine)
    assert held is not None, "a cell of a wrapper is filled before it is called"
    return held


def _step(machine: Machine, wrapper: Function, arguments: Arguments, keywords: Keywords) -> Value:
    step = _wrapped(machine, wrapper, "func")
    return machine.values.polyfill("step_in_grad_mode", [step, *arguments], keywords)


def _followed(
    machine: Machine, wrapper: Function, arguments: Arguments, keywords: Keywords
) -> Value:
    """Others than those of optimizers (`checkpoint`) are called as they are."""
    if not str(getattr(wrapper.real, "__module__", "")).startswith("torch.optim."):
        wrapper.guard(machine, "identity", IdentityIs(wrapper.real))
        return machine.values.treated(Treatment.NATIVE, wrapper.real, arguments, keywords)
    return _wrapped(machine, wrapper, "fn").call(machine, arguments, keywords)


def _scheduled(
    machine: Machine, wrapper: Function, arguments: Arguments, keywords: Keywords
) -> Value:
    """The schedule's weak reference is called here and held by no frame: in a variable of one, its
    death would be seen (W0029)."""
    step = _wrapped(machine, wrapper, "func")
    optimizer = _wrapped(machine, wrapper, "opt_ref").call(machine, [], {})
    return machine.values.polyfill("step_of_schedule", [step, optimizer, *arguments], keywords)


BY_CODE[id(torch_abi.OF_SCHEDULER)] = _scheduled
BY_CODE[id(torch_abi.WITH_GRAD_MODE)] = _step
BY_CODE[id(torch_abi.NOT_COMPILED)] = _followed


def _enter_profiled(
    machine: Machine, method: Function, arguments: Arguments, keywords: Keywords
) -> Value:
    """Of an object that the program itself makes."""
    method.rely(machine)
    (block,) = arguments
    if block.source is not None:
        stop(UNKNOWN_CALL, f"{method.qualname} of a block from outside")
    return machine.values.polyfill("enter_profiled", arguments)


def _leave_profiled(
    machine: Machine, method: Function, arguments: Arguments, keywords: Keywords
) -> Value:
    """Of one that compiled code entered, here or before a break."""
    method.rely(machine)
    begun = arguments[0].get_attribute(machine, "run_callbacks_on_exit")
    if begun.as_constant(machine) is not False:
        stop(UNKNOWN_CALL, f"{method.qualname} of a block from outside")
    return machine.values.literal(None)


_record_function = torch.autograd.profiler.record_function


@calls(_record_function)
def _profiled_block(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    cls = machine.values.known(_record_function, "record_function")
    assert isinstance(cls, Class)
    none = machine.values.literal(None)
    fields = {"name": none, "args": none}
    fields |= dict(zip(("name", "args"), arguments, strict=False)) | keywords
    fields |= {"run_callbacks_on_exit": machine.values.literal(True), "record": none}
    made = Object(cls)
    held = made.attributes(machine)
    assert held is not None
    for name, value in {**fields, "_cupti_monitor_external_id": none}.items():
        held.store(machine, name, value)
    return made


BY_CODE[id(_record_function.__enter__.__code__)] = _enter_profiled
BY_CODE[id(_record_function.__exit__.__code__)] = _leave_profiled


@calls(torch.accelerator.current_accelerator)
def _accelerator(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Which there is: the same for as long as the process lives."""
    plain = [one.as_constant(machine) for one in arguments]
    named = {name: one.as_constant(machine) for name, one in keywords.items()}
    return machine.values.literal(torch.accelerator.current_accelerator(*plain, **named))


@calls(torch_abi.group_tensors)
def _grouped(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Lists of tensors by device and dtype: asked of torch, with tensors without data."""
    lists = arguments[0].unpack(machine)
    plain = [[_tensor_or_none(machine, one) for one in each.unpack(machine)] for each in lists]
    rest = [one.as_constant(machine) for one in arguments[1:]]
    named = {name: one.as_constant(machine) for name, one in keywords.items()}
    found = machine.graph.on_fakes(torch_abi.group_tensors, (plain, *rest), named)
    return machine.values.literal(found)


def _tensor_or_none(machine: Machine, value: Value) -> Any:
    return value.graph_argument(machine)[1]


# ------------------------------------------------------------------------------------ fused steps


def without_gradients(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
    """A call with the grad mode off, as the program had it."""
    with torch.no_grad():
        function(*arguments, **keywords)


# One number for each tensor, in the type that the kernels take.
_COUNTS = "state_steps"


def _is_accepted(machine: Machine, named: Mapping[str, Value]) -> bool:
    """Whether the kernel refuses none of these: lists of plain tensors that go together, numbers,
    tensors."""
    lists = {name: look(one) for name, one in named.items() if isinstance(look(one), List | Tuple)}
    plain = (one for name, one in named.items() if name not in lists)
    if not all(_is_plain_argument(machine, one) for one in plain):
        return False
    items = {name: [look(one) for one in each.unpack(machine)] for name, each in lists.items()}
    if not all(isinstance(one, Tensor) for each in items.values() for one in each):
        return False
    fakes = {name: _tensors_in(machine, one) for name, one in lists.items()}
    written = fakes.get("self", [])
    return all(
        not each or (len(each) == len(written) and all(map(_goes_with(name), each, written)))
        for name, each in fakes.items()
    )


def _is_plain_argument(machine: Machine, value: Value) -> bool:
    value = look(value)
    return isinstance(value, Tensor) or issubclass(value.python_type(), float | int | NoneType)


def _goes_with(name: str) -> Callable[[torch.Tensor, torch.Tensor], bool]:
    if name == _COUNTS:
        return lambda one, _: one.dtype is torch.float32 and one.numel() == 1
    return lambda one, written: (
        (one.dtype, one.shape, one.layout, one.device)
        == (
            written.dtype,
            written.shape,
            torch.strided,
            written.device,
        )
    )


def _fused(function: Any) -> None:
    names = [
        one.name for one in getattr(torch.ops.aten, function.__name__).default._schema.arguments
    ]

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        # What the kernel refuses is called at a break, where the program's objects are as far as
        # they are in eager: an effect runs behind the graph, when what was made is as at the end.
        named = dict(zip(names, arguments, strict=False)) | keywords
        if not _is_accepted(machine, named):
            stop(UNKNOWN_CALL, f"{function.__name__} of tensors that do not go together")
        given = [*arguments, *keywords.values()]
        tensors = [one for each in given for one in _tensors_in(machine, each)]
        called = machine.values.known(function, function.__name__)
        if not torch.is_grad_enabled():
            wrapper = machine.values.known(without_gradients, "without_gradients")
            template, first = "{}({}, ", [wrapper, called]
        else:
            template, first = "{}(", [called]
        parts = ["{}"] * len(arguments) + [f"{name}={{}}" for name in keywords]
        machine.graph.write_late(tensors)
        machine.effects.add(f"{template}{', '.join(parts)})", *first, *given)
        return machine.values.literal(None)

    calls(function)(rule)


def _tensors_in(machine: Machine, value: Value) -> list[torch.Tensor]:
    value = look(value)
    if isinstance(value, List | Tuple):
        return [one for each in value.unpack(machine) for one in _tensors_in(machine, each)]
    return [value.fake(machine)] if isinstance(value, Tensor) else []


for _function in torch_abi.FUSED_STEPS:
    _fused(_function)
