"""Every op with a lowering, compiled: the first samples of its record against eager. (The whole of
the samples: `make conformance`.)"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from tests.codegen.harness import Trace, compiled
from tests.ops.agreement import without_the_machine
from windfall import torch_abi
from windfall.ops.registry import Op, all_ops

CHUNK = 12  # ops in one graph: a module costs time, a kernel more in it costs less


def _overload(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _testable() -> list[Op]:
    return [
        op
        for op in all_ops()
        if op.lower is not None
        and op.samples is not None
        and not op.random
        and not torch_abi.op_writes(_overload(op.name))
    ]


def _calls(op: Op, count: int | None) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    assert op.samples is not None
    return islice(op.samples(), count)


def _placed(trace: Trace, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return trace.input(value)
    if type(value) in (list, tuple):
        return type(value)(_placed(trace, each) for each in value)
    return value


def _traced(trace: Trace, op: Op, arguments: Any, keywords: Any) -> list[torch.fx.Node]:
    given = [_placed(trace, each) for each in arguments]
    named = {name: _placed(trace, value) for name, value in keywords.items()}
    try:
        node = trace(_overload(op.name), *given, **named)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return []  # eager refuses this sample
    value = trace.values[node]
    if isinstance(value, torch.Tensor):
        return [node]
    return [trace.item(node, p) for p, each in enumerate(value) if isinstance(each, torch.Tensor)]


ROUGH = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float32: 1e-4}


def _close(result: torch.Tensor, expected: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    # A float32 result of half floats is as exact as these.
    dtypes = [expected.dtype, *(each.dtype for each in inputs if each.dtype.is_floating_point)]
    tolerance = max(ROUGH.get(dtype, 1e-7) for dtype in dtypes)
    torch.testing.assert_close(
        result, expected, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=True
    )


CHUNKS = [
    [op.name for op in _testable()[start : start + CHUNK]]
    for start in range(0, len(_testable()), CHUNK)
]


def first_samples(names: list[str]) -> tuple[Trace, list[torch.fx.Node], list[str]]:
    """One graph of these ops' first samples: its results, and whose each is."""
    trace = Trace()
    outs: list[torch.fx.Node] = []
    owners: list[str] = []
    for op in _testable():
        if op.name in names:
            for arguments, keywords in _calls(op, 1):
                made = _traced(trace, op, arguments, keywords)
                outs += made
                owners += [op.name] * len(made)
    return trace, outs, owners


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_first_samples(names: list[str]) -> None:
    trace, outs, owners = first_samples(names)
    _, results, expected = compiled(trace, *outs)
    for name, result, wanted in zip(owners, results, expected, strict=True):
        try:
            _close(result, wanted, [])
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [op.name for op in _testable()])
def test_all_samples(name: str) -> None:
    (op,) = (op for op in _testable() if op.name == name)
    for arguments, keywords in _calls(op, None):
        trace = Trace()
        outs = _traced(trace, op, arguments, keywords)
        if not outs:
            continue
        _, results, expected = compiled(trace, *outs)
        for result, wanted in zip(results, expected, strict=True):
            wanted = without_the_machine(name, arguments[0], wanted, result)
            _close(result, wanted, trace.inputs)
