# ruff: noqa: B905
"""Rows of the checklist: iterators, orderings, collections, functools of the standard library."""

import collections
import functools
import heapq
import itertools
import operator

import torch

from tests.programs.case import Call, Program, plain, ramp, row


@plain("standard")
def iterators_live_on(x):
    """Half-consumed, unstarted and finished ones that leave the function."""
    chained = itertools.chain([1, 2], (3,))
    next(chained)
    done = itertools.chain([1])
    list(done)
    return (
        x + 1,
        chained,
        done,
        itertools.chain.from_iterable([[1], [2]]),
        itertools.islice([1, 2, 3], 1, None),
        itertools.accumulate([1, 2, 3]),
        itertools.count(3, 2),
        itertools.repeat(7, 2),
        itertools.cycle("ab"),
        itertools.zip_longest([1], [2, 3], fillvalue=0),
        itertools.takewhile(bool, [1, 0]),
        map(abs, [-1, 2]),
        filter(None, [0, 1]),
        itertools.groupby([1, 1, 2]),
        itertools.product([1, 2], "ab"),
    )


@row("standard", graphs=(1, 1))
def iterators_consumed_later():
    def f(x):
        squares = map(lambda i: x * i, range(5))
        first = next(squares)
        left, right = itertools.tee([1, 2, 3])
        next(left)
        return first, squares, left, right, itertools.starmap(pow, [(2, 3), (3, 2)])

    def drain(result):
        return [list(one) for one in result[1:]]

    return Program(f, [Call(ramp(3), after=drain), Call(ramp(3), after=drain)])


@plain("standard")
def slices_of_iterators(x):
    numbers = iter(range(20))
    return (
        x + 1,
        list(itertools.islice(numbers, 2, 9, 3)),
        next(numbers),
        list(itertools.islice(numbers, 0)),
        list(itertools.islice(numbers, 5, 3)),
        next(numbers),
    )


@plain("standard")
def misused_iterators(x):
    told = []
    for make in (
        lambda: itertools.islice([1], -1),
        lambda: itertools.combinations([1], -1),
        lambda: map(abs),
        lambda: functools.reduce(operator.add, []),
        lambda: max([]),
        lambda: max(1, 2, default=3),
        lambda: sorted([1, "a"]),
        lambda: [1].index(2),
        lambda: [1].remove(2),
        lambda: (1,).index(2),
    ):
        try:
            make()
        except (ValueError, TypeError) as error:
            told.append((type(error), str(error)))
    return x + 1, told


