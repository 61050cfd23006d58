"""`module.buffer = value` registers the buffer anew, as `nn.Module.__setattr__` does.

Each kind of value is written to each kind of module, with and without a hook: buffers, their keys
in the state, what methods and hooks were told, and errors are eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import windfall

TOLD: list[Any] = []


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x: torch.Tensor, name: str, make: Callable[[torch.Tensor], Any]) -> Any:
        y = x + 1
        setattr(self, name, make(y))
        return y * 2, getattr(self, name)


class Listening(Plain):
    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        TOLD.append(("method", name, persistent))
        super().register_buffer(name, tensor, persistent)


class Old(Plain):
    def register_buffer(self, name: str, tensor: Any, *rest: Any, **more: Any) -> None:
        TOLD.append(("old", name, rest, tuple(more)))
        super().register_buffer(name, tensor, *rest, **more)


def made(x: torch.Tensor) -> Any:
    return x * 3


def given(x: torch.Tensor) -> Any:
    return _GIVEN


def none(x: torch.Tensor) -> Any:
    return None


def buffer(x: torch.Tensor) -> Any:
    return _BUFFER


def number(x: torch.Tensor) -> Any:
    return 3


_GIVEN = torch.tensor([5.0, 6.0])
_BUFFER = nn.Buffer(torch.tensor([7.0, 8.0]), persistent=True)


@pytest.fixture(params=["", "hooked"])
def hooked(request: pytest.FixtureRequest) -> Iterator[bool]:
    def hook(module: nn.Module, name: str, value: Any) -> Any:
        TOLD.append(("hook", name))
        return value

    if not request.param:
        yield False
        return
    handle = nn.modules.module.register_module_buffer_registration_hook(hook)
    yield True
    handle.remove()


def _seen(call: Any, module: nn.Module, name: str, make: Callable[..., Any]) -> Any:
    TOLD.clear()
    try:
        answer: Any = call(torch.tensor([1.0, 2.0]), name, make)
        answer = [one.tolist() if isinstance(one, torch.Tensor) else one for one in answer]
    except (TypeError, RuntimeError) as error:
        answer = str(error)
    held = {key: None if one is None else one.tolist() for key, one in module._buffers.items()}
    return answer, held, sorted(module.state_dict()), list(TOLD)


@pytest.mark.parametrize("make", [made, given, none, buffer, number], ids=lambda one: one.__name__)
@pytest.mark.parametrize("kind", [Plain, Listening, Old])
@pytest.mark.parametrize("name", ["kept", "passing", "nothing"])
def test_a_buffer_is_registered_anew(
    name: str, kind: type[Plain], make: Callable[..., Any], hooked: bool
) -> None:
    theirs, mine = kind(), kind()
    compiled = windfall.compile(mine)
    for _ in range(2):
        wanted = _seen(theirs, theirs, name, make)
        assert _seen(compiled, mine, name, make) == wanted
    followed = (made, given, none, buffer) if name != "passing" else (made, given, none)
    if kind is Plain and make in followed and not hooked:
        told = windfall.explanation(compiled)
        assert not told.breaks and not told.fallbacks
        # What stood there was looked at: a tensor at first, then None, or the other way round.
        changes = (name == "nothing") != (make is none)
        assert len(told.graphs) == 1 + changes


def test_a_hook_that_comes_later() -> None:
    """What was compiled without it is not run with it."""
    module = Plain()
    compiled = windfall.compile(module)
    _seen(compiled, module, "kept", made)

    def hook(module: nn.Module, name: str, value: Any) -> Any:
        TOLD.append(("hook", name))

    handle = nn.modules.module.register_module_buffer_registration_hook(hook)
    try:
        assert _seen(compiled, module, "kept", made)[-1] == [("hook", "kept")]
    finally:
        handle.remove()


class Counting(nn.Module):
    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.seen = nn.Buffer(torch.zeros(2), persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x
        return x + self.seen


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_that_is_counted_up_is_written_in_the_graph(persistent: bool) -> None:
    """`self.seen += x` of an `nn.Buffer` registers the same one again."""
    theirs, mine = Counting(persistent), Counting(persistent)
    compiled = windfall.compile(mine)
    x = torch.tensor([1.0, 2.0])
    for _ in range(3):
        assert torch.equal(compiled(x), theirs(x))
        assert torch.equal(mine.seen, theirs.seen)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks and not told.fallbacks
    # Another word of the buffer's own: it is registered anew, with or without a place in the state.
    for one in (theirs, mine):
        one.seen.persistent = not persistent
    assert torch.equal(compiled(x), theirs(x))
    assert sorted(mine.state_dict()) == sorted(theirs.state_dict()) == ["seen"][persistent:]
