"""Text that a program prints, compared with text that people have read and approved.

Enters: a name and a text. Leaves: nothing, or an `AssertionError` with a unified diff against
`tests/goldens/<room>/<name>.txt`. With `pytest --bless` the file is rewritten instead: read the
diff of the commit, for it is then the reviewer who compares. Invariant: only parts that depend on
the machine, Python's version or the run are smoothed over, never a part that the program decided.

    def test_table(golden):
        golden("iterables", table(rows))

What stages print of small programs is in files of its own kind: `golden_programs.py`. Text that
depends on the processor (LLVM with its vector width) is not for goldens.
"""

from __future__ import annotations

import difflib
import re
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

TESTS = Path(__file__).resolve().parent

# Longest first: the virtual environment may stand inside the repository, and torch inside that.
_FOLDERS: tuple[tuple[str, str], ...] = (
    (str(Path(torch.__file__).parent), "<torch>"),
    (sysconfig.get_paths()["purelib"], "<packages>"),
    (sysconfig.get_paths()["stdlib"], "<python>"),
    (sys.prefix, "<environment>"),
    (str(TESTS.parent), "<repository>"),
    (tempfile.gettempdir(), "<temporary>"),
)

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # `<Linear at 0x55…>`; then bare addresses of heap and libraries. Other hexadecimal numbers
    # (dispatch keys, LLVM's floating-point constants) are the program's own and stay.
    (re.compile(r"(?<=\bat )0x[0-9a-fA-F]+"), "0xADDRESS"),
    (re.compile(r"\b0x(?:5[5-6]|7[ef])[0-9a-f]{10}\b"), "0xADDRESS"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s)\b"), "<time>"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


# Goldens are written on this version. On another one the same instruction stands elsewhere.
_WRITTEN_ON = (3, 11)
_POSITION = re.compile(r"(?<=_resume_at_)\d+")
_OF_INSTRUCTIONS = re.compile(
    r"^== (?:capture|rewrite|enter|recompile) of .*?(?=^== |\Z)", re.MULTILINE | re.DOTALL
)


def _placed(text: str, version: tuple[int, ...] = sys.version_info[:2]) -> str:
    """`text` as far as it is the same on every version of Python."""
    if version == _WRITTEN_ON:
        return text
    return _OF_INSTRUCTIONS.sub("", _POSITION.sub("N", text))


def normalised(text: str) -> str:
    """`text` with one name for every address, folder and time, and one newline at its end."""
    for folder, name in _FOLDERS:
        text = text.replace(folder, name)
    for pattern, name in _PATTERNS:
        text = pattern.sub(name, text)
    return text.strip("\n") + "\n"


@dataclass(frozen=True, slots=True)
class Golden:
    """The goldens of one room."""

    folder: Path
    bless: bool

    def __call__(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.txt"
        actual = normalised(text)
        if self.bless:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        if not path.exists():
            raise AssertionError(
                f"no golden {path.name}: run `pytest --bless` and read it\n{actual}"
            )
        expected, actual = _placed(path.read_text(encoding="utf-8")), _placed(actual)
        if actual != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), actual.splitlines(), f"golden {name}", "now", lineterm=""
            )
            raise AssertionError("\n".join(["differs from the golden (--bless accepts):", *diff]))


def golden_for(test_file: Path, bless: bool, tests: Path = TESTS) -> Golden:
    """The goldens of the room whose tests stand in `test_file`'s folder: `tests/<room>/…`."""
    parts = test_file.resolve().relative_to(tests).parts
    room = parts[0] if len(parts) > 1 else "whole"
    return Golden(tests / "goldens" / room, bless)
