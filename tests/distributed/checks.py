"""What processes that exchange gradients check; run by all of them (`worker.py`).

A check answers facts that have to be the same in every process; what has to be true in each is
asserted. Gradients are compared with those of eager under the same wrapper. Everything that talks
to the other process is torch's; both run the same checks in the same order.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import windfall
from windfall import torch_abi

Answers = list[Any]
CHECKS: dict[str, Callable[[], Any]] = {}


def check(run: Callable[[], Any]) -> Callable[[], Any]:
    CHECKS[run.__name__] = run
    return run


def rank() -> int:
    return distributed.get_rank()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.nn.functional.gelu(self.first(self.norm(x))))


class Sometimes(nn.Module):
    """A module that leaves out one of its halves."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        return self.left(x).sin() if left else self.right(x).cos()


def blocks(count: int = 4, width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(width) for _ in range(count)])


def data(step: int, rows: int = 4, width: int = 8) -> torch.Tensor:
    """Another one in each process."""
    generator = torch.Generator().manual_seed(100 * step + rank())
    return torch.randn(rows, width, generator=generator)


def gradients(model: nn.Module) -> Answers:
    found = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    return found


def assert_near(found: Any, expected: Any) -> None:
    if isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_near(one, other)
    elif isinstance(found, torch.Tensor):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), (found - expected).abs().max()
    else:
        assert found == expected, (found, expected)


def assert_equal_in_all(tensors: Any) -> None:
    """In every process the same bits. (A collective of the test's own.)"""
    for one in tensors:
        if isinstance(one, list):
            assert_equal_in_all(one)
        elif isinstance(one, torch.Tensor):
            all = [torch.empty_like(one) for _ in range(distributed.get_world_size())]
            distributed.all_gather(all, one.contiguous())
            for other in all[1:]:
                assert torch.equal(all[0], other)


# ------------------------------------------------------------------------------------------- DDP

Way = Callable[[nn.Module, dict[str, Any]], tuple[nn.Module, Any]]


def outside(module: nn.Module, settings: dict[str, Any]) -> tuple[nn.Module, Any]:
    made = windfall.compile(DistributedDataParallel(module, **settings))
    return made, made


def inside(module: nn.Module, settings: dict[str, Any]) -> tuple[nn.Module, Any]:
    compiled = windfall.compile(module)
    return DistributedDataParallel(compiled, **settings), compiled


WAYS: dict[str, Way] = {"outside": outside, "inside": inside}
Steps = Callable[[nn.Module], Answers]


def compare(make: Callable[[], nn.Module], steps: Steps, **settings: Any) -> dict[str, Any]:
    """Both ways, with and without compiled autograd: as eager under the same wrapper. The number of
    graphs of each way."""
    module = make()
    expected = steps(DistributedDataParallel(copy.deepcopy(module), **settings))
    graphs: dict[str, Any] = {}
    for name, way in WAYS.items():
        for engine in (False, True):
            model, compiled = way(copy.deepcopy(module), settings)
            passes: Any = windfall.compiled_autograd() if engine else contextlib.nullcontext()
            with passes:
                found = steps(model)
            assert_near(found, expected)
            assert_equal_in_all(found)
            told = windfall.explanation(compiled)
            assert not told.fallbacks, told.fallbacks
            graphs[f"{name}{', engine' if engine else ''}"] = len(told.graphs)
    return graphs


def plain_steps(model: nn.Module) -> Answers:
    found: Answers = []
    for step in range(4):
        model(data(step)).pow(2).mean().backward()
        found.append(gradients(model))
    return found


@check
def ddp() -> Any:
    return compare(blocks, plain_steps)


@check
def ddp_small_buckets() -> Any:
    return compare(blocks, plain_steps, bucket_cap_mb=1e-4)


@check
def ddp_views_of_buckets() -> Any:
    return compare(blocks, plain_steps, gradient_as_bucket_view=True)


@check
def ddp_static_graph() -> Any:
    return compare(blocks, plain_steps, static_graph=True)


@check
def ddp_unused_parameters() -> Any:
    def steps(model: nn.Module) -> Answers:
        found: Answers = []
        for step in range(6):
            model(data(step), step % 2 == 0).sum().backward()
            found.append(gradients(model))
        return found

    return compare(Sometimes, steps, find_unused_parameters=True)


@check
def ddp_accumulation() -> Any:
    """`no_sync`, then a step that exchanges the sum."""

    def steps(model: Any) -> Answers:
        found: Answers = []
        for step in range(4):
            with model.no_sync():
                for part in range(2):
                    model(data(10 * step + part)).sum().backward()
            model(data(step)).pow(2).sum().backward()
            found.append(gradients(model))
        return found

    return compare(blocks, steps)


@check
def ddp_optimizer() -> Any:
    """A few steps of training: parameters stay equal in all processes."""

    def steps(model: nn.Module) -> Answers:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            model(data(step)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [one.detach().clone() for one in model.parameters()]

    return compare(blocks, steps)


@check
def ddp_buffers() -> Any:
    """Statistics of batch norm are sent by the first process before each forward."""

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))

    def steps(model: nn.Module) -> Answers:
        found = plain_steps(model)
        model(data(9))  # buffers are sent before it
        return found

    return compare(make, steps)


