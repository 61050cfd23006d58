"""Every callable with a rule × many arguments, as CPython: the parts of the sweep of builtins.py.

A part is every 97th case from an offset, so that each part meets every callable; all 97 offsets
are `python -m tests.conformance.builtins`.
"""

from __future__ import annotations

import itertools

import pytest

from tests.conformance.builtins import at_most, cases, difference

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("offset", range(0, 97, 12))
def test_calls_end_as_cpython_ends_them(offset: int) -> None:
    differing = []
    for case in itertools.islice(cases(()), offset, None, 97):
        with at_most(30):
            found = difference(case)
        if found is not None:
            differing.append(found)
    assert not differing, "\n".join(differing[:20])
