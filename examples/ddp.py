"""Data-parallel training on the CPU:

torchrun --standalone --nproc-per-node 2 examples/ddp.py
"""

from __future__ import annotations

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import windfall


def train(rank: int, steps: int) -> list[torch.Tensor]:
    """Parameters of each process, after it has trained on rows of its own."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)))
    compiled = windfall.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        (compiled(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    mine = torch.cat([one.detach().flatten() for one in model.parameters()])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return everyone


def main(steps: int = 5) -> None:
    """The models stay the same."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    first, *others = train(rank, steps)
    assert all(torch.equal(first, one) for one in others)
    if rank == 0:
        print(f"{1 + len(others)} processes, one model")
    # The wrapper holds the group, whose threads would outlive Python: then torch aborts at exit now
    # and then, compiled or not. So the model goes first (it stands in cycles), then the group.
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