@check
def ddp_break_inside() -> Any:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.seen: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x).tanh()
            windfall.graph_break()
            return self.second(x)

    def make() -> nn.Module:
        torch.manual_seed(0)
        return Broken()

    return compare(make, plain_steps)


def _nodes_of_ours(out: torch.Tensor) -> list[Any]:
    """The autograd nodes of compiled graphs that a pass goes through."""
    waiting: list[Any] = [out.grad_fn]
    seen: dict[Any, None] = {}
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting.extend(one for one, _ in node.next_functions)
    return [one for one in seen if isinstance(one, torch_abi.PythonNode)]


def _logged(log: list[Any]) -> Any:
    """A hook of communication that notes the sizes of buckets."""

    def hook(state: Any, bucket: Any) -> Any:
        log.append(bucket.buffer().numel())
        work = distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
        return work.then(lambda done: done.value()[0] / distributed.get_world_size())

    hook.__annotations__ = {  # which the wrapper looks at
        "bucket": distributed.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }
    return hook


@check
def ddp_overlap() -> Any:
    """Buckets are eager's; a compiled module has a backward program for each of them, and each
    bucket is on its way before the next program runs."""
    answers: dict[str, Any] = {}
    settings: dict[str, Any] = {"bucket_cap_mb": 0.008}  # one block
    for name, way in {"eager": None, **WAYS}.items():
        module = blocks(count=3, width=32)
        model: Any = DistributedDataParallel(module, **settings)
        if way is not None:
            model, _ = way(module, settings)
        log: list[Any] = []
        model.register_comm_hook(None, _logged(log))
        for step in range(3):
            log.clear()
            out = model(data(step, width=32))
            for one in _nodes_of_ours(out):
                one.register_hook(lambda made, given, log=log: log.append("program"))
            out.sum().backward()
            model.zero_grad()
        answers[name] = list(log)
    return answers


@check
def ranks_that_compile_different_things() -> Any:
    """One is compiled for sizes that vary, with other rows; one runs eagerly; one has hooks."""
    module = blocks()
    reference = DistributedDataParallel(copy.deepcopy(module))
    mine = copy.deepcopy(module)
    if rank() == 0:
        mine = windfall.compile(mine, dynamic=True)
    model = DistributedDataParallel(mine)
    if rank() == 1:
        for one in model.parameters():
            one.register_hook(lambda gradient: None)
    passes: Any = windfall.compiled_autograd() if rank() == 1 else contextlib.nullcontext()
    for step in range(5):
        x = data(step, rows=3 + step if rank() == 0 else 2)
        reference(x).sum().backward()
        expected = gradients(reference)
        with passes:
            model(x).sum().backward()
        found = gradients(model)
        assert_near(found, expected)
        assert_equal_in_all(found)
    return True


# ------------------------------------------------------------------------------------------ FSDP2


def _sharded(way: str) -> tuple[nn.Module, list[Any]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    model: Any = blocks(3)
    compiled: list[Any] = []
    if way == "blocks":
        for place in range(len(model)):
            model[place] = windfall.compile(model[place])
            compiled.append(model[place])
    for one in model:
        fully_shard(one, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if way == "whole":
        model = windfall.compile(model)
        compiled.append(model)
    return model, compiled


@check
def fsdp() -> Any:
    """Blocks that are sharded, compiled one by one or as a whole; a state dict there and back."""
    graphs: dict[str, Any] = {}
    expected: Answers = []
    states: dict[str, Any] = {}
    for way in ("eager", "blocks", "whole"):
        for engine in (False, True):
            model, compiled = _sharded(way)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            passes: Any = windfall.compiled_autograd() if engine else contextlib.nullcontext()
            found: Answers = []
            with passes:
                for step in range(4):
                    model(data(step)).pow(2).mean().backward()
                    found.append([one.grad.full_tensor() for one in model.parameters()])
                    optimizer.step()
                    optimizer.zero_grad()
            expected = expected or found
            assert_near(found, expected)
            assert_equal_in_all(found)
            states[way] = model.state_dict()
            if compiled:
                told = [len(windfall.explanation(one).graphs) for one in compiled]
                graphs[f"{way}{', engine' if engine else ''}"] = told
    for way in ("eager", "blocks", "whole"):
        model, _ = _sharded(way)
        assert list(model.state_dict()) == list(states["eager"])
        for source in ("eager", "blocks", "whole"):
            model.load_state_dict(states[source])
            for key, one in model.state_dict().items():
                assert_near(one.full_tensor(), states["eager"][key].full_tensor())
    return graphs


@check
def collectives_are_torchs() -> Any:
    """A compiled step issues as many collectives as eager's."""
    counts = []
    for compiled in (False, True):
        model: Any = DistributedDataParallel(blocks())
        if compiled:
            model = windfall.compile(model)
        model(data(0)).sum().backward()
        with torch.profiler.profile() as profile:
            model(data(1)).sum().backward()
        names = [one.name for one in profile.events() if one.name.startswith("gloo:")]
        counts.append(sorted(names))
    assert counts[0] == counts[1], counts
    return len(counts[0])
