"""What an overload does to its arguments, read from its schema and its record.

Enters: an `OpOverload`. Leaves: its `Plan`: which arguments it writes, what its results are (an
argument, a view of one, new), which shape rule serves it. Invariant: a plan is made once for each
overload and record; it holds no tensor.

    >>> returns_of(torch.ops.aten.t.default)
    (Return(argument=0, view=True, many=False, tensor=True),)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.ops import registry

# Ops that fake tensors run by rules of their own, by name; filled by `fake.py`.
SPECIAL: dict[str, Callable[..., Any]] = {}


# What C++ asks of a tensor whose sizes it cannot see; no ops of the dispatcher.
QUESTIONS = ("aten.size.default", "aten.stride.default")


@dataclass(frozen=True, slots=True)
class Return:
    """What one result of an op is: the very argument it writes, a view of an argument, or new."""

    argument: int | None = None
    view: bool = False
    many: bool = False  # a list of tensors
    tensor: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What an overload does to its arguments, read once from its schema and its record."""

    op: registry.Op
    shape: registry.Shape | None  # the rule of the op, or of its functional counterpart
    composite: bool
    special: Callable[..., Any] | None  # a row of SPECIAL
    reads_data: bool  # its result depends on the data of its arguments
    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    written: tuple[int, ...]
    returns: tuple[Return, ...]
    plain: bool  # one new tensor, nothing written
    out: bool  # only `out=` arguments are written
    numbers: tuple[int, ...]  # positions of Python's numbers, which are converted to a dtype

    def argument(self, index: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The argument at `index` of the schema, however it was passed."""
        return args[index] if index < len(args) else kwargs.get(self.names[index])


_PLANS: dict[Any, Plan] = {}


def plan_of(func: Any) -> Plan:
    """What an overload does; read again if its record has changed."""
    plan = _PLANS.get(func)
    if plan is None or plan.op is not registry.lookup(func):
        plan = _PLANS[func] = _make_plan(func)
    return plan


def writes_of(func: Any) -> tuple[tuple[int, str], ...]:
    """Positions and names of the arguments that an overload writes, hidden writes included."""
    plan = plan_of(func)
    written = dict.fromkeys((*plan.written, *plan.op.mutates))
    return tuple((index, plan.names[index]) for index in written)


@functools.cache
def counts_writes(func: Any) -> bool:
    """Whether the kernel of an op counts what it writes, once for each tensor, where fakes do not
    see it: it calls other ops that do. Ops of others are believed to; ATen's are torch's
    `_foreach_` family (those that write memory directly count nothing, as `_fused_sgd_`)."""
    own = func.namespace != "aten" or func.overloadpacket.__name__.startswith("_foreach_")
    return own and bool(writes_of(func))


def argument(func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The argument called `name`, however it was passed; its default, if it was not."""
    plan = plan_of(func)
    index = plan.names.index(name)
    return args[index] if index < len(args) else kwargs.get(name, plan.defaults[index])


def returns_of(func: Any) -> tuple[Return, ...]:
    """What each result of an overload is."""
    return plan_of(func).returns


def _make_plan(func: Any) -> Plan:
    schema = func._schema
    arguments = schema.arguments
    written = tuple(index for index, one in enumerate(arguments) if _written(one))
    returns = tuple(_return_plan(one, arguments) for one in schema.returns)
    op = registry.lookup(func)
    functional = registry.lookup(functional_name(func)) if written else op
    metadata_changes = torch.Tag.inplace_view in func.tags
    special = SPECIAL.get(op.name)
    plain = len(returns) == 1 and returns[0] == Return() and not written
    return Plan(
        op,
        None if metadata_changes else functional.shape,
        op.name not in QUESTIONS and not op.whole and torch_abi.is_composite(func),
        special,
        not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.isdisjoint(func.tags),
        tuple(one.name for one in arguments),
        tuple(one.default_value for one in arguments),
        written,
        returns,
        plain,
        _writes_out_only(arguments),
        tuple(index for index, one in enumerate(arguments) if "number" in str(one.type)),
    )


def overload(name: str) -> Any:
    """The `OpOverload` of a full name, or None."""
    namespace, packet, kind = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, kind, None)


def functional_name(func: Any) -> str:
    """The name of the overload that answers new tensors where `func` writes: `aten.add_.Tensor`
    and `aten.add.out` become `aten.add.Tensor`; `func`'s own name if there is none."""
    name = func.overloadpacket.__name__
    arguments = func._schema.arguments
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    elif not _writes_out_only(arguments):
        return str(func)
    wanted = [str(one.type) for one in arguments if not (_written(one) and one.kwarg_only)]
    packet = getattr(getattr(torch.ops, func.namespace), name, None)
    for candidate in packet.overloads() if packet is not None else ():
        schema = getattr(packet, candidate)._schema
        if [str(one.type) for one in schema.arguments] == wanted and not schema.is_mutable:
            return f"{func.namespace}.{name}.{candidate}"
    return str(func)


def starts_anew(
    view: registry.Op, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether the place of a view counts from the start of the storage. Where none is given, it is
    that of the view's base."""
    if not view.absolute_offset:
        return False
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return given.get("storage_offset") is not None


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _writes_out_only(arguments: Sequence[Any]) -> bool:
    return all(one.kwarg_only for one in arguments if _written(one))


def _return_plan(returned: Any, arguments: Sequence[Any]) -> Return:
    text = str(returned.type)
    alias = returned.alias_info
    many, tensor = "List" in text or text.endswith("[]"), "Tensor" in text
    if alias is None:
        return Return(many=many, tensor=tensor)
    for index, one in enumerate(arguments):
        # A list of views says so by its argument alone: `Tensor(a -> *) self`.
        if one.alias_info and (
            "*" in one.alias_info.after_set
            if many
            else one.alias_info.before_set & alias.before_set
        ):
            return Return(index, not alias.is_write, many, tensor)
    return Return(many=many, tensor=tensor)
