"""`windfall.explain(f)(*args)`: what happened to a function, told from its events.

Enters: the event log of one compiled object. Leaves: an `Explanation`: text for people, a dict of
plain values for tools. Invariant: it tells only what events say; it compiles nothing itself.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from windfall import engine
from windfall.dataclass import dataclass
from windfall.events import LOGS, Eager, Event, EventKind, EventLog, EventType
from windfall.ir.graph_text import print_graph, short_line
from windfall.ir.loop import Schedule
from windfall.ir.node import info
from windfall.ir.stages import (
    Break,
    Capture,
    Entry,
    Executable,
    Joint,
    KernelNote,
    LlvmModule,
    Program,
    Segment,
    Split,
)
from windfall.ir.text import schedule_text

# The step at which a capture stopped runs natively, and all that it calls.
BEHIND_BREAKS = "a step at a break"


@dataclass(frozen=True)
class Explanation:
    """What compiling and running a function did. `result` is what the function returned."""

    events: tuple[Event, ...]
    result: Any = None

    def _records(self, kind: EventType) -> list[tuple[str, Any]]:
        return [(event.subject, event.record) for event in self.events if event.kind == kind]

    @property
    def captures(self) -> list[Capture]:
        """Every captured segment, in order."""
        found = self._records(EventKind.CAPTURE)
        return [record for _, record in found if isinstance(record, Capture)]

    @property
    def graphs(self) -> list[Capture]:
        """The captures that hold at least one operation on tensors."""
        return [one for one in self.captures if _operations(one)]

    @property
    def breaks(self) -> list[Break]:
        """Why captures ended before the function did."""
        return [one.stopped for one in self.captures if one.stopped is not None]

    @property
    def reads(self) -> list[str]:
        """What graphs read from data on their way, in order: the operation and its line."""
        return [one for capture in self.captures for one in _reads(capture)]

    @property
    def fallbacks(self) -> list[str]:
        """What ran eagerly because it could not be compiled."""
        found = (event for event in self.events if event.kind is EventKind.FALLBACK)
        return [str(event.facts.get("reason", event.subject)) for event in found]

    @property
    def eager(self) -> dict[str, int]:
        """How often what ran eagerly: calls, loops, graphs and backwards op by op, by the kinds
        of `Eager`; and at how many breaks a step runs natively."""
        counted = Counter[str]()
        for event in self.events:
            if event.kind is EventKind.FALLBACK:
                counted[event.facts.get("what", Eager.CALL)] += event.facts.get("times", 1)
        counted[BEHIND_BREAKS] = len(self.breaks)
        return {str(what): times for what, times in counted.items() if times}

    @property
    def recompiles(self) -> list[str]:
        """Why calls that fitted no entry were compiled: source, expected, actual, line."""
        return [_recompiled(event) for event in self.events if event.kind is EventKind.RECOMPILE]

    @property
    def evictions(self) -> int:
        """How many entries went because `recompile_limit` was reached."""
        gone = (event for event in self.events if event.kind is EventKind.EVICT)
        return sum(event.facts.get("times", 1) for event in gone)

    @property
    def cached(self) -> dict[str, int]:
        """What the cache on disk did, and how often: found, stored, not stored, unreadable."""
        return dict(
            Counter(event.facts["how"] for event in self.events if event.kind is EventKind.CACHE)
        )

    @property
    def passes(self) -> dict[str, int]:
        """How often backward passes ran how, under compiled autograd."""
        counted = Counter[str]()
        for event in self.events:
            if event.kind is EventKind.PASS:
                counted[event.facts["how"]] += event.facts.get("times", 1)
        return dict(counted)

    @property
    def pass_reasons(self) -> list[str]:
        """Why passes were recorded anew, left their recording, or went to torch's engine."""
        told = (event.facts for event in self.events if event.kind is EventKind.PASS)
        return [f"{one['how']}: {one['reason']}" for one in told if "reason" in one]

    @property
    def pass_programs(self) -> list[engine.PassProgram]:
        """What was recorded of backward passes; each prints."""
        found = self._records(EventKind.PASS)
        return [record for _, record in found if isinstance(record, engine.PassProgram)]

    @property
    def trees(self) -> list[str]:
        """What graph trees did, region by region: how often each ran how, what ran unrecorded and
        why, what to do about it."""
        return [_tree_line(event) for event in self.events if event.kind is EventKind.TREES]

    def seconds(self) -> dict[str, float]:
        """Time spent in each stage that ran."""
        spent: dict[str, float] = {}
        for event in self.events:
            if event.kind.is_stage:
                spent[event.kind] = spent.get(event.kind, 0.0) + event.seconds
        return spent

    def kernels(self) -> list[KernelNote]:
        """A note of each kernel of each program."""
        found = (record for _, record in self._records(EventKind.BUILD) if record is not None)
        return [
            note for one in found for note in (one.kernels if isinstance(one, Program) else one)
        ]

    def native_calls(self) -> list[tuple[str, int]]:
        """How many calls from Python one run of each graph's program is: of machine code, which
        runs any number of kernels at once, and of ops that have no other way."""
        made = self._records(EventKind.ASSEMBLE)
        found = [
            (name, one.native_calls if isinstance(one, Executable) else one) for name, one in made
        ]
        return [(name, count) for name, count in found if isinstance(count, int)]

    def sources(self) -> list[str]:
        """The Python source of each segment."""
        found = self._records(EventKind.REWRITE)
        return [one.source for _, one in found if isinstance(one, Segment)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "graph_count": len(self.graphs),
            "break_count": len(self.breaks),
            "graphs": [print_graph(one.graph) for one in self.graphs],
            "guards": [[str(guard) for guard in one.guards] for one in self.captures],
            "breaks": [_break_dict(one) for one in self.breaks],
            "reads": self.reads,
            "effects": [[str(effect) for effect in one.effects] for one in self.captures],
            "source": self.sources(),
            "kernels": [_kernel_dict(note) for note in self.kernels()],
            "native_calls": [list(one) for one in self.native_calls()],
            "entries": [
                {"segment": subject, "native": one.native if isinstance(one, Entry) else one}
                for subject, one in self._records(EventKind.ENTER)
                if one is not None
            ],
            "eager": self.eager,
            "fallbacks": self.fallbacks,
            "recompiles": self.recompiles,
            "evictions": self.evictions,
            "passes": self.passes,
            "trees": self.trees,
            "cached": self.cached,
            "pass_reasons": self.pass_reasons,
            "pass_programs": [str(one) for one in self.pass_programs],
            "seconds": self.seconds(),
        }

    def __str__(self) -> str:
        return "\n".join(_text(self))


