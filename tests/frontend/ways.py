"""How a compiled function ran: a right answer may be CPython's own, and then no rule was tested.

Enters: compiled functions that were called. Leaves: text for a golden, one line for each: what was
left to CPython step by step (numbers of breaks), and what ran eagerly as a whole.
Invariant: "compiled" alone says that nothing was. A rule that starts or ceases to fall back shows
in the diff of `pytest --bless`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import pytest

import windfall

_NUMBER = re.compile(r"W\d{4}")
# Where an instruction stops and what is a step differs from version to version.
one_version = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="written for 3.11")


def way(compiled: Any) -> str:
    """Of all calls so far."""
    found = windfall.explanation(compiled)
    parts = sorted({f"W{one.number:04d}" for one in found.breaks})
    parts += sorted({f"eagerly: {_number(one)}" for one in found.fallbacks})
    return ", ".join(parts) or "compiled"


def _number(reason: str) -> str:
    found = _NUMBER.search(reason)
    return found[0] if found is not None else reason.partition(":")[0]


def table(ran: Iterable[tuple[str, Any]]) -> str:
    """One line for each name and compiled function."""
    return "\n".join(f"{name}: {way(compiled)}" for name, compiled in ran)
