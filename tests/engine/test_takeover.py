"""The engine is on for a thread and a time, and leaves nothing behind."""

from __future__ import annotations

import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import windfall
from windfall import backward, torch_abi
from windfall.engine import live
from windfall.engine.engine import BY_TORCH, RECORDED, REPLAYED

_OWNERS = (
    (torch.autograd.Variable, "_execution_engine"),
    (torch._C, "_current_graph_task_id"),
    (torch._C, "_current_autograd_node"),
    (torch._C, "_will_engine_execute_node"),
    (torch._C._autograd, "_get_current_graph_task_keep_graph"),
)


def _standing() -> list[object]:
    return [getattr(owner, name) for owner, name in _OWNERS]


def _backward(x: torch.Tensor) -> torch.Tensor:
    x.grad = None
    x.sin().sum().backward()
    assert x.grad is not None
    return x.grad


def test_nested_and_put_back() -> None:
    before, x = _standing(), torch.ones(3, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        with windfall.compiled_autograd():
            _backward(x)
        _backward(x)
    assert _standing() == before
    _backward(x)
    assert passes.explanation().passes == {RECORDED: 1, REPLAYED: 1}


def test_put_back_after_exceptions() -> None:
    before = _standing()
    with pytest.raises(ValueError, match="mine"), windfall.compiled_autograd():
        raise ValueError("mine")
    assert _standing() == before


def test_as_a_decorator() -> None:
    x = torch.ones(3, requires_grad=True)
    passes = windfall.compiled_autograd()
    step = passes(lambda: _backward(x))
    for _ in range(3):
        assert torch.equal(step(), x.cos())
    assert passes.explanation().passes == {RECORDED: 1, REPLAYED: 2}


def test_other_threads_are_not_concerned() -> None:
    x = torch.ones(3, requires_grad=True)
    found: list[torch.Tensor] = []
    with windfall.compiled_autograd() as passes:
        other = threading.Thread(target=lambda: found.append(_backward(x)))
        other.start()
        other.join()
        assert passes.explanation().passes == {}
        assert not torch_abi.running_passes()
    assert torch.equal(found[0], x.cos())


def test_two_threads_at_once() -> None:
    """Both under the engine, one program, each with its own leaves and hooks."""
    wrong: list[str] = []
    passes = windfall.compiled_autograd()

    def work(number: int) -> None:
        w = torch.full((4,), float(number), requires_grad=True)
        with windfall.compiled_autograd():
            for _ in range(50):
                h = w * w
                h.register_hook(lambda g: g * number)
                w.grad = None
                h.sum().backward()
                if not torch.equal(w.grad, 2 * number * w.detach()):  # type: ignore[arg-type]
                    wrong.append(f"{number}: {w.grad}")

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    told = passes.explanation().passes
    assert sum(told.values()) == 150 and told[REPLAYED] >= 140


def test_reasons_for_torchs_engine_are_told() -> None:
    x = torch.ones(3, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            _backward(x)
    told = passes.explanation()
    assert told.passes == {BY_TORCH: 2}
    assert told.pass_reasons == [
        "by torch's engine: create_graph=True",
        "by torch's engine: anomaly mode",
    ]
    assert "anomaly mode" in str(told)


def test_programs_print_and_misses_say_why() -> None:
    x = torch.ones(3, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        _backward(x)
        (x * x).sum().backward()
    told = passes.explanation()
    first, second = told.pass_programs
    assert "aten.cos.default" in str(first) and "leaf 2 +=" in str(first)
    assert "aten.mul.Tensor" in str(second)
    assert "MulBackward0" in told.pass_reasons[1] and "SinBackward0" in told.pass_reasons[1]


def test_selective_checkpoint_with_dropout() -> None:
    """Numbers are drawn as in eager, and the body is recomputed once."""
    w, runs = torch.randn(8, 8), []

    def policy(context: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        keep = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    def body(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return torch.nn.functional.dropout(x @ w, 0.5).sin()

    def step(seed: int) -> tuple[torch.Tensor, int]:
        runs.clear()
        torch.manual_seed(seed)
        x = torch.ones(4, 8, requires_grad=True)
        y = checkpoint(
            body,
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
        y.sum().backward()
        assert x.grad is not None
        return x.grad, len(runs)

    expected = [step(seed) for seed in range(3)]
    with windfall.compiled_autograd() as passes:
        found = [step(seed) for seed in range(3)]
    for (one, times), (other, often) in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6) and times == often == 2
    assert passes.explanation().passes == {RECORDED: 1, REPLAYED: 2}


def test_leaves_go_through_torchs_engine_where_processes_exchange_gradients(
    tmp_path: object,
) -> None:
    """A reducer of C++ listens behind the accumulators; `no_sync` and unused parameters too."""
    import torch.distributed as distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/x", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        parallel = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        x = torch.randn(2, 3)

        def step(time: int) -> list[torch.Tensor | None]:
            parallel.zero_grad()
            with parallel.no_sync():
                parallel(x).sum().backward()
            (parallel(x) if time % 2 else parallel.module[0](x)).pow(2).sum().backward()
            return [None if one.grad is None else one.grad.clone() for one in model.parameters()]

        expected = [step(time) for time in range(4)]
        with windfall.compiled_autograd() as passes:
            found = [step(time) for time in range(4)]
        for one, other in zip(found, expected, strict=True):
            for a, b in zip(one, other, strict=True):
                assert (a is None and b is None) or torch.allclose(a, b)
        told = passes.explanation().passes
        assert told[REPLAYED] >= 4 and BY_TORCH not in told
    finally:
        distributed.destroy_process_group()


def test_saved_values_die_where_eager_lets_them_die() -> None:
    """After each pass, recorded or replayed, with the graph itself still there; and what a hook
    finds on its way."""
    x = torch.randn(8, 8, requires_grad=True)
    alive: list[tuple[bool, bool]] = []

    def step() -> None:
        first, last = x.exp(), x.sin()
        late = last.exp()
        of_first, of_late = weakref.ref(first), weakref.ref(late)
        loss = (first * 2 + late).sum()
        last.register_hook(lambda g: alive.append((of_late() is not None, True)))
        del first, late
        loss.backward()
        alive.append((of_first() is not None, of_late() is not None))
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()

    for _ in range(4):
        step()
    expected, alive = alive, []
    with windfall.compiled_autograd() as passes:
        for _ in range(4):
            step()
    assert alive == expected
    assert passes.explanation().passes[REPLAYED] >= 3


def test_programs_are_cut_where_gradients_wait_to_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once processes exchange gradients: leaves of 1 MiB are updated before operations go on."""
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(3)])
    x = torch.randn(2, 512)
    model(x).sum().backward()
    expected = [one.grad for one in model.parameters()]
    segments = []
    for together in (False, True):
        backward.forget()
        monkeypatch.setattr(live, "is_distributed", lambda together=together: together)
        with windfall.compiled_autograd() as passes:
            for _ in range(3):
                model.zero_grad()
                model(x).sum().backward()
                for one, wanted in zip(model.parameters(), expected, strict=True):
                    assert torch.allclose(one.grad, wanted, atol=1e-5)  # type: ignore[arg-type]
        told = passes.explanation()
        assert told.passes == {RECORDED: 1, REPLAYED: 2}
        segments.append(len(told.pass_programs[0].segments))
    assert segments == [1, 3]
