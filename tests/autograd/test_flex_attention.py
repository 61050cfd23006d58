"""`flex_attention` inside of compiled functions, against attention written out in plain Python."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)

import windfall
from tests.autograd.test_control_flow import TORCH, gradients, ran_natively, tensors
from windfall.errors import BreakError

Function = Callable[..., Any]
SIZES = (2, 4, 10, 8)  # batches, heads, rows, width


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Function | None = None,
    mask: Function | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each place by itself; the logarithms of the sums besides."""
    groups = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(groups, 1) for one in (key, value))
    scores = query @ key.mT * (scale or 1 / math.sqrt(query.shape[-1]))
    rows = []
    numbers = [torch.tensor(one) for one in range(max(scores.shape))]
    for b in range(scores.shape[0]):
        for h in range(scores.shape[1]):
            for i in range(scores.shape[2]):
                row = []
                for j in range(scores.shape[3]):
                    place = [numbers[one] for one in (b, h, i, j)]
                    one = scores[b, h, i, j]
                    one = one if score is None else score(one, *place)
                    if mask is not None and not mask(*place):
                        one = torch.tensor(-math.inf)
                    row.append(one)
                rows.append(torch.stack(row))
    found = torch.stack(rows).reshape(scores.shape)
    none = (found == -math.inf).all(-1, keepdim=True)
    weights = torch.where(none, 0.0, found.masked_fill(none, 0.0).softmax(-1))
    sums = torch.where(none, -math.inf, found.masked_fill(none, 0.0).logsumexp(-1, keepdim=True))
    return weights @ value, sums.squeeze(-1)


def blocks(mask: Function, rows: int = SIZES[2]) -> BlockMask:
    """A mask of no blocks: only its function counts (eager makes others by its own compiler)."""
    made = BlockMask.from_kv_blocks(
        torch.ones(1, 1, 1, dtype=torch.int32),
        torch.zeros(1, 1, 1, 1, dtype=torch.int32),
        BLOCK_SIZE=rows,
        mask_mod=mask,
        seq_lengths=(rows, rows),
    )
    assert made.mask_mod is mask
    return made


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


DOCUMENTS = torch.tensor([0] * 4 + [1] * 6)
SLOPES = torch.linspace(0.1, 0.4, 4)

SCORES: dict[str, Function] = {
    "as it is": lambda s, b, h, i, j: s,
    "distance": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "capped": lambda s, b, h, i, j: torch.tanh(s / 2) * 2,
    "causal by itself": lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf),
    "nothing of the first rows": lambda s, b, h, i, j: torch.where(i > 2, s, -math.inf),
    "of the type": lambda s, b, h, i, j: s + s.new_zeros(()) + torch.ones_like(s),
    "without the score": lambda s, b, h, i, j: SLOPES[h] * j,
}
MASKS: dict[str, Function] = {
    "causal": causal,
    "window": lambda b, h, i, j: (i - j).abs() < 3,
    "documents": and_masks(causal, lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j]),
    "either": or_masks(causal, lambda b, h, i, j: j < 2),
    "nothing of the first rows": lambda b, h, i, j: (i > 2) & (j <= i),
    "by batch and head": lambda b, h, i, j: (b + h + i + j) % 3 != 0,
    "everything": noop_mask,
}


def compared(
    function: Function, plain: Function, args: list[torch.Tensor], *others: torch.Tensor
) -> None:
    """Natively: the same values and gradients."""
    ran_natively(function, *args, kind="")
    got, want = windfall.compile(function, fullgraph=True)(*args), plain(*args)
    torch.testing.assert_close(got, want)
    inputs = [*args, *others]
    torch.testing.assert_close(
        gradients(got, inputs), gradients(want, inputs), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_functions_of_scores(name: str, grad: bool) -> None:
    score = SCORES[name]
    compared(
        lambda q, k, v: flex_attention(q, k, v, score),
        lambda q, k, v: attention(q, k, v, score)[0],
        tensors(SIZES, SIZES, SIZES, grad=grad),
    )


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, grad: bool) -> None:
    mask = MASKS[name]
    held = blocks(mask)
    compared(
        lambda q, k, v: flex_attention(q, k, v, block_mask=held, scale=0.3),
        lambda q, k, v: attention(q, k, v, mask=mask, scale=0.3)[0],
        tensors(SIZES, SIZES, SIZES, grad=grad),
    )


