"""A graph from its text: what `graph_text.py` prints, read again.

Enters: the text of a graph. Leaves: a `torch.fx.Graph` that prints the same. Invariant: nothing is
guessed: a name that leads to no function, node or type is a `ValueError` with its line. What the
text does not have (devices, the folders of the user's files, the data of constants) the graph has
not either; sizes that vary are symbols of the names that stand there.

    >>> from windfall.ir.graph_text import print_graph
    >>> text = '''graph(x: f32[2, 3])
    ...   relu: f32[2, 3] = .relu(x)
    ...   add: f32[2, 3] = aten.add.Tensor(relu, 1, alpha=2.5)
    ...   return (add,)'''
    >>> print_graph(parse_graph(text)) == text
    True
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from windfall.errors import SourceLine
from windfall.ir import transform  # noqa: F401  (a row of `KINDS`)
from windfall.ir.control_flow import KINDS, Subgraphs
from windfall.ir.names import HOMES, resolve, resolve_operator
from windfall.ir.node import Checkpoint, NodeInfo, Policy, Region, ValueType, add_node, set_info
from windfall.ir.parse import parse_type, split
from windfall.ir.symint import REBUILD, Expression, Size, symbol

Targets = Mapping[str, Callable[..., Any]]

_HEAD = re.compile(r"graph\((.*)\)")
_LINE = re.compile(r"(\w+)(?:: (.+?))? = (.*)", re.DOTALL)
_ORIGIN = re.compile(r"(.*?) +# ([^ ]+):(\d+)", re.DOTALL)
_REGION = re.compile(r"# in (.*?):([^:#]+)(?:#(\d+))?")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_WITH_BODIES = re.compile(rf"\w+(?:: .+?)? = (?:{'|'.join(KINDS)})[\[(]")
_BODY = re.compile(r"\w+: (graph\(.*\))")
_NUMBERS = {"inf": math.inf, "nan": math.nan}


def parse_graph(text: str, targets: Targets = MappingProxyType({})) -> torch.fx.Graph:
    """The graph of a text. `targets` has the functions that no name leads to, by what is printed of
    them: those with gradients of their own."""
    lines = text.strip("\n").splitlines()
    parser = _Parser(targets)
    while lines:
        line = lines.pop(0)
        below: list[str] = []
        if _WITH_BODIES.match(line.strip()):
            while lines and _indent(lines[0]) > _indent(line):
                below.append(lines.pop(0))
        try:
            parser.line(line.strip(), _graphs(below, targets))
        except (ValueError, KeyError, AttributeError, SyntaxError) as error:
            raise ValueError(f"{line.strip()!r}: {error}") from error
    return parser.graph


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _graphs(lines: Sequence[str], targets: Targets) -> list[torch.fx.Graph]:
    """The graphs that stand below a node, one after the other."""
    texts: list[list[str]] = []
    for line in lines:
        head = _BODY.fullmatch(line.strip())
        if head is not None and _indent(line) == _indent(lines[0]):
            texts.append([head[1]])
        else:
            texts[-1].append(line)
    return [parse_graph("\n".join(one), targets) for one in texts]


class _Parser:
    def __init__(self, targets: Targets) -> None:
        self.graph = torch.fx.Graph()
        self.targets = targets
        self.nodes: dict[str, torch.fx.Node] = {}
        self.region: Region | None = None
        self.checkpoint: Checkpoint | None = None

    def line(self, text: str, bodies: Sequence[torch.fx.Graph] = ()) -> None:
        """One line, of any kind, and the graphs that stand below it."""
        head = _HEAD.fullmatch(text)
        if head is not None and not self.nodes:
            for part in split(head[1]):
                name, _, type = part.partition(": ")
                self._add("placeholder", name, name, (), {}, type or None, None)
        elif text.startswith("# checkpoint ") or text == "# in no checkpoint":
            self.checkpoint = _checkpoint(text)
        elif text.startswith("# in "):
            self.region = _region(text)
        elif text.startswith("return "):
            value = self._value(_expression(text.removeprefix("return ")))
            add_node(self.graph, "output", "output", (value,), {}, "output")
        else:
            self._node(text, bodies)

    def _node(self, text: str, bodies: Sequence[torch.fx.Graph]) -> None:
        found = _LINE.fullmatch(text)
        if found is None:
            raise ValueError("not a line of a graph")
        name, type, rest = found.groups()
        origin = _ORIGIN.fullmatch(rest)
        where = None
        if origin is not None:
            rest, where = origin[1], SourceLine(origin[2], int(origin[3]), "")
        if rest.startswith("self."):
            self._add("get_attr", name, rest.removeprefix("self."), (), {}, type, where)
            return
        is_method = rest.startswith(".")
        called = _expression(f"target{rest}" if is_method else rest)
        if not isinstance(called, ast.Call):
            raise ValueError("not a call")
        args = tuple(self._value(one) for one in called.args)
        kwargs = {str(one.arg): self._value(one.value) for one in called.keywords}
        written = ast.unparse(called.func)
        if is_method:
            method = written.removeprefix("target.")
            self._add("call_method", name, method, args, kwargs, type, where)
        else:
            target: Any = _with_bodies(called.func, args, bodies) if bodies else None
            target = target or self.targets.get(written) or _target(written)
            self._add("call_function", name, target, args, kwargs, type, where)

    def _add(
        self,
        op: str,
        name: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        type: str | None,
        where: SourceLine | None,
    ) -> None:
        made = self.nodes[name] = add_node(self.graph, op, target, args, kwargs, name)
        if type is not None:
            is_input = op == "placeholder"
            region, checkpoint = (None, None) if is_input else (self.region, self.checkpoint)
            set_info(made, NodeInfo(_type(type), where, region, checkpoint=checkpoint))

    def _value(self, tree: ast.expr) -> Any:
        """An argument: a node, or what `repr` wrote."""
        match tree:
            case ast.Name(id=name) if name in self.nodes:
                return self.nodes[name]
            case ast.Tuple(elts=parts):
                return tuple(self._value(one) for one in parts)
            case ast.List(elts=parts):
                return [self._value(one) for one in parts]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {ast.literal_eval(key): self._value(one) for key, one in pairs if key}
            case ast.Call(func=ast.Name(id="slice"), args=parts):
                return slice(*(self._value(one) for one in parts))
        return _constant(tree)


def _with_bodies(
    function: ast.expr, args: Sequence[Any], bodies: Sequence[torch.fx.Graph]
) -> Subgraphs:
    """A target with graphs: `branch`, or `scan[1, 2, False]`."""
    facts: tuple[Any, ...] = ()
    if isinstance(function, ast.Subscript):
        written = function.slice
        parts = written.elts if isinstance(written, ast.Tuple) else [written]
        facts = tuple(_constant(one) for one in parts)
        function = function.value
    sizes = next(one for one in args if isinstance(one, list | tuple))
    symbols = [one for one in sizes if isinstance(one, Expression)]
    return KINDS[ast.unparse(function)](bodies, symbols, facts)


def _constant(tree: ast.expr) -> Any:
    match tree:
        case ast.Name(id=name) if name in _NUMBERS:
            return _NUMBERS[name]
        case ast.Name(id="Ellipsis"):
            return ...
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_constant(operand)
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return getattr(torch, name)
        case ast.Call(func=ast.Name(id="Expression"), args=[one]):
            return _size(one)
        case ast.Call(func=ast.Name(id="device"), keywords=keywords):
            return torch.device(**{str(k.arg): ast.literal_eval(k.value) for k in keywords})
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="Size"), args=[one]):
            return torch.Size(ast.literal_eval(one))
    return ast.literal_eval(tree)


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: REBUILD["//"],
    ast.Mod: REBUILD["%"],
}


def _size(tree: ast.expr) -> Size:
    """An integer expression, as it is printed."""
    match tree:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size(operand)
        case ast.BinOp(left=left, op=op, right=right):
            made: Size = _ARITHMETIC[type(op)](_size(left), _size(right))
            return made
        case ast.Call(func=ast.Name(id=name), args=parts):
            return REBUILD[name](*map(_size, parts))
    raise ValueError(f"not a size: {ast.unparse(tree)}")


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _type(text: str) -> ValueType:
    """What `_type` of graph_text printed."""
    if text.startswith("("):
        return tuple(_type(one) for one in split(text[1:-1]))
    if text.startswith("int "):
        return _size(_expression(text.removeprefix("int ")))
    if text == "NoneType":
        return None
    if text == "int":
        return 0
    bare = text.removesuffix(" grad")
    named = bare.partition("[")[2]
    symbols: dict[str, Expression] = {name: symbol(name) for name in _SYMBOL.findall(named)}
    return replace(parse_type(bare, symbols), requires_grad=bare != text)


def _region(text: str) -> Region | None:
    if text == "# in the function itself":
        return None
    found = _REGION.fullmatch(text)
    if found is None:
        raise ValueError("not a region")
    path, kind, call = found.groups()
    return Region("" if path == "(root)" else path, kind, int(call or 0))


def _checkpoint(text: str) -> Checkpoint | None:
    if text == "# in no checkpoint":
        return None
    path, _, said = text.removeprefix("# checkpoint ").partition(": ")
    found: Checkpoint | None = None
    for number in reversed(path.split(" in ")):
        found = Checkpoint(int(number), found)
    pairs = [one.rpartition(" ") for one in said.split(", ") if one]
    policies = tuple((op, Policy(policy)) for policy, _, op in pairs)
    return replace(found, policies=policies) if found is not None else None


def _target(name: str) -> Callable[..., Any]:
    """The function that was printed so: an overload, or a function of a module."""
    module, _, function = name.rpartition(".")
    tried = [(resolve_operator, name.replace(".", "::", 1)), (resolve, f"{module}:{function}")]
    for find, path in (*tried, *((resolve, f"{home}:{name}") for home in HOMES)):
        try:
            found: Callable[..., Any] = find(path)
        except (AttributeError, ImportError, ValueError, RuntimeError):
            continue
        return found
    raise ValueError(f"no function is called {name}")
