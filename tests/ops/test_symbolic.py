"""Sizes that vary: as torch sees them, in fake tensors, and how rules are kept honest."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.relation import Assumptions
from windfall.ir.symint import hint_of, size_symbol
from windfall.ops import registry
from windfall.ops.fake import FakeMode, fake, infer, is_fake, offset_of, type_of
from windfall.ops.layout import is_contiguous, pointwise_layout, remembered, smaller
from windfall.ops.shape_rule_check import generalised, tried
from windfall.ops.symbolic import as_torch, from_torch, settled

S = size_symbol("s0", 8)
T = size_symbol("s1", 6)
aten = torch.ops.aten


def relations(assumed: Assumptions) -> list[str]:
    return [str(one) for one in assumed.relations]


def f32(*sizes: Any) -> TensorType:
    return TensorType.contiguous(torch.float32, sizes)


# ----------------------------------------------------------------------------------- torch's side


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda s: s + 1, "s0 + 1"),
        (lambda s: 1 - s, "-s0 + 1"),
        (lambda s: 3 * s * s, "3*s0*s0"),
        (lambda s: s // 2, "(s0//2)"),
        (lambda s: (2 * s) // 2, "s0"),
        (lambda s: s % 4, "(s0%4)"),
        (lambda s: -s, "-s0"),
        (lambda s: s**2, "s0*s0"),
        (lambda s: torch.sym_max(s, 4), "max(4, s0)"),
        (lambda s: torch.sym_min(4, s), "min(4, s0)"),
        (lambda s: torch.sym_sum([s, 1, s]), "2*s0 + 1"),
        (lambda s: s - s, "0"),
    ],
)
def test_arithmetic_of_torch_is_ours(compute: Any, text: str) -> None:
    assert str(from_torch(compute(as_torch(S)))) == text


def test_what_ranges_tell_is_not_assumed() -> None:
    with Assumptions() as assumed:
        s = as_torch(S)
        assert s != 0 and s != 1 and s >= 2 and s * 2 > s and s != s + 1
        assert s * as_torch(T) > as_torch(T), "s0*s1 - s1 is positive"
    assert relations(assumed) == []


def test_what_ranges_do_not_tell_is_assumed_and_then_known() -> None:
    with Assumptions() as assumed:
        s = as_torch(S)
        assert s > 4 and s < 100 and s != 7
        assert s > 3 and s >= 5 and s != 4 and 2 * s > 8
    assert relations(assumed) == ["s0 > 4", "s0 < 100", "s0 != 7"]


def test_nothing_is_assumed_where_that_is_closed() -> None:
    with Assumptions() as assumed:
        assert as_torch(S) > 4
    with Assumptions(assumed.relations, closed=True):
        assert as_torch(S) >= 5
        with pytest.raises(Specialise):
            bool(as_torch(S) > 5)
    with pytest.raises(Specialise):
        bool(as_torch(S) > 4)


@pytest.mark.parametrize("needing", [int, range, float, lambda s: float(s / 2), lambda s: [0] * s])
def test_whoever_needs_the_value_specialises(needing: Any) -> None:
    with Assumptions(), pytest.raises(Specialise) as found:
        needing(as_torch(S))
    assert found.value.names == {"s0"}


def test_kernels_that_want_integers_specialise() -> None:
    with Assumptions(), FakeMode(), pytest.raises(Specialise) as found:
        torch.nn.functional.interpolate(fake(f32(S, 3, 4, 4)), scale_factor=2)
    assert found.value.names == {"s0"}


# ------------------------------------------------------------------------------------ fake tensors


def test_a_fake_with_sizes_that_vary() -> None:
    x = fake(f32(S, T, 4), offset=S * 2)
    assert [from_torch(one) for one in x.shape] == [S, T, 4]
    assert [from_torch(one) for one in x.stride()] == [T * 4, 4, 1]
    assert from_torch(x.numel()) is S * T * 4
    assert from_torch(x.storage_offset()) is offset_of(x) is S * 2
    assert type_of(x) == f32(S, T, 4)
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous()


def test_observers_see_expressions() -> None:
    seen: list[Any] = []
    with FakeMode(lambda func, args, kwargs, result: seen.append((str(func), args[1:]))):
        x = fake(f32(S, T))
        n = as_torch(S)
        x.view(n * as_torch(T))
        torch.zeros(n, 2)
        y = x * n
    assert seen[0] == ("aten.view.default", ([S * T],))
    assert type_of(y) == f32(S, T)
    assert not any("SymInt" in str(type(one)) for _, args in seen for one in args)


def test_composite_operators_run_on_sizes_that_vary() -> None:
    with Assumptions() as assumed, FakeMode():
        x, w = fake(f32(S, T, 4)), fake(f32(5, 4))
        y = torch.nn.functional.linear(x, w).softmax(-1).flatten(0, 1)
    assert is_fake(y)
    assert type_of(y) == f32(S * T, 5)
    assert relations(assumed) == []


def test_sizes_of_zero_and_one_are_settled() -> None:
    with Assumptions() as assumed:
        assert settled(S) is S
        assert settled(S - 3) is S - 3
        assert settled(S // 8) == 1, "several sizes have this"
        with pytest.raises(Specialise):
            settled(S - 7)  # only one size has this
    assert relations(assumed) == ["s0 - 3 >= 2", "(s0//8) < 2", "(s0//8) == 1", "s0 - 7 < 2"]


@pytest.mark.parametrize(
    ("name", "arguments", "sizes", "assumed"),
    [
        ("aten.slice.Tensor", (f32(S, 4), 0, 2, 2**63 - 1), (S - 2, 4), ["s0 - 2 >= 2"]),
        ("aten.slice.Tensor", (f32(S, 4), 0, -3, 2**63 - 1), (3, 4), ["s0 - 3 >= 0"]),
        ("aten.slice.Tensor", (f32(S, 4), 0, 0, T), (T, 4), ["s0 >= s1"]),
        ("aten.slice.Tensor", (f32(S, 4), 0, 0, 20), (S, 4), ["s0 < 20"]),
        ("aten.select.int", (f32(S, 4), 0, -1), (4,), []),
        ("aten.view.default", (f32(S, 4), [-1, 2]), (S * 2, 2), []),
        ("aten.view.default", (f32(S, 4), [-1, 8]), (S // 2, 8),
         ["8*(s0//2) == 4*s0", "(s0//2) >= 2"]),
        ("aten.expand.default", (f32(S, 1), [-1, T]), (S, T), []),
        ("aten.diagonal.default", (f32(S, S),), (S,), []),
        ("aten.unfold.default", (f32(S, 4), 0, 3, 2), ((S - 3) // 2 + 1, 4, 3),
         ["s0 >= 3", "((s0 + 1)//2) - 1 >= 2"]),
        ("aten.cat.default", ([f32(S, 4), f32(T, 4)],), (S + T, 4), []),
        ("aten.mm.default", (f32(S, T), f32(T, 3)), (S, 3), []),
        ("aten.bmm.default", (f32(S, 3, T), f32(S, T, 2)), (S, 3, 2), []),
        ("aten.arange.start_step", (0, S * 2, 2), (S,), []),
        ("aten.constant_pad_nd.default", (f32(S, 4), [1, 1, 0, T]), (S + T, 6), []),
        ("aten.repeat.default", (f32(S, 4), [2, T]), (2 * S, 4 * T), []),
        ("aten.embedding.default", (f32(9, 4), TensorType.contiguous(torch.int64, (S, T))),
         (S, T, 4), []),
    ],
)  # fmt: skip
def test_rules(name: str, arguments: Any, sizes: Any, assumed: Any) -> None:
    namespace, packet, overload = name.split(".")
    func = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    with Assumptions() as found:
        answer = infer(func, arguments)
    assert answer.sizes == sizes
    for relation in found.relations:
        assert relation.holds({"s0": 8, "s1": 6})
    assert relations(found) == assumed


def test_convolution_sizes() -> None:
    with Assumptions():
        answer = infer(
            aten.convolution.default,
            (f32(S, 3, T, 10), f32(4, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
        )
    assert [hint_of(one) for one in answer.sizes] == [8, 4, 3, 5]
    assert answer.sizes[0] is S and answer.sizes[2] is (T - 1) // 2 + 1


# --------------------------------------------------------------------------- rules are kept honest


def test_an_answer_that_holds_only_now_is_refused() -> None:
    def baked(x: TensorType) -> TensorType:
        return f32(hint_of(x.sizes[0]), x.sizes[1])

    with pytest.raises(Specialise):
        tried("baked", baked, (f32(S, 4),), {})


def test_a_rule_that_cannot_order_sizes_is_refused() -> None:
    def ordering(x: TensorType) -> TensorType:
        return f32(max(x.sizes[0], 3))

    with pytest.raises(Specialise):
        tried("ordering", ordering, (f32(S, 4),), {})


def test_arguments_that_do_not_fit_raise_what_eager_raises() -> None:
    with Assumptions(), pytest.raises(RuntimeError, match=r"tensor a \(8\) must match"):
        infer(aten.add.Tensor, (f32(S, 4), f32(5, 4)))


def test_a_rule_is_tried_at_sizes_that_fit_what_is_assumed() -> None:
    with Assumptions() as assumed:
        answer = infer(aten.add.Tensor, (f32(S, 4), f32(T + 2, 4)))
        again = infer(aten.mm.default, (f32(4, S), f32(T + 2, 5)))
    assert answer.sizes[0] in (S, T + 2) and again.sizes == (4, 5)
    assert relations(assumed) == ["s0 == s1 + 2"]


def test_an_op_without_a_rule_is_asked_at_several_sizes() -> None:
    record = registry.lookup("aten.renorm.default")
    assert record.shape is None, "this test wants an op without a rule"
    assert infer(aten.renorm.default, (f32(S, T), 2, 0, 1.0)) == f32(S, T)


def test_examples_tell_symbols_apart() -> None:
    twin = size_symbol("twin", 8)

    def ask(values: Any) -> Any:
        return f32(values["twin"], values["s0"] * 3)

    found = generalised("ask", ask, (S * twin).symbols, [f32(S, twin)])  # type: ignore[union-attr]
    assert found == f32(twin, S * 3)
    with pytest.raises(Specialise):
        generalised("odd", lambda values: f32(values["s0"] % 3), S.symbols, [f32(S)])


def test_what_rests_on_an_assumption_is_not_remembered() -> None:
    calls = []

    @remembered
    def rule(size: Any) -> bool:
        calls.append(size)
        return smaller(4, size)

    for _ in range(2):
        with Assumptions() as assumed:
            assert rule(S)
        assert relations(assumed) == ["4 < s0"]
        assert rule(7)
    assert calls == [S, 7, S]


def test_every_program_assumes_for_itself() -> None:
    for _ in range(2):
        with Assumptions() as assumed:
            pointwise_layout((((S, 4), (4, 1)), ((8, 4), (4, 1))))
            assert not is_contiguous((S, 3), (5 * T, 1))
            infer(aten.add.Tensor, (f32(S, 4), f32(8, 4)))
        assert relations(assumed)[0] in ("s0 == 8", "8 == s0")
