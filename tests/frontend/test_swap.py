"""A sample of the swap matrix: compiled for one kind of object, called with another, as eager.

The whole is `python -m tests.conformance.swap`. Here every operation meets some kinds (drawn by its
name, so that each run is the same), the operations that were once stale meet more of them, and some
stand at every place, between tensor operations, and with two operands.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy
import pytest

from tests.conformance.swap.describe import describe
from tests.conformance.swap.kinds import KINDS, REPRESENTATIVE, Kind
from tests.conformance.swap.operations import OPERATIONS, TWO_OPERANDS, Operation
from tests.conformance.swap.places import PLACES
from tests.conformance.swap.sweep import (
    Choice,
    Failure,
    Result,
    Sweep,
    alarms,
    kinds_named,
    sweep_operation,
    sweep_twins,
    sweep_two_operands,
)

pytestmark = pytest.mark.filterwarnings("ignore")

# One of each sort: with these, entries without a guard are found for any operation that looks.
TELLING = [
    "zero", "one", "two", "float_zero", "one_and_half", "text_x", "none", "list_empty", "list_one",
    "tuple_empty", "tuple_two", "dict_number", "set_two", "plain_int_zero", "with_bool_false",
    "with_len_zero", "attributes", "class_plain", "class_with_bool", "enum_falsy", "function",
    "module_python", "layer_list_empty", "tensor", "scalar_float_zero", "numpy_int_zero",
]  # fmt: skip
LOOKING = [
    "truth", "not_", "and_", "int_", "tuple_", "list_", "has_attribute", "got_attribute_default",
    "got_literal", "length", "called", "type_", "match_classes", "formatted", "hashed",
]  # fmt: skip
# Fewer, of which any two differ for most operations.
FEWER = [
    "zero", "one_and_half", "text_x", "list_empty", "tuple_empty", "dict_number",
    "with_bool_false", "attributes", "class_plain", "tensor",
]  # fmt: skip
PLACED = ["truth", "tuple_", "got_attribute_default", "tensor_times"]
FEW = Choice(close=0.2, far=0.02)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with alarms(), numpy.errstate(all="ignore"):
        yield


def _drawn(name: str, count: int) -> list[Kind]:
    return random.Random(name).sample(list(KINDS.values()), count)


def _named(names: list[str]) -> list[Kind]:
    return [KINDS[name] for name in names]


def _told(result: Result) -> str:
    first = [group[0] for group in result.groups().values()]
    return "\n".join([f"{len(result.failures)} differ", *map(str, first)])


@pytest.mark.parametrize("part", range(20))
def test_every_operation_with_some_kinds(part: int) -> None:
    result = Result()
    for operation in list(OPERATIONS.values())[part::20]:
        sweep_operation(Sweep(operation, result), _drawn(operation.name, 7), FEW)
    assert sum(result.compared.values()) > 300
    assert not result.failures, _told(result)


@pytest.mark.parametrize("name", LOOKING)
def test_operations_that_look(name: str) -> None:
    result = Result()
    sweep_operation(Sweep(OPERATIONS[name], result), _named(TELLING), FEW)
    assert not result.failures, _told(result)


@pytest.mark.parametrize("place", PLACES)
def test_every_place(place: str) -> None:
    result = Result()
    for name in PLACED:
        sweep_operation(Sweep(OPERATIONS[name], result, place), _named(FEWER), FEW)
    assert not result.failures, _told(result)


@pytest.mark.parametrize("name", ["truth", "length", "int_", "got_attribute_default", "tuple_"])
def test_between_tensor_operations(name: str) -> None:
    result = Result()
    sweep_operation(Sweep(OPERATIONS[name], result, between=True), _named(FEWER), FEW)
    assert not result.failures, _told(result)


def test_two_operands() -> None:
    result = Result()
    sweep_two_operands(result, 300, seed=1)
    assert not result.failures, _told(result)


@pytest.mark.parametrize(
    "name", ["instance_of", "equals_itself", "attribute", "iterated", "called", "formatted_repr"]
)
def test_twins(name: str) -> None:
    """Objects of exactly one type, which a guard on the type does not tell apart."""
    result = Result()
    sweep_twins(Sweep(OPERATIONS[name], result), Choice(close=0.02))
    assert sum(result.compared.values()) > 300
    assert not result.failures, _told(result)


# ------------------------------------------------------------------------------- the sweep itself


def test_the_representative_kinds_are_of_every_family() -> None:
    assert len(set(REPRESENTATIVE)) == len(REPRESENTATIVE) >= 110
    assert {KINDS[name].family for name in REPRESENTATIVE} == {one.family for one in KINDS.values()}
    assert [one.name for one in kinds_named(["representative"])] == [
        name for name in KINDS if name in REPRESENTATIVE
    ]


def test_each_type_that_has_content_has_a_twin() -> None:
    """But for singletons, and objects that stand for a special method of their class."""
    counts = Counter(type(one.make()) for one in KINDS.values())
    alone = [
        one.name
        for one in KINDS.values()
        if counts[type(one.make())] == 1 and one.family not in ("object", "class", "singleton")
    ]
    assert set(alone) == {
        "enum_falsy", "enum_str", "flag_int", "named_tuple_typed", "iterator_own", "layer",
        "numpy_dtype",
    }  # fmt: skip


def test_the_matrix_is_wide() -> None:
    assert len(OPERATIONS) >= 300 and len(TWO_OPERANDS) >= 50 and len(KINDS) >= 300


def test_kinds_are_described_alike_and_apart() -> None:
    for kind in KINDS.values():
        assert describe(kind.make()) == describe(kind.make()), kind.name
    told = {name: str(describe(KINDS[name].make())) for name in TELLING}
    assert len(set(told.values())) == len(TELLING)
    assert describe(0.0) != describe(-0.0) and describe(True) != describe(1)
    nan = KINDS["nan"].make()
    assert describe([nan]) == describe([float("nan")])


def test_what_can_no_longer_be_read_is_described() -> None:
    view = memoryview(b"ab")
    view.release()
    assert describe(view) != describe(memoryview(b"ab"))


@pytest.mark.parametrize("between", [False, True])
def test_an_address_in_an_answer_is_the_operands(between: bool) -> None:
    """Else two runs of eager agree by chance, where memory is used again."""
    sweep = Sweep(OPERATIONS["hashed"], Result(), between=between)
    found = sweep.eager((KINDS["plain_object"],))
    assert found is not None and found[0][0] == "hash of the operand"


class Stale:
    """Stands for a compiled function without guards: it answers what the first call answered."""

    def __init__(self, function: object) -> None:
        self.function = function
        self.answers: list[object] = []
        self._points: dict[str, object] = {}

    def __call__(self, operand: object) -> object:
        if not self.answers:
            self.answers.append(self.function(operand))  # type: ignore[operator]
        return self.answers[0]

    def entries(self) -> dict[str, tuple[object, ...]]:
        return {}


def test_a_stale_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweep, "compile", lambda self: Stale(self.program.function))
    result = Result()
    sweep = Sweep(Operation("type", "r = type(a)"), result)
    assert sweep.true_protocol(((KINDS["one"],), (KINDS["two"],)))
    assert not sweep.true_protocol(((KINDS["one"],), (KINDS["true"],)))
    assert not sweep.true_protocol(((KINDS["list_one"],), (KINDS["plain_list"],)))
    assert all(isinstance(one, Failure) and one.stale for one in result.failures)
    assert len(result.failures) == 2
