# ruff: noqa: B006, B008, B023, E731, F841, RUF005, SIM, UP
"""Rows of the checklist: functions, closures, classes, patterns, strings."""

import collections
import dataclasses
import enum
import functools
import operator
import types

import torch

from tests.programs.case import Call, Program, plain, ramp, row


# ---------------------------------------------------------------------------------- functions


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


# ------------------------------------------------------------------------------------ objects


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
        x + 1, isinstance(n, (int, str)), type(x) is torch.Tensor, isinstance(x, torch.Tensor),
        issubclass(bool, int), callable(len), type(n)(4), isinstance(x, torch.nn.Parameter), id(x) == id(x),
    )  # fmt: skip


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
        x.new_zeros(shape[:1] + (n,)), shape.numel(), torch.Size([1, *shape]), len(shape), shape == (2, 3),
        tuple(shape), shape[-1] * n, torch.Size((2,)) + shape,
    )  # fmt: skip


# -------------------------------------------------------------------------- match and strings


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
