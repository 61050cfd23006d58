"""Faults of the disk and of processes while programs are compiled, with both levels at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import windfall
from tests.cache.entry_faults import FAULTS

ROOT = Path(windfall.__file__).parents[1]
# What these put into the way shows: something was not kept, or had to be made anew.
REFUSED = {"not stored", "entry not stored"}
MOUNTED = {"small_disk", "no_execution"}
WARM = ["entry found", "found"] * 2


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("faults")
    command = [sys.executable, "-W", "ignore", "-m", "tests.cache.entry_faults", str(place)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WINDFALL_VERIFY": "0"}
    environment["WINDFALL_CACHE_ENTRIES"] = "always"
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: (seen, after) for name, seen, after in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("fault", FAULTS)
def test_right_answers_and_at_most_one_warning(fault: str, told: dict[str, Any]) -> None:
    """While it lasts; and the second process after it finds everything."""
    seen, after = told[fault]
    if fault in MOUNTED and not seen:
        pytest.skip("mounting a file system is not allowed here")
    for one in (*seen, *after):
        assert one["wrong"] == []
        assert len(one["warned"]) <= 1
    assert after[1]["how"] == WARM


@pytest.mark.parametrize("fault", ["full_disk", "small_disk", "read_only"])
def test_what_is_refused_is_told(fault: str, told: dict[str, Any]) -> None:
    seen, _ = told[fault]
    if fault in MOUNTED and not seen:
        pytest.skip("mounting a file system is not allowed here")
    assert REFUSED & set(seen[0]["how"]) and seen[0]["warned"]


def test_killed_in_the_middle_of_writing(told: dict[str, Any]) -> None:
    seen, _ = told["killed"]
    kills = [one for one in seen if one["how"] == ["killed"]]
    assert len(kills) > 3 and seen[-1]["how"] != ["killed"]


def test_spoilt_files_are_seen(told: dict[str, Any]) -> None:
    """Each of them: a fault that nobody met would be no test."""
    for fault in ("bits", "truncated"):
        seen, _ = told[fault]
        assert all(one["how"] != WARM for one in seen[1::2])


def test_one_of_many_compiles(told: dict[str, Any]) -> None:
    seen, _ = told["many_at_once"]
    assert len(seen) == 32
    built = [how for one in seen for how in one["how"] if how == "stored"]
    assert 4 <= len(built) <= 16  # two graphs, two backwards; others waited for them


def test_instruction_sets_do_not_meet(told: dict[str, Any]) -> None:
    seen, _ = told["two_instruction_sets"]
    assert [one["how"] == WARM for one in seen] == [False, False, True, True]
