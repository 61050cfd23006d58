"""python -m tests.cache.entry_changes FOLDER: whatever can change between two processes.

Enters: rows: a program, and how it differs in a later process. Leaves: a line of JSON for each: what
three processes did, which share one cache: the first (cold), a second that is like it, a third in
which the change was made; their answers, compiled and eager, and what the cache did. Each process
is forked from this one, which has torch and windfall loaded and has compiled none of these programs.
"""

# ruff: noqa: E501  (a row is a line)
from __future__ import annotations

import json
import os
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import windfall
from tests.cache import forking

HEADER = """
import collections, dataclasses, enum, functools, math, os
import torch
from torch import nn
from torch.nn import functional as F
def arguments():
    return (torch.linspace(-2, 2, 12).reshape(3, 4),)
torch.manual_seed(0)
"""


@dataclass(frozen=True)
class Change:
    """`old` becomes `new` in the text, or `setup` runs first. `same`: eager answers the same before
    and after. `kept`: such a capture is kept by nobody, for this reason ("any": some). `found`: the entry
    is used after the change too, and must be right."""

    name: str
    text: str
    old: str = ""
    new: str = ""
    setup: str = ""
    same: bool = False
    kept: str = ""
    found: bool = False
    options: tuple[tuple[str, Any], ...] = ()


HELPER = """
SCALE = 2.0
TABLE = {"a": 1.0, "b": 2.0}
ITEMS = [1.0, 2.0]
NAMES = ("a", "b")
def inner(x, by=3.0, *, shift=0.5):
    return x * by + shift
def made(value):
    def closed(x):
        return x * value
    return closed
closed = made(4.0)
triple = lambda x: x * 3
part = functools.partial(inner, by=5.0)
class Mode(enum.Enum):
    FAST = 1.5
    SLOW = 2.5
@dataclasses.dataclass
class Config:
    width: float = 2.0
    depth: float = 3.0
CONFIG = Config()
class Base:
    rate = 0.5
    def scaled(self, x):
        return x * self.rate
class Thing(Base):
    title = "thing"
    factor = 2.5
    def __init__(self):
        self.own = 1.5
    @property
    def bias(self):
        return self.own + 1
    @staticmethod
    def fixed(x):
        return x + 7
    @classmethod
    def of_class(cls, x):
        return x * cls.factor
    def __call__(self, x):
        return x - self.own
    def __getattr__(self, name):
        if name == "missing":
            return 11.0
        raise AttributeError(name)
THING = Thing()
"""


def body(expression: str) -> str:
    """A program that is one function of a tensor."""
    return HELPER + f"def target(x):\n    return ({expression}) + 0 * x\n"


MODEL = """
def helper(x):
    return x * 2
class Block(nn.Module):
    gain = 2.0
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.scale = 3.0
        self.steps = [1.0, 2.0]
        self.register_buffer("shift", torch.ones(4))
        self.drop = nn.Dropout(0.5)
        self.drop.eval()
    def forward(self, x):
        for step in self.steps:
            x = x + step
        return helper(self.drop(self.inner(x)) + self.other(x) * self.scale * self.gain + self.shift)
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        self.block = Block()
    def forward(self, x):
        return self.block(self.layers(x))
target = Twice()
"""

BROKEN = """
LATER = 3.0
def after(x):
    return x * LATER
def target(x):
    y = x + 1
    print(end="")
    return after(y) * 2
"""

