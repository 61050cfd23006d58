# ruff: noqa: B023, F821, RUF021, SIM201
"""Rows of the checklist: functions, closures, arguments, arithmetic."""

import functools

import torch

from tests.programs.case import Call, Program, plain, ramp, row


@plain("functions")
def positional_and_keyword(x, n):
    def inner(a, /, b, *rest, c=1, **more):
        return a * b + c + len(rest) + sum(more.values())

    return inner(x, 2) + inner(x, 3, 4, 5, c=n) + inner(x, b=1, c=2, d=n, e=4)


@plain("functions")
def star_calls(x, n):
    def inner(a, b, c, *, d, e=0):
        return a * b + c - d + e

    first = (x, 2)
    named = {"d": n, "e": 1}
    return inner(*first, 3, **named) + inner(*first, *[3], d=n, **{"e": 5})


@plain("functions")
def nonlocal_counter(x):
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return count

    return x * bump() + bump(3), count


@plain("functions")
def closures_in_loop(x):
    late = [lambda: x * i for i in range(3)]
    early = [lambda i=i: x * i for i in range(3)]
    return [one() for one in late], [one() for one in early]


@plain("functions")
def returned_closure_called(x, n):
    def make(k):
        def scaled(t):
            return t * k + n

        return scaled

    return make(2)(make(3)(x))


@row("functions")
def partials():
    base = functools.partial(torch.add, alpha=2)
    nested = functools.partial(functools.partial(lambda a, b, c=0: a * b + c, 2), c=3)

    def f(x):
        return base(x, x) + nested(x), nested.keywords, nested.func(1, 2)

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("functions")
def bound_static_class_methods():
    class Owner:
        factor = 2

        def bound(self, x):
            return x * self.factor

        @staticmethod
        def static(x):
            return x + 1

        @classmethod
        def of_class(cls, x):
            return x * cls.factor

    owner = Owner()
    held = owner.bound

    def f(x):
        return (
            held(x) + owner.static(x) + Owner.static(x) + owner.of_class(x) + Owner.bound(owner, x)
        )

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("functions", graphs=(1, 2))
def compiled_method():
    class Owner:
        def __init__(self):
            self.weight = ramp(3)
            self.calls = 0

        def forward(self, x, *, scale=1):
            self.calls += 1
            return x * self.weight * scale

    owner = Owner()
    return Program(
        owner.forward, [Call(ramp(3)), Call(ramp(3), scale=2), Call(ramp(3))], state=owner
    )


@row("functions")
def compiled_callable_object():
    class Adder:
        def __init__(self):
            self.bias = ramp(3)

        def __call__(self, x):
            return x + self.bias

    adder = Adder()
    return Program(adder, [Call(ramp(3)), Call(ramp(3))], state=adder)


@row("functions")
def compiled_partial():
    return Program(
        functools.partial(lambda a, b, c: a * b + c, 2, c=3), [Call(ramp(3)), Call(ramp(3))]
    )


@plain("functions")
def recursion(x, n):
    def power(t, k):
        return t * power(t, k - 1) if k else t * 0 + 1

    return power(x, n)


@row("functions")
def wrapped():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            wrapper.calls += 1
            return function(*args, **kwargs)

        wrapper.calls = 0
        return wrapper

    @logged
    def scaled(x, k=2):
        return x * k

    def f(x):
        return scaled(x) + scaled(x, k=3), scaled.__name__, scaled.__wrapped__(x)

    return Program(f, [Call(ramp(3)), Call(ramp(3))], state=scaled)


@plain("functions")
def function_attributes(x):
    def inner(t):
        return t + inner.shift

    inner.shift = 4
    return inner(x), inner


@plain("functions")
def lambdas_in_table(x, n):
    table = {"add": lambda a: a + n, "mul": lambda a: a * n}
    return [table[name](x) for name in ("mul", "add")]


@plain("functions")
def unpacking(x, xs):
    first, *middle, last = xs
    (a, b), c = (x[0], x[1]), x
    [p, q] = range(2)
    return first + last + len(middle) + a + b + p + q, {**{"a": a}, "c": c}, [*xs, *middle]


@plain("functions")
def unbound_local(x, n):
    try:
        if n > 100:
            late = x
        return late
    except UnboundLocalError as error:
        return x + 1, str(error)


@plain("functions")
def deleted_local(x):
    y = x * 2
    z = y + 1
    del y
    try:
        return y
    except UnboundLocalError:
        return z


@plain("functions")
def wrong_arguments(x):
    def inner(a, b):
        return a

    try:
        inner(x)
    except TypeError as error:
        return x + 1, str(error)


@plain("functions")
def walrus_and_chains(x, n):
    if (m := n * 2) > 5 and 0 < n < m <= 6:
        x = x + m
    return x if not n == 4 else None, [y for i in range(4) if (y := i * 2) > 2]


@plain("functions")
def short_circuit(x, n):
    calls = []

    def note(value):
        calls.append(value)
        return value

    answer = note(0) or note(n) and note("last")
    return x * len(calls), answer, calls


@plain("functions")
def integer_arithmetic(x, n):
    a = n**2 // 2 - (-n) % 4 + (n << 2 | 1) ^ 3
    b = divmod(-7, n), round(2.675, 2), int("12"), float("1e3"), n / 2, ~n, abs(-n), n.bit_length()
    return x * a, b, complex(1, n) * 2j, True + n, 10**20 // n


@plain("functions")
def conditional_expression(x, n):
    return (x if n > 2 else -x) + (1 if x.dim() == 2 else 100)


@plain("functions")
def assertions(x, n):
    assert n == 3, "three"
    try:
        assert x.shape[0] == 7, f"shape {tuple(x.shape)}"
    except AssertionError as error:
        return x + 1, error.args


@plain("functions")
def globals_read_and_written(x):
    global COUNTER
    COUNTER += 1
    return x + OFFSET, TABLE["k"]


COUNTER = 0
OFFSET = 3
TABLE = {"k": 5}


@plain("functions")
def imports_inside(x):
    import math as m
    from operator import mul

    return mul(x, m.floor(2.5))
