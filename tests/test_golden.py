"""The golden machinery itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.golden import TESTS, Golden, _placed, golden_for, normalised


def test_equal_text_passes_and_other_text_shows_a_diff(tmp_path: Path) -> None:
    Golden(tmp_path, bless=True)("graph", "one\ntwo\nthree")
    compare = Golden(tmp_path, bless=False)
    compare("graph", "one\ntwo\nthree\n")
    with pytest.raises(AssertionError) as caught:
        compare("graph", "one\n2\nthree")
    assert "-two" in str(caught.value)
    assert "+2" in str(caught.value)
    assert " three" in str(caught.value)


def test_a_missing_golden_fails_and_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="--bless"):
        Golden(tmp_path, bless=False)("graph", "one")
    assert list(tmp_path.iterdir()) == []


def test_blessing_rewrites(tmp_path: Path) -> None:
    bless = Golden(tmp_path / "new", bless=True)
    bless("graph", "old")
    bless("graph", "new")
    assert (tmp_path / "new" / "graph.txt").read_text() == "new\n"


def test_the_room_is_the_folder_of_the_test() -> None:
    assert golden_for(TESTS / "codegen" / "test_x.py", False).folder == TESTS / "goldens/codegen"
    assert golden_for(TESTS / "ir" / "deep" / "test_x.py", False).folder == TESTS / "goldens/ir"
    assert golden_for(TESTS / "test_x.py", False).folder == TESTS / "goldens/whole"


def test_machine_and_run_are_smoothed_over() -> None:
    def text() -> str:
        return "\n".join([repr(object()), torch.__file__, str(TESTS / "x.py"), "took 1.25 ms  "])

    assert normalised(text()) == (
        "<object object at 0xADDRESS>\n<torch>/__init__.py\n<repository>/tests/x.py\ntook <time>\n"
    )
    assert normalised(f"p={id(sys):#x}") == "p=0xADDRESS\n"


@pytest.mark.parametrize(
    "text",
    ["keys=0x8000200008001", "fmul float %x, 0x3FF0000000000000", "f32[8, 4] strides (4, 1)"],
)
def test_what_the_program_decided_stays(text: str) -> None:
    assert normalised(text) == text + "\n"


def test_what_depends_on_the_version_is_left_out_on_others() -> None:
    text = "== capture of f\nguards\n\n== plan of f_resume_at_7\n0 bytes\n== enter of f\nnative\n"
    assert _placed(text, (3, 11)) == text
    assert _placed(text, (3, 12)) == "== plan of f_resume_at_N\n0 bytes\n"


def test_the_switch_reaches_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        f"""
        import sys; sys.path.insert(0, {str(TESTS.parent)!r})
        from pathlib import Path
        import pytest
        from tests.conftest import pytest_addoption
        from tests.golden import golden_for

        @pytest.fixture
        def golden(request):
            bless = request.config.getoption("--bless")
            return golden_for(request.path, bless, tests=request.path.parent)
        """
    )
    pytester.makepyfile("def test_text(golden):\n    golden('name', 'text')")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(failed=1)
    pytester.runpytest_inprocess("--bless").assert_outcomes(passed=1)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert (pytester.path / "goldens/whole/name.txt").read_text() == "text\n"
