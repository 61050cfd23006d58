"""Rules of the language that CPython's own tests found broken in compiled code, one program each.

A program returns something that can be compared; compiled, it must answer what it answers plain.
"""

from __future__ import annotations

import abc
import collections
import gc
import itertools
import re
import sys
import types
import weakref
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import windfall
from tests.frontend.ways import one_version, table
from tests.golden import Golden

PROGRAMS: list[Callable[[], Any]] = []


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS.append(function)
    return function


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)


def native() -> None:
    """A break: what lives is rebuilt."""
    print(end="")


# ------------------------------------------------------------------------------- special methods


class BoolNone:
    __bool__ = None


class LengthNone:
    __len__ = None


class ContainsNone:
    __contains__ = None

    def __iter__(self) -> Any:
        return iter([1])


class IterNone:
    __iter__ = None

    def __getitem__(self, index: int) -> int:
        return [1][index]


class Added:
    def __add__(self, other: Any) -> str:
        return "add"

    def __iadd__(self, other: Any) -> Any:
        return self

    def __radd__(self, other: Any) -> str:
        return "radd"


class AddedNone(Added):
    __iadd__ = None  # type: ignore[assignment]


class AddedInherits(Added):
    pass


class AddedReflects(Added):
    def __radd__(self, other: Any) -> str:
        return "radd of its own"


class Asked(metaclass=abc.ABCMeta):  # noqa: B024 (to register with)
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __eq__(self, other: Any) -> Any:
        self.log.append("base")
        return NotImplemented

    def __le__(self, other: Any) -> Any:
        self.log.append("base")
        return NotImplemented


@Asked.register
class Registered:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __eq__(self, other: Any) -> Any:
        self.log.append("registered")
        return NotImplemented

    def __ge__(self, other: Any) -> Any:
        self.log.append("registered")
        return True


@program
def special_methods_that_are_none() -> Any:
    def add() -> Any:
        value = AddedNone()
        value += 1
        return value

    return (
        outcome(lambda: bool(BoolNone())),
        outcome(lambda: not BoolNone()),
        outcome(lambda: bool(LengthNone())),
        outcome(lambda: 1 in ContainsNone()),
        outcome(lambda: [one for one in IterNone()]),
        outcome(add),
    )


@program
def a_reflected_method_goes_first_only_if_it_is_the_subclasses_own() -> Any:
    return Added() + AddedInherits(), Added() + AddedReflects(), AddedReflects() + Added()


@program
def registering_a_class_changes_no_order() -> Any:
    log: list[str] = []
    return Asked(log) == Registered(log), Asked(log) <= Registered(log), log


# ------------------------------------------------------------------------------------ exceptions


class Says(type):
    def __subclasscheck__(cls, other: type) -> bool:
        return True


class Everything(Exception, metaclass=Says):
    pass


class Slotted(Exception):
    __slots__ = ("note",)


@program
def what_is_no_exception_cannot_be_caught() -> Any:
    class Plain:
        pass

    def catch(kinds: Any) -> str:
        try:
            raise ValueError
        except kinds:
            return "caught"

    return [outcome(catch, kinds) for kinds in (Plain, Plain(), (Plain,), ((ValueError,),), 3)]


@program
def exceptions_are_matched_by_their_mro() -> Any:
    try:
        try:
            raise ValueError
        except Everything:
            return "asked the metaclass"
    except ValueError:
        return "by the MRO"


@program
def exceptions_that_read_their_arguments() -> Any:
    def missing() -> Any:
        try:
            raise OSError(2, "x", "file")
        except FileNotFoundError as error:
            return error.errno, error.filename, error.args

    made = OSError(2, "x")
    written = OSError("x")
    written.errno = 3
    native()
    return (
        missing(),
        type(made).__name__,
        outcome(UnicodeDecodeError),
        outcome(BaseExceptionGroup),
        outcome(lambda: ExceptionGroup("", [])),
        (written.errno, written.args),
        (SystemExit(3).code, StopIteration(3).value, ImportError("m").msg),
    )


