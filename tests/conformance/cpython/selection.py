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
_TRACED = "sets a trace function and counts its calls: whoever traces sees the compiler work"
_SIZES = "compares sys.getsizeof of objects that share keys or were over-allocated"
_IDENTITY = "asks whether CPython reuses the memory of an object that it has just dropped"
_PATCHED = "replaces a builtin that the compiler itself uses, in the running process"
_COUNTS = "compares sys.getrefcount before and after: how often a frame names an object is its own"
_ALL = "counts all objects of the process, those of the compiler too"
LEFT_OUT: dict[str, str] = {
    "test_array.*.test_bug_782369": _COUNTS,
    "test_builtin.TestBreakpoint.test_envar_good_path_builtin": _PATCHED,
    "test_descr.ClassPropertiesAndMethods.test_slots": _ALL,
    "test_descr.SharedKeyTests.*": _SIZES,
    "test_dict.DictTest.test_splittable_*": _SIZES,
    "test_dynamic.RebindBuiltinsTests.test_modify_builtins*": _PATCHED,
    "test_enumerate.*.test_tuple_reuse": _IDENTITY,
    "test_frame.ClearTest.test_lineno_with_tracing": _TRACED,
    "test_functools.TestLRU*.test_lru_reentrancy_with_len": _PATCHED,
    "test_iter.TestCase.test_reduce_mutating_builtins_iter": _PATCHED,
    "test_itertools.TestBasicOps.test_*_tuple_reuse": _IDENTITY,
    "test_memoryview.Bytes*.test_get*": _COUNTS,
    "test_memoryview.Bytes*.test_setitem_readonly": _COUNTS,
    "test_ordered_dict.*.test_sizeof*": _SIZES,
    "test_patma.TestTracing.*": _TRACED,
}


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
