"""Results whose history was freed: a backward pass inside of the graph has gone through it.

Enters: a recorded graph and its results. Leaves: of each result whose history is gone, the inputs
that it led to; and, in a call, a result that raises what eager raises when a pass comes to it
again. Invariant: torch's engine says whose history is gone: a pass is begun there, on tensors
without data.

    loss.backward(); return loss      =>      loss.backward() again: RuntimeError
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.autograd.boundaries import reached
from windfall.autograd.tracing import Tracer, autocast
from windfall.ops import fake as fakes


def spent_inputs(recorder: Tracer, result: torch.Tensor) -> tuple[int, ...]:
    """The inputs that the history of a result led to, if it was freed."""
    recording = recorder.recording
    if not recorder.frees or not _is_spent(recorder, result):
        return ()
    needing = [index for index, needs in enumerate(recording.needs) if needs]
    return tuple(needing[place] for place in sorted(reached([result], recording.door)))


def _is_spent(recorder: Tracer, result: torch.Tensor) -> bool:
    recording = recorder.recording
    wanted = list(itertools.compress(recording.entered, recording.needs))
    tangent = fakes.fake(fakes.type_of(result), requires_grad=False)
    try:
        with fakes.FakeMode(lambda *_: None), autocast(None):
            torch_abi.run_by_real_engine([result], [tangent], keep_graph=True, inputs=wanted)
    except RuntimeError as error:
        return str(error) == torch_abi.freed_history_text()
    return False


class SpentGraph(torch.autograd.Function):
    """The node of a result whose history was freed."""

    @staticmethod
    def forward(context: Any, shown: tuple[Any], *inputs: Any) -> Any:
        """The result itself."""
        return shown[0]

    @staticmethod
    def backward(context: Any, *tangents: Any) -> Any:
        """As eager."""
        raise RuntimeError(torch_abi.freed_history_text())


_attach: Callable[..., Any] = super(torch.autograd.Function, SpentGraph).apply


def spent_result(result: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """A result of a call, whose history led to these inputs and is gone."""
    with torch.enable_grad():
        found: torch.Tensor = _attach((result,), *inputs)
    return found
