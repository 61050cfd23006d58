"""Hard cases: lists, dicts, collections, patterns, strings."""

import collections

import torch

from tests.programs.case import Call, Program, hard, ramp


@hard(17, "two list arguments, then the same list twice", torch="✗", graphs=(1, 2))
def same_list_twice():
    def f(one, other, x):
        one.append(x)
        total = sum(other[1:], x)
        return total * len(other)

    both = [ramp(3)]
    return Program(
        f,
        [
            Call([ramp(3)], [ramp(3)], ramp(3)),
            Call(both, both, ramp(3)),
            Call([ramp(3)], [ramp(3)], ramp(3)),
        ],
    )


@hard(18, "a mutated input that overlaps another", torch="1", graphs=(1, 3))
def overlapping_inputs():
    def f(x, y):
        x.mul_(2)
        return y + 1, x + y

    def views(one, other):
        base = ramp(6)
        return base[one], base[other]

    first, last, shifted = slice(0, 4), slice(2, 6), slice(0, 4)
    return Program(
        f,
        [
            Call(ramp(4), ramp(4)),
            Call(*views(first, last)),
            Call(*views(first, shifted)),
            Call(ramp(4), ramp(4)),
        ],
    )


@hard(19, "dict: pop, reinsert, update, del and their order", torch="1")
def dict_order():
    def f(x, table):
        first = table.pop("a")
        table["z"] = x
        table["a"] = first + 1
        table.update({"b": x * 2, "q": x * 3})
        del table["c"]
        table.setdefault("s", x - 1)
        table.setdefault("b", None)
        return list(table), [value.sum() for value in table.values()], dict(reversed(table.items()))

    def table():
        return {"a": ramp(3), "b": ramp(3, start=0), "c": ramp(3, start=1)}

    return Program(f, [Call(ramp(3), table()), Call(ramp(3), table())])


@hard(20, "deque(maxlen), defaultdict, Counter, move_to_end", torch="✗")
def collections_family():
    def f(x, history, ordered):
        history.append(x + 1)
        history.appendleft(x + 2)
        history.rotate(1)
        groups = collections.defaultdict(list)
        for index in range(4):
            groups[index % 2].append(x * index)
        counted = collections.Counter("abracadabra")
        counted.update("aab")
        ordered.move_to_end("a")
        ordered.move_to_end("c", last=False)
        total = sum(value.sum() for values in groups.values() for value in values)
        return total + counted["a"], groups, counted.most_common(2), list(ordered), history[0]

    def call():
        history = collections.deque([ramp(3), ramp(3, start=0)], maxlen=3)
        return Call(ramp(3), history, collections.OrderedDict.fromkeys("abc", 1))

    return Program(f, [call(), call()])


@hard(22, "a list that contains itself, returned", torch="1")
def self_containing():
    def f(x):
        items = [x + 1]
        items.append(items)
        table = {"me": items}
        table["self"] = table
        return items, table

    def look(pair):
        items, table = pair
        return items[1] is items, table["self"] is table, table["me"] is items

    return Program(f, [Call(ramp(3), after=look), Call(ramp(3), after=look)])


# Three keys that read data, each of another item of a list: a graph each, and one before them.
@hard(28, "sorted and max with a key over tensors, sum with a start", torch="1", graphs=(1, 4))
def keyed():
    def f(xs):
        order = sorted(xs, key=lambda one: one.shape[0], reverse=True)
        largest = max(xs, key=lambda one: one.numel())
        start = torch.zeros(())
        total = sum((one.sum() for one in order), start)
        by_value = min(range(len(xs)), key=lambda index: float(xs[index].sum()))
        return order, largest is xs[1], total + by_value

    def some():
        return [ramp(2), ramp(4), ramp(3)]

    return Program(f, [Call(some()), Call(some())])


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y


def classified(subject, x):
    match subject:
        case {"kind": "scale", "by": by, **rest} if by > 1:
            return x * by + len(rest)
        case {"kind": "scale"}:
            return x
        case Point(0, y):
            return x + y
        case Point(x=a, y=Point(b, 2 | 3 as c)):
            return x + a + b + c
        case [first, [second, *others], 5]:
            return x + first + second + len(others)
        case str(text) | bytes(text):
            return x + len(text)
        case None | True:
            return x - 1
        case _:
            return x * 0


@hard(29, "match: mapping with rest and guard, class, nested sequence", torch="4", graphs=(7, 7))
def matching():
    def f(subject, x):
        return classified(subject, x) + 1

    subjects = [
        {"kind": "scale", "by": 3, "other": 1},
        {"kind": "scale", "by": 1},
        Point(0, 4),
        Point(1, Point(2, 3)),
        [1, (2, 3, 4), 5],
        "text",
        None,
    ]
    return Program(f, [Call(subject, ramp(3)) for subject in subjects + subjects])


@hard(30, 'f"{x.shape[0]:03d}" once sizes are dynamic', torch="!", graphs=(1, 5))
def formatted_size():
    def f(x, names):
        names.append(f"{x.shape[0]:03d}|{x.shape[0] * 2!r:>4}|{x.dtype}|{tuple(x.shape)}")
        return x + x.shape[0]

    return Program(f, [Call(ramp(size), []) for size in (4, 5, 6, 7, 1)])
