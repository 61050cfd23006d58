"""Random graphs of pointwise ops, reductions, views and joins over small tensors."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.fx

from tests.codegen.harness import Trace, aten
from tests.codegen.varying import Varying
from tests.seeds import set_seed
from windfall.ir.dtype import TensorType
from windfall.ir.node import tensor_type
from windfall.ir.symint import Size, known_at_least

UNARY = [aten.neg, aten.abs, aten.tanh, aten.sigmoid, aten.relu, aten.gelu, aten.cos, aten.clone]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.maximum.default]
SHAPES = [(6, 8), (6, 1), (1, 8), (8,), (2, 3, 8), (4, 6, 8), (4, 1, 8), (17, 5), (3, 40), (64, 70)]


class Maker:
    """One random graph: `nodes` holds what can be used so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        set_seed(seed)
        self.trace = Trace()
        self.nodes = [self._input() for _ in range(self.random.randint(1, 3))]

    def _input(self) -> torch.fx.Node:
        shape = self.random.choice(SHAPES)
        tensor = torch.randn(shape)
        layout = self.random.randint(0, 3)
        if layout == 1 and tensor.dim() > 1:
            tensor = torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
        elif layout == 2:
            tensor = torch.randn(*shape[:-1], shape[-1] * 2)[..., ::2]
        return self.trace.input(tensor)

    def _value(self, node: torch.fx.Node) -> Any:
        return self.trace.values[node]

    def step(self) -> None:
        """Add one op to the graph."""
        node = self.random.choice(self.nodes[-6:])
        kind = self.random.choice(KINDS)
        made = getattr(self, kind.__name__)(node)
        if made is not None and self._value(made).numel() <= 40_000:
            self.nodes.append(made)

    def unary(self, node: torch.fx.Node) -> torch.fx.Node:
        return self.trace(self.random.choice(UNARY).default, node)

    def binary(self, node: torch.fx.Node) -> torch.fx.Node | None:
        other = self.random.choice(self.nodes)
        try:
            torch.broadcast_shapes(self._value(node).shape, self._value(other).shape)
        except RuntimeError:
            return self.trace(aten.mul.Tensor, node, 0.5)
        return self.trace(self.random.choice(BINARY), node, other)

    def fold(self, node: torch.fx.Node) -> torch.fx.Node | None:
        rank = self._value(node).dim()
        if rank == 0:
            return None
        dims = sorted(self.random.sample(range(rank), self.random.randint(1, rank)))
        keep = self.random.random() < 0.6
        op = self.random.choice([aten.mean.dim, aten.amax.default, aten.sum.dim_IntList])
        folded = self.trace(op, node, dims, keep)
        return self.trace(aten.tanh.default, folded) if op is aten.sum.dim_IntList else folded

    def rows(self, node: torch.fx.Node) -> torch.fx.Node | None:
        value = self._value(node)
        if value.dim() == 0:
            return None
        return self.trace(aten._softmax.default, node, self.random.randrange(value.dim()), False)

    def seen(self, node: torch.fx.Node) -> torch.fx.Node | None:
        value = self._value(node)
        if value.dim() < 2:
            return self.trace(aten.unsqueeze.default, node, 0)
        choice = self.random.randint(0, 3)
        if choice == 0:
            return self.trace(aten.transpose.int, node, 0, value.dim() - 1)
        if choice == 1 and value.shape[-1] > 2:
            return self.trace(aten.slice.Tensor, node, value.dim() - 1, 1, value.shape[-1])
        if choice == 2 and value.is_contiguous():
            return self.trace(aten.view.default, node, [-1])
        if choice == 3 and value.is_contiguous() and value.shape[0] % 2 == 0:
            return self.trace(aten.view.default, node, [2, -1, *value.shape[1:]])
        return self.trace(aten.select.int, node, 0, -1)

    def joined(self, node: torch.fx.Node) -> torch.fx.Node | None:
        value = self._value(node)
        if value.dim() == 0:
            return None
        dim = self.random.randrange(value.dim())
        return self.trace(aten.cat.default, [node, self.trace(aten.neg.default, node)], dim)

    def product(self, node: torch.fx.Node) -> torch.fx.Node | None:
        value = self._value(node)
        if value.dim() != 2:
            return None
        made = self.trace(aten.mm.default, node, self.trace(aten.t.default, node))
        return self.trace(aten.tanh.default, made)

    def masked(self, node: torch.fx.Node) -> torch.fx.Node:
        return self.trace(
            aten.where.self,
            self.trace(aten.gt.Scalar, node, 0.1),
            node,
            self.trace(aten.sin.default, node),
        )