CHANGES = (
    # what a function is made of
    Change("constant", body("x * 2.0"), "x * 2.0", "x * 3.0"),
    Change("operator", body("x * 2.0"), "x * 2.0", "x + 2.0"),
    Change("constant of a callee", body("inner(x)"), "x * by + shift", "x * by - shift"),
    Change("default", body("inner(x)"), "by=3.0", "by=4.0"),
    Change("keyword default", body("inner(x)"), "shift=0.5", "shift=0.75"),
    Change("closure", body("closed(x)"), "made(4.0)", "made(5.0)"),
    Change("lambda", body("triple(x)"), "x * 3", "x * 4"),
    Change("partial", body("part(x)"), "by=5.0)", "by=6.0)"),
    Change(
        "wrapped",
        body("inner(x)"),
        "def made",
        "inner = functools.wraps(inner)(lambda x: x * 9)\ndef made",
    ),
    Change("set of texts", body("x * len({'a', 'b'} & {'a', 'c'})"), "'c'", "'b'"),
    Change("membership", body("x * (2 if 'a' in {'a', 'b'} else 3)"), "{'a', 'b'}", "{'c', 'b'}"),
    # globals
    Change("global", body("x * SCALE"), "SCALE = 2.0", "SCALE = 2.5"),
    Change("type of a global", body("x * SCALE // 4"), "SCALE = 2.0", "SCALE = torch.tensor(3)"),
    Change("global is gone", body("x * SCALE"), "SCALE = 2.0", "SCALE = None or 8"),
    Change("item of a table", body("x * TABLE['b']"), '"b": 2.0', '"b": 2.5'),
    Change(
        "order of a table",
        body("x * (2 if list(TABLE)[0] == 'a' else 3)"),
        '"a": 1.0, "b": 2.0',
        '"b": 2.0, "a": 1.0',
    ),
    Change("length of a list", body("x * len(ITEMS)"), "[1.0, 2.0]", "[1.0, 2.0, 3.0]"),
    Change("item of a list", body("x * ITEMS[1]"), "[1.0, 2.0]", "[1.0, 3.0]"),
    Change("tuple", body("x * (2 if NAMES[0] == 'a' else 3)"), '("a", "b")', '("c", "b")'),
    Change(
        "a tensor's numbers",
        body("x * WEIGHT") + "WEIGHT = torch.ones(4)\n",
        "torch.ones(4)",
        "torch.ones(4) * 2",
        found=True,
    ),
    Change(
        "a tensor's dtype",
        body("x * WEIGHT") + "WEIGHT = torch.ones(4)\n",
        "torch.ones(4)",
        "torch.ones(4).double() * 2",
    ),
    Change(
        "a tensor that was a number", body("x * SCALE"), "SCALE = 2.0", "SCALE = torch.tensor(5.0)"
    ),
    Change(
        "shadowed builtin", body("x * abs(-2.0)"), "SCALE = 2.0", "SCALE = 2.0\nabs = lambda x: 9.0"
    ),
    Change(
        "shadowed module",
        body("x * math.sqrt(4.0)"),
        "SCALE = 2.0",
        "SCALE = 2.0\nclass math:\n    sqrt = staticmethod(lambda x: 9.0)",
    ),
    Change(
        "environment",
        body("x * float(os.environ.get('SOMETHING_HERE', '2'))"),
        setup="import os; os.environ['SOMETHING_HERE'] = '5'",
        kept="any",
    ),
    # classes and objects
    Change("class attribute, a number", body("x * THING.factor"), "factor = 2.5", "factor = 3.5"),
    Change("class attribute, a text", body("x * len(THING.title)"), '"thing"', '"things"'),
    Change("class attribute of a base", body("THING.scaled(x)"), "rate = 0.5", "rate = 0.25"),
    Change(
        "overriding attribute",
        body("THING.scaled(x)"),
        "factor = 2.5",
        "factor = 2.5\n    rate = 4.0",
    ),
    Change("method of a base", body("THING.scaled(x)"), "x * self.rate", "x / self.rate"),
    Change("attribute of an object", body("x * THING.own"), "self.own = 1.5", "self.own = 2.5"),
    Change(
        "attribute hides that of the class",
        body("x * THING.factor"),
        "self.own = 1.5",
        "self.own = 1.5; self.factor = 9.0",
    ),
    Change("property", body("x * THING.bias"), "self.own + 1", "self.own + 2"),
    Change("static method", body("THING.fixed(x)"), "x + 7", "x + 8"),
    Change("class method", body("Thing.of_class(x)"), "x * cls.factor", "x - cls.factor"),
    Change("call of an object", body("THING(x)"), "x - self.own", "x + self.own"),
    Change("__getattr__", body("x * THING.missing"), "return 11.0", "return 12.0"),
    Change(
        "base class",
        body("x * (2 if isinstance(THING, dict) else 3)"),
        "class Thing(Base)",
        "class Thing(Base, dict)",
    ),
    Change(
        "kind of an object",
        body("x * THING.own"),
        "THING = Thing()",
        "class Other(Thing):\n    own = property(lambda self: 6.0, lambda self, value: None)\nTHING = Other()",
    ),
    Change("member of an enumeration", body("x * Mode.FAST.value"), "FAST = 1.5", "FAST = 1.75"),
    Change(
        "order of an enumeration",
        body("x * list(Mode)[0].value"),
        "FAST = 1.5\n    SLOW = 2.5",
        "SLOW = 2.5\n    FAST = 1.5",
    ),
    Change(
        "default of a data class",
        body("x * Config().width"),
        "width: float = 2.0",
        "width: float = 4.0",
    ),
    Change(
        "fields of a data class",
        body("x * len(dataclasses.fields(Config))"),
        "depth: float = 3.0",
        "depth: float = 3.0\n    more: int = 1",
    ),
    Change(
        "data class, object", body("x * CONFIG.width"), "CONFIG = Config()", "CONFIG = Config(7.0)"
    ),
    # modules
    Change(
        "method of a module",
        MODEL,
        "return self.block(self.layers(x))",
        "return self.layers(self.block(x))",
    ),
    Change("callee of a module", MODEL, "return x * 2", "return x * 4"),
    Change("attribute of a module", MODEL, "self.scale = 3.0", "self.scale = 4.0"),
    Change("class attribute of a module", MODEL, "gain = 2.0", "gain = 2.5"),
    Change("list of a module", MODEL, "[1.0, 2.0]", "[1.0, 2.5]"),
    Change("layer more", MODEL, "nn.GELU(),", "nn.GELU(), nn.Tanh(),"),
    Change("another layer", MODEL, "nn.GELU()", "nn.SiLU()"),
    Change("argument of a layer", MODEL, "nn.GELU()", "nn.GELU(approximate='tanh')"),
    Change(
        "no bias", MODEL, "self.other = nn.Linear(4, 4)", "self.other = nn.Linear(4, 4, bias=False)"
    ),
    Change(
        "buffer that is a parameter",
        MODEL,
        'self.register_buffer("shift", torch.ones(4))',
        "self.shift = nn.Parameter(torch.ones(4) * 2)",
    ),
    Change(
        "buffer that is an attribute",
        MODEL,
        'self.register_buffer("shift", torch.ones(4))',
        "self.shift = torch.ones(4) * 2",
    ),
    Change(
        "numbers of a buffer",
        MODEL,
        "target = Twice()",
        "target = Twice()\ntarget.block.shift.fill_(2)",
        found=True,
    ),
    Change(
        "other weights",
        MODEL,
        "target = Twice()",
        "torch.manual_seed(3)\ntarget = Twice()",
        found=True,
    ),
    Change("shared layer", MODEL, "self.other = nn.Linear(4, 4)", "self.other = self.inner"),
    Change(
        "a layer's own kind",
        MODEL,
        "self.other = nn.Linear(4, 4)",
        "self.other = type('Own', (nn.Linear,), {'forward': lambda self, x: x * 5})(4, 4)",
    ),
    Change("training", MODEL, "self.drop.eval()", "self.drop.train()"),
    Change(
        "hook",
        MODEL,
        "target = Twice()",
        "target = Twice()\ntarget.block.register_forward_hook(lambda m, a, y: y * 3)",
    ),
    Change(
        "hook before",
        MODEL,
        "target = Twice()",
        "target = Twice()\ntarget.block.inner.register_forward_pre_hook(lambda m, a: (a[0] * 3,))",
    ),
    Change(
        "hook of all modules",
        MODEL,
        setup="import torch; torch.nn.modules.module.register_module_forward_hook(lambda m, a, y: y * 2)",
    ),
    Change(
        "forward of an object",
        MODEL,
        "target = Twice()",
        "target = Twice()\ntarget.block.inner.forward = lambda x: x * 9",
    ),
    Change(
        "frozen",
        MODEL,
        "target = Twice()",
        "target = Twice()\ntarget.requires_grad_(False)",
        same=True,
    ),
    Change(
        "in half precision",
        MODEL,
        "target = Twice()",
        "target = Twice().double().float().bfloat16().float()"
        "\ntarget.block.double()\ntarget.layers.double()\narguments = lambda: (torch.ones(3, 4).double(),)",
    ),
    # torch, patched or set
    Change(
        "patched function",
        body("torch.relu(x)"),
        setup="import torch; torch.relu = lambda x: x * 5",
    ),
    Change(
        "patched F",
        body("F.gelu(x)"),
        setup="import torch; torch.nn.functional.gelu = lambda x: x * 5",
    ),
    Change(
        "patched operator",
        body("x * 2.0"),
        setup="import torch; mul = torch.Tensor.__mul__; torch.Tensor.__mul__ = lambda a, b: mul(a, b) + 1",
    ),
    Change(
        "patched method",
        body("x.sin()"),
        setup="import torch; torch.Tensor.sin = lambda x: x.cos()",
    ),
    # torch's functions call each other by name
    Change(
        "patched inside of softmax",
        body("F.softmax(x, -1)"),
        setup="import torch; torch.Tensor.softmax = lambda x, *a, **k: x * 3",
    ),
    Change(
        "patched inside of layer_norm",
        body("F.layer_norm(x, (4,))"),
        setup="import functools, torch; own = torch.layer_norm; torch.layer_norm = functools.wraps(own)(lambda *a: own(*a) * 3)",
    ),
    Change(
        "patched inside of dropout",
        body("F.dropout(x, 0.5, False)"),
        setup="import torch; torch._VF.dropout = lambda x, p, training: x * 3",
    ),
    Change(
        "another of torch's inside of softmax",
        body("F.softmax(x, -1)"),
        setup="import torch; torch.Tensor.softmax = torch.Tensor.log_softmax",
    ),
    Change(
        "part of a function inside of cross_entropy",
        body("F.cross_entropy(x, torch.tensor([0, 1, 2]))"),
        setup="import functools, torch; nn = torch._C._nn; nn.cross_entropy_loss = functools.partial(lambda own, *a: own(*a) * 3, nn.cross_entropy_loss)",
    ),
    Change(
        "patched module",
        MODEL,
        setup="import torch; torch.nn.Linear.forward = lambda self, x: x * 5",
    ),
    Change(
        "patched call of modules",
        MODEL,
        setup="import torch; torch.nn.Module.__call__ = lambda self, x: self.forward(x) + 1",
    ),
    Change(
        "default dtype",
        body("x + torch.ones(4)"),
        setup="import torch; torch.set_default_dtype(torch.float64)",
    ),
    Change(
        "matmul precision",
        body("x @ x.T @ x"),
        setup="import torch; torch.set_float32_matmul_precision('medium')",
        same=True,
    ),
    Change(
        "matmul precision of one library",
        body("x @ x.T @ x"),
        setup="import torch; torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
        same=True,
    ),
    Change(
        "deterministic",
        body("x.cumsum(0)"),
        setup="import torch; torch.use_deterministic_algorithms(True)",
        same=True,
    ),
    Change("no gradients", MODEL, setup="import torch; torch.set_grad_enabled(False)", same=True),
    # the call
    Change(
        "sizes",
        body("x * 2.0"),
        "def target",
        "arguments = lambda: (torch.ones(2, 4),)\ndef target",
    ),
    Change(
        "strides",
        body("x * 2.0"),
        "def target",
        "arguments = lambda: (torch.ones(4, 3).T,)\ndef target",
    ),
    Change(
        "dtype",
        body("x * 2.0"),
        "def target",
        "arguments = lambda: (torch.ones(3, 4).double(),)\ndef target",
    ),
    Change(
        "gradient",
        body("x * 2.0"),
        "def target",
        "arguments = lambda: (torch.ones(3, 4, requires_grad=True),)\ndef target",
    ),
    Change(
        "number instead", body("x * 2.0"), "def target", "arguments = lambda: (3.0,)\ndef target"
    ),
    # tensors that are no arguments
    Change(
        "tensor of a class",
        body("x * Thing.weight") + "Thing.weight = torch.ones(4)\n",
        "torch.ones(4)",
        "torch.ones(4) * 2",
        found=True,
    ),
    Change(
        "tensor as a default",
        body("weighed(x)") + "def weighed(x, by=torch.ones(4)):\n    return x * by\n",
        "torch.ones(4)",
        "torch.full((4,), 2.0)",
        found=True,
    ),
    Change(
        "tensor in a closure",
        body("held(x)") + "held = made(torch.ones(4))\n",
        "torch.ones(4)",
        "torch.ones(4) * 2",
        found=True,
    ),
    Change("tensor of a list", body("x * torch.tensor(ITEMS).sum()"), "[1.0, 2.0]", "[1.0, 2.5]"),
    Change(
        "tensor of a constant",
        body("x * torch.tensor([1.0, 2.0]).sum()"),
        "torch.tensor([1.0, 2.0])",
        "torch.tensor([1.0, 2.5])",
    ),
    # behind a break
    Change("before a break", BROKEN, "x + 1", "x + 2"),
    Change("behind a break", BROKEN, "after(y) * 2", "after(y) * 3"),
    Change("callee behind a break", BROKEN, "x * LATER", "x + LATER"),
    Change("global behind a break", BROKEN, "LATER = 3.0", "LATER = 4.0"),
    # what is said of functions
    Change(
        "disabled",
        body("inner(x)"),
        "def made",
        "import windfall\ninner = windfall.disable(inner)\ndef made",
        same=True,
    ),
    Change(
        "substitute",
        body("inner(x)"),
        "def made",
        "import windfall\n@windfall.substitute_in_graph(inner)\ndef other(x, by=3.0, *, shift=0.5):\n    return x * by + shift + 0\ndef made",
        same=True,
    ),
    # options
    Change("option", MODEL, same=True, options=(("memory_budget", 0.5),)),
    Change("dynamic", body("x * 2.0"), same=True, options=(("dynamic", True),)),
    # what belongs to a process
    Change(
        "address", body("x * (id(Thing) % 7)"), "% 7", "% 7 + 100", kept="an address was asked for"
    ),
    Change("hash", body("x * (hash('a') % 7)"), "% 7", "% 7 + 100", kept="a hash was asked for"),
    Change(
        "order of a set",
        body("x * ['a', 'b', 'c'].index(list({'a', 'b', 'c'})[0])"),
        "{'a', 'b', 'c'}",
        "{'a'}",
        kept="the order of a set",
    ),
)


