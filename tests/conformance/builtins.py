"""Builtins and methods that have a rule, called with whatever a program may call them with.

    python -m tests.conformance.builtins                    every callable, all argument lists
    python -m tests.conformance.builtins --only len,list.   those whose name begins so
    python -m tests.conformance.builtins --every 50         each fiftieth case, for a quick look

Enters: every callable of the standard library in `CALLS`, every method of the builtin kinds, and a
pool of arguments: plain ones, empty ones, ones of the wrong kind, objects whose special methods
answer what they must not. Leaves: the cases in which a compiled call and an uncompiled one differ.

Invariant: what is compared is the value with its type, the exception's class and text, and what
became of the arguments. The callables are read from the tables, so a new rule is asked unseen.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import functools
import itertools
import re
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import windfall
from windfall.frontend import interpreter  # noqa: F401  (fills the tables)
from windfall.frontend.values.calls import CALLS

# ------------------------------------------------------------------------------- the arguments


class Answers:
    """An object whose special methods answer what it was told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def answering(*names: str) -> type:
    """A class of such objects, with these special methods."""

    def method(self: Any, *arguments: Any) -> Any:
        return self.answer

    return type(
        "_".join(("With", *(one.strip("_") for one in names))),
        (Answers,),
        dict.fromkeys(names, method),
    )


class Countdown:
    """An iterator written in Python."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self.left <= 0:
            raise StopIteration
        self.left -= 1
        return self.left


class ByIndex:
    """Iterated by the old protocol."""

    def __getitem__(self, index: int) -> int:
        if index >= 2:
            raise IndexError(index)
        return index * 10


class Unordered:
    """Compares with nothing."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("compared")

    __hash__ = None  # type: ignore[assignment]


def items() -> Iterator[int]:
    """A generator."""
    yield 3
    yield 1


def itself(value: Any) -> Any:
    """A function of one argument."""
    return value


WithLength, WithBool, WithIndex = (
    answering("__len__"),
    answering("__bool__"),
    answering("__index__"),
)
WithIter, WithHash, WithText = (
    answering("__iter__"),
    answering("__hash__"),
    answering("__str__", "__repr__", "__format__"),
)
WithContains, WithNumber = (
    answering("__contains__"),
    answering("__int__", "__float__", "__abs__", "__round__"),
)

POOL: dict[str, Callable[[], Any]] = {
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "True": lambda: True,
    "2.5": lambda: 2.5,
    "None": lambda: None,
    "''": lambda: "",
    "'ab'": lambda: "ab",
    "b'ab'": lambda: b"ab",
    "[]": lambda: [],
    "[2, 1]": lambda: [2, 1],
    "[1, 'a']": lambda: [1, "a"],
    "[(1, 2), (0, 3)]": lambda: [(1, 2), (0, 3)],
    "(3, 1, 2)": lambda: (3, 1, 2),
    "{'a': 1}": lambda: {"a": 1},
    "{1, 2}": lambda: {1, 2},
    "frozenset()": lambda: frozenset(),
    "range(3)": lambda: range(3),
    "generator": items,
    "iter([1, 2])": lambda: iter([1, 2]),
    "itself": lambda: itself,
    "int": lambda: int,
    "2**70": lambda: 2**70,
    "1j": lambda: 1j,
    "slice(1)": lambda: slice(1),
    "deque": lambda: collections.deque([1, 2], 2),
    "tensor([1., 2.])": lambda: torch.tensor([1.0, 2.0]),
    "tensor(3)": lambda: torch.tensor(3),
    "tensor([])": lambda: torch.tensor([]),
    "object": lambda: Answers(0),
    "len -1": lambda: WithLength(-1),
    "len 0.5": lambda: WithLength(0.5),
    "len True": lambda: WithLength(True),
    "len 2**70": lambda: WithLength(2**70),
    "len index 2": lambda: WithLength(WithIndex(2)),
    "bool 1": lambda: WithBool(1),
    "bool False": lambda: WithBool(False),
    "index 1": lambda: WithIndex(1),
    "index 'x'": lambda: WithIndex("x"),
    "index True": lambda: WithIndex(True),
    "iter 5": lambda: WithIter(5),
    "iter []": lambda: WithIter([]),
    "iter ok": lambda: WithIter(Countdown(2)),
    "hash 'x'": lambda: WithHash("x"),
    "hash 2**70": lambda: WithHash(2**70),
    "text 5": lambda: WithText(5),
    "text 't'": lambda: WithText("t"),
    "contains 2": lambda: WithContains(2),
    "number 'x'": lambda: WithNumber("x"),
    "number 1.5": lambda: WithNumber(1.5),
    "countdown": lambda: Countdown(2),
    "by index": ByIndex,
    "unordered": Unordered,
}  # fmt: skip

