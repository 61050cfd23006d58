"""Objects that a program makes or meets, seen again behind a break: the same objects, as CPython's.

Each row is a program that runs up to `here()`, which is not followed, and looks at its objects
behind it; each row says how many steps run natively. What CPython's own tests found.
"""

from __future__ import annotations

import abc
import collections
import collections.abc
import copy
import functools
import io
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import windfall
from tests.frontend.driver import compile_eager


@windfall.disable
def here() -> None:
    """A break."""


class Plain:
    pass


class Named(dict[Any, Any]):
    pass


class Zeroed(dict[Any, Any]):
    """It has methods of its own for its items."""

    def __getitem__(self, key: Any) -> Any:
        return self.get(key, 0)

    def __setitem__(self, key: Any, value: Any) -> None:
        here()
        dict.__setitem__(self, key, value)


class Kept(collections.OrderedDict[Any, Any]):
    pass


class Listed(list[Any]):
    pass


class Refusing(list[Any]):
    """It cannot be iterated by its own method."""

    def __iter__(self) -> Any:
        raise ValueError("not by this way")


# ------------------------------------------------------------- a dictionary is its object's own


def table_of_an_object() -> Any:
    made = Plain()
    table, made.first = vars(made), made
    here()
    table["second"] = 2
    return made.second, table is vars(made), list(table)


def table_of_a_function() -> Any:
    def made() -> None:
        pass

    table, made.first = vars(made), 1  # type: ignore[attr-defined]
    table["no name"] = 3
    here()
    table["second"] = 2
    return made.second, table is vars(made), table  # type: ignore[attr-defined]


def table_of_an_exception() -> Any:
    made = ValueError(1)
    table, made.first = vars(made), 1  # type: ignore[attr-defined]
    here()
    table["second"] = 2
    return made.second, table is vars(made), table  # type: ignore[attr-defined]


def table_with_other_keys() -> Any:
    made = Plain()
    table: dict[Any, Any] = vars(made)
    table[3], table[Plain] = 4, 5
    here()
    return len(vars(made)), table[Plain], table[3]


def table_that_was_copied() -> Any:
    made = Plain()
    made.first = 1  # type: ignore[attr-defined]
    copies = vars(made).copy(), {**vars(made)}, vars(made) | {"more": 2}
    here()
    made.second = 2  # type: ignore[attr-defined]
    return copies


def table_that_was_copied_deeply() -> Any:
    made = Plain()
    made.first = [made]  # type: ignore[attr-defined]
    one, table = copy.deepcopy([made, vars(made)])
    here()
    return vars(one) is table, one.first[0] is one, table["first"][0] is one


# ------------------------------------------------- contents of an instance are the instance's own


def views_of_a_dict() -> Any:
    made = Named()
    keys, items = made.keys(), made.items()
    here()
    made["x"] = 1
    return list(keys), list(items)


def views_of_an_ordered_dict() -> Any:
    made = Kept()
    keys, items = made.keys(), made.items()
    here()
    made["x"] = 1
    return list(keys), list(items)


def an_iterator_over_a_list() -> Any:
    made = Listed()
    made.append(1)
    iterator = iter(made)
    next(iterator)
    here()
    made.append(2)
    return list(iterator)


def an_iterator_past_the_class() -> Any:
    made = Refusing([1, 2, 3])
    iterator = list.__iter__(made)
    next(iterator)
    here()
    list.append(made, 4)
    return list(iterator)


def an_iterator_over_what_is_filled_later() -> Any:
    iterators = [iter(kind({None: [1]}).items()) for kind in (collections.OrderedDict, Kept)]
    here()
    return [next(one) for one in iterators]


def items_by_methods_of_its_own() -> Any:
    made = Zeroed()
    for number in range(3):
        made[number] = Zeroed()
        made[number][1] = number
    return {key: dict(value) for key, value in made.items()}


def copies_of_a_dict() -> Any:
    made = Named(a=1)
    copies = made.copy(), Named(made), made | {"b": 2}
    here()
    return [(type(one), one) for one in copies]


# ---------------------------------------------------------- an equal constant is another object


def a_text_that_stays_the_same() -> Any:
    text, raw = "two words", b"two words"
    same = text * 1, text.strip(), text.replace("x", "y"), "".join([text])
    here()
    return [one is text for one in same], raw * 1 is raw, 1 * raw is raw


