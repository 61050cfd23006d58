"""Side effects on objects from outside: replayed in program order, identity and aliasing kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.frontend.driver import compile_eager, same

COUNTER = 0
TABLE: dict[str, Any] = {}


class Box:
    """Something with attributes."""

    def __init__(self) -> None:
        self.count = 0
        self.items: list[Any] = []

    def __repr__(self) -> str:
        return f"Box({self.count}, {self.items})"


def agree(function: Any, make: Any, calls: int = 3) -> Any:
    """Results and arguments after the calls are as eager's."""
    compiled = compile_eager(function)
    ours, theirs = make(), make()
    for _ in range(calls):
        actual, expected = compiled(*ours), function(*theirs)
        assert same(actual, expected)
        assert same(ours, theirs)
    assert compiled.log.snapshot("fallback") == ()
    return compiled


def ones() -> torch.Tensor:
    return torch.ones(3)


def test_a_history_list_does_not_recompile() -> None:
    def f(a: Any, history: Any) -> Any:
        history.append(a + 1)
        return a * 2

    compiled = agree(f, lambda: (ones(), []))
    assert len(compiled.captures) == 1


def test_list_methods_in_order() -> None:
    def f(a: Any, items: Any) -> Any:
        items.append(a)
        items.insert(0, "first")
        last = items.pop()
        items.extend([1, 2])
        items += [3]
        items[0] = "changed"
        items[1:2] = [7, 8, 9]
        del items[-1]
        items.reverse()
        return last + 1, len(items), items[0]

    agree(f, lambda: (ones(), ["x", "y"]), calls=1)


def test_dict_order_pop_and_reinsert() -> None:
    def f(a: Any, table: Any) -> Any:
        table["new"] = a + 1
        value = table.pop("b")
        table["b"] = value
        table.setdefault("d", 5)
        table.update(c=9, e=10)
        del table["a"]
        return list(table), table.get("missing", 4), "a" in table

    agree(f, lambda: (ones(), {"a": 1, "b": 2, "c": 3}), calls=1)


def test_attributes() -> None:
    def f(a: Any, box: Any) -> Any:
        box.count += 1
        box.items.append(box.count)
        box.last = a * box.count
        if hasattr(box, "gone"):
            del box.gone
        return box.last

    def make() -> tuple[Any, ...]:
        box = Box()
        box.gone = 1  # type: ignore[attr-defined]
        return ones(), box

    agree(f, make, calls=2)


def test_globals_are_written() -> None:
    def f(a: Any) -> Any:
        global COUNTER
        COUNTER += 1
        TABLE["last"] = a + COUNTER
        return TABLE["last"] * 2

    compiled = compile_eager(f)
    for expected in (1, 2, 3):
        assert torch.equal(compiled(ones()), (ones() + expected) * 2)
        assert expected == COUNTER
        assert torch.equal(TABLE["last"], ones() + expected)


def test_a_cell_outside_is_written() -> None:
    def make(compile_it: bool) -> Any:
        total = 0

        def f(a: Any) -> Any:
            nonlocal total
            total += 1
            return a * total

        return (compile_eager(f) if compile_it else f), lambda: total

    ours, theirs = make(True), make(False)
    for _ in range(3):
        assert torch.equal(ours[0](ones()), theirs[0](ones()))
        assert ours[1]() == theirs[1]()


def test_created_objects_escape_once() -> None:
    def f(a: Any, out: Any) -> Any:
        box = Box()
        box.items = out
        out.append(box)
        out.append(box)
        box.count = a + 1
        return box

    out: list[Any] = []
    box = compile_eager(f)(ones(), out)
    assert out[0] is out[1] is box
    assert box.items is out
    assert type(box) is Box and torch.equal(box.count, ones() + 1)


def test_created_closures_share_their_cell() -> None:
    def f(a: Any) -> Any:
        total = a

        def add(b: Any) -> Any:
            nonlocal total
            total = total + b
            return total

        def get() -> Any:
            return total

        add(1)
        return add, get

    add, get = compile_eager(f)(ones())
    assert torch.equal(get(), ones() + 1)
    add(ones())
    assert torch.equal(get(), ones() * 3)


