"""Every float32 op of torch's own `op_db`, on its first samples."""

from __future__ import annotations

import itertools

from tests.conformance.checking import check_one
from tests.conformance.op_db_samples import UNINITIALISED, maker, samples, table
from tests.conformance.sweep import Line

SAMPLES = 3


def names() -> list[str]:
    """What can be checked."""
    return sorted(table())


def check(name: str, backend: str, line: Line) -> None:
    """The first samples of one op; with gradients where native code is checked."""
    info = table()[name]
    wants_grad = backend != "eager" and info.supports_autograd
    count = sum(1 for _ in itertools.islice(samples(info, wants_grad), SAMPLES))
    for index in range(count):
        make = maker(info, wants_grad, index)
        check_one(make, backend, line, info.name not in UNINITIALISED, info.name)
