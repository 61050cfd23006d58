"""Each field of every record, held against torch's schema or against what the op does.

`CHECKS` has one row for each field: it is asked of every record, and answers whether it is true.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.ops.agreement import check_shape, eager, flat, overload, tolerance, types_of
from windfall import torch_abi
from windfall.autograd import inverse
from windfall.autograd.handlers import PIECES
from windfall.ir.evaluate import Grid, Oracle, evaluate
from windfall.ir.loop import Index, Lazy, Scalar
from windfall.ops import schema
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


# ------------------------------------------------------------------------------- field by field

Fine = bool


def sampled(op: Op, check: Callable[..., bool]) -> bool:
    """Whether a check holds of all samples: `check(eager's first answer, *sample)`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.samples() if op.samples is not None else ()
        return all(check(flat(eager(op, *each))[0], *each) for each in samples)


def is_op(name: str | None) -> bool:
    return name is not None and schema.overload(name) is not None


def tags(op: Op) -> Any:
    return overload(op).tags


def arguments(op: Op) -> list[str]:
    return [one.name for one in overload(op)._schema.arguments]


def aliases(op: Op) -> bool:
    return any(one.view for one in schema.returns_of(overload(op)))


def of_first(result: torch.Tensor, given: Any, keywords: Any) -> bool:
    """Each element is one of the first argument's."""
    own, others = (one.nan_to_num().double().flatten() for one in (result, given[0]))
    return bool((own[:, None] == others).any(1).all())


def again(result: torch.Tensor, given: Any, keywords: Any) -> bool:
    """Of the first argument's type, the result is that argument."""
    return types_of(result) != types_of(given[0]) or torch.equal(
        result.nan_to_num(), given[0].nan_to_num()
    )


def filled(op: Op) -> Fine:
    def check(result: torch.Tensor, given: Any, keywords: Any) -> bool:
        value: Any = op.uniform
        if isinstance(value, str):
            value = schema.argument(overload(op), value, given, keywords)
        return bool((result == torch.tensor(value, dtype=result.dtype)).all())

    return op.uniform is None or (op.samples is not None and sampled(op, check))


def unit(op: Op) -> Fine:
    x = torch.tensor([2.5, -1.0])
    return all(
        torch.equal(overload(op)(*((1, x) if place == 0 else (x, 1))), x)
        for place in op.unit
        if place == 1 or "Scalar" not in op.name
    ) and set(op.unit) <= {0, 1}


def tensor_form(op: Op) -> Fine:
    if op.tensor_form is None:
        return True
    x = torch.tensor([2.5, -1.0])
    form = schema.overload(op.tensor_form)
    return torch.equal(overload(op)(x, 1.7), form(x, torch.tensor(1.7)))


def undone(op: Op) -> Fine:
    if op.inverse is None:
        return True
    return op.view and (op.inverse in inverse.RULES or is_op(op.inverse))


def scattered(op: Op) -> Fine:
    if op.scatter is None:
        return True
    rest = [one.name for one in schema.overload(op.scatter)._schema.arguments]
    return op.view and rest == ["self", "src", *arguments(op)[1:]]


def marks(op: Op) -> Fine:
    x = torch.tensor([1 + 2j, 3 - 1j])
    return not op.marks or torch.equal(
        overload(op)(x).resolve_conj().resolve_neg(), schema.overload(op.inverse or "")(x)
    )


def functional(op: Op) -> Fine:
    """The overload that answers what is written: no writes, the same arguments."""
    if op.functional is None:
        return True
    func = schema.overload(op.functional)
    written = schema.writes_of(overload(op))
    return (
        not func._schema.is_mutable
        and len(func._schema.returns) in (len(written), len(overload(op)._schema.returns) + 2)
        and [one.name for one in func._schema.arguments] == arguments(op)
    )


