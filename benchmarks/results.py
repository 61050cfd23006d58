"""What a run of a suite found: rows in, a table and JSON out.

Enters: a `Row` for each case. Leaves: text for people, plain values for tools. Invariant: a
contender that failed or answered wrongly is shown as such, never as a time.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks import sampling
from benchmarks.sampling import Ratio, Summary


@dataclass(frozen=True, slots=True)
class Measured:
    """One contender in one case: a summary, or what went wrong."""

    summary: Summary | None = None
    problem: str = ""
    note: str = ""
    samples: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """One case. Ratios are to `baseline`'s samples; `goals` are the most that windfall may take, as
    parts of what other contenders take."""

    case: str
    baseline: str
    contenders: dict[str, Measured]
    goals: Mapping[str, float] = field(default_factory=dict)
    unit: Literal["seconds", "bytes"] = "seconds"

    def ratio_to(self, peer: str) -> Ratio | None:
        """Windfall's samples over those of `peer`, round by round; None where either has none."""
        mine, other = self.contenders.get("windfall"), self.contenders.get(peer)
        if mine is None or other is None or mine.summary is None or other.summary is None:
            return None
        return sampling.ratio(mine.samples, other.samples)

    def verdict(self, peer: str) -> bool | None:
        """Whether windfall's median stands at or below its goal; None: the peer did not run, so
        nobody knows. A windfall that failed has missed it."""
        mine, other = self.contenders.get("windfall"), self.contenders.get(peer)
        if mine is None or other is None:
            return None
        if mine.summary is None:
            return False
        ratio = self.ratio_to(peer)
        return None if ratio is None else ratio.median <= self.goals[peer]

    @property
    def met(self) -> bool | None:
        """Whether every goal that could be judged is met; None: there is none."""
        judged = [self.verdict(peer) for peer in self.goals]
        known = [one for one in judged if one is not None]
        return all(known) if known else None


def table(rows: Sequence[Row]) -> str:
    """The rows under a heading, columns aligned."""
    baseline = rows[0].baseline
    names = list(dict.fromkeys(name for row in rows for name in row.contenders))
    others = [peer for peer in dict.fromkeys(p for row in rows for p in row.goals)
              if peer != baseline and peer in names and "windfall" in names]  # fmt: skip
    heading = [
        "case",
        *(_heading(name, rows[0]) for name in names),
        *(f"windfall / {peer}" for peer in others),
        "goal",
        "windfall did",
    ]
    lines = [heading]
    for row in rows:
        mine = row.contenders.get("windfall")
        cells = [_cell(row, name) for name in names]
        compared = [_ratio(row.ratio_to(peer)) for peer in others]
        lines.append([row.case, *cells, *compared, _goal(row), mine.note if mine else ""])
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def write(path: Path, suite: str, rows: Sequence[Row], settings: dict[str, Any]) -> None:
    """Everything, samples too, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "suite": suite,
        "settings": settings,
        "machine": machine(),
        "rows": [{**asdict(row), "goals": dict(row.goals), "met": row.met} for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What a reader must know to judge the numbers."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _heading(name: str, row: Row) -> str:
    if name == row.baseline:
        return f"{name} ({'time' if row.unit == 'seconds' else 'memory'})"
    return f"{name} / {row.baseline}"


def _cell(row: Row, name: str) -> str:
    measured = row.contenders.get(name)
    if measured is None:
        return ""
    if measured.summary is None:
        return measured.problem
    if name == row.baseline:
        return UNITS[row.unit](measured.summary.minimum)
    return _ratio(measured.summary.ratio)


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"


def _goal(row: Row) -> str:
    words = {True: "met", False: "missed", None: "not run"}
    told = [(peer, f"{goal:.3g} {words[row.verdict(peer)]}") for peer, goal in row.goals.items()]
    if len(told) == 1:
        return told[0][1]
    return ", ".join(f"{peer} {text}" for peer, text in told)


def seconds(value: float) -> str:
    """A time with three figures and a fitting unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def size(value: float) -> str:
    """Bytes with three figures and a fitting unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e3:.3g} kB"


UNITS = {"seconds": seconds, "bytes": size}
