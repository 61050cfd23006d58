"""Programs as text, with the changes that are made to their world between calls.

Enters: a seed. Leaves: the source of some classes, of `program(x, a, b)`, and for each
call of `before_<i>` (what changes) and `arguments_<i>`. It stands behind `scenery.py`.

Invariant: it ends, it is deterministic, what it prints has no address in it, and the same text does
the same to two worlds that share no object. A statement is one line or one `try`, so that lines can
be taken out: that is how such a program is made smaller.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

# What an attribute, plain or special, may be: in the body of a class and when it is changed.
SPECIAL: dict[str, tuple[str, ...]] = {
    "__bool__": (
        "lambda self: False",
        "lambda self: True",
        "lambda self: self.value > 1",
        "lambda self: 2",
    ),
    "__len__": (
        "lambda self: 2",
        "lambda self: 0",
        "lambda self: len(self.items)",
        "lambda self: -1",
    ),
    "__iter__": (
        "lambda self: iter((1, 2))",
        "lambda self: iter(self.items)",
        "lambda self: (one for one in (3, 4))",
        "None",
    ),
    "__eq__": (
        "lambda self, other: True",
        "lambda self, other: NotImplemented",
        "lambda self, other: getattr(other, 'value', 3) == self.value",
    ),
    "__ne__": ("lambda self, other: 'ne'", "object.__ne__"),
    "__hash__": ("lambda self: 7", "object.__hash__", "None"),
    "__getattr__": (
        "lambda self, name: absent(self, name, 5)",
        "lambda self, name: absent(self, name, name)",
    ),
    "__getattribute__": (
        "lambda self, name: object.__getattribute__(self, name)",
        "lambda self, name: 6 if name == 'limit' else object.__getattribute__(self, name)",
    ),
    "__call__": (
        "lambda self, k=1: k",
        "lambda self, k=1: (k, self.value)",
        "None",
    ),
    "__contains__": ("lambda self, one: True", "lambda self, one: one == self.value", "None"),
    "__add__": (
        "lambda self, other: 'sum'",
        "lambda self, other: NotImplemented",
        "lambda self, other: self.value + other",
    ),
    "__radd__": ("lambda self, other: 'reflected'", "lambda self, other: NotImplemented"),
    "__iadd__": ("lambda self, other: 'in place'", "lambda self, other: self"),
    "__rmul__": ("lambda self, other: other * 3",),
    "__neg__": ("lambda self: -1", "lambda self: self.value"),
    "__lt__": ("lambda self, other: True", "lambda self, other: NotImplemented"),
    "__gt__": ("lambda self, other: 'gt'",),
    "__getitem__": (
        "lambda self, key: (7, 8)[key]",
        "lambda self, key: self.items[key]",
        "None",
    ),
    "__reversed__": ("lambda self: iter((9,))", "None"),
    "__index__": ("lambda self: 1", "lambda self: self.value", "lambda self: 1.5"),
    "__int__": ("lambda self: 4", "lambda self: 'no'"),
    "__float__": ("lambda self: 2.5", "lambda self: 3"),
    "__str__": ("lambda self: 'str'", "lambda self: 1"),
    "__repr__": ("lambda self: 'other'", "lambda self: f'value {self.value}'"),
    "__format__": ("lambda self, how: 'formatted' + how",),
    "__setattr__": ("object.__setattr__", "lambda self, name, value: None"),
    "__enter__": ("lambda self: 'entered'", "lambda self: self"),
    "__exit__": ("lambda self, *error: True", "lambda self, *error: None"),
    "__torch_function__": (
        "classmethod(lambda cls, function, kinds, args=(), kwargs=None: 'function')",
    ),
}
PLAIN: tuple[str, ...] = (
    "3",
    "4",
    "'text'",
    "(1, 2)",
    "None",
    "property(lambda self: self.value + 1)",
    "Described(3)",
    "classmethod(lambda cls, k=1: (cls.__name__, k))",
    "staticmethod(lambda k=2: k)",
    "lambda self, k=1: ('own', k)",
    "functools.cached_property(lambda self: self.value + 20)",
    "len",
    "plus",
    "ramp(3)",
    "Settings",
    "[1, 2]",
    "functools.partial(plus, 1)",
)
NAMES = ("limit", "extra", "method", "shown", "value", "items")
CLASSES = ("Part", "Base", "Other", "Slotted")
# Classes of the scenery, which changes may touch as well.
FURTHER = ("Mixin", "Text", "Number", "Numbers", "Table", "Record", "Pair", "Settings", "Described")
METACLASS: dict[str, tuple[str, ...]] = {
    "__bool__": ("lambda cls: False", "lambda cls: True"),
    "__len__": ("lambda cls: 3", "lambda cls: 0"),
    "__iter__": ("lambda cls: iter((5, 6))",),
    "__contains__": ("lambda cls, one: True",),
    "__getitem__": ("lambda cls, key: (7, 8)[key]",),
    "__add__": ("lambda cls, other: 'meta sum'",),
    "__eq__": ("lambda cls, other: 'meta eq'", "type.__eq__"),
    "__call__": ("lambda cls, *args: type.__call__(cls, *args)", "lambda cls, *args: 17"),
    "__getattr__": ("lambda cls, name: absent(cls, name, 15)",),
    "__instancecheck__": ("lambda cls, one: True", "lambda cls, one: False",
        "type.__instancecheck__"),
    "__subclasscheck__": ("lambda cls, one: False", "type.__subclasscheck__"),
    "__repr__": ("lambda cls: 'meta'",),
    "limit": ("3", "property(lambda cls: 14)", "lambda cls: 16"),
    "extra": ("31", "property(lambda cls: 32)", "lambda cls: 33"),
}  # fmt: skip

OBJECTS = ("P", "Q", "O", "S")  # instances that live through all calls
THINGS = (
    "1", "2", "0", "True", "1.5", "'text'", "''", "None", "()", "(1, 2)", "[1, 2]", "[]", "{}",
    "{'a': 1}", "{1: 2}", "{1, 2}", "P", "Q", "O", "S", "Part(0)", "Other(2)", "Part", "Other",
    "Base", "helper", "lambda k=1: k", "len", "int", "side", "ramp(3)", "ramp(2)", "NET",
    "range(3)",
    "Colour.RED", "Colour", "Pair(1, 2)", "Text('ab')", "Numbers([1, 2])", "Table(a=1)",
    "Number(4)", "Record(2)", "functools.partial(plus, 1)", "b'ab'", "1j", "torch.float32",
    "torch.tensor(2)", "torch.Size([3])", "frozenset([1])", "P.method", "collections.deque([1])",
    "collections.OrderedDict(a=1)", "slice(1)", "NotImplemented", "Registered", "Settings",
    "1 << 70",
    "float('nan')", "nn.Parameter(ramp(3))", "Exception('text')", "wrapped(plus)", "iter(())",
)  # fmt: skip
GLOBALS = ("THING", "SCALE", "P", "helper", "side", "NET", "ITEMS", "TABLE", "Settings", "Part")
SHADOWED = {
    "len": "lambda one: 42",
    "bool": "lambda one: 'bool'",
    "isinstance": "lambda one, kind: 'isinstance'",
    "getattr": "lambda one, name, default=0: ('getattr', name)",
    "hasattr": "lambda one, name: 'hasattr'",
    "tuple": "list",
    "str": "repr",
    "sum": "max",
    "type": "id and len",
    "callable": "lambda one: 'callable'",
    "list": "tuple",
    "int": "float",
    "ValueError": "KeyError",
    "super": "lambda *args: Mixin()",
}
USES = (
    "bool({e})", "1 if {e} else 2", "not {e}", "{e} and 1", "{e} or 3", "len({e})", "tuple({e})",
    "len(set({e}))",
    "[one for one in {e}]", "hasattr({e}, 'limit')", "hasattr({e}, 'extra')",
    "getattr({e}, 'extra', None)", "getattr({e}, 'limit', 0)", "{e}.limit", "{e}.extra",
    "{e}.value",
    "{e}.method(2)", "{e}.method()", "{e}.shown", "type({e}.items).__name__", "{e}.chained(2)",
    "isinstance({e}, (Part, int))", "isinstance({e}, Registered)", "isinstance({e}, Base)",
    "issubclass(type({e}), Other)", "isinstance(1, {e})", "1 in {e}", "{e} in (1, 'text')",
    "{e} == 1", "{e} != 1", "{e} == {f}", "{e} is {f}", "{e} + 1", "1 + {e}", "{e} < 2", "-{e}",
    "{e}[0]", "{e}['a']", "{e}[0:1]", "{e}(2)", "{e}()", "callable({e})", "clean(f'{{{e}}}')",
    "clean(f'{{{e}!r:>9}}')", "clean(str({e}))", "clean('%s' % ({e},))", "clean(format({e}))",
    "{{1: 'one', 'text': 2}}.get({e})", "{{{e}: 1}} and 1", "hash({e}) == hash({e})",
    "type({e}).__name__", "int({e})", "float({e})", "max({e}, 1)", "sum({e})", "any({e})",
    "list(map(str, {e})) and 1", "sorted({e})", "list(zip({e}, (1, 2)))", "list(enumerate({e}))",
    "dict({e})", "range({e})", "list(reversed({e}))", "helper({e})",
    "helper({e}, shift=2)", "plus(*{e})", "helper(**{e})", "x * {e}", "{e} * x", "x + {e}",
    "x[{e}]", "x.sum({e})", "x.reshape({e})", "torch.full((2,), {e})", "torch.is_tensor({e})",
    "{e}.__class__.__name__", "[*{e}]", "({e}, {f})", "{e}", "type({e}) is type({f})",
    "{e}.child.limit", "{e}.table['a']", "list({e}.table)", "'a' in {e}.table",
    "[key for key in {e}]", "getattr({e}, 'method')()", "divmod({e}, 2)", "abs({e})", "round({e})",
    "ITEMS[{e}]", "TABLE[{e}]", "'abc'[{e}]", "{e} @ x", "{e} >= {f}", "x if {e} else x + 1",
    "id({e}) == id({f})", "next(iter({e}))", "isinstance({e}, collections.abc.Iterable)",
    "isinstance({e}, type)", "matched({e})", "unpacked({e})", "entered({e})", "filled({e})",
)  # fmt: skip
WORLDLY = (
    "helper(2)", "helper(2, shift=1)", "plus(1)", "side.thing", "side.plus(1)", "side.table['a']",
    "getattr(side, 'extra', None)", "hasattr(side, 'extra')", "side.limit", "THING", "SCALE * x",
    "len(ITEMS)", "ITEMS[0]", "[one for one in ITEMS]", "TABLE['a']", "TABLE.get('c')",
    "list(TABLE)",
    "'b' in TABLE", "[*TABLE.values()]", "Settings.MODE", "Settings.NAMES[0]",
    "Settings.TABLE['a']",
    "NET(x)", "NET.training", "NET.first.weight * x", "NET.first.gain", "NET.first(x)",
    "[name for name, _ in NET.named_parameters()]", "len(NET.layers)", "hasattr(NET, 'extra')",
    "number + 1", "counted()", "Part(3).value", "Other(1).method()", "Part.limit", "Base.limit",
    "hasattr(Part, 'extra')", "getattr(Base, 'extra', 0)", "Part.method", "Part.chained(P)",
    "issubclass(Part, Base)", "issubclass(Part, Registered)", "isinstance(P, Registered)",
    "isinstance(P, Mixin)", "P.child is Q", "P.items", "P.table", "S.value", "Part(1) == Part(1)",
    "len(Part(2))", "bool(Other(0))", "[one for one in Other(1)]", "Record() == Record()",
    "Record(3).value", "Pair(1, 2).one", "Colour.RED.value", "Colour(1)", "len(Numbers([1]))",
    "Numbers([1])[0]", "Text('a') == 'a'", "Number(3) + 1", "Table(a=1)['a']",
    "functools.reduce(plus, [1, 2])", "getattr(helper, 'tag', 0)", "sys.modules['side'].thing",
    "imported()", "Part.__name__", "type(P).__name__", "Part.__mro__[1].__name__",
    "torch.relu(x)", "torch.is_grad_enabled()", "x.requires_grad", "x.shape[0]",
)  # fmt: skip

Change = Callable[["Author"], str]


class Author:
    """Draws pieces of text."""

    def __init__(self, seed: int, texts: bool) -> None:
        self.random = random.Random(seed)
        self.texts = texts
        self.told = "(type(e).__name__, clean(str(e)))" if texts else "type(e).__name__"

    def one(self, options: Iterable[str]) -> str:
        """One of these."""
        return self.random.choice(tuple(options))

    def upto(self, most: int) -> int:
        """A small number."""
        return self.random.randint(0, most)

    def thing(self) -> str:
        """An expression, of any kind."""
        return self.one(THINGS)

    def number_changed(self) -> str:
        """A small constant."""
        return self.one(("5", "1", "'five'", "2.5", "None"))

    # ------------------------------------------------------------------------------- classes

    def body(self) -> list[str]:
        """Lines of a class's body."""
        lines = []
        for _ in range(self.upto(3)):
            name, value = self.member()
            lines.append(f"    {name} = {value}")
        return lines

    def member(self, table: dict[str, tuple[str, ...]] = SPECIAL) -> tuple[str, str]:
        """A name and what a class may have under it."""
        if table is SPECIAL and self.upto(2) == 0:
            return self.one(NAMES[:4]), self.one(PLAIN)
        name = self.one(table)
        return name, self.one(table[name])

    def classes(self) -> list[str]:
        """The classes of a program."""
        lines = ["class Meta(type):", "    __hash__ = type.__hash__"]
        for _ in range(self.upto(1)):
            name, value = self.member(METACLASS)
            lines.append(f"    {name} = {value}")
        meta = self.one(("", ", metaclass=Meta"))
        lines += [f"class Base(Root{meta}):", "    limit = 1", *self.body()]
        lines += ["class Part(Base):", *self.body()]
        lines += ["    def chained(self, k): return ('part', super().chained(k))"]
        lines += [f"class Other({self.one(('Root', 'Base'))}):", "    limit = 2", *self.body()]
        lines += ["class Slotted:", "    __slots__ = ('value', 'spare')"]
        lines += ["    def __init__(self, value): self.value = value"]
        lines += ["    def __repr__(self): return 'slotted'", *self.body()]
        lines += ["P, Q, O, S = Part(1), Part(2), Other(3), Slotted(4)", "put(P, 'child', Q)"]
        return lines

    # ------------------------------------------------------------------------------- program

    def place(self) -> str:
        """Where an operand of the program comes from."""
        return self.one(PLACES)

    def use(self) -> str:
        """An expression of the program."""
        if self.upto(3) == 3:
            return self.one(WORLDLY)
        use, place = self.one(USES), self.place()
        if use.startswith("{e}(") and place == "type(a)":
            place = "a"  # a tensor of its class would hold whatever was in memory
        return use.format(e=place, f=self.place())

    def statements(self, most: int) -> list[str]:
        """Lines of the program."""
        lines = []
        for _ in range(1 + self.upto(most)):
            use, how = self.use(), self.upto(6) if self.texts else 2
            if how == 0:
                lines.append(f"out.append({use})")
            elif how == 1:
                lines.append("x = x + 1")
                lines.append(f"out.append({use})")
            else:
                lines += [
                    f"try: out.append({use})",
                    f"except Exception as e: out.append({self.told})",
                ]
        return [f"        {line}" for line in lines]

    def change(self) -> str:
        """One change of the world."""
        change = self.random.choice(CHANGES)
        return f"    {change(self)}"


