"""`windfall doctor`: is everything here that windfall needs, and what to do where it is not.

Enters: nothing. Leaves: a line for each check. Invariant: a check looks and changes nothing (the
folder of the cache is made if it is missing); one that raises is itself a finding.

A new check is a function with `@check`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from windfall import api, jit, torch_abi
from windfall.cache import DiskStore, StoreError, UnsafeDirectory, private_directory, remote_for
from windfall.commands.verb import Answer, Verb
from windfall.dataclass import dataclass
from windfall.options import Options

FEW_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `advice` where something is to be done, `fails` where it must be."""

    what: str
    advice: str = ""
    fails: bool = False


CHECKS: dict[str, Callable[[], Finding]] = {}


def check(function: Callable[[], Finding]) -> Callable[[], Finding]:
    """Declare a check by its name."""
    CHECKS[function.__name__.strip("_").replace("_", " ")] = function
    return function


@check
def python() -> Finding:
    """The interpreter."""
    return Finding(f"{platform.python_implementation()} {platform.python_version()}")


@check
def pytorch() -> Finding:
    """torch's version."""
    version = torch.__version__
    known = version.startswith(torch_abi.TRIED)
    tried = ", ".join(one.rstrip(".") for one in torch_abi.TRIED)
    advice = "" if known else f"tested with torch {tried}; install one of these"
    return Finding(version, advice)


@check
def system() -> Finding:
    """What runs generated code."""
    machine = f"{platform.system()} {platform.machine()}"
    known = machine == "Linux x86_64"
    return Finding(machine, "" if known else "never run here: expect the slower paths")


@check
def processor() -> Finding:
    """Vectors."""
    bits = jit.vector_bits()
    advice = "" if bits >= 256 else "kernels are written for AVX2 or AVX-512; they will be slower"
    return Finding(f"{jit.target().cpu}, vectors of {bits} bits", advice)


@check
def shortcuts() -> Finding:
    """What torch_abi found."""
    missing = torch_abi.missing()
    advice = f"calls take a slower path; not found: {', '.join(missing)}" if missing else ""
    return Finding(f"{len(torch_abi.report()) - len(missing)} facts of torch found", advice)


@check
def llvm() -> Finding:
    """Whether machine code can be made and loaded."""
    code = jit.load("define i32 @seven() {\n  ret i32 7\n}\n")
    answer = ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("seven"))()
    said = "llvmlite {}, LLVM {}".format(*jit.versions()[:2])
    return Finding(said, "" if answer == 7 else "machine code does not run here", answer != 7)


@check
def threads() -> Finding:
    """How many, and whether more were asked for than there are."""
    used, there = torch.get_num_threads(), len(os.sched_getaffinity(0))
    advice = f"more threads than the {there} cores of this process: set OMP_NUM_THREADS={there}"
    return Finding(f"{used} of {there} cores", advice if used > there else "")


@check
def options() -> Finding:
    """What the environment says."""
    chosen = Options.checked()
    if chosen.disable:
        return Finding("WINDFALL_DISABLE is set", "nothing is compiled: unset it")
    if not chosen.native:
        return Finding("WINDFALL_NATIVE is off", "calls take a slower path: unset it")
    if chosen.verify:
        return Finding("WINDFALL_VERIFY is on", "compiling takes longer: unset it")
    return Finding("as they are by default")


@check
def cache() -> Finding:
    """The folder, its owner and modes, its file."""
    chosen = Options.checked()
    if chosen.cache == "off":
        return Finding("off (WINDFALL_CACHE)", "each process compiles for itself")
    if not chosen.cache_dir:
        return Finding("no folder", "set HOME, XDG_CACHE_HOME or WINDFALL_CACHE_DIR")
    try:
        folder = private_directory(Path(chosen.cache_dir))
        store = DiskStore(folder, chosen.cache_bytes)
        rows, aside = store.rows(), store.quarantined()
    except (UnsafeDirectory, StoreError) as error:
        return Finding(f"not used: {error}", "mend it, or set WINDFALL_CACHE_DIR")
    said = f"{folder}: {len(rows)} entries, {sum(row.bytes for row in rows):,} bytes"
    if aside:
        return Finding(said, f"{len(aside)} damaged entries: is the disk well? windfall cache ls")
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < FEW_BYTES:
        return Finding(said, "the disk is almost full: windfall cache gc, or another folder")
    return Finding(said)


@check
def remote_cache() -> Finding:
    """Whether a store that machines share answers."""
    store = remote_for(Options.checked())
    if store is None:
        return Finding("none (WINDFALL_REMOTE_CACHE)")
    reason = store.probe()
    if reason:
        return Finding(f"not used: {reason}", "mend it, or unset WINDFALL_REMOTE_CACHE")
    return Finding("it answers")


@check
def _a_program() -> Finding:
    """A module of torch's, forward and backward, against eager."""
    program = torch.nn.Sequential(torch.nn.GELU(), torch.nn.LayerNorm(8))
    answers: list[Any] = []
    compiled = api.compile(program, options={"cache": "off"})
    for call in (program, compiled):
        x = torch.linspace(-2, 2, 32).reshape(4, 8).requires_grad_()
        result = call(x)
        result.exp().sum().backward()
        answers += [result.detach(), x.grad]
    pairs = zip(answers[:2], answers[2:], strict=True)
    right = all(torch.allclose(*pair, rtol=1e-4, atol=1e-4) for pair in pairs)  # but for rounding
    told = api.explanation(compiled)
    if not right:
        return Finding("it answers otherwise than eager", "please report it, with this page", True)
    if told.eager or told.fallbacks:
        return Finding("right, in eager", f"{'; '.join(told.fallbacks)}")
    return Finding(f"right, in {len(told.kernels())} kernels")


def examined() -> dict[str, Finding]:
    """What every check finds."""
    found: dict[str, Finding] = {}
    for name, ask in CHECKS.items():
        try:
            found[name] = ask()
        except Exception as error:
            found[name] = Finding(f"{type(error).__name__}: {error}", "please report it", True)
    return found


def _run(given: argparse.Namespace) -> Answer:
    found = examined()
    lines = []
    for name, one in found.items():
        mark = "BAD " if one.fails else "look" if one.advice else "ok  "
        lines.append(f"{mark}  {name}: {one.what}")
        lines += [f"        → {one.advice}"] if one.advice else []
    data = {
        name: {"what": one.what, "advice": one.advice, "fails": one.fails}
        for name, one in found.items()
    }
    data["command"] = {"what": sys.executable, "advice": "", "fails": False}
    return Answer("\n".join(lines), data, int(any(one.fails for one in found.values())))


VERB = Verb("doctor", "look whether everything is here that windfall needs",
            lambda parser: None, _run)  # fmt: skip