def a_text_of_the_code() -> Any:
    def inner() -> None:
        """Two words."""

    def outer() -> None:
        pass

    functools.update_wrapper(outer, inner)
    here()
    names = ("__doc__", "__qualname__", "__name__", "__module__")
    return [getattr(outer, name) is getattr(inner, name) for name in names]


def parts_of_a_partial() -> Any:
    made = functools.partial(int, base=2)
    keywords = made.keywords
    here()
    keywords["base"] = 3
    return made("12"), made.keywords is keywords


def defaults_of_a_function() -> Any:
    def made(number: int, held: list[int] = []) -> list[int]:  # noqa: B006 (it is kept)
        held.append(number)
        return held

    made(1)
    defaults = made.__defaults__
    here()
    made(2)
    return defaults, made.__defaults__ is defaults


def one_character() -> Any:
    letter, sign = "x", "-"
    letters, signs = letter * 3, sign * 3
    here()
    return letters[0] == letter, signs[0] is sign, letter is "xyz"[:1] is letters[1]


def tuples_of_literals() -> Any:
    made = [(number,) for number in (1, 1, 1)]
    here()
    return [one is other for one in made for other in made]


def a_tuple_of_the_code() -> Any:
    def constant() -> Any:
        return (1, 2)

    first, second = constant(), constant()
    before = first is second
    here()
    return before, first is second, first is constant()


def tuples_that_were_sorted() -> Any:
    first, second = (2, 1.5), (1, 2.5)
    made = [*sorted([first, second]), min(first, second), max([first, second])]
    here()
    return [one is first for one in made]


def tuples_in_a_set() -> Any:
    first = (1, (2, 3))
    made = {first, (4,)}
    other = made.copy()
    here()
    return [one is other for one, other in zip(sorted(made), sorted(other), strict=True)], any(
        one is first for one in made
    )


# ------------------------------------------------------------------------ functions and classes


def a_generator_under_another_name() -> Any:
    def made() -> Any:
        yield 1

    made.__name__ = "other"
    generator = made()
    here()
    return generator.__name__, generator.__qualname__


def descriptors_of_a_class() -> Any:
    base = 3

    class Made:
        more = 5

        @property
        def whole(self) -> int:
            return base + self.more

        @staticmethod
        def alone(number: int) -> int:
            return number + base

    read, alone = Made.whole, Made.alone
    here()
    return read.fget(Made()), alone(1), read is Made.whole  # type: ignore[attr-defined]


def an_instance_of_a_derived_class() -> Any:
    class Made:
        def __new__(cls, number: int) -> Any:
            return object.__new__(Derived)

    class Derived(Made):
        def __init__(self, number: int) -> None:
            self.number = number

    return Made(4).number  # type: ignore[attr-defined]


def what_a_metaclass_has() -> Any:
    def made() -> None:
        pass

    return hasattr(made, "__prepare__"), hasattr(made, "mro")


def annotations_of_a_function() -> Any:
    def made(x: int) -> None:
        pass

    here()
    setattr(made, "__annotations__", {"y": str})  # noqa: B010
    return made.__annotations__, "__annotations__" in vars(made)


def subclasses_of_a_base() -> Any:
    class Base:
        pass

    class Derived(Base):
        pass

    here()
    return Base.__subclasses__() == [Derived]


def a_descriptor_that_only_writes() -> Any:
    class Writing:
        def __set__(self, owner: Any, value: Any) -> None:
            vars(owner)["field"] = value

    class Made:
        field = Writing()

    made = Made()
    before = type(made.field).__name__
    made.field = 4  # type: ignore[assignment]
    return before, made.field


def a_method_of_a_number() -> Any:
    shown = (3).__format__
    here()
    return shown("d")


def names_that_are_keys() -> Any:
    made: dict[str, int] = {}
    made.update(self=1, machine=2, other=3)
    return made, dict(self=1, machine=2, other=3)


def the_classes_behind_a_class() -> Any:
    class Base:
        def number(self) -> int:
            return 1

    class Derived(Base):
        def number(self) -> int:
            return super().number() + 1

    made = Derived()
    before = made.number()
    here()
    return before, made.number()


class Abstract(abc.ABC):  # noqa: B024 (its metaclass is what the row is about)
    """A text of its own, beside that of its metaclass."""