PLACES = (
    "a", "a", "b", "a", "THING", "cell", "held", "P", "box[0]", 'table["k"]', "P.child",
    "side.thing",
    "Part", "P.value", "type(a)", "S", "O", "NET",
)  # fmt: skip


def _class_member(author: Author) -> str:
    name, value = author.member()
    return f"put({author.one(CLASSES)}, {name!r}, {value})"


def _class_member_gone(author: Author) -> str:
    name = author.one((*NAMES, *SPECIAL))
    return f"drop({author.one(CLASSES)}, {name!r})"


def _other_class_member(author: Author) -> str:
    name, value = author.member()
    return f"put({author.one(FURTHER)}, {name!r}, {value})"


def _metaclass_member(author: Author) -> str:
    name, value = author.member(METACLASS)
    return f"put(Meta, {name!r}, {value})"


def _metaclass_member_gone(author: Author) -> str:
    return f"drop(Meta, {author.one(METACLASS)!r})"


def _instance_attribute(author: Author) -> str:
    name = author.one((*NAMES, "child", "__len__", "__bool__", "__call__"))
    value = author.one((author.thing(), "lambda *args: 11"))
    return f"put({author.one(OBJECTS)}, {name!r}, {value})"


def _instance_attribute_gone(author: Author) -> str:
    return f"drop({author.one(OBJECTS)}, {author.one(NAMES)!r})"


