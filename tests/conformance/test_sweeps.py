"""The sweeps, from nothing, with what each must reach. They are long: `make conformance`.

To go on where a run was stopped, to run in parts or for one name: the command line of `sweep.py`.
"""

from __future__ import annotations

import pytest

from tests.conformance.sweep import REFUSED, Line, lines, load, path_of, run, summary

pytestmark = pytest.mark.conformance

# Sweep, backend, and how much of it must be captured (ops that depend on data aside).
SWEEPS = [
    ("op_db", "eager", 0.95),
    ("module_db", "eager", 0.95),
    ("op_db", "windfall", 0.0),
    ("module_db", "windfall", 0.0),
    ("transformers", "windfall", 0.0),
]


@pytest.mark.parametrize(("sweep", "backend", "share"), SWEEPS)
def test_a_sweep_equals_eager(sweep: str, backend: str, share: float) -> None:
    names = load(sweep).names()
    path_of(sweep, backend).unlink(missing_ok=True)
    run(sweep, backend, names, print)
    print(summary(sweep, backend, names))
    found = lines(path_of(sweep, backend))
    assert set(found) == set(names)
    wrong = [line for line in found.values() if not line.right]
    assert not wrong, "\n".join(f"{one.status}: {one.name}: {one.detail[:300]}" for one in wrong)
    assert captured_share(list(found.values())) >= share


def captured_share(found: list[Line]) -> float:
    """Of what can be asked: programs whose size or value depends on data aside."""
    asked = [one for one in found if one.status != REFUSED and not one.data_dependent]
    return sum(one.captured for one in asked) / len(asked)


def test_most_ops_can_be_asked() -> None:
    """Were torch's samples to change their form, a sweep of nothing would pass."""
    assert len(load("op_db").names()) > 600
    assert len(load("module_db").names()) > 100
