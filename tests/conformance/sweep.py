"""Sweeps over many programs that others wrote: one JSON line for each, a table at the end.

    python -m tests.conformance.sweep op_db                      everything, resuming what is there
    python -m tests.conformance.sweep op_db --backend windfall   native code, and gradients
    python -m tests.conformance.sweep op_db --chunk 1/4          every fourth, for parallel runs
    python -m tests.conformance.sweep op_db --only nn.functional.relu,add
    python -m tests.conformance.sweep op_db --summary            the table of what is there

Enters: a sweep (`op_db`, `module_db`, `transformers`): names, and a function that checks one name.
Leaves: `build/conformance/<sweep>-<backend>.jsonl`. A worker process does the work; when it dies or
hangs, the name it was at is noted as such and another worker goes on behind it.

Invariant: a line says `equal` only when the compiled program agreed with the uncompiled one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "conformance"
SECONDS = 60  # of processor time, for one name

_VARYING = re.compile(r"L\['\w+'\]|(?<=\[)'?\d+'?(?=\])|\w*Config|\w+(?=\.__dict__)")

# What a line may say. `refused`: the uncompiled program itself raises, so there is nothing to ask.
EQUAL, DIFFERENT, RAISED, CRASHED, LATE, REFUSED = (
    "equal", "different", "raised", "crashed", "late", "refused",
)  # fmt: skip


@dataclass
class Line:
    """What became of one name."""

    name: str
    status: str = EQUAL
    captured: bool = True  # no break, no fall-back, and a graph with operations
    named: bool = True  # the graph names the op itself
    data_dependent: bool = False  # by torch's own tags of the ATen ops that ran
    tensors: bool = False  # tensors go in or come out
    executed: list[str] = field(default_factory=list)  # ops that ran on data while tracing
    samples: int = 0
    graphs: int = 0
    breaks: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    detail: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Nothing to complain of."""
        return self.status in (EQUAL, REFUSED)


class Sweep(Protocol):
    """A module of this folder, `sweep_<name>.py`."""

    def names(self) -> list[str]: ...
    def check(self, name: str, backend: str, line: Line) -> None: ...


def load(sweep: str) -> Sweep:
    """The module of a sweep."""
    return importlib.import_module(f"tests.conformance.sweep_{sweep}")  # type: ignore[return-value]


def path_of(sweep: str, backend: str) -> Path:
    """Where the lines of a sweep stand."""
    return RESULTS / f"{sweep}-{backend}.jsonl"


def lines(path: Path) -> dict[str, Line]:
    """What is known so far; a name that was begun and not ended killed its worker."""
    found: dict[str, Line] = {}
    if not path.exists():
        return found
    for text in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(text)
        begun = record.pop("begun", None)
        if begun is None:
            found[record["name"]] = Line(**record)
        else:
            found[begun] = Line(begun, CRASHED, captured=False, detail="the process ended here")
    return found


# ------------------------------------------------------------------------------------- one worker


def one(sweep: Sweep, name: str, backend: str) -> Line:
    """Check one name, in time."""
    line = Line(name)
    start = time.perf_counter()

    def late(*_: Any) -> None:
        raise TimeoutError(name)

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        sweep.check(name, backend, line)
    except TimeoutError:
        line.status, line.detail = LATE, f"not done after {SECONDS} s"
    except Exception as error:
        line.status = RAISED
        line.detail = f"{type(error).__name__}: {error}\n{_frames(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    line.captured = line.captured and line.status == EQUAL
    line.detail = line.detail[:3000]
    line.seconds = round(time.perf_counter() - start, 3)
    return line


def _frames(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__)[-4:])


def work(sweep: str, backend: str, names: list[str]) -> None:
    """Check these names, writing each result at once."""
    warnings.simplefilter("ignore")
    module = load(sweep)
    with path_of(sweep, backend).open("a", encoding="utf-8") as file:
        for name in names:
            print(json.dumps({"begun": name}), file=file, flush=True)
            print(json.dumps(asdict(one(module, name, backend))), file=file, flush=True)


# ------------------------------------------------------------------------------------- the parent