def _class_of(author: Author) -> str:
    return f"put({author.one(OBJECTS[:3])}, '__class__', {author.one(('Other', 'Part', 'Base'))})"


def _bases(author: Author) -> str:
    bases = ("Base, Mixin", "Mixin, Base", "Other", "Base", "Root", "Mixin")
    return f"rebase({author.one(('Part', 'Other', 'Base'))}, {author.one(bases)})"


def _global(author: Author) -> str:
    return f"globals()[{author.one(GLOBALS)!r}] = {author.thing()}"


def _global_gone(author: Author) -> str:
    return f"globals().pop({author.one((*GLOBALS, *SHADOWED))!r}, None)"


def _shadow(author: Author) -> str:
    name = author.one(SHADOWED)
    return f"globals()[{name!r}] = {SHADOWED[name]}"


def _cell(author: Author) -> str:
    return f"set_cell({author.thing()})"


def _number(author: Author) -> str:
    return f"set_number({author.number_changed()})"


def _function(author: Author) -> str:
    function = author.one(("helper", "plus", "Root.method", "Root.chained", "counted", "program"))
    part = author.one(
        (
            "'__defaults__', (7,)",
            "'__defaults__', None",
            "'__kwdefaults__', {'shift': 6}",
            "'__kwdefaults__', None",
            "'__code__', minus.__code__",
            "'__code__', twice.__code__",
            "'tag', 3",
        )
    )
    if function == "program" and "__code__" in part:
        part = "'__defaults__', (9,)"
    return f"put({function}, {part})"


