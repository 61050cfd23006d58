"""Torch's random numbers, made repeatable at the cost of a call.

`torch.manual_seed` formats the whole stack three times where there is no GPU, for devices that may
come later: a millisecond or more under pytest, before each test and each of the runs it compares.
"""

from __future__ import annotations

import torch


def set_seed(number: int) -> None:
    """What `torch.manual_seed` does to the CPU's generator."""
    torch.default_generator.manual_seed(number)
