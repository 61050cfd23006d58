"""`windfall.report("out.html")`: histories as one HTML file that needs nothing else.

Enters: a `History` for each compiled object, and what the process is. Leaves: the page. Invariant:
it tells what records say, in the order of the program; each part has one id, each link its target
in the same file; nothing is fetched; all text is escaped (`markup.py`).

A new part of the page is a row of `OBJECT_PARTS` (of each compiled object) or of
`COMPILATION_PARTS` (of each segment): a function from the record to markup, nothing where there is
nothing to tell.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.events import Event, EventKind
from windfall.frontend.breaks import REASONS
from windfall.ir.graph_text import print_graph
from windfall.ir.node import info
from windfall.ir.stages import Break, KernelNote
from windfall.ir.text import schedule_text
from windfall.reporting.compilations import Built, Compilation, History
from windfall.reporting.markup import Markup, counted, prose, tag
from windfall.reporting.plan_picture import plan_picture
from windfall.reporting.sources import Sources
from windfall.reporting.style import POLICY, SCRIPT, STYLE
from windfall.reporting.trees import tree_picture

_KEEP = "Not kept: set WINDFALL_REPORT, or options={'records': True}, before the first call."


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a part stands: ids of parts begin with `id`; `sources` is the page's."""

    id: str
    sources: Sources

    def at(self, *names: object) -> str:
        """The id of something in here."""
        return "-".join([self.id, *map(str, names)])


@dataclass(slots=True)
class Page:
    """A page that is being written."""

    histories: Sequence[History]
    version: str
    words: Sequence[str] = field(default_factory=lambda: tuple(sys.argv))
    sources: Sources = field(default_factory=Sources)

    def text(self) -> str:
        """The whole file."""
        objects = [
            _object(history, PartPlace(f"object-{number}", self.sources))
            for number, history in enumerate(self.histories)
        ]
        lines = list(self.sources.section())  # last, when all have been mentioned
        body = tag(
            "body",
            tag("h1", "windfall: what was compiled"),
            self._versions(),
            self._navigation(bool(lines)),
            tag("main", self._overview(), objects, _trees(), _files(lines)),
            tag("script", Markup(SCRIPT)),
        )
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("title", "windfall report"),
            tag("style", Markup(STYLE)),
        )
        return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"

    def _versions(self) -> Markup:
        system = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads"
        parts = [
            f"windfall {self.version}",
            f"torch {torch.__version__}",
            f"Python {platform.python_version()}",
            system,
        ]
        return tag(
            "p", ", ".join(parts), tag("br"), tag("code", " ".join(self.words)), class_="dim"
        )

    def _navigation(self, lines: bool) -> Markup:
        links = [("overview", "Overview")]
        links += [(f"object-{at}", one.title) for at, one in enumerate(self.histories)]
        links += [("trees", "Graph trees")] + ([("files", "Your lines")] if lines else [])
        field = tag(
            "input",
            id="search",
            type="search",
            placeholder="Search",
            aria_label="Search the report",
        )
        items = [tag("li", tag("a", text, href=f"#{target}")) for target, text in links]
        return tag("nav", tag("header", field), tag("small", id="found"), tag("ul", items))

    def _overview(self) -> Markup:
        """What one looks for first, over all objects."""
        told = [one.told for one in self.histories]
        counts = {
            "compiled objects": len(told),
            "graphs": sum(len(one.graphs) for one in told),
            "kernels": sum(len(one.kernels()) for one in told),
            "breaks": sum(len(_breaks(one)) for one in self.histories),
            "ran eagerly": sum(sum(_eager_only(one.eager).values()) for one in told),
            "compiled again": sum(len(one.recompiles) for one in told),
        }
        bad = ("breaks", "ran eagerly")
        cards = [
            tag("li", tag("b", count), what, class_="bad" if count and what in bad else None)
            for what, count in counts.items()
        ]
        seconds = sum(one.seconds for one in self.histories)
        cards.append(tag("li", tag("b", _time(seconds)), "compiling"))
        empty = None if told else tag("p", "Nothing has been compiled in this process.")
        return tag(
            "section", tag("h2", "Overview"), tag("ul", cards, class_="cards"), empty, id="overview"
        )


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _eager_only(eager: dict[str, int]) -> dict[str, int]:
    return {what: times for what, times in eager.items() if "break" not in what}


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    first = tag("tr", [tag("th", one) for one in head])
    others = [tag("tr", [tag("td", cell, data_part=None) for cell in row]) for row in rows]
    return tag("div", tag("table", first, others), class_="scroll")


