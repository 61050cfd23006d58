"""Every op with a lowering, its operands' sizes taken as varying: the first sample of its record,
compiled for other sizes than those that it is run at, against eager."""

from __future__ import annotations

import operator
from itertools import islice
from typing import Any

import pytest
import torch
import torch.fx

from tests.codegen.harness import run
from tests.codegen.test_registry import _close, _overload, _testable
from tests.ops.agreement import without_the_machine
from windfall.codegen import build, emit, lower, plan, schedule
from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, set_info
from windfall.ir.relation import Assumptions, Relation
from windfall.ir.symint import Expression, Size, size_symbol
from windfall.ops.registry import Op

CHUNK = 12
MORE = 3  # by so much the sizes that are compiled for are larger


class _Graph:
    """Ops side by side, on inputs whose sizes vary."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.symbols: dict[int, Expression] = {}
        self.inputs: list[torch.Tensor] = []
        self.types: dict[torch.fx.Node, TensorType] = {}
        self.outputs: list[torch.fx.Node] = []
        self.owners: list[tuple[str, torch.Tensor]] = []
        self.relations: list[Relation] = []

    @property
    def values(self) -> dict[str, int]:
        """The sizes that it is run at."""
        return {f"s{size}": size for size in self.symbols}

    def add(self, op: Op, arguments: Any, keywords: Any) -> bool:
        """Add one op; False: eager or the shape rule refuses it at one of the sizes."""
        target: Any = _overload(op.name)
        try:
            wanted = target(*arguments, **keywords)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return False
        given = [self._placed(each) for each in arguments]
        named = {name: self._placed(value) for name, value in keywords.items()}
        assert op.shape is not None
        try:
            with Assumptions() as assumed:
                type = op.shape(*self._typed(given), **self._typed(named))
        except (Specialise, RuntimeError, IndexError):
            return False
        if not all(relation.holds(self.values) for relation in assumed.relations):
            return False  # guards would refuse the call
        self.relations += assumed.relations
        node = self.graph.call_function(target, tuple(given), named)
        set_info(node, NodeInfo(type))
        if isinstance(type, TensorType):
            self._answer(op, node, wanted)
            return True
        for place, each in enumerate(type):
            if isinstance(each, TensorType):
                item = self.graph.call_function(operator.getitem, (node, place))
                self._answer(op, set_info(item, NodeInfo(each)), wanted[place])
        return True

    def _answer(self, op: Op, node: torch.fx.Node, wanted: torch.Tensor) -> None:
        self.outputs.append(node)
        self.owners.append((op.name, wanted))

    def _placed(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = self.graph.placeholder(f"x{len(self.inputs)}")
            self.inputs.append(value.detach())
            self.types[node] = self._varying(value)
            return set_info(node, NodeInfo(self.types[node]))
        if type(value) in (list, tuple):
            return type(value)(self._placed(each) for each in value)
        return value

    def _typed(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.types[value]
        if type(value) in (list, tuple):
            return type(value)(self._typed(each) for each in value)
        if isinstance(value, dict):
            return {name: self._typed(each) for name, each in value.items()}
        return value

    def _varying(self, tensor: torch.Tensor) -> TensorType:
        """The type with a symbol for each size, if the tensor is dense."""
        sizes = tuple(self._symbol(size) for size in tensor.shape)
        strides = list(tensor.stride())
        wanted: list[Size] = list(strides)
        step = 1
        symbolic: Size = 1
        for dim in sorted(range(tensor.dim()), key=lambda dim: (strides[dim], -dim)):
            if tensor.shape[dim] == 1:
                continue
            if strides[dim] != step:
                return TensorType(tensor.dtype, tuple(tensor.shape), tuple(strides))
            wanted[dim] = symbolic
            symbolic, step = symbolic * sizes[dim], step * tensor.shape[dim]
        return TensorType(tensor.dtype, sizes, tuple(wanted))

    def _symbol(self, size: int) -> Size:
        if size < 2:
            return size
        return self.symbols.setdefault(size, size_symbol(f"s{size}", size + MORE))


CHUNKS = [
    [op.name for op in _testable()[start : start + CHUNK]]
    for start in range(0, len(_testable()), CHUNK)
]


def _compared(graph: _Graph) -> None:
    set_info(graph.graph.output(tuple(graph.outputs)), NodeInfo(None))
    with Assumptions(graph.relations, closed=True):
        loops = lower(graph.graph, tuple(graph.symbols.values()))
    kernels = schedule(loops)
    results = run(build(emit(kernels, plan(kernels))), graph.inputs, graph.values)
    for result, (name, wanted) in zip(results, graph.owners, strict=True):
        if wanted.numel() == 0:  # a stride beside a size that happens to be 0 is not eager's
            assert result.shape == wanted.shape, name
            continue
        if len(graph.owners) == 1 and graph.inputs:
            wanted = without_the_machine(name, graph.inputs[0], wanted, result)
        try:
            _close(result, wanted, graph.inputs)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_first_samples(names: list[str]) -> None:
    graph = _Graph()
    added = [
        graph.add(op, *sample)
        for op in _testable()
        if op.name in names and op.samples is not None
        for sample in islice(op.samples(), 1)
    ]
    assert any(added)
    _compared(graph)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [op.name for op in _testable()])
def test_all_samples(name: str) -> None:
    (op,) = (op for op in _testable() if op.name == name)
    assert op.samples is not None
    for arguments, keywords in op.samples():
        graph = _Graph()
        if graph.add(op, arguments, keywords):
            _compared(graph)
