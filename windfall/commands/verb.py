"""What a verb of the command line is, and what it answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from windfall.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said: to people, to programs, and by the exit code."""

    text: str
    data: Any
    code: int = 0


@dataclass(frozen=True, slots=True)
class Verb:
    """One word of the command line."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Answer]
