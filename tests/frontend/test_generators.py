"""Generators: laziness, send, throw, close, `yield from`, half-consumed and returned."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

from tests.frontend.driver import check, compile_eager, same


def x() -> torch.Tensor:
    return torch.randn(3)


def test_a_generator_expression() -> None:
    check(lambda a: sum(a * i for i in range(4) if i % 2), x())


def test_laziness_with_effects() -> None:
    def numbers(log: list[Any]) -> Any:
        log.append("start")
        for i in range(3):
            log.append(i)
            yield i
        log.append("end")

    def f(a: Any) -> Any:
        log: list[Any] = []
        for i in numbers(log):
            log.append(f"got {i}")
            a = a + i
        return a, log

    check(f, x())


def test_send_throw_close_and_finally() -> None:
    def talk(log: list[Any]) -> Any:
        try:
            got = yield 1
            log.append(got)
            try:
                yield 2
            except ValueError as error:
                log.append(str(error))
                yield 3
        finally:
            log.append("finally")

    def f(a: Any) -> Any:
        log: list[Any] = []
        generator = talk(log)
        first = next(generator)
        second = generator.send("sent")
        third = generator.throw(ValueError("thrown"))
        generator.close()
        generator.close()
        return a * first + second * third, log, next(generator, "over")

    check(f, x())


def test_yield_from_with_a_value() -> None:
    def inner(a: Any) -> Any:
        yield a
        yield a + 1
        return 10

    def outer(a: Any) -> Any:
        value = yield from inner(a)
        yield from (a, a * 2)
        yield a * value

    check(lambda a: [*outer(a)], x())
    check(lambda a: sum(outer(a)), x())


def test_two_generators_at_once() -> None:
    def count(n: int) -> Any:
        i = 0
        while i < n:
            yield i
            i += 1

    def f(a: Any) -> Any:
        for i, j in zip(count(3), count(5), strict=False):
            a = a + i * j
        for i, (j, k) in enumerate(zip(count(2), (7, 8), strict=False)):
            a = a * (i + j + k)
        return a

    check(f, x())


def test_stop_iteration_inside_is_a_runtime_error() -> None:
    def bad() -> Any:
        yield 1
        raise StopIteration

    def f(a: Any) -> Any:
        try:
            for i in bad():
                a = a + i
        except RuntimeError as error:
            return a, str(error), type(error.__cause__)
        return a

    check(f, x())


def test_map_filter_lazily() -> None:
    def f(a: Any) -> Any:
        log: list[Any] = []

        def double(v: Any) -> Any:
            log.append("double")
            return v * 2

        for v in map(double, [a, a + 1]):
            log.append("loop")
            a = a + v
        return a, log, list(filter(None, [0, 1, 2])), [*map(lambda p, q: p + q, (1, 2), (3, 4))]

    check(f, x())


def test_half_consumed_and_returned() -> None:
    def f(a: Any) -> Any:
        generator = (a * i for i in range(5))
        next(generator)
        return next(generator), generator

    compiled = compile_eager(f)
    a = x()
    for _ in range(2):
        first, rest = compiled(a)
        expected_first, expected_rest = f(a)
        assert same(first, expected_first)
        assert same(list(rest), list(expected_rest))


def test_a_generator_function_itself() -> None:
    def f(a: Any, n: int) -> Any:
        for i in range(n):
            yield a + i

    a = x()
    assert same(list(compile_eager(f)(a, 3)), list(f(a, 3)))


def test_a_generator_that_lives_over_a_break(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        total = a
        for b in (a * i for i in range(4)):
            print("item")
            total = total + b
        return total

    check(f, x(), breaks=None)
    assert capsys.readouterr().out == "item\n" * 16


def test_a_break_inside_a_generator(capsys: pytest.CaptureFixture[str]) -> None:
    def parts(a: Any, log: list[Any]) -> Any:
        for i in range(3):
            log.append(i)
            b = a * i
            print("inside")
            yield b

    def f(a: Any) -> Any:
        log: list[Any] = ["before"]
        total = a + 1
        for b in parts(a, log):
            total = total + b
        return total, log

    check(f, x(), breaks=None)
    assert capsys.readouterr().out == "inside\n" * 12


def test_an_exception_leaves_a_generator() -> None:
    def parts() -> Any:
        yield 1
        raise KeyError("gone")

    def f(a: Any) -> Any:
        for i in parts():
            a = a + i
        return a

    compiled = compile_eager(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="gone"):
            compiled(x())


def test_stop_iteration_leaves_the_function() -> None:
    def parts() -> Any:
        return 5
        yield

    def f(a: Any) -> Any:
        b = a + 1
        next(parts())
        return b

    with pytest.raises(StopIteration) as caught:
        compile_eager(f)(x())
    assert caught.value.value == 5


NAMED: dict[str, Any] = {
    "asked": lambda make: lambda a: (make().__name__, make().__qualname__, a + 1),
    "shown": lambda make: lambda a: (repr(make()).partition(" at ")[0], a + 1),
    "not started": lambda make: lambda a: (make(), a + 1),
    "begun": lambda make: lambda a: (_begun(make()), a + 1),
    "a class": lambda make: lambda a: (type(make()).__name__, a + 1),
    "behind": lambda make: lambda a: (_behind(make(), a).__name__, a + 1),
}


def _begun(made: Any) -> Any:
    next(made)
    return made


def _behind(made: Any, a: Any) -> Any:
    next(made)
    print(end="")
    return made


@pytest.mark.parametrize("name", ["__name__", "__qualname__"])
@pytest.mark.parametrize("way", NAMED)
def test_a_generator_has_the_name_that_its_function_has_now(way: str, name: str) -> None:
    def parts() -> Any:
        yield 1
        yield 2

    def names(answer: Any) -> list[Any]:
        told = (getattr(one, "__name__", one) for one in answer[:-1])
        return [*told, *(getattr(one, "__qualname__", one) for one in answer[:-1])]

    function = NAMED[way](parts)
    compiled = compile_eager(function)
    for given in (None, "renamed", "again", None):
        setattr(parts, name, given or getattr(parts.__code__, "co_" + name.strip("_")))
        for _ in range(2):
            assert names(compiled(x())) == names(function(x()))
    assert compiled.log.snapshot("fallback") == ()


def test_a_function_that_is_named_as_written_is_followed() -> None:
    def parts() -> Any:
        yield 1
        yield 2

    def f(a: Any) -> Any:
        for i in parts():
            a = a + i
        return a

    assert not check(f, x()).breaks


def _pairs(log: list[Any], odd: Any) -> Any:
    for number in range(4):
        log.append(number)
        yield odd if odd is not None and number == 2 else (number % 3, number)


class _Counting(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("dict's own methods pass by it")


def _refilled(owner: Any, given: Any) -> Any:
    owner.update(given, last=5)
    return owner


FILLED = {
    "dict": lambda given: dict(given, last=5),
    "dict of zip": lambda given: dict(zip("abcd", given, strict=False)),
    "dict of enumerate": lambda given: dict(enumerate(given)),
    "OrderedDict": lambda given: collections.OrderedDict(given, last=5),
    "defaultdict": lambda given: collections.defaultdict(list, given),
    "update": lambda given: _refilled({1: "before", "last": 0}, given),
    "update of a subclass": lambda given: _refilled(_Counting(), given),
}


@pytest.mark.parametrize("way", FILLED)
def test_a_dictionary_of_a_generator(way: str) -> None:
    def f(a: Any) -> Any:
        log: list[Any] = []
        return FILLED[way](_pairs(log, None)), log, a + 1

    check(f, x())


@pytest.mark.parametrize("odd", ["ab", [7, 8], (1, 2, 3), 3, "abc"], ids=str)
@pytest.mark.parametrize("way", ["dict", "update", "defaultdict"])
def test_what_is_no_pair(way: str, odd: Any) -> None:
    """Pairs of other kinds; errors, and what was done before them."""

    def f(a: Any, filled: Any) -> Any:
        log: list[Any] = []
        try:
            found = filled(_pairs(log, odd))
        except (TypeError, ValueError) as error:
            found = str(error)
        return found, log, a + 1

    compiled = compile_eager(f)
    for _ in range(2):
        a = x()
        assert same(compiled(a, FILLED[way]), f(a, FILLED[way]))


def test_a_subclass_made_of_a_generator_is_a_break() -> None:
    """Its `__init__` would have to wait for the generator."""

    def f(a: Any) -> Any:
        return _Counting(_pairs([], None)), a + 1

    (one,) = {one.number for one in check(f, x(), breaks=None).breaks}
    assert one == 12
