"""Builtins of Python, as Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from windfall.frontend.classnames import full_name
from windfall.ir.reading import is_among


class Told:
    """Answers what a special method of the user answered: CPython judges it as it would there."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def _answer(self, *arguments: Any) -> Any:
        return self.answer

    __len__ = __bool__ = __index__ = __iter__ = __str__ = __repr__ = __format__ = _answer
    __hash__ = _answer


_ASKED: dict[str, Callable[[Any], Any]] = {
    "__len__": len,
    "__bool__": bool,
    "__index__": operator.index,
    "__iter__": iter,
    "__str__": str,
    "__repr__": repr,
    "__format__": format,
    "__hash__": hash,
}


class ToldHint:
    """The same, of a guess how many items there are."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __length_hint__(self) -> Any:
        return self.answer


def checked(name: str, answer: Any) -> Any:
    """Has a rule: what a builtin makes of this answer of the special method that it asks."""
    if name == "__length_hint__":
        return operator.length_hint(ToldHint(answer))
    return _ASKED[name](Told(answer))


def ask(name: str, method: Any, arguments: Any) -> Any:
    """What a builtin makes of an object that has this special method."""
    return checked(name, method(*arguments))


def truth_by_length(method: Any) -> bool:
    """`bool(owner)` of an object that has `__len__` only."""
    count: int = checked("__len__", method())
    return count != 0


def instance_by_check(check: Any, cls: Any, value: Any) -> bool:
    """`isinstance(value, cls)` of a class whose metaclass has a say."""
    return bool(check(cls, value))


def instantiate(new: Any, init: Any, cls: Any, arguments: Any, keywords: Any) -> Any:
    """`cls(*arguments, **keywords)` of a class with its own `__new__`."""
    made = new(cls, *arguments, **keywords)
    if type(made) is cls:
        initialise(init, made, arguments, keywords)
    elif isinstance(made, cls):  # of a class that derives from it, which has its own
        initialise(type(made).__init__, made, arguments, keywords)
    return made


def initialise(init: Any, made: Any, arguments: Any, keywords: Any) -> Any:
    """Call an `__init__` that may return something."""
    result = init(made, *arguments, **keywords)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return made


def call_starred(function: Any, iterable: Any, keywords: Any) -> Any:
    """`function(*iterable, **keywords)` where items are given by interpreted code."""
    arguments = []
    for item in hinted(iterable):
        arguments.append(item)
    return function(*arguments, **keywords)


def call_with(function: Any, arguments: Any, keywords: Any) -> Any:
    """A call from a frame of ours."""
    return function(*arguments, **keywords)


def cached_call(cached: Any, wrapped: Any, arguments: Any, keywords: Any) -> Any:
    """`cached(*arguments, **keywords)`, of a pure function: what it should answer is computed."""
    found = None
    try:
        found = (wrapped(*arguments, **dict(keywords)),)
    except Exception:
        found = None  # it is for the cache to raise
    return cached_answer(cached, arguments, keywords, found)


def cached_answer(cached: Any, arguments: Any, keywords: Any, found: Any) -> Any:
    """Has a rule: what the cache is expected to answer. Where it is not known, the call itself."""
    return cached(*arguments, **dict(keywords))


def first_implemented(candidates: Any, operation: str, left: Any, right: Any) -> Any:
    """A binary operator through special methods, in the order given."""
    for method, argument in candidates:
        result = method(argument)
        if result is not NotImplemented:
            return result
    if operation == "==":
        return left is right
    if operation == "!=":
        return left is not right
    return refuse(operation, left, right)


def refuse(operation: str, left: Any, right: Any) -> Any:
    """Has a rule: what CPython raises of operands that both decline."""
    return refuse_kinds(operation, type(left), type(right))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul,
    "/=": operator.itruediv, "//=": operator.ifloordiv, "%=": operator.imod,
    "**=": operator.ipow, "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior,
    "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_PLAIN = (int, float, bool, complex, str, bytes, list, tuple, dict, set, frozenset)


def refuse_kinds(operation: str, left: type, right: type) -> Any:
    """Raise it: CPython says it of objects of classes of these names that decline everything."""
    return _OPERATORS[operation](_declining(left), _declining(right))


def _declining(kind: type) -> Any:
    if is_among(kind, _PLAIN):
        return kind()
    return type(full_name(kind), (), {})()


def truth(value: Any) -> bool:
    """`bool(value)`."""
    return True if value else False  # noqa: SIM210  (this is what `bool` means)


def hasattr_(owner: Any, name: str) -> bool:
    """`hasattr(owner, name)`."""
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def getattr_or(owner: Any, name: str, default: Any) -> Any:
    """`getattr(owner, name, default)`."""
    try:
        return getattr(owner, name)
    except AttributeError:
        return default


def vars_(owner: Any) -> Any:
    """`vars(owner)`."""
    try:
        return owner.__dict__
    except AttributeError:
        pass  # what is raised then has no context
    raise TypeError("vars() argument must have __dict__ attribute")


def getattribute_or(owner: Any, name: str, hook: Any, fallback: Any) -> Any:
    """An attribute by the class's own `__getattribute__`, then by `__getattr__`."""
    try:
        return hook(owner, name)
    except AttributeError:
        return fallback(owner, name)


