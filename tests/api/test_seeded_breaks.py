"""Forty and more programs with one cause each: the report names its line, its number, a hint."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.api.seeded import PROGRAMS
from windfall.frontend.breaks import REASONS

X = torch.linspace(0.5, 1, 6)


def marked_line(program: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(program)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# break"))


def first_break(program: Callable[..., Any]) -> Any:
    sys.modules.pop("nturl2path", None)
    re.purge()  # what was looked up once is captured otherwise
    made = windfall.explain(program, dynamic=False)(X)
    sys.modules.pop("nturl2path", None)
    re.purge()  # what was looked up once is captured otherwise
    return made.breaks[0] if made.breaks else None


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_break_names_the_line_the_number_and_what_to_do(program: Callable[..., Any]) -> None:
    found = first_break(program)
    if found is None:
        pytest.skip("captured whole by now")
    here = (inspect.getsourcefile(program), marked_line(program))
    assert here in [(one.file, one.line) for one in found.stack], found
    assert found.where == found.stack[-1]
    row = REASONS[found.number]
    assert found.reason == row.title and found.hint == row.hint and found.hint
    assert found.detail
    with pytest.raises(windfall.BreakError) as raised:
        windfall.compile(program, fullgraph=True, dynamic=False)(X)
    error = raised.value
    assert error.number == found.number and error.stack[-1].line == found.where.line
    assert error.stack[0].function == program.__name__


def test_there_are_enough_of_them() -> None:
    """What is captured whole some day may leave the list; the list must not become empty talk."""
    assert len(PROGRAMS) >= 40
    assert sum(first_break(one) is not None for one in PROGRAMS) >= 30
