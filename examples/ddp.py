"""Data-parallel training on the CPU:

torchrun --standalone --nproc-per-node 2 examples/ddp.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import windfall


def main(steps: int = 5) -> None:
    """Each process trains on its own rows; the models stay the same."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
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
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(others, mine)
    assert all(torch.equal(mine, one) for one in others)
    if rank == 0:
        print(f"{len(others)} processes, one model")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