# What stands in longer argument lists, of which there would else be too many.
FEW = (
    "0",
    "-1",
    "2.5",
    "None",
    "'ab'",
    "[2, 1]",
    "(3, 1, 2)",
    "generator",
    "itself",
    "index 1",
    "len 0.5",
    "tensor([1., 2.])",
)

KEYWORDS = (
    "key",
    "reverse",
    "default",
    "start",
    "strict",
    "initial",
    "func",
    "fillvalue",
    "repeat",
    "maxlen",
    "base",
    "x",
    "object",
    "times",
    "step",
    "sep",
    "ndigits",
    "mod",
    "stop",
)

# ------------------------------------------------------------------------------- the callables

_LIBRARY = (
    "builtins",
    "itertools",
    "functools",
    "_functools",
    "operator",
    "_operator",
    "heapq",
    "_heapq",
    "math",
    "collections",
    "_collections",
    "copy",
)

# Not asked, and why.
_LEFT_OUT: dict[Any, str] = {
    breakpoint: "waits for a person",
    eval: "looks at its caller's frame, which the harness is",
    exec: "the same",
    locals: "the same",
    globals: "the same",
    dir: "the same",
    vars: "the same, without an argument",
    super: "the same, without an argument",
    copy.deepcopy: "its memo is keyed by addresses",
    id: "an address",
    __build_class__: "only ever called by a class statement",
}


def functions() -> dict[str, Any]:
    """Name → callable, of all rows of the standard library."""
    found = {}
    for function in CALLS:
        home = getattr(function, "__module__", None)
        owner = getattr(function, "__self__", None) or getattr(function, "__objclass__", None)
        if function in _LEFT_OUT or (home not in _LIBRARY and not isinstance(owner, type)):
            continue
        if isinstance(owner, type) and owner.__module__ not in _LIBRARY:
            continue
        name = function.__qualname__
        found[name if home in (None, "builtins") else f"{home.lstrip('_')}.{name}"] = function
    return found


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: [2, 1],
    "tuple": lambda: (2, 1),
    "dict": lambda: {"a": 1, 1: 2},
    "set": lambda: {1, "a"},
    "frozenset": lambda: frozenset((1, "a")),
    "deque": lambda: collections.deque([2, 1]),
    "deque_of_2": lambda: collections.deque([2, 1], 2),
    "OrderedDict": lambda: collections.OrderedDict(a=1, b=2),
    "defaultdict": lambda: collections.defaultdict(list, a=1),
    "Counter": lambda: collections.Counter("ab"),
    "str": lambda: "ab",
    "bytes": lambda: b"ab",
    "int": lambda: 6,
    "float": lambda: 2.5,
    "range": lambda: range(3),
    "slice": lambda: slice(0, 5, 2),
    "Size": lambda: torch.Size((2, 3)),
    "generator": items,
    "keys": lambda: {"a": 1}.keys(),
    "dict_items": lambda: {"a": 1}.items(),
    "list_iterator": lambda: iter([1, 2]),
    "zip": lambda: zip([1], [2], strict=False),
    "enumerate": lambda: enumerate([1]),
}  # fmt: skip
# Their answer is an address, or the harness's own business.
_NO_METHODS = {
    "__class__",
    "__dir__",
    "__init_subclass__",
    "__subclasshook__",
    "__new__",
    "__sizeof__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__doc__",
    "__class_getitem__",
    "__hash__",
    "__repr__",
    "__str__",
    "__init__",
    "__setattr__",
    "__delattr__",
}


