"""Which processor code is written for: one table, and no other place knows an instruction set.

Enters: a name of `TARGETS` (`WINDFALL_TARGET`), or nothing, and what the host's processor has.
Leaves: a `Processor`: what LLVM is told, how wide vectors are, which of SLEEF's functions fit them.
Invariant: a target that this processor cannot run is refused before any code is made; the host's
own is the widest row that it can run, with its features besides.

    >>> TARGETS["x86-64-v3"].vector_bits
    256
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from windfall.dataclass import dataclass
from windfall.errors import UserError


@dataclass(frozen=True, slots=True)
class Processor:
    """One instruction set. `needs`: what a processor must have to run it, in LLVM's words."""

    name: str
    machine: str  # as `platform.machine()` says it
    triple: str
    cpu: str
    features: str
    vector_bits: int
    sleef: str  # how SLEEF's names for vectors of that width end; "": it has none
    needs: frozenset[str]


_X86 = ("x86_64", "x86_64-unknown-linux-gnu")
_V2 = frozenset({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}

# From the narrowest to the widest of each machine.
TARGETS: dict[str, Processor] = {
    one.name: one
    for one in (
        Processor("x86-64-v2", *_X86, "x86-64-v2", "", 128, "", _V2),  # torch's SLEEF begins at AVX
        Processor("x86-64-v3", *_X86, "x86-64-v3", "", 256, "avx2", _V3),
        Processor("x86-64-v4", *_X86, "x86-64-v4", "", 512, "avx512f", _V4),
        Processor(
            *("aarch64", "aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon"),
            *(128, "advsimd", frozenset({"neon"})),
        ),
    )
}

# What systems call their machines, where that is another word than ours.
_ALSO_KNOWN_AS = {"AMD64": "x86_64", "arm64": "aarch64"}


def _machine(name: str) -> str:
    return _ALSO_KNOWN_AS.get(name, name)


def of_host(machine: str, triple: str, cpu: str, features: str) -> Processor:
    """The host's own target: all that its processor has. Of a machine without rows it is assumed
    that it has vectors of 128 bits, or that LLVM makes them of something else."""
    found = Processor("host", _machine(machine), triple, cpu, features, 128, "", frozenset())
    for row in TARGETS.values():
        if row.machine == found.machine and row.needs <= _present(features):
            found = replace(found, vector_bits=row.vector_bits, sleef=row.sleef)
    return found


def chosen(name: str, host: Processor) -> Processor:
    """The target of this name (none: the host's); `UserError` where it is not known or where the
    host cannot run it."""
    if name in ("", "host"):
        return host
    if name not in TARGETS:
        listed = ", ".join(map(repr, ("host", *TARGETS)))
        raise UserError(f"WINDFALL_TARGET={name!r} is not known; accepted: {listed}")
    target = TARGETS[name]
    if target.machine != host.machine:
        raise UserError(f"WINDFALL_TARGET={name!r} is for {target.machine}, not {host.machine}")
    missing = sorted(target.needs - _present(host.features))
    if missing:
        raise UserError(f"WINDFALL_TARGET={name!r}: this processor lacks {', '.join(missing)}")
    return replace(target, triple=host.triple)


def sleef_suffix(machine: str, bits: int) -> str:
    """How SLEEF's names end for vectors of so many bits; "": it has none."""
    for row in TARGETS.values():
        if (row.machine, row.vector_bits) == (machine, bits):
            return row.sleef
    return ""


def _present(features: str) -> Set[str]:
    return {one[1:] for one in features.split(",") if one.startswith("+")}