def _tree_line(event: Event) -> str:
    facts = event.facts
    where = f" ({facts['where']})" if facts.get("where") else ""
    if "counters" in facts:
        return f"{event.subject}{where}: {facts['counters']}"
    text = f"{event.subject}{where}: {facts['what']}"
    times = facts.get("times", 1)
    text += f" ({times} times)" if times > 1 else ""
    for name in ("reason", "detail"):
        text += f"; {facts[name]}" if facts.get(name) else ""
    return text + (f"; what to do: {facts['remedy']}" if facts.get("remedy") else "")


def _operations(capture: Capture) -> int:
    return sum(node.op not in ("placeholder", "output") for node in capture.graph.nodes)


def _reads(capture: Capture) -> list[str]:
    """The nodes of a graph that only say when they run what (or how much) they answer."""
    found = [node for node in capture.graph.nodes if info(node).reads and node.target != "size"]
    return [
        f"{node.target if isinstance(node.target, str) else getattr(node.target, '__name__', node)}"
        f" at {short_line(origin) if (origin := info(node).origin) else 'an unknown line'}"
        for node in found
    ]


def _kernel_dict(note: KernelNote) -> dict[str, Any]:
    lines = [str(line) for line in note.origins]
    return {"name": note.name, "kind": note.kind, "text": note.text, "lines": lines}


def _break_dict(one: Break) -> dict[str, Any]:
    return {
        "number": one.number,
        "reason": one.reason,
        "detail": one.detail,
        "hint": one.hint,
        "where": str(one.where) if one.where else None,
        "stack": [str(line) for line in one.stack],
    }


def _head(explained: Explanation) -> Iterable[str]:
    """Counts, and what did not go as one would wish."""
    graphs, breaks, kernels = explained.graphs, explained.breaks, explained.kernels()
    counted = ((graphs, "graph"), (breaks, "break"), (kernels, "kernel"))
    fallbacks = _count(len(explained.fallbacks), "fall-back")
    yield ", ".join(_count(len(of), noun) for of, noun in counted) + f", {fallbacks} to eager"
    for reason in explained.fallbacks:
        yield f"  runs eagerly: {reason}"
    if explained.eager:
        eager = ", ".join(f"{what} ({times})" for what, times in explained.eager.items())
        yield f"  in eager so far: {eager}"
    for reason in explained.recompiles:
        yield f"  compiled again: {reason}"
    for reason in explained.pass_reasons:
        yield f"  a backward pass, {reason}"
    if explained.trees:
        yield "  graph trees:"
        yield from (f"    {line}" for line in explained.trees)
    if explained.evictions:
        gone = _count(explained.evictions, "entry", "entries")
        yield f"  {gone} went: recompile_limit is reached"


