"""Architectures of transformers, whole: compiled equals uncompiled, and breaks are the known ones.

The report is `python -m tests.conformance.architectures`. These tests are long: `make conformance`.
"""

from __future__ import annotations

import pytest

from tests.conformance.architectures import ARCHITECTURES, Architecture
from tests.conformance.checking import check_one
from tests.conformance.sweep import Line
from tests.conformance.sweep_transformers import maker

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]

# What is trained as well: one of each family.
TRAINED = ("bert", "gpt2", "llama", "t5", "vit", "convnext", "clip", "deberta-v2")


def asked(row: Architecture, training: bool = False) -> Line:
    """What one architecture says, with native code."""
    line = Line(row.name)
    check_one(maker(row.name, training), "windfall", line)
    return line


@pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.name)
def test_an_architecture_equals_eager(row: Architecture) -> None:
    line = asked(row)
    assert line.status == "equal", line.detail
    assert not line.fallbacks and not line.executed
    told = "\n".join(line.breaks)
    assert bool(line.breaks) == bool(row.breaks), f"known: {row.breaks or 'no break'}\n{told}"
    for number in row.breaks:
        assert number in told
    assert all(one.split(" ", 1)[0] in row.breaks for one in line.breaks), told


@pytest.mark.parametrize("name", TRAINED)
def test_an_architecture_is_trained(name: str) -> None:
    row = next(one for one in ARCHITECTURES if one.name == name)
    line = asked(row, training=True)
    assert line.status == "equal", line.detail
    assert not line.breaks and not line.fallbacks


def test_there_are_enough_of_them() -> None:
    """A hundred and twenty architectures, all but two without a break; variants count once."""
    whole = {row.config for row in ARCHITECTURES if not row.breaks}
    assert len({row.config for row in ARCHITECTURES}) >= 120
    assert len(whole) >= 118