def _folded(title: Any, *inside: Any, id: str, note: str = "", open: bool = False) -> Markup:
    """A part that can be opened."""
    small = tag("small", f" {note}") if note else None
    return tag("details", tag("summary", title, small), *inside, id=id, open=open, data_part=True)


def _code(text: str) -> Markup:
    return tag("pre", text)


# ---------------------------------------------------------------------------------- each object


def _object(history: History, place: PartPlace) -> Markup:
    parts = [part(history, place) for part in OBJECT_PARTS]
    segments = [
        _compilation(one, PartPlace(place.at("segment", one.number), place.sources))
        for one in history.compilations
    ]
    head = tag("h2", history.title, tag("small", f" compiled in {_time(history.seconds)}"))
    return tag("section", head, parts, tag("h3", "Segments"), segments, id=place.id)


def _breaks_part(history: History, place: PartPlace) -> Markup | None:
    """Each break, with the user's line and what to do."""
    boxes = _breaks(history)
    if not boxes:
        return tag("p", "No break: each call is one graph.", class_="good", data_part=True)
    shown = [_break(stopped, place, numbers) for stopped, numbers in boxes]
    return tag("div", tag("h3", f"Breaks ({len(boxes)})"), shown)


def _breaks(history: History) -> list[tuple[Break, list[int]]]:
    """One break at one place is told once, with all segments that end there."""
    boxes: dict[tuple[object, ...], tuple[Break, list[int]]] = {}
    for one in history.compilations:
        stopped = one.capture.stopped if one.capture is not None else None
        if stopped is not None:
            key = (stopped.number, stopped.detail, stopped.where)
            boxes.setdefault(key, (stopped, []))[1].append(one.number)
    return list(boxes.values())


def _break(one: Break, place: PartPlace, segments: Sequence[int]) -> Markup:
    row = REASONS.get(one.number)
    code = f"W{one.number:04d}"
    sources = place.sources
    ids = [place.at("segment", number) for number in segments]
    links = [
        part
        for id, number in zip(ids, segments, strict=True)
        for part in (" ", tag("a", f"segment {number}", href=f"#{id}"))
    ]
    stack = [sources.link(line) for line in one.stack[:-1]]
    way = [part for link in stack for part in (link, " > ")]
    return tag(
        "div",
        tag("p", tag("b", code), f" {one.reason}: ", tag("code", one.detail)),
        tag("p", "at ", way, sources.link(one.where, ids[0], code), ", behind", links),
        tag("p", prose(row.explanation), class_="dim") if row is not None else None,
        tag("p", tag("b", "What to do: "), prose(one.hint)) if one.hint else None,
        class_="break",
        data_part=True,
    )


def _eager_part(history: History, place: PartPlace) -> Markup | None:
    """What ran eagerly, how often and why."""
    rows = [
        [
            event.subject,
            str(event.facts.get("what", "")),
            event.facts.get("reason", ""),
            event.facts.get("times", 1),
        ]
        for event in history.told.events
        if event.kind is EventKind.FALLBACK
    ]
    if not rows:
        return tag("p", "Nothing ran eagerly but steps at breaks.", class_="good", data_part=True)
    table = _table(("where", "what", "why", "times"), rows)
    return _folded(
        "Ran eagerly",
        table,
        id=place.at("eager"),
        note=counted(len(rows), "reason", "reasons"),
        open=True,
    )


def _recompiles_part(history: History, place: PartPlace) -> Markup | None:
    """Why calls that fitted no entry were compiled."""
    told = [one for one in history.told.events if one.kind is EventKind.RECOMPILE]
    fixed = [one for one in history.told.events if one.kind is EventKind.SPECIALISE]
    if not told and not fixed:
        return None
    rows = [[one.subject, one.facts.get("reason", "")] for one in told]
    rows += [[one.subject, f"a size was fixed: {one.facts.get('reason', '')}"] for one in fixed]
    gone = history.told.evictions
    more = tag("p", f"{gone} entries went: recompile_limit is reached.") if gone else None
    table = _table(("where", "why"), rows)
    note = counted(len(told), "time", "times")
    if fixed:
        note += f", and {counted(len(fixed), 'size was', 'sizes were')} fixed"
    return _folded("Compiled again", table, more, id=place.at("again"), note=note, open=True)


def _tree_part(history: History, place: PartPlace) -> Markup | None:
    """What was compiled, as a tree: points of the program, entries, programs, kernels."""
    points: dict[str, list[Compilation]] = {}
    for one in history.compilations:
        points.setdefault(one.point, []).append(one)
    if not points:
        return None
    items = [
        tag("li", point, tag("ul", [_leaf(one, place) for one in several]))
        for point, several in points.items()
    ]
    tree = tag("ul", items, class_="compiled")
    return _folded(
        "Compile tree", tree, id=place.at("tree"), note="points and their entries", open=True
    )


