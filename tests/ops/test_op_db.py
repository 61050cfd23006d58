"""Every ATen op that torch's own samples reach, forward and backward, against its record."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.ops.agreement import check_lowering, check_shape, describe
from windfall.ops.registry import lookup

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

ELEMENTS = 600  # of a tensor whose lowering the oracle evaluates
# as_strided sees the whole storage, which a type does not describe; memory of `empty` is undefined;
# a tensor of zeros without memory cannot be read below the dispatch key that knows of it.
NOT_COMPARED = ("aten.as_strided.", "aten.empty", "aten.new_empty", "aten._efficientzerotensor.")


class Recorder(TorchDispatchMode):
    """Compares each op with its record while it runs."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.limit = calls  # of each overload
        self.calls: Counter[str] = Counter()
        self.wrong: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = func(*args, **kwargs)
        name = str(func)
        if (
            lookup(name).shape is not None
            and self.calls[name] < self.limit
            and _plain((args, kwargs))
        ):
            self.calls[name] += 1
            problem = _problem(name, args, kwargs, answer)
            if problem:
                self.wrong.append(f"{name}({describe(args, kwargs)}): {problem}")
        return answer


def _plain(values: Any) -> bool:
    tensors = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
    return all(
        each.layout is torch.strided
        and each.device.type == "cpu"
        and not each.is_conj()
        and not each.is_neg()
        and not each._is_zerotensor()
        for each in tensors
    )


def _problem(name: str, args: Any, kwargs: Any, answer: Any) -> str | None:
    record = lookup(name)
    assert record.shape is not None
    problem = check_shape(record, args, kwargs, answer)
    if problem or record.lower is None or name.startswith(NOT_COMPARED):
        return problem
    sizes = [each.numel() for each in tree_leaves((args, answer)) if isinstance(each, torch.Tensor)]
    return (
        check_lowering(record, args, kwargs, answer) if max(sizes, default=0) <= ELEMENTS else None
    )


def _run(info: Any, dtype: torch.dtype, recorder: Recorder, samples: int) -> None:
    if dtype not in info.supported_dtypes("cpu"):
        return
    gradients = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    made = info.sample_inputs("cpu", dtype, requires_grad=gradients)
    for sample in itertools.islice(made, samples):
        try:
            with recorder:
                result = info(sample.input, *sample.args, **sample.kwargs)
                _differentiate(result, sample) if gradients else None
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            continue  # a sample that eager itself refuses in this setting


def _differentiate(result: Any, sample: Any) -> None:
    outputs = [
        each.sum()
        for each in tree_leaves(result)
        if isinstance(each, torch.Tensor) and each.requires_grad and not each.is_complex()
    ]
    inputs = [
        each
        for each in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    if outputs and inputs:
        torch.autograd.grad(outputs, inputs, allow_unused=True)


def _sweep(dtype: torch.dtype, samples: int, calls: int, every: int = 1) -> None:
    recorder = Recorder(calls)
    for info in [each for each in op_db if not each.name.startswith("jiterator")][::every]:
        _run(info, dtype, recorder, samples)
    wrong = recorder.wrong
    assert len(recorder.calls) > 50
    assert not wrong, f"{len(wrong)} wrong, first:\n" + "\n".join(wrong[:5])


@pytest.mark.filterwarnings("ignore")
def test_records_agree_with_eager_on_torch_samples() -> None:
    _sweep(torch.float32, samples=1, calls=4, every=5)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.bool,
    ],
    ids=str,
)
def test_records_agree_with_eager_on_many_torch_samples(dtype: torch.dtype) -> None:
    _sweep(dtype, samples=10, calls=200)
