"""Generators that a program hands to what draws: places in a graph, objects in a call.

Enters: on each call, the generators that the program names (`drawing`). Leaves: in captured graphs
nodes that ask for them (`generator_at`), in graphs of ATen overloads `GeneratorAt` as an argument,
and `given` in its stead where such an op is called. Invariant: a graph holds no generator, so that
it serves each one; two places may be one object in a call, and it then draws in program order.

    normal = torch.randn(3, generator=generator_at(0))        captured
    randn = aten.randn.generator([3], generator=generator 0)  joint, and a `PythonStep`

Draws stand in forward graphs alone: when backward runs, nobody says which generators are meant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from windfall.dataclass import dataclass
from windfall.errors import GraphFailed, InternalError
from windfall.ir.codec import record
from windfall.torch_abi import same_generator


@record
@dataclass(frozen=True, slots=True)
class GeneratorAt:
    """The generator at a place, as an argument of an op."""

    place: int

    def __repr__(self) -> str:
        return f"generator {self.place}"


class Generators(Protocol):
    """Generators by their places."""

    def __getitem__(self, place: int, /) -> torch.Generator: ...


class _CurrentGenerators(threading.local):
    generators: Generators = ()


_thread = _CurrentGenerators()


def generator_at(place: int) -> torch.Generator:
    """The generator at a place, of the call that this thread is in."""
    return _thread.generators[place]


@contextmanager
def using(generators: Generators) -> Iterator[None]:
    """Calls inside mean these."""
    before = _thread.generators
    _thread.generators = generators
    try:
        yield
    finally:
        _thread.generators = before


def drawing(
    generators: Sequence[torch.Generator], call: Callable[..., Any], *inputs: Any
) -> tuple[Any, ...]:
    """`call(*inputs)`, a graph's, with these; where eager is to do the same again, they are as they
    were."""
    states = [one.get_state() for one in generators]
    try:
        with using(generators):
            found: tuple[Any, ...] = call(*inputs)
    except GraphFailed:
        for one, state in zip(generators, states, strict=True):
            one.set_state(state)
        raise
    return found


def given(argument: Any) -> Any:
    """An argument of an op: the generator of this call, if it is the number of one."""
    return generator_at(argument.place) if isinstance(argument, GeneratorAt) else argument


class StandIns:
    """Generators for a run on tensors without data: nothing draws from them."""

    def __init__(self) -> None:
        self._made: dict[int, torch.Generator] = {}

    def __getitem__(self, place: int) -> torch.Generator:
        found = self._made.get(place)
        if found is None:
            found = self._made[place] = torch.Generator()
        return found

    def named(self, argument: Any) -> Any:
        """An argument as it was dispatched: the number of a generator, if it is one of these. (The
        dispatcher hands on another Python object around the same one.)"""
        if not isinstance(argument, torch.Generator):
            return argument
        for place, one in self._made.items():
            if same_generator(one, argument):
                return GeneratorAt(place)
        raise InternalError("an op draws from a generator that nobody named")
