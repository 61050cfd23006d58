# ruff: noqa: RUF012, UP031
"""Rows of the checklist: patterns and strings."""

import operator

import torch

from tests.programs.case import Call, Program, plain, ramp, row


class Plain:
    shared = [1]

    def __init__(self, value):
        self.value = value

    def grow(self, by):
        self.value = self.value + by
        return self


@row("match", graphs=(1, 8))
def patterns():
    def f(subject, x):
        match subject:
            case 0 | 1 as number:
                return x + number
            case [a, b]:
                return x * a + b
            case [a, *rest] if rest:
                return x + len(rest)
            case {"op": "neg"}:
                return -x
            case {"op": str(name), **others}:
                return x + len(name) + len(others)
            case Plain(value=int(value)):
                return x * value
            case float():
                return x / 2
            case _:
                return x

    subjects = [1, (2, 3), [1, 2, 3], {"op": "neg"}, {"op": "mul", "k": 1}, Plain(4), 0.5, None]
    return Program(f, [Call(subject, ramp(3)) for subject in subjects])


@plain("strings")
def format_specs(x, n):
    text = f"{n:>5}|{n:05.1f}|{'a':^7}|{n!r:>4}|{n=}|{x.shape}|{n:{n}d}|{1e6:,.2f}"
    return x + len(text), text, "{:>4}{name}".format(n, name="k"), "%03d %s" % (n, "s")


@plain("strings")
def string_methods(x, s):
    words = s.split()
    return (
        x + len(words),
        "-".join(w.title() for w in words),
        s.replace("t", "T")[::-1],
        s[1:3] * 2,
        s.find("t"),
    )


@plain("strings")
def string_tests(x, s):
    flags = s.startswith("so"), "text" in s, s.isdigit(), s == "some text", s < "t", s.encode()
    return (
        (x + 1 if flags[0] else x),
        flags,
        ord("a"),
        chr(98),
        sorted("hello"),
        str(12) + repr("q"),
    )


@plain("strings")
def dispatch_by_name(x, s):
    function = getattr(torch, "re" + "lu")
    return function(x), getattr(x, "s" + "um")(), operator.attrgetter("shape")(x)
