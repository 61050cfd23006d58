"""`mode="reduce-overhead"` on the CPU: rows and hard tests, each with how it ran.

`minimum_bytes=0` records even what would not pay; one test says what the default leaves alone.
"""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import windfall
from windfall.errors import UserError
from windfall.events import EventKind
from windfall.options import TreeOptions
from windfall.runtime.trees import CPU_TREES, Skip, TreeManager

Tensor = torch.Tensor
ALL = TreeOptions(minimum_bytes=0)


@pytest.fixture(autouse=True)
def fresh_trees() -> Iterator[None]:
    windfall.reset()
    torch.manual_seed(0)
    yield
    windfall.reset()


def compiled(function: Any, trees: TreeOptions = ALL, **more: Any) -> Any:
    options = {"trees": trees, "strict": True}
    return windfall.compile(function, mode="reduce-overhead", options=options, **more)


def tree() -> TreeManager:
    """This thread's."""
    manager = CPU_TREES.here(ALL)
    manager.check()
    return manager


def counted() -> dict[str, tuple[int, int]]:
    """Of each region: recordings, and replays in all."""
    found: dict[str, tuple[int, int]] = {}
    for node in tree().root.below():
        assert node.region is not None
        recorded, replays = found.get(node.region.name, (0, 0))
        found[node.region.name] = recorded + 1, replays + node.replays
    return found


def in_arena(tensor: Tensor) -> bool:
    pool = tree().pool
    return bool(pool.base <= tensor.data_ptr() < pool.base + pool.room)


def broken(x: Tensor, w: Tensor) -> Tensor:
    """Three regions, with tensors that cross two breaks."""
    h = torch.relu(x @ w) + 1
    windfall.graph_break()
    h = torch.tanh(h @ w) * 2
    windfall.graph_break()
    return (h - h.mean(-1, keepdim=True)).sum(-1)


