"""The state that belongs to no object: modes, default types, random streams.

Enters: nothing. Leaves: an `Ambient` record of now, which can be compared and put back; so two
worlds run in turn, each in the ambient state that its own program left behind.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any

import numpy
import torch
from torch.overrides import _get_current_function_mode_stack


@dataclass(frozen=True)
class Ambient:
    """What a program may read and change without naming an object."""

    grad_enabled: bool
    inference: bool
    default_dtype: torch.dtype
    autocast: tuple[bool, torch.dtype, bool]
    deterministic: bool
    function_modes: int
    torch_random: bytes
    python_random: Any
    numpy_random: Any

    @classmethod
    def now(cls) -> Ambient:
        """As it is."""
        state = numpy.random.get_state()
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            (
                torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cpu"),
                torch.is_autocast_cache_enabled(),
            ),
            torch.are_deterministic_algorithms_enabled(),
            len(_get_current_function_mode_stack()),
            torch.get_rng_state().numpy().tobytes(),
            random.getstate(),
            (state[0], state[1].tobytes(), *state[2:]),
        )

    def put_back(self) -> None:
        """Make it so again."""
        torch.set_grad_enabled(self.grad_enabled)
        torch.set_default_dtype(self.default_dtype)
        torch.set_autocast_enabled("cpu", self.autocast[0])
        torch.set_autocast_dtype("cpu", self.autocast[1])
        torch.set_autocast_cache_enabled(self.autocast[2])
        torch.use_deterministic_algorithms(self.deterministic)
        torch.set_rng_state(torch.frombuffer(bytearray(self.torch_random), dtype=torch.uint8))
        random.setstate(self.python_random)
        name, keys, *rest = self.numpy_random
        numpy.random.set_state((name, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))

    def changes(self, other: Ambient) -> list[str]:
        """The names of what differs."""
        return [
            one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)
        ]
