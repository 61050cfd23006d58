"""Memory of large gradients is used again once nobody holds it, and never before."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall import torch_abi

SIZES = (1024, 512)  # two megabytes


def _model() -> tuple[torch.nn.Linear, Callable[[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Linear(SIZES[1], SIZES[0], bias=False)
    compiled: Any = windfall.compile(lambda x: model(x).square().mean())
    return model, compiled


def _expected(model: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    (grad,) = torch.autograd.grad(model(x).square().mean(), [model.weight])
    return grad


def _step(model: torch.nn.Linear, compiled: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    x = torch.randn(8, SIZES[1])
    model.weight.grad = None
    compiled(x).backward()
    assert model.weight.grad is not None
    return model.weight.grad, _expected(model, x)


def test_known_here() -> None:
    assert torch_abi.storage_count() is not None


def test_memory_is_used_again() -> None:
    model, compiled = _model()
    places = set()
    for seed in range(5):
        grad, expected = _step(model, compiled, seed)
        torch.testing.assert_close(grad, expected)
        assert grad._version == 0 and grad._base is None and not grad.requires_grad
        places.add(grad.data_ptr())
        del grad
    assert len(places) == 1


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda grad: grad,
    "a view": lambda grad: grad[3:],
    "detached": lambda grad: grad.detach(),
    "an array": lambda grad: grad.numpy(),
    "its storage": lambda grad: grad.untyped_storage(),
    "a list of parts": lambda grad: grad.chunk(4),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_held_is_left_alone(holder: str) -> None:
    model, compiled = _model()
    grad, expected = _step(model, compiled, 0)
    place = grad.data_ptr()
    held = HOLDERS[holder](grad)
    before = bytes(grad.untyped_storage()) if holder == "its storage" else grad.clone()
    del grad
    model.weight.grad = None
    for seed in range(1, 4):
        grad, expected = _step(model, compiled, seed)
        assert grad.data_ptr() != place
        torch.testing.assert_close(grad, expected)
    if holder == "its storage":
        assert bytes(held) == before
    elif holder == "a list of parts":
        assert torch.equal(torch.cat(held), before)
    else:
        rest = before[3:] if holder == "a view" else before
        assert torch.equal(torch.as_tensor(held), rest)


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "resized": lambda grad: grad.resize_(3000, 512),
    "emptied": lambda grad: grad.untyped_storage().resize_(0),
    "shared": lambda grad: grad.share_memory_(),
    "written": lambda grad: grad.fill_(7.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed(change: str) -> None:
    model, compiled = _model()
    for seed in range(4):
        grad, expected = _step(model, compiled, seed)
        torch.testing.assert_close(grad, expected)
        CHANGES[change](grad)
        if change == "resized":
            model.weight.grad = None  # of another shape now
        del grad


def test_gradients_that_add_up() -> None:
    model, compiled = _model()
    total = torch.zeros(SIZES)
    for _ in range(4):
        x = torch.randn(8, SIZES[1])
        compiled(x).backward()
        total += _expected(model, x)
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, total)


def test_threads() -> None:
    wrong: list[str] = []

    def work() -> None:
        model, compiled = _model()
        for seed in range(20):
            grad, expected = _step(model, compiled, seed)
            if not torch.allclose(grad, expected, rtol=1e-4, atol=1e-6):
                wrong.append(f"step {seed}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


def _alone(program: str) -> str:
    """What a program prints that has a process of its own."""
    text = textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


TRAIN = """
import ctypes, gc, torch, windfall
from windfall.runtime.support import support
torch.manual_seed(0)
model = torch.nn.Linear(512, 1024, bias=False)
compiled = windfall.compile(lambda x: model(x).square().mean())
compiled(torch.randn(8, 512)).backward()
model.weight.grad = None
trim = ctypes.PYFUNCTYPE(ctypes.c_int64)(support().address("gradient_pool.trim"))
"""


def test_given_back_with_the_last_function() -> None:
    assert _alone(TRAIN + "print(trim(), trim())") == f"{4 * SIZES[0] * SIZES[1]} 0"
    assert _alone(TRAIN + "del compiled; gc.collect(); print(trim())") == "0"


def test_given_back_when_idle_for_long() -> None:
    pool = "from windfall.runtime.machine import gradient_pool as pool\n"
    hasty = pool + "pool.PATIENCE = pool.PAUSE = 0\n"
    after = "windfall.compile(lambda x: x + 1)(torch.ones(3))\nprint(trim())"
    assert _alone(hasty + TRAIN + after) == "0"
    assert _alone(TRAIN + after) != "0"


def test_a_storage_that_python_has_seen_is_let_go() -> None:
    model, compiled = _model()
    grad, _ = _step(model, compiled, 0)
    storage = grad.untyped_storage()
    del grad, storage
    gc.collect()
    first, expected = _step(model, compiled, 1)
    torch.testing.assert_close(first, expected)
    second, expected = _step(model, compiled, 2)
    torch.testing.assert_close(second, expected)


def test_inference_mode_around_backward() -> None:
    model, compiled = _model()
    for inference in (False, True, False):
        loss = compiled(torch.randn(8, SIZES[1]))
        model.weight.grad = None
        with torch.inference_mode(inference):
            loss.backward()
        assert model.weight.grad is not None
        assert model.weight.grad.is_inference() is inference
