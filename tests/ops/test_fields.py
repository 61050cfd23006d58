"""Each field of every record, held against torch's schema or against what the op does."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.ops.agreement import check_shape, eager, flat, tolerance
from windfall.ir.evaluate import Grid, Oracle, evaluate
from windfall.ir.loop import Index, Lazy, Scalar
from windfall.ops.registry import Op, all_ops

LOWERED = [op for op in all_ops() if op.lower is not None and op.samples is not None]


# ------------------------------------------------------------------------------------------ reads


class Watching(Oracle):
    """The oracle, noting which elements of each operand are read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, torch.Tensor]] = []  # by position of the operand

    def watched(self, value: Any, position: int) -> Any:
        """`value` with operands that are watched in place of tensors."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.watched(each, position) for each in value)
        if not isinstance(value, torch.Tensor):
            return value
        inner, seen = self.wrap(value), torch.zeros(value.shape, dtype=torch.bool)
        self.seen.append((position, seen))

        def at(index: Index) -> Scalar:
            grids = [each.values if isinstance(each, Grid) else each for each in index]
            places = torch.broadcast_tensors(*map(torch.as_tensor, grids), *self._masks)
            read = functools.reduce(torch.logical_and, places[len(grids) :], torch.tensor(True))
            if grids and value.numel():
                wanted = [place[read.expand(place.shape)] for place in places[: len(grids)]]
                seen[tuple(wanted)] = True
            elif value.numel():
                seen.fill_(True)
            return inner.at(index)

        return Lazy(inner.type, at)


def read_in_part(op: Op, arguments: Any, keywords: Any) -> Iterator[int]:
    """Positions of operands of which some result alone does not read all."""
    assert op.lower is not None
    oracle = Watching()
    given = [oracle.watched(one, position) for position, one in enumerate(arguments)]
    named = {name: oracle.watched(one, -1) for name, one in keywords.items()}
    made = op.lower(oracle, *given, **named)
    before = [seen.clone() for _, seen in oracle.seen]  # by entries, which are called whole
    for one in flat(made) if made is not NotImplemented else ():
        if isinstance(one, Lazy) and one.type.elements:
            for (_, seen), start in zip(oracle.seen, before, strict=True):
                seen.copy_(start)
            oracle.value(one)
            yield from (position for position, seen in oracle.seen if not seen.all())


@pytest.mark.parametrize("op", LOWERED, ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore")
def test_what_is_said_to_be_read_is_read_by_each_result(op: Op) -> None:
    assert op.samples is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for arguments, keywords in op.samples():
            assert not {one for one in read_in_part(op, arguments, keywords) if one in op.reads}


# ----------------------------------------------------------------------------------------- layout


def relaid(value: Any) -> Any:
    """The same elements, in images channels-last, in other tensors with the first dimension
    innermost."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(relaid, value))
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return value
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if value.dim() in formats:
        return value.contiguous(memory_format=formats[value.dim()])
    turned = value.permute(*reversed(range(value.dim()))).contiguous()
    return turned.permute(*reversed(range(value.dim())))


def answers(op: Op, arguments: Any, keywords: Any) -> list[Any]:
    """What an op answers, by its lowering if it has one (nothing, if that is not for these)."""
    if op.lower is None:
        return flat(eager(op, arguments, keywords))
    made = evaluate(op.lower, *arguments, **keywords)
    return [] if made is NotImplemented else flat(made)


@pytest.mark.parametrize(
    "op", [op for op in all_ops() if op.any_layout and op.samples], ids=lambda op: op.name
)
@pytest.mark.filterwarnings("ignore")
def test_elements_are_the_same_in_any_layout(op: Op) -> None:
    assert op.samples is not None and op.shape is not None
    for arguments, keywords in op.samples():
        others = relaid(arguments)
        wrong = check_shape(op, others, keywords, eager(op, others, keywords))
        assert wrong is None or op.by_layout, wrong
        pairs = zip(answers(op, arguments, keywords), answers(op, others, keywords), strict=False)
        for place, (one, other) in enumerate(pairs):
            if isinstance(one, torch.Tensor) and place not in op.by_layout:
                rates = tolerance(arguments, one)
                torch.testing.assert_close(other, one, rtol=rates[0], atol=rates[1], equal_nan=True)
