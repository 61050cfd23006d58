"""Records go to plain data and back; what cannot says why. `tests/roundtrip` sends all of them."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
import types
from typing import Any

import pytest
import torch

from tests.ir.records import records
from windfall import runtime, torch_abi
from windfall.ir import codec, dtype, guard, loop, node, source, stages
from windfall.ir.checks import objects
from windfall.ir.codec import Document, Unstorable, decode, dumps, encode, loads
from windfall.ir.stages import Entry
from windfall.ir.symint import maximum, size_symbol


def round_trip(value: Any, live: dict[str, Any] | None = None) -> Any:
    """What comes back; its own document is the same."""
    document = encode(value, live or {})
    data = dumps(document)
    assert loads(data) == document
    back = decode(loads(data), live or {})
    assert encode(back, live or {}) == document
    return back


@pytest.mark.parametrize("module", [stages, loop, node, dtype, source, guard])
def test_every_record_has_a_kind(module: Any) -> None:
    found = [one for one in vars(module).values() if isinstance(one, type)]
    assert [one for one in found if dataclasses.is_dataclass(one) and one not in codec.KINDS] == []


# From torch 2.15 on it is a descriptor of C, which no record names: what holds it is not stored.
APPLY = [
    one
    for one in (torch_abi.FUNCTION_APPLY, vars(torch.autograd.Function)["apply"])
    if isinstance(one, types.FunctionType | staticmethod | classmethod)
]


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1, -(2**80), "text", b"bytes", 0.1, -0.0, math.inf, 1 + 2j,
        (1, (2.5, "a")), [1, [2]], {"a": (1,), 2: None}, {1, 2}, frozenset({"x"}),
        slice(1, None, 2), range(3, 9, 2), Ellipsis, torch.float16, torch.strided,
        torch.channels_last, torch.device("cpu"), torch.Size([2, 3]), torch.ops.aten.add.Tensor,
        torch.relu, torch.nn.functional.gelu, torch.nn.functional.max_pool2d, torch.Tensor.add,
        torch.nn.Linear, torch, len, type(len), type(iter(range(0))), records,
        object.__new__, torch.ops.aten.add, *APPLY, vars(torch.autograd.Function)["vmap"],
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)  # fmt: skip
def test_values_that_stand_in_records(value: Any) -> None:
    back = round_trip(value)
    assert type(back) is type(value)
    assert back == value
    assert str(back) == str(value)  # -0.0


def test_nan_and_true_are_not_confused_with_others() -> None:
    assert math.isnan(round_trip(math.nan))
    back = round_trip((1, True, 1.0, "1", b"1", (1,), [1]))
    assert [type(one) for one in back] == [int, bool, float, str, bytes, tuple, list]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.zeros(0, 3),
        torch.tensor(2),
        torch.tensor([1 + 1j]).conj(),
        torch.ones(3, dtype=torch.bfloat16).expand(2, 3),
        torch.tensor([True, False]),
        torch.arange(12.0).as_strided((2, 3), (6, 2)),
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2, 2).t(), requires_grad=False),
    ],
    ids=lambda one: f"{one.dtype}{tuple(one.shape)}",
)
def test_constants_keep_type_strides_and_elements(tensor: torch.Tensor) -> None:
    back = round_trip(tensor)
    assert type(back) is type(tensor) and back.requires_grad == tensor.requires_grad
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert torch.equal(back, tensor)


def test_a_tensor_that_overlaps_itself_is_refused_before_it_is_stored() -> None:
    with pytest.raises(Unstorable, match="share memory"):
        encode((torch.arange(6.0).as_strided((3, 3), (1, 1)),))


def test_sizes_are_the_same_objects() -> None:
    s, t = size_symbol("s0", 5), size_symbol("s1", 7)
    for size in (s, s * 4 + 1, s * t - t, (s * 3 + t) // 4, maximum(s, t), (s + 1) % 8):
        assert round_trip(size) is size


def test_what_is_shared_stays_shared_and_is_written_once() -> None:
    type_ = dtype.TensorType.contiguous(torch.float32, (2, 3))
    first, second = round_trip((type_, type_))
    assert first is second
    equal = dtype.TensorType.contiguous(torch.float32, (2, 3))
    assert encode((type_, equal)) == encode((type_, type_))


def test_a_deep_record_needs_no_recursion() -> None:
    table = loop.Scalars()
    value = table.load("x", 0, torch.float32)
    for _ in range(5000):
        value = table.apply("neg", value)
    document = encode(value)
    assert encode(decode(document)) == document


def test_an_object_of_which_identity_counts_is_never_stored_by_content() -> None:
    """An equal list would be another list: the guard would never hold, or a write would be lost."""
    for live in ([1], {"a": 1}, {1}, (1, 2), torch.ones(2), object(), lambda: 1):
        with pytest.raises(Unstorable) as caught:
            encode((objects.IdentityIs(live),))
        assert caught.value.path.startswith("record[0].value")
        with pytest.raises(Unstorable):
            encode(source.Known(live, "G"))
        with pytest.raises(Unstorable):
            encode(objects.MroLookupIs("name", live))
        with pytest.raises(Unstorable):
            encode(objects.ClassAttributesAre(("name",), (live,)))


def test_the_caller_names_its_own_objects() -> None:
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    document = encode(source.Known(first, "self"), {"model": first})
    assert decode(document, {"model": second}).value is second
    assert decode(document, {"model": second}) != source.Known(first, "self")


def test_globals_of_a_module_stand_by_its_name() -> None:
    assert round_trip(source.Known(globals(), "G")).value is globals()
    with pytest.raises(Unstorable, match="no module's globals"):
        encode(source.Known(dict(globals()), "G"))


def test_a_large_document_is_written_a_few_nodes_at_a_time() -> None:
    """All of it at once took seventeen times its size, which compiling left behind as holes."""
    for count in (0, 1, 256, 257, 4000):
        nodes = tuple(
            ("kind", n, (max(n - 1, 0),), "é'" * (n % 3), b"x" * (n % 5)) for n in range(count)
        )
        document = Document(nodes, (count - 1,) if count else None)
        assert loads(dumps(document)) == document
    tracemalloc.start()
    try:
        size = len(dumps(document))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * size, (peak, size)


def test_what_a_tensor_can_do_stands_by_its_name() -> None:
    """Also where it is called after what it wraps: `Tensor.__pow__` says `TensorBase.pow`."""
    methods = [one for one in vars(torch.Tensor).values() if isinstance(one, types.FunctionType)]
    assert torch.Tensor.__pow__ in methods and len(methods) > 50
    for one in methods:
        assert round_trip(objects.IdentityIs(one)).value is one


def test_what_has_no_name_says_why() -> None:
    def local() -> None: ...

    entry = Entry(local, None, native=False)  # type: ignore[arg-type]
    with pytest.raises(Unstorable, match=r"record\.call: .*local is made inside of a function"):
        encode(entry)
    with pytest.raises(Unstorable, match="is machine code of this process"):
        encode(runtime.dispatcher())
    with pytest.raises(Unstorable, match="part of itself"):
        loopy: list[Any] = []
        loopy.append(loopy)
        encode(loopy)


@pytest.mark.parametrize("cut", [0, 5, 40, -1])
def test_broken_data_are_refused(cut: int) -> None:
    data = dumps(encode((torch.arange(10), "text")))
    with pytest.raises(ValueError, match=r"early|behind|Expecting|Unterminated|delimiter"):
        loads(data[:cut])
    with pytest.raises(ValueError, match="behind"):
        loads(data + b"x")
    with pytest.raises(ValueError, match="version 0"):
        loads(dumps(Document((), None)).replace(b"[1,", b"[0,"))
