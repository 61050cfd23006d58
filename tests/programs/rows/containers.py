# ruff: noqa: B905, C416, C417, RUF005, SIM, UP, B007
"""Rows of the checklist: sequences, mappings, sets, iterators, builtins, the standard library."""

import collections
import copy
import functools
import heapq
import itertools
import math
import operator

import torch
import torch.utils._pytree as pytree

from tests.programs.case import Call, Program, plain, ramp, row


@plain("sequences")
def list_methods(x, xs):
    xs.append(x[0])
    xs.extend([x[1], x[0]])
    xs.insert(1, x[1] * 2)
    last = xs.pop()
    first = xs.pop(0)
    xs.reverse()
    del xs[0]
    return last + first, len(xs), xs.copy(), [1, 2, 3].index(2)


@plain("sequences")
def list_slices(x, xs):
    xs[1:2] = [x[0], x[1]]
    xs[::2] = [one + 1 for one in xs[::2]]
    del xs[-1:]
    xs += [x[0]]
    xs *= 2
    return xs[1:3], xs[::-1][0] + xs[-1], [0] * 3 + [1]


@plain("sequences")
def list_aliasing(x):
    a = [x + 1]
    b = a
    b.append(x)
    c = [a, b, a[:]]
    return c, a is b, c[0] is c[1], c[0] is c[2]


@plain("sequences")
def nested_list_argument(xs):
    pair = [xs, xs]
    pair[0][0] = pair[1][1] * 2
    return pair, xs[0] + 1


@row("sequences")
def shared_tensor_in_list():
    def f(items):
        return [one + 1 for one in items], items[0] is items[2]

    def call():
        shared = ramp(3)
        return Call([shared, ramp(3), shared])

    return Program(f, [call(), call()])


@plain("sequences")
def tuples(x, n):
    t = (n, "a", x)
    return t + (4,), t * 2, t[::-1], t.index("a"), n in t, (1, 2) < (1, 3), t[2] + t[0]


@plain("sequences")
def ranges_and_slices(x, n):
    r = range(1, 10, n)
    s = slice(None, 2)
    return x[s], r[1], len(r), 7 in r, list(reversed(r)), s.indices(5), r[1:], x[..., s, None]


@plain("sequences")
def sort_with_key(xs, n):
    numbers = [3, 1, 2, n]
    numbers.sort(key=lambda one: -one)
    named = sorted([("b", 1), ("a", 2)])
    return xs[numbers[0] - 1] * 2, numbers, named, sorted(numbers, reverse=True)


@plain("sequences")
def deques(x):
    queue = collections.deque(maxlen=2)
    queue.append(x)
    queue.append(x + 1)
    queue.append(x + 2)
    first = queue.popleft()
    queue.extendleft([x, x * 2])
    return first, queue, len(queue), queue[-1] + 1


@plain("sequences")
def comparison_of_lists(x, n):
    return x + 1, [1, n] == [1, 3], [1, 2] < [1, 3], [1] != [2], (1, 2) == [1, 2], [n] * 2 == [3, 3]


@plain("sequences")
def star_in_subscript(x):
    index = (0, slice(1, None))
    return x[index] + x[0, 1:], x[[0, 1]], x[:, [0, 2]]


@plain("mappings")
def dict_methods(x, d):
    d["new"] = x
    taken = d.pop("a")
    d.update(b=x, e=1)
    d |= {"f": 2}
    default = d.setdefault("g", []).append(x) or d.get("nope", 3)
    item = d.popitem()
    return taken + d["c"], list(d), default, item, "e" in d, len(d), {**d, "z": 0}.keys() >= {"z"}


@plain("mappings")
def dict_iteration(x, d):
    total = x[0] * 0
    for key, value in d.items():
        total = total + value * len(key)
    return total, [k for k in d], list(d.values())[0] is d["a"], {v: k for k, v in {"p": 1}.items()}


@plain("mappings")
def dict_views_and_order(x, d):
    keys = d.keys()
    d["q"] = x
    d["a"] = d.pop("a")
    return (
        x + len(keys),
        list(keys),
        list(reversed(d)),
        keys & {"a", "zz"},
        next(iter(d.items()))[0],
    )


