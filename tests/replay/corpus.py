"""What is compiled on both commits: programs, op samples, models.

Enters: names. Leaves: `Item`s: a name and `run`, which compiles with the `compile` it is given and
answers what the program answered. Invariant: only windfall's public surface is used, since the same
corpus runs on an older windfall too; an item depends on nothing that ran before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from examples.models import RECIPES
from tests.conformance.op_db_samples import UNINITIALISED, maker, samples, table
from tests.programs.ambient import Ambient
from tests.programs.case import Case, cases_of
from tests.programs.compare import Runner

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

MODELS = ("tiny bert", "tiny gpt2", "tiny resnet", "bert-4", "gpt2-6", "resnet-18")
OP_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Item:
    """One program. `run` answers a list of whatever is to be equal beside the stages' texts."""

    name: str
    run: Callable[[Compile], list[Any]]


def corpus() -> Iterator[Item]:
    """Everything, the quickest first."""
    yield from _programs()
    yield from _op_samples()
    yield from _models()


def _programs() -> Iterator[Item]:
    for case in (*cases_of("cases"), *cases_of("rows")):
        yield Item(f"program {case}", _program_runner(case))


def _program_runner(case: Case) -> Callable[[Compile], list[Any]]:
    def run(compile: Compile) -> list[Any]:
        start, world = Ambient.now(), case.world()
        try:
            runner = Runner(world, compile, start)
            answers = [runner.run(index) for index in range(len(world.program.calls))]
        finally:
            start.put_back()
            world.close()
        return [one.raised or one.result for one in answers]

    return run


def _op_samples() -> Iterator[Item]:
    for name, info in sorted(table().items()):
        yield Item(f"op {name}", _op_runner(info))


def _op_runner(info: Any) -> Callable[[Compile], list[Any]]:
    def run(compile: Compile) -> list[Any]:
        grad = info.supports_autograd
        count = sum(1 for _ in itertools.islice(samples(info, grad), OP_SAMPLES))
        return [one for index in range(count) for one in _sample(info, index, compile)]

    return run


def _sample(info: Any, index: int, compile: Compile) -> list[Any]:
    function, args, kwargs = maker(info, info.supports_autograd, index)()
    torch.manual_seed(0)
    result = compile(function)(*args, **kwargs)
    if info.name in UNINITIALISED:
        return []
    return [result, *_gradients(result, [*args, *kwargs.values()])]


def _gradients(result: Any, inputs: list[Any]) -> list[Any]:
    """What backward gives to the inputs, where the result is one real tensor with a history."""
    leaves = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad]
    if not (isinstance(result, torch.Tensor) and result.requires_grad and leaves):
        return []
    if result.dtype.is_complex or result.layout is not torch.strided:
        return []
    return list(torch.autograd.grad(result.sum(), leaves, allow_unused=True))


def _models() -> Iterator[Item]:
    for name in MODELS:
        yield Item(f"model {name} inference", _inference(name))
        yield Item(f"model {name} training", _training(name))


def _inference(name: str) -> Callable[[Compile], list[Any]]:
    def run(compile: Compile) -> list[Any]:
        recipe = RECIPES[name]()
        model = recipe.model()
        with torch.no_grad():
            return [compile(model)(*recipe.inputs(2))]

    return run


def _training(name: str) -> Callable[[Compile], list[Any]]:
    def run(compile: Compile) -> list[Any]:
        recipe = RECIPES[name]()
        objective = recipe.objective()
        loss = compile(objective)(*recipe.batch(2))
        loss.backward()
        return [loss, *(one.grad for one in objective.parameters())]

    return run