def test_what_is_fused() -> None:
    """Without a function of scores it is the kernel that eager has for attention."""
    args = tensors(SIZES, SIZES, SIZES, grad=False)
    held = blocks(causal)
    for function in (flex_attention, lambda q, k, v: flex_attention(q, k, v, block_mask=held)):
        names = [one.name for one in windfall.explain(function)(*args).kernels()]
        assert any("scaled_dot_product" in one for one in names)


def test_a_bias_that_is_trained() -> None:
    bias, slopes = tensors((4, 10, 10), (4,), seed=3)
    held = blocks(causal)

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + bias[h, i, j] * slopes[h]

    compared(
        lambda q, k, v: flex_attention(q, k, v, score, block_mask=held),
        lambda q, k, v: attention(q, k, v, score, causal)[0],
        tensors(SIZES, SIZES, SIZES),
        bias,
        slopes,
    )


def test_groups_of_heads_and_sums() -> None:
    args = tensors(SIZES, (2, 2, 10, 8), (2, 2, 10, 6))
    held = blocks(MASKS["nothing of the first rows"])

    def f(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, SCORES["distance"], held, enable_gqa=True, return_lse=True)

    def plain(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, SCORES["distance"], MASKS["nothing of the first rows"])

    ran_natively(f, *args, kind="")
    got, want = windfall.compile(f, fullgraph=True)(*args), plain(*args)
    torch.testing.assert_close(got, want)
    for one, other in zip(gradients(got[0], args), gradients(want[0], args), strict=True):
        torch.testing.assert_close(one, other)

    def g(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, enable_gqa=True, return_aux=AuxRequest(lse=True))

    result, aux = windfall.compile(g, fullgraph=True)(*args)
    want = attention(*args)
    torch.testing.assert_close((result, aux.lse), want)
    assert aux.max_scores is None and type(aux).__name__ == "AuxOutput"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)])
def test_the_result_lies_as_the_queries_do(order: tuple[int, ...]) -> None:
    q, k, v = tensors(SIZES, SIZES, SIZES, grad=False)
    back = [order.index(dim) for dim in range(4)]
    q = q.permute(order).contiguous().permute(back)
    for score in (None, SCORES["distance"]):
        found = windfall.compile(lambda q, k, v, score=score: flex_attention(q, k, v, score))(
            q, k, v
        )
        assert found.stride() == q.stride()


def test_lengths_that_vary() -> None:
    compiled = windfall.compile(
        lambda q, k, v: flex_attention(q, k, v, SCORES["distance"]), fullgraph=True, dynamic=True
    )
    for rows in (3, 5, 9):
        args = tensors(*[(2, 4, rows, 8)] * 3)
        got, want = compiled(*args), attention(*args, SCORES["distance"])[0]
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(gradients(got, args), gradients(want, args))
    assert len(windfall.cache_entries(compiled)) == 1


