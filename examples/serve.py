"""Serving with threads: one compiled model, warmed up, called by all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

import windfall


def main(requests: int = 40) -> int:
    """Answer requests of different sizes; answers how many entries that took."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4), nn.Softmax(-1)).eval()
    compiled = windfall.compile(model, dynamic=True)
    asked = [torch.randn(2 + number % 7, 16) for number in range(requests)]

    def answer(request: Tensor) -> Tensor:
        with torch.no_grad():
            result: Tensor = compiled(request)
            return result

    answer(asked[0])  # before the first request comes
    with ThreadPoolExecutor(4) as threads, torch.no_grad():
        for request, result in zip(asked, threads.map(answer, asked), strict=True):
            assert torch.allclose(result, model(request), atol=1e-5)
    entries = len(windfall.cache_entries(compiled))
    print(f"{requests} requests of 7 sizes, {entries} entries")
    return entries


if __name__ == "__main__":
    main()
