"""Guards: what a compiled program relies on is checked, and every kind of check is needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.perturb import findings
from tests.programs.case import Case, cases_in
from tests.programs.subjects import Windfall
from windfall import frontend, pipeline
from windfall.ir import guard as guards

CASES = list(cases_in(Path(__file__).parent / "perturbed.py"))
KINDS = [kind for kind in vars(guards).values() if isinstance(kind, type)]
# No capture has a `WeakIdentity`: finished entries do.
KINDS = [
    kind
    for kind in KINDS
    if issubclass(kind, guards.Check) and kind not in (guards.Check, guards.WeakIdentity)
]


def told(found: list[Any]) -> str:
    return f"{len(found)} changes are not noticed:\n" + "\n".join(map(str, found[:20]))


@pytest.mark.conformance
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_change_is_noticed(case: Case) -> None:
    found = list(findings(case, lambda: Windfall("eager")))
    assert not found, told(found)


QUICK = [case for case in CASES if case.name in ("closures_and_defaults", "metadata")]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_changes_of_small_programs_are_noticed(case: Case) -> None:
    found = list(findings(case, lambda: Windfall("eager")))
    assert not found, told(found)


def capturing_without(kind: type, dropped: list[Any]) -> Callable[..., Any]:
    """A front end that forgets the guards of one kind."""
    capture = frontend.capture

    def forgetful(*args: Any) -> Any:
        captured = capture(*args)
        kept = tuple(one for one in captured.guards if type(one.check) is not kind)
        dropped.extend(one for one in captured.guards if type(one.check) is kind)
        return dataclasses.replace(captured, guards=kept)

    return forgetful


# Programs of few places: enough to show that a kind of guard is needed, and quick.
SMALL = [case for case in CASES if "modules" not in case.name]


def in_python() -> Windfall:
    """Without native code, which trusts the guards and would read what is not there."""
    return Windfall("eager", native=False)


@pytest.fixture(scope="module")
def known() -> set[tuple[str, str, str, str]]:
    """What goes wrong with all guards in place (nothing, once the test above passes)."""
    return {one.key for case in SMALL for one in findings(case, in_python)}


@pytest.mark.conformance
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_kind_of_guard_can_be_dropped(
    kind: type, known: set[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[Any] = []
    monkeypatch.setattr(pipeline.frontend, "capture", capturing_without(kind, dropped))
    noticed = (one for case in SMALL for one in findings(case, in_python))
    finding = next((one for one in noticed if one.key not in known), None)
    assert dropped, f"no program of the set needs {kind.__name__}: write one"
    assert finding is not None, f"{len(dropped)} guards {kind.__name__} were dropped in vain"
