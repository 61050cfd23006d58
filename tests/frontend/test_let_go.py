"""What nobody holds any more is gone when a native step looks: weak references, `gc.collect`.

Each program drops something in one way and then looks, natively; the collector is off, so that what
is seen is who holds what.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import windfall


class Thing:
    def __init__(self) -> None:
        self.inner: Any = None


@windfall.disable
def alive(references: list[Any]) -> list[bool]:
    return [one() is not None for one in references]


def _giving(thing: Any) -> Iterator[int]:
    yield 1
    yield 2
    str(thing)


def made_on_the_way(x: torch.Tensor) -> Any:
    """Two objects that only the arguments of a call held."""

    @contextlib.contextmanager
    def entered(a: Any, b: Any) -> Iterator[None]:
        a, b = weakref.ref(a), weakref.ref(b)
        seen.append(alive([a, b]))
        yield

    seen: list[Any] = []
    with entered(Thing(), b=Thing()):
        pass
    return seen


def a_generator_that_is_deleted(x: torch.Tensor) -> Any:
    thing = Thing()
    reference = weakref.ref(thing)
    given = _giving(thing)
    next(given)
    del thing
    before = alive([reference])
    del given
    return before, alive([reference])


def an_object_that_holds_another(x: torch.Tensor) -> Any:
    outer, inner = Thing(), Thing()
    outer.inner = inner
    reference = weakref.ref(inner)
    del inner
    before = alive([reference])
    del outer
    return before, alive([reference])


def references_that_are_counted(x: torch.Tensor) -> Any:
    thing = Thing()
    proxy = weakref.proxy(thing)
    first = weakref.ref(thing)
    second = weakref.ref(thing)
    counts = [first is second, weakref.getweakrefcount(thing)]
    del proxy
    return counts, weakref.getweakrefcount(thing)


def a_reference_that_calls_back(x: torch.Tensor) -> Any:
    seen: list[str] = []

    def gone(reference: Any) -> None:
        seen.append("gone")

    thing = Thing()
    kept = weakref.ref(thing, gone)  # noqa: F841  (nobody reads it, but it calls)
    windfall.graph_break()
    del thing
    windfall.graph_break()
    return list(seen)


def an_object_that_a_write_ends(x: torch.Tensor) -> Any:
    """By a cell, an attribute, an item; each held it alone."""

    def seen_from_inside() -> Any:
        return held

    held: Any = Thing()
    holder, items = Thing(), [Thing()]
    holder.inner = Thing()
    references = [weakref.ref(held), weakref.ref(holder.inner), weakref.ref(items[0])]
    windfall.graph_break()
    first, second, third = references
    held = None
    answers = [first() is None]
    holder.inner = None
    answers.append(second() is None)
    items.clear()
    answers.append(third() is None)
    return answers, seen_from_inside() is None


def an_object_that_one_of_the_program_holds(x: torch.Tensor) -> Any:
    """The values of a capture must not wait for the collector, nor what they stand for."""
    thing = Thing()
    reference = weakref.ref(thing)
    windfall.graph_break()
    holder = Thing()
    holder.inner = thing
    error = ValueError("holds it")
    error.held = thing  # type: ignore[attr-defined]
    seen = alive([reference])
    del thing, holder, error
    return seen, alive([reference])


def references_of_a_frame(x: torch.Tensor) -> Any:
    thing = Thing()
    windfall.graph_break()
    before = sys.getrefcount(thing)
    other = thing
    after = sys.getrefcount(thing)
    del other
    return after - before, sys.getrefcount(thing) - before


@pytest.mark.parametrize(
    "program",
    [
        made_on_the_way, a_generator_that_is_deleted, an_object_that_holds_another,
        references_that_are_counted, a_reference_that_calls_back, references_of_a_frame,
        an_object_that_a_write_ends, an_object_that_one_of_the_program_holds,
    ],
)  # fmt: skip
def test_what_is_dropped_is_gone(program: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2)
    gc.collect()
    gc.disable()
    try:
        compiled = windfall.compile(program, backend="eager", options={"strict": True})
        assert [compiled(x), compiled(x)] == [program(x), program(x)]
    finally:
        gc.enable()


def test_deleting_a_tensor_or_a_module_is_no_break() -> None:
    layer = torch.nn.Linear(2, 2)

    def program(x: torch.Tensor, layer: Any) -> Any:
        windfall.graph_break()
        y = layer(x)
        del x, layer
        return y + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1, 2)
    assert torch.equal(compiled(x, layer), program(x, layer))
    assert len(windfall.explanation(compiled).breaks) == 1


def test_an_exception_that_is_handled_outside_of_a_generator_is_none_of_its_own() -> None:
    def giving(seen: list[Any]) -> Iterator[int]:
        try:
            raise ValueError("inside")
        except ValueError:
            yield 1
        seen.append(sys.exc_info()[0])
        yield 2
        seen.append(sys.exc_info()[0])

    def program(x: torch.Tensor) -> Any:
        seen: list[Any] = []
        given = giving(seen)
        try:
            raise IndexError
        except IndexError:
            next(given)
        next(given)
        try:
            raise KeyError
        except KeyError:
            next(given, None)
        return seen, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))


class Asked:
    """It fails whoever asks it for its class, as a weak proxy does whose object is gone."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ReferenceError("asked")


@pytest.mark.parametrize("sizes", [[3, 4, 5], list(range(40))])
def test_objects_that_wait_are_not_asked_what_they_are(sizes: list[int]) -> None:
    def program(odd: Any, x: torch.Tensor) -> Any:
        thing = Thing()
        proxy = weakref.proxy(thing)
        del thing
        held = [odd, proxy]
        for size in sizes:
            windfall.graph_break()
            x = x + torch.ones(size).sum() if size % 2 else x
        for _ in range(600):
            alive([])
        return type(proxy) is weakref.ProxyType, len(held), type(odd) is Asked, x

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    odd, x = Asked(), torch.ones(1)
    assert str(compiled(odd, x)) == str(program(odd, x))


def _rebound() -> Any:
    class Made:
        pass

    reference = weakref.ref(Made)
    Made = None  # type: ignore[assignment,misc]
    gc.collect()
    return reference() is None


def _called_back() -> Any:
    class Made:
        pass

    told: list[Any] = []
    reference = weakref.ref(Made, told.append)
    Made = None  # type: ignore[assignment,misc]
    gc.collect()
    return told == [reference]


def _with_an_instance() -> Any:
    class Made:
        pass

    one: Any = Made()
    reference = weakref.ref(Made)
    Made = one = None  # type: ignore[assignment,misc]
    gc.collect()
    return reference() is None, one


def _with_a_derived_one() -> Any:
    class Made:
        pass

    class Derived(Made):
        pass

    reference = weakref.ref(Made)
    Made = Derived = None  # type: ignore[assignment,misc]  # noqa: F811
    gc.collect()
    return reference() is None, Derived


def _deleted() -> Any:
    class Made:
        pass

    reference = weakref.ref(Made)
    del Made
    gc.collect()
    return reference() is None


@pytest.mark.parametrize(
    "program", [_rebound, _called_back, _with_an_instance, _with_a_derived_one, _deleted]
)
def test_a_class_that_is_watched_goes_where_it_is_let_go(program: Callable[[], Any]) -> None:
    compiled = windfall.compile(program)
    for _ in range(2):
        assert compiled() == program()