def _text(explained: Explanation) -> Iterable[str]:
    yield from _head(explained)
    kernels = explained.kernels()
    for number, capture in enumerate(explained.captures):
        yield ""
        yield f"segment {number}: {capture.name}" + (
            f" ({short_line(capture.origin)})" if capture.origin else ""
        )
        yield from _indented(print_graph(capture.graph) if _operations(capture) else "(no graph)")
        yield from (f"  reads data: {read}" for read in _reads(capture))
        yield "  guards:"
        yield from (f"    {guard}   # {guard.reason}" for guard in capture.guards)
        if capture.effects:
            yield "  effects:"
            yield from (f"    {effect}" for effect in capture.effects)
        if capture.stopped is not None:
            one = capture.stopped
            yield f"  break W{one.number:04d} at {one.where}: {one.reason}: {one.detail}"
            if len(one.stack) > 1:
                yield "    called from: " + " > ".join(map(str, one.stack[:-1]))
            yield f"    what to do: {one.hint}"
    for number, program in enumerate(explained.pass_programs):
        yield ""
        yield f"backward pass {number}:"
        yield from _indented(str(program))
    if kernels:
        yield ""
        yield "kernels:"
        for note in kernels:
            yield f"  {note.name} ({note.kind})"
            yield from _indented(note.text, "    ")
    yield ""
    if explained.native_calls():
        calls = (f"{name} {count}" for name, count in explained.native_calls())
        yield f"native calls in one run: {', '.join(calls)}"
    yield "time by stage: " + ", ".join(
        f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in explained.seconds().items()
    )


def _count(number: int, noun: str, several: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def _indented(text: str, by: str = "  ") -> Iterable[str]:
    return (by + line for line in text.splitlines())


def _captured(show: Callable[[Capture], str]) -> Callable[[Event], str]:
    return lambda event: show(event.record) if isinstance(event.record, Capture) else ""


def _break_text(capture: Capture) -> str:
    one = capture.stopped
    return f"W{one.number:04d} {one.where}: {one.reason}: {one.detail}" if one else ""


def _kernel_text(event: Event) -> str:
    program = event.record
    if not isinstance(program, Program):
        return ""
    return "\n".join(f"{note.name} ({note.kind})\n{note.text}" for note in program.kernels)


def _split_text(event: Event) -> str:
    halves = event.record
    if not isinstance(halves, Split):
        return ""
    backward = f"\nbackward:\n{print_graph(halves.backward)}" if halves.backward else ""
    return f"forward:\n{print_graph(halves.forward)}{backward}"


def _loops_text(event: Event) -> str:
    return schedule_text(event.record) if isinstance(event.record, Schedule) else ""


def _reason(event: Event) -> str:
    return str(event.facts.get("reason", ""))


def _recompiled(event: Event) -> str:
    return f"{event.subject}: {_reason(event)}"


def _told(event: Event) -> str:
    return ", ".join(f"{name}={value}" for name, value in event.facts.items())


# For each name of `events.LOGS` the text that it shows; nothing is printed for an empty one. Of a
# kind that was declared elsewhere its facts are shown.
TEXTS: dict[str, Callable[[Event], str]] = {
    "graph": _captured(lambda capture: print_graph(capture.graph)),
    "guards": _captured(lambda capture: "\n".join(map(str, capture.guards))),
    "breaks": _captured(_break_text),
    "source": lambda e: e.record.source if isinstance(e.record, Segment) else "",
    "joint": lambda e: _graph_of(e, Joint),
    "split": _split_text,
    "loops": _loops_text,
    "kernels": _kernel_text,
    "llvm": lambda e: e.record.text if isinstance(e.record, LlvmModule) else "",
    "timings": lambda e: f"{e.seconds * 1e3:.2f} ms",
    "fallbacks": _reason,
    "recompiles": _reason,
    "evictions": _reason,
    "passes": _told,
    "cache": _told,
    "trees": _told,
    "verify": _told,
}


def _graph_of(event: Event, kind: type[Joint]) -> str:
    return print_graph(event.record.graph) if isinstance(event.record, kind) else ""


def log_listener(names: tuple[str, ...], of: str | None = None) -> Callable[[Event], None]:
    """A listener that prints what `names` of `LOGS` ask for; `of` is the name that the user gave to
    the compiled object."""
    head = f"[windfall {of}]" if of else "[windfall]"
    wanted = [(name, LOGS[name], TEXTS.get(name, _told)) for name in names if name != "timings"]
    timings = "timings" in names

    def listen(event: Event) -> None:
        for name, kind, show in wanted:
            text = show(event) if event.kind is kind else ""
            if text:
                print(f"{head} {name} of {event.subject}\n{text}", file=sys.stderr)
        if timings and event.kind.is_stage:
            spent = TEXTS["timings"](event)
            print(f"{head} {event.kind} of {event.subject}: {spent}", file=sys.stderr)

    return listen


def explanation_of(log: EventLog, result: Any = None) -> Explanation:
    """What a log says so far."""
    return Explanation(log.snapshot(), result)