def _function_code(author: Author) -> str:
    return f"put({author.one(('helper', 'plus', 'Root.method'))}, '__code__', {author.one(CODES)})"


CODES = (
    "minus.__code__",
    "twice.__code__",
    "(lambda self, k=1: ('code', k)).__code__",
    "(lambda *args, **named: (args, sorted(named))).__code__",
)


def _module(author: Author) -> str:
    return author.one(
        (
            f"put(side, 'thing', {author.thing()})",
            "drop(side, 'thing')",
            "put(side, 'extra', 1)",
            "put(side, 'plus', minus)",
            "put(side, '__getattr__', lambda name: absent(side, name, 19))",
            "drop(side, '__getattr__')",
            "put(side, '__class__', Watched)",
            "put(side, '__class__', types.ModuleType)",
            "put(Watched, 'limit', property(lambda self: 21))",
            "side.table['a'] = 'other'",
            "globals()['side'] = types.ModuleType('side')",
        )
    )


def _container(author: Author) -> str:
    return author.one(
        (
            "ITEMS.append(3)", "ITEMS.clear()", f"replace(ITEMS, {author.thing()})",
            "ITEMS.reverse()",
            "TABLE.update(c=3)", "TABLE.pop('a', None)", "rotate(TABLE)", "TABLE.update(a='other')",
            f"box[0] = {author.thing()}", f"table['k'] = {author.thing()}", "P.items.append(4)",
            "P.items.clear()", "P.table.update(a=5)", "P.table.update(z=6)", "rotate(P.table)",
            "P.table.clear()", "Settings.TABLE.update(a=7)", f"held_in({author.thing()})",
        )
    )  # fmt: skip


