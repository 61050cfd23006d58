"""What versions of CPython write differently must do the same: each test runs on all of them."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.frontend.driver import check, compile_eager, same
from windfall.frontend.bytecode import SUPPORTED, decode

ROOT = Path(__file__).resolve().parents[2]


def x() -> torch.Tensor:
    return torch.randn(3)


def seen(value: Any) -> Any:
    """A break in the middle of whatever calls it."""
    return id(value) and value


def test_the_versions_are_told_in_one_way() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, last = min(SUPPORTED), max(SUPPORTED)
    assert told["requires-python"] == f">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"
    listed = re.findall(r"Python :: (3)\.(\d+)", " ".join(told["classifiers"]))
    assert {(int(one), int(other)) for one, other in listed} == SUPPORTED
    text = (ROOT / "windfall" / "__init__.py").read_text(encoding="utf-8")
    assert f"if not {first} <= sys.version_info[:2] <= {last}:" in text


def test_a_comprehension_leaves_variables_of_its_name_alone() -> None:
    def f(a: Any) -> Any:
        i = a * 2
        squares = [i * a for i in range(3)]
        table = {i: [j * i for j in range(i)] for i in range(3)}
        return i, squares, table

    check(f, x())


def test_a_break_inside_of_a_comprehension() -> None:
    def f(a: Any) -> Any:
        i = a * 2
        shown = [seen(i) * a for i in range(3)]
        nested = [[seen(j) + i for j in range(i)] for i in range(3)]
        return i, shown, nested, a + 1

    check(f, x(), breaks=None)


def test_a_comprehension_whose_variable_was_never_bound() -> None:
    def f(a: Any, bound: bool) -> Any:
        if bound:
            i = a
        found = [seen(i) + a for i in range(2)]
        return found, i

    check(f, x(), True, breaks=None)
    compiled = compile_eager(f)
    with pytest.raises(UnboundLocalError, match="'i'"):
        compiled(x(), False)


def test_functions_made_in_a_comprehension_share_its_variable() -> None:
    def f(a: Any) -> Any:
        i = a + 1
        made = [lambda: i * a for i in range(3)]  # noqa: B023
        plain = [i for i in range(2)]
        return [one() for one in made], plain, (lambda: i)()

    check(f, x())

    def broken(a: Any) -> Any:
        i = a + 1
        made = [(lambda: i * a, seen(i)) for i in range(3)]  # noqa: B023
        return [one() for one, _ in made], (lambda: i)()

    check(broken, x(), breaks=None)


def test_an_exception_that_leaves_a_comprehension() -> None:
    def f(a: Any) -> Any:
        i = a
        try:
            return [a / (1 // i) for i in (1, 2, 0)]
        except ZeroDivisionError as error:
            return i * 2, str(error)

    check(f, x())

    def uncaught(a: Any) -> Any:
        b = a + 1
        return [b // [1][i] for i in range(2)]

    compiled = compile_eager(uncaught)
    with pytest.raises(IndexError) as told:
        compiled(x())
    assert told.traceback[-1].lineno + 1 == uncaught.__code__.co_firstlineno + 2


def test_a_loop_that_is_left_natively_inside_of_a_comprehension() -> None:
    """The variable that was put aside is on the stack of the frame when CPython goes on."""

    def f(a: Any, count: int) -> Any:
        i = 7
        total = sum([i % 3 for i in range(count)])
        return a * total, i

    check(f, x(), 3000, breaks=None)


def test_slices_are_read_and_written() -> None:
    def f(a: Any, data: Any, items: list[int]) -> Any:
        items[1:2] = [8, 9]
        items[:1] = []
        return a[1:], a[:2] * 2, bytes(data[1:3]), items[1:], items[:-1], a[::2]

    compiled = compile_eager(f)
    for _ in range(2):
        data = memoryview(b"abcd")
        given, wanted = [1, 2, 3], [1, 2, 3]
        value = x()
        assert same(compiled(value, data, given), f(value, data, wanted))
        assert given == wanted


class Base:
    """What `super` finds."""

    scale = 3

    def scaled(self, a: Any, by: int = 1) -> Any:
        return a * self.scale * by

    @property
    def halved(self) -> float:
        return self.scale / 2

    @classmethod
    def made(cls, a: Any) -> Any:
        return a + cls.scale


class Derived(Base):
    """All ways to write it."""

    scale = 5

    def scaled(self, a: Any, by: int = 1) -> Any:
        first = super().scaled(a, by=2)
        second = super(Derived, self).scaled(a)  # noqa: UP008
        return first + second + super().halved

    @classmethod
    def made(cls, a: Any) -> Any:
        return super().made(a) * 2


def test_super() -> None:
    one = Derived()
    check(lambda a: one.scaled(a), x())
    check(lambda a: Derived.made(a), x())


def test_a_function_by_the_name_of_super() -> None:
    namespace: dict[str, Any] = {"Base": Base}
    text = """
def super(*arguments):
    return Base()

class Own(Base):
    scale = 7

    def scaled(self, a, by=1):
        return super().scaled(a) + super(Own, self).scaled(a)
