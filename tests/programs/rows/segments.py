# ruff: noqa: SIM108
"""Rows of the checklist: breaks anywhere, and the fewest graphs that are enough."""

import io
import sys
import warnings
import zlib

import torch

from tests.programs.case import Call, Program, plain, ramp, row


class Scope:
    def __init__(self, log, name, swallow=False):
        self.log = log
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append((self.name, kind.__name__ if kind else None, str(value)))
        return self.swallow


SINK = io.StringIO()


@plain("segments", graphs=(2, 2))
def break_between(x):
    y = x * 2
    print("between", file=SINK)
    return y + 1


@plain("segments", graphs=(1, 1))
def no_break_by_item(x):
    k = (x * 2).sum().item()
    return x + k


@plain("segments", graphs=(2, 2))
def break_by_item(x):
    k = int((x * 2).sum().item())
    return x + k


@plain("segments", graphs=(2, 2))
def break_by_branch(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y * 3


@row("segments", graphs=(3, 3))
def both_branches():
    def f(x):
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        else:
            y = y - 7
        return y

    return Program(f, [Call(ramp(3, start=start)) for start in (1, -9, 2, -8)])


@plain("segments", graphs=(2, 2))
def break_by_opaque_call(x):
    y = x + 1
    k = zlib.crc32(b"windfall") % 7
    return y * k


@plain("segments", graphs=(1, 3))
def break_in_loop_of_ten(x):
    for i in range(10):
        x = x + 1
        print(i, file=SINK)
        x = x * 2 % 5
    return x


@plain("segments", graphs=(2, 2))
def break_in_with(x):
    log = []
    with Scope(log, "a"):
        y = x * 2
        print("in with", file=SINK)
        y = y + 1
    return y, log


@plain("segments", graphs=(2, 2))
def break_in_with_then_raise(x):
    log = []
    with Scope(log, "a", swallow=True):
        y = x * 2
        print("in with", file=SINK)
        y = y + 1
        raise ValueError("swallowed")
    return y, log


@plain("segments", graphs=(2, 2))
def break_in_except(x):
    try:
        y = x + 1
        raise ValueError("v")
    except ValueError as error:
        print("handling", file=SINK)
        y = y * 2
        kept = str(error), type(sys.exc_info()[1]).__name__
    return y, kept


@plain("segments", graphs=(2, 2))
def break_in_finally(x):
    try:
        y = x + 1
    finally:
        print("finally", file=SINK)
    return y * 2


@plain("segments", graphs=(2, 2))
def break_in_generator(x):
    def parts():
        yield x + 1
        print("between yields", file=SINK)
        yield x * 2

    return sum(parts())


@plain("segments", graphs=(1, 3))
def break_in_comprehension(xs):
    def noted(t):
        print("noted", file=SINK)
        return t + 1

    return [noted(t) * 2 for t in xs]


@plain("segments", graphs=(2, 2))
def break_in_call_arguments(x):
    def combine(a, b, *, c):
        return a * b - c

    return combine(x + 1, len(str(x.sum())), c=x * 2)


@plain("segments", graphs=(2, 2))
def break_with_closure_cells(x):
    total = x * 1

    def add(value):
        nonlocal total
        total = total + value

    add(x)
    print("between", file=SINK)
    add(x * 2)
    return total, add


@plain("segments", graphs=(2, 2))
def break_with_effects_on_both_sides(x, xs):
    xs.append(x[0] + 1)
    print(len(xs), file=SINK)
    xs.append(x[1] * 2)
    return xs.pop(0)


@plain("segments", graphs=(2, 2))
def break_inside_no_grad_three_deep(w):
    def deep(t):
        y = t * 2
        print(torch.is_grad_enabled(), file=SINK)
        return y * 3

    def middle(t):
        with torch.no_grad():
            return deep(t) + 1

    return middle(w), w * 2


@plain("segments", graphs=(2, 2))
def break_by_warning(x):
    y = x + 1
    warnings.warn("look here", stacklevel=2)
    return y * 2


@plain("segments", graphs=(2, 2))
def break_by_tolist(x):
    values = (x + 1).tolist()
    return x * len(values), values


@plain("segments", graphs=(1, 3))
def data_dependent_shape(x):
    chosen = x[x > 0]
    return chosen * 2, chosen.shape[0], torch.nonzero(x).sum()


@row("segments", graphs=(1, 4))
def break_in_recursion():
    def walk(x, depth):
        if depth == 0:
            print("bottom", file=SINK)
            return x + 1
        return walk(x * 2, depth - 1) + depth

    return Program(walk, [Call(ramp(3), 3), Call(ramp(3), 3)])


@row("segments")
def tensor_free_loop():
    def f(x, n):
        total = 0
        for i in range(n):
            total = (total * 31 + i) % 1000003
        return x + total

    return Program(f, [Call(ramp(3), 20000), Call(ramp(3), 20000)])


@row("segments")
def loop_unrolled():
    def f(x, n):
        for _ in range(n):
            x = x * 2 % 7
        return x

    return Program(f, [Call(ramp(3), 20), Call(ramp(3), 20)])


@plain("segments", graphs=(1, 5))
def sort_key_reads_data(xs):
    order = sorted(xs, key=lambda one: float(one.sum()))
    return order[0] + 1, order[-1] * 2


@plain("segments", graphs=(1, 2))
def print_of_tensor(x):
    y = x + 1
    print(y, y.sum(), file=SINK)
    return y * 2


@plain("segments", graphs=(2, 2))
def while_with_else(x):
    k = 0
    while k < 3:
        k += 1
        if k == 2:
            print("two", file=SINK)
        x = x + k
    else:
        x = x * 2
    return x


@plain("segments", graphs=(2, 4))
def break_while_mapping_is_iterated(x, d):
    total = x.sum()
    for key, value in d.items():
        if key == "b":
            print(key, file=SINK)
        total = total + value.sum()
    return total


# Before, between and behind the two prints, for each call of `steps`: the stacks are different.
@row("segments", graphs=(3, 6))
def breaks_in_generator():
    def steps(x, word):
        y = x * 2
        print(word, file=SINK)
        yield y + 1
        print("again", file=SINK)
        yield y * 3

    def f(x):
        total = x - 1
        for one in steps(x, "first"):
            total = total + one
        return total, [one * 2 for one in steps(total, "second")]

    return Program(f, [Call(ramp(3)), Call(ramp(3, start=0))])


@row("segments", graphs=(1, 8))
def break_in_generator_in_generator():
    def inner(x):
        for i in range(3):
            print(i, file=SINK)
            yield x * i

    def outer(x):
        for one in inner(x):
            yield one + 1

    def f(x):
        return sum(y.sum() for y in outer(x)), list(enumerate(outer(x)))[1][0]

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("segments", graphs=(1, 8))
def break_in_generator_held_elsewhere():
    def steps(x):
        print("in", file=SINK)
        yield x + 1
        print("in", file=SINK)
        yield x + 2

    def f(x, kept):
        generator = steps(x)
        kept.append(generator)
        for one in generator:
            x = x * one
            break
        return x, next(generator), next(kept[0], None), generator is kept[0]

    def call():
        return Call(ramp(3), [])

    return Program(f, [call(), call()])


@row("segments", graphs=(0, 8))
def generator_raises_after_break():
    def steps(x, how):
        try:
            print("in", file=SINK)
            yield x + 1
            print("in", file=SINK)
            if how == "stop":
                raise StopIteration("early")
            if how == "error":
                raise KeyError("late")
            if how == "inside":
                next(iter(()))
            yield x + 2
        finally:
            print("finally", file=SINK)

    def f(x, how):
        total = x * 0
        try:
            for one in steps(x, how):
                total = total + one
                if how == "leave":
                    break
        except (KeyError, RuntimeError) as error:
            return total, str(error), type(error.__cause__)
        return total

    hows = ("none", "stop", "error", "leave", "inside", "none")
    return Program(f, [Call(ramp(3), how) for how in hows])


@row("segments", graphs=(1, 8))
def data_in_generator():
    def positive(xs):
        for x in xs:
            if x.sum() > 0:
                yield x * 2

    def f(xs):
        total = xs[0] * 0
        for x in positive(xs):
            total = total + x
        return total, max(float(x.sum()) for x in positive(xs))

    def some():
        return [ramp(3, start=start) for start in (-5, 1, -4, 2)]

    return Program(f, [Call(some()), Call(some())])


@row("segments", graphs=(1, 8))
def generator_left_before_its_end():
    def steps(x, log):
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append("closed")

    def outer(x, log):
        for one in steps(x, log):  # noqa: UP028
            yield one

    def f(x, log):
        for one in steps(x, log):
            x = x * one
            break
        log.append("between")
        for two in outer(x, log):
            x = x - two
            break
        log.append("before")
        try:
            for three in steps(x, log):
                return x * three
        finally:
            log.append("last")

    return Program(f, [Call(ramp(3), []), Call(ramp(3), [])])


@row("segments", graphs=(0, 8))
def generator_goes_with_its_frame():
    def steps(x, log, word):
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append(word)

    def inner(x, log):
        generator = steps(x, log, "inner")
        first = next(generator)
        log.append("before inner")
        return first * 2

    def f(x, log):
        held = steps(x, log, "held")
        for one in held:
            x = x * one
            break
        y = inner(x, log)
        print("between", file=SINK)
        returned = steps(y, log, "returned")
        log.append("last")
        return next(returned) + y, returned

    def look(result):
        return [one + 1 for one in result[1]]

    return Program(f, [Call(ramp(3), [], after=look), Call(ramp(3), [], after=look)])
