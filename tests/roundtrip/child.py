"""python -m tests.roundtrip.child FILE: another process, which has only the bytes.

Enters: a file of tasks: programs as data; segments and executables of golden programs as data.
Leaves: a line for each: the digest of what it answers. Live things are linked by their names: those
of modules by themselves, the target of a golden program by the side table.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from tests.golden_programs import load
from tests.roundtrip.check import Report, answer, entered
from windfall.ir.codec import decode, dumps, encode, loads


def digest(answered: str) -> str:
    """An answer in few letters."""
    return hashlib.sha256(answered.encode()).hexdigest()[:24]


def run_elsewhere(report: Report) -> None:
    """Have every task of a report done by another process; what differs is wrong."""
    rows = tuple((one.golden, one.segment, one.data) for one in report.tasks)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tasks")
        file.write_bytes(dumps(encode(rows)))
        command = [sys.executable, "-m", "tests.roundtrip.child", str(file)]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    found = done.stdout.split()
    if done.returncode or len(found) != len(rows):
        report.wrong.append(f"the other process failed: {done.stderr[-2000:]}")
        return
    for task, there in zip(report.tasks, found, strict=True):
        if digest(task.answer) != there:
            report.wrong.append(f"{task.where}: in another process not {task.answer[:200]}")


def _done(name: str, segment: bytes, data: bytes) -> str:
    if not name:
        return answer(decode(loads(data)))
    golden = load(name)
    live = {"target": golden.module.program}
    executable = decode(loads(data), live) if data else None
    return entered(golden, decode(loads(segment), live), executable)


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums do not depend on the machine's load
    for row in decode(loads(Path(sys.argv[1]).read_bytes())):
        print(digest(_done(*row)), flush=True)