CHECKS: dict[str, Callable[[Op], Fine]] = {
    "name": lambda op: str(overload(op)) == op.name,
    "shape": lambda op: op.shape is None or takes(op.shape, overload(op)),
    "lower": lambda op: op.lower is None or (op.shape is not None and not op.random),
    "samples": lambda op: op.samples is None or op.shape is not None,
    "random": lambda op: not op.random or torch.Tag.nondeterministic_seeded in tags(op),
    "zero_or_one": lambda op: (
        not op.zero_or_one or sampled(op, lambda y, *_: bool(((y == 0) | (y == 1)).all()))
    ),
    "recompute": lambda op: not op.recompute or not op.random,
    "whole": lambda op: not op.whole or torch_abi.is_composite(overload(op)),
    "view": lambda op: op.view == aliases(op),
    "offset": lambda op: op.offset is None or op.shape is not None,
    "absolute_offset": lambda op: not op.absolute_offset or "storage_offset" in arguments(op),
    "mutates": lambda op: all(
        overload(op)._schema.arguments[place].alias_info is None for place in op.mutates
    ),
    "functional": functional,
    "moves": lambda op: not op.moves or sampled(op, of_first),
    "no_op": lambda op: not op.no_op or sampled(op, again),
    "alias": lambda op: not op.alias or sampled(op, lambda y, given, _: torch.equal(y, given[0])),
    "uniform": filled,
    # What is called is filled by eager itself.
    "blank": lambda op: op.blank == ("empty" in op.name and op.lower is not None),
    "unit": unit,
    "tensor_form": tensor_form,
    "inverse": undone,
    "scatter": scattered,
    "marks": marks,
    "piece": lambda op: op.piece is None or (op.view and op.piece in PIECES),
    "reads": lambda op: not op.reads or op.lower is not None,  # and the test above
    "refuses": lambda op: op.refuses or op.checks is None,  # and test_refusing.py
    "checks": lambda op: op.checks is None or op.lower is not None or has_twin(op),
    "own_error": lambda op: not op.own_error or (op.refuses and op.lower is None),
    "from_memory": lambda op: not op.from_memory or not op.recompute,
    "keeps": lambda op: not op.keeps or "linalg" in op.name,  # and tests/autograd/sweep_second.py
    "phases": lambda op: not op.phases or op.keeps,  # and tests/autograd/test_refused_data.py
    "rereads": lambda op: not op.rereads or (op.lower is not None and not op.view),
    "any_layout": lambda op: not op.any_layout or op.shape is not None,  # and the test above
    "by_layout": lambda op: all(
        place < len(overload(op)._schema.returns) for place in op.by_layout
    ),
    "pools": lambda op: not op.pools or op.any_layout,
}


def has_twin(op: Op) -> bool:
    """Whether another op writes the first argument instead of answering a changed copy."""
    packet, _, name = op.name.rpartition(".")
    twin = schema.overload(f"{packet}_.{name}")
    written = [] if twin is None else [place for place, _ in schema.writes_of(twin)]
    return written == [0] and [one.name for one in twin._schema.arguments] == arguments(op)


def takes(rule: Callable[..., Any], func: Any) -> bool:
    """Whether a rule has room for the arguments of the schema that stand in a fixed place."""
    parameters = inspect.signature(rule).parameters.values()
    kinds = [one.kind for one in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return True
    count = sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)
    return count >= sum(not one.kwarg_only for one in func._schema.arguments)


def test_each_field_has_a_check() -> None:
    assert list(CHECKS) == [one.name for one in dataclasses.fields(Op)]


@pytest.mark.parametrize("field", CHECKS)
@pytest.mark.filterwarnings("ignore")
def test_a_field_is_true_of_every_record(field: str) -> None:
    check = CHECKS[field]
    assert [op.name for op in all_ops() if not check(op)] == []


@pytest.mark.parametrize("field", CHECKS)
def test_a_field_is_said_by_somebody(field: str) -> None:
    (default,) = (one.default for one in dataclasses.fields(Op) if one.name == field)
    assert any(getattr(op, field) != default for op in all_ops())
