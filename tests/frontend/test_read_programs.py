"""Programs whose sizes depend on data, as users write them: masks, boxes, ragged batches, decoding,
routing, counting. Each agrees with eager over several draws, in as many compilations as it says;
those that need a value break where they read it, and only there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall

DRAWS = 8


@dataclass(frozen=True)
class Program:
    function: Callable[..., Any]
    given: Callable[[int], tuple[torch.Tensor, ...]]
    breaks: bool
    entries: int


PROGRAMS: dict[str, Program] = {}


def program(
    given: Callable[[int], tuple[torch.Tensor, ...]], breaks: bool = False, entries: int = 1
) -> Callable[..., Any]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = Program(function, given, breaks, entries)
        return function

    return note


def _rows(draw: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(8, 4), torch.randn(8) > (0, 5, -5)[draw % 3]


def _boxes(draw: int) -> tuple[torch.Tensor, ...]:
    return torch.rand(20, 4).cumsum(1), torch.rand(20)


def _ragged(draw: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(4, 10, 6), torch.randint(1, 11, (4,))


def _routed(draw: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(16, 8), torch.randn(16, 4), torch.randn(4, 8, 8)


def _scores(draw: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(50),)


def _tokens(draw: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 5, (3, 7)),)


def _count(draw: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(10, 6), torch.randint(1, 6, (1,))


# ------------------------------------------------------------------------------------------- masks


@program(_rows)
def mean_of_chosen(x, m):
    return x[m].mean(0)


@program(_rows)
def scaled_by_a_truth(x, m):
    found = m.any().item()
    return x * found, found


@program(_rows)
def answers_a_truth(x, m):
    return x.relu(), bool(m.all()), not m.any()


@program(_rows, breaks=True, entries=4)
def branch_on_a_truth(x, m):
    return x[m].sum(0) if m.any().item() else x.sum(0) * 0


@program(_rows)
def without_outliers(x, m):
    z = (x - x.mean()) / x.std()
    kept = x[(z.abs() < 1.5).all(1)]
    return kept.T @ kept


@program(_rows)
def best_row(x, m):
    best = x.sum(1).argmax()
    y = x.clone()
    y[best] = 0
    return x[best] * 2, y


@program(_rows)
def told_in_words(x, m):
    n = m.sum().item()
    return x[m] * 2, f"kept {n} of {x.shape[0]} ({n / 8:.1%})"


@program(_rows)
def loss_of_valid(x, m):
    labels = x.argmax(1)
    losses = F.cross_entropy(x, labels, reduction="none")
    return (losses * m).sum() / max(m.sum().item(), 1)


# ------------------------------------------------------------------------------------------- boxes


@program(_boxes)
def chosen_boxes(boxes, scores):
    keep = scores > 0.5
    found, order = scores[keep].sort(descending=True)
    return boxes[keep][order][:10], found[:10]


@program(_boxes, breaks=True, entries=16)
def suppressed_boxes(boxes, scores):
    kept = []
    left = scores.argsort(descending=True)
    while left.numel() > 0:
        best = left[0]
        kept.append(best)
        box, others = boxes[best], boxes[left[1:]]
        low, high = torch.max(box[:2], others[:, :2]), torch.min(box[2:], others[:, 2:])
        common = (high - low).clamp(min=0).prod(1)
        areas = (others[:, 2:] - others[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
        left = left[1:][common / (areas - common) <= 0.5]
    return torch.stack(kept)


# ------------------------------------------------------------------------------------------ ragged


@program(_ragged)
def cut_to_the_longest(x, lengths):
    longest = lengths.max().item()
    present = torch.arange(longest)[None] < lengths[:, None]
    return (x[:, :longest] * present[..., None]).sum(1) / lengths[:, None]


@program(_ragged)
def mask_row_by_row(x, lengths):
    longest = int(lengths.max())
    mask = torch.zeros(4, longest, dtype=torch.bool)
    for row in range(4):
        mask[row, : lengths[row]] = True
    return x[:, :longest].masked_fill(~mask[..., None], 0.0).sum()


@program(_ragged)
def in_ragged_parts(x, lengths):
    flat = x.reshape(40, 6)[: int(lengths.sum())]
    return torch.stack([one.mean(0) for one in flat.split(lengths.tolist())])


@program(_ragged)
def repeated_rows(x, lengths):
    return x[:, 0][torch.repeat_interleave(torch.arange(4), lengths)]


# ---------------------------------------------------------------------------------------- decoding


@program(_rows)
def all_or_nothing(x, m):
    """Truths without dimensions: torch reads each to tell whether all is taken, or nothing."""
    off, few = m.any(), m.sum() < 4
    score = torch.ones(())
    score[off] = 2 * x.mean()[off] / x.std()[off]
    score[off & few] = 0.5
    rows = x.clone()
    rows[off] *= 2
    off = off.logical_not()
    return score, x[off], x[few] + x[few].sum(), rows, score[off], x.t()[off]


@program(_scores)
def likely_tokens(logits):
    found, order = logits.softmax(-1).sort(descending=True)
    count = int((found.cumsum(-1) < 0.9).sum()) + 1
    return found[:count] / found[:count].sum(), order[:count]


@program(_scores)
def best_of_some(logits):
    return torch.topk(logits, max(1, int((logits > 0).sum()))).values.softmax(-1)


@program(_tokens)
def cut_at_the_end_mark(tokens):
    ends = tokens == 4
    first = torch.where(ends.any(1), ends.int().argmax(1), torch.full((3,), 7))
    return tokens[:, : first.max().item()]


@program(_tokens)
def without_padding(tokens):
    lengths = (tokens != 0).sum(1)
    return tokens[:, : lengths.max()], lengths


@program(_tokens, breaks=True, entries=10)
def until_all_have_ended(tokens):
    for _ in range(5):
        following = (tokens[:, -1:] * 3 + 1) % 5
        tokens = torch.cat([tokens, following], 1)
        if (following == 4).all():
            break
    return tokens


# ----------------------------------------------------------------------------------------- routing


@program(_routed)
def each_expert_its_tokens(x, gate, weights):
    chosen = gate.argmax(-1)
    out = torch.zeros_like(x)
    for index in range(4):
        (rows,) = torch.where(chosen == index)
        out.index_add_(0, rows, x[rows] @ weights[index])
    return out


@program(_routed, breaks=True, entries=12)
def only_experts_with_tokens(x, gate, weights):
    chosen = gate.argmax(-1)
    out = torch.zeros_like(x)
    for index in range(4):
        rows = (chosen == index).nonzero().squeeze(-1)
        if rows.numel() > 0:
            out[rows] = x[rows] @ weights[index]
    return out


@program(_routed)
def dropped_tokens(x, gate, weights):
    keep = gate[:, 0] > gate[:, 0].mean()
    out = x.clone()
    out[keep] = F.relu(x[keep]) * 2
    return out


# ---------------------------------------------------------------------------------------- counting


@program(_scores)
def shares_of_buckets(x):
    counts = torch.bincount(torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])))
    return counts.float() / counts.sum()


@program(_tokens)
def distinct(tokens):
    found, places, counts = torch.unique(tokens, return_inverse=True, return_counts=True)
    return found * counts, places


@program(_tokens)
def distinct_columns(tokens):
    found, places, counts = torch.unique(tokens, dim=1, return_inverse=True, return_counts=True)
    return found * counts, places, torch.unique(tokens.T, dim=0) + 1


@program(_tokens)
def sums_by_group(tokens):
    groups = tokens.flatten()
    count = int(groups.max()) + 1
    sums = torch.zeros(count).index_add_(0, groups, torch.ones(21))
    return sums / sums.clamp(min=1)


@program(_count)
def moved(x, n):
    k = n.item()
    return torch.roll(x, k, 0), F.pad(x, (0, k)), torch.cat([x[k:], x[:k]]), x[:1].expand(k, 6)


@program(_count)
def written_to_a_cache(x, n):
    place = int(n)
    cache = torch.zeros(12, 6)
    cache[place : place + 1] = x[:1]
    return cache[: place + 1]


@program(_count, breaks=True, entries=8)
def in_a_loop(x, n):
    for _ in range(n.item()):
        x = x.relu() + 1
    return x


@program(_count, breaks=True, entries=4)
def root_of_a_count(x, n):
    return x / math.sqrt(n.item())  # which may be negative, as far as anybody knows


def agree(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert type(found) is tuple and len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            agree(*pair)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True, check_stride=True)
    else:
        assert type(found) is type(expected) and found == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    one = PROGRAMS[name]
    compiled = windfall.compile(one.function)
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        given = one.given(draw)
        expected = one.function(*(each.clone() for each in given))
        found = compiled(*(each.clone() for each in given))
        agree(found, expected)
    entries = [each for found in compiled.entries().values() for each in found]
    stopped = [each.segment.capture.stopped for each in entries]
    assert any(each is not None for each in stopped) is one.breaks, stopped
    assert len(entries) <= one.entries
    assert not compiled.log.snapshot("fallback")
