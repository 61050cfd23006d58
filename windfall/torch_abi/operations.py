"""What the dispatcher knows of an op: its schema, its kinds, what it writes and aliases.

Enters: any callable. Leaves: facts, or None (False) of what is no op.

    >>> op_writes(torch.ops.aten.add_.Tensor), op_writes(len)
    (True, None)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


def is_overload(target: Any) -> bool:
    """Whether a callable is an ATen (or custom) overload."""
    return isinstance(target, torch._ops.OpOverload)


def is_composite(overload: Any) -> bool:
    """Whether an op is made of other ops in C++, at every dispatch key (linear, matmul, ...)."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key))


class Parameter(NamedTuple):
    """One parameter of an op's schema: its type as the dispatcher has it, and its default."""

    name: str
    type: str
    default: Any


def op_schema(overload: Any) -> tuple[str, str, tuple[Parameter, ...], tuple[str, ...]] | None:
    """Name, overload name, parameters and result types of an op; None for what is no op."""
    schema = getattr(overload, "_schema", None)
    if schema is None:
        return None
    parameters = tuple(
        Parameter(each.name, str(each.real_type), each.default_value) for each in schema.arguments
    )
    results = tuple(str(each.real_type) for each in schema.returns)
    return schema.name, schema.overload_name, parameters, results


def op_writes(overload: Any) -> bool | None:
    """Whether an op writes to one of its arguments; None for what is no op."""
    schema = getattr(overload, "_schema", None)
    return None if schema is None else bool(schema.is_mutable)


def is_operation(value: Any) -> bool:
    """Whether a callable is an op of the dispatcher: a packet of overloads, or one overload."""
    return issubclass(type(value), torch._ops.OpOverload | torch._ops.OpOverloadPacket)


def answers_nothing(value: Any) -> bool:
    """Whether a callable is an op of a library of the user's, no overload of which has a result: it
    is called for what it writes, or for its effects."""
    if not is_operation(value):
        return False
    overloads = [value] if is_overload(value) else [getattr(value, n) for n in value.overloads()]
    return all(one.namespace != "aten" and not one._schema.returns for one in overloads)


def custom_operation(value: Any) -> Any:
    """The overload that a function made by `torch.library.custom_op` calls; None for others."""
    made_by = torch._library.custom_ops.CustomOpDef
    return value._opoverload if issubclass(type(value), made_by) else None


def is_operator_function(function: Any) -> bool:
    """Whether a builtin such as `torch._chunk_cat` is the Python name of an ATen op."""
    name: str = getattr(function, "__name__", "")
    qualified = getattr(function, "__qualname__", "")
    of_torch = qualified == f"_VariableFunctionsClass.{name}"
    of_layers = qualified == name and getattr(function, "__module__", "") == "torch._C._nn"
    return (of_torch or of_layers) and hasattr(torch.ops.aten, name)


def aliased_results(overload: Any) -> tuple[bool, ...]:
    """For each result of an op whether it may share memory with an argument (views)."""
    return tuple(each.alias_info is not None for each in overload._schema.returns)


def same_generator(one: torch.Generator, other: torch.Generator) -> bool:
    """Whether two objects stand for one generator: the dispatcher makes new ones around it."""
    return bool(one._cdata == other._cdata)  # type: ignore[attr-defined]
