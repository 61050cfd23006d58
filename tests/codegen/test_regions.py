"""Blocks that repeat themselves are built once, and called where they occur."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import windfall
from windfall.codegen import divide
from windfall.events import EventKind, EventLog
from windfall.options import Options
from windfall.pipeline import Compiler


class Block(nn.Module):
    """Enough nodes that blocks are worth finding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.table = nn.Embedding(7, width)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = self.before(x) + self.table(index)
        y = torch.tanh(self.wide(y)) * torch.sigmoid(self.wide(y) + 1)
        y = self.narrow(y).softmax(-1) * 2 - torch.relu(x)
        return self.after(x + y * torch.exp(-y.abs()))


class Stack(nn.Module):
    """Blocks one after the other, between other work."""

    def __init__(self, count: int, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x = self.first(x).cos()
        for block in self.blocks:
            x = block(x, index)
        return self.last(x)


def compiled(module: nn.Module, **options: Any) -> tuple[Any, EventLog]:
    log = EventLog()
    return Compiler(Options.checked(strict=True, **options), log).compiled(module), log


def parts(log: EventLog) -> list[list[int] | None]:
    """For each graph that was divided, which part each piece is."""
    return [
        None if event.record is None else [piece.part for piece in event.record.pieces]
        for event in log.snapshot("divide")
    ]


def test_equal_blocks_are_one_part() -> None:
    module = Stack(9)
    function, log = compiled(module)
    x, index = torch.randn(5, 4), torch.randint(0, 7, (5,))
    with torch.no_grad():
        torch.testing.assert_close(function(x, index), module(x, index))
    (found,) = parts(log)
    assert found is not None and len(found) > 8 and len(set(found)) <= 4
    lowered = [event.subject for event in log.snapshot("lower")]
    assert len(lowered) == len(set(found))


def test_backward_has_equal_blocks_too() -> None:
    module = Stack(9)
    function, log = compiled(module)
    x, index = torch.randn(5, 4, requires_grad=True), torch.randint(0, 7, (5,))
    found = []
    for each in (function, module):
        module.zero_grad()
        x.grad = None
        each(x, index).square().sum().backward()
        found.append([x.grad, *(one.grad for one in module.parameters())])
    torch.testing.assert_close(*found)
    forward, backward = parts(log)
    assert forward is not None and backward is not None
    assert len(set(forward)) <= 4 and len(set(backward)) <= 5


def test_sizes_that_vary_inside_of_parts() -> None:
    module = Stack(9)
    function, log = compiled(module, dynamic=True)
    with torch.no_grad():
        for size in (5, 2, 17):
            x, index = torch.randn(size, 4), torch.randint(0, 7, (size,))
            torch.testing.assert_close(function(x, index), module(x, index))
    assert len(log.snapshot("build")) == 1
    assert parts(log)[0] is not None


def test_what_fails_inside_a_part_fails_outside() -> None:
    module = Stack(9)
    function, _ = compiled(module)
    x, index = torch.randn(5, 4), torch.randint(0, 7, (5,))
    with torch.no_grad():
        function(x, index)
        with pytest.raises(IndexError):
            function(x, index + 5)
        torch.testing.assert_close(function(x, index), module(x, index))


def test_views_of_what_crosses() -> None:
    """What a block reads may be a part of a buffer, and what it answers a view."""

    def blocks(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            left, right = x[:, :8], x[:, 8:]
            y = (left * 2 - right).tanh() + torch.sigmoid(right * left)
            y = (y @ y.t() @ left).softmax(-1) + left.cos() * right.sin()
            x = torch.cat([y.flip(0), (right - y).relu().neg()], 1).t().contiguous().t()
        return x

    function, log = compiled(blocks)  # type: ignore[arg-type]
    x = torch.randn(6, 16)
    torch.testing.assert_close(function(x), blocks(x))
    (found,) = parts(log)
    assert found is not None and len(set(found)) < len(found) / 2


def test_a_graph_without_repetition_is_whole() -> None:
    assert divide(torch.fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Tanh())).graph) is None


class _Decoder(nn.Module):
    """Layers with a cache each, which a step of decoding writes and reads."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(layers))

    def forward(self, x: torch.Tensor, caches: list[torch.Tensor], at: int) -> torch.Tensor:
        for layer, norm, cache in zip(self.layers, self.norms, caches, strict=True):
            hidden = norm(x)
            cache[:, at : at + 1] = layer(hidden)
            scores = torch.softmax(hidden @ cache.transpose(1, 2) / 4, -1)
            x = x + torch.nn.functional.gelu((scores @ cache).tanh() * 2 - 1)
        return x


def test_parts_write_their_inputs_in_place() -> None:
    model = _Decoder(8)
    caches = [[torch.zeros(2, 64, 16) for _ in range(8)] for _ in range(2)]
    report = windfall.explain(model)
    with torch.no_grad():
        for at in (3, 4):
            x = torch.randn(2, 1, 16)
            mine = report(x, caches[0], at)
            torch.testing.assert_close(mine.result, model(x, caches[1], at))
    for one, other in zip(*caches, strict=True):
        torch.testing.assert_close(one, other)
        assert one._version == other._version
    (division,) = (one.record for one in mine.events if one.kind is EventKind.DIVIDE)
    assert len(division.pieces) > len(division.graphs)
    (program,) = (one.record for one in mine.events if one.kind is EventKind.BUILD)
    places = [program.buffers[one.buffer].place for one in program.results]
    assert places == ["input"] * 8 + ["result"]
    assert not mine.fallbacks


def test_steps_over_lists_are_blocks_of_one_tensor_each() -> None:
    """Ten loops over twenty tensors are twenty blocks, in whatever order the loops stand."""

    def loops(items: list[torch.Tensor], others: list[torch.Tensor]) -> list[torch.Tensor]:
        for scale in range(1, 6):
            items = [one * scale for one in items]
            items = [one.tanh() + other for one, other in zip(items, others, strict=True)]
        return items

    made = [[torch.randn(6) for _ in range(20)] for _ in range(2)]
    log = EventLog()
    run = Compiler(Options.checked(strict=True), log).compiled(loops)
    torch.testing.assert_close(run(*made), loops(*made))
    (found,) = parts(log)
    assert found is not None and found.count(max(found, key=found.count)) >= 18
    assert len(set(found)) <= 3


def test_random_numbers_are_drawn_in_their_order() -> None:
    def loops(items: list[torch.Tensor]) -> list[torch.Tensor]:
        for scale in range(1, 6):
            items = [one * scale + torch.rand(6) for one in items]
            items = [one.tanh() for one in items]
        return items

    made = [torch.randn(6) for _ in range(20)]
    run = windfall.compile(loops)
    torch.manual_seed(3)
    wanted = loops(made)
    torch.manual_seed(3)
    torch.testing.assert_close(run(made), wanted)
