"""Random graphs of nodes and hooks: what torch's engine does with them, ours does.

python -m tests.engine.fuzz [--native] [count [first seed]]      prints the seeds that differ

A program makes a few leaves, applies operations at random (broadcasting, views, writes in place,
functions of Python, checkpoints), hangs hooks of all kinds at random places, and back-propagates in
one of several ways. It is run for several steps, of some programs each with other sizes and another
number; hooks log what they see. All programs of a run share one engine, so that a stale answer to
another's program shows too.
"""

from __future__ import annotations

import random
import sys
import warnings
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tests.engine.scenarios import Scaled, difference, raised, seen
from tests.engine.sweep import engine
from tests.seeds import set_seed
from windfall import torch_abi
from windfall.engine import Engine
from windfall.reporting.explain import explanation_of

STEPS = 4
MORE_STEPS = 6  # of sizes that vary: two are recorded, one is confirmed
UNARY = (
    torch.sin,
    torch.tanh,
    torch.exp,
    torch.relu,
    lambda x: x * 2,
    lambda x: x * 0.5 + 1,
    lambda x: x.t().contiguous().t() if x.dim() == 2 else x,
    lambda x: x.t().reshape(x.shape) if x.dim() == 2 else x.flip(0),
    lambda x: x.softmax(-1),
    lambda x: x.cumsum(0),
    lambda x: torch.cat([x, x.sin()])[: x.shape[0]],
    lambda x: torch.where(x > 0, x, x * 0.1),
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x.expand(2, *x.shape).sum(0),
    lambda x: x.unbind(0)[0].expand(x.shape),
    lambda x: Scaled.apply(x, 3.0),
    lambda x: checkpoint(lambda y: y.sin() * y, x, use_reentrant=False),
    lambda x: (x * 1).mul_(1.5),
    lambda x: torch.index_select(x, 0, torch.arange(x.shape[0]).flip(0)),
)
BINARY = (
    torch.add,
    torch.mul,
    torch.sub,
    torch.maximum,
    lambda x, y: x * y.detach(),
    lambda x, y: torch.stack([x, y.expand(x.shape)]).sum(0),
    lambda x, y: torch.lerp(x, y.expand(x.shape), 0.3),
)


def _shape(choice: random.Random, rows: int) -> tuple[int, ...]:
    return choice.choice(((rows, 4), (4,), (rows, 1), (1, 4)))


class Program:
    """A random program; `steps` makes fresh leaves and runs it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def steps(self) -> list[Any]:
        """What each step shows."""
        set_seed(self.seed)
        plan = random.Random(self.seed)
        log: list[Any] = []
        grows, kinds = plan.random() < 0.35, plan.randrange(1 << 30)
        leaves = self._leaves(random.Random(kinds), 3, log)
        varies, shape = plan.random() < 0.4 and not grows, plan.randrange(1 << 30)
        found = []
        for time in range(MORE_STEPS if grows else STEPS):
            log.clear()
            choice = random.Random(shape + (time % 2 if varies else 0))
            if grows:
                leaves = self._leaves(random.Random(kinds), 3 + time * 2, log)
            found.append(seen(self._step(choice, leaves, log, time, grows)))
        return found

    def _leaves(self, plan: random.Random, rows: int, log: list[Any]) -> list[Any]:
        leaves = [torch.randn(_shape(plan, rows)).requires_grad_() for _ in range(3)]
        leaves[0] = torch.randn(rows, 4).requires_grad_()
        for number, one in enumerate(leaves):
            if plan.random() < 0.2:
                one.register_hook(lambda g, number=number: log.append((number, g.clone())))
            if plan.random() < 0.15:
                one.register_post_accumulate_grad_hook(
                    lambda p, number=number: log.append(("behind", number, p.grad.clone()))
                )
        return leaves

    def _step(
        self, choice: random.Random, leaves: list[Any], log: list[Any], time: int, grows: bool
    ) -> Any:
        values, rows = list(leaves), len(leaves[0])
        if grows:
            values.append(leaves[0] * (1.5 + time))
        kept: list[torch.Tensor] = []
        for _ in range(choice.randint(2, 9)):
            one = choice.choice(values)
            if choice.random() < 0.4:
                other = choice.choice(values)
                made = choice.choice(BINARY)(one.expand(rows, 4) * 1, other)
            else:
                made = choice.choice(UNARY)(one)
            self._hook(choice, made, log, time, kept)
            values.append(made)
        roots = [one.sum() for one in values[-choice.randint(1, 3) :] if one.grad_fn is not None]
        said = self._backward(choice, roots, leaves, values)
        gradients = [None if one.grad is None else one.grad.clone() for one in leaves]
        if choice.random() < 0.7:
            for one in leaves:
                one.grad = None
        return said, list(log), gradients, [one.grad for one in kept]

    def _hook(
        self,
        choice: random.Random,
        made: torch.Tensor,
        log: list[Any],
        time: int,
        kept: list[torch.Tensor],
    ) -> None:
        node: Any = made.grad_fn
        if node is None or choice.random() > 0.3:
            return
        kind, name = choice.randrange(6), choice.randrange(1000)
        if kind == 0:
            made.register_hook(lambda g: log.append((name, g.clone())))
        elif kind == 1:
            made.register_hook(lambda g: g * (time + 1) if time else None)
        elif kind == 2:
            node.register_prehook(lambda g: log.append((name, [one is None for one in g])))
        elif kind == 3:
            node.register_hook(lambda i, o: log.append((name, [one is None for one in i])))
        elif kind == 4:
            node.register_prehook(lambda g: tuple(None if x is None else x * 2 for x in g))
        else:
            made.retain_grad()
            kept.append(made)

    def _backward(
        self, choice: random.Random, roots: list[Any], leaves: list[Any], values: list[Any]
    ) -> Any:
        way = choice.randrange(5)
        if way == 0:
            wanted = [*leaves, choice.choice(values)]
            return raised(lambda: None), torch.autograd.grad(roots, wanted, allow_unused=True)
        if way == 1:
            torch.autograd.backward(roots, retain_graph=True)
            return raised(lambda: torch.autograd.backward(roots))
        if way == 2:
            return raised(lambda: torch.autograd.backward(roots, inputs=leaves[:2]))
        if way == 3:
            torch.autograd.backward(roots)
            return raised(lambda: torch.autograd.backward(roots))
        return raised(lambda: torch.autograd.backward(roots))


def check(shared: Engine, seed: int) -> str:
    """How a program differs under this engine; "": it does not."""
    program = Program(seed)
    expected = program.steps()
    with torch_abi.taken_over(shared):
        found = program.steps()
    return difference(found, expected)


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore")
    numbers = [int(one) for one in arguments if not one.startswith("-")]
    count, start = (*numbers, *(300, 0)[len(numbers) :])
    shared, wrong = engine("--native" in arguments), 0
    for seed in range(start, start + count):
        try:
            text = check(shared, seed)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        if text:
            wrong += 1
            print(f"seed {seed}: {text[:300]}", flush=True)
    print(f"{wrong} of {count} differ; passes: {explanation_of(shared.log).passes}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
