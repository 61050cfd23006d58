"""Which of CPython's tests are compiled, which are left out and why, which are known to differ.

Enters: `files.txt` and `known.txt`. Leaves: names. A test is named like
`test_dict.DictTest.test_items`; a pattern of `LEFT_OUT` is one of `fnmatch`.
"""

from __future__ import annotations

import importlib.util
from fnmatch import fnmatchcase
from pathlib import Path

KNOWN = Path(__file__).with_name("known.txt")

# Files that another version of CPython does not have are skipped with a note.
FILES = tuple(Path(__file__).with_name("files.txt").read_text().split())

# What no compiler of functions can be asked, or what this sweep cannot ask.
LEFT_OUT: dict[str, str] = {}


def reason_to_leave_out(test: str) -> str | None:
    """Why a test is not asked; None: it is."""
    return next((why for pattern, why in LEFT_OUT.items() if fnmatchcase(test, pattern)), None)


def known() -> dict[str, str]:
    """Tests that end otherwise when they are compiled: test, reason."""
    lines = (line.strip() for line in KNOWN.read_text().splitlines())
    pairs = (line.split(":", 1) for line in lines if line and not line.startswith("#"))
    return {test.strip(): reason.strip() for test, reason in pairs}


def exists(file: str) -> bool:
    """Whether this version of CPython has such a file of tests."""
    return importlib.util.find_spec(f"test.{file}") is not None