@plain("mappings")
def default_dicts(x):
    table = collections.defaultdict(lambda: x * 0)
    for i in range(3):
        table[i % 2] = table[i % 2] + x * i
    return table[0] + table[1], table[7], len(table)


@row("mappings")
def ordered_dict_argument():
    def f(table, x):
        table.move_to_end("a")
        table["n"] = x + 1
        table.popitem(last=False)
        return table["n"] + len(table), list(table)

    def call():
        return Call(collections.OrderedDict(a=1, b=2, c=3), ramp(3))

    return Program(f, [call(), call()])


@plain("mappings")
def counters(x):
    count = collections.Counter([1, 1, 2])
    count[3] += 2
    return x * count[1], count.most_common(1), count + collections.Counter({1: 1}), count["none"]


@plain("mappings")
def keys_of_other_kinds(x):
    table = {(1, "a"): x, 2.5: 1, None: 2, torch.float32: 3, True: 4, x: 5}
    return table[1, "a"] + table[None], table[x], table[torch.float32], len(table), 1 in table


@plain("mappings")
def missing_keys(x, d):
    try:
        return d["nope"]
    except KeyError as error:
        return x + 1, error.args


@plain("sets")
def sets(x, n):
    a, b = {1, 2, n}, set()
    b.add(3)
    b.update([4, 5])
    b.discard(9)
    return (
        x + len(a | b),
        a & b,
        a - b,
        a ^ b,
        n in a,
        frozenset(a) <= a,
        {i % 2 for i in range(5)},
        a == {1, 2, 3},
    )


@row("sets")
def set_argument():
    def f(seen, x):
        if "b" not in seen:
            seen.add("b")
            x = x + 1
        seen.remove("a")
        return x * len(seen)

    return Program(f, [Call({"a", "c"}, ramp(3)), Call({"a", "c"}, ramp(3))])


@plain("comprehensions")
def comprehension_kinds(x, xs, d):
    return (
        [a + b for a in xs for b in (1, 2) if b > 1], {k: v * 2 for k, v in d.items() if k != "a"},
        {len(k) for k in d}, sum(a.sum() for a in xs), [[i * j for j in range(2)] for i in range(2)],
        max(i for i in range(4)), x + 1,
    )  # fmt: skip


@plain("comprehensions")
def comprehension_scope(x, n):
    i = 10
    squares = [i * i for i in range(n)]
    return x + i, squares, (lambda: [j + n for j in range(2)])()


# ---------------------------------------------------------------------------------- iterators


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
        list(itertools.chain(xs, [x[0]])), list(itertools.product([1, 2], "ab")), x + 1,
        list(itertools.combinations(range(3), 2)), list(itertools.permutations([1, 2])),
        list(itertools.repeat(x, 2)), list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.takewhile(lambda i: i < 2, range(5))), list(itertools.dropwhile(lambda i: i < 3, range(5))),
        list(itertools.zip_longest([1, 2], [3], fillvalue=0)), list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.filterfalse(lambda i: i % 2, range(4))),
    )  # fmt: skip


@plain("iterators")
def any_all_sum_max(x, xs, n):
    return (
        sum(xs), sum([1, 2], 5), any(i > n for i in range(5)), all([]), max(1, n), min([4, 2], key=lambda i: -i),
        max([], default=7), x * min(n, 2), all(isinstance(one, torch.Tensor) for one in xs),
    )  # fmt: skip


# ----------------------------------------------------------------------------------- builtins


@plain("builtins")
def conversions(x, n):
    return (
        x * int(2.7), list("ab"), tuple([1]), dict(a=1), set([1, 1]), str(n), bool([]), float(n), bytes(2),
        list(range(n)), frozenset("a"), dict([("k", n)]), int(True), repr([n, "s"]), hash(n) == hash(3),
    )  # fmt: skip


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
        operator.add(x, 1), operator.itemgetter(1)(xs), operator.methodcaller("sum")(x), operator.truth([]),
        functools.reduce(operator.mul, [1, 2, 3]), operator.contains([1], 1), operator.index(3),
    )  # fmt: skip


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


# --------------------------------------------------------------------------------- generators


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
