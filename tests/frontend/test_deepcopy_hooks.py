"""`copy.deepcopy` of an object: its class, a base or its own dictionary has a say, now or later."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import windfall

HOOKS: dict[str, Any] = {
    "__deepcopy__": lambda *given: "deep",
    "__reduce__": lambda *given: (str, ("reduced",)),
    "__reduce_ex__": lambda *given: (str, ("extended",)),
    "__getstate__": lambda *given: {"v": "state"},
    "__setstate__": lambda *given: None,
    "__copy__": lambda *given: "shallow",
}


def _told(made: Any) -> Any:
    if isinstance(made, str):
        return made
    return type(made).__name__, sorted(vars(made)), str(getattr(made, "v", 0))


@pytest.mark.parametrize("late", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("where", ["class", "base", "instance"])
@pytest.mark.parametrize("hook", HOOKS)
def test_whoever_has_a_say_in_a_copy_is_asked(hook: str, where: str, late: bool) -> None:
    class Base: ...

    class Thing(Base):
        def __init__(self) -> None:
            self.v = [1]

    thing = Thing()
    places = {"class": Thing, "base": Base, "instance": thing}

    def function(x: torch.Tensor) -> Any:
        y = x + 1
        return copy.deepcopy(thing), y * 2

    compiled = windfall.compile(function)

    def agree() -> None:
        for _ in range(2):
            x = torch.ones(2)
            (made, y), (expected, z) = compiled(x), function(x)
            assert (_told(made), y.tolist()) == (_told(expected), z.tolist())
            assert made is not thing

    if late:
        agree()
        assert not windfall.explanation(compiled).breaks  # modelled, as nobody has a say
    setattr(places[where], hook, HOOKS[hook])
    agree()
    delattr(places[where], hook)
    agree()
    assert not windfall.explanation(compiled).fallbacks