@program
def slots_of_exceptions() -> Any:
    made = Slotted(1)
    made.note = 3
    native()
    return made.note, made.args


@program
def an_exception_that_was_there_before_is_raised() -> Any:
    try:
        raise ValueError(1).with_traceback(None)
    except ValueError as error:
        assert error.__traceback__ is not None
        return error.__traceback__.tb_next, error.__traceback__.tb_frame.f_code.co_name


class Empty:
    pass


@program
def what_is_missing_is_noted_on_the_error() -> Any:
    owner = Empty()
    try:
        print(owner.missing)  # type: ignore[attr-defined]
    except AttributeError as error:
        first = error.name, error.obj is owner
    try:
        print(sys.missing)  # type: ignore[attr-defined]
    except AttributeError as error:
        native()
        return first, error.name, error.obj is sys, str(error)


# ------------------------------------------------------------------------------ classes, objects


@program
def classes_made_by_calls_know_their_module() -> Any:
    made = type("Made", (), {})
    pair = collections.namedtuple("pair", "x y")
    return made.__module__, pair.__module__, made.__qualname__, pair(1, 2)


@program
def names_of_classes_change() -> Any:
    made = type("Made", (), {"__doc__": "x"})
    found = []
    for text in ("one", "two", "three"):
        made.__doc__ = made.__name__ = made.__qualname__ = made.__module__ = text
        found.append((made.__doc__, made.__name__, made.__qualname__, made.__module__))
    return found


@program
def a_slot_that_is_not_set() -> Any:
    class Slots:
        __slots__ = ("one",)

    made = Slots()

    def drop() -> None:
        del made.one

    first = outcome(drop), outcome(lambda: made.one)
    made.one = 1
    drop()
    return first, outcome(drop)


class NoEnter:
    def __exit__(self, *details: Any) -> None: ...


class NoExit:
    def __enter__(self) -> None: ...


@program
def what_is_no_context_manager() -> Any:
    def enter(manager: Any) -> None:
        with manager:
            pass

    return outcome(enter, NoEnter()), outcome(enter, NoExit()), outcome(enter, 3)


class Counted:
    def __new__(cls, number: int) -> Counted:
        made = object.__new__(cls)
        made.number = number
        return made

    number: int


@program
def an_object_is_rebuilt_past_its_own_new() -> Any:
    made = Counted(3)
    native()
    return made.number


class Texts(dict[Any, Any]):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)


class Named(type):
    def label(cls) -> Any:
        return super().__name__


class Labelled(metaclass=Named):
    def own(self) -> Any:
        return super().__class__.__name__, super().__thisclass__


@program
def super_of_what_is_no_plain_object() -> Any:
    held = weakref.WeakValueDictionary[int, Any]()
    value = Empty()
    held[1] = value
    made = Texts({1: 2})
    made.__init__({3: 4})  # type: ignore[misc]
    return len(held), dict(made), Labelled.label(), Labelled().own()


# ------------------------------------------------------------- containers that change meanwhile


def _went_round(make: Callable[[dict[int, int]], Any], change: Callable[..., Any]) -> Any:
    """What a loop gives over a dict that changes, and how it ends."""
    held = {1: 1, 2: 2}
    seen: list[Any] = []
    try:
        for item in make(held):
            seen.append(item)
            change(held, len(seen))
            if len(seen) > 10:
                break
    except RuntimeError as error:
        seen.append(str(error))
    return seen, held


def _grow(held: dict[int, int], count: int) -> None:
    held[count + 10] = 0


def _shrink(held: dict[int, int], count: int) -> None:
    held.pop(count, None)


def _empty(held: dict[int, int], count: int) -> None:
    held.clear()


def _move(held: dict[int, int], count: int) -> None:
    held[count] = held.pop(count, 0)


def _exchange(held: dict[int, int], count: int) -> None:
    held.pop(next(iter(held)))
    held[count + 10] = 0


def _write(held: dict[int, int], count: int) -> None:
    held[1] = count


