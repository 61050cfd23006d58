"""windfall as a backend of torch.compile: `torch.compile(model, backend="windfall")`.

Enters: a graph module that torch captured, and example inputs (which may be fake). Leaves: a
callable of the same inputs. The graph is compiled when it is first called, from real tensors, as
any other function. Invariant: nothing here imports torch's own compiler; it calls us.

`pyproject.toml` names `windfall` under the entry-point group `torch_dynamo_backends`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from windfall import api


def windfall(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a captured graph; `mode` and `options` are those of `windfall.compile`."""
    plain = torch.fx.GraphModule(module, module.graph)  # torch's own writes its code when called
    compiled: Callable[..., Any] = api.compile(
        plain.forward, backend="windfall", mode=mode, options=options
    )
    return compiled