def _constants(author: Author) -> str:
    return author.one(
        (
            f"Settings.MODE = {author.number_changed()}", "Settings.NAMES = ('c',)",
            "Settings.TABLE = {'a': 9}", "put(Colour.RED, '_value_', 5)",
            "put(Colour, '__bool__', lambda self: False)",
            "put(Colour, '__eq__', lambda a, b: 'eq')",
            "put(Described, '__get__', lambda self, owner, kind=None: 'got')",
            "put(Described, '__set__', lambda self, owner, value: None)",
            "drop(Described, '__set__')",
            "drop(Described, '__get__')", "Registered.register(Part)", "Registered.register(int)",
            "Registered.register(Other)", "put(Registered, '__subclasshook__', "
            "classmethod(lambda cls, kind: True if kind is Part else NotImplemented))",
        )
    )  # fmt: skip


def _modules(author: Author) -> str:
    return author.one(
        (
            "NET.first.register_forward_hook(doubling)",
            "NET.register_forward_hook(doubling)",
            "NET.first.register_forward_pre_hook(shifting)",
            "NET.first._forward_hooks.clear()",
            "hook_all(doubling, 'register_module_forward_hook')",
            "hook_all(shifting, 'register_module_forward_pre_hook')",
            "unhook_all()",
            "NET.train(not NET.training)",
            "NET.first.weight = nn.Parameter(ramp(3, start=2))",
            "put(NET.first, 'weight', nn.Parameter(ramp(1)))",
            "drop(NET.first, 'weight')",
            "NET.first.shift = ramp(3, start=5)",
            "put(NET.first, 'shift', None)",
            "drop(NET.first, 'shift')",
            "NET.first.gain = 3",
            "NET.first.weight.requires_grad_(False)",
            "NET.first.forward = lambda x: x - 1",
            "drop(NET.first, 'forward')",
            "put(Layer, 'forward', lambda self, x: x - self.gain)",
            "put(Layer, '__call__', lambda self, x: x - 5)",
            "put(Layer, 'scale', 3.0)",
            "put(Net, 'depth', 4)",
            "put(Net, '__getattr__', lambda self, name: absent(self, name, nn.Identity()))",
            "put(Net, 'extra', 1)",
            "NET.layers.append(nn.Tanh())",
            "NET.layers[0] = nn.ReLU()",
            "put(NET, 'first', nn.Identity())",
            "put(NET, 'act', torch.neg)",
            "NET.config['bias'] = 2",
            "put(NET, 'extra', 2)",
            "NET.register_buffer('extra', ramp(1))",
            "drop(NET, 'extra')",
            "put(NET, '__class__', Layer)",
        )
    )