def _grow_behind_a_break(held: dict[int, int], count: int) -> None:
    native()
    held[count + 10] = 0


@program
def dicts_that_change_while_they_are_iterated() -> Any:
    def pairs(held: dict[int, int]) -> Any:
        return zip(held, held.values())  # noqa: B905 (another rule)

    def passed_on(held: dict[int, int]) -> Any:
        return (key for key in held)

    ways = (iter, dict.keys, dict.values, dict.items, enumerate, pairs, passed_on)
    changes = (_grow, _shrink, _empty, _move, _exchange, _write, _grow_behind_a_break)
    return [_went_round(way, change) for way in ways for change in changes]


@program
def comprehensions_of_what_they_change() -> Any:
    held, one, members = {1: 1, 2: 2}, {1: 1}, {1, 2}
    return (
        outcome(lambda: [held.pop(key) for key in held]),
        outcome(lambda: [one.pop(key) for key in one]),
        outcome(lambda: [members.add(key + 10) for key in members]),
        outcome(lambda: [members.discard(key) for key in set(members)]),
        held,
        one,
        members,
    )


@program
def an_iterator_that_failed_goes_on_failing() -> Any:
    held = {1: 1, 2: 2}
    found = iter(held)
    first = next(found)
    held[3] = 3
    second = outcome(next, found)
    del held[3]
    third = outcome(next, found)
    native()
    return first, second, third, outcome(next, found), type(found).__name__


@program
def ordered_dicts_that_change() -> Any:
    def go(change: Callable[[Any], Any]) -> Any:
        held = collections.OrderedDict({1: 1, 2: 2})
        seen = []
        for key in held:
            seen.append(key)
            change(held)
        return seen

    return (
        outcome(go, lambda held: held.move_to_end(1)),
        outcome(go, lambda held: held.update({5: 5})),
        outcome(go, lambda held: held.update({1: 5})),
    )


@program
def names_that_are_missing_are_noted_on_the_error() -> Any:
    def free() -> Any:
        return later

    try:
        print(missing)  # type: ignore[name-defined]
    except NameError as error:
        first = error.name, str(error)
    try:
        free()
    except NameError as error:
        native()
        return first, error.name, str(error)
    later = 1


@program
def operands_of_c_have_their_say() -> Any:
    decimal, fraction = Decimal(1), Fraction(1)
    proxy = types.MappingProxyType(Texts({1: 2}))
    return decimal == fraction, fraction == decimal, decimal != fraction, proxy == Texts({1: 2})


@program
def class_methods_around_descriptors() -> Any:
    class Chained:
        @classmethod
        def plain(cls) -> Any:
            return cls.__name__

        again = classmethod(plain)  # type: ignore[type-var]

        @classmethod
        @property
        def label(cls) -> str:
            return cls.__name__

    # (From 3.13 on, class methods ask no descriptor: a method, of another class in each call.)
    found = outcome(lambda: Chained().label)
    return Chained.plain(), outcome(lambda: Chained.again()), str(found)


@program
def classes_in_classes() -> Any:
    class Outer:
        class Reads:
            def __init__(self, read: Callable[[Any], Any]) -> None:
                self.read = read

            def __get__(self, owner: Any, kind: Any = None) -> Any:
                return self.read(owner)

        def number(self) -> int:
            return 3

        value = Reads(number)

    return Outer().value, Outer.Reads.__qualname__, Outer.__mro__ == (Outer, object)


@program
def class_methods_of_c_get_the_class() -> Any:
    class Refused(Exception):
        pass

    class Refuses(dict[Any, Any]):
        def __init__(self) -> None:
            raise Refused

    class Hexadecimal(float):
        pass

    found = Hexadecimal.fromhex("0x1p0")
    return outcome(Refuses.fromkeys, [1]), type(found) is Hexadecimal, found


@program
def unions_are_of_the_derived_kind() -> Any:
    counts = collections.defaultdict(int, {1: 1})
    ordered = collections.OrderedDict({1: 1})
    found = (counts | {2: 2}, {2: 2} | counts, ordered | {2: 2}, {2: 2} | ordered)
    return [(type(one).__name__, one, list(one)) for one in found], found[1].default_factory


