"""The collector rests while modules are loaded (`windfall/collector.py`)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from windfall.collector import at_rest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_as_it_was(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    with at_rest():
        assert not gc.isenabled()
        with at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is enabled
    with pytest.raises(KeyError), at_rest():
        raise KeyError
    assert gc.isenabled() is enabled


class Loading:
    """A load in a thread of its own, from being made until `end`."""

    def __init__(self) -> None:
        self._inside, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._load)
        self._thread.start()
        self._inside.wait()

    def _load(self) -> None:
        with at_rest():
            self._inside.set()
            self._leave.wait()

    def end(self) -> None:
        self._leave.set()
        self._thread.join()


def test_a_load_that_began_earlier_ends_earlier() -> None:
    other = Loading()
    with at_rest():
        other.end()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_load_that_began_later_ends_later() -> None:
    with at_rest():
        other = Loading()
    assert not gc.isenabled()
    other.end()
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_forked_child_waits_for_nobody(enabled: bool) -> None:
    """The other thread's load does not go on in the child."""
    if not enabled:
        gc.disable()
    other = Loading()
    with at_rest():
        child = os.fork()
    if child == 0:
        after_its_own = gc.isenabled() is enabled
        with at_rest():
            rests = not gc.isenabled()
        os._exit(0 if after_its_own and rests and gc.isenabled() is enabled else 1)
    other.end()
    assert os.waitpid(child, 0)[1] == 0
    assert gc.isenabled() is enabled


def test_loading_collects_nothing() -> None:
    """What a first use loads: no round but those of the program itself."""
    program = (
        "import gc, sys, torch, windfall\n"
        "rounds = []\n"
        "gc.callbacks.append(lambda phase, told: rounds.append(len(sys.modules)))\n"
        "before = len(sys.modules); windfall.compile; after = len(sys.modules)\n"
        "assert after - before > 200, (before, after)\n"
        "assert not [seen for seen in rounds if before < seen < after], rounds\n"
        "assert gc.isenabled()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
