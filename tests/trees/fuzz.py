"""Random programs against an eager model: `python -m tests.trees.fuzz [PROGRAMS] [--seed N]`.

A program is a sequence of actions: call a region with new tensors or with ones that are held, hold
a result (itself, a view, an array), drop one, write one in place, go backward later, mark a step,
raise in the middle, run something in another thread, collect garbage, reset. The model computes the
same values eagerly, in memory of its own; after every action each tensor that is held must have the
model's value, and the books of the manager must agree with its pool.

Odd seeds run compiled programs on the CPU, every other one of them with regions that are too small
to be recorded and recycle objects (ADR 76); even ones the manager on the fake device.
"""

from __future__ import annotations

import argparse
import functools
import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

import windfall
from tests.trees.fake import FakeAsyncDevice
from windfall.directives import StepMarks
from windfall.options import TreeOptions
from windfall.runtime.trees import CPU_TREES, GraphRegion, TreeManager
from windfall.runtime.trees.capturing import CallablePayload

Tensor = torch.Tensor
OPTIONS = TreeOptions(minimum_bytes=0, rerecord_limit=6, recordings=40, depth=8)
SMALL = TreeOptions()


class Held:
    """What the program holds: in some way, with the value that it must have."""

    def __init__(self, tensor: Any, expected: Tensor, read: Callable[[Any], Tensor]) -> None:
        self.tensor = tensor
        self.expected = expected
        self.read = read


HOLDS: tuple[tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]], ...] = (
    (lambda t: t, lambda h: h),
    (lambda t: t[1:], lambda h: h),
    (lambda t: t.detach(), lambda h: h),
    (lambda t: t.view(-1), lambda h: h),
)
ARRAYS = ((lambda t: t.detach().numpy(), torch.from_numpy),)  # of what is never moved


def compare(held: list[Held], what: str) -> None:
    for number, one in enumerate(held):
        have = one.read(one.tensor)
        if not torch.allclose(have, one.expected, rtol=1e-4, atol=1e-4, equal_nan=False):
            raise AssertionError(f"{what}: held {number} is {have}, not {one.expected}")


# ------------------------------------------------------------------------------- the fake device