def in_process(folder: Path, text: str, setup: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a process does that has loaded this program."""
    path = folder / "program_under_test.py"
    path.write_text(HEADER + text)
    module: Any = types.ModuleType("program_under_test")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(setup, {})
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    torch.manual_seed(1)
    eager = module.target(*module.arguments())
    chosen = {
        "cache": "on",
        "cache_dir": str(folder / "cache"),
        "verify": False,
        "cache_entries": "always",
        **options,
    }
    compiled = windfall.compile(module.target, options=chosen)
    torch.manual_seed(1)
    answer = compiled(*module.arguments())
    told = windfall.explanation(compiled)
    cached = [event.facts for event in told.events if event.kind == "cache"]
    return {
        "eager": torch.as_tensor(eager).double().flatten().tolist(),
        "answer": torch.as_tensor(answer).double().flatten().tolist(),
        "dtype": [str(torch.as_tensor(one).dtype) for one in (eager, answer)],
        "grad": [torch.as_tensor(one).requires_grad for one in (eager, answer)],
        "how": [one["how"] for one in cached],
        "reasons": [one.get("reason", "") for one in cached],
        "fallbacks": [str(event.facts) for event in told.events if event.kind == "fallback"],
    }


def forked(*given: Any) -> dict[str, Any]:
    """The same in a process of its own."""
    reads, writes = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(reads)
        try:
            told: dict[str, Any] = in_process(*given)
        except BaseException as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writes, "w") as file:
            json.dump(told, file)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as file:
        text = file.read()
    os.waitpid(number, 0)
    found: dict[str, Any] = json.loads(text or '{"error": "it died"}')
    return found


def main(folder: Path) -> None:
    """All rows."""
    forking.load()
    for number, row in enumerate(CHANGES):
        place = folder / str(number)
        place.mkdir()
        assert row.old == "" or row.text.count(row.old) >= 1, row.name
        changed = row.text.replace(row.old, row.new, 1) if row.old else row.text
        before = [forked(place, row.text, "", {}) for _ in range(2)]
        after = forked(place, changed, row.setup, dict(row.options))
        print(json.dumps([row.name, *before, after]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
