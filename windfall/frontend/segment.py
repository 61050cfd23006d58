"""`rewrite`: a capture as Python source.

Enters: a `Capture`. Leaves: a `Segment`: a function of the slots that reads the graph's inputs,
calls the graph, replays effects, rebuilds values, and returns, or does the native step and says
where to go on. The source is what users are shown. Invariant: it assumes that the guards hold.

    def f(x, y):
        g0, = graph(x, y)
        r0 = print(g0)
        return Continue(position0, (g0,))
"""

from __future__ import annotations

import re
from typing import Any

from windfall.errors import set_traceback, traceback_of
from windfall.frontend.native_way import NativeWay
from windfall.frontend.segment_records import Outcome, Rebuild, Resume
from windfall.frontend.state import HELD, Continue
from windfall.frontend.tracebacks import through
from windfall.ir.generators import drawing
from windfall.ir.stages import Capture, Segment, Span


class _Lines:
    """Lines with what each stands for in the user's source."""

    def __init__(self, span: Span) -> None:
        self.text: list[str] = []
        self.spans: list[Span] = []
        self.span = span

    def add(self, text: str, depth: int = 1) -> None:
        """A line, indented."""
        self.text.append("    " * depth + text)
        self.spans.append(self.span)


def rewrite(captured: Capture) -> Segment:
    """The capture as source."""
    rebuild, resume = captured.outputs, captured.resume
    assert isinstance(rebuild, Rebuild)
    namespace: dict[str, Any] = dict(rebuild.namespace)
    start = captured.origin.line if captured.origin is not None else 1
    place = resume.place if isinstance(resume, Resume) else None
    first = place.code.co_firstlineno if place is not None else start
    lines = _Lines((first, first, -1, -1))
    lines.add(f"def {captured.name}({', '.join(rebuild.slots)}):", 0)
    lines.span = (start, start, -1, -1)
    for text in rebuild.reads:
        lines.add(text)
    if rebuild.results or any(node.op.startswith("call") for node in captured.graph.nodes):
        names = "".join(f"g{index}, " for index in range(rebuild.results)).strip()
        call = f"graph({', '.join(rebuild.arguments)})"
        if rebuild.generators:
            namespace["drawing"] = drawing
            given = ("graph", *rebuild.arguments)
            call = f"drawing(({', '.join(rebuild.generators)},), {', '.join(given)})"
        lines.add(f"{names} = {call}" if names else call)
    for text in rebuild.lines:
        lines.add(text)
    if rebuild.result is not None:
        lines.add(f"return {rebuild.result}")
    else:
        assert isinstance(resume, Resume)
        lines.span = place.span if place is not None else lines.span
        _release(lines, rebuild, resume)
        _step(lines, resume, namespace)
        namespace["__name__"] = _module_of(resume)
    where = resume.where if isinstance(resume, Resume) else captured.origin
    return Segment(
        captured.name,
        "\n".join(lines.text) + "\n",
        rebuild.slots,
        "graph",
        namespace,
        captured,
        rebuild.direct,
        where.file if where is not None else "<windfall>",
        tuple(lines.spans),
        where.function.rpartition(".")[2] if where is not None else "",
    )


_ASSIGNED = re.compile(r" {4}((?:\w+, ?)*\w+),? = ")
_NAME = re.compile(r"[^\W\d]\w*")


def _release(lines: _Lines, rebuild: Rebuild, resume: Resume) -> None:
    """Drop what was made on the way and is in nobody's hands but the segment's: the step may see
    that it is gone, as may `gc.collect` and weak references."""
    ways = [*resume.outcomes, *([resume.handler] if resume.handler is not None else [])]
    needed = [*resume.lines, resume.handled or ""]
    needed += [text for one in ways for text in (one.condition or "", *one.slots)]
    named = {name for text in needed for name in _NAME.findall(text)}
    named.add(HELD)  # which are left in their order, should the segment not come to its end
    made: dict[str, None] = {}
    for text in lines.text[1:]:
        found = _ASSIGNED.match(text)
        for name in _NAME.findall(found[1]) if found is not None else ():
            made[name] = None
    idle = [name for name in made if name not in named and name not in rebuild.namespace]
    if idle:
        lines.add(f"del {', '.join(idle)}")


def _module_of(resume: Resume) -> Any:
    """The module of the frame that does the step: what `type`, `namedtuple` and the like read from
    the globals of their caller."""
    ways = [*resume.outcomes, *([resume.handler] if resume.handler is not None else [])]
    frames = ways[0].position.frames if ways else ()
    return frames[-1].globals.get("__name__") if frames else None


def _step(lines: _Lines, resume: Resume, namespace: dict[str, Any]) -> None:
    depth = 1
    if resume.handler is not None or resume.callers:
        lines.add("try:", depth)
        depth += 1
    if resume.handled is not None:
        # The step sees the exception that is being handled, as `sys.exc_info` and `raise` do.
        namespace["traceback_of"], namespace["set_traceback"] = traceback_of, set_traceback
        lines.add(f"traceback = traceback_of({resume.handled})", depth)
        lines.add("try:", depth)
        lines.add(f"raise {resume.handled}", depth + 1)
        lines.add("except BaseException:", depth)
        depth += 1
        lines.add(f"set_traceback({resume.handled}, traceback)", depth)
    for text in resume.lines:
        lines.add(text, depth)
    if resume.handler is not None or resume.callers:
        lines.add("except BaseException as error:", 1)
    if resume.callers:
        # Eager's traceback names the frames in between too.
        namespace["through"], namespace["callers"] = through, resume.callers
        lines.add("through(error, callers)", 2)
    if resume.handler is not None:
        lines.add(_continue(resume.handler, namespace), 2)
    elif resume.callers:
        lines.add("raise", 2)
    for outcome in resume.outcomes:
        if outcome.condition is not None:
            lines.add(f"if {outcome.condition}:")
            lines.add(_continue(outcome, namespace), 2)
        else:
            lines.add(_continue(outcome, namespace))


def _continue(outcome: Outcome, namespace: dict[str, Any]) -> str:
    verb = "leave" if outcome.leaves else "Continue"
    namespace[verb] = NativeWay() if outcome.leaves else Continue
    name = f"position{sum(key.startswith('position') for key in namespace)}"
    namespace[name] = outcome.position
    slots = ", ".join(outcome.slots) + ("," if len(outcome.slots) == 1 else "")
    if outcome.loop is not None:
        return f"return leave.loop({name}, ({slots}), {outcome.loop})"
    if outcome.keep is not None:
        return f"return leave.frames({name}, ({slots}), {outcome.keep})"
    return f"return {verb}({name}, ({slots}))"