class FakeProgram:
    """One program on the fake device."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.device, self.marks = FakeAsyncDevice(), StepMarks()
        self.manager = TreeManager(self.device, OPTIONS, self.marks)
        self.static = torch.full((4,), 0.5)
        self.armed = False
        self.held: list[Held] = []
        # Body, what it answers and what it leaves of its input, what it writes.
        self.bodies: dict[str, tuple[Any, Callable[[Tensor], tuple[Tensor, Tensor]], Any]] = {
            "one": (self._chain(torch.sin), lambda x: (torch.sin(x), x), ()),
            "two": (self._chain(torch.cos, torch.neg), lambda x: (-torch.cos(x), x), ()),
            "three": (
                self._chain(torch.exp, torch.neg, torch.sin),
                lambda x: (torch.sin(-x.exp()), x),
                (),
            ),
            "write": (self._written, lambda x: ((x + 1) * 0.5, x + 1), (0,)),
            "add": (self._added, lambda x: (x + 0.5, x), ()),
        }
        self.regions = {
            name: GraphRegion(
                name,
                CallablePayload(body, frozenset({1}), frozenset(writes)),
                starts=self.dice.random() < 0.5,
            )
            for name, (body, _, writes) in self.bodies.items()
        }

    def _chain(self, *functions: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def body(x: Tensor, _: Tensor) -> Tensor:
            for one in functions:
                x = self.device.op(one, x)
                if self.armed:
                    self.armed = False
                    raise ValueError("in the middle")
            return x

        return body

    def _written(self, x: Tensor, _: Tensor) -> Tensor:
        self.device.write(lambda t: t + 1, x)
        return self.device.op(torch.mul, x, 0.5)

    def _added(self, x: Tensor, w: Tensor) -> Tensor:
        return self.device.op(torch.add, x, w)

    def _source(self, step: int) -> Held:
        whole = [one for one in self.held if one.tensor.shape == (4,) and one.read is HOLDS[0][1]]
        if whole and self.dice.random() < 0.6:
            return self.dice.choice(whole)
        value = torch.randn(4, generator=torch.Generator().manual_seed(self.seed + step)) * 0.3
        return Held(value, value.clone(), HOLDS[0][1])

    def call(self, step: int) -> None:
        """A region, of something new or something that is held."""
        dice, name, source = self.dice, self.dice.choice([*self.bodies]), self._source(step)
        where = source.tensor.untyped_storage().data_ptr()
        shared = [one for one in self.held if one.tensor.untyped_storage().data_ptr() == where]
        if name == "write" and any(one is not source for one in shared):
            return  # the model does not follow aliases
        self.armed = dice.random() < 0.05
        try:
            result = self.manager.call(self.regions[name], (source.tensor, self.static))
        except ValueError:
            return
        finally:
            self.armed = False
        expected, source.expected = (one.clone() for one in self.bodies[name][1](source.expected))
        if dice.random() < 0.7:
            hold, read = dice.choice(HOLDS)
            self.held.append(Held(hold(result), hold(expected).clone(), read))

    def drop(self, step: int) -> None:
        """Something that is held."""
        if self.held:
            self.held.pop(self.dice.randrange(len(self.held)))

    def mark(self, step: int) -> None:
        """A step begins."""
        self.marks.mark()

    def look(self, step: int) -> None:
        """Wait, and compare."""
        self.device.fence(self.manager.pool)
        compare(self.held, f"seed {self.seed}, step {step}")

    def forget(self, step: int) -> None:
        """A region is gone."""
        self.manager.forget(self.dice.choice([*self.regions.values()]).number)

    def collect(self, step: int) -> None:
        """Garbage."""
        gc.collect(0)

    def run(self) -> dict[str, int]:
        """All of it; how often regions were replayed, and results moved."""
        actions = (self.call, self.drop, self.mark, self.look, self.forget, self.collect)
        for step in range(self.dice.randrange(10, 40)):
            self.dice.choices(actions, (62, 18, 7, 5, 2, 6))[0](step)
            self.manager.check()
        self.look(-1)
        if self.dice.random() < 0.5:
            self.manager.shutdown()
            compare(self.held, f"seed {self.seed}, behind shutdown")
        regions = self.regions.values()
        return {
            "replayed": sum(one.counters.replayed for one in regions),
            "evicted": sum(one.counters.evicted for one in regions),
        }


# --------------------------------------------------------------------------------------- the CPU

_keeper: list[Any] = []


@windfall.disable
def _keep(t: Tensor) -> None:
    if _keeper and _keeper[0] is not None:
        _keeper[0](t)


def _chain(x: Tensor) -> Tensor:
    h = torch.sin(x) + 1
    _keep(h)
    h = h * 2 - 0.5
    _keep(h)
    return h.sum(-1)


def _loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.tanh(x) + 0.1
        _keep(x)
    return x


def _written(x: Tensor) -> Tensor:
    h = x * 2
    windfall.graph_break()
    h.add_(1)
    x.mul_(0.5)
    _keep(h)
    return h + x


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x))
        _keep(h)
        return self.two(h * h).square().sum()


EAGER = {"_chain": _chain, "_loop": _loop, "_written": _written}


@functools.cache
def compiled_programs(trees: TreeOptions) -> tuple[dict[str, Any], _Net, Any]:
    torch.manual_seed(0)
    net = _Net()
    how: dict[str, Any] = {
        "mode": "reduce-overhead",
        "options": {"trees": trees, "strict": True},
    }
    made = {name: windfall.compile(one, **how) for name, one in EAGER.items()}
    return made, net, windfall.compile(net, **how)


class CpuProgram:
    """One program on the CPU."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.made, self.net, self.twin = compiled_programs(SMALL if seed % 4 == 3 else OPTIONS)
        self.held: list[Held] = []
        self.watched: list[Any] = []
        self.pending: list[tuple[Tensor, Tensor]] = []

    def _keep(self, t: Tensor) -> None:
        """Hold what crosses a break, or leave something on it; it comes with nothing on it."""
        if t.__dict__ or weakref.getweakrefcount(t):
            raise AssertionError(f"seed {self.seed}: {t.__dict__} is left on a result")
        if self.dice.random() < 0.1:
            self.watched = [*self.watched[-3:], weakref.ref(t)]
        if self.dice.random() < 0.1:
            t.left = self.seed  # type: ignore[attr-defined]
        if self.dice.random() < 0.3:
            hold, read = self.dice.choice(HOLDS + ARRAYS)
            kept = hold(t)
            self.held.append(Held(kept, read(kept).detach().clone(), read))

    def call(self, x: Tensor, name: str = "") -> None:
        """A compiled program with breaks."""
        name = name or self.dice.choice([*self.made])
        other = x.clone()
        _keeper[:] = [None]
        expected = EAGER[name](other)
        _keeper[:] = [self._keep]
        result = self.made[name](x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x, other, rtol=1e-4, atol=1e-4)

    def train(self, x: Tensor) -> None:
        """A forward pass, whose backward may come later."""
        _keeper[:] = [None]
        loss = self.net(x)
        _keeper[:] = [self._keep]
        self.pending.append((loss, self.twin(x)))
        torch.testing.assert_close(self.pending[-1][1], loss, rtol=1e-4, atol=1e-4)

    def backward(self, x: Tensor) -> None:
        """Of any of those that wait."""
        if not self.pending:
            return
        expected, actual = self.pending.pop(self.dice.randrange(len(self.pending)))
        found = []
        for loss in (expected, actual):
            self.net.zero_grad(set_to_none=True)
            loss.backward()
            found.append([one.grad for one in self.net.parameters()])
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)

    def drop(self, x: Tensor) -> None:
        """Something that is held."""
        if self.held:
            self.held.pop(self.dice.randrange(len(self.held)))

    def drop_loss(self, x: Tensor) -> None:
        """A backward that will never run."""
        if self.pending:
            self.pending.pop()

    def mark(self, x: Tensor) -> None:
        """A step begins."""
        windfall.mark_step_begin()

    def elsewhere(self, x: Tensor) -> None:
        """In another thread."""
        thread = threading.Thread(target=self.call, args=(x, "_loop"))
        thread.start()
        thread.join()

    def reset(self, x: Tensor) -> None:
        """All trees."""
        CPU_TREES.reset()

    def collect(self, x: Tensor) -> None:
        """Garbage."""
        gc.collect(0)

    def run(self) -> dict[str, int]:
        """All of it."""
        actions = (
            *(self.call, self.train, self.backward, self.drop, self.mark, self.drop_loss),
            *(self.elsewhere, self.reset, self.collect),
        )
        for step in range(self.dice.randrange(8, 24)):
            made = torch.Generator().manual_seed(self.seed * 100 + step)
            chosen = self.dice.choices(actions, (45, 15, 12, 13, 5, 3, 2, 1, 4))[0]
            chosen(torch.randn(4, 8, generator=made))
            _keeper.clear()
            compare(self.held, f"seed {self.seed}, step {step}, {chosen.__name__}")
            CPU_TREES.here(OPTIONS).check()
        while self.pending:
            self.backward(torch.empty(0))
        compare(self.held, f"seed {self.seed}, end")
        return {"nodes": CPU_TREES.here(OPTIONS).nodes}


def run(programs: int, seed: int = 0) -> dict[str, int]:
    """That many programs; the sum of what they counted. The first that is wrong raises."""
    total: dict[str, int] = {"programs": 0}
    for number in range(seed, seed + programs):
        counted = (CpuProgram if number % 2 else FakeProgram)(number).run()
        total["programs"] += 1
        for name, count in counted.items():
            total[name] = total.get(name, 0) + count
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(run(given.programs, given.seed))


if __name__ == "__main__":
    main()