def run(sweep: str, backend: str, names: list[str], say: Callable[[str], None]) -> None:
    """Check what has no line yet; workers that die or hang are replaced."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = path_of(sweep, backend)
    while left := [name for name in names if name not in lines(path)]:
        say(f"{sweep} with backend {backend}: {len(left)} of {len(names)} left")
        command = [sys.executable, "-m", "tests.conformance.sweep", sweep, "--backend", backend]
        command += ["--work", ",".join(left)]
        worker = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        _watch(worker, path)


def _watch(worker: subprocess.Popen[bytes], path: Path) -> None:
    size, since = -1, time.monotonic()
    while worker.poll() is None:
        time.sleep(0.2)
        now = path.stat().st_size if path.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > 10 * SECONDS:  # it waits for something, or is deaf
            worker.kill()
            worker.wait()


def summary(sweep: str, backend: str, names: list[str]) -> str:
    """The table, and every name that needs a look."""
    known = lines(path_of(sweep, backend))
    found = [known[name] for name in names if name in known]
    asked = [line for line in found if line.status != REFUSED]
    counts = Counter(line.status for line in found)
    whole = [line for line in asked if not line.data_dependent]
    rows = [
        ("names", f"{len(found)} of {len(names)}"),
        *((status, str(count)) for status, count in counts.items()),
        ("captured", _share([line.captured for line in asked])),
        ("captured, data-dependent ones aside", _share([one.captured for one in whole])),
        ("captured and named in the graph", _share([one.captured and one.named for one in asked])),
        ("ran an op on data while tracing", str(sum(bool(one.executed) for one in asked))),
    ]
    text = [f"## {sweep}, backend {backend}", "", "| | |", "|---|---|"]
    text += [f"| {name} | {value} |" for name, value in rows]
    dependent = sorted(line.name for line in asked if line.data_dependent)
    text += ["", f"data-dependent ({len(dependent)}): {', '.join(dependent)}", ""]
    text += list(_complaints(found))
    return "\n".join(text)


def _share(flags: list[bool]) -> str:
    return f"{sum(flags)} of {len(flags)} ({100 * sum(flags) / max(len(flags), 1):.1f} %)"


def _complaints(found: list[Line]) -> Iterator[str]:
    for line in found:
        if not line.right:
            yield f"{line.status}: {line.name}: {(line.detail or '-').splitlines()[0]}"
    reasons: dict[str, list[str]] = {}
    for line in found:
        if line.status == EQUAL and not line.captured:
            reason = (line.breaks or line.fallbacks or ["no graph"])[0]
            reasons.setdefault(reason.partition(" at ")[0], []).append(line.name)
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        yield f"not captured ({len(names)}): {reason[:200]}: {', '.join(names)}"
    causes = Counter(_cause(one) for line in found for one in line.breaks)
    yield "\nbreaks by cause:"
    yield from (f"{count:6} {cause}" for cause, count in causes.most_common(25))


def _cause(told: str) -> str:
    """A break without the names that differ from program to program, and one place of it."""
    detail, _, place = told.rpartition(" at ")
    return f"{_VARYING.sub('#', detail)[:100]} in {place.rpartition(' in ')[2]}"


def chosen_names(everything: list[str], chunk: str, only: str) -> list[str]:
    """Those of a chunk `k/n`, or those that are named."""
    if only:
        return [name for name in everything if name in only.split(",")]
    number, of = (int(part) for part in chunk.split("/"))
    return everything[number::of]


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("sweep")
    options.add_argument("--backend", default="eager")
    options.add_argument("--chunk", default="0/1")
    options.add_argument("--only", default="")
    options.add_argument("--work", help="check these names in this process (for the parent)")
    options.add_argument("--fresh", action="store_true", help="forget what is there")
    options.add_argument("--summary", action="store_true")
    chosen = options.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if chosen.work:
        work(chosen.sweep, chosen.backend, chosen.work.split(","))
        return
    names = chosen_names(load(chosen.sweep).names(), chosen.chunk, chosen.only)
    if chosen.fresh:
        path_of(chosen.sweep, chosen.backend).unlink(missing_ok=True)
    if not chosen.summary:
        run(chosen.sweep, chosen.backend, names, lambda text: print(text, file=sys.stderr))
    print(summary(chosen.sweep, chosen.backend, names))


if __name__ == "__main__":
    main()
