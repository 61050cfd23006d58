"""Every module of torch's own `module_db`, in training and in evaluation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

from tests.conformance.checking import Made, check_one
from tests.conformance.op_db_samples import copied
from tests.conformance.sweep import Line

SAMPLES = 3


@functools.cache
def table() -> dict[str, tuple[Any, bool]]:
    """The modules by their names, each in both modes."""
    return {
        f"{info.name}:{'train' if training else 'eval'}": (info, training)
        for info in module_db
        if torch.float32 in info.dtypes
        for training in (True, False)
    }


def names() -> list[str]:
    """What can be checked."""
    return sorted(table())


def check(name: str, backend: str, line: Line) -> None:
    """The first inputs of one module."""
    info, training = table()[name]
    count = sum(1 for _ in itertools.islice(_inputs(info, training, False), SAMPLES))
    for index in range(count):
        check_one(_maker(info, training, index, backend != "eager"), backend, line)


def _inputs(info: Any, training: bool, requires_grad: bool) -> Any:
    torch.manual_seed(0)
    return info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=requires_grad, training=training
    )


def _maker(info: Any, training: bool, index: int, requires_grad: bool) -> Callable[[], Made]:
    def make() -> Made:
        given = next(itertools.islice(_inputs(info, training, requires_grad), index, None))
        torch.manual_seed(1)
        module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
        module.to(torch.float32).train(training)
        args, kwargs = copied((given.forward_input.args, given.forward_input.kwargs))
        return module, tuple(args), kwargs

    return make
