"""The swap matrix as a sweep: no pair differs. (`python -m tests.conformance.swap` tells more.)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

from tests.conformance.swap.kinds import KINDS
from tests.conformance.swap.operations import OPERATIONS, TWO_OPERANDS
from tests.conformance.swap.places import PLACES
from tests.conformance.swap.sweep import (
    Choice,
    Result,
    Sweep,
    alarms,
    sweep_operation,
    sweep_twins,
    sweep_two_operands,
)

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with alarms(), numpy.errstate(all="ignore"):
        yield


def _told(result: Result) -> str:
    first = [group[0] for group in result.groups().values()]
    return "\n".join([f"{len(result.failures)} differ", *map(str, first)])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_pair(name: str) -> None:
    result = Result()
    sweep_operation(Sweep(OPERATIONS[name], result), KINDS.values())
    assert not result.failures, _told(result)


@pytest.mark.parametrize("name", OPERATIONS)
def test_twins(name: str) -> None:
    result = Result()
    sweep_twins(Sweep(OPERATIONS[name], result))
    assert not result.failures, _told(result)


@pytest.mark.parametrize("name", OPERATIONS)
def test_between_tensor_operations(name: str) -> None:
    result = Result()
    sweep_operation(
        Sweep(OPERATIONS[name], result, between=True), KINDS.values(), Choice(0.1), sample=60
    )
    assert not result.failures, _told(result)


@pytest.mark.parametrize("place", [one for one in PLACES if one != "argument"])
@pytest.mark.parametrize("part", range(10))
def test_every_place(place: str, part: int) -> None:
    result = Result()
    for operation in list(OPERATIONS.values())[part::10]:
        sweep_operation(Sweep(operation, result, place), KINDS.values(), Choice(0.1), sample=25)
    assert not result.failures, _told(result)


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_two_operands(name: str) -> None:
    result = Result()
    sweep_two_operands(result, 1000, seed=0, names=[name])
    assert not result.failures, _told(result)
