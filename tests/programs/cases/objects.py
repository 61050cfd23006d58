"""Hard cases: classes and instances."""

import collections
import dataclasses
import enum

import torch

from tests.programs.case import Call, Program, hard, ramp


@hard(21, "__init__ registers self in a closed-over list", torch="✗", graphs=(1, 2))
def registering():
    registry = []

    class Member:
        count = 0

        def __init__(self, tensor):
            self.tensor = tensor
            self.index = len(registry)
            registry.append(self)
            Member.count += 1

    def f(x):
        one, other = Member(x + 1), Member(x * 2)
        one.partner = other
        return one.tensor + other.tensor * other.index, other

    def look(pair):
        return pair[1] is registry[-1], registry[-2].partner is pair[1], Member.count

    return Program(
        f, [Call(ramp(3), after=look), Call(ramp(3), after=look)], state=(registry, Member)
    )


class Typed:
    def __set_name__(self, owner, name):
        self.slot = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        instance.reads += 1
        return getattr(instance, self.slot)

    def __set__(self, instance, value):
        setattr(instance, self.slot, value * 1)


class Slotted:
    __slots__ = ("_weight", "extra", "reads")
    weight = Typed()

    def __init__(self, weight):
        self.reads = 0
        self.weight = weight

    @property
    def doubled(self):
        return self.weight * 2

    @doubled.setter
    def doubled(self, value):
        self.weight = value / 2

    def __getattr__(self, name):
        if name.startswith("times_"):
            return self.weight * int(name[6:])
        raise AttributeError(name)


@hard(23, "slots, descriptor, property, __getattr__", torch="1")
def attribute_protocols():
    def f(owner, x):
        y = owner.weight + owner.doubled + owner.times_3
        owner.doubled = x * 4
        owner.extra = y
        missing = getattr(owner, "absent", x)
        return y + missing + owner.weight, hasattr(owner, "absent"), hasattr(owner, "times_4")

    return Program(f, [Call(Slotted(ramp(3)), ramp(3)) for _ in range(2)])


class Base:
    def __init__(self, scale):
        self.scale = scale

    def apply(self, x):
        return x * self.scale


@hard(24, "a class with super() defined inside", torch="1")
def class_inside():
    def f(x, k):
        class Derived(Base):
            shift = k

            def __init__(self, scale):
                super().__init__(scale * 2)

            def apply(self, x):
                return super().apply(x) + self.shift

        made = Derived(3)
        return made.apply(x), type(made).__name__, isinstance(made, Base)

    return Program(f, [Call(ramp(3), 2), Call(ramp(3), 2)])


@dataclasses.dataclass(frozen=True)
class Frozen:
    weight: torch.Tensor
    scale: int = 2
    tags: tuple = ()


Pair = collections.namedtuple("Pair", ["left", "right"], defaults=[None])


class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@hard(25, "frozen dataclass, namedtuple, Flag", torch="1")
def records():
    def f(record, pair, mode, color):
        made = dataclasses.replace(record, scale=record.scale + 1, tags=("new",))
        y = made.weight * made.scale + pair.left
        if mode & Mode.WRITE:
            y = y + 1
        if color is Color.BLUE:
            y = y * 2
        other = pair._replace(right=y)
        return made, other, Pair(left=y), mode | Mode.READ, Color(1), Mode.BOTH in mode

    def call():
        return Call(Frozen(ramp(3)), Pair(ramp(3), 1), Mode.WRITE, Color.BLUE)

    return Program(f, [call(), call()])


class Vector:
    made = 0

    def __init__(self, data):
        self.data = data
        type(self).made += 1

    def __add__(self, other):
        return Vector(self.data + (other.data if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __matmul__(self, other):
        return (self.data * other.data).sum()

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return self.data.shape[0]

    def __iadd__(self, other):
        self.data = self.data + other
        return self

    def __eq__(self, other):
        return isinstance(other, Vector) and len(self) == len(other)

    __hash__ = None

    def __call__(self, x, *, by=1):
        return Vector(self.data + x * by)

    def __contains__(self, item):
        return item == len(self)

    def __iter__(self):
        return iter([self.data[0], self.data[1]])

    def __bool__(self):
        return len(self) > 2


@hard(47, "operator dunders of a user class", graphs=(1, 2))
def operator_methods():
    def f(vector, x):
        moved = 1 + vector + x
        moved += 2
        called = moved(x, by=3)
        one, other = called
        answer = (moved @ called, moved == called, 3 in called, 1 if moved else 0, moved[1:])
        return called, one - other, answer

    return Program(f, [Call(Vector(ramp(3)), ramp(3)) for _ in range(2)])
