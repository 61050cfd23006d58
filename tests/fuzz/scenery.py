# ruff: noqa: B024, F401, RUF012
"""What a program of a changing world may use: it stands before the program's text, in the same
module. Every class prints without an address, so that texts of two worlds are equal."""

import abc
import collections
import dataclasses
import enum
import functools
import sys
import types

import torch
from torch import nn

from tests.programs.case import ramp


def put(owner, name, value):
    """Set an attribute, where the owner takes it."""
    try:
        setattr(owner, name, value)
    except (AttributeError, TypeError, ValueError):
        return


def drop(owner, name):
    """Delete an attribute of the owner's own, where there is one."""
    try:
        delattr(owner, name)
    except (AttributeError, TypeError):
        return


def rebase(owner, *bases):
    """Give a class other bases, where their order can be made out."""
    try:
        owner.__bases__ = bases
    except TypeError:
        return


def rotate(table):
    """The same entries, the first one last."""
    for key in list(table)[:1]:
        table[key] = table.pop(key)


def replace(items, value):
    """Another first element."""
    items[:1] = [value]


def clean(text):
    """Text without an object's address and without the C++ frames that torch tells of."""
    return text.partition(" at 0x")[0].partition("\nException raised from")[0]


def absent(owner, name, value):
    """What a `__getattr__` answers; the protocol's own names are left out."""
    if name.startswith("__"):
        raise AttributeError(name)
    return value


class Described:
    """A descriptor that does not go before the instance."""

    def __init__(self, value):
        self.value = value

    def __get__(self, owner, kind=None):
        return self.value if owner is None else (self.value, owner.value)

    def __repr__(self):
        return "described"


class Registered(abc.ABC):
    """Whoever is registered is an instance of it."""


class Mixin:
    limit = 8

    def method(self, k=1):
        return ("mixin", k)

    def __len__(self):
        return 5

    def __repr__(self):
        return "mixin"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Numbers(list):
    pass


class Table(dict):
    pass


Pair = collections.namedtuple("Pair", "one two")


@dataclasses.dataclass
class Record:
    value: int = 1
    items: tuple = (1, 2)


class Settings:
    """Constants."""

    MODE = 1
    NAMES = ("a", "b")
    TABLE = {"a": 1}


def plus(k, by=1, *, shift=0):
    return k + by + shift


def minus(k, by=1, *, shift=0):
    return k - by - shift


def twice(k, by=4, *, shift=0):
    return (k, by, shift)


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Layer(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ramp(3))
        self.register_buffer("shift", ramp(3, start=1))
        self.gain = 1

    def forward(self, x):
        return x * self.weight * self.gain + self.shift * self.scale


class Net(nn.Module):
    depth = 1

    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.layers = nn.ModuleList([nn.Identity(), nn.ReLU()])
        self.drop = nn.Dropout(1.0).eval()
        self.act = torch.relu
        self.config = {"bias": 1}

    def forward(self, x):
        x = self.act(self.first(x)) + self.config["bias"]
        for layer in self.layers:
            x = layer(x)
        if self.training:
            x = x + 1
        return self.drop(x) * self.depth


def doubling(module, args, result):
    return result * 2


def shifting(module, args):
    return (args[0] + 1, *args[1:])


__handles = []  # what torch numbers is not compared


def hook_all(function, kind):
    """A hook for every module; other worlds' modules are left alone."""
    here = (Net, Layer)

    def hook(module, *args):
        return function(module, *args) if isinstance(module, here) else None

    __handles.append(getattr(nn.modules.module, kind)(hook))


def unhook_all():
    """Take every hook away again that this world added."""
    while __handles:
        __handles.pop().remove()


side = types.ModuleType("side")
side.thing = 3
side.plus = plus
side.table = {"a": 1, "b": 2}


class Watched(types.ModuleType):
    """A module's class with an attribute that is computed."""

    @property
    def extra(self):
        return 12

    limit = 13


NET = Net()
THING = 2
SCALE = 2
ITEMS = [1, 2]
TABLE = {"a": 1, "b": 2, 1: "one"}