@program
def tuples_with_nothing_added_are_the_same() -> Any:
    held: tuple[int, ...] = (1, 2)
    nothing: tuple[int, ...] = ()
    return held * 1 is held, held + nothing is held, nothing + held is held, held[:] is held


@program
def frames_of_tracebacks_stand_in_their_lines() -> Any:
    def inner() -> None:
        raise ValueError

    try:
        inner()
    except ValueError as error:
        traceback, lines = error.__traceback__, []
        while traceback is not None:
            lines.append((traceback.tb_lineno, traceback.tb_frame.f_code.co_name))
            traceback = traceback.tb_next
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        last = error.__traceback__.tb_next
        return lines, last.tb_frame.f_lineno - last.tb_lineno


@program
def a_result_that_nobody_keeps_dies_at_once() -> Any:
    DEATHS.clear()
    Dies()
    return list(DEATHS)


class Indexed:
    """Only the old protocol: asked index by index, until IndexError or StopIteration."""

    def __init__(self, end: type[Exception], log: list[int]) -> None:
        self.end = end
        self.log = log

    def __getitem__(self, index: int) -> int:
        self.log.append(index)
        if index > 1:
            raise self.end
        return index


@program
def the_old_protocol_is_asked_item_by_item() -> Any:
    log: list[int] = []
    made = enumerate(Indexed(ValueError, log))
    before = list(log)
    first = next(made)
    ends = (IndexError, StopIteration, ValueError)
    found = [outcome(lambda end=end: [one for one in Indexed(end, log)]) for end in ends]
    return before, first, found, outcome(list, zip(Indexed(IndexError, log), "abc")), log  # noqa: B905


@program
def attributes_that_type_keeps_for_itself() -> Any:
    class Poses:
        @property
        def __class__(self) -> Any:  # type: ignore[override]
            return dict

        __bases__ = property(lambda self: (int,))

    return Poses().__bases__, type(Poses()) is Poses, Poses.__bases__


class Lends:
    __slots__ = ("lent",)


class Borrows:
    __slots__ = ("own",)
    borrowed = Lends.lent


@program
def slots_of_another_class() -> Any:
    made = Borrows()
    return outcome(setattr, made, "borrowed", 1), outcome(lambda: made.borrowed)


@program
def iterators_of_every_kind_of_dict_live_on() -> Any:
    made = [
        {1: [1], 2: [2]},
        collections.OrderedDict({1: [1], 2: [2]}),
        collections.defaultdict(list, {1: [1], 2: [2]}),
        Texts({1: [1], 2: [2]}),
        collections.Counter("aab"),
    ]
    iterators = [iter(one.items()) for one in made]
    firsts = [next(one) for one in iterators]
    native()
    return firsts, [list(one) for one in iterators], [next(iter(one)) for one in made]


@program
def a_deque_that_changed_behind_a_break() -> Any:
    held = collections.deque("ab")
    found = iter(held)
    held.pop()
    native()
    return outcome(next, found)


DEATHS: list[int] = []


class Dies:
    def __del__(self) -> None:
        DEATHS.append(1)


@program
def objects_die_when_they_are_deleted() -> Any:
    DEATHS.clear()

    class DiesToo:
        def __del__(self) -> None:
            DEATHS.append(2)

    one, two = Dies(), DiesToo()
    before = list(DEATHS)
    del one
    del two
    return before, list(DEATHS)


def caller() -> tuple[str, str]:
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_globals["__name__"]


@program
def frames_of_callers() -> Any:
    return caller()


class Watched:
    pass


@program
def a_watched_variable_lives_until_the_frame_drops_it() -> Any:
    held = Watched()
    reference = weakref.ref(held)
    native()
    listed = [Watched()]
    inner = weakref.ref(listed[0])
    native()
    return reference() is None, inner() is None


