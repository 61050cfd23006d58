# ruff: noqa: RUF005, RUF012, RUF059, UP008
"""Rows of the checklist: classes, instances, records."""

import collections
import dataclasses
import enum
import functools
import types

import torch

from tests.programs.case import Call, Program, plain, ramp, row


class Plain:
    shared = [1]

    def __init__(self, value):
        self.value = value

    def grow(self, by):
        self.value = self.value + by
        return self


@plain("objects")
def instances_made_inside(x):
    one = Plain(x)
    other = Plain(one)
    other.value.grow(2).grow(3)
    return one, other.value is one, one.value


@row("objects")
def attributes_read_and_written():
    def f(owner, x):
        owner.value = owner.value + x
        owner.count = getattr(owner, "count", 0) + 1
        setattr(owner, "name" + "d", owner.count * 2)
        if hasattr(owner, "gone"):
            del owner.gone
        return owner.value * owner.named, vars(owner).keys() & {"count"}

    def made():
        owner = Plain(ramp(3))
        owner.gone = 1
        return owner

    return Program(f, [Call(made(), ramp(3)), Call(made(), ramp(3))])


@row("objects")
def properties():
    class Owner:
        def __init__(self):
            self._value = 2

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self._value = new + 1

        @value.deleter
        def value(self):
            self._value = 0

    def f(owner, x):
        y = x * owner.value
        owner.value = 5
        z = y + owner.value
        del owner.value
        return z, owner.value

    return Program(f, [Call(Owner(), ramp(3)), Call(Owner(), ramp(3))])


@row("objects")
def slots_and_getattr():
    class Owner:
        __slots__ = ("left", "right")

        def __init__(self):
            self.left = 1

        def __getattr__(self, name):
            return f"missing {name}"

    def f(owner, x):
        before = owner.right
        owner.right = x + owner.left
        del owner.left
        return owner.right * 2, before, owner.left, owner.other

    return Program(f, [Call(Owner(), ramp(3)), Call(Owner(), ramp(3))])


@row("objects")
def setattr_overridden():
    class Owner:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * 2)

    def f(x):
        owner = Owner()
        owner.value = x
        return owner.value + 1, owner

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("objects")
def super_and_mro():
    class Root:
        def run(self, x):
            return [x + 1]

    class Left(Root):
        def run(self, x):
            return [x * 2, *super().run(x)]

    class Right(Root):
        def run(self, x):
            return [x * 3, *super().run(x)]

    class Both(Left, Right):
        def run(self, x):
            return super(Both, self).run(x)

    both = Both()

    def f(x):
        return both.run(x), [one.__name__ for one in type(both).__mro__], issubclass(Both, Root)

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("objects", graphs=(1, 2))
def class_attributes():
    class Owner:
        count = 0
        table = {}

    def f(x):
        Owner.count += 1
        Owner.table[Owner.count] = x + 1
        return x * Owner.count

    return Program(f, [Call(ramp(3)), Call(ramp(3))], state=Owner)


@row("objects")
def comparison_methods():
    @functools.total_ordering
    class Version:
        def __init__(self, number):
            self.number = number

        def __eq__(self, other):
            return self.number == other.number

        def __lt__(self, other):
            return self.number < other.number

        def __hash__(self):
            return hash(self.number)

        def __repr__(self):
            return f"Version({self.number})"

    def f(x):
        items = [Version(3), Version(1), Version(2)]
        low, high = min(items), max(items)
        return x * high.number, sorted(items), Version(1) in {Version(1)}, low >= high, repr(low)

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("objects")
def container_methods():
    class Bag:
        def __init__(self):
            self.items = {}

        def __getitem__(self, key):
            return self.items[key]

        def __setitem__(self, key, value):
            self.items[key] = value

        def __delitem__(self, key):
            del self.items[key]

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

        def __contains__(self, key):
            return key in self.items

    def f(bag, x):
        bag["a"] = x
        bag["b"] = x * 2
        del bag["a"]
        return bag["b"] + len(bag), list(bag), "a" in bag, bool(bag)

    return Program(f, [Call(Bag(), ramp(3)), Call(Bag(), ramp(3))])


