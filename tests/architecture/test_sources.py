"""The rules, on windfall's own sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.scan import scan_tree

ROOT = Path(__file__).resolve().parents[2]
MODULES = scan_tree(ROOT, "windfall")


def shown(broken: list[str]) -> str:
    return "\n".join(["", *broken])


def test_the_scan_sees_the_house() -> None:
    assert {"windfall", "windfall.options", "windfall.ir.stages"} <= MODULES.keys()


@pytest.mark.parametrize(
    "rule",
    [
        rules.import_direction,
        rules.import_cycles,
        rules.around_the_look,
        rules.names_of_several,
        rules.files_of_several,
    ],
)
def test_rule_over_all_modules(rule) -> None:
    broken = rule(MODULES)
    assert not broken, shown(broken)


KNOT = 18  # modules; `pytest -s` shows the largest


def test_no_large_knot_of_modules() -> None:
    largest, *_ = rules.import_knots(MODULES)
    print(len(largest), *largest, sep="\n  ")
    assert len(largest) <= KNOT, shown(largest)


@pytest.mark.parametrize(
    "rule",
    [
        rules.replaced_systems,
        rules.environment_readers,
        rules.private_torch,
        rules.behind_the_door,
        rules.llvm_users,
        rules.blocks_by_hand,
        rules.kept_exceptions,
        rules.addresses_as_keys,
        rules.missing_docstring,
        rules.long_without_reason,
    ],
)
def test_rule_for_each_module(rule) -> None:
    broken = [line for module in MODULES.values() for line in rule(module)]
    assert not broken, shown(broken)


def test_the_pipeline_is_short() -> None:
    """The stages in their order, and nothing else."""
    lines = (ROOT / "windfall/pipeline.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200


def test_every_room_has_a_readme() -> None:
    rooms = [path.parent for path in (ROOT / "windfall").glob("*/__init__.py")]
    assert rooms
    bare = [room.name for room in rooms if not (room / "README.md").is_file()]
    assert not bare, f"rooms without README.md: {bare}"


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "windfall" / "py.typed").is_file()
