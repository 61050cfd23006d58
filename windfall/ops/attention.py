"""Attention of `nn.MultiheadAttention` without gradients: one op of torch's, called.

Enters: nothing. Leaves: a record in the registry. Invariant: of sequences without elements torch's
kernel answers no weights at all, though its own rule tells that there are some: then it is eager's.
"""

from __future__ import annotations

from typing import Any

from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ops.folding import op


def _attention(query: TensorType, *arguments: Any, **keywords: Any) -> Any:
    if 0 in query.sizes:
        raise Unsupported(101, "attention of sequences without elements")
    return NotImplemented


op("_native_multi_head_attention.default", _attention)
