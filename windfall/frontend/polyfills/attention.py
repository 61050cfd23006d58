"""Attention with functions of the user, as Python: scores are computed for all places at once.

A function of one score and its place (`score_mod`, `mask_mod`) is called once, on *lanes*: tensors
that hold the scores, and the numbers of batches, heads, rows and columns along their dimensions.
What it does between `begin_lanes` and `end_lanes` must be the same as for each place by itself; the
rules see to that.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Any,
    scale: Any,
    grouped: bool,
    wants_sums: bool,
    aux: Any,
    aux_output: Any,
) -> Any:
    """`torch.nn.attention.flex_attention.flex_attention`."""
    _check(query, key, block_mask, grouped, aux)
    batches, heads, rows, width = query.shape
    if scale is None:
        scale = 1.0 / math.sqrt(width)
    key = _spread(key, batches, heads)
    value = _spread(value, batches, heads)
    places = lanes(batches, heads, rows, key.shape[2])
    mask = None
    if block_mask is not None:
        begin_lanes(places)
        mask = end_lanes(block_mask.mask_mod(*places))
        mask = mask | torch.zeros((1, 1, rows, key.shape[2]), dtype=torch.bool)
    if score_mod is None and not wants_sums and aux is None:
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale
        )
        return _as_query(query, result)
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * scale
    if score_mod is not None:
        begin_lanes((scores, *places))
        scores = end_lanes(score_mod(scores, *places)).to(precision).expand(scores.shape)
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    result, sums = _attention(scores, value.to(query.dtype))
    result = _as_query(query, result)
    if aux is not None:
        return result, aux_output(sums if aux.lse else None, None)
    return (result, sums) if wants_sums else result


def _check(query: Any, key: Any, block_mask: Any, grouped: bool, aux: Any) -> None:
    """What eager refuses."""
    batches, heads, rows, _ = query.shape
    if block_mask is not None:
        no_blocks = block_mask.BLOCK_SIZE[0] == block_mask.BLOCK_SIZE[1] == 1 << 30
        lengths = block_mask.seq_lengths
        if not no_blocks and (lengths[0] != rows or lengths[1] != key.shape[2]):
            leave_to_eager("a block mask of other lengths")
    if key.shape[0] != batches and (block_mask is None or key.shape[0] != 1):
        leave_to_eager("other batches of keys")
    if key.shape[1] != heads and (not grouped or heads % key.shape[1] != 0):
        leave_to_eager("other heads of keys")
    if aux is not None and aux.max_scores:
        leave_to_eager("the largest scores")


def _attention(scores: Any, value: Any) -> Any:
    """Weighted values, and the logarithms of the weights' sums. Rows of which nothing is left are
    zeros, and so are their gradients."""
    masked = (scores == -math.inf).all(-1, keepdim=True)
    scores = torch.where(masked, 0.0, scores)
    weights = torch.where(masked, 0.0, torch.softmax(scores, -1))
    sums = torch.where(masked.squeeze(-1), -math.inf, torch.logsumexp(scores, -1))
    return weights.to(value.dtype) @ value, sums


def _spread(tensor: Any, batches: int, heads: int) -> Any:
    """Keys or values for each batch and each head of the queries."""
    groups = heads // tensor.shape[1]
    if groups > 1:
        tensor = tensor.repeat_interleave(groups, 1)
    if tensor.shape[0] != batches:
        tensor = tensor.expand(batches, -1, -1, -1)
    return tensor


def _as_query(query: Any, result: Any) -> Any:
    """A result that lies in memory as the queries do, rows without gaps."""
    strides = query.stride()
    order: list[int] = []  # innermost first
    for dim in range(3):
        place = len(order)
        while place > 0 and strides[order[place - 1]] > strides[dim]:
            place -= 1
        order.insert(place, dim)
    if order == [2, 1, 0]:
        return result.contiguous()
    outermost_first = [order[2], order[1], order[0], 3]
    laid = result.permute(outermost_first).contiguous()
    return laid.permute([outermost_first.index(dim) for dim in range(4)])


def create_mask(mod: Any, is_score: bool, sizes: Any, device: Any) -> Any:
    """`torch.nn.attention.flex_attention.create_mask`."""
    batches, heads, rows, columns = sizes
    places = lanes(batches, heads, rows, columns, device)
    if is_score:
        scores = torch.zeros(batches, heads, rows, columns, device=device)
        begin_lanes((scores, *places))
        found = end_lanes(mod(scores, *places)).expand(batches, heads, rows, columns)
        return ~torch.isneginf(found)
    begin_lanes(places)
    found = end_lanes(mod(*places))
    return found.expand(batches, heads, rows, columns).clone()


def ordered_to_dense(counts: Any, indices: Any, columns: Any) -> Any:
    """Rows of flags, of rows that begin with the numbers of those that are set."""
    wanted = torch.arange(indices.shape[-1], device=counts.device) < counts.unsqueeze(-1)
    places = torch.where(wanted, indices, columns).to(torch.int64)  # others: behind the end
    rows = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.int32, device=counts.device)
    return rows.scatter(-1, places, 1)[..., :columns].contiguous()


def lanes(batches: Any, heads: Any, rows: Any, columns: Any, device: Any = None) -> Any:
    """The numbers of batches, heads, rows and columns, along four dimensions."""
    return (
        torch.arange(batches, device=device).view(-1, 1, 1, 1),
        torch.arange(heads, device=device).view(-1, 1, 1),
        torch.arange(rows, device=device).view(-1, 1),
        torch.arange(columns, device=device),
    )


def begin_lanes(given: Any) -> Any:
    """Has a rule."""


def end_lanes(result: Any) -> Any:
    """Has a rule: the result, if it is one for each place."""


def leave_to_eager(why: str) -> Any:
    """Has a rule: stop."""


def held_together(function: Any, arguments: Any) -> Any:
    """One call, which is made natively as a whole if any of it cannot be captured."""
    result = function(*arguments)
    let_go()
    return result


def let_go() -> Any:
    """Has a rule."""