def test_the_same_list_twice() -> None:
    def f(a: Any, first: Any, second: Any) -> Any:
        first.append(a)
        return a * len(second)

    compiled = compile_eager(f)
    for same_object in (False, True, False):
        first: list[Any] = []
        second = first if same_object else []
        expected = f(ones(), *((lambda one: (one, one))([]) if same_object else ([], [])))
        assert torch.equal(compiled(ones(), first, second), expected)


def test_overlapping_arguments_run_eagerly_and_rightly() -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    compiled = compile_eager(f)
    for overlap in (False, True, False):
        base, other = torch.zeros(6), torch.zeros(6)
        ours = (base[:4], base[2:] if overlap else other[2:])
        eager = torch.zeros(6)
        theirs = (eager[:4], eager[2:] if overlap else torch.zeros(6)[2:])
        assert torch.equal(compiled(*ours), f(*theirs))
        assert torch.equal(base, eager)


def test_module_buffers_and_counters() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.calls = 0
            self.history: dict[int, Any] = {}

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.mean = self.mean * 0.9 + a * 0.1
            self.history[self.calls] = a.shape
            return a - self.mean

    ours, theirs = Norm(), Norm()
    compiled = compile_eager(ours)
    for i in range(3):
        a = ones() * i
        assert torch.equal(compiled(a), theirs(a))
        assert torch.equal(ours.mean, theirs.mean)
        assert ours.calls == theirs.calls and ours.history == theirs.history


def test_batch_norm_trains() -> None:
    ours, theirs = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    compiled = compile_eager(ours)
    for _ in range(3):
        a = torch.randn(5, 3)
        assert torch.equal(compiled(a), theirs(a))
        for name, buffer in ours.named_buffers():
            assert torch.equal(buffer, theirs.get_buffer(name)), name
    assert len(compiled.captures) == 1


def test_effects_before_an_exception() -> None:
    def f(a: Any, log: Any) -> Any:
        log.append("one")
        b = a + 1
        log.append(b.shape)
        raise KeyError("end")

    log: list[Any] = []
    with pytest.raises(KeyError):
        compile_eager(f)(ones(), log)
    assert log == ["one", torch.Size([3])]


def test_mutable_default() -> None:
    def make() -> Any:
        def f(a: Any, seen: Any = []) -> Any:  # noqa: B006
            seen.append(1)
            return a * len(seen)

        return f

    ours, theirs = compile_eager(make()), make()
    for _ in range(3):
        assert torch.equal(ours(ones()), theirs(ones()))


def test_patched_methods_helpers_and_attributes() -> None:
    class Tool:
        factor = 2

        def apply(self, a: Any) -> Any:
            return a * self.factor

    tool = Tool()

    def f(a: Any) -> Any:
        return tool.apply(a)

    compiled = compile_eager(f)
    assert torch.equal(compiled(ones()), ones() * 2)
    Tool.factor = 3
    assert torch.equal(compiled(ones()), ones() * 3)
    tool.factor = 4
    assert torch.equal(compiled(ones()), ones() * 4)
    Tool.apply = lambda self, a: a - 1  # type: ignore[method-assign]
    assert torch.equal(compiled(ones()), ones() - 1)
    tool.apply = lambda a: a + 7  # type: ignore[method-assign]
    assert torch.equal(compiled(ones()), ones() + 7)


def test_inputs_are_not_kept_alive() -> None:
    import weakref

    compiled = compile_eager(lambda a, items: a + items[0])
    a, b = torch.randn(3), torch.randn(3)
    references = [weakref.ref(a), weakref.ref(b)]
    compiled(a, [b])
    del a, b
    assert [one() for one in references] == [None, None]


def test_the_order_counts_between_two_ordered_dicts() -> None:
    from collections import OrderedDict

    def f(x: torch.Tensor) -> Any:
        first, second = OrderedDict(p=1, q=2), OrderedDict(q=2, p=1)
        return x + 1, first == second, first != second, first == dict(second)

    x = torch.zeros(2)
    assert same(compile_eager(f)(x), f(x))
