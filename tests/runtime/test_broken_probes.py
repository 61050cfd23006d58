"""A torch in which something has moved, or is gone: right answers by slower paths, one warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPACE = os.environ | {"PYTHONPATH": str(ROOT), "WINDFALL_CACHE": "off", "OMP_NUM_THREADS": "1"}


def _run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command], env=SPACE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["probes", "symbols"])
def test_each_probe_fails_in_one_way(what: str) -> None:
    _run("-m", "tests.runtime.broken_probes", what)


@pytest.mark.conformance
@pytest.mark.parametrize("what", ["probes", "symbols"])
def test_each_probe_fails_in_every_way(what: str) -> None:
    _run("-m", "tests.runtime.broken_probes", what, "all")


# Everything that the front end knows by identity, and what is known by its code, gone at once.
WITHOUT_NAMES = """
import sys, warnings
import torch
import torch._higher_order_ops as higher
import torch._higher_order_ops.invoke_subgraph
regions = sys.modules["torch._higher_order_ops.invoke_subgraph"]
removed = []
for owner, names in (
    (torch, "_check_index _check_value _check_type _check_not_implemented _check_is_size"),
    (torch, "_fused_adagrad_"),
    (higher, "scan map while_loop associative_scan"),
    (regions, "invoke_subgraph_placeholder"),
    (torch._C, "_SDPBackend _get_privateuse1_backend_name"),
):
    for name in names.split():
        removed.append((owner, name, getattr(owner, name)))
        delattr(owner, name)
torch.__version__ = "2.16.0"
import windfall
windfall.compile  # the first use of a name loads the rooms
for one in removed:  # torch itself needs some of them
    setattr(*one)
from tests.runtime.broken_probes import programs
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    programs()
(only,) = [str(one.message) for one in said if "windfall" in str(one.message)]
assert "never tried with torch 2.16.0, only with 2.13, 2.14, 2.15" in only, only
assert "names" in only and "slower path" in only, only
from windfall import torch_abi
assert "scan" in torch_abi.report()["names"]
"""


def test_names_that_are_gone_do_not_stop_the_import() -> None:
    _run("-c", WITHOUT_NAMES)


def test_another_interpreter_is_refused() -> None:
    for patch, message in (
        ("sys.version_info = (3, 14, 0)", "CPython 3.11 to 3.13; this is 3.14.0"),
        ("sys._is_gil_enabled = lambda: False", "relies on the global interpreter lock"),
    ):
        command = f"import sys, torch; {patch}\ntry:\n import windfall\nexcept ImportError as e:\n "
        _run("-c", command + f"assert {message!r} in str(e), e\nelse:\n assert False")
