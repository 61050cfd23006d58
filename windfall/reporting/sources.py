"""The user's lines that a report speaks of: each is shown once, and everything links there.

Enters: `SourceLine`s, as sections of a report mention them, and what mentions them. Leaves: links
to the lines; at the end, the files with these lines and some around them. Invariant: a link that
was given has its target; a file that cannot be read any more shows the numbers of its lines.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator

from windfall.errors import SourceLine
from windfall.reporting.markup import Markup, escaped, tag

_AROUND = 2


class Sources:
    """The lines that were mentioned so far."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._lines: dict[str, dict[int, dict[str, str]]] = {}  # id of who mentions it → its text

    def link(self, line: SourceLine | None, by: str = "", text: str = "") -> Markup:
        """A link to a line. `by`: the id of the part of the report that mentions it, as `text`."""
        if line is None:
            return escaped("an unknown line")
        number = self._files.setdefault(line.file, len(self._files))
        mentions = self._lines.setdefault(line.file, {}).setdefault(line.line, {})
        if by:
            mentions[by] = text
        shown = f"{os.path.basename(line.file)}:{line.line}"
        return tag("a", shown, href=f"#line-{number}-{line.line}", title=str(line))

    def section(self) -> Iterator[Markup]:
        """Every file, with the lines that were mentioned."""
        for file, number in self._files.items():
            rows = [self._row(file, number, line) for line in _with_gaps(self._lines[file])]
            name = tag("summary", file, tag("small", f" {len(self._lines[file])} lines"))
            yield tag("details", name, tag("pre", rows, class_="source"), open=True, data_part=True)

    def _row(self, file: str, number: int, line: int | None) -> Markup:
        if line is None:
            return tag("span", "      ⋮\n", class_="dim")
        text = f"{line:5}  {linecache.getline(file, line).rstrip()}"
        mentions = self._lines[file].get(line)
        if mentions is None:
            return tag("span", f"{text}\n", class_="dim")
        backwards = [
            tag("a", shown, href=f"#{by}", class_="note") for by, shown in mentions.items()
        ]
        return tag("span", text, " ", backwards, "\n", id=f"line-{number}-{line}", class_="hit")


def _with_gaps(lines: dict[int, dict[str, str]]) -> Iterator[int | None]:
    """The lines to show, in order; None where some are left out."""
    near = range(-_AROUND, _AROUND + 1)
    shown = sorted({one + by for one in lines for by in near if one + by > 0})
    last = 0
    for line in shown:
        if line > last + 1:
            yield None
        yield line
        last = line
