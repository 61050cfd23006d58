"""Every in-place op of two tensors refuses an operand that its target is too small for, as in
eager: torch's meta kernels of some take it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import windfall
from windfall.ops import registry
from windfall.ops.schema import functional_name


def _names() -> list[str]:
    """Methods that write their tensor, element by element, and read another one."""
    found = []
    for name in sorted(vars(torch._C.TensorBase)):
        packet = getattr(torch.ops.aten, name, None)
        if name.endswith("_") and not name.startswith("_") and packet is not None:
            overloads = [getattr(packet, one, None) for one in ("default", "Tensor")]
            if any(one is not None and _takes_another(one) for one in overloads):
                found.append(name)
    return found


def _takes_another(overload: Any) -> bool:
    record = registry.lookup(functional_name(overload))
    first, *rest = overload._schema.arguments
    needed = [one for one in rest if not one.has_default_value() and not one.kwarg_only]
    others = [str(one.type) for one in needed] == ["Tensor"]
    return others and first.alias_info is not None and record.shape is not None


NAMES = _names()


def _raised(call: Any) -> Any:
    try:
        call()
    except RuntimeError as error:
        return str(error)[:40]
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", NAMES)
def test_a_target_that_is_too_small(name: str, dtype: torch.dtype) -> None:
    def run(a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = getattr(a.clone(), name)(b)
        return found

    small, row, column = (torch.ones(5, 1), torch.ones(1, 5), torch.ones(5, 1))
    for a, b in ((small, row), (torch.ones(()), row), (column, column)):
        given = a.to(dtype), b.to(dtype)
        wanted = _raised(lambda given=given: run(*given))  # type: ignore[misc]
        assert _raised(lambda given=given: windfall.compile(run)(*given)) == wanted  # type: ignore[misc]


def test_there_are_many() -> None:
    assert len(NAMES) >= 30
    assert {"pow_", "add_", "eq_", "atan2_", "floor_divide_", "copysign_"} <= set(NAMES)