def the_texts_of_a_class_with_a_metaclass() -> Any:
    return Abstract.__module__, Abstract.__doc__, Abstract.__name__


def what_is_registered_on_the_way() -> Any:
    @functools.singledispatch
    def made(one: Any) -> str:
        return "any"

    answers = [made([])]
    made.register(collections.abc.Sized, lambda one: "sized")
    answers.append(made([]))
    made.register(list, lambda one: "list")
    return [*answers, made([])]


def a_cache_that_a_capture_leaves() -> Any:
    @functools.singledispatch
    def made(one: Any) -> str:
        return "any"

    made.register(int, lambda one: "integer")
    here()
    return made(3), made("x"), made(4)


# --------------------------------------------------------------------- what is left to CPython


class Hooked(types.ModuleType):
    def __getattribute__(self, name: str) -> Any:
        return "hooked", name

    def __setattr__(self, name: str, value: Any) -> None:
        types.ModuleType.__setattr__(self, name, ("set", value))


def a_module_with_hooks() -> Any:
    module = Hooked("hooked")
    module.field = 1
    return module.field, types.ModuleType.__getattribute__(module, "field")


def the_class_of_a_module() -> Any:
    module: Any = types.ModuleType("plain")
    module.__class__ = Hooked
    return type(module) is Hooked, module.anything


class Equalling:
    """A key with the hash of a text, that counts how often it is compared."""

    compared = 0

    def __hash__(self) -> int:
        return hash("field")

    def __eq__(self, other: object) -> bool:
        Equalling.compared += 1
        return False


def a_key_that_is_compared() -> Any:
    Equalling.compared = 0
    made: Any = Plain()
    vars(made)[Equalling()] = 0
    here()
    found = getattr(made, "field", None)
    return found, Equalling.compared


def a_dict_that_is_its_own_table() -> Any:
    made: Any = Named()
    made.__dict__ = made
    here()
    made.field = 3
    return made["field"]


def an_ordered_dict_that_lacks_an_item() -> Any:
    made = Kept(a=1, b=2)
    dict.__delitem__(made, "b")
    try:
        return list(made.items())
    except KeyError as error:
        return error.args


def a_change_while_it_is_iterated() -> Any:
    made = Kept.fromkeys("abc")
    here()
    iterator = iter(made)
    del made[next(iterator)]
    try:
        return list(iterator)
    except RuntimeError as error:
        return type(error)


def one_key_asked_for_twice() -> Any:
    key = Plain()
    key.name = "a"  # type: ignore[attr-defined]
    match {"a": 0}:
        case {key.name: _, "a": _}:  # type: ignore[attr-defined]
            return "matched"


class Hinted:
    """An iterable that says how long it may be."""

    asked = 0

    def __iter__(self) -> Any:
        return iter([1, 2])

    def __length_hint__(self) -> int:
        Hinted.asked += 1
        return 2


def an_iterable_with_a_hint() -> Any:
    Hinted.asked = 0
    return list(Hinted()), tuple(Hinted()), Hinted.asked


class ComputedHint(Hinted):
    __length_hint__ = property(lambda self: self.hint)  # type: ignore[assignment]

    def hint(self) -> int:
        Hinted.asked += 1
        return 2


def an_iterable_with_a_computed_hint() -> Any:
    Hinted.asked = 0
    return list(ComputedHint()), tuple(ComputedHint()), Hinted.asked


def keys_that_are_hashed_once() -> Any:
    made = dict.fromkeys(map(Hashing, range(3)))
    dict.fromkeys(set(made))
    dict.fromkeys(frozenset(made), 1)
    return sum(one.hashed for one in made)


class Hashing:
    def __init__(self, number: int) -> None:
        self.number = number
        self.hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        return self.number


def a_new_that_was_put_back() -> Any:
    class Made:
        def __new__(cls, *arguments: Any) -> Any:
            raise AssertionError

    class Derived(Made):
        __new__ = object.__new__  # type: ignore[assignment]

        def __init__(self, number: int) -> None:
            self.number = number

    try:
        return Derived(3).number
    except TypeError as error:
        return type(error)


