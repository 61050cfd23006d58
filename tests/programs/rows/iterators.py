# ruff: noqa: B009, B905
"""Rows of the checklist: iterators, builtins, the standard library, generators."""

import copy
import functools
import heapq
import itertools
import math
import operator

import torch
import torch.utils._pytree as pytree

from tests.programs.case import Call, Program, plain, ramp, row


@plain("iterators")
def zip_enumerate_map(x, xs):
    a = [i * one + t for (i, one), t in zip(enumerate(xs, 1), reversed(xs))]
    b = list(map(lambda p, q: p + q, xs, xs))
    c = list(filter(lambda p: p > 1, [1, 2, 3]))
    return a, b, c, x + 1, dict(zip("ab", (1, 2))), list(zip([1, 2], [3]))


@plain("iterators")
def explicit_iterators(x, xs):
    it = iter(xs)
    first = next(it)
    rest = [one + 1 for one in it]
    return first, rest, next(it, "done"), x + 1, iter(it) is it, next(iter({"k": 1}))


@plain("iterators")
def zip_strict(x, xs):
    try:
        list(zip(xs, [1], strict=True))
    except ValueError as error:
        return x + 1, str(error)


@plain("iterators")
def iterator_with_sentinel(x):
    items = [1, 2, 3, 0, 5]
    return [x * i for i in iter(lambda: items.pop(0), 0)], items


@row("iterators", graphs=(1, 3))
def iterator_argument():
    def f(it, x):
        return next(it) * x + next(it), it

    return Program(
        f,
        [
            Call(iter([1, 2, 3]), ramp(3)),
            Call(iter([4, 5, 6]), ramp(3)),
            Call(iter((1, 2)), ramp(3)),
        ],
    )


@plain("iterators")
def itertools_all(x, xs):
    return (
        list(itertools.chain(xs, [x[0]])),
        list(itertools.product([1, 2], "ab")),
        x + 1,
        list(itertools.combinations(range(3), 2)),
        list(itertools.permutations([1, 2])),
        list(itertools.repeat(x, 2)),
        list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.takewhile(lambda i: i < 2, range(5))),
        list(itertools.dropwhile(lambda i: i < 3, range(5))),
        list(itertools.zip_longest([1, 2], [3], fillvalue=0)),
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.filterfalse(lambda i: i % 2, range(4))),
    )


@plain("iterators")
def any_all_sum_max(x, xs, n):
    return (
        sum(xs),
        sum([1, 2], 5),
        any(i > n for i in range(5)),
        all([]),
        max(1, n),
        min([4, 2], key=lambda i: -i),
        max([], default=7),
        x * min(n, 2),
        all(isinstance(one, torch.Tensor) for one in xs),
    )


@plain("builtins")
def conversions(x, n):
    return (
        x * int(2.7),
        list("ab"),
        tuple([1]),
        dict(a=1),
        set([1, 1]),
        str(n),
        bool([]),
        float(n),
        bytes(2),
        list(range(n)),
        frozenset("a"),
        dict([("k", n)]),
        int(True),
        repr([n, "s"]),
        hash(n) == hash(3),
    )


@plain("builtins")
def math_functions(x, n):
    return (
        x * math.sqrt(n),
        math.ceil(2.1),
        math.prod([2, n]),
        math.inf > 1,
        math.gcd(12, 8),
        math.log2(8),
        math.pi,
    )


@plain("builtins")
def operator_functions(x, xs):
    return (
        operator.add(x, 1),
        operator.itemgetter(1)(xs),
        operator.methodcaller("sum")(x),
        operator.truth([]),
        functools.reduce(operator.mul, [1, 2, 3]),
        operator.contains([1], 1),
        operator.index(3),
    )


@plain("builtins")
def copies(x, d):
    shallow, deep = copy.copy(d), copy.deepcopy({"k": [1, {"m": 2}]})
    shallow["a"] = x
    return x + 1, shallow["b"] is d["b"], deep, copy.copy([x])[0] is x


@plain("builtins")
def heap_queue(x):
    heap = [3, 1, 2]
    heapq.heapify(heap)
    heapq.heappush(heap, 0)
    return x * heapq.heappop(heap) + heapq.heappop(heap), heap, heapq.nlargest(1, heap)


@plain("builtins")
def pytrees(x, d, xs):
    leaves, spec = pytree.tree_flatten({"d": d, "xs": (xs, 1)})
    mapped = pytree.tree_map(
        lambda one: one * 2 if isinstance(one, torch.Tensor) else one, (d, [x, None])
    )
    return len(leaves), mapped, pytree.tree_unflatten(leaves, spec)["xs"][1]


@plain("builtins")
def getattr_and_dir(x, n):
    return (
        getattr(x, "shape"),
        getattr(n, "nope", 5),
        hasattr(x, "sum"),
        x + 1,
        vars(type("T", (), {"q": 1}))["q"],
    )


@plain("builtins")
def lru_cached(x, n):
    @functools.lru_cache
    def fibonacci(k):
        return k if k < 2 else fibonacci(k - 1) + fibonacci(k - 2)

    return x * fibonacci(n + 5)


@plain("generators")
def generator_function(x, n):
    log = []

    def counted(k):
        log.append("start")
        for i in range(k):
            log.append(i)
            yield x * i
        log.append("end")

    total = sum(counted(n))
    return total, log, [one + 1 for one in counted(2)]


@plain("generators")
def generator_laziness(x):
    log = []

    def noisy():
        for i in range(3):
            log.append(f"make {i}")
            yield i

    out = x
    for i in noisy():
        log.append(f"use {i}")
        out = out + i
        if i == 1:
            break
    return out, log


@plain("generators")
def generator_return_value(x):
    def inner():
        got = yield x
        return got * 2

    def outer():
        answer = yield from inner()
        yield answer

    generator = outer()
    first = next(generator)
    return first, generator.send(x + 1)


@plain("generators")
def generator_exhausted(x):
    def one():
        yield x

    generator = one()
    list(generator)
    try:
        next(generator)
    except StopIteration as error:
        return x + 1, error.value, next(generator, "default")


@plain("generators")
def generator_throw(x):
    def guarded():
        try:
            yield x
        except ValueError as error:
            yield x * 2, str(error)
        finally:
            seen.append("finally")

    seen = []
    generator = guarded()
    next(generator)
    answer = generator.throw(ValueError("thrown"))
    generator.close()
    return answer, seen


@row("generators", graphs=(1, 3))
def generator_argument():
    def made(x):
        for i in range(3):
            yield x * i

    def f(generator, x):
        return next(generator) + x, generator

    def look(pair):
        return list(pair[1])

    return Program(
        f, [Call(made(ramp(3)), ramp(3), after=look), Call(made(ramp(3)), ramp(3), after=look)]
    )


@row("generators", graphs=(0, 3))
def generator_returned():
    def f(x):
        return (x * i for i in range(3))

    return Program(f, [Call(ramp(3), after=list), Call(ramp(3), after=list)])


@row("generators", graphs=(0, 4))
def generator_function_compiled():
    def f(x):
        y = x * 2
        yield y
        yield y + 1

    return Program(f, [Call(ramp(3), after=list), Call(ramp(3), after=list)])


@plain("generators")
def islice_of_infinite(x):
    def naturals():
        i = 0
        while True:
            yield i
            i += 1

    return [x * i for i in itertools.islice(naturals(), 3)]
