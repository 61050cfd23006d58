"""What every test may ask for: `golden` (text compared with approved text), `--bless`; and what
every test gets: torch's global state as it found it, and a failure if windfall hid one of its own
behind a fall-back to eager (`@pytest.mark.hides_errors`: the test is about that)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch

from tests.golden import Golden, golden_for
from tests.seeds import set_seed
from windfall.events import EventKind, EventLog

pytest_plugins = ["pytester"]

# What collecting makes stays until the end: nothing for the collector to find meanwhile.
gc.disable()

# Records are checked between stages, and guards for covering what was looked at; set before the
# first `Options` is made, and handed on to child processes.
os.environ.setdefault("WINDFALL_VERIFY", "1")
# Tests plant errors and rules: nothing of it may be found by another process.
os.environ.setdefault("WINDFALL_CACHE", "off")

# The same examples in every run: what fails here can be repeated. Deep sweeps draw new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="rewrite the goldens with what the program says now"
    )


def pytest_collection_finish() -> None:
    """Modules and tests stay: no collection of a test's own objects goes through them again. With
    all tests collected one such walk takes half a second, and hundreds of tests ask for one."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return golden_for(request.path, request.config.getoption("--bless"))


@pytest.fixture(autouse=True)
def _torch_state_is_given_back() -> Iterator[None]:
    """Seeds make a failure repeatable; a test that leaves a mode on would mislead the next."""
    set_seed(0)
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    yield
    assert torch.is_grad_enabled(), "the test left gradients switched off"
    assert not torch.is_inference_mode_enabled(), "the test left inference mode on"
    assert torch.get_default_dtype() == dtype, "the test left another default dtype"
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _no_error_of_ours_is_hidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """A bug of ours costs the user speed, not the answer; here it costs the test."""
    hidden: list[str] = []
    count = EventLog.count

    def counted(self: EventLog, kind: Any, subject: str, **facts: Any) -> None:
        if kind is EventKind.FALLBACK and str(facts.get("reason")).startswith("InternalError"):
            hidden.append(f"{subject}: {facts['reason']}")
        count(self, kind, subject, **facts)

    EventLog.count = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        EventLog.count = count  # type: ignore[method-assign]
    if request.node.get_closest_marker("hides_errors") is None:
        assert not hidden, "\n".join(["an error of ours was hidden by eager:", *hidden])
