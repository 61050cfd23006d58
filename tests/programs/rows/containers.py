# ruff: noqa: RUF005, RUF015
"""Rows of the checklist: sequences, mappings, sets, comprehensions."""

import collections

import torch

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
        [a + b for a in xs for b in (1, 2) if b > 1],
        {k: v * 2 for k, v in d.items() if k != "a"},
        {len(k) for k in d},
        sum(a.sum() for a in xs),
        [[i * j for j in range(2)] for i in range(2)],
        max(i for i in range(4)),
        x + 1,
    )


@plain("comprehensions")
def comprehension_scope(x, n):
    i = 10
    squares = [i * i for i in range(n)]
    return x + i, squares, (lambda: [j + n for j in range(2)])()