@program
def a_watched_variable_dies_where_it_is_overwritten_or_left() -> Any:
    held: Any = Watched()
    reference = weakref.ref(held)
    held = None

    def left() -> Any:
        inside = Watched()
        return weakref.ref(inside)

    return reference() is None, left()() is None


@program
def containers_in_cycles_are_collected() -> Any:
    class Local:
        cycle: Any

    held = Local()
    reference = weakref.ref(held)
    container = {held, 1}
    held.cycle = iter(container)
    del held, container
    gc.collect()
    return reference() is None


@program
def iterators_of_constants_are_fresh() -> Any:
    code = native.__code__
    return [next(itertools.islice(code.co_positions(), 2, None)) for _ in range(3)]


@program
def methods_of_c_are_bound_with_their_class() -> Any:
    bound = PATTERN.match
    native()
    return bound("xa") is None, type([].__len__).__name__, type("".join).__name__


@program
def zip_strict_is_lazy() -> Any:
    pairs = zip((1, 2, 3), "ab", strict=True)
    return type(pairs) is zip, next(pairs), next(pairs), outcome(next, pairs)


@program
def initialisers_return_none() -> Any:
    class Odd:
        def __init__(self) -> Any:
            return 10

    return outcome(Odd)


@program
def causes_may_have_code() -> Any:
    class Odd(Exception):
        def __init__(self) -> None:
            raise RuntimeError("made")

    try:
        raise IndexError from Odd
    except (RuntimeError, IndexError) as error:
        return type(error).__name__


@program
def contexts_have_no_cycle() -> Any:
    try:
        try:
            raise NameError("first")
        except NameError as first:
            try:
                _ = 1 / 0
            except ZeroDivisionError:
                raise first  # noqa: B904
    except NameError as error:
        assert error.__context__ is not None
        return type(error.__context__).__name__, error.__context__.__context__ is None


@program
def classes_made_inside_have_their_methods_when_iterated() -> Any:
    class Counting:
        def __init__(self) -> None:
            self.left = 2

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    pairs = zip("abc", Counting(), strict=False)
    native()
    return list(pairs)


@program
def proxies_say_what_they_are() -> Any:
    class Proxy:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattribute__(self, name: str) -> Any:
            if name == "_inner":
                return object.__getattribute__(self, name)
            return getattr(self._inner, name)

    proxy = Proxy(Watched())
    return isinstance(proxy, Watched), isinstance(proxy, Proxy), isinstance(proxy, int)


@program
def frozen_sets_are_themselves() -> Any:
    frozen = frozenset([1])
    return frozenset(frozen) is frozen, frozen.copy() is frozen, hasattr(frozen, "add")


@program
def ordered_dicts_show_themselves() -> Any:
    return repr(collections.OrderedDict([(1, 2)])), repr([collections.OrderedDict()])


@program
def fields_of_exceptions_are_guarded_by_the_program() -> Any:
    group = ExceptionGroup("group", [ValueError()])
    return outcome(setattr, group, "exceptions", ())


def raises(number: int) -> float:
    return (
        number
        + 1 / (number - 1)
    )  # fmt: skip


def passes_on(number: int) -> float:
    return raises(number)


@program
def tracebacks_have_places() -> Any:
    try:
        passes_on(1)
    except ZeroDivisionError as error:
        trace, found = error.__traceback__, []
        while trace is not None:
            code = trace.tb_frame.f_code
            place = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None))
            found.append((code.co_qualname, trace.tb_lineno, code.co_firstlineno, place))
            trace = trace.tb_next
        return found


PATTERN = re.compile("a")


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda one: one.__name__)
def test_answers_as_plain(function: Callable[[], Any]) -> None:
    expected = function()
    compiled = windfall.compile(function, backend="eager")
    assert compiled() == expected
    assert compiled() == expected, "the second call"


@one_version
def test_how_they_ran(golden: Golden) -> None:
    ran = {one.__name__: windfall.compile(one, backend="eager") for one in PROGRAMS}
    for compiled in ran.values():
        compiled()
    golden("python_rules_ways", table(ran.items()))
