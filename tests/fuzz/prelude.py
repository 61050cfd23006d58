# ruff: noqa: B006
"""What a generated program may use: it stands before the program's text, in the same module."""

import contextlib
import io
import zlib

import torch

LOG = []
COUNT = 0
CONFIG = {"scale": 2, "shift": 1}
SINK = io.StringIO()
KEPT = torch.tensor([1.0, -2.0, 3.0])


class Box:
    """An object with state, a property and methods."""

    limit = 3

    def __init__(self, value, count=0):
        self.value = value
        self.count = count

    @property
    def doubled(self):
        self.count += 1
        return self.value + self.value

    def shifted(self, by=1, *more, **named):
        return self.value + by + len(more) + len(named)

    def put(self, value):
        self.value = value
        return self


class Scope:
    """A context manager that notes what it sees, and may swallow it."""

    def __init__(self, name, swallow=()):
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(("exit", self.name, kind.__name__ if kind else None))
        return kind is not None and issubclass(kind, self.swallow)


@contextlib.contextmanager
def managed(name, default=[0]):
    LOG.append(("open", name))
    default[0] += 1
    try:
        yield default[0]
    except KeyError:
        LOG.append(("swallowed", name))
    finally:
        LOG.append(("close", name))


class Failure(Exception):
    """An exception of the program's own."""

    def __init__(self, code):
        super().__init__("failed", code)
        self.code = code


def scaled(value, k=2, /, *, shift=0):
    return (value * k).clamp(-9, 9) + shift


def noted(value, times=1):
    global COUNT
    COUNT += times
    LOG.append(COUNT)
    return value


def loud(value):
    print("loud", COUNT, file=SINK)
    return value


def opaque(number):
    return zlib.crc32(bytes([number % 7])) % 5


def deep(value, depth):
    if depth <= 0:
        return loud(value + 1)
    return deep(value, depth - 1) - 1


def parts(value, count):
    LOG.append("parts begin")
    for index in range(count % 4):
        received = yield value + index
        if received is not None:
            LOG.append(received)
    LOG.append("parts end")
    return value


def delegating(value, count):
    last = yield from parts(value, count)
    yield last - 1


def refuse(number):
    if number % 2:
        raise Failure(number)
    return number
