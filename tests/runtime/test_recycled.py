"""Objects of results that died are handed out again: each thing that can be done to a tensor before
it dies is seen, and nothing that is alive is ever taken."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.runtime.programs import add_one
from windfall import torch_abi
from windfall.runtime import bind
from windfall.torch_abi.footprints import CHANGES

pytestmark = pytest.mark.skipif(
    torch_abi.tensor_footprint() is None, reason="this torch's tensors cannot be told apart"
)
ONE = torch.ones(2, 3)


def bound() -> Callable[..., Any]:
    return bind(add_one(2, 3), recycled={0})


def is_fresh(tensor: torch.Tensor) -> bool:
    """Whether it is what a new result is."""
    return (
        type(tensor) is torch.Tensor
        and torch.equal(tensor.detach(), torch.full((2, 3), 2.0))
        and (tensor.shape, tensor.stride(), tensor.storage_offset()) == ((2, 3), (3, 1), 0)
        and tensor._version == 0
        and not tensor.requires_grad
        and tensor.is_leaf
        and tensor.grad is None
        and tensor._base is None
        and not tensor._backward_hooks
        and not tensor.__dict__
        and not weakref.getweakrefcount(tensor)
        and not tensor.is_shared()
        and tensor.untyped_storage().nbytes() == 24
        and tensor.untyped_storage().resizable()
    )


def test_what_died_serves_again() -> None:
    call = bound()
    (first,) = call(ONE)
    address, data = id(first), first.data_ptr()
    del first
    for _ in range(10):
        (again,) = call(ONE)
        assert (id(again), again.data_ptr()) == (address, data)
        del again


def test_what_is_held_is_never_taken() -> None:
    call = bound()
    held = [call(ONE * number)[0] for number in range(20)]
    assert len({one.data_ptr() for one in held}) == 20
    for number, one in enumerate(held):
        assert torch.equal(one, torch.full((2, 3), number + 1.0))


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda one: one,
    "list": lambda one: [one],
    "view": lambda one: one[1:],
    "detach": lambda one: one.detach(),
    "data": lambda one: one.data,
    "array": lambda one: one.numpy(),
    "storage": lambda one: one.untyped_storage(),
    "capsule": lambda one: torch.from_dlpack(one),
    "saved for backward": lambda one: torch.ones(2, 3, requires_grad=True) * one,
    "a view's view": lambda one: one.t()[0],
    "memoryview": lambda one: memoryview(one.numpy()),
    "iterator": lambda one: iter(one),
    "closure": lambda one: lambda: one,
    "a tensor that was set": lambda one: torch.empty(0).set_(one),
    "a cycle": lambda one: _cycle(one),
}


def _cycle(tensor: torch.Tensor) -> Any:
    cycle: list[Any] = [tensor]
    cycle.append(cycle)
    return cycle


def _read(name: str, held: Any) -> Any:
    """The first number that a holder shows."""
    if name == "saved for backward":
        return held.grad_fn.next_functions and held.grad_fn._saved_other.reshape(-1)[-1].item()
    if name == "storage":
        return torch.empty(0).set_(held, 0, (6,), (1,))[-1].item()
    if name == "iterator":
        return next(held)[-1].item()
    if name == "closure":
        return held()[1, 2].item()
    if name in ("list", "a cycle"):
        return held[0][1, 2].item()
    if name == "memoryview":
        return held[1, 2]
    return float(held.reshape(-1)[-1])


@pytest.mark.parametrize("name", HOLDERS)
def test_whoever_holds_it_keeps_its_contents(name: str) -> None:
    call = bound()
    for _ in range(3):
        held = HOLDERS[name](call(ONE)[0])
        others = [call(ONE * 100)[0] for _ in range(8)]
        assert _read(name, held) == 2.0
        assert all(torch.equal(one, torch.full((2, 3), 101.0)) for one in others)
        del held, others
        gc.collect()


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_does_not_come_back(name: str) -> None:
    """The thing is done, whatever it gave is dropped, the tensor dies: the next result is fresh."""
    call = bound()
    for _ in range(12):
        (result,) = call(ONE)
        assert is_fresh(result)
        del result
        (result,) = call(ONE)
        CHANGES[name](result)
        del result
        (result,) = call(ONE)
        assert is_fresh(result)
        del result


def test_a_kind_that_is_always_changed_is_given_up() -> None:
    call = bound()
    for _ in range(20):
        (result,) = call(ONE)
        result.requires_grad_()
        reference = weakref.ref(result)
        del result
    assert reference() is None  # the ring holds nothing any more
    addresses = []
    for _ in range(4):
        (result,) = call(ONE)
        watched = weakref.ref(result)
        addresses.append(watched)
        del result
    assert all(one() is None for one in addresses)


@pytest.mark.parametrize("first", [False, True])
def test_inference_tensors_are_apart(first: bool) -> None:
    call = bound()
    for _ in range(3):
        for inference in (first, not first):
            with torch.inference_mode(inference):
                (result,) = call(ONE)
                assert result.is_inference() == inference
                del result


def test_objects_go_with_the_program() -> None:
    call = bound()
    (result,) = call(ONE)
    reference = weakref.ref(result)
    del result
    assert reference() is not None  # the ring has it
    del call
    gc.collect()
    assert reference() is None


def test_counts_of_references() -> None:
    call = bound()
    results = [call(ONE)[0] for _ in range(6)]
    counts = [sys.getrefcount(one) for one in results]
    assert sorted({*counts}) == sorted({min(counts), min(counts) + 1})  # of some the ring has one
    for _ in range(100):
        call(ONE)
    assert [sys.getrefcount(one) for one in results] == counts


def test_without_a_word_nothing_is_kept() -> None:
    (result,) = bind(add_one(2, 3))(ONE)
    reference = weakref.ref(result)
    del result
    assert reference() is None


def test_many_threads() -> None:
    call = bound()
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for number in range(2000):
            value = float(seed * 10_000 + number)
            (one,) = call(torch.full((2, 3), value))
            (two,) = call(one)
            if one[0, 0] != value + 1 or two[1, 2] != value + 2:
                wrong.append((seed, number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def _eight(x: torch.Tensor, w: torch.Tensor, log: list[Any]) -> Any:
    for index in range(8):
        x = torch.relu(x @ w) + 0.5
        if index % 3 == 0:
            log.append(x)
        if index % 3 == 1:
            log.append(x[0])
        windfall.graph_break()
    return x.sum()


@pytest.mark.parametrize("grad", [False, True])
def test_small_regions_of_trees(grad: bool) -> None:
    """Between breaks in `mode="reduce-overhead"`: what the program keeps stays as it was."""
    compiled = windfall.compile(_eight, mode="reduce-overhead")
    w = torch.eye(4)
    kept: list[Any] = []
    for number in range(6):
        x = torch.full((2, 4), float(number), requires_grad=grad)
        ours: list[Any] = []
        theirs: list[Any] = []
        assert compiled(x, w, ours).item() == _eight(x, w, theirs).item()
        kept.append((ours, theirs))
    for ours, theirs in kept:
        assert [one.tolist() for one in ours] == [one.tolist() for one in theirs]
