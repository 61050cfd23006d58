# ruff: noqa: B006, B905, UP033
"""Hard cases: closures, generators, defaults, decorators, frames."""

import contextlib
import functools
import itertools

import torch

from tests.programs.case import Call, Program, hard, ramp


@hard(1, "two closures share a mutated cell and escape", torch="1")
def shared_cell():
    def f(x):
        total, count = x.sum(), 0

        def add(value):
            nonlocal total, count
            total = total + value
            count += 1
            return total

        def read():
            return total * 2, count

        add(x[0])
        return add, read

    def look(pair):
        add, read = pair
        return add(torch.ones(())), read(), add(torch.ones(())), read()

    return Program(f, [Call(ramp(3), after=look), Call(ramp(3, start=0), after=look)])


def accumulating(log):
    total = 0
    try:
        while True:
            try:
                received = yield total
                log.append("received")
                total = total + received
            except KeyError as error:
                log.append(f"caught {error}")
                total = total * 10
    finally:
        log.append("closed")


@hard(2, "generator: send, throw, close with finally", torch="1")
def generator_protocol():
    def f(x, log):
        generator = accumulating(log)
        first = next(generator)
        second = generator.send(x.sum())
        third = generator.throw(KeyError("key"))
        fourth = generator.send(x)
        generator.close()
        return first, second, third, fourth

    return Program(f, [Call(ramp(3), []), Call(ramp(3, start=1), ["before"])])


def pieces(x):
    yield x[0]
    yield x[1]
    return x[2] * 2


def all_pieces(x, out):
    last = yield from pieces(x)
    out.append(last)
    yield last + 1


@hard(3, "sum over `yield from` with its return value", torch="!")
def yield_from_value():
    def f(x):
        out = []
        total = sum(all_pieces(x, out))
        return total, out

    return Program(f, [Call(ramp(3)), Call(ramp(3, start=1))])


@hard(4, "half-consumed generator expression returned", torch="0")
def half_consumed():
    def f(x, seen):
        generator = (seen.append(i) or x * i for i in range(5))
        first = next(generator)
        second = next(generator)
        return first + second, generator

    def drain(pair):
        return list(pair[1]), list(pair[1])

    return Program(f, [Call(ramp(3), [], after=drain), Call(ramp(3), [9], after=drain)])


@contextlib.contextmanager
def swallowing(kind, log):
    log.append("enter")
    try:
        yield len(log)
    except kind as error:
        log.append(f"swallowed {error}")
    else:
        log.append("no error")
    finally:
        log.append("exit")


@hard(5, "@contextmanager that swallows an exception", torch="1", graphs=(1, 2))
def swallowed():
    def f(x, log, bad):
        y = x
        with swallowing(ValueError, log) as depth:
            y = x * depth
            if bad:
                raise ValueError("inside")
            y = y + 1
        return y - 1

    return Program(f, [Call(ramp(3), [], True), Call(ramp(3), [], True), Call(ramp(3), [], False)])


class Doubler:
    def __init__(self):
        self.count = 0

    @functools.cached_property
    def factor(self):
        self.count += 1
        return 2.0


@functools.singledispatch
def shown(value, x):
    return x


@shown.register
def _(value: int, x):
    return x + value


@shown.register(list)
def _(value, x):
    return x + len(value)


@functools.lru_cache(maxsize=None)
def factorial(n):
    return n * factorial(n - 1) if n else 1


@hard(26, "singledispatch, lru_cache, cached_property, partial", torch="2", graphs=(1, 2))
def functools_family():
    owner = Doubler()
    tripled = functools.partial(lambda a, b, *, c: a * b + c, 3, c=1)

    def f(x):
        y = shown(2, x) + shown([1, 2, 3], x) + shown("text", x)
        y = y * owner.factor + factorial(4)
        return functools.reduce(torch.add, [y, tripled(x), x])

    return Program(f, [Call(ramp(3)), Call(ramp(3, start=1))], state=owner)


def remember(x, seen=[], *, scale=2):
    seen.append(len(seen))
    return x * scale + len(seen)


@hard(31, "mutable default; __kwdefaults__ rebound", torch="3", graphs=(1, 3))
def defaults():
    def f(x):
        return remember(x) + remember(x)

    def rebind():
        remember.__kwdefaults__ = {"scale": 5}

    def rebind_list():
        remember.__defaults__ = ([1, 2, 3],)

    return Program(
        f,
        [
            Call(ramp(3)),
            Call(ramp(3)),
            Call(ramp(3), before=rebind),
            Call(ramp(3), before=rebind_list),
        ],
    )


@hard(42, "locals() and the caller's frame", graphs=(1, 3))
def local_names():
    def f(x, *, k=2):
        y = x * k
        names = sorted(locals())
        z = y + len(names)
        return z, names

    return Program(f, [Call(ramp(3)), Call(ramp(3), k=3)])


@hard(27, "groupby, accumulate, tee, cycle, pairwise", torch="1")
def itertools_family():
    def f(x):
        rows = [x[0], x[1], x[2]]
        sums = list(itertools.accumulate(rows, torch.add))
        groups = [(key, len(list(group))) for key, group in itertools.groupby([1, 1, 2, 3, 3])]
        one, other = itertools.tee(rows)
        next(other)
        pairs = [a * b for a, b in zip(one, other)]
        steps = [b - a for a, b in itertools.pairwise(sums)]
        turned = [row * factor for row, factor in zip(rows, itertools.cycle((1, -1)))]
        chained = list(itertools.chain.from_iterable([pairs, steps, turned]))
        return torch.stack(chained), groups, list(itertools.islice(itertools.count(3, 2), 4))

    return Program(f, [Call(ramp(3, 2)), Call(ramp(3, 2, start=0))])