@row("objects")
def old_iteration_protocol():
    class Rows:
        def __init__(self, tensor):
            self.tensor = tensor

        def __getitem__(self, index):
            if index >= 2:
                raise IndexError(index)
            return self.tensor[index]

    def f(x):
        return sum(Rows(x)), [row * 2 for row in Rows(x)]

    return Program(f, [Call(ramp(2, 3)), Call(ramp(2, 3))])


@row("objects")
def subclasses_of_builtins():
    class Named(list):
        def __init__(self, items, name):
            super().__init__(items)
            self.name = name

        def total(self):
            return sum(self)

    class Defaulting(dict):
        def __missing__(self, key):
            self[key] = value = len(self)
            return value

    def f(x):
        named = Named([x, x + 1], "n")
        named.append(x * 2)
        table = Defaulting()
        return named.total() + table["a"] + table["b"] + table["a"], named, table

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("objects", graphs=(1, 2))
def new_is_overridden():
    class Single:
        made = None

        def __new__(cls, *args):
            if cls.made is None:
                cls.made = super().__new__(cls)
            return cls.made

        def __init__(self, value):
            self.value = value

    def f(x):
        one, other = Single(x), Single(x + 1)
        return one is other, one.value * 2

    return Program(f, [Call(ramp(3)), Call(ramp(3))], state=Single)


@plain("objects")
def simple_namespace(x):
    space = types.SimpleNamespace(a=x, b=2)
    space.c = space.a * space.b
    return space.c, space


@plain("objects")
def type_queries(x, n):
    return (
        x + 1,
        isinstance(n, (int, str)),
        type(x) is torch.Tensor,
        isinstance(x, torch.Tensor),
        issubclass(bool, int),
        callable(len),
        type(n)(4),
        isinstance(x, torch.nn.Parameter),
        id(x) == id(x),
    )


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)
    total: torch.Tensor | None = None

    def __post_init__(self):
        self.names.append("made")


@plain("records")
def dataclass_made_inside(x):
    made = Settings(scale=3.0)
    made.total = x * made.scale
    return made, dataclasses.replace(made, scale=1.0), dataclasses.asdict(made)["scale"]


@row("records")
def dataclass_argument():
    def f(settings, x):
        settings.names.append("used")
        settings.total = x * settings.scale
        return settings.total + len(dataclasses.fields(settings))

    return Program(f, [Call(Settings(), ramp(3)), Call(Settings(), ramp(3))])


Triple = collections.namedtuple("Triple", "a b c")


@row("records")
def namedtuple_argument():
    def f(triple, x):
        a, b, c = triple
        return triple._replace(c=a + b * x), triple.b + triple[2], Triple(*[x] * 3), triple._fields

    return Program(f, [Call(Triple(ramp(3), 2, 3), ramp(3)) for _ in range(2)])


class Kind(enum.Enum):
    ADD = "add"
    MUL = "mul"

    @property
    def title(self):
        return self.name.title()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@row("records", graphs=(2, 2))
def enums():
    def f(kind, x):
        y = x + Level.HIGH if kind is Kind.ADD else x * Level.HIGH
        return (
            y,
            kind.value,
            kind.title,
            Kind("mul"),
            Kind["ADD"],
            list(Kind),
            Level.LOW < Level.HIGH,
        )

    return Program(f, [Call(Kind.ADD, ramp(3)), Call(Kind.MUL, ramp(3)), Call(Kind.ADD, ramp(3))])


class Output(collections.OrderedDict):
    """Like the outputs of transformers: a dict whose fields are attributes too."""

    def __init__(self, **fields):
        super().__init__()
        for name, value in fields.items():
            if value is not None:
                self[name] = value
                object.__setattr__(self, name, value)

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self):
        return tuple(super(Output, self).__getitem__(key) for key in self.keys())


@plain("records")
def model_output(x):
    made = Output(logits=x + 1, loss=None, state=x * 2)
    return made, made.logits + made[1], made.to_tuple(), "loss" in made


@plain("records")
def sizes(x, n):
    shape = x.shape
    return (
        x.new_zeros(shape[:1] + (n,)),
        shape.numel(),
        torch.Size([1, *shape]),
        len(shape),
        shape == (2, 3),
        tuple(shape),
        shape[-1] * n,
        torch.Size((2,)) + shape,
    )
