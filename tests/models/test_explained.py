"""What became of a real model: one graph, all of it compiled, nothing run eagerly, and no weight
copied in a call."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import windfall
from examples.models import Width, bert, gpt2
from tests.models.names import EVERY, TINY
from tests.models.sequence import batch_of, recipe_of


def explained(model: nn.Module, *inputs: Any) -> Any:
    return windfall.explain(model, options={"strict": True})(*inputs)


def assert_whole(facts: dict[str, Any]) -> None:
    """One graph to the end of the function, every part of it compiled."""
    broken = [f"{one['where']}: {one['detail']}" for one in facts["breaks"]]
    assert (facts["graph_count"], broken[:5], facts["fallbacks"]) == (1, [], [])


@pytest.mark.parametrize("name", EVERY)
def test_inference_is_one_native_graph(name: str) -> None:
    recipe = recipe_of(name)
    with torch.no_grad():
        report = explained(recipe.model(), *recipe.inputs(1))
    assert_whole(report.to_dict())
    called = [kernel.text for kernel in report.kernels() if kernel.kind == "python call"]
    assert called == [], "ops without a native entry"
    assert [program.native for program in programs(report)] == [True]


def programs(report: Any) -> list[Any]:
    return [event.record for event in report.events if event.kind == "build" and event.record]


def test_a_model_that_answers_a_tensor_is_one_native_call() -> None:
    """Guards, kernels and the result's wrapping; transformers' results are built in Python."""
    recipe = recipe_of("tiny resnet")
    with torch.no_grad():
        facts = explained(recipe.model(), *recipe.inputs(1)).to_dict()
    assert [entry["native"] for entry in facts["entries"]] == [True]


@pytest.mark.parametrize("name", EVERY)
def test_training_is_one_graph(name: str) -> None:
    recipe = recipe_of(name)
    facts = explained(recipe.objective(), *recipe.batch(batch_of(name))).to_dict()
    assert_whole(facts)


# ---------------------------------------------------------------- the weights stay where they are


@pytest.mark.parametrize("name", TINY)
def test_every_weight_is_an_input_of_the_graph(name: str) -> None:
    """Not a constant of it, which would be a second copy, and stale when the weight changes."""
    recipe = recipe_of(name)
    model = recipe.model()
    with torch.no_grad():
        report = explained(model, *recipe.inputs(1))
    (capture,) = report.graphs
    given = [one.type.sizes for one in capture.inputs if one.type is not None]
    for path, parameter in model.named_parameters():
        assert tuple(parameter.shape) in given, f"{path} is not read from the model"
    kept = [
        buffer.constant
        for program in programs(report)
        for buffer in program.buffers
        if buffer.constant is not None
    ]
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    assert not any(constant.data_ptr() in weights for constant in kept)
    assert sum(constant.numel() for constant in kept) < 10_000


# Weights above 32 MB, for glibc takes such a block from the system each time and gives it back:
# what is smaller may come from memory that the process holds already, and would not be seen.
LARGE = 33 << 20
EMBEDDING = Width(hidden=64, heads=4, vocabulary=140_000, positions=32, length=2)
LAYERS = Width(hidden=1536, heads=8, vocabulary=64, positions=32, length=2)


@pytest.mark.parametrize(
    "make",
    [lambda: bert(1, EMBEDDING), lambda: bert(1, LAYERS), lambda: gpt2(1, LAYERS)],
    ids=["a large embedding", "large layers", "large transposed layers"],
)
def test_no_weight_is_copied_in_a_call(make: Callable[[], Any]) -> None:
    """Models with many megabytes of weights and next to nothing else: neither the planned memory
    nor what a call takes at its peak may be of that size."""
    recipe = make()
    model, inputs = recipe.model(), recipe.inputs(1)
    largest = max(p.numel() * p.element_size() for p in model.parameters())
    assert largest > LARGE
    with torch.no_grad():
        report = explained(model, *inputs)
        arenas = [program.arena_bytes for program in programs(report)]
        assert max(arenas) < largest / 4, arenas
        compiled = windfall.compile(model, options={"strict": True})
        for _ in range(3):
            compiled(*inputs)
        taken = peak_of_a_call(lambda: compiled(*inputs))
    assert taken < largest / 4, f"{taken} bytes in a call, the largest weight has {largest}"


def test_a_copy_would_be_seen() -> None:
    size = 128 << 20  # well above what the system may take back from the process meanwhile
    weight = torch.zeros(size // 4)
    assert peak_of_a_call(lambda: weight + 1) > size / 2


def peak_of_a_call(call: Callable[[], Any]) -> int:
    """By how many bytes the process grows during a call, at its peak. Linux tells: writing 5 to
    `clear_refs` sets the high-water mark back to what is held now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back now, not in the middle of the call
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("the high-water mark of a process is read from Linux's /proc")
    reset.write_text("5")
    before = _kilobytes(status, "VmHWM")
    call()
    return (_kilobytes(status, "VmHWM") - before) * 1024


def _kilobytes(status: Path, name: str) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1])
