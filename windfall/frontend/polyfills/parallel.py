"""`DistributedDataParallel`, as Python: the wrapped module is read, its reducer is not.

Enters: a call of `_run_ddp_forward`, between torch's own `_pre_forward` and `_post_forward`, which
are native steps. Leaves: what the wrapped module answers. Invariant: collectives are issued by
torch alone, in the steps around this one and while gradients are accumulated.
"""

from __future__ import annotations

from typing import Any

from windfall.torch_abi import ACTIVE_WRAPPER as _ACTIVE
from windfall.torch_abi import BY_PYTHON as _BY_PYTHON
from windfall.torch_abi import parallel_class

_Wrapper = parallel_class()


def ddp_forward(self: Any, *inputs: Any, **keywords: Any) -> Any:
    """The wrapped module's call, while its wrapper says that it is the active one."""
    if getattr(self, _BY_PYTHON):
        return self.module(*inputs, **keywords)
    before = getattr(_Wrapper, _ACTIVE)
    setattr(_Wrapper, _ACTIVE, self)
    try:
        return self.module(*inputs, **keywords)
    finally:
        setattr(_Wrapper, _ACTIVE, before)