"""
    exec(compile(text, "<own>", "exec"), namespace)
    one = namespace["Own"]()
    check(lambda a: one.scaled(a), x(), breaks=None)


def test_what_is_thrown_into_yield_from_reaches_the_inner_generator() -> None:
    def inner(log: list[Any]) -> Any:
        try:
            yield 1
        except ValueError as error:
            log.append(str(error))
            yield 2
        return 3

    def outer(log: list[Any]) -> Any:
        got = yield from inner(log)
        log.append(got)
        yield got

    def f(a: Any) -> Any:
        log: list[Any] = []
        made = outer(log)
        items = [next(made), made.throw(ValueError("thrown")), next(made)]
        return a * sum(items), log

    check(f, x(), breaks=None)


def test_a_stop_iteration_does_not_end_a_generator() -> None:
    def numbers() -> Any:
        yield 1
        next(iter(()))

    def f(a: Any) -> Any:
        made = numbers()
        first = next(made)
        try:
            next(made)
        except RuntimeError as error:
            return a * first, str(error), type(error.__cause__)
        return None

    check(f, x())


def test_handlers_that_nobody_wrote_are_not_seen() -> None:
    def numbers(n: int) -> Any:
        for i in range(n):
            yield [j for j in range(i)]

    listing = decode(numbers.__code__)
    assert all(one.leaves for one in listing.handlers)
    assert all(listing.handler_at(one.index) is None for one in listing.instructions)

    def careful() -> Any:
        try:
            yield 1
        finally:
            print()

    listing = decode(careful.__code__)
    at = next(one.index for one in listing.instructions if one.name == "YIELD_VALUE")
    assert listing.handler_at(at) is not None


def test_conditions_that_are_kept() -> None:
    def f(a: Any, b: Any) -> Any:
        chosen = b or a
        both = b and a
        nothing = None if b is None else a
        if not b:
            chosen = chosen + 1
        return chosen, both, nothing, 1 < len(a.shape) < 3

    check(f, x(), None)
    check(f, x(), [])
    check(f, x(), 3)


def test_while_on_data_shares_the_segments_of_its_rounds() -> None:
    def f(a: Any) -> Any:
        steps = 0
        while a.sum() < 100:
            a = a * 2 + 1
            steps += 1
        return a / 2, steps

    compiled = check(f, torch.ones(3), breaks=None)
    assert len(compiled.graphs) <= 3


def test_formats() -> None:
    def f(a: Any, name: str) -> Any:
        n = a.shape[0]
        return a, f"{n:03d} {name!r:>8} {name!s} {name!a}{n}", f"{name:{n}}|"

    check(f, x(), "é")


def test_keywords_of_methods_and_functions() -> None:
    def g(a: Any, *rest: Any, by: Any = 1, **more: Any) -> Any:
        return a * by + len(rest) + len(more)

    def f(a: Any) -> Any:
        given = {"by": 2, "z": 3}
        first = g(a, 1, by=3) + a.sum(dim=0, keepdim=True)
        return first, g(*[a, 2], **given), seen(a).mean(dim=0)

    check(f, x(), breaks=None)


def test_defaults_closures_and_annotations_of_functions_made_inside() -> None:
    def f(a: Any) -> Any:
        def g(b: Any, c: int = 2, *, d: float = 3.0) -> Any:
            return a * b + c + d

        seen(a)
        return g(a), g(1, 2, d=4), g.__defaults__, sorted(g.__annotations__)

    check(f, x(), breaks=None)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with 3.12")
def test_type_parameters() -> None:
    text = """
def f(a):
    def g[T](b: T, c: int = 2) -> T:
        return b * c + a

    class Pair[T]:
        scale = 2

        def times(self, b: T) -> T:
            return b * self.scale

    type Alias[T] = list[T]
    made = [Pair().times(i) for i in range(3)]
    return g(a), g.__name__, len(g.__type_params__), made, Alias.__name__, a + 1
"""
    namespace: dict[str, Any] = {}
    exec(compile(text, "<generic>", "exec"), namespace)
    compiled = check(namespace["f"], x(), breaks=None)
    assert {one.number for one in compiled.breaks} >= {42}


def test_a_loop_over_a_generator_that_is_left_natively() -> None:
    """An instruction that has run often enters the generator's frame by itself."""

    def numbers(count: int) -> Any:
        yield from range(count)

    def f(a: Any, items: Any) -> Any:
        total = 0
        for i in items:
            total += i % 3
        return a * total

    compiled, value = compile_eager(f), x()
    for _ in range(3):
        assert same(compiled(value, numbers(3000)), f(value, numbers(3000)))


def test_fields_of_functions_that_are_not_known() -> None:
    """`__builtins__` was taken for a method of the function."""

    def f(a: Any) -> Any:
        def g() -> Any:
            return a

        found: Any = g.__builtins__  # type: ignore[attr-defined]
        return g() * 2, type(found).__name__, "print" in found

    check(f, x(), breaks=None)