def cached_property(owner: Any, function: Any, name: str) -> Any:
    """The first read of a `functools.cached_property`."""
    value = function(owner)
    owner.__dict__[name] = value
    return value


def contains(container: Any, item: Any) -> bool:
    """`item in container`, one by one."""
    iterator = None
    try:
        iterator = iter(container)
    except TypeError:
        iterator = None
    if iterator is None:  # and not in the `except`: CPython's error has no context
        raise TypeError(f"argument of type '{type(container).__name__}' is not iterable")
    for one in rest(iterator):  # noqa: SIM110  (`any` itself is a polyfill)
        if one is item or one == item:
            return True
    return False


def contains_by_method(method: Any, item: Any) -> bool:
    """`item in container`, by `__contains__`."""
    return True if method(item) else False  # noqa: SIM210


def next_or(iterator: Any, default: Any) -> Any:
    """`next(iterator, default)`."""
    try:
        return iterator.__next__()
    except StopIteration:
        return default


def next_of_object(iterator: Any, default: Any) -> Any:
    """The same of an instance of a class of the user's, whose attributes may be hooked."""
    try:
        return type(iterator).__next__(iterator)
    except StopIteration:
        return default


def hinted(iterable: Any) -> Any:
    """Has a rule: what gives the items, where C code asks how many there may be before it takes
    the first: mostly the iterable itself, of an object of the user's `with_hint`."""
    return iterable


def with_hint(iterable: Any, has_length: bool, hint: Any) -> Any:
    """The items of an object that has `__len__`, `__length_hint__` (`hint`) or both."""
    iterator = iter(iterable)
    counted = has_length and _has_counted(iterable)
    if hint is not None and not counted:
        _has_guessed(hint)
    return rest(iterator)


def with_owner(iterator: Any, owner: Any) -> Any:
    """An iterator over an object that has only `__getitem__`: that is asked for its length."""
    _has_counted(owner)
    return iterator


def _has_counted(iterable: Any) -> bool:
    try:
        len(iterable)
    except TypeError:
        return False
    return True


def _has_guessed(hint: Any) -> None:
    try:
        count = hint()
    except TypeError:
        return
    if count is not NotImplemented:
        checked("__length_hint__", count)


def rest(iterator: Any) -> Any:
    """Has a rule: for a loop over what was asked for its iterator before. Of an object of the
    user's `items_left`, since a loop would ask it again."""
    return iterator


