"""`isinstance` and `issubclass` with abstract classes of the user's: what they say, and what they
say once the world has changed between two calls."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall


class World:
    """An abstract class, a class below it, a stranger and the stranger's base."""

    def __init__(self) -> None:
        class Abstract(abc.ABC):  # noqa: B024
            pass

        class Below(Abstract):
            pass

        class Base:
            pass

        class Stranger(Base):
            pass

        self.abstract, self.below, self.base, self.stranger = Abstract, Below, Base, Stranger


def hooked(parent: type) -> type:
    class Hooked(parent):  # type: ignore[misc]
        @classmethod
        def __subclasshook__(cls, other: type) -> bool:
            return True

    return Hooked


CHANGES: dict[str, Callable[[World], Any]] = {
    "nothing": lambda world: None,
    "the class is registered": lambda world: world.abstract.register(world.stranger),
    "its base is registered": lambda world: world.abstract.register(world.base),
    "another is registered": lambda world: world.abstract.register(int),
    "it is registered with a class below": lambda world: world.below.register(world.stranger),
    "a class below with a hook": lambda world: hooked(world.abstract),
    "a class below the stranger": lambda world: type("Under", (world.stranger,), {}),
    "an abstract class is registered": lambda world: world.abstract.register(
        abc.ABCMeta("Other", (), {})
    ),
}

QUESTIONS: dict[str, Callable[[World], Callable[[torch.Tensor, Any], Any]]] = {
    "isinstance": lambda world: lambda x, o: x + 1 if isinstance(o, world.abstract) else x - 1,
    "of several": lambda world: lambda x, o: x + isinstance(o, (str, world.abstract)),
    "issubclass": lambda world: lambda x, o: x + issubclass(type(o), world.abstract),
    "match": lambda world: lambda x, o: _match(x, o, world),
}


def _match(x: torch.Tensor, o: Any, world: World) -> torch.Tensor:
    match o:
        case world.abstract():
            return x + 1
    return x * 2


@pytest.mark.parametrize("who", ["stranger", "below"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_follow_registrations(question: str, change: str, who: str) -> None:
    answers = []
    for compiled in (False, True):
        world = World()
        ask: Any = QUESTIONS[question](world)
        if compiled:
            ask = windfall.compile(ask)
        thing = getattr(world, who)()
        first = ask(torch.ones(2), thing)
        kept = CHANGES[change](world)  # else a class below is there until the collector comes
        answers.append((first, ask(torch.ones(2), thing), ask(torch.ones(2), 3)))
        if compiled and change != "a class below with a hook":
            explained = windfall.explanation(ask)
            assert not explained.breaks and not explained.fallbacks
        del kept
    torch.testing.assert_close(*answers, rtol=0, atol=0)


def test_a_hook_of_the_users_is_asked_natively() -> None:
    below = hooked(World().abstract)
    for cls in (hooked(abc.ABC), below.__mro__[1], _with_registered_check()):

        def ask(x: torch.Tensor, o: object, cls: type = cls) -> torch.Tensor:
            return x + isinstance(o, cls)

        compiled = windfall.compile(ask)
        for thing in (3, "three", World()):
            torch.testing.assert_close(compiled(torch.ones(2), thing), ask(torch.ones(2), thing))
        assert windfall.explanation(compiled).breaks


def _with_registered_check() -> type:
    class Meta(type):
        def __subclasscheck__(cls, other: type) -> bool:
            return other is int

    world = World()
    world.abstract.judge = Meta("Judge", (), {})  # type: ignore[attr-defined]  # held: it is weak
    world.abstract.register(world.abstract.judge)  # type: ignore[attr-defined]
    return world.abstract
