"""A model's whole life, eager beside windfall: inference, then training with dropout on.

Enters: the name of a recipe. Leaves: nothing; an assertion fails where the two differ. Both sides
start from the same weights, see the same data and the same seed. Used by tests in this process, in
its threads, and in a process that has forked (`python -m tests.models.sequence NAME`).
"""

from __future__ import annotations

import copy
import math
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import windfall
from examples.models import RECIPES, Recipe, adamw, training_step
from tests.models.agreement import assert_results_agree, disagreements, relative_error

STEPS = 20
LOSS_TOLERANCE = 1e-4
STRICT = {"strict": True}
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Pair:
    """The same model three times: eager's, windfall's, and eager's in float64. `compiled` is the
    callable made of `ours`."""

    eager: nn.Module
    ours: nn.Module
    exact: nn.Module
    compiled: Callable[..., Any]

    @classmethod
    def of(cls, make: Callable[[], nn.Module]) -> Pair:
        torch.manual_seed(0)
        eager = make()
        ours = copy.deepcopy(eager)
        return cls(
            eager, ours, copy.deepcopy(eager).double(), windfall.compile(ours, options=STRICT)
        )


def doubled(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values in float64, where they are floating."""
    return tuple(
        one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
        for one in values
    )


def recipe_of(name: str) -> Recipe:
    return RECIPES[name]()


# -------------------------------------------------------------------------------------- inference


def check_inference(pair: Pair, inputs: tuple[Tensor, ...], **keywords: Any) -> None:
    """One call each; windfall's twice, for the second takes another way."""
    with torch.no_grad():
        expected = pair.eager(*inputs, **keywords)
        exact = pair.exact(*doubled(inputs), **keywords)
        for _ in range(2):
            assert_results_agree(pair.compiled(*inputs, **keywords), expected, exact)


# --------------------------------------------------------------------------------------- training
#
# Behind a relu or a maximum, the last bit of a weight may decide over whole gradients, and AdamW
# makes full steps of it: a deep network does not agree with itself then, once its weights are moved
# by a bit. Where windfall differs from eager by more than rounding, two things are asked instead:
# it may differ by no more than twice what such moves make of eager; and the same model in float64,
# where no such decision is close, must agree to the ninth digit.


@dataclass(frozen=True)
class Backward:
    """The loss and every gradient, and where the generator stood then."""

    values: dict[str, Tensor]
    generator: Tensor


def backward(forward: Callable[..., Any], model: nn.Module, given: tuple[Any, ...]) -> Backward:
    torch.manual_seed(7)
    model.zero_grad()
    loss = forward(*given)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return Backward({"loss": loss.detach(), **gradients}, torch.get_rng_state())


def moved_by_a_bit(model: nn.Module, seed: int) -> nn.Module:
    """A copy, each of whose weights is the next number above or below."""
    copied = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in copied.parameters():
            towards = parameter + torch.randn_like(parameter)
            parameter.copy_(torch.nextafter(parameter, towards))
    return copied


def check_gradients(pair: Pair, inputs: Tensor, labels: Tensor) -> None:
    """Loss, gradients of every parameter, buffers and the generator's state, after one backward."""
    given = (inputs, labels)
    ours = backward(pair.compiled, pair.ours, given)
    eager = backward(pair.eager, pair.eager, given)
    exact = backward(pair.exact, pair.exact, doubled(given))
    assert torch.equal(ours.generator, eager.generator), "other random numbers than eager's"
    assert ours.values.keys() == eager.values.keys(), "other parameters have a gradient"
    check_buffers(pair.ours, pair.eager)
    wrong = disagreements(ours.values, eager.values, exact.values)
    if wrong:
        copies = [moved_by_a_bit(pair.eager, seed) for seed in range(6)]
        moved = [relative_error(backward(c, c, given).values, exact.values) for c in copies]
        allowed = 2 * max(*moved, relative_error(eager.values, exact.values))
        assert relative_error(ours.values, exact.values) <= allowed, "\n".join(wrong)
        compiled = windfall.compile(copy.deepcopy(pair.exact), options=STRICT)
        doubles = backward(compiled, compiled, doubled(given)).values
        assert relative_error(doubles, exact.values) <= 1e-9, "\n".join(wrong)


def check_buffers(ours: nn.Module, eager: nn.Module) -> None:
    """Batch norm's statistics, and whatever else is kept."""
    assert not different_buffers(ours, eager)


def different_buffers(ours: nn.Module, eager: nn.Module) -> list[str]:
    """The names of those that differ."""
    expected = dict(eager.named_buffers())
    return [
        name
        for name, one in ours.named_buffers()
        if not torch.allclose(one, expected[name], rtol=1e-4, atol=1e-5, equal_nan=True)
    ]


def check_training(pair: Pair, batches: list[Batch], seed: int = 11) -> None:
    """Losses side by side over as many steps as there are batches, dropout on, with AdamW."""
    start = copy.deepcopy(pair.eager)
    expected = losses_of(pair.eager, pair.eager, batches, seed)
    actual = losses_of(pair.compiled, pair.ours, batches, seed)
    assert min(expected[1:-1]) < expected[0], "eager learns nothing: the test would prove nothing"
    worst = largest_difference(actual, expected)
    told = f"losses differ by {worst:.2e}\n{expected}\n{actual}"
    if worst > LOSS_TOLERANCE:
        copies = [moved_by_a_bit(start, number) for number in range(3)]
        moved = [largest_difference(losses_of(c, c, batches, seed), expected) for c in copies]
        assert worst <= 2 * max(moved), told
    elif not different_buffers(pair.ours, pair.eager):
        return
    # Rounding alone grows so over the steps on some machines: then it is not there in doubles.
    exact, doubles = start.double(), [doubled(batch) for batch in batches]
    compiled = windfall.compile(copy.deepcopy(exact), options=STRICT)
    losses = [losses_of(model, model, doubles, seed) for model in (exact, compiled)]
    assert largest_difference(*losses) <= 1e-9, told
    check_buffers(compiled, exact)


def losses_of(
    forward: Callable[..., Any], model: nn.Module, batches: list[Any], seed: int
) -> list[float]:
    """The loss of each step, and a last random number: where the generator stands."""
    torch.manual_seed(seed)
    step = training_step(forward, model, adamw(model))
    losses = [float(step(*batch)) for batch in batches]
    return [*losses, float(torch.rand(()))]


def largest_difference(actual: list[float], expected: list[float]) -> float:
    differences = [abs(a - e) for a, e in zip(actual, expected, strict=True)]
    return math.inf if any(map(math.isnan, differences)) else max(differences)


def training_batches(recipe: Recipe, size: int, steps: int = STEPS) -> list[Batch]:
    """Two batches in turn: windfall must read each call's data, and the model can learn them."""
    torch.manual_seed(3)
    two = [recipe.batch(size) for _ in range(2)]
    return [two[number % 2] for number in range(steps)]


def batch_of(name: str) -> int:
    """How large a batch a training step of this model takes in tests."""
    return 4 if name.startswith("tiny") else 2


def check_whole(name: str, steps: int = STEPS) -> tuple[Pair, Pair]:
    """Inference, gradients and training of one model; answers what it compiled."""
    recipe = recipe_of(name)
    pairs = Pair.of(recipe.model), Pair.of(recipe.objective)
    check_again(name, pairs, steps)
    return pairs


def check_again(name: str, pairs: tuple[Pair, Pair], steps: int) -> None:
    """The same with models that may have been trained before."""
    recipe, (inference, objective) = recipe_of(name), pairs
    check_inference(inference, recipe.inputs(2))
    # Where a gradient is nought, AdamW made steps of its rounding: start even.
    state = objective.eager.state_dict()
    objective.ours.load_state_dict(state)
    objective.exact.load_state_dict(state)
    check_gradients(objective, *recipe.batch(batch_of(name)))
    check_training(objective, training_batches(recipe, batch_of(name), steps))


# ------------------------------------------------------------------------------------- after fork


def check_after_fork(name: str, threads: int) -> int:
    """Everything once before the fork; then, in the child, what was compiled before goes on, and a
    model is compiled there. The child is set to one thread, as torch's own data loaders do:
    libgomp's threads do not survive a fork, so that eager too hangs with two. Its exit code."""
    torch.set_num_threads(threads)
    recipe = recipe_of(name)
    inference, objective = Pair.of(recipe.model), Pair.of(recipe.objective)
    inputs, batch = recipe.inputs(2), recipe.batch(batch_of(name))
    check_inference(inference, inputs)
    check_gradients(objective, *batch)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            check_inference(inference, inputs)
            check_gradients(objective, *batch)
            check_inference(Pair.of(recipe.model), inputs)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    check_inference(inference, inputs)  # and the parent is not disturbed
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(check_after_fork(sys.argv[1], int(sys.argv[2])))