TABLE = torch.randn(4, 10)
MIXING: dict[str, Function] = {
    "a sum": lambda s, b, h, i, j: s - s.sum(),
    "a softmax": lambda s, b, h, i, j: s.softmax(-1),
    "a cumulative sum": lambda s, b, h, i, j: s.cumsum(0),
    "turned": lambda s, b, h, i, j: s.flip(0),
    "seen otherwise": lambda s, b, h, i, j: s.mT,
    "a slice": lambda s, b, h, i, j: s[0],
    "a whole tensor": lambda s, b, h, i, j: s + TABLE[0],
    "a row of a table": lambda s, b, h, i, j: s + TABLE[h].sum(),
    "written": lambda s, b, h, i, j: s.mul_(2),
    "its size": lambda s, b, h, i, j: s / (1 + s.numel()),
    "its shape": lambda s, b, h, i, j: s * len(s.shape),
    "its dimensions": lambda s, b, h, i, j: s * (s.dim() + 1),
    "of an index": lambda s, b, h, i, j: s * (i.shape[0] if i.dim() else 2),
    "a largest one": lambda s, b, h, i, j: s - torch.max(s),
    "matrices": lambda s, b, h, i, j: s @ s,
    "random": lambda s, b, h, i, j: s + torch.rand_like(s),
    "no tensor": lambda s, b, h, i, j: 1.0,
    "a whole table": lambda s, b, h, i, j: TABLE,
}


@pytest.mark.parametrize("name", MIXING)
def test_functions_that_mix_places_break(name: str) -> None:
    """Called on all places at once they would answer something else than for each by itself."""
    args = tensors(*[(2, 4, 10, 10)] * 3, grad=False)
    with pytest.raises(BreakError):
        windfall.compile(lambda q, k, v: flex_attention(q, k, v, MIXING[name]), fullgraph=True)(
            *args
        )


def test_what_eager_refuses_breaks() -> None:
    q, k, v = tensors(SIZES, SIZES, SIZES, grad=False)
    refused: list[Function] = [
        lambda: flex_attention(q[0], k[0], v[0]),
        lambda: flex_attention(q, k[..., :4], v),
        lambda: flex_attention(q, k[:, :2], v[:, :2]),
        lambda: flex_attention(q, k[:1], v[:1]),
        lambda: flex_attention(q, k, v, block_mask=blocks(causal, 12)),
        lambda: flex_attention(q, k, v, kernel_options={"BACKEND": "NONE"}),
    ]
    later = (RuntimeError,) if TORCH >= (2, 14) else ()  # of a mask that is too long
    for function in refused:
        with pytest.raises((BreakError, NotImplementedError, ValueError, *later)):
            windfall.compile(function, fullgraph=True)()


@pytest.mark.parametrize("name", MASKS)
def test_masks_as_tensors(name: str) -> None:
    mask = MASKS[name]

    def f() -> torch.Tensor:
        return create_mask(mask, 2, 4, 10, 10, device="cpu")

    ran_natively(f, kind="")
    found = windfall.compile(f, fullgraph=True)()
    numbers = [torch.tensor(one) for one in range(10)]
    want = [
        bool(mask(numbers[b], numbers[h], numbers[i], numbers[j]))
        for b in range(2) for h in range(4) for i in range(10) for j in range(10)
    ]  # fmt: skip
    assert torch.equal(found, torch.tensor(want).reshape(2, 4, 10, 10))


def test_a_block_mask_is_made_inside() -> None:
    q, k, v = tensors(*[(1, 2, 256, 8)] * 3, grad=False)

    def f(q: Any, k: Any, v: Any) -> Any:
        held = create_block_mask(causal, None, None, 256, 256, device="cpu")
        return flex_attention(q, k, v, block_mask=held), held.kv_num_blocks, held.full_kv_indices

    explained = windfall.explain(f)(q, k, v)
    result, counts, full = explained.result
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(result, want)
    assert counts.tolist() == [[[1, 1]]] and full.tolist() == [[[[0, 1], [0, 1]]]]
    assert not explained.breaks


def test_torchs_own_compiler_is_not_loaded() -> None:
    program = """
        import sys, torch, windfall
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        bias = torch.randn(8, requires_grad=True)

        @windfall.compile(fullgraph=True)
        def f(x):
            held = create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 8, device="cpu")
            return flex_attention(x, x, x, lambda s, b, h, i, j: s + bias[j], held)

        f(torch.randn(1, 2, 8, 4, requires_grad=True)).sum().backward()
        assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
