"""Graphs whose sizes vary, made by hand, compiled once and run at many sizes.

`Varying` records ATen ops on inputs whose sizes are expressions of symbols. The type of a node is
found without any rule of ours: the op is done by eager at many small sizes, and each size and
stride of the answer is written as a polynomial of the symbols that fits them all.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from tests.codegen.harness import run
from tests.seeds import set_seed
from windfall.codegen import build, emit, lower, plan, schedule
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Loops, Schedule
from windfall.ir.node import NodeInfo, info, set_info
from windfall.ir.spec import verify_graph, verify_loops, verify_schedule
from windfall.ir.stages import Program
from windfall.ir.symint import Expression, Size, evaluate, product, size_symbol

SIZES = (2, 3, 5, 8, 17, 64)
Values = Mapping[str, int]


class Varying:
    """A graph under construction, with eager's value of each node at many sizes."""

    def __init__(
        self, hints: Mapping[str, int], extra: Callable[..., Sequence[Size]] | None = None
    ):
        self.symbols = {name: size_symbol(name, value) for name, value in hints.items()}
        self.graph = torch.fx.Graph()
        self.makers: list[Callable[[Values], torch.Tensor]] = []
        self.values: dict[torch.fx.Node, list[Any]] = {}
        self.extra = list(extra(*self.symbols.values())) if extra is not None else []
        draw = random.Random(3)
        self.samples: list[Values] = [
            {name: draw.randint(2, 7) for name in hints} for _ in range(40)
        ]

    # ------------------------------------------------------------------------------- recording

    def input(
        self,
        sizes: Sequence[Size],
        make: Callable[..., torch.Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> torch.fx.Node:
        """A tensor of these sizes; `make(values, *sizes)` may lay it out otherwise."""
        seed = len(self.makers)

        def maker(values: Values) -> torch.Tensor:
            set_seed(seed)
            shape = [evaluate(size, values) for size in sizes]
            return make(values, *shape) if make is not None else torch.randn(shape).to(dtype)

        self.makers.append(maker)
        node = self.graph.placeholder(f"x{seed}")
        return self._note(node, [maker(values) for values in self.samples])

    def __call__(self, op: Any, *arguments: Any, **keywords: Any) -> torch.fx.Node:
        answers = []
        for place, values in enumerate(self.samples):
            given = self._filled(
                (arguments, keywords), values, lambda n, p=place: self.values[n][p]
            )
            answers.append(op(*given[0], **given[1]))
        return self._note(self.graph.call_function(op, arguments, keywords), answers)

    def item(self, node: torch.fx.Node, place: int) -> torch.fx.Node:
        made = self.graph.call_function(operator.getitem, (node, place))
        return self._note(made, [value[place] for value in self.values[node]])

    def _filled(self, given: Any, values: Values, read: Callable[[torch.fx.Node], Any]) -> Any:
        if isinstance(given, torch.fx.Node):
            return read(given)
        if isinstance(given, Expression):
            return evaluate(given, values)
        if isinstance(given, (list, tuple)):
            return type(given)(self._filled(each, values, read) for each in given)
        if isinstance(given, dict):
            return {name: self._filled(each, values, read) for name, each in given.items()}
        return given

    def _note(self, node: torch.fx.Node, answers: list[Any]) -> torch.fx.Node:
        self.values[node] = answers
        return set_info(node, NodeInfo(self._type(answers)))

    def _type(self, answers: list[Any]) -> Any:
        first = answers[0]
        if isinstance(first, (list, tuple)):
            return tuple(self._type(list(each)) for each in zip(*answers, strict=True))
        if not isinstance(first, torch.Tensor):
            return None
        sizes = [self._fit([a.shape[dim] for a in answers]) for dim in range(first.dim())]
        strides = [self._fit([a.stride(dim) for a in answers]) for dim in range(first.dim())]
        return TensorType(first.dtype, tuple(sizes), tuple(strides))

    def _fit(self, numbers: list[int]) -> Size:
        """The polynomial of the symbols that has these values."""
        letters = list(self.symbols.values())
        for degree in range(5):
            terms: list[Size] = [1]
            for count in range(1, degree + 1):
                terms += [
                    product(c) for c in itertools.combinations_with_replacement(letters, count)
                ]
            found = self._combination(terms + (self.extra if degree else []), numbers)
            if found is not None:
                return found
        raise AssertionError(f"no polynomial for {numbers}")

    def _combination(self, terms: list[Size], numbers: list[int]) -> Size | None:
        rows = torch.tensor(
            [[float(evaluate(t, v)) for t in terms] for v in self.samples], dtype=torch.float64
        )
        wanted = torch.tensor(numbers, dtype=torch.float64)[:, None]
        factors = torch.linalg.lstsq(rows, wanted, driver="gelsd").solution.round().flatten()
        if not torch.equal(rows @ factors, wanted.flatten()):
            return None
        total: Size = 0
        for factor, term in zip(factors.tolist(), terms, strict=True):
            total = total + int(factor) * term
        return total

    # --------------------------------------------------------------------------------- running

    def returns(self, *nodes: torch.fx.Node) -> None:
        set_info(self.graph.output(tuple(nodes)), NodeInfo(None))

    def eager(self, values: Values) -> tuple[list[torch.Tensor], list[Any]]:
        """Inputs for these sizes, and what eager answers."""
        inputs = [make(values) for make in self.makers]
        given = iter(inputs)
        known: dict[torch.fx.Node, Any] = {}
        answers: Any = []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(given)
                continue
            args, kwargs = self._filled((node.args, dict(node.kwargs)), values, known.__getitem__)
            if node.op == "output":
                answers = list(args[0])
            else:
                known[node] = node.target(*args, **kwargs)
        return inputs, answers

    def stages(self) -> tuple[Loops, Schedule, Program]:
        """Every stage of the room, each verified."""
        verify_graph(self.graph)
        loops = lower(self.graph, tuple(self.symbols.values()))
        verify_loops(loops)
        kernels = schedule(loops)
        verify_schedule(kernels)
        return loops, kernels, build(emit(kernels, plan(kernels)))


def frozen(trace: Varying, values: Values) -> torch.fx.Graph:
    """The same graph with numbers in place of sizes that vary."""
    graph = torch.fx.Graph()
    known: dict[torch.fx.Node, torch.fx.Node] = {}

    def type_at(type: Any) -> Any:
        if isinstance(type, tuple):
            return tuple(map(type_at, type))
        if not isinstance(type, TensorType):
            return type
        sizes, strides = (tuple(evaluate(e, values) for e in p) for p in (type.sizes, type.strides))
        return TensorType(type.dtype, sizes, strides)

    for node in trace.graph.nodes:
        args, kwargs = trace._filled((node.args, dict(node.kwargs)), values, known.__getitem__)
        made = graph.create_node(node.op, node.target, args, kwargs, node.name)
        known[node] = set_info(made, NodeInfo(type_at(info(node).type)))
    return graph


def agree(
    trace: Varying,
    *nodes: torch.fx.Node,
    sizes: Sequence[int] = SIZES,
    tolerance: float = 2e-5,
) -> Program:
    """Compile once, run at many sizes, compare with eager."""
    trace.returns(*nodes)
    _, _, program = trace.stages()
    names = list(trace.symbols)
    cases = [dict.fromkeys(names, size) for size in sizes]
    cases += [
        {name: sizes[(place + 2 * shift) % len(sizes)] for place, name in enumerate(names)}
        for shift in range(3 if len(names) > 1 else 0)
    ]
    for values in cases:
        inputs, expected = trace.eager(values)
        results = run(program, inputs, values)
        for result, wanted in zip(results, expected, strict=True):
            assert result.stride() == wanted.stride(), values
            torch.testing.assert_close(
                result,
                wanted,
                rtol=tolerance,
                atol=tolerance * 4,
                equal_nan=True,
                msg=lambda text, values=values: f"{values}: {text}",
            )
    return program
