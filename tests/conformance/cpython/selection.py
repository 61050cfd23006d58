"""Which of CPython's tests are compiled, which are left out and why, which are known to differ.

Enters: nothing but `known.txt`. Leaves: names. A test is named `test_dict.DictTest.test_items`; a
pattern of `LEFT_OUT` is one of `fnmatch`.
"""

from __future__ import annotations

import importlib.util
from fnmatch import fnmatchcase
from pathlib import Path

KNOWN = Path(__file__).with_name("known.txt")

# Files that another version of CPython does not have are skipped with a note.
FILES = tuple(
    """
    test_abc test_abstract_numbers test_array test_asyncgen test_augassign test_baseexception
    test_binop test_bisect test_bool test_builtin test_bytes test_call test_class test_cmath
    test_collections test_compare test_complex test_contains test_context test_contextlib
    test_contextlib_async test_copy test_copyreg test_coroutines test_dataclasses test_decorators
    test_defaultdict test_deque test_descr test_dict test_dictcomps test_dictviews test_dynamic
    test_dynamicclassattribute test_enum test_enumerate test_except_star test_exception_group
    test_exception_hierarchy test_exception_variations test_exceptions test_extcall test_float
    test_flufl test_format test_fractions test_frame test_fstring test_funcattrs test_functools
    test_generator_stop test_generators test_genericalias test_genericclass test_genexps test_global
    test_grammar test_graphlib test_hash test_heapq test_index test_int test_int_literal
    test_isinstance test_iter test_iterlen test_itertools test_keyword test_keywordonlyarg test_list
    test_listcomps test_long test_math test_memoryview test_metaclass test_named_expressions
    test_numeric_tower test_opcache test_opcodes test_operator test_ordered_dict test_patma
    test_pep646_syntax test_positional_only_arg test_pow test_pprint test_print test_property
    test_queue test_raise test_range test_reprlib test_richcmp test_scope test_set test_setcomps
    test_slice test_sort test_string test_string_literals test_structseq test_subclassinit
    test_super test_syntax test_textwrap test_traceback test_tuple test_type_annotations
    test_typechecks test_types test_ucn test_unary test_unicode test_unpack test_unpack_ex
    test_userdict test_userlist test_userstring test_weakref test_weakset test_with test_yield_from
    """.split()
)

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