CHANGES: tuple[Change, ...] = (
    _class_member, _class_member, _class_member_gone, _metaclass_member, _instance_attribute,
    _instance_attribute_gone, _class_of, _bases, _global, _global_gone, _shadow, _cell, _number,
    _function, _function_code, _module, _container, _constants, _modules, _other_class_member,
    _metaclass_member_gone,
)  # fmt: skip

BEGIN = """\
class Root:
    def __init__(self, value):
        self.value, self.items, self.table, self.child = value, [1, 2], {'a': 1}, None
    def method(self, k=1): return ('method', k)
    def chained(self, k): return ('root', k)
    def __repr__(self): return 'root'
"""
MAKE = """\
def make():
    cell, number, count = 2, 1, 0
    def counted(by=1, *, shift=0):
        nonlocal count
        count += by
        return count + number + shift
    def program(x, a, b=0, held=3, *, more=1):
        out = []
"""
REST = """\
        return x * 2, out, more
    def set_cell(value):
        nonlocal cell
        cell = value
    def set_number(value):
        nonlocal number
        number = value
    def held_in(value):
        program.__defaults__ = (0, value)
    return program, counted, set_cell, set_number, held_in
def helper(k, by=2, *, shift=0): return (k, by, shift)
def imported():
    import side as found
    return found.thing
def unpacked(one):
    first, *rest = one
    return first, rest
def entered(one):
    with one as inner: return inner
def filled(one):
    one += 1
    return one
def matched(one):
    match one:
        case 1: return 'one'
        case [first, *_]: return 'sequence', first
        case {'a': value}: return 'mapping', value
        case Part(value=value): return 'part', value
        case str() | int(): return 'atom'
        case _: return 'rest'
box, table = [1], {'k': 1}
program, counted, set_cell, set_number, held_in = make()
"""


def upheaval(seed: int, size: int = 8, texts: bool = True) -> str:
    """The program of a seed, and the changes of its world; `size` is how much it does at most.
    Without `texts` it catches all exceptions, and only their classes are seen."""
    author = Author(seed, texts)
    calls: list[str] = []
    a, b = author.thing(), "1"
    for index in range(3 + author.upto(3)):
        changes = [author.change() for _ in range(author.upto(2))] if index else []
        calls += [f"def before_{index}():", *(changes or ["    pass"])]
        x = author.one(("ramp(3)", "ramp(3)", "ramp(4)", "ramp(3, grad=True)"))
        if author.upto(2):
            a, b = author.thing(), author.one(("1", author.thing()))
        calls.append(f"def arguments_{index}(): return ({x}, {a}, {b})")
    head = [*BEGIN.splitlines(), *author.classes(), *MAKE.splitlines()]
    return "\n".join([*head, *author.statements(size), *REST.splitlines(), *calls])


_APPENDED = re.compile(r"^ +(?:try: )?out\.append\((.*)\)$", re.MULTILINE)
_OPERAND = re.compile(
    "|".join(rf"(?<![\w'.]){re.escape(one)}(?![\w'.(])" for one in sorted(PLACES, key=len)[::-1])
)
_RESULT = re.compile(r": result\[1\]\[(\d+)\]")


def use_at(source: str, path: str) -> str:
    """The expression of a program that made the result at a path of the comparison, or nothing."""
    found = _RESULT.search(path)
    uses = _APPENDED.findall(source)
    if found is None or int(found[1]) >= len(uses):
        return ""
    return _OPERAND.sub("e", uses[int(found[1])])
