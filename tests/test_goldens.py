"""What each stage says of the golden programs, read and approved by people; and eager agrees."""

from __future__ import annotations

import re

import pytest
import torch

import windfall
from tests.golden import Golden
from tests.golden_programs import FOLDER, MARK, compiled, load, names, run, stages_text
from windfall import jit
from windfall.events import STAGES, EventKind


@pytest.mark.parametrize("name", names())
@pytest.mark.usefixtures("capsys")
def test_stages(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "vector_bits", lambda: 256)  # kernels print the same everywhere
    plain = load(name)
    expected = run(plain, plain.module.program)
    program = load(name)
    made = compiled(program)
    torch.testing.assert_close(run(program, made), expected, equal_nan=True)
    text = stages_text(windfall.explanation(made).events)
    Golden(FOLDER, golden.bless)(name, program.source + MARK + text)


def test_every_stage_is_told_of() -> None:
    told = set()
    for name in names():
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        told.update(re.findall(r"^== (\w+) of ", text.partition(MARK)[2], re.MULTILINE))
    silent = {EventKind.DIVIDE, EventKind.BUILD, EventKind.BIND, EventKind.BACKEND}
    assert told >= set(STAGES) - silent - {EventKind.SUBGRAPHS}
    assert len(names()) >= 40
