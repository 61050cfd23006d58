# ruff: noqa: B006, RUF012
"""Programs whose every reachable source is changed between calls, one at a time.

Each reads what a program can read: parameters, buffers, hooks, configuration, globals, closures,
defaults, class attributes, lists, dicts, tensors' metadata. They are small, so that each source
matters to the result, and they leave their sources as they are.
"""

import collections
import dataclasses
import functools
import numbers
import types

import torch
from torch import nn

from tests.programs.case import Call, Program, ramp, row

SCALE = 3
NAMES = ["first", "second"]
TABLE = {"first": 2, "second": ramp(3)}
WEIGHT = ramp(3)


def helper(x, by=2, *, shift=1):
    return x * by + shift


@row("perturbed")
def globals_and_helpers():
    def f(x):
        total = helper(x) * SCALE + WEIGHT
        for name in NAMES:
            total = total + TABLE[name]
        return total

    return Program(f, [Call(ramp(3))])


@row("perturbed")
def closures_and_defaults():
    weight, flag, names = ramp(3), True, ("a", "b")

    def inner(x, k=4, items=[1, 2]):
        return x * k + len(items) + items[0]

    def f(x, *, scale=2.0, options={"bias": 1}):
        if flag:
            x = inner(x) + weight
        return x * scale + options["bias"] + len(names)

    return Program(f, [Call(ramp(3))])


@row("perturbed")
def arguments():
    def f(x, y, items, table, number, text, flag, nothing, pair):
        total = x * number + y.sum() * len(items)
        for one in items:
            total = total + one
        for key, value in table.items():
            total = total + (value * 2 if key == "a" else value)
        if flag and nothing is None:
            total = total + len(text) + pair[0]
        return total, table, x is y

    items = [ramp(3), 2]
    call = Call(
        ramp(3), ramp(3), items, {"a": 1, "b": ramp(3)}, 2, "text", True, None, (ramp(3), 4)
    )
    return Program(f, [call])


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    steps: int = 2
    name: str = "config"
    flags: dict = dataclasses.field(default_factory=lambda: {"bias": True})


class Base:
    shift = 1
    sizes = [1, 2]

    def __init__(self):
        self.config = Config()
        self.weight = ramp(3)

    def run(self, x):
        for _ in range(self.config.steps):
            x = self.step(x) * self.config.scale
        return x + self.shift + len(self.sizes)

    def step(self, x):
        return x + self.weight


class Derived(Base):
    factor = 2

    def step(self, x):
        return super().step(x) * self.factor + self.bonus

    @property
    def bonus(self):
        return 1 if self.config.flags["bias"] else 5

    @staticmethod
    def fixed(x):
        return x - 1

    @classmethod
    def made(cls, x):
        return x * cls.factor


@row("perturbed")
def objects():
    owner = Derived()

    def f(x):
        return owner.run(x) + owner.fixed(x) + Derived.made(x)

    return Program(f, [Call(ramp(3))], state=owner)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self):
        self.left = 2
        self.right = ramp(3)


@row("perturbed")
def slots_and_records():
    slotted, space = Slotted(), types.SimpleNamespace(k=3, w=ramp(3))
    Point = collections.namedtuple("Point", "x y")
    point = Point(ramp(3), 2)

    def f(x):
        return x * slotted.left + slotted.right + space.k * space.w + point.x * point.y

    return Program(f, [Call(ramp(3))], state=(slotted, space))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.act = nn.ReLU()
        self.layers = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.LayerNorm(3)])
        self.register_buffer("offset", ramp(3))
        self.scale = 2
        self.drop = nn.Dropout(0.5)

    def forward(self, x, mask=None):
        x = self.act(self.first(x)) * self.scale
        for layer in self.layers:
            x = layer(x)
        if mask is not None:
            x = x * mask
        return self.drop(x) + self.offset


@row("perturbed")
def modules():
    torch.manual_seed(0)
    net = Net().eval()
    return Program(net, [Call(ramp(2, 3))], state=net)


@row("perturbed")
def modules_with_hooks():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).eval()
    seen = {"shift": 1}
    net[0].register_forward_hook(lambda module, args, out: out + seen["shift"])
    net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))

    def f(x):
        return net(x) + net[0].weight.sum()

    return Program(f, [Call(ramp(2, 3))], state=(net, seen))


@row("perturbed")
def collections_held():
    ordered = collections.OrderedDict(a=1, b=2)
    queue = collections.deque([1, 2], maxlen=3)
    names = {"x", "y"}
    bound = functools.partial(helper, by=5)
    nested = {"list": [{"deep": (1, [2, 3])}], None: 4}

    def f(x):
        total = x * ordered["b"] + len(queue) + queue[0] + len(names) + bound(x)
        for key in ordered:
            total = total + ord(key)
        if "x" in names:
            total = total * 2
        return total + nested["list"][0]["deep"][1][0] + nested[None]

    return Program(f, [Call(ramp(3))], state=(ordered, queue, names, nested))


@row("perturbed")
def behind_a_break():
    settings = {"k": 2, "w": ramp(3)}
    owner = Derived()

    def f(x, items):
        y = x * settings["k"]
        print("break")
        y = y + settings["w"] + owner.factor
        for one in items:
            y = owner.step(y) + one
            print("again")
        return y

    return Program(f, [Call(ramp(3), [1, 2, 3])], state=(settings, owner))


@row("perturbed")
def metadata():
    def f(x, y):
        total = x + y
        if x.dtype == torch.float32:
            total = total * 2
        if x.shape[0] > 2 and x.is_contiguous():
            total = total + x.stride(0)
        if y.requires_grad:
            total = total + 1
        if x.is_floating_point() and torch.is_grad_enabled():
            total = total - 3
        return total, isinstance(y, nn.Parameter)

    return Program(f, [Call(ramp(3, 3), ramp(3, 3, grad=True))])


@row("perturbed")
def decisions_about_numbers():
    def f(x, number):
        total = x.sum() * number
        if number > 4:
            total = total + 1
        return total

    return Program(f, [Call(ramp(3), 3)])


@row("perturbed")
def decisions_about_floats():
    def f(x, number):
        total = x.sum() * number
        if number > 4.0:
            total = total + 1
        return total

    return Program(f, [Call(ramp(3), 3.75)])


@row("perturbed")
def abstract_classes():
    class Plain:
        value = 2

    owner = Plain()

    def f(x):
        return x * 2 if isinstance(owner, numbers.Number) else x + owner.value

    return Program(f, [Call(ramp(3))], state=owner)


@row("perturbed")
def mutating():
    def f(x, y, items, other):
        x.add_(1)
        items.append(y)
        total = sum(one.sum() for one in other)
        items.pop()
        x.sub_(1)
        return total + x.sum() + y.sum()

    return Program(f, [Call(ramp(3), ramp(3), [ramp(3)], [ramp(3), ramp(3)])])


@row("perturbed")
def absent_names():
    class Optional:
        pass

    owner, table = Optional(), {"present": 1}

    def f(x):
        if hasattr(owner, "extra"):
            x = x * 2
        x = x + getattr(owner, "bonus", 1) + table.get("absent", 3)
        if "absent" in table:
            x = x - 1
        return x

    return Program(f, [Call(ramp(3))], state=(owner, table))