def items_left(iterator: Any) -> Any:
    """The items that an iterator gives, without asking it whether it is one."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def list_(iterable: Any) -> Any:
    """`list(iterable)`."""
    result = []
    for item in hinted(iterable):
        result.append(item)
    return result


def tuple_(iterable: Any) -> Any:
    """`tuple(iterable)`."""
    result = []
    for item in hinted(iterable):
        result.append(item)
    return (*result,)


def unpacked_rest(iterable: Any, count: int) -> Any:
    """`a, *b, c = iterable` with `count` names before the star: the items as a tuple."""
    iterator = iter(iterable)
    result = []
    for item in rest(iterator) if count else ():
        result.append(item)
        if len(result) == count:
            break
    if len(result) < count:
        return (*result,)
    return (*result, *list(iterator))


def unpacked(iterable: Any, count: int) -> Any:
    """`a, b = iterable`: one item more than there are names is asked for, and no other."""
    result = []
    for item in iterable:
        result.append(item)
        if len(result) > count:
            raise ValueError(f"too many values to unpack (expected {count})")
    return (*result,)


def set_(iterable: Any) -> Any:
    """`set(iterable)`."""
    result = set()
    for item in iterable:
        result.add(item)
    return result


def frozenset_(iterable: Any) -> Any:
    """`frozenset(iterable)`."""
    result = []
    for item in iterable:
        result.append(item)
    return frozenset(result)


def sum_(iterable: Any, /, start: Any = 0) -> Any:
    """`sum(iterable, start)`."""
    for item in iterable:
        start = start + item
    return start


def any_(iterable: Any, /) -> bool:
    """`any(iterable)`."""
    for item in iterable:  # noqa: SIM110
        if item:
            return True
    return False


def all_(iterable: Any, /) -> bool:
    """`all(iterable)`."""
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def close_generator(generator: Any) -> None:
    """`generator.close()`."""
    try:
        generator.throw(GeneratorExit)
    except (GeneratorExit, StopIteration):
        return
    raise RuntimeError("generator ignored GeneratorExit")


def extend(target: Any, items: Any) -> None:
    """`target.extend(items)` of items that interpreted code gives."""
    for item in hinted(items):
        target.append(item)


def extended(target: Any, items: Any) -> Any:
    """`target += items` of items that interpreted code gives."""
    for item in hinted(items):
        target.append(item)
    return target


def gathered(iterable: Any) -> Any:
    """All items, as a tuple; how many there may be is not asked."""
    result = []
    for item in iterable:
        result.append(item)
    return (*result,)


def set_slice(target: Any, where: Any, items: Any) -> None:
    """`target[where] = items` of items that interpreted code gives."""
    target[where] = gathered(items)


def with_tuples(method: Any, *iterables: Any) -> Any:
    """A method of a set, which takes all items of its arguments."""
    found = []
    for one in iterables:
        found.append(gathered(one))
    return method(*found)


def append_all(target: Any, items: Any) -> None:
    """`target.extend(items)` of a deque: likewise."""
    for item in items:
        target.append(item)


def with_all(target: Any, items: Any) -> Any:
    """`target += items` of a deque."""
    for item in items:
        target.append(item)
    return target


def join(method: Any, items: Any) -> Any:
    """`method(items)`, a method of a string that asks for all items."""
    iterator = None
    try:
        iterator = iter(items)
    except TypeError:
        iterator = None
    if iterator is None:
        raise TypeError("can only join an iterable")
    return method(list(iterator))


def index_of(items: Any, item: Any, start: int, stop: int, text: str | None) -> int:
    """`items.index(item, start, stop)`; `text` None: what is raised names the item."""
    for index in range(start, stop):
        one = items[index]
        if one is item or one == item:
            return index
    raise ValueError(f"{item!r} is not in list" if text is None else text)


def count_of(items: Any, item: Any) -> int:
    """`items.count(item)`."""
    count = 0
    for one in items:
        if one is item or one == item:
            count += 1
    return count


def remove_from(items: Any, item: Any, text: str) -> None:
    """`items.remove(item)`."""
    del items[index_of(items, item, 0, len(items), text)]


def made_item(mapping: Any, key: Any, factory: Any) -> Any:
    """`mapping[key]` of a defaultdict without that key."""
    value = factory()
    mapping[key] = value
    return value


def count_elements(mapping: Any, iterable: Any) -> None:
    """What a `Counter` counts with."""
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def item_getter(owner: Any, keys: Any) -> Any:
    """`operator.itemgetter(*keys)(owner)`."""
    if len(keys) == 1:
        return owner[keys[0]]
    found = []
    for key in keys:
        found.append(owner[key])
    return (*found,)


def attribute_getter(owner: Any, names: Any) -> Any:
    """`operator.attrgetter(*names)(owner)`."""
    found = []
    for name in names:
        value = owner
        for part in name.split("."):
            value = getattr(value, part)
        found.append(value)
    return found[0] if len(found) == 1 else (*found,)


def method_caller(owner: Any, name: str, arguments: Any, keywords: Any) -> Any:
    """`operator.methodcaller(name, *arguments, **keywords)(owner)`."""
    return getattr(owner, name)(*arguments, **keywords)


def set_item(owner: Any, key: Any, value: Any) -> None:
    """`operator.setitem(owner, key, value)`."""
    owner[key] = value


def delete_item(owner: Any, key: Any) -> None:
    """`operator.delitem(owner, key)`."""
    del owner[key]


def get_item(owner: Any, key: Any) -> Any:
    """`operator.getitem(owner, key)`."""
    return owner[key]


def build_class(body: Any, name: str, bases: Any) -> Any:
    """A class statement. What stands in the body goes into a dict."""
    namespace: dict[str, Any] = {}
    cell = run_body(body, namespace)
    return finish_class(name, bases, namespace, cell)


def run_body(body: Any, namespace: Any) -> Any:
    """Has a rule: the body is interpreted with this dict for its variables."""


def finish_class(name: str, bases: Any, namespace: Any, cell: Any) -> Any:
    """Has a rule: the class."""


def apply_function(cls: Any, arguments: Any, apart: bool) -> Any:
    """`torch.autograd.Function.apply`: forward, and backward at once, on gradients to come."""
    context = begin_forward(cls, arguments)
    if apart:
        result = cls.forward(*arguments)
        cls.setup_context(context, arguments, result)
    else:
        result = cls.forward(context, *arguments)
    if not wants_backward(context, result):
        return result
    found = cls.backward(context, *begin_backward(context))
    return finish_function(context, result, found)


def begin_forward(cls: Any, arguments: Any) -> Any:
    """Has a rule: the `ctx` of a function."""


def wants_backward(context: Any, result: Any) -> Any:
    """Has a rule."""


def begin_backward(context: Any) -> Any:
    """Has a rule: the gradients of the results."""


def finish_function(context: Any, result: Any, found: Any) -> Any:
    """Has a rule: the results, with their gradients."""


def tuple_new(cls: Any, iterable: Any) -> Any:
    """`tuple.__new__(cls, iterable)` of items that interpreted code gives."""
    return tuple.__new__(cls, (*iterable,))