class Computed:
    """Its special methods are computed when they are asked for."""

    __eq__ = property(lambda self: lambda other: "equal")  # type: ignore[assignment]
    __hash__ = property(lambda self: lambda: 3)  # type: ignore[assignment]
    __len__ = property(lambda self: lambda: 4)
    __iter__ = property(lambda self: lambda: iter([1]))
    __add__ = property(lambda self: lambda other: "sum")
    __getitem__ = property(lambda self: lambda key: key)
    __contains__ = property(lambda self: lambda key: True)
    __call__ = property(lambda self: lambda *given: given)
    __neg__ = property(lambda self: lambda: "negative")


def special_methods_that_are_computed() -> Any:
    made: Any = Computed()
    answers = [made == 1, len(made), list(made), made + 1, made[3], 4 in made, made(5), -made]
    return answers, hash(made), bool(made)


def an_object_that_is_called_by_calling_itself() -> Any:
    class Made:
        pass

    Made.__call__ = Made()  # type: ignore[attr-defined]
    try:
        return Made()()  # type: ignore[operator]
    except RecursionError as error:
        return type(error)


# ------------------------------------------------------------- variables that nobody reads again


def memory_that_is_locked() -> Any:
    made = bytearray(4)
    view = memoryview(made)  # noqa: F841 (it locks the size as long as the frame runs)
    here()
    try:
        made.append(1)
    except BufferError as error:
        return type(error)
    return made


def a_file_that_stays_open() -> Any:
    closed = []

    class Told(io.StringIO):
        def close(self) -> None:
            closed.append(1)
            super().close()

    file = Told()  # noqa: F841
    here()
    return len(closed)


def links_that_are_weakly_known() -> Any:
    class Link:
        pass

    made: Any = Plain()
    made.links = {"first": Link()}
    known = weakref.ref(made.links["first"])
    here()
    here()
    return known() is None


PROGRAMS: dict[Callable[[], Any], int | None] = {
    # None: some steps run natively, and which ones is not what the row is about.
    table_of_an_object: 1,
    table_of_a_function: 1,
    table_of_an_exception: 2,
    table_with_other_keys: 1,
    table_that_was_copied: 1,
    table_that_was_copied_deeply: 1,
    views_of_a_dict: 3,
    views_of_an_ordered_dict: 3,
    an_iterator_over_a_list: 2,
    an_iterator_past_the_class: None,
    an_iterator_over_what_is_filled_later: None,
    items_by_methods_of_its_own: None,
    copies_of_a_dict: 3,
    a_text_that_stays_the_same: 1,
    a_text_of_the_code: 1,
    parts_of_a_partial: None,
    defaults_of_a_function: 1,
    one_character: 1,
    tuples_of_literals: 1,
    a_tuple_of_the_code: 1,
    tuples_that_were_sorted: 1,
    tuples_in_a_set: 1,
    a_generator_under_another_name: None,
    descriptors_of_a_class: 2,
    an_instance_of_a_derived_class: None,
    what_a_metaclass_has: 0,
    annotations_of_a_function: None,
    subclasses_of_a_base: None,
    a_descriptor_that_only_writes: 0,
    a_method_of_a_number: 1,
    names_that_are_keys: 0,
    the_classes_behind_a_class: None,
    the_texts_of_a_class_with_a_metaclass: 0,
    a_cache_that_a_capture_leaves: None,
    what_is_registered_on_the_way: None,
    a_module_with_hooks: None,
    the_class_of_a_module: None,
    a_key_that_is_compared: None,
    a_dict_that_is_its_own_table: None,
    an_ordered_dict_that_lacks_an_item: None,
    a_change_while_it_is_iterated: None,
    one_key_asked_for_twice: None,
    an_iterable_with_a_hint: None,
    an_iterable_with_a_computed_hint: None,
    keys_that_are_hashed_once: None,
    a_new_that_was_put_back: None,
    special_methods_that_are_computed: None,
    an_object_that_is_called_by_calling_itself: None,
    memory_that_is_locked: None,
    a_file_that_stays_open: None,
    links_that_are_weakly_known: None,
}


def outcome(program: Callable[[], Any]) -> Any:
    try:
        return program()
    except Exception as error:
        return type(error), error.args


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_as_eager(program: Callable[[], Any]) -> None:
    compiled = compile_eager(program)
    expected = outcome(program)
    for _ in range(2):  # by the capture, and by what it left
        assert outcome(compiled) == expected
    native = PROGRAMS[program]
    if native is not None:
        assert len(compiled.breaks) == native