KINDS = [
    *(Maker.unary, Maker.unary, Maker.binary, Maker.binary, Maker.binary, Maker.fold, Maker.fold),
    *(Maker.rows, Maker.seen, Maker.seen, Maker.joined, Maker.product, Maker.masked),
]


def make(seed: int, steps: int = 14) -> tuple[Trace, list[torch.fx.Node]]:
    """A random graph and the nodes that it returns."""
    maker = Maker(seed)
    for _ in range(steps):
        maker.step()
    count = min(len(maker.nodes), maker.random.randint(1, 4))
    outs = [maker.nodes[-1], *maker.random.sample(maker.nodes, count - 1)]
    return maker.trace, outs


# ---------------------------------------------------------------------------- sizes that vary


class VaryingMaker(Maker):
    """The same with sizes that vary."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        hints = {name: self.random.choice((2, 5, 8, 64)) for name in ("s0", "s1")}
        self.trace: Any = Varying(hints)
        self.nodes = [self._input() for _ in range(self.random.randint(1, 3))]

    def _input(self) -> torch.fx.Node:
        a, b = self.trace.symbols.values()
        shapes: list[list[Size]] = [
            *([a, b], [a, 1], [1, b], [b], [2, a, b], [a, 3, b], [a, 1, b], [b, 5], [3, a]),
            *([2 * a, b], [a + 2, b + 1], [a, a], [a, 4 * b]),
        ]
        turned = self.random.random() < 0.25

        def make(values: Any, *shape: int) -> torch.Tensor:
            if turned:
                return torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
            return torch.randn(shape)

        return self.trace.input(self.random.choice(shapes), make)

    def _value(self, node: torch.fx.Node) -> Any:
        value: torch.Tensor = self.trace.values[node][0]
        return value

    def _type(self, node: torch.fx.Node) -> TensorType:
        return tensor_type(node)

    def step(self) -> None:
        if sum(each.op == "call_function" for each in self.trace.graph.nodes) < 25:
            super().step()

    def binary(self, node: torch.fx.Node) -> torch.fx.Node | None:
        other = self.random.choice(self.nodes)
        pairs = zip(
            reversed(self._type(node).sizes), reversed(self._type(other).sizes), strict=False
        )
        if any(one != two and 1 not in (one, two) for one, two in pairs):
            return self.trace(aten.mul.Tensor, node, 0.5)
        return self.trace(self.random.choice(BINARY), node, other)

    def seen(self, node: torch.fx.Node) -> torch.fx.Node | None:
        type = self._type(node)
        if type.rank < 2:
            return self.trace(aten.unsqueeze.default, node, 0)
        choice = self.random.randint(0, 4)
        if choice == 0:
            return self.trace(aten.transpose.int, node, 0, type.rank - 1)
        if choice == 1 and known_at_least(type.sizes[-1], 3):  # 1 is another kind of size
            return self.trace(aten.slice.Tensor, node, type.rank - 1, 1, type.sizes[-1])
        if choice == 2 and type.is_contiguous:
            return self.trace(aten.view.default, node, [type.elements])
        if choice == 3 and type.is_contiguous and type.sizes[0] % 2 == 0:
            return self.trace(aten.view.default, node, [2, type.sizes[0] // 2, *type.sizes[1:]])
        return self.trace(aten.select.int, node, 0, -1)


def make_varying(seed: int, steps: int = 12) -> tuple[Varying, list[torch.fx.Node]]:
    """A random graph whose sizes vary, and the nodes that it returns."""
    set_seed(seed)
    maker = VaryingMaker(seed)
    for _ in range(steps):
        maker.step()
    count = min(len(maker.nodes), maker.random.randint(1, 3))
    outs = [maker.nodes[-1], *maker.random.sample(maker.nodes, count - 1)]
    return maker.trace, list(dict.fromkeys(outs))
