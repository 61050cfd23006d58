"""Children, one for each file of tests, and what they found.

Enters: names of files, ways. Leaves: `Row`s, one for each test and compiled way. Invariant: every
test that began has a row for each way that was asked; a child that dies or stands still is
replaced, and the test that it was at is told as such.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.cpython import selection

ROOT = Path(__file__).resolve().parents[3]
PLAIN, COMPILED, BETWEEN = "plain", "compiled", "between"
_GRACE = 45.0  # seconds beyond a test's own time in which a child must say something


@dataclass(frozen=True)
class Row:
    """One test in one compiled way beside the plain one."""

    file: str
    test: str
    way: str
    plain: str
    outcome: str
    details: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def comparable(self) -> bool:
        """The uncompiled test came to an end."""
        return "Late" not in self.plain and not self.plain.startswith("killed")

    @property
    def equal(self) -> bool:
        return self.plain == self.outcome


@dataclass
class Table:
    """What one file came to."""

    file: str
    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    note: str = ""
    seconds: float = 0.0

    @property
    def asked(self) -> list[Row]:
        return [row for row in self.rows if row.comparable and row.test not in self.left_out]

    @property
    def different(self) -> list[Row]:
        return [row for row in self.asked if not row.equal]


def run(file: str, ways: list[str], only: str = "", timeout: float = 60.0) -> Table:
    """One file, with as many children as it takes."""
    if not selection.exists(file):
        return Table(file, note="this version of CPython has no such file")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.jsonl")
        report.touch()
        ends: list[str] = []
        while not _ended(report):
            before = report.stat().st_size
            ends.append(_child(file, report, ways, only, timeout))
            if report.stat().st_size == before:
                return Table(file, note=f"no test began: {ends[-1]}")
            _close(report, ends[-1])
        table = Table(file, list(_rows(file, _lines(report))))
    for row in table.rows:
        reason = selection.reason_to_leave_out(row.test)
        if reason is not None:
            table.left_out[row.test] = reason
    table.seconds = time.perf_counter() - started
    return table


def run_all(
    files: list[str], ways: list[str], only: str = "", timeout: float = 60.0, jobs: int = 1
) -> Iterator[Table]:
    """Each file as it is done, in order."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda file: run(file, ways, only, timeout), files)


def _child(file: str, report: Path, ways: list[str], only: str, timeout: float) -> str:
    """Run a child to its end; how it ended."""
    command = [
        sys.executable, "-m", f"{__package__}.child", file, str(report),
        "--ways", ",".join(ways), "--only", only, "--timeout", str(timeout),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        )  # fmt: skip
        end = _watch(child, report, timeout + _GRACE)
        errors.seek(0)
        return f"{end}\n{errors.read()[-800:]}"


def _watch(child: subprocess.Popen[bytes], report: Path, patience: float) -> str:
    """Wait until the child ends, or says nothing for too long."""
    size, since = -1, time.monotonic()
    while True:
        try:
            code = child.wait(0.2)
        except subprocess.TimeoutExpired:
            now = report.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > patience:
                child.kill()
                child.wait()
                return "killed: it stood still"
        else:
            return "ended" if code == 0 else f"killed: exit {code}"


def _lines(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()]


def _ended(report: Path) -> bool:
    lines = _lines(report)
    return bool(lines) and "ended" in lines[-1]


def _close(report: Path, end: str) -> None:
    """Say what became of the test that a child was at when it died."""
    last = _lines(report)[-1]
    if "begins" in last:
        kind, _, words = end.partition("\n")
        line = {"test": last["test"], "way": last["way"], "outcome": kind, "details": [words]}
        with report.open("a") as sink:
            sink.write(json.dumps(line) + "\n")


def _rows(file: str, lines: list[dict[str, Any]]) -> Iterator[Row]:
    ended = {(line["test"], line["way"]): line for line in lines if "outcome" in line}
    for (test, way), line in ended.items():
        if way != PLAIN:
            yield Row(
                file, test, way, ended[test, PLAIN]["outcome"], line["outcome"],
                tuple(line.get("details", ())), tuple(line.get("fallbacks", ())),
                line.get("seconds", 0.0),
            )  # fmt: skip
