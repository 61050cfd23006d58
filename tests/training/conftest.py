"""Each test has an engine of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windfall import backward


@pytest.fixture(autouse=True)
def _new_engine() -> Iterator[None]:
    backward.forget()
    yield
    backward.forget()
