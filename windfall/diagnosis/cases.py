"""Captured graphs as small programs: Python source over recorded values.

Enters: a captured graph and what its inputs were. Leaves: `Case`s: some of its operations, as
source that defines `program(...)`, and its arguments. Invariant: what the chosen operations read
and do not make is an argument, with the value that eager had there; so any choice of operations is
a program that eager can run.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.diagnosis.state_copies import Copies
from windfall.errors import SourceLine, WindfallError
from windfall.ir.names import Unnameable, name_of, operator_name
from windfall.ir.node import KEY

FILE = "<windfall bisect>"


class Unwritable(WindfallError):
    """An operation that source cannot say; the text says why."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A captured graph that ran, and what eager's values were."""

    name: str
    graph: torch.fx.Graph
    values: dict[torch.fx.Node, Any]

    @property
    def operations(self) -> tuple[torch.fx.Node, ...]:
        """Its nodes that do something."""
        return tuple(one for one in self.graph.nodes if one.op.startswith("call"))


class RecordingBackend:
    """A backend that runs graphs op by op, and keeps copies of what they were given and made."""

    def __init__(self) -> None:
        self.graphs: list[Recorded] = []

    def __call__(self, module: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """As torch.compile's backends are called."""
        number = len(self.graphs)

        def run(*inputs: Any) -> Any:
            interpreter = _Recording(module)
            result = interpreter.run(*inputs)
            self.graphs.append(Recorded(f"graph {number}", module.graph, interpreter.values))
            return result

        return run


class _Recording(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[torch.fx.Node, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        # A copy each, as it is now: what is written later is written to the original.
        self.values[n] = _kept(result)
        return result


def _kept(value: Any) -> Any:
    if isinstance(value, list | tuple):  # a list of named results becomes a plain one
        return (list if isinstance(value, list) else tuple)(map(_kept, value))
    if not isinstance(value, torch.Tensor):
        return value
    made = Copies().of(value.detach())
    return made.requires_grad_() if value.requires_grad else made


def origin_of(node: torch.fx.Node) -> SourceLine | None:
    """The user's line of an operation."""
    found = node.meta.get(KEY)
    return found.origin if found is not None else None


@dataclass(frozen=True, slots=True)
class Case:
    """Operations of a recorded graph, and which of their values are answered."""

    recorded: Recorded
    operations: tuple[torch.fx.Node, ...]
    results: tuple[torch.fx.Node, ...]

    @property
    def inputs(self) -> tuple[torch.fx.Node, ...]:
        """What it reads and does not make."""
        made = {*self.operations}
        read = (used for one in self.operations for used in one.all_input_nodes)
        found = dict.fromkeys(used for used in (*read, *self.results) if used not in made)
        return tuple(one for one in found if not _is_literal(self.recorded.values[one]))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What it is called with; copies are for the caller to make."""
        return tuple(self.recorded.values[one] for one in self.inputs)

    @property
    def source(self) -> str:
        """It as Python. `Unwritable`: it cannot be."""
        writer = _Writer(self.recorded.values, {*self.operations, *self.inputs})
        lines = [f"    {writer.line(one)}" for one in self.operations]
        names = ", ".join(one.name for one in self.inputs)
        answered = "".join(f"{writer.text(one)}, " for one in self.results)
        body = "\n".join([f"def program({names}):", *lines, f"    return ({answered})"])
        imports = "\n".join(f"import {one}" for one in sorted(writer.modules | {"torch"}))
        return f"{imports}\n\n\n{body}\n"

    def function(self) -> Callable[..., Any]:
        """The program that the source defines."""
        return function_of(self.source)


def function_of(source: str) -> Callable[..., Any]:
    """The function `program` of some source."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    namespace: dict[str, Any] = {"__name__": "windfall_bisect"}
    exec(compile(source, FILE, "exec"), namespace)
    made: Callable[..., Any] = namespace["program"]
    return made


def whole(recorded: Recorded) -> Case:
    """All operations of a graph, and all of its results."""
    (output,) = (one for one in recorded.graph.nodes if one.op == "output")
    return Case(recorded, recorded.operations, tuple(dict.fromkeys(output.all_input_nodes)))


def ancestors(node: torch.fx.Node, among: Iterable[torch.fx.Node]) -> tuple[torch.fx.Node, ...]:
    """The operations that a value is made of, in order, itself the last."""
    order = list(among)
    wanted, stack = {node}, [node]
    chosen = set(order)
    while stack:
        for used in stack.pop().all_input_nodes:
            if used in chosen and used not in wanted:
                wanted.add(used)
                stack.append(used)
    return tuple(one for one in order if one in wanted)


_LITERALS = (int, float, str, bool, type(None), complex, torch.dtype, torch.device, torch.layout)


def _is_literal(value: Any) -> bool:
    return isinstance(value, (*_LITERALS, torch.memory_format)) or (
        isinstance(value, list | tuple) and all(map(_is_literal, value))
    )


class _Writer:
    """Source of nodes."""

    def __init__(self, values: dict[torch.fx.Node, Any], named: set[torch.fx.Node]) -> None:
        self.modules: set[str] = set()
        self._values, self._named = values, named

    def line(self, node: torch.fx.Node) -> str:
        """One operation."""
        args = [self.text(one) for one in node.args]
        keywords = [f"{name}={self.text(one)}" for name, one in node.kwargs.items()]
        origin = origin_of(node)
        where = f"  # {origin.line}: {origin.function}" if origin else ""
        if node.op == "call_method":
            return f"{node.name} = {args[0]}.{node.target}({', '.join(args[1:] + keywords)}){where}"
        return f"{node.name} = {self._target(node.target)}({', '.join(args + keywords)}){where}"

    def _target(self, target: Any) -> str:
        try:
            if torch_abi.is_overload(target):
                namespace, _, rest = operator_name(target).partition("::")
                packet, _, overload = rest.partition(".")
                return f"torch.ops.{namespace}.{packet}.{overload or 'default'}"
            module, _, path = name_of(target).partition(":")
        except Unnameable as error:
            raise Unwritable(str(error)) from error
        if module != "builtins":
            self.modules.add(module)
        return path if module == "builtins" else f"{module}.{path}"

    def text(self, value: Any) -> str:
        """An argument."""
        if isinstance(value, torch.fx.Node):
            return value.name if value in self._named else self.text(self._values[value])
        write = _TEXTS.get(type(value))
        if write is not None:
            return write(value, self)
        if isinstance(value, tuple):
            return f"({''.join(f'{self.text(one)}, ' for one in value)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self.text(one)}' for key, one in value.items())}}}"
        if isinstance(value, (*_LITERALS, torch.memory_format)) or value is Ellipsis:
            return repr(value)
        raise Unwritable(f"{type(value).__name__} has no source")


_TEXTS: dict[type, Callable[[Any, _Writer], str]] = {
    float: lambda value, _: repr(value) if math.isfinite(value) else f"float('{value}')",
    torch.device: lambda value, _: f"torch.device({str(value)!r})",
    slice: lambda value, writer: (
        "slice(" + ", ".join(map(writer.text, (value.start, value.stop, value.step))) + ")"
    ),
}
