"""What a training step needs at its peak, in a process of its own.

Enters: cases of whole training steps. Leaves: rows in bytes, whose ratios are to eager's. The child
`python -m benchmarks.memory CASE CONTENDER` compiles one small module, which loads the contender's
libraries, and notes what the process holds then; builds the model and takes WARM_STEPS steps, which
compile and make the optimizer's state; sets the high-water mark back to what is held now; takes
STEPS more.

    peak = high-water mark during those steps − what was held before the model was built

So weights, gradients, AdamW's two moments, activations and arenas count, and so does what compiling
left behind: machine code, graphs, whatever the allocator did not give back. Resident memory is what
is measured, because no allocator's own book would see every contender's memory. Linux alone can set
the mark back; elsewhere the peak includes compiling.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks import process
from benchmarks.case import Case, runner
from benchmarks.contenders import CONTENDERS
from benchmarks.models import model_memory
from benchmarks.results import Row
from examples.models import transformers

WARM_STEPS = 2
STEPS = 2


def measure(cases: Sequence[Case], contenders: Sequence[str], repeats: int) -> Iterator[Row]:
    """A row for each case. Caches last for one case: only its first process compiles cold."""
    baseline = "eager" if "eager" in contenders else contenders[0]
    for case in cases:
        with tempfile.TemporaryDirectory() as kept:
            row = process.in_turn(
                case,
                contenders,
                repeats,
                partial(_peak, case.label, Path(kept)),
                baseline,
            )
        yield replace(row, unit="bytes")


def _peak(label: str, caches: Path, contender: str) -> float:
    found = process.answer("benchmarks.memory", label, contender, caches=caches)
    return float(found["peak_bytes"])


def resident() -> int:
    """Bytes of memory that the process holds now."""
    told = _status("VmRSS")
    return _high_water() if told is None else told


def forget_peak() -> None:
    """Set the high-water mark back to what is held now, where the system can."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def peak() -> int:
    """The high-water mark, in bytes."""
    told = _status("VmHWM")
    return _high_water() if told is None else told


def _status(name: str) -> int | None:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 if found else None


def _high_water() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _child(label: str, contender: str) -> None:
    (case,) = (one for one in model_memory() if one.label == label)
    torch.set_num_threads(1)
    transformers()
    CONTENDERS[contender].ready(torch.nn.Linear(4, 4), None)(torch.ones(2, 4)).sum().backward()
    gc.collect()
    before = resident()
    subject = case.subject()
    run = runner(subject, CONTENDERS[contender].ready(subject.program, None), case.mode)
    for _ in range(WARM_STEPS):
        run()
    gc.collect()
    held = resident() - before
    forget_peak()
    for _ in range(STEPS):
        run()
    print(json.dumps({"peak_bytes": peak() - before, "held_bytes": held}))


if __name__ == "__main__":
    _child(*sys.argv[1:])