def methods() -> dict[str, tuple[str, str]]:
    """Name → kind and method, of everything that can be called on the builtin kinds."""
    return {
        f"{kind}.{name}": (kind, name)
        for kind, make in KINDS.items()
        for name in dir(make())
        if callable(getattr(make(), name)) and name not in _NO_METHODS
    }


@dataclass(frozen=True)
class Case:
    """A call: what is called, with what; `kind`, `method`: on an object of that kind."""

    name: str
    arguments: tuple[str, ...]
    keyword: str = ""  # of the last argument
    caught: bool = True

    def __str__(self) -> str:
        parts = list(self.arguments)
        if self.keyword:
            parts[-1] = f"{self.keyword}={parts[-1]}"
        return f"{self.name}({', '.join(parts)})" + ("" if self.caught else " uncaught")


def argument_lists(name: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Lists of none to four arguments, and such whose last one has a name."""
    yield (), ""
    for one in POOL:
        yield (one,), ""
    for pair in itertools.product(POOL, repeat=2):
        yield pair, ""
    for index, three in enumerate(itertools.product(FEW, repeat=3)):
        if index % 7 == 0:
            yield three, ""
    yield ("0", "1", "-1", "None"), ""
    yield ("[2, 1]", "0", "1", "1"), ""
    for keyword in KEYWORDS:
        for one in ("[2, 1]", "itself"):
            for last in ("0", "None", "itself", "index 1", "2.5", "bool 1"):
                yield (one, last), keyword
        yield ("None",), keyword


# A result of them would fill the memory, compiled or not.
def _explodes(name: str, arguments: tuple[str, ...]) -> bool:
    return "2**70" in arguments and any(
        one in name for one in ("pow", "shift", "mul", "perm", "comb", "**")
    )


def cases(prefixes: tuple[str, ...] = ()) -> Iterator[Case]:
    """All of them, in a fixed order."""
    for name in (*functions(), *methods()):
        if prefixes and not name.startswith(prefixes):
            continue
        for index, (arguments, keyword) in enumerate(argument_lists(name)):
            if not _explodes(name, arguments):
                yield Case(name, arguments, keyword, index % 5 != 4)


# -------------------------------------------------------------------------------------- outcomes

_ADDRESS = re.compile(r"0x[0-9a-f]+")
# CPython names the class in front of a method that it was given too much of where it fetched the
# method for this call, and another or none where it was given a bound one.
_QUALIFIED = re.compile(r"^\w+\.(?=\w+\(\) takes )")
_SHOWN = 6


def shown(value: Any, depth: int = 3) -> Any:
    """What can be seen of a value: its type and, as far as that goes, its contents."""
    kind = type(value).__qualname__
    if depth == 0:
        return kind
    if isinstance(value, str):
        return kind, _words(value)
    if isinstance(value, torch.Tensor):
        return kind, str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, tuple | list | collections.deque):
        bound = getattr(value, "maxlen", None)
        return kind, bound, [shown(one, depth - 1) for one in itertools.islice(value, 40)]
    if isinstance(value, set | frozenset | dict):
        return _shown_keys(value, depth)
    if isinstance(value, Answers | Countdown):
        return kind, sorted((name, shown(one, depth - 1)) for name, one in vars(value).items())
    if hasattr(type(value), "__next__"):
        return kind, outcome(lambda: _first(value, depth), False)
    return _shown_whole(value, depth)


def _first(iterator: Any, depth: int) -> list[Any]:
    return [shown(one, depth - 1) for one in itertools.islice(iterator, _SHOWN)]


def _shown_keys(value: Any, depth: int) -> Any:
    kind = type(value).__qualname__
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(shown(one, depth - 1)) for one in value)
    factory = getattr(value, "default_factory", None)
    return (
        kind,
        shown(factory, 1),
        [(shown(k, depth - 1), shown(v, depth - 1)) for k, v in value.items()],
    )


def _shown_whole(value: Any, depth: int) -> Any:
    kind = type(value).__qualname__
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return kind, value.__qualname__
    if isinstance(value, functools.partial):
        return kind, shown((value.func, value.args, value.keywords), depth - 1)
    if isinstance(value, slice):
        return kind, shown((value.start, value.stop, value.step), depth - 1)
    return kind, _ADDRESS.sub(
        "0x", repr(value) if type(value) in _PRINTED else object.__repr__(value)
    )


_PRINTED = (int, float, str, bytes, bool, type(None), complex, range)


def _words(text: str) -> str:
    return _QUALIFIED.sub("", _ADDRESS.sub("0x", text))


def outcome(call: Callable[[], Any], show: bool = True) -> Any:
    """A value as shown, or what was raised."""
    try:
        value = call()
    except Exception as error:
        return "raised", type(error).__qualname__, _words(str(error))
    return shown(value) if show else value


_CAUGHT = """
def program({parameters}):
    try:
        return {call}
    except Exception as error:
        return "raised", type(error), str(error)
"""
_PLAIN = """
def program({parameters}):
    return {call}
"""


def program(case: Case) -> tuple[Any, list[Any]]:
    """A function that does the call, and fresh arguments for it."""
    values = [POOL[one]() for one in case.arguments]
    names = [f"a{index}" for index in range(len(values))]
    passed = list(names)
    if case.keyword:
        passed[-1] = f"{case.keyword}={passed[-1]}"
    space: dict[str, Any] = {}
    method = methods_by_name().get(case.name)
    if method is None:
        space["function"] = functions_by_name()[case.name]
        called = "function"
    else:
        names.insert(0, "owner")
        values.insert(0, KINDS[method[0]]())
        called = f"owner.{method[1]}"
    text = _CAUGHT if case.caught else _PLAIN
    text = text.format(parameters=", ".join(names), call=f"{called}({', '.join(passed)})")
    exec(compile(text, f"<{case.name}>", "exec"), space)
    return space["program"], values


_FUNCTIONS: dict[str, Any] = {}
_METHODS: dict[str, tuple[str, str]] = {}


def functions_by_name() -> dict[str, Any]:
    """`functions()`, once."""
    if not _FUNCTIONS:
        _FUNCTIONS.update(functions())
    return _FUNCTIONS


def methods_by_name() -> dict[str, tuple[str, str]]:
    """`methods()`, once."""
    if not _METHODS:
        _METHODS.update(methods())
    return _METHODS


def observed(case: Case, compiled: bool) -> Any:
    """The outcome of a case, and its arguments afterwards."""
    function, values = program(case)
    if compiled:
        function = windfall.compile(function, backend="eager", options={"strict": True})
    before = list(values)
    found = outcome(lambda: _with_identity(function(*values), before))
    return found, [outcome(lambda one=one: one) for one in before]


def _with_identity(value: Any, arguments: list[Any]) -> Any:
    """The value and which of the arguments it is."""
    if type(value) is int and any(value in (object.__hash__(one), id(one)) for one in arguments):
        return "the address of an argument"
    same = [index for index, one in enumerate(arguments) if one is value]
    plain = (int, float, str, bytes, bool, type(None), complex, tuple, frozenset)
    return value if isinstance(value, plain) else (value, same)


class Late(Exception):
    """A case took too long."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `Late` where it takes longer."""

    def ring(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def difference(case: Case) -> str | None:
    """How a compiled call differs from an uncompiled one; None: not at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = observed(case, compiled=False)
        actual = observed(case, compiled=True)
    if repr(actual) == repr(expected):
        return None
    return f"{case}\n    eager    {expected}\n    compiled {actual}"


def main() -> int:
    """The sweep; 1: something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.builtins")
    parser.add_argument("--only", default="", help="names begin with one of these")
    parser.add_argument("--every", type=int, default=1, help="each n-th case")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=None, help="stop after")
    options = parser.parse_args()
    prefixes = tuple(one for one in options.only.split(",") if one)
    started, count, wrong = time.monotonic(), 0, 0
    for case in itertools.islice(cases(prefixes), options.offset, None, options.every):
        if options.seconds and time.monotonic() - started > options.seconds:
            print(f"stopped at {case}")
            break
        count += 1
        try:
            with at_most(10):
                found = difference(case)
        except Late:
            found = f"{case}\n    takes too long"
        if found is not None:
            wrong += 1
            print(found, flush=True)
    print(f"{count} cases, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
