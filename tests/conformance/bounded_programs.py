"""Programs that make much out of little: containers, strings, numbers, loops, calls of a size `n`.

Enters: nothing. Leaves: `PROGRAMS`, rows of (name, function, a small `n`, a large one). With the
small one a program is captured as any other; with the large one eager needs some tenths of a
second at most, or raises at once, and a capture that models every element would need minutes and
gigabytes. Read by `tests/frontend/test_bounded.py` (how each ran) and by
`python -m tests.conformance.bounded` (time and memory).
"""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

MANY = 10**6


@dataclass(frozen=True, slots=True)
class Program:
    """One row. What `function` gets is made of `n` by `make`, afresh for each call."""

    name: str
    function: Callable[[Any], Any]
    small: int
    large: int
    make: Callable[[int], Any]

    @property
    def medium(self) -> int:
        """Past every bound, and done in no time: for tests."""
        return min(self.large, 20_000) if self.large == MANY else self.large


PROGRAMS: dict[str, Program] = {}
Row = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def program(small: int, large: int, make: Callable[[int], Any] = int) -> Row:
    """A row by the name of the function."""

    def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = function.__name__
        assert name not in PROGRAMS, f"{name} stands twice"
        PROGRAMS[name] = Program(name, function, small, large, make)
        return function

    return register


# ------------------------------------------------------------------------------ containers


@program(5, MANY)
def list_of_range(n: int) -> Any:
    return len(list(range(n)))


@program(5, 2**70)
def list_of_endless_range(n: int) -> Any:
    return list(range(n))[-1]


@program(5, MANY)
def tuple_of_range(n: int) -> Any:
    return tuple(range(n))[-1]


@program(5, MANY)
def set_of_range(n: int) -> Any:
    return len(set(range(n)))


@program(5, MANY)
def frozenset_of_range(n: int) -> Any:
    return len(frozenset(range(n)))


@program(5, MANY)
def sorted_range(n: int) -> Any:
    return sorted(range(n), reverse=True)[0]


