"""Breaks anywhere: that one step runs natively, capturing goes on, nothing is traced twice."""

from __future__ import annotations

import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch

from tests.frontend.driver import EagerCompiled, compile_eager, same

LOG: list[Any] = []


def run(function: Any, *arguments: Any) -> tuple[Any, list[Any], type[BaseException] | None]:
    """Result, printed lines and exception of a call."""
    LOG.clear()
    try:
        return function(*arguments), list(LOG), None
    except Exception as error:
        return str(error), list(LOG), type(error)


def check(function: Any, *arguments: Any, calls: int = 2) -> EagerCompiled:
    compiled = compile_eager(function)
    for _ in range(calls):
        actual, expected = run(compiled, *arguments), run(function, *arguments)
        assert same(actual[0], expected[0]), (actual[0], expected[0])
        assert actual[1:] == expected[1:]
    assert compiled.log.snapshot("fallback") == ()
    return compiled


def x() -> torch.Tensor:
    return torch.randn(3, 4)


def test_print_in_the_middle(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        b = a + 1
        print("shape", b.shape, end="!\n")
        return b * 2

    compiled = check(f, x())
    assert len(compiled.graphs) == 2
    assert len(compiled.captures) == 2
    assert capsys.readouterr().out == "shape torch.Size([3, 4])!\n" * 4
    assert compiled.breaks[0].number == 1
    assert compiled.breaks[0].where.line == f.__code__.co_firstlineno + 2


def test_dead_values_are_not_carried(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        b = a + 1
        c = b * 2
        print("x")
        return c

    compiled = check(f, x())
    assert len(compiled.graphs) == 1
    assert compiled.segments[1].slots == ("c", "stack0")


def test_loop_iterations_share_segments(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        for _ in range(10):
            a = a + 1
            print("step")
            a = a * 2
        return a.sum()

    compiled = check(f, x())
    assert capsys.readouterr().out == "step\n" * 40
    assert len(compiled.graphs) == 3  # the first round, all others, the end


def test_a_loop_over_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    def f(items: Any) -> Any:
        total = items[0]
        for i, item in enumerate(items):
            total = total + item
            print(i)
        return total

    check(f, [x(), x(), x()])


def test_mid_expression(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        return (a + 1) * (a - 2 if print("x") is None else a) + a

    compiled = check(f, x())
    assert len(compiled.graphs) == 2


def three(a: Any) -> Any:
    b = a * 2
    print("deep")
    return b + 1


def two(a: Any) -> Any:
    return three(a + 1) * 3


def one(a: Any) -> Any:
    return two(a - 1) - 4


def test_three_calls_deep(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = check(lambda a: one(a) + 5, x())
    assert len(compiled.graphs) == 2
    assert len(compiled.captures) == 2


def test_three_calls_deep_twice(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = check(lambda a: one(a) + one(a * 2), x())
    assert len(compiled.graphs) == 3


def test_data_dependent_branch() -> None:
    def f(a: Any) -> Any:
        b = a + 1
        if b.sum() > 0:
            return b * 2
        return b * 3

    compiled = compile_eager(f)
    for a in (torch.ones(3), -5 * torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled(a), f(a))
    assert len(compiled.graphs) == 3
    assert compiled.breaks[0].number == 2


def test_while_on_data() -> None:
    def f(a: Any) -> Any:
        while a.sum() < 100:
            a = a * 2
        return a + 1

    compiled = check(f, torch.ones(3))
    assert len(compiled.graphs) <= 4


def test_item() -> None:
    def f(a: Any) -> Any:
        n = a.max().item()
        return a + n

    check(f, torch.ones(3))


def test_try_except_around_a_break() -> None:
    def f(a: Any, fail: bool) -> Any:
        b = a + 1
        try:
            b = b * 2
            int("x" if fail else "1")
            list.__getitem__([], 0 if fail else slice(0))
            b = b + 3
        except ValueError as error:
            b = b - 1
            return b, str(error)
        else:
            b = b * 5
        finally:
            b = b + 100
        return b, "fine"

    check(f, x(), True)
    check(f, x(), False)


def test_native_exception_is_caught() -> None:
    def f(a: Any, table: Any) -> Any:
        b = a + 1
        try:
            c = b @ a
        except RuntimeError as error:
            return b * 2, str(error)
        return c, ""

    check(f, x(), {})


def test_native_exception_leaves() -> None:
    def f(a: Any, items: Any) -> Any:
        items.append(1)
        b = a + 1
        raise ValueError(f"no {b.shape}")

    compiled = compile_eager(f)
    items: list[int] = []
    for _ in range(2):
        with pytest.raises(ValueError, match=r"no torch.Size\(\[3, 4\]\)") as caught:
            compiled(x(), items)
        line = caught.traceback[-1].lineno
        assert line + 1 == f.__code__.co_firstlineno + 3
    assert items == [1, 1]


def test_break_inside_with() -> None:
    class Manager:
        def __init__(self, log: list[str]) -> None:
            self.log = log

        def __enter__(self) -> str:
            self.log.append("enter")
            return "entered"

        def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
            self.log.append(f"exit {kind.__name__ if kind else None}")
            return kind is KeyError

    def f(a: Any, log: Any, fail: bool) -> Any:
        with Manager(log) as entered:
            a = a + len(entered)
            note_natively(a)
            if fail:
                {}["missing"]
            a = a * 2
        return a + 1

    for fail in (False, True):
        compiled = compile_eager(f)
        for _ in range(2):
            a, actual, expected = x(), [], []  # type: ignore[var-annotated]
            assert torch.equal(compiled(a, actual, fail), f(a, expected, fail))
            assert actual == expected
        assert len(compiled.graphs) == 2


note_natively = sys.getsizeof  # what it answers is known to CPython alone


def test_break_in_a_comprehension(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        return sum([a * i for i in range(4) if print(i) is None and i % 2])

    check(f, x())
    assert capsys.readouterr().out == "0\n1\n2\n3\n" * 4


def test_exception_context_and_cause() -> None:
    def f(a: Any) -> Any:
        try:
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise ValueError("outer") from error
        except ValueError as error:
            return a + 1, repr(error.__cause__)

    check(f, x())


def test_break_while_an_exception_is_handled() -> None:
    def f(a: Any) -> Any:
        try:
            int("x")
        except ValueError:
            b = a + 1
            seen = sys.exc_info()[0]
            b = b * 2
        return b, seen is ValueError

    check(f, x())


def test_reraise() -> None:
    def f(a: Any, log: Any) -> Any:
        try:
            try:
                log.append("try")
                int("x")
            except ValueError:
                log.append("handler")
                raise
            finally:
                log.append("finally")
        except ValueError as error:
            return a + 1, str(error)

    compiled = compile_eager(f)
    first: list[str] = []
    second: list[str] = []
    a = x()
    assert compiled(a, first)[1] == f(a, second)[1]
    assert first == second


def test_an_iterator_is_advanced_natively() -> None:
    def f(a: Any, items: Any) -> Any:
        for item in items:
            a = a + item
        return a

    compiled = compile_eager(f)
    a = x()
    assert torch.equal(compiled(a, iter([a, a, a])), f(a, iter([a, a, a])))
    assert len(compiled.graphs) <= 2


def test_identity_is_kept_over_a_break() -> None:
    def f(a: Any) -> Any:
        items = [a + 1]
        other = items
        box = (items, {"k": items})
        note_natively(0)
        other.append(a)
        return items is other and box[0] is items and box[1]["k"] is other, len(items), items[0]

    check(f, x())


def test_self_containing_list_over_a_break() -> None:
    def f(a: Any) -> Any:
        items = [a + 1]
        items.append(items)
        note_natively(0)
        return items[1] is items, items[0]

    check(f, x())


def test_closures_share_a_cell_over_a_break() -> None:
    def f(a: Any) -> Any:
        count = a

        def up() -> None:
            nonlocal count
            count = count + 1

        up()
        note_natively(0)
        up()
        return count

    check(f, x())


def test_frame_bound_functions_see_their_frame() -> None:
    def f(a: Any, n: int) -> Any:
        b = a + 1
        names = sorted(locals())
        c = eval("b * n")
        return c, names

    check(f, x(), 3)


def test_a_long_loop_leaves_natively() -> None:
    def count(n: int) -> int:
        total = 0
        for i in range(n):
            total += i % 3
        return total

    def f(a: Any, n: int) -> Any:
        b = a + 1
        return b * count(n) + 2

    compiled = check(f, x(), 5000)
    assert len(compiled.graphs) == 2
    assert compiled.breaks[0].number == 30


def test_only_the_loop_is_left_natively() -> None:
    def f(a: Any, n: int) -> Any:
        b = a + 1
        total = i = 0
        while i < n:
            for j in range(3):
                total = (total * 31 + i * j) % 1009
            if total == n + 5:
                return b
            i += 1
        c = b * total
        for number in [1, 2]:
            c = c + number
        return c

    compiled = check(f, x(), 5000)
    assert len(compiled.graphs) == 2
    assert [one.number for one in compiled.breaks] == [30]


def test_a_loop_that_raises_natively() -> None:
    def f(a: Any, n: int) -> Any:
        b = a + 1
        seen = []
        try:
            for i in range(n):
                seen.append(10 // (3000 - i))
        except ZeroDivisionError as error:
            return b * len(seen), str(error)
        return b

    compiled = check(f, x(), 5000)
    assert [one.number for one in compiled.breaks][:1] == [30]


def test_a_long_list_is_not_looked_into() -> None:
    def f(a: Any, numbers: list[int]) -> Any:
        total = 0
        for number in numbers:
            total += number
        return a + total, len(numbers), sum(numbers)

    compiled = check(f, x(), list(range(20_000)))
    assert len(compiled.graphs) == 1
    assert all(len(one.guards) < 50 for one in compiled.captures)


def test_nothing_is_kept_of_what_was_deleted() -> None:
    class Holder:
        pass

    def f(a: Any, dead: list[str]) -> Any:
        holder = Holder()
        holder.tensor = a + 1  # type: ignore[attr-defined]
        reference = weakref.ref(holder, lambda one: dead.append("dead"))
        total = holder.tensor.sum()  # type: ignore[attr-defined]
        del holder
        return total, reference() is None, list(dead)

    compiled = compile_eager(f)
    for _ in range(2):
        assert compiled(x(), [])[1:] == (True, ["dead"])


def test_a_cell_of_its_own_that_is_empty() -> None:
    def f(a: Any) -> Any:
        def g() -> Any:
            return y

        b = a + 1
        print(y)  # noqa: F821 (that is what is tested)
        y = b
        return g

    compiled = compile_eager(f)
    for function in (f, compiled):
        with pytest.raises(UnboundLocalError, match="local variable 'y'"):
            function(x())


def test_grad_modes() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        with torch.no_grad():
            c = b + 1
            with torch.enable_grad():
                d = a * 3
            inside = torch.is_grad_enabled()
        return b, c, d, inside, torch.is_grad_enabled()

    compiled = check(f, x().requires_grad_())
    assert len(compiled.captures) == 1


def test_break_inside_no_grad(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        with torch.no_grad():
            b = a * 2
            print(torch.is_grad_enabled())
            c = b + a
        return c, a * 2

    compiled = check(f, x().requires_grad_())
    assert capsys.readouterr().out == "False\n" * 4
    assert len(compiled.graphs) == 2


def test_bare_set_grad_enabled_leaks_as_in_eager() -> None:
    def f(a: Any) -> Any:
        torch.set_grad_enabled(False)
        return a * 2

    a = x().requires_grad_()
    for function in (f, compile_eager(f)):
        assert not function(a).requires_grad
        assert not torch.is_grad_enabled()
        torch.set_grad_enabled(True)


def test_no_grad_as_a_decorator() -> None:
    @torch.no_grad()
    def f(a: Any) -> Any:
        return a * 2

    check(lambda a: (f(a), a + 1), x().requires_grad_())


def deep(items: Any) -> Any:
    return items[3]


def middle(items: Any) -> Any:
    return deep(items)


def test_tracebacks_name_inlined_frames() -> None:
    def f(a: Any, items: Any) -> Any:
        b = a + 1
        return b * middle(items)

    def names(function: Any) -> list[tuple[str, int]]:
        with pytest.raises(IndexError) as caught:
            function(x(), [1])
        return [(one.name, one.lineno) for one in caught.traceback][-3:]

    assert names(compile_eager(f)) == names(f)


KEEPS_FRAMES = """
import gc, sys
import torch, windfall

def fails(a, items):
    return items[3]

def f(a, items):
    return a * fails(a, items)

compiled = windfall.compile(f, backend="eager")
kept = []

def trace(frame, event, argument):
    kept.append(frame)

for _ in range(20):
    sys.settrace(trace)
    try:
        compiled(torch.ones(2), [1])
    except IndexError as error:
        sys.settrace(None)
        places, traceback = [], error.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            name, line = frame.f_code.co_name, traceback.tb_lineno
            places.append((name, line, frame.f_lineno, frame.f_lasti))
            traceback = traceback.tb_next
        assert [one[:3] for one in places[-2:]] == [("f", 9, 9), ("fails", 6, 6)], places
        assert places[-1][3] > 0, places
        del error, frame
    else:
        raise AssertionError("no error")
    assert not any(one.f_code is fails.__code__ for one in kept)  # it was inlined
    kept.clear()
    gc.collect()
"""


def test_a_trace_function_may_keep_the_frames_it_is_shown() -> None:
    """The frames of tracebacks are made by code of ours, which a tracer must not see half made."""
    ended = subprocess.run([sys.executable, "-c", KEEPS_FRAMES], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_recompiles_say_why() -> None:
    compiled = compile_eager(lambda a, n: a * n)
    compiled(x(), 2)
    compiled(x(), 3)
    (event,) = compiled.log.snapshot("recompile")
    assert event.facts["reason"].startswith("L['n']: expected == 2, got 3 (used; ")


def test_tracebacks_of_causes() -> None:
    def fails() -> None:
        raise KeyError("inner")

    def f(a: Any) -> Any:
        b = a + 1
        try:
            fails()
        except KeyError as error:
            raise ValueError(b.shape) from error

    def lines(function: Any) -> Any:
        with pytest.raises(ValueError) as caught:
            function(x())
        cause = caught.value.__cause__
        assert cause is caught.value.__context__ and cause is not None
        found = []
        for error in (caught.value, cause):
            traceback, own = error.__traceback__, []
            while traceback is not None:
                code = traceback.tb_frame.f_code
                if code.co_filename == __file__ and code.co_name in ("f", "fails"):
                    own.append((code.co_name, traceback.tb_lineno))
                traceback = traceback.tb_next
            found.append(own)
        return found

    assert lines(compile_eager(f)) == lines(f)


def test_a_deep_recursion_with_breaks_is_not_compiled_way_by_way() -> None:
    def walk(a: Any, depth: int) -> Any:
        LOG.append(id(a) == 0)
        if depth == 0:
            return a + 1
        return walk(a * 2, depth - 1) + walk(a * 3, depth - 1)

    compiled = check(walk, x(), 9, calls=1)
    assert len(compiled.captures) < 300  # there are 512 ways to a leaf


def test_items_that_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any, names: list[str]) -> Any:
        return a + 1, ", ".join(name.upper() for name in names), "".join(map(str, (1, 2)))

    assert len(check(f, x(), ["b", "c"]).captures) == 1