def agree(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------- inference


def test_regions_of_a_call_chain_along_a_path() -> None:
    """Rows 1 and 2: recorded at once (a plan needs no warm-up), then replayed."""
    f = compiled(broken)
    w = torch.randn(16, 16)
    for _ in range(5):
        x = torch.randn(8, 16)
        agree(f(x, w), broken(x, w))
    manager = tree()
    assert [one.depth for one in manager.root.below()] == [1, 2]
    assert [one.replays for one in manager.root.below()] == [4, 4]
    assert manager.live == [] and manager.bytes > 0


def test_the_default_leaves_small_regions_alone() -> None:
    f = compiled(broken, TreeOptions())
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    agree(f(x, w), broken(x, w))
    told = windfall.explanation(f)
    assert any(Skip.SMALL.reason in one for one in told.trees)
    assert any("objects of 1 of its results serve again" in one for one in told.trees)
    assert counted() == {}


def test_large_regions_are_recorded_by_default() -> None:
    f = compiled(broken, TreeOptions())
    w = torch.randn(64, 64)
    for _ in range(3):
        x = torch.randn(8192, 64)  # two megabytes
        torch.testing.assert_close(f(x, w), broken(x, w), rtol=1e-3, atol=1e-3)
    assert sum(replays for _, replays in counted().values()) == 4


def test_results_for_the_user_are_fresh() -> None:
    """Row 13: replay after replay, all results held (hard test 1)."""
    f = compiled(broken)
    w = torch.randn(16, 16)
    inputs = [torch.randn(8, 16) for _ in range(6)]
    held = [f(x, w) for x in inputs]
    assert not any(map(in_arena, held))
    for x, y in zip(inputs, held, strict=True):
        agree(y, broken(x, w))
    assert len({one.data_ptr() for one in held}) == 6


HOLDERS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any]]] = {
    "itself": (lambda t: t, lambda h: h),
    "view": (lambda t: t[1:], lambda h: h),
    "detach": (lambda t: t.detach(), lambda h: h),
    "transposed": (lambda t: t.T, lambda h: h),
    "numpy": (lambda t: t.numpy(), lambda h: torch.from_numpy(h)),
    "dlpack": (lambda t: torch.from_dlpack(t), lambda h: h),
    "memoryview": (lambda t: memoryview(t.numpy()), lambda h: torch.from_numpy(numpy.array(h))),
    "storage": (lambda t: t.untyped_storage(), lambda h: torch.tensor([]).set_(h)),
    "list in a cycle": (lambda t: (lambda c: (c.append(c), c)[1])([t]), lambda h: h[0]),
    "parameter": (lambda t: torch.nn.Parameter(t), lambda h: h.data),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_pooled_result_that_is_held_is_never_overwritten(holder: str) -> None:
    """Hard tests 2, 3, 16, 29: who holds what crosses a break, in any way, over generations."""
    hold, seen = HOLDERS[holder]
    held: list[Any] = []

    @windfall.disable
    def keep(t: Tensor) -> None:
        held.append((hold(t), seen(hold(t)).clone()))

    def program(x: Tensor) -> Tensor:
        h = x * 3 + 1
        keep(h)
        return h.sum(-1)

    f = compiled(program)
    for turn in range(12):
        x = torch.randn(4, 8)
        agree(f(x), (x * 3 + 1).sum(-1))
        if turn % 3 == 2:
            held.pop(0)  # its place may be used again
        if turn == 6:
            windfall.mark_step_begin()
        for one, value in held:
            assert torch.equal(seen(one), value), (turn, holder)
    f(torch.randn(4, 8))
    del one, value
    held.clear()
    gc.collect()
    assert tree()._alive() == []


def test_held_then_released_uses_the_first_recording_again() -> None:
    """Row 8."""
    held: list[Tensor] = []

    @windfall.disable
    def keep(t: Tensor) -> None:
        held.append(t)

    def program(x: Tensor) -> Tensor:
        h = x + 1
        keep(h)
        return h * 2

    f = compiled(program)
    f(torch.ones(4))
    f(torch.ones(4))
    assert tree().nodes == 2, "the second one goes around what is held"
    held.clear()
    bytes = tree().bytes
    for _ in range(10):
        f(torch.ones(4))
        held.clear()
    assert tree().nodes == 2 and tree().bytes == bytes


def test_strict_raises_with_the_line_and_a_remedy() -> None:
    held: list[Tensor] = []

    @windfall.disable
    def keep(t: Tensor, clone: bool) -> None:
        held.append(t.clone() if clone else t)

    def program(x: Tensor, clone: bool) -> Tensor:
        h = x + 1
        keep(h, clone)
        return h * 2

    f = compiled(program, TreeOptions(minimum_bytes=0, strict=True))
    for _ in range(3):
        f(torch.ones(4), True)  # the remedy
    f(torch.ones(4), False)
    with pytest.raises(
        UserError, match=r"a result of \S*program .*test_cpu\.py:\d+.*windfall.disable"
    ):
        f(torch.ones(4), False)
    assert torch.equal(held[-1], torch.full((4,), 2.0))
    held.clear()
    assert torch.equal(f(torch.ones(4), True), torch.full((4,), 4.0))


def test_what_crosses_a_break_behaves_as_any_tensor() -> None:
    """It grows, is shared, copied, pickled, resized; its version, storage and flags are eager's."""
    seen: list[Any] = []

    @windfall.disable
    def look(t: Tensor) -> None:
        assert in_arena(t)
        seen.append(
            (t._version, t._is_view(), t.is_leaf, t.untyped_storage().nbytes(), t.is_contiguous())
        )
        agree(copy.deepcopy(t), t)
        before = t.clone()
        t.resize_(100, 10)
        assert torch.equal(t.flatten()[:32], before.flatten()) and not in_arena(t)
        t.resize_(4, 8)

    def program(x: Tensor) -> Tensor:
        h = x * 2
        look(h)
        return h + 1

    f = compiled(program)
    for _ in range(3):
        x = torch.randn(4, 8)
        agree(f(x), x * 2 + 1)
    assert seen == [(0, False, True, 128, True)] * 3


def test_memory_of_a_chain_is_its_largest_path_not_the_sum() -> None:
    """Rows 2, 5 and 6."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(10):
            x = torch.sin(x) + 1
            windfall.graph_break()
        return x

    f = compiled(chain)
    x = torch.randn(1024)
    for _ in range(3):
        agree(f(x), chain(x))
    manager = tree()
    assert manager.nodes == 10
    assert manager.bytes == 2 * 4096, "one that is read, one that is written"


def test_branches_share_memory() -> None:
    def program(x: Tensor, left: bool) -> Tensor:
        x = x + 1
        windfall.graph_break()
        x = torch.sin(x) * 2 if left else torch.cos(x) * 3
        windfall.graph_break()
        return x.sum()

    f = compiled(program)
    x = torch.randn(1024)
    for left in (True, False) * 3:
        agree(f(x, left), program(x, left))
    assert sorted(one.depth for one in tree().root.below()) == [1, 2, 2]
    assert tree().bytes == 2 * 4096


# -------------------------------------------------------------------------------------- training


def mlp() -> torch.nn.Module:
    layers = [torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))


def gradients(module: torch.nn.Module) -> list[Tensor]:
    return [one.grad.clone() for one in module.parameters() if one.grad is not None]


def both(train: Callable[[Any, torch.nn.Module], Any], module: torch.nn.Module) -> Any:
    """What a step does with the module and with the compiled one: values and gradients."""
    twin = compiled(module)
    answers = []
    for call in (module, twin):
        module.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        value = train(call, module)
        answers.append((value, gradients(module)))
    agree(answers[1], answers[0])
    return twin


def test_forward_and_backward_are_one_path() -> None:
    """Row 4: saved values are pooled, leaf gradients are not."""
    module = mlp()
    x = torch.randn(8, 16)

    def train(call: Any, module: torch.nn.Module) -> Any:
        for _ in range(4):
            module.zero_grad(set_to_none=True)
            loss = call(x).square().sum()
            loss.backward()
        return loss.detach()

    both(train, module)
    assert not any(in_arena(one.grad) for one in module.parameters() if one.grad is not None)
    assert counted() == {"Sequential": (1, 3), "Sequential backward": (1, 3)}
    assert [one.depth for one in tree().root.below()] == [1, 2]


def test_gradients_accumulate() -> None:
    """Hard test 9: four micro-batches."""

    def train(call: Any, module: torch.nn.Module) -> Any:
        for _ in range(4):
            call(torch.randn(8, 16)).square().mean().backward()

    both(train, mlp())


def test_two_forwards_then_backwards_in_reverse() -> None:
    """Hard test 5; a third one without a backward."""

    def train(call: Any, module: torch.nn.Module) -> Any:
        for _ in range(3):
            first, second = call(torch.randn(8, 16)), call(torch.randn(8, 16))
            dropped = call(torch.randn(8, 16))
            second.square().sum().backward()
            first.square().sum().backward()
            del dropped
        return first.detach()

    both(train, mlp())
    assert max(one.depth for one in tree().root.below()) >= 3


def test_a_second_backward() -> None:
    """Hard test 6: `retain_graph`; and a backward of an old generation (hard test 4)."""

    def train(call: Any, module: torch.nn.Module) -> Any:
        loss = call(torch.randn(8, 16)).square().sum()
        loss.backward(retain_graph=True)
        other = call(torch.randn(8, 16)).square().sum()
        windfall.mark_step_begin()
        for _ in range(3):
            call(torch.randn(8, 16)).square().sum().backward()
        loss.backward()
        other.backward()
        return loss.detach()

    both(train, mlp())


def test_a_backward_that_never_runs() -> None:
    """Hard test 7 and row 4: the loss is dropped, inference follows, nothing waits."""
    module = mlp()
    f = compiled(module)
    for _ in range(5):
        loss = f(torch.randn(8, 16)).sum()
    del loss
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(8, 16)
            agree(f(x), module(x))
    f(torch.randn(8, 16))
    assert tree().current.depth == 1


def test_losses_that_are_kept() -> None:
    """Pending backwards in any number: paths are bounded, gradients right."""

    def train(call: Any, module: torch.nn.Module) -> Any:
        losses = [call(torch.randn(4, 16)).square().sum() for _ in range(20)]
        for loss in losses[::2]:
            loss.backward()
        return torch.stack([one.detach() for one in losses])

    module = mlp()
    twin = compiled(module, TreeOptions(minimum_bytes=0, depth=5))
    answers = []
    for call in (module, twin):
        module.zero_grad(set_to_none=True)
        torch.manual_seed(3)
        answers.append((train(call, module), gradients(module)))
    agree(answers[1], answers[0])
    assert max(one.depth for one in tree().root.below()) <= 5


def test_checkpointed_segments() -> None:
    """Hard test 8."""
    module = mlp()

    def train(call: Any, module: torch.nn.Module) -> Any:
        for _ in range(3):
            x = torch.randn(8, 16, requires_grad=True)
            loss = checkpoint(call, x, use_reentrant=False).square().sum()
            loss.backward()
        return x.grad

    both(train, module)


def test_dropout_draws_eagers_numbers() -> None:
    """Row 23, hard tests 22 and 23."""
    module = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5))
    twin = compiled(module)
    x = torch.randn(8, 16)
    for seed in (1, 2, 1, 3):
        answers = []
        for call in (module, twin):
            module.zero_grad(set_to_none=True)
            torch.manual_seed(seed)
            value = call(x)
            again = call(x)
            (value * again).sum().backward()
            answers.append((value, again, gradients(module)))
        agree(answers[1], answers[0])


def test_breaks_in_training_and_hooks() -> None:
    """Segments, their backwards, and a replay from a hook inside of backward (hard test 25)."""
    inner = compiled(lambda x: torch.sin(x) * 2)
    seen: list[Tensor] = []

    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.one(x))
            windfall.graph_break()
            h.register_hook(lambda g: seen.append(inner(g)))
            windfall.graph_break()
            return self.two(h).square()

    def train(call: Any, module: torch.nn.Module) -> Any:
        seen.clear()
        for _ in range(4):
            call(torch.randn(8, 16)).sum().backward()
        return [one.clone() for one in seen]

    both(train, Broken())
    assert sum(replays for _, replays in counted().values()) > 0


def test_two_models_one_path() -> None:
    one, two = mlp(), torch.nn.Linear(4, 4)
    module = torch.nn.ModuleList([one, two])
    compiled_one, compiled_two = compiled(one), compiled(two)
    x = torch.randn(8, 16)
    for _ in range(3):
        module.zero_grad(set_to_none=True)
        two(one(x)).square().sum().backward()
        expected = gradients(module)
        module.zero_grad(set_to_none=True)
        compiled_two(compiled_one(x)).square().sum().backward()
        agree(gradients(module), expected)


# ------------------------------------------------------------------------- inputs and their memory


def test_parameters_are_swapped_without_recording_again() -> None:
    """Row 9, hard tests 17 and 18: nothing of an input is baked in."""
    module = mlp()
    f = compiled(module)
    x = torch.randn(8, 16)
    f(x).square().sum().backward()
    nodes = tree().nodes
    for _ in range(4):
        for one in module.parameters():
            one.data = torch.randn_like(one)
        module.zero_grad(set_to_none=True)
        module(x).square().sum().backward()
        expected = gradients(module)
        module.zero_grad(set_to_none=True)
        f(x).square().sum().backward()
        agree(gradients(module), expected)
    assert tree().nodes == nodes


def test_inputs_are_written_and_alias() -> None:
    """Row 12, hard tests 12, 13, 19 and 27."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        h = x * 2
        windfall.graph_break()
        h.mul_(3)
        y.copy_(h[: y.shape[0]])
        windfall.graph_break()
        return h.sum(), y.T

    f = compiled(program)
    for shared in (False, True, False, True):
        answers = []
        for call in (program, f):
            base = torch.arange(24.0).reshape(4, 6)
            x, y = (base[:2], base[1:3]) if shared else (base[:2].clone(), base[2:].clone())
            total, view = call(x, y)
            assert view.data_ptr() == y.data_ptr()
            answers.append((total, view.clone(), base.clone(), x.clone(), x._version))
        agree(answers[1], answers[0])


def test_a_cache_is_fed_back() -> None:
    """Hard test 15: grown by `cat`, and written in place."""

    def step(cache: Tensor, x: Tensor) -> Tensor:
        cache = torch.cat([cache, x * 2])
        windfall.graph_break()
        return cache + 0

    f = compiled(step, dynamic=True)
    grown = expected = torch.zeros(1, 4)
    for _ in range(12):
        x = torch.randn(1, 4)
        grown, expected = f(grown, x), step(expected, x)
        agree(grown, expected)


def test_misaligned_inputs() -> None:
    """Row 22."""
    f = compiled(broken)
    w = torch.randn(16, 16)
    base = torch.randn(8 * 16 + 1)
    for start in (0, 1, 1, 0):
        x = base[start : start + 128].view(8, 16)
        agree(f(x, w), broken(x, w))


def test_zero_sizes_none_and_doubles() -> None:
    """Hard test 20."""

    def program(x: Tensor) -> Any:
        h, empty = x + 1, x[:0] * 2
        windfall.graph_break()
        return h, h, empty, None, 3, h[0], x

    f = compiled(program)
    for _ in range(3):
        x = torch.randn(4, 4)
        a, b, empty, none, three, row, same = f(x)
        assert a is b and same is x and none is None and three == 3 and empty.shape == (0, 4)
        assert row.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
        agree(a, x + 1)


# --------------------------------------------------------------------------------- sizes and limits


def sized(x: Tensor) -> Tensor:
    h = torch.sin(x) + 1
    windfall.graph_break()
    return h.sum()


def test_a_new_size_is_a_new_plan_and_no_compilation() -> None:
    """Row 15 and hard test 21."""
    f = compiled(sized, TreeOptions(minimum_bytes=0, recordings=16), dynamic=True)
    for turn in range(3):
        for size in range(2, 52):
            x = torch.randn(size)
            agree(f(x), sized(x))
        if turn == 0:
            compilations = len(windfall.explanation(f).captures)
    assert len(windfall.explanation(f).captures) == compilations <= 4
    assert tree().nodes <= 16
    assert tree().bytes <= 2 * 64 * 4


def test_a_list_of_sizes() -> None:
    f = compiled(sized, TreeOptions(minimum_bytes=0, sizes=(4,)), dynamic=True)
    for size in (4, 5, 4, 6, 4):
        x = torch.randn(size)
        agree(f(x), sized(x))
    assert [replays for _, replays in counted().values()] == [2]
    assert any(Skip.SIZES.reason in one for one in windfall.explanation(f).trees)


def test_the_rerecord_limit() -> None:
    """Row 14: everything is held, each call needs another plan."""
    held: list[Tensor] = []

    @windfall.disable
    def keep(t: Tensor) -> None:
        held.append(t)

    def program(x: Tensor) -> Tensor:
        h = x + 1
        keep(h)
        return h * 2

    f = compiled(program, TreeOptions(minimum_bytes=0, rerecord_limit=2))
    for number in range(8):
        f(torch.full((4,), float(number)))
    assert [one[0].item() for one in held] == [float(number) + 1 for number in range(8)]
    assert tree().nodes == 3
    assert any(Skip.LIMIT.reason in one for one in windfall.explanation(f).trees)


def test_python_only_ops_are_partitions() -> None:
    """Row 17: what is between them is native, intermediate values stand elsewhere."""

    def program(x: Tensor) -> Tensor:
        h = torch.histc(torch.exp(x), 10, 0, 4) * 2
        windfall.graph_break()
        return h + 1

    f = compiled(program)
    for _ in range(4):
        x = torch.randn(64)
        agree(f(x), program(x))
    assert any("ops run from Python" in one for one in windfall.explanation(f).trees)
    assert [replays for _, replays in counted().values()] == [3]


def test_an_exception_in_the_middle() -> None:
    """Hard test 26."""
    module = torch.nn.Embedding(4, 8)

    def program(index: Tensor) -> Tensor:
        h = module(index) * 2
        windfall.graph_break()
        return h.sum()

    f = windfall.compile(program, mode="reduce-overhead", options={"trees": ALL})
    for number in (0, 1, 9, 2, 9, 3):
        index = torch.tensor([number, 0])
        if number > 3:
            with pytest.raises(IndexError):
                f(index)
        else:
            agree(f(index), program(index))
    tree()


# ----------------------------------------------------------------------------- threads, lifetime


def test_threads_have_trees_of_their_own() -> None:
    """Row 18 and hard test 24: eight threads race for the first call; results are dropped in
    another thread."""
    f = compiled(broken)
    w = torch.randn(16, 16)
    barrier, wrong, across = threading.Barrier(8), list[str](), list[Tensor]()

    def run(number: int) -> None:
        barrier.wait()
        for _ in range(30):
            x = torch.full((8, 16), float(number))
            y = f(x, w)
            if not torch.allclose(y, broken(x, w), atol=1e-4):
                wrong.append(f"thread {number}")
            across.append(y)
            if len(across) > 4:
                across.pop(0)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
    del threads, one
    gc.collect()
    assert len([*CPU_TREES]) <= 1, "trees go with their threads"


def test_a_result_is_dropped_in_another_thread() -> None:
    held: list[Tensor] = []

    @windfall.disable
    def keep(t: Tensor) -> None:
        held.append(t)

    def program(x: Tensor) -> Tensor:
        h = x + 1
        keep(h)
        return h * 2

    f = compiled(program)
    f(torch.ones(4))
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert tree()._alive() == []


def test_reset_with_live_results() -> None:
    """Row 21 and hard test 28."""
    held: list[Tensor] = []

    @windfall.disable
    def keep(t: Tensor) -> None:
        held.append(t)

    def program(x: Tensor) -> Tensor:
        h = x + 1
        keep(h)
        return h * 2

    f = compiled(program)
    f(torch.ones(4))
    manager = weakref.ref(tree())
    windfall.reset()
    gc.collect()
    assert manager() is None, "the tree is gone"
    for number in range(4):
        f(torch.full((4,), float(number)))
    assert [one[0].item() for one in held] == [2.0, 1.0, 2.0, 3.0, 4.0]


def test_torch_marks_are_seen() -> None:
    from windfall import torch_abi
    from windfall.directives import STEP_MARKS

    before = STEP_MARKS.count
    windfall.mark_step_begin()
    windfall.cudagraph_mark_step_begin()
    assert STEP_MARKS.count == before + 2 and torch_abi.torch_step_marks() == 0


# ------------------------------------------------------------------------------------- what is told


def test_explain_tells() -> None:
    """Row 16."""
    f = compiled(broken)
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    for _ in range(3):
        f(x, w)
    told = windfall.explanation(f)
    text = "\n".join(told.trees)
    assert "broken" in text and "replayed 2" in text and "test_cpu.py" in text
    assert "graph trees" in str(told) and told.to_dict()["trees"] == told.trees
    assert {event.kind for event in told.events} >= {EventKind.TREES}


def test_a_picture_of_the_tree() -> None:
    assert "no graph tree" in windfall.tree_picture([])
    f = compiled(broken)
    for _ in range(3):
        f(torch.randn(8, 16), torch.randn(16, 16))
    text = windfall.tree_picture()
    found = ElementTree.fromstring(text)
    boxes = [one for one in found.iter() if one.tag.endswith("rect")]
    assert len(boxes) == 2 and "replayed 2" in text and "broken" in text


def test_options_are_checked() -> None:
    for wrong in ({"minimum_bytes": -1}, {"depth": 0}, {"recordings": 1.5}, {"sizes": ("a",)}):
        with pytest.raises(UserError):
            TreeOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="TreeOptions"):
        windfall.compile(broken, options={"trees": True})
    assert windfall.Options.checked(mode="reduce-overhead").trees == TreeOptions()
    assert windfall.Options.checked(mode="reduce-overhead", options={"trees": ALL}).trees == ALL
    assert windfall.Options.checked().trees is None
