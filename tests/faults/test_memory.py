"""Where memory is short, a compiled call raises what eager raises, in eager's words.

For each place that takes memory (results of a native graph, its arena, the public way, training,
sizes that vary) and each way in which there is too little: more than the machine has, more bytes
than a number holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

PROGRAMS: dict[str, Callable[..., Any]] = {
    "a result": lambda x, n: x.expand(n, n) + 1,
    "a second result": lambda x, n: (x * 3, x.expand(n, n).clone()),
    "made of nothing": lambda x, n: torch.zeros(n, n) + x,
    "the arena": lambda x, n: (x.expand(n, n) + 1).cumsum(0).sum(),
    "behind a write": lambda x, n: x.detach().add_(1).expand(n, n) * 2,
}


def _raised(function: Callable[..., Any], *arguments: Any) -> tuple[type, str]:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        function(*arguments)
    return type(caught.value), str(caught.value).splitlines()[0]


@pytest.mark.parametrize("native", [True, False], ids=["native", "public"])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("size", [10**6, 2**31], ids=["bytes", "overflow"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_too_little_memory_is_told_as_in_eager(
    name: str, size: int, grad: bool, native: bool
) -> None:
    function = PROGRAMS[name]
    compiled = windfall.compile(function, options={"native": native})
    eager_input, own_input = (torch.ones(1, requires_grad=grad) for _ in range(2))
    expected = _raised(function, eager_input, size)
    for _ in range(2):
        assert _raised(compiled, own_input, size) == expected
    assert own_input._version in (eager_input._version, 2 * eager_input._version)


def test_a_size_that_grows_too_large() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.expand(n, n) + 1

    compiled = windfall.compile(function, dynamic=True)
    x = torch.ones(1)
    assert compiled(x, 3).shape == (3, 3)
    for size in (10**6, 2**31):
        assert _raised(compiled, x, size) == _raised(function, x, size)
    assert compiled(x, 5).shape == (5, 5)