@program(5, MANY)
def sorted_by_key(n: int) -> Any:
    return sorted(range(n // 4), key=lambda i: -i)[0]


@program(5, MANY)
def reversed_range(n: int) -> Any:
    return next(reversed(range(n)))


@program(5, MANY)
def reversed_into_list(n: int) -> Any:
    return len(list(reversed(range(n))))


@program(5, MANY)
def dict_from_keys(n: int) -> Any:
    return len(dict.fromkeys(range(n), 0))


@program(5, MANY)
def dict_of_zip(n: int) -> Any:
    return len(dict(zip(range(n), range(n), strict=False)))


@program(5, MANY)
def list_of_enumerate(n: int) -> Any:
    return list(enumerate(range(n)))[-1]


@program(5, MANY)
def list_of_map(n: int) -> Any:
    return list(map(str, range(n)))[-1]


@program(5, MANY)
def list_of_filter(n: int) -> Any:
    return len(list(filter(None, range(n))))


@program(5, MANY)
def list_of_zip(n: int) -> Any:
    return list(zip(range(n), itertools.count(), strict=False))[-1]


@program(5, MANY)
def zip_strict(n: int) -> Any:
    return list(zip(range(n), range(n), strict=True))[-1]


@program(5, MANY)
def star_display(n: int) -> Any:
    return len([0, *range(n)])


@program(5, MANY)
def star_tuple(n: int) -> Any:
    return len((0, *range(n)))


@program(5, MANY)
def star_set(n: int) -> Any:
    return len({0, *range(n)})


@program(5, MANY)
def star_target(n: int) -> Any:
    first, *middle, last = range(n)
    return first, len(middle), last


@program(5, MANY)
def star_arguments(n: int) -> Any:
    return _count(*range(n))


def _count(*items: Any) -> int:
    return len(items)


@program(2, MANY)
def unpack_misfit(n: int) -> Any:
    a, b = range(n)
    return a, b


@program(5, MANY)
def list_extend(n: int) -> Any:
    made: list[int] = []
    made.extend(range(n))
    return len(made)


@program(5, MANY)
def list_plus_equals(n: int) -> Any:
    made = [1]
    made += range(n)
    return len(made)


@program(5, MANY)
def slice_assignment(n: int) -> Any:
    made = [1, 2, 3]
    made[1:2] = range(n)
    return len(made)


@program(5, MANY)
def set_update(n: int) -> Any:
    made = {1}
    made.update(range(n))
    return len(made)


@program(5, MANY)
def dict_update(n: int) -> Any:
    made = {1: 2}
    made.update(zip(range(n), range(n), strict=False))
    return len(made)


@program(5, MANY)
def deque_of_range(n: int) -> Any:
    return collections.deque(range(n))[-1]


@program(5, MANY)
def short_deque_of_range(n: int) -> Any:
    return list(collections.deque(range(n), maxlen=3))


@program(5, MANY)
def counter_of_range(n: int) -> Any:
    return collections.Counter(i % 7 for i in range(n)).most_common(1)


@program(5, MANY)
def counter_of_string(n: int) -> Any:
    return collections.Counter("ab" * n)["a"]


@program(5, 10**7)
def bytes_of_number(n: int) -> Any:
    return len(bytes(n)) + len(bytearray(n))


@program(5, MANY)
def bytes_into_list(n: int) -> Any:
    return len(list(bytes(n)))


# -------------------------------------------------------------------------------------- repetition


@program(5, MANY)
def list_times(n: int) -> Any:
    return len([0] * n)


@program(5, MANY)
def tuple_times(n: int) -> Any:
    return len((0,) * n)


@program(5, MANY)
def list_times_in_place(n: int) -> Any:
    made = [0, 1]
    made *= n
    return len(made)


@program(5, 10**12)
def list_times_too_much(n: int) -> Any:
    try:
        return len([0] * n)
    except MemoryError:
        return "MemoryError"


@program(5, MANY)
def list_plus_list(n: int) -> Any:
    made = [0] * n
    return len(made + made)


@program(5, 10**7)
def string_times(n: int) -> Any:
    return len("ab" * n)


@program(5, 10**15)
def string_times_too_much(n: int) -> Any:
    try:
        return len("a" * n)
    except MemoryError:
        return "MemoryError"


@program(5, MANY)
def string_into_list(n: int) -> Any:
    return len(list("ab" * n))


@program(5, MANY)
def string_loop(n: int) -> Any:
    count = 0
    for one in "ab" * n:
        count += one == "a"
    return count


@program(5, MANY)
def string_join(n: int) -> Any:
    return len(",".join(map(str, range(n))))


@program(5, MANY)
def string_join_of_list(n: int) -> Any:
    return len(",".join(["ab"] * n))


@program(5, MANY)
def string_split(n: int) -> Any:
    return len(("a " * n).split())


@program(5, MANY)
def string_replace(n: int) -> Any:
    return len(("a " * n).replace("a", "bcd"))


@program(5, 10**7)
def format_width(n: int) -> Any:
    percent = "%*d" % (n, 1)  # noqa: UP031
    return len(f"{1:>{n}}") + len(percent) + len("{:{}}".format(1, n)) + len(format(1, f"{n}"))


@program(5, 10**7)
def string_justified(n: int) -> Any:
    return len("a".ljust(n)) + len("a".center(n)) + len("1".zfill(n))


@program(5, MANY)
def repr_of_list(n: int) -> Any:
    return len(repr(list(range(n))))


@program(5, MANY)
def string_building(n: int) -> Any:
    text = ""
    for _ in range(n):
        text += "ab"
    return len(text)


# ------------------------------------------------------------------------------------ large numbers


@program(5, 10**7)
def power_of_two(n: int) -> Any:
    return (2**n).bit_length()


@program(5, 10**8)
def shift_left(n: int) -> Any:
    return (1 << n).bit_length()


@program(5, 10**16)
def shift_left_too_much(n: int) -> Any:
    try:
        return (1 << n).bit_length()
    except (MemoryError, OverflowError) as error:
        return type(error).__name__


@program(5, 3 * 10**5)
def power_of_ten(n: int) -> Any:
    return (10**n).bit_length()


@program(5, 2 * 10**4)
def factorial(n: int) -> Any:
    return math.factorial(n).bit_length()


@program(5, 10**7)
def power_modulo(n: int) -> Any:
    return pow(3, n, 1000003)


@program(5, 4000)
def integer_of_text(n: int) -> Any:
    return int("7" * n).bit_length()


@program(5, 10**6)
def integer_of_hexadecimal(n: int) -> Any:
    return int("f" * n, 16).bit_length()


@program(5, 10**5)
def binomial(n: int) -> Any:
    return math.comb(n, n // 4).bit_length()


@program(5, 20)
def repeated_squares(n: int) -> Any:
    value = 3
    for _ in range(n):
        value = value * value
    return value.bit_length()


# --------------------------------------------------------------------------------------- reductions


@program(5, MANY)
def sum_of_range(n: int) -> Any:
    return sum(range(n))


@program(5, MANY)
def sum_of_generator(n: int) -> Any:
    return sum(i * i for i in range(n))


@program(5, MANY)
def any_of_generator(n: int) -> Any:
    return any(i < 0 for i in range(n))


@program(5, MANY)
def all_of_map(n: int) -> Any:
    return all(map(lambda i: i >= 0, range(n)))


@program(5, MANY)
def smallest(n: int) -> Any:
    return min(range(n)), max(range(n), key=lambda i: -i)


@program(5, MANY)
def reduced(n: int) -> Any:
    return functools.reduce(operator.xor, range(n))


@program(5, MANY)
def contained(n: int) -> Any:
    return -1 in list(range(n)), (n - 1) in tuple(range(n))


@program(5, MANY)
def contained_in_range(n: int) -> Any:
    return n // 2 in range(n), -1 in range(n), range(n).index(n - 1), range(n).count(2)


@program(5, MANY)
def compared(n: int) -> Any:
    return list(range(n)) == list(range(n)), tuple(range(n)) < tuple(range(n + 1))


@program(5, MANY)
def indexed(n: int) -> Any:
    made = list(range(n))
    return made.index(n - 1), made.count(3), made[n // 2], len(made[::2])


@program(5, MANY)
def hashed(n: int) -> Any:
    return hash(tuple(range(n))) == hash(tuple(range(n)))


# ---------------------------------------------------------------------------------------- itertools


@program(5, MANY)
def loop_over_count(n: int) -> Any:
    for i in itertools.count():
        if i > n:
            return i


@program(5, MANY)
def loop_over_repeat(n: int) -> Any:
    count = 0
    for one in itertools.repeat(2, n):
        count += one
    return count


@program(5, MANY)
def list_of_repeat(n: int) -> Any:
    return len(list(itertools.repeat(0, n)))


@program(5, MANY)
def loop_over_cycle(n: int) -> Any:
    count = 0
    for i in itertools.cycle((1, 2, 3)):
        count += i
        if count > n:
            return count


@program(5, MANY)
def slice_of_count(n: int) -> Any:
    return len(list(itertools.islice(itertools.count(), n)))


@program(3, 9)
def all_permutations(n: int) -> Any:
    return sum(1 for _ in itertools.permutations(range(n)))


@program(3, 1000)
def all_pairs(n: int) -> Any:
    return len(list(itertools.product(range(n), range(n))))


@program(3, 20)
def all_combinations(n: int) -> Any:
    return len(list(itertools.combinations(range(n), n // 2)))


@program(3, 60)
def first_combination(n: int) -> Any:
    return next(itertools.combinations(range(n), n // 2))[-1]


@program(3, 20)
def first_permutation(n: int) -> Any:
    return next(itertools.permutations(range(n)))[-1]


@program(5, MANY)
def accumulated(n: int) -> Any:
    return collections.deque(itertools.accumulate(range(n)), maxlen=1)[0]


@program(5, MANY)
def chained(n: int) -> Any:
    return sum(1 for _ in itertools.chain(range(n), "ab", range(n)))


@program(5, MANY)
def grouped(n: int) -> Any:
    return sum(1 for _ in itertools.groupby(range(n), lambda i: i // 1000))


@program(5, MANY)
def pairs(n: int) -> Any:
    return sum(b - a for a, b in itertools.pairwise(range(n)))


@program(5, MANY)
def nth(n: int) -> Any:
    return next(itertools.islice(itertools.count(), n, None))


@program(5, 10**5)
def heap(n: int) -> Any:
    made = list(range(n, 0, -1))
    heapq.heapify(made)
    return heapq.heappop(made)


# --------------------------------------------------------------------------------- loops and calls


@program(5, MANY)
def plain_loop(n: int) -> Any:
    total = 0
    for i in range(n):
        total += i
    return total


@program(5, MANY)
def while_loop(n: int) -> Any:
    i = 0
    while i < n:
        i += 1
    return i


@program(5, 1000)
def nested_loop(n: int) -> Any:
    total = 0
    for i in range(n):
        for j in range(n):
            total += i ^ j
    return total


@program(5, MANY)
def list_comprehension(n: int) -> Any:
    return len([i + 1 for i in range(n)])


@program(5, 1000)
def nested_comprehension(n: int) -> Any:
    return sum([sum([i * j for j in range(n)]) for i in range(n)])


@program(5, MANY)
def dict_comprehension(n: int) -> Any:
    return len({i: i + 1 for i in range(n)})


@program(5, MANY)
def set_comprehension(n: int) -> Any:
    return len({i % 1000 for i in range(n)})


@program(5, MANY)
def dict_building(n: int) -> Any:
    made: dict[int, int] = {}
    for i in range(n):
        made[i % 100] = made.get(i % 100, 0) + 1
    return len(made)


@program(5, MANY)
def list_building(n: int) -> Any:
    made = []
    for i in range(n):
        made.append(i)
    return len(made)


@program(5, MANY)
def loop_of_calls(n: int) -> Any:
    total = 0
    for i in range(n):
        total = _added(total, i)
    return total


def _added(a: int, b: int) -> int:
    return a + b


@program(5, 10**5)
def loop_in_called(n: int) -> Any:
    total = 0
    for _ in range(n):
        total += _looped(10)
    return total


def _looped(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


@program(5, 22)
def fibonacci(n: int) -> Any:
    return _fibonacci(n)


def _fibonacci(n: int) -> int:
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


@program(5, 10**5)
def endless_recursion(n: int) -> Any:
    try:
        return _deep(n)
    except RecursionError:
        return "RecursionError"


@program(5, 800)
def deep_recursion(n: int) -> Any:
    return _deep(n)


def _deep(n: int) -> int:
    return 0 if n == 0 else 1 + _deep(n - 1)


@program(5, MANY)
def generator_loop(n: int) -> Any:
    total = 0
    for one in _numbers(n):
        total += one
    return total


def _numbers(n: int) -> Any:
    for i in range(n):
        yield i + 0


@program(5, MANY)
def generator_of_generators(n: int) -> Any:
    return sum(_delegated(n))


def _delegated(n: int) -> Any:
    yield from _numbers(n)


@program(5, MANY)
def generator_into_list(n: int) -> Any:
    return len([*_numbers(n)])


@program(5, 10**5)
def objects_made(n: int) -> Any:
    return len([_Point(i, i) for i in range(n)])


@program(5, 10**5)
def method_calls(n: int) -> Any:
    point = _Point(0, 0)
    for i in range(n):
        point.move(i)
    return point.x


class _Point:
    def __init__(self, x: int, y: int) -> None:
        self.x = x
        self.y = y

    def move(self, by: int) -> None:
        self.x += by


@program(5, 10**5)
def iterator_class(n: int) -> Any:
    return sum(_Steps(n))


class _Steps:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> int:
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program(5, 10**5)
def sequence_class(n: int) -> Any:
    return sum(iter(_Sequence(n)))


class _Sequence:
    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, index: int) -> int:
        if index >= self.n:
            raise IndexError
        return index


@program(5, 10**5)
def raising_loop(n: int) -> Any:
    count = 0
    for i in range(n):
        try:
            raise ValueError(i)
        except ValueError:
            count += 1
    return count


@program(5, 3000)
def sieve(n: int) -> Any:
    prime = [True] * (n * 100)
    for i in range(2, int((n * 100) ** 0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = [False] * len(range(i * i, n * 100, i))
    return sum(prime)


@program(5, MANY)
def sort_list(n: int) -> Any:
    made = [(i * 7919) % 1000003 for i in range(n // 4)]
    made.sort()
    return made[-1]


@program(5, MANY)
def copies(n: int) -> Any:
    made = list(range(n))
    return len(made[:]) + len(made.copy()) + len(list(made)) + len(tuple(made)) + len(set(made))


# ------------------------------------------------------------------------------ many large ones


@program(5, 1000)
def rows_of_lists(n: int) -> Any:
    return len([list(range(n)) for _ in range(n)])


@program(5, 20)
def list_doubled(n: int) -> Any:
    made = [1]
    for _ in range(n):
        made = made + made
    return len(made)


@program(5, 20)
def list_doubled_in_place(n: int) -> Any:
    made = [1]
    for _ in range(n):
        made += made
    return len(made)


@program(5, 24)
def text_doubled(n: int) -> Any:
    text = "ab"
    for _ in range(n):
        text = f"{text}{text}"
    return len(text)


@program(5, 18)
def dict_doubled(n: int) -> Any:
    made = {0: 0}
    for i in range(n):
        made |= {key + 2**i: 0 for key in made}
    return len(made)


@program(5, 18)
def set_doubled(n: int) -> Any:
    made = {0}
    for i in range(n):
        made |= {key + 2**i for key in made}
    return len(made)


# ------------------------------------------------------------------------ loops with breaks in them


@program(5, MANY)
def unknown_calls(n: int) -> Any:
    total = 0
    for i in range(n):
        total += sys.getsizeof((i,))
    return total


@program(5, MANY)
def callee_breaks(n: int) -> Any:
    total = 0
    for i in range(n):
        total += _unknown(i)
    return total


def _unknown(i: int) -> int:
    return sys.getsizeof((i,)) + 1


@program(5, MANY)
def while_breaks(n: int) -> Any:
    i = 0
    while i < n:
        i += min(1, sys.getsizeof((i,)))
    return i


@program(5, 500)
def nested_breaks(n: int) -> Any:
    total = 0
    for _ in range(n):
        for j in range(n):
            total += sys.getsizeof((j,))
    return total


@program(5, MANY)
def generator_breaks(n: int) -> Any:
    return sum(_unknowns(n))


def _unknowns(n: int) -> Any:
    for i in range(n):
        yield sys.getsizeof((i,))


@program(5, MANY)
def comprehension_breaks(n: int) -> Any:
    return len([sys.getsizeof((i,)) for i in range(n)])


@program(5, 10**5)
def native_errors(n: int) -> Any:
    count = 0
    for i in range(n):
        try:
            operator.neg(str(i))
        except TypeError:
            count += 1
    return count


@program(5, 10**5)
def method_breaks(n: int) -> Any:
    counter = _Counting()
    for i in range(n):
        counter.add(i)
    return counter.total


class _Counting:
    def __init__(self) -> None:
        self.total = 0

    def add(self, i: int) -> None:
        self.total += sys.getsizeof((i,))


@program(5, 18)
def recursion_breaks(n: int) -> Any:
    return _tree(n)


def _tree(n: int) -> int:
    return sys.getsizeof((n,)) if n < 2 else _tree(n - 1) + _tree(n - 2)


@program(5, 15)
def generator_recursion(n: int) -> Any:
    return sum(_leaves(n))


def _leaves(n: int) -> Any:
    if n == 0:
        yield 1
    else:
        yield from _leaves(n - 1)
        yield from _leaves(n - 1)


@program(5, 7)
def recursion_with_list(n: int) -> Any:
    return len(_arranged(list(range(n))))


def _arranged(items: list[int]) -> list[list[int]]:
    if not items:
        return [[]]
    return [
        [one, *rest]
        for index, one in enumerate(items)
        for rest in _arranged(items[:index] + items[index + 1 :])
    ]


@program(5, 300)
def cached_recursion(n: int) -> Any:
    return _remembered(n, {})


def _remembered(n: int, known: dict[int, int]) -> int:
    if n < 2:
        return n
    if n not in known:
        known[n] = _remembered(n - 1, known) + _remembered(n - 2, known)
    return known[n]


@program(5, 10**5)
def breadth_first(n: int) -> Any:
    queue, count = collections.deque([1]), 0
    while queue:
        one = queue.popleft()
        count += 1
        if 2 * one < n:
            queue.append(2 * one)
            queue.append(2 * one + 1)
    return count


# ------------------------------------------------------------------------------- given from outside


@program(5, MANY, lambda n: list(range(n)))
def given_list(items: list[int]) -> Any:
    return len(items), items[-1], sum(items), bool(items), 7 in items, max(items)


@program(5, MANY, lambda n: list(range(n)))
def given_list_loop(items: list[int]) -> Any:
    total = 0
    for one in items:
        total = _added(total, one)
    return total


@program(5, MANY, lambda n: list(range(n)))
def given_list_changed(items: list[int]) -> Any:
    items.append(1)
    items[0] = 5
    items.pop()
    items.insert(0, 3)
    del items[1]
    items[1:2] = [1, 2]
    items.reverse()
    return items[0], len(items)


@program(5, MANY, lambda n: tuple(range(n)))
def given_tuple(items: tuple[int, ...]) -> Any:
    first, *rest = items
    return first, len(rest), items[1:3], items.index(3), items == tuple(rest)


@program(5, MANY, lambda n: dict.fromkeys(range(n), 1))
def given_dict(items: dict[int, int]) -> Any:
    items[-1] = 4
    return len(items), items[3], items.get(-5), 4 in items, sum(items.values()), len(list(items))


@program(5, MANY, lambda n: dict.fromkeys(range(n), 1))
def given_dict_loop(items: dict[int, int]) -> Any:
    total = 0
    for key, value in items.items():
        total = _added(total, key * value)
    return total


@program(5, MANY, lambda n: dict.fromkeys(range(n), 1))
def given_dict_backwards(items: dict[int, int]) -> Any:
    total = 0
    for key in reversed(items):
        total = _added(total, key)
    return total


@program(5, MANY, lambda n: set(range(n)))
def given_set_loop(items: set[int]) -> Any:
    total = 0
    for item in items:
        total = _added(total, item)
    return total


@program(5, MANY, lambda n: list(range(n)))
def given_list_backwards(items: list[int]) -> Any:
    total = 0
    for item in reversed(items):
        total = _added(total, item)
    return total


@program(5, MANY, lambda n: set(range(n)))
def given_set(items: set[int]) -> Any:
    return len(items), 3 in items, -1 in items, len(items | {-1}), sum(items), bool(items)


@program(5, MANY, lambda n: "ab " * n)
def given_text(text: str) -> Any:
    return len(text), text[5], text.count("a"), len(text.split()), text.upper()[0], "ab" in text


@program(5, MANY, lambda n: iter(list(range(n))))
def given_iterator(items: Any) -> Any:
    return next(items), sum(items)


@program(5, MANY, lambda n: (i for i in range(n)))
def given_generator(items: Any) -> Any:
    total = 0
    for one in items:
        total = _added(total, one)
    return total


@program(5, MANY, range)
def given_range(items: range) -> Any:
    return len(items), items[-1], sum(items), 7 in items, len([*items]), sum(i for i in items)


@program(5, MANY, lambda n: collections.deque(range(n)))
def given_deque(items: Any) -> Any:
    items.append(3)
    items.popleft()
    return len(items), items[0], sum(items)


@program(5, 2**200_000)
def given_number(n: int) -> Any:
    return (n * n + 1).bit_length(), n % 7, n > 5, n == n + 1


# ----------------------------------------------------------------------------------------- tensors


@program(5, 3000)
def tensor_rows(n: int) -> Any:
    total = torch.zeros(2)
    for row in torch.ones(n, 2):
        total = total + row
    return total.tolist()


@program(5, 3000)
def tensor_parts(n: int) -> Any:
    x = torch.ones(n, 2)
    return len(x.split(1)), len(x.unbind()), len(list(x)), len(x.chunk(n))


@program(5, 20_000)
def tensor_loop(n: int) -> Any:
    x = torch.ones(2)
    for _ in range(n):
        x = x * 0.5 + 1
    return x.tolist()


@program(5, 20_000)
def tensor_while(n: int) -> Any:
    x, i = torch.ones(2), 0
    while True:
        x = x * 0.5 + 1
        i += 1
        if i > n:
            return x.tolist()
