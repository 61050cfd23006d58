"""Ops that are called: through torch's dispatcher, or as a step in Python; and errors."""

from __future__ import annotations

import importlib
import resource

import pytest
import torch

from tests.codegen.harness import Trace, agree, aten, compiled, kinds, run, stages
from windfall.codegen import build, emit, lower, plan, schedule
from windfall.ir.loop import Call, Kernel, PartCall

R = torch.randn


def test_convolution_is_a_native_call() -> None:
    t = Trace()
    x, w = t.input(R(2, 3, 8, 8)), t.input(R(4, 3, 3, 3))
    y = t(aten.convolution.default, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    program = agree(t, t(aten.relu.default, y), tolerance=1e-4)
    assert kinds(program) == ["native call", "generated"]
    assert program.native


def test_several_results_and_further_use() -> None:
    t = Trace()
    x = t.input(R(10, 33))
    pair = t(aten.topk.default, t(aten.add.Tensor, x, 1), 5, -1)
    program = agree(t, t(aten.mul.Tensor, t.item(pair, 0), 2), t.item(pair, 1))
    assert "python call" not in kinds(program)


def test_kinds_of_arguments() -> None:
    t = Trace()
    x = t.input(R(2, 3, 8, 8))
    agree(
        t,
        t(aten.cumsum.default, x, 1),  # tensor, integer, nothing
        t(aten.cumsum.default, x, 1, dtype=torch.float64),  # a dtype
        t(aten.avg_pool2d.default, x, [2, 2]),  # a list of integers, defaults
        t(aten.upsample_bilinear2d.vec, x, None, True, [2.0, 2.0]),  # floats, a bool
    )


def test_what_the_dispatcher_cannot_carry_is_called_from_python() -> None:
    t = Trace()
    x = t.input(R(6, 6))
    h = t(aten.histc.default, t(aten.exp.default, x), 10, 0, 4)  # numbers of unknown kind
    program = agree(t, t(aten.add.Tensor, h, 1))
    assert kinds(program) == ["generated", "python call", "generated"]
    assert not program.native


def test_without_native_calls_everything_is_still_right() -> None:
    t = Trace()
    expected = t.returns(t(aten.cumsum.default, t(aten.exp.default, t.input(R(4, 9))), 1))
    kernels = schedule(lower(t.graph, native=False))
    program = build(emit(kernels, plan(kernels)))
    assert kinds(program) == ["generated", "python call"]
    torch.testing.assert_close(run(program, t.inputs), expected)


def test_a_strange_layout_reaches_an_op_as_it_is() -> None:
    t = Trace()
    x = t.input(R(9, 6).t())
    agree(t, t(aten.cumsum.default, x, 0), t(aten.cumsum.default, t.input(R(20, 9)[3:15:2]), 1))


@pytest.mark.parametrize("bad", [10, -11])
def test_an_index_out_of_range_raises(bad: int) -> None:
    t = Trace()
    table, index = t.input(R(10, 33)), t.input(torch.randint(0, 10, (4, 7)))
    t.returns(t(aten.index.Tensor, table, [index]))
    _, _, program = stages(t.graph)
    broken = t.inputs[1].clone()
    broken[2, 3] = bad
    with pytest.raises(IndexError, match="out of range"):
        run(program, [t.inputs[0], broken])


def test_an_integer_division_by_zero_raises() -> None:
    t = Trace()
    x, y = t.input(torch.arange(37)), t.input(torch.arange(37) + 1)
    t.returns(t(aten.remainder.Tensor, x, y))
    _, _, program = stages(t.graph)
    zero = t.inputs[1].clone()
    zero[36] = 0
    with pytest.raises(RuntimeError):
        run(program, [t.inputs[0], zero])


def test_a_failing_op_raises() -> None:
    t = Trace()
    made = t(aten.linalg_cholesky_ex.default, t.input(torch.eye(3)), check_errors=True)
    t.returns(t.item(made, 0))
    _, _, program = stages(t.graph)
    assert kinds(program) == ["native call"]
    with pytest.raises(RuntimeError, match="cholesky"):
        run(program, [-torch.eye(3)])


def test_many_results_of_calls_are_freed() -> None:
    t = Trace()
    x = t.input(R(256, 256))
    y = t(aten.cumsum.default, x, 0)
    out = t(aten.mul.Tensor, t(aten.cumsum.default, y, 1), 2)
    program, _, _ = compiled(t, out)
    for _ in range(20):
        run(program, t.inputs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(400):
        run(program, t.inputs)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


def test_two_threads_agree_with_one() -> None:
    t = Trace()
    x = t.input(R(1000, 1031))
    y = t(aten._softmax.default, x, -1, False)
    outs = [y, t(aten.sum.dim_IntList, y, [0]), t(aten.sum.default, x), t(aten.exp.default, x)]
    torch.set_num_threads(2)
    agree(t, *outs, tolerance=1e-4)


def _many_calls(count: int) -> tuple[Trace, list[torch.Tensor]]:
    """Called ops whose results all stay until the last of them."""
    t = Trace()
    node = t.input(R(4, 9))
    made = []
    for _ in range(count):
        node = t(aten.cumsum.default, node, 1)
        made.append(node)
    total = made[0]
    for node in made[1:]:
        total = t(aten.cumsum.default, t(aten.add.Tensor, total, node), 0)
    return t, t.returns(total)


def test_emitting_looks_at_each_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planning = importlib.import_module("windfall.codegen.plan")
    seen: list[object] = []

    def counted(item: Kernel | Call | PartCall) -> set[str]:
        seen.append(item)
        return original(item)

    original = planning.touched
    for count in (5, 40):
        t, _ = _many_calls(count)
        kernels = schedule(lower(t.graph))
        memory = plan(kernels)
        with monkeypatch.context() as patch:
            patch.setattr(planning, "touched", counted)
            emit(kernels, memory)
        assert len(seen) == len(kernels.items), "last uses are found once for all items"
        seen.clear()


def test_results_of_many_calls_are_deleted_after_their_last_use() -> None:
    t, expected = _many_calls(12)
    kernels = schedule(lower(t.graph))
    module = emit(kernels, plan(kernels))
    program = build(module)
    torch.testing.assert_close(run(program, t.inputs), expected, rtol=1e-4, atol=1e-4)
    leaving = module.text.index("leave:")
    before = module.text[:leaving].count("@aoti_torch_delete_tensor_object(")
    after = module.text[leaving:].count("call i32 @aoti_torch_delete_tensor_object(")
    assert before >= after > 12, "once behind the last use, once more where an error leads"
