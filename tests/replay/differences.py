"""Two recordings of the corpus, and what differs.

Enters: two files of `record.py`, and renamings (regular expression → text) that are agreed upon.
Leaves: `Difference`s, and a `summary` for people in which equal differences stand once. Invariant:
an item that only one file has is a difference.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CONTEXT = 2
LONGEST, WIDEST = 40, 200  # lines of one difference that are shown, and how much of one


@dataclass(frozen=True, slots=True)
class Difference:
    """One section that is not the same; `lines` is a unified diff, without its head."""

    item: str
    log: str
    lines: tuple[str, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """What makes two differences the same: the lines that went and came."""
        return tuple(line for line in self.lines if line[:1] in "+-")


Recording = Mapping[str, Sequence[tuple[str, str, str]]]
Renames = Sequence[tuple[str, str]]


def read(file: Path) -> dict[str, list[tuple[str, str, str]]]:
    """A recording by the names of its items."""
    with file.open(encoding="utf-8") as lines:
        parsed = map(json.loads, lines)
        return {one["item"]: [tuple(part) for part in one["sections"]] for one in parsed}


def differences(before: Recording, after: Recording, renames: Renames = ()) -> list[Difference]:
    """Every section that differs, in the order of the corpus."""
    return [
        found
        for item in dict.fromkeys([*before, *after])
        for found in _of_item(item, before.get(item), after.get(item), renames)
    ]


def _of_item(
    item: str,
    before: Sequence[tuple[str, str, str]] | None,
    after: Sequence[tuple[str, str, str]] | None,
    renames: Renames,
) -> Iterator[Difference]:
    if before is None or after is None:
        yield Difference(item, "item", ("-only before" if after is None else "+only after",))
        return
    old, new = _by_log(before, renames), _by_log(after, renames)
    for log in dict.fromkeys([*old, *new]):
        one, other = old.get(log, []), new.get(log, [])
        if one != other:
            lines = [*difflib.unified_diff(one, other, lineterm="", n=CONTEXT)]
            yield Difference(item, log, tuple(lines[2:]))


def _by_log(sections: Iterable[tuple[str, str, str]], renames: Renames) -> dict[str, list[str]]:
    """The lines of each log; what it is the log of is a line too."""
    found: dict[str, list[str]] = {}
    for log, subject, text in sections:
        found.setdefault(log, []).extend([f"of {subject}", *text.splitlines()])
    for pattern, name in renames:
        compiled = re.compile(pattern)
        found = {log: [compiled.sub(name, line) for line in part] for log, part in found.items()}
    return found


def summary(found: Sequence[Difference], items: int, shown: int) -> str:
    """Counts by log, then each distinct change with the items that have it, the commonest first."""
    if not found:
        return f"{items} items, no difference"
    counted = Counter(one.log for one in found)
    changed = len({one.item for one in found})
    parts = [
        f"{items} items, {changed} differ: {', '.join(f'{k} {n}' for k, n in counted.items())}"
    ]
    alike: dict[tuple[str, tuple[str, ...]], list[Difference]] = {}
    for one in found:
        alike.setdefault((one.log, one.changes), []).append(one)
    ordered = sorted(alike.values(), key=len, reverse=True)
    for several in ordered[:shown]:
        first = several[0]
        others = f" and {len(several) - 1} more" if len(several) > 1 else ""
        parts += ["", f"== {first.log} of {first.item}{others}"]
        parts += [line[:WIDEST] for line in first.lines[:LONGEST]]
        if len(first.lines) > LONGEST:
            parts.append(f"… {len(first.lines) - LONGEST} more lines")
    if len(ordered) > shown:
        parts += ["", f"… {len(ordered) - shown} more kinds of change (--show)"]
    return "\n".join(parts)