def _leaf(one: Compilation, place: PartPlace) -> Markup:
    segment = place.at("segment", one.number)
    programs = [
        tag("li", f"{built.name}: ", tag("a", _kernel_count(built), href=f"#{segment}-{at}"))
        for at, built in enumerate(one.programs)
    ]
    link = tag("a", f"segment {one.number}: {one.name}", href=f"#{segment}")
    return tag(
        "li", link, f" {_how(one)}, {_time(one.seconds)}", tag("ul", programs) if programs else None
    )


def _kernel_count(built: Built) -> str:
    count = len(built.kernels)
    return f"{count} kernel{'' if count == 1 else 's'}" + (
        " (from the cache)" if built.found else ""
    )


def _how(one: Compilation) -> str:
    if one.capture is None:
        return "given up"
    if one.reused:
        return "an equal graph was compiled before"
    if not one.programs and one.native_calls is None:
        return "no graph, or op by op"
    return "guards and kernels are one native call" if one.native else "kernels behind Python"


def _timings_part(history: History, place: PartPlace) -> Markup | None:
    spent = history.told.seconds()
    most = max(spent.values(), default=0.0)
    if not most:
        return None
    counts: dict[str, int] = {}
    for event in history.told.events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
    rows = [
        [
            stage,
            tag("span", class_="bar", style=f"width:{100 * seconds / most:.1f}%"),
            _time(seconds),
            counts[stage],
        ]
        for stage, seconds in spent.items()
    ]
    table = _table(("stage", "", "time", "runs"), rows)
    return _folded("Time by stage", table, id=place.at("timings"), note=_time(history.seconds))


def _cache_part(history: History, place: PartPlace) -> Markup | None:
    rows = [
        [event.facts["how"], event.subject, event.facts.get("reason", event.facts.get("bytes", ""))]
        for event in history.told.events
        if event.kind is EventKind.CACHE
    ]
    if not rows:
        return None
    counted = ", ".join(f"{how} {times}" for how, times in history.told.cached.items())
    return _folded(
        "Cache on disk",
        _table(("", "of", "bytes, or why"), rows),
        id=place.at("cache"),
        note=counted,
    )


def _passes_part(history: History, place: PartPlace) -> Markup | None:
    told = history.told
    if not told.passes:
        return None
    counted = ", ".join(f"{how} {times}" for how, times in told.passes.items())
    reasons = tag("ul", [tag("li", one) for one in told.pass_reasons])
    programs = [_code(str(one)) for one in told.pass_programs]
    return _folded("Backward passes", reasons, programs, id=place.at("passes"), note=counted)


def _tree_lines_part(history: History, place: PartPlace) -> Markup | None:
    lines = history.told.trees
    if not lines:
        return None
    items = tag("ul", [tag("li", one) for one in lines])
    return _folded(
        "Graph trees", items, id=place.at("trees"), note=counted(len(lines), "line", "lines")
    )


OBJECT_PARTS: list[Callable[[History, PartPlace], Markup | None]] = [
    _breaks_part,
    _eager_part,
    _recompiles_part,
    _tree_part,
    _timings_part,
    _cache_part,
    _passes_part,
    _tree_lines_part,
]


# --------------------------------------------------------------------------------- each segment


def _compilation(one: Compilation, place: PartPlace) -> Markup:
    parts = [part(one, place) for part in COMPILATION_PARTS]
    programs = [
        _program(built, PartPlace(place.at(at), place.sources))
        for at, built in enumerate(one.programs)
    ]
    title = f"Segment {one.number}: {one.name}"
    return _folded(title, parts, programs, id=place.id, note=f"{_how(one)}, {_time(one.seconds)}")


def _origin_part(one: Compilation, place: PartPlace) -> Markup | None:
    if one.capture is None:
        return tag("p", f"Capturing was given up: {one.raised}", class_="bad")
    origin = one.capture.origin
    link = place.sources.link(origin, place.id, f"segment {one.number}") if origin else one.point
    reason = tag("p", f"Compiled because: {one.reason}") if one.reason else None
    read = f" {one.capture.operations} bytecodes were read." if one.capture.operations else ""
    return tag("div", tag("p", "Begins at ", link, ".", read), reason)


def _graph_part(one: Compilation, place: PartPlace) -> Markup | None:
    """The graph, each line linked to the user's."""
    if one.capture is None or not any(n.op.startswith("call") for n in one.capture.graph.nodes):
        return None
    origins = {
        node.name: origin for node in one.capture.graph.nodes if (origin := info(node).origin)
    }
    lines = [
        _graph_line(line, origins, place) for line in print_graph(one.capture.graph).splitlines()
    ]
    return _folded(
        "Graph",
        tag("pre", lines),
        id=place.at("graph"),
        note=counted(len(origins), "operation", "operations"),
        open=True,
    )


