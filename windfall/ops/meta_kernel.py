"""The type of an op's result as torch's own meta kernel tells it.

Enters: an op and its arguments, fakes among them. Leaves: fakes. Invariant: the op runs once, on
tensors of the meta device that stand for its arguments (`_Twins`); what it does to one of them is
done to the fake that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.errors import Unsupported
from windfall.identity_map import IdentityMap
from windfall.ir.dtype import TensorType
from windfall.ops.fake_tensor import (
    Storage,
    become,
    forget_constant,
    hint,
    is_fake,
    make,
    number_of,
    place_of,
    typed,
)
from windfall.ops.schema import Plan, Return

# Ops that answer quantised tensors; their meta kernels answer plain ones.
_QUANTISES = re.compile(r"(?<!fake_)quantize_per|affine_quantized|_quantized_tensor|quantized_max")
# What makes sparse gradients: they are only handed on, as dense ones would be.
_HANDED_ON = re.compile(r"backward|_sparse_coo_tensor_with_dims")


class _Twins:
    """Tensors on the meta device that stand for the arguments of one op."""

    def __init__(self) -> None:
        self._by_identity: IdentityMap[torch.Tensor, Any] = IdentityMap()
        self.device: torch.device | None = None

    def of(self, value: Any) -> Any:
        """`value` with twins in place of tensors and the meta device in place of devices."""
        if isinstance(value, torch.Tensor):
            twin = self._by_identity.get(value)
            if twin is None:
                twin = self._by_identity[value] = self._twin(value)
            return twin
        if isinstance(value, list | tuple):
            return type(value)([self.of(one) for one in value])
        if isinstance(value, torch.device):
            self.device = value
            return torch.device("meta")
        return None if isinstance(value, torch.Generator) else value  # (there is none of meta's)

    def _twin(self, value: torch.Tensor) -> Any:
        if not is_fake(value) and torch_abi.is_wrapped_number(value):
            return hint(number_of(value))
        self.device = self.device or value.device
        known = typed(value)
        start: Any = value._fake_offset if is_fake(value) else value.storage_offset()
        if not start:
            return torch.empty_strided(known.sizes, known.strides, dtype=known.dtype, device="meta")
        extent = (
            start
            + 1
            + sum(
                (size - 1) * stride for size, stride in zip(known.sizes, known.strides, strict=True)
            )
        )
        memory = torch.empty(max(extent, 0), dtype=known.dtype, device="meta")
        return memory.as_strided(known.sizes, known.strides, start)

    def original(self, twin: torch.Tensor, args: Any) -> torch.Tensor | None:
        """The argument that `twin` stands for, if any."""
        for one in args:
            if isinstance(one, list | tuple):
                found = self.original(twin, one)
                if found is not None:
                    return found
            elif isinstance(one, torch.Tensor) and self._by_identity.get(one) is twin:
                return one
        return None


def by_meta_kernel(func: Any, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Ask torch: run the op on tensors of the meta device."""
    if _QUANTISES.search(func._schema.name):
        raise Unsupported(101, f"{func}: its result is quantised, that of its meta kernel is not")
    twins = _Twins()
    twin_args = [twins.of(one) for one in args]
    twin_kwargs = {name: twins.of(one) for name, one in kwargs.items()}
    for index in plan.written:
        forget_constant(plan.argument(index, args, kwargs))
    if not twins.device and "device" in plan.names:
        twin_kwargs["device"] = torch.device("meta")
    try:
        answer = func(*twin_args, **twin_kwargs)
    except NotImplementedError as error:
        raise Unsupported(101, f"{func}: {str(error).splitlines()[0]}") from error
    if not _HANDED_ON.search(func._schema.name):
        _refuse_other_layouts(func, answer)
    device = twins.device or torch.get_default_device()
    for index in plan.written:
        _repair(plan.argument(index, args, kwargs), twins, device)
    everything = (*args, *kwargs.values())
    if len(plan.returns) > 1:
        return tuple(
            _from_meta(one, plan, returned, twins, everything, device)
            for returned, one in zip(plan.returns, answer, strict=True)
        )
    if not plan.returns:
        return None
    return _from_meta(answer, plan, plan.returns[0], twins, everything, device)


def _refuse_other_layouts(func: Any, answer: Any) -> None:
    for one in answer if isinstance(answer, list | tuple) else (answer,):
        if isinstance(one, torch.Tensor) and one.layout is not torch.strided:
            layout = str(one.layout).removeprefix("torch.")
            raise Unsupported(101, f"{func}, whose result is {layout}: graphs have strided tensors")


def _type_from_meta(answer: torch.Tensor, device: torch.device) -> TensorType:
    return replace(TensorType.of(answer), device=device, requires_grad=False)


def _from_meta(
    answer: Any,
    plan: Plan,
    returned: Return,
    twins: _Twins,
    everything: tuple[Any, ...],
    device: torch.device,
) -> Any:
    if isinstance(answer, list | tuple):
        return [_from_meta(one, plan, returned, twins, everything, device) for one in answer]
    if not isinstance(answer, torch.Tensor):
        return answer
    same = twins.original(answer, everything)
    if same is not None:
        return same
    type = _type_from_meta(answer, device)
    if returned.argument is None or not returned.view:
        return make(type, Storage())
    base = everything[returned.argument]
    storage, _ = place_of(base)
    offset: Any = answer.storage_offset()
    return make(type, storage, offset)


def _repair(target: Any, twins: _Twins, device: torch.device) -> None:
    """Give a written fake the sizes, strides and offset that its twin has now."""
    if isinstance(target, list | tuple):
        for one in target:
            _repair(one, twins, device)
    elif is_fake(target):
        twin = twins.of(target)
        type, offset = _type_from_meta(twin, device), twin.storage_offset()
        if type != target._fake_type or offset != target._fake_offset:
            become(target, type, target._fake_storage, offset)