@plain("standard")
def groups_left_behind(x):
    """A group that is asked after the next one was."""
    groups = itertools.groupby([1, 1, 2, 3, 3], key=lambda i: i // 2)
    _, first = next(groups)
    _, second = next(groups)
    return x + 1, list(first), list(second), [key for key, _ in groups]


@plain("standard")
def orderings(x, xs):
    words = ["bb", "a", "ccc"]
    words.sort(key=len, reverse=True)
    pairs = sorted(zip([2, 1, 2], xs), key=operator.itemgetter(0))
    return (
        x + 1,
        words,
        [key for key, _ in pairs],
        pairs[1][1] is xs[0],
        min(words, key=len),
        max(enumerate([3, 9, 4]), key=lambda pair: pair[1]),
        min((i * i for i in (-3, 2)), default=None),
        sorted("hello", reverse=True),
    )


class Version:
    def __init__(self, number):
        self.number = number

    def __lt__(self, other):
        return self.number < other.number


@plain("standard")
def orderings_of_objects(x):
    versions = [Version(i % 3) for i in range(5)]
    ordered = sorted(versions)
    return x + 1, [one.number for one in ordered], ordered[0] is versions[0], ordered[1].number


@plain("standard")
def heaps(x):
    heap = []
    for number in (5, 1, 4, 2, 3):
        heapq.heappush(heap, (number, "v"))
    smallest = heapq.heappop(heap)
    pushed = heapq.heappushpop(heap, (0, "w"))
    replaced = heapq.heapreplace(heap, (9, "z"))
    return x * smallest[0], heap, pushed, replaced, heapq.nsmallest(2, heap), heapq.merge([1], [0])


@row("standard", graphs=(1, 2))
def deque_argument():
    def f(x, queue):
        queue.append(x + 1)
        queue.rotate(2)
        queue[0] = queue.popleft() * 2 if len(queue) > 1 else x
        queue.extend(i for i in range(2))
        del queue[1]
        queue.reverse()
        return x * len(queue), queue.maxlen, [type(one) for one in queue], queue.copy()

    def call(limit):
        return Call(ramp(3), collections.deque([1, 2, 3], limit))

    return Program(f, [call(4), call(4), call(None)])


@plain("standard")
def deque_changed_while_iterated(x):
    queue = collections.deque([1, 2])
    try:
        for item in queue:
            queue.append(item)
    except RuntimeError as error:
        return x + 1, str(error), queue


@row("standard", graphs=(1, 1))
def default_dict_argument():
    def f(x, table):
        table["new"].append(x + 1)
        table["old"].append(x * 2)
        return x - 1, "absent" in table, table.get("absent"), len(table), table.default_factory

    def call():
        return Call(ramp(3), collections.defaultdict(list, old=[1]))

    return Program(f, [call(), call()])


@plain("standard")
def dict_keyed_by_classes(x, n):
    rules = {int: lambda t: t + 1, float: lambda t: t * 2, torch.Tensor: lambda t: t - 1}
    return rules[type(n)](x), rules[type(x)](x), rules.get(str), list in rules


REGISTRY = {int: "int", list: "list"}


@plain("standard")
def registry_of_classes(x, n):
    return x + 1, REGISTRY[type(n)], REGISTRY.get(type(x), "none"), [k.__name__ for k in REGISTRY]


@plain("standard")
def getters(x, d):
    pick = operator.itemgetter("a", "b")
    shape = operator.attrgetter("shape", "dtype")
    total = operator.methodcaller("sum", dim=0)
    return pick(d), shape(x), total(x), pick


TIMES = 0


@functools.lru_cache
def impure(n):
    global TIMES
    TIMES += 1
    return n * 2


@functools.lru_cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@row("standard", graphs=(1, 3))
def cached_functions():
    fibonacci.cache_clear()
    impure.cache_clear()

    def f(x):
        return x * fibonacci(7) + impure(3) + impure(3)

    def look(_):
        return fibonacci.cache_info(), impure.cache_info(), TIMES

    return Program(f, [Call(ramp(3), after=look), Call(ramp(3), after=look)])


@functools.singledispatch
def described(value):
    return "something"


@described.register
def _(value: int):
    return "int"


@row("standard", graphs=(1, 3))
def dispatch_changes():
    """A later registration is noticed."""

    def f(x, value):
        return x + 1, described(value)

    def more():
        described.register(str, lambda value: "str")

    return Program(f, [Call(ramp(3), 1), Call(ramp(3), "a"), Call(ramp(3), "a", before=more)])


@plain("standard")
def operators_of_module(x, xs):
    return (
        operator.add(x, 1),
        operator.iadd([1], [2]),
        operator.concat([1], [2]),
        operator.lt(1, 2),
        operator.eq(xs, xs),
        abs(x),
        abs(-3),
        functools.reduce(operator.add, xs),
    )


class Loose:
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return isinstance(other, Loose) and self.number % 3 == other.number % 3

    __hash__ = None


@plain("standard")
def equality_item_by_item(x, xs):
    one, other = [Loose(1), xs[0]], [Loose(4), xs[0]]
    return (
        x + 1,
        one == other,
        one != [Loose(2), xs[0]],
        {"k": Loose(1)} == {"k": Loose(4)},
        {"k": Loose(1)} != {"k": Loose(2)},
        (1, Version(1)) < (2, Version(0)),
        (1, Version(1)) < (1, Version(2)),
        [1, [2, 3]] > [1, [2]],
        one.index(Loose(7)),
        one.count(Loose(7)),
        (xs[0], 1) == [xs[0], 1],
    )


@plain("standard")
def views_as_sets(x, d):
    keys = d.keys()
    return (
        x + 1,
        keys & {"a", "z"},
        keys | ["z"],
        keys - {"a"},
        keys ^ {"a": 1}.keys(),
        keys >= {"a"},
        keys == {"a", "b", "c"},
        {"a"} <= keys,
        keys < {"q": 1}.keys(),
    )


@row("standard", graphs=(1, 1))
def decorators_made_inside():
    def f(x, k):
        def scaled(function):
            @functools.wraps(function)
            def wrapper(t):
                """Not seen."""
                return function(t) * k

            return wrapper

        @scaled
        def shifted(t: int) -> int:
            """Shift."""
            return t + 1

        same = shifted.__module__ == f.__module__
        return shifted(x), shifted.__name__, shifted.__doc__, same, shifted

    def look(result):
        made = result[-1]
        return made.__doc__, made.__annotations__, made.__wrapped__(1), made(2), made.__qualname__

    return Program(f, [Call(ramp(3), 2, after=look), Call(ramp(3), 2, after=look)])