def _graph_line(line: str, origins: dict[str, Any], place: PartPlace) -> Markup:
    name = line.strip().partition(":")[0]
    if name not in origins or " # " not in line:
        return tag("span", f"{line}\n")
    text = line.rpartition(" # ")[0].rstrip()
    return tag("span", f"{text}  # ", place.sources.link(origins[name]), "\n")


def _guards_part(one: Compilation, place: PartPlace) -> Markup | None:
    if one.capture is None or not one.capture.guards:
        return None
    guards = one.capture.guards
    rows = [
        [tag("code", guard), guard.reason, place.sources.link(guard.where) if guard.where else ""]
        for guard in guards
    ]
    table = _table(("must hold", "because", "line"), rows)
    return _folded("Guards", table, id=place.at("guards"), note=str(len(guards)))


def _effects_part(one: Compilation, place: PartPlace) -> Markup | None:
    if one.capture is None or not one.capture.effects:
        return None
    text = "\n".join(map(str, one.capture.effects))
    return _folded("Effects", _code(text), id=place.at("effects"), note="replayed after the graph")


def _source_part(one: Compilation, place: PartPlace) -> Markup | None:
    if one.segment is None:
        return None
    return _folded("Generated Python", _code(one.segment.source), id=place.at("python"))


def _stages_part(one: Compilation, place: PartPlace) -> Markup | None:
    rows = [
        [event.kind, event.subject, _time(event.seconds), _raised(event)] for event in one.stages
    ]
    return _folded("Stages", _table(("stage", "of", "time", ""), rows), id=place.at("stages"))


def _raised(event: Event) -> str:
    return str(event.facts.get("raised", ""))


COMPILATION_PARTS: list[Callable[[Compilation, PartPlace], Markup | None]] = [
    _origin_part,
    _graph_part,
    _guards_part,
    _effects_part,
    _source_part,
    _stages_part,
]


# --------------------------------------------------------------------------------- each program


def _program(built: Built, place: PartPlace) -> Markup:
    kernels = [
        _kernel(note, place.at("kernel", at), place.sources)
        for at, note in enumerate(built.kernels)
    ]
    more = [*_memory(built, place), *_texts(built, place)]
    missing = None if more or built.found else tag("p", _KEEP, class_="dim")
    arena = "" if built.arena_bytes is None else f", arena of {built.arena_bytes} bytes"
    note = f"{_kernel_count(built)}{arena}"
    return _folded(f"Program {built.name}", kernels, more, missing, id=place.id, note=note)


def _kernel(note: KernelNote, id: str, sources: Sources) -> Markup:
    links = [
        part
        for line in dict.fromkeys(note.origins)
        for part in (sources.link(line, id, note.name), " ")
    ]
    head = tag("p", "of ", links) if links else None
    return _folded(tag("code", note.name), head, _code(note.text), id=id, note=note.kind)


def _memory(built: Built, place: PartPlace) -> Iterator[Markup]:
    """The memory plan, where it was kept."""
    if built.plan is None or built.module is None:
        return
    rows = [
        [
            tag("code", one.name),
            one.type,
            one.offset,
            " to ".join(map(str, built.plan.lives[one.name])),
        ]
        for one in built.module.buffers
        if one.place == "arena" and one.name in built.plan.lives
    ]
    picture = plan_picture(built.plan, built.module.buffers)
    told = "time goes to the right, bytes of the arena go down" if picture else "no temporaries"
    table = _table(("temporary", "type", "at byte", "steps"), rows) if rows else None
    yield _folded("Memory plan", picture, table, id=place.at("memory"), note=told)


def _texts(built: Built, place: PartPlace) -> Iterator[Markup]:
    """Loops and LLVM, where they were kept."""
    if built.schedules:
        text = "\n".join(map(schedule_text, built.schedules))
        yield _folded("Loops", _code(text), id=place.at("loops"))
    if built.module is not None:
        yield _folded("LLVM", _code(built.module.text), id=place.at("llvm"))


# ------------------------------------------------------------------------------------ the process


def _trees() -> Markup:
    picture = tag("div", Markup(tree_picture()), class_="scroll picture")
    return tag("section", tag("h2", "Graph trees"), picture, id="trees", data_part=True)


def _files(lines: Sequence[Markup]) -> Markup | None:
    if not lines:
        return None
    return tag("section", tag("h2", "Your lines"), lines, id="files")
