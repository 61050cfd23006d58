"""A picture of a memory plan: which temporaries stand where in the arena, and when.

Enters: the buffers of a program and its plan. Leaves: SVG: steps of the program from left to right,
bytes of the arena from top to bottom, a box for each temporary. Invariant: sizes that vary are
drawn as large as they were when the program was compiled, and said to vary; a plan over sizes that
only data tell has no picture.
"""

from __future__ import annotations

from windfall.ir.loop import MemoryPlan
from windfall.ir.stages import BufferNote
from windfall.ir.symint import Size, hint_of, reads_of
from windfall.reporting.markup import Markup, tag

_WIDTH, _HEIGHT, _LEAST = 600, 180, 2


def plan_picture(plan: MemoryPlan, buffers: tuple[BufferNote, ...]) -> Markup | None:
    """The picture; None: there is no temporary, or nothing tells how large it is."""
    notes = [one for one in buffers if one.place == "arena" and one.name in plan.lives]
    sizes = [size for one in notes for size in (one.offset, one.type.elements)]
    if not notes or reads_of(plan.arena_bytes, *sizes):
        return None
    total = max(1, _bytes(plan.arena_bytes))
    steps = 1 + max(plan.lives[one.name][1] for one in notes)
    boxes = [_box(one, plan.lives[one.name], steps, total) for one in notes]
    label = f"{len(notes)} temporaries in {total} bytes over {steps} steps"
    return tag(
        "svg",
        *boxes,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=label,
        class_="plan",
        preserveAspectRatio="none",
    )


def _box(note: BufferNote, life: tuple[int, int], steps: int, total: int) -> Markup:
    first, last = life
    size = _bytes(note.type.elements) * note.type.dtype.itemsize
    start = _bytes(note.offset)
    varies = "" if isinstance(note.type.elements, int) else ", as compiled: its size varies"
    title = f"{note.name}: {note.type}, {size} bytes at {start}, steps {first} to {last}{varies}"
    return tag(
        "g",
        tag("title", title),
        tag(
            "rect",
            x=round(first * _WIDTH / steps, 1),
            y=round(start * _HEIGHT / total, 1),
            width=round(max(_LEAST, (last - first + 1) * _WIDTH / steps), 1),
            height=round(max(_LEAST, size * _HEIGHT / total), 1),
        ),
    )


def _bytes(size: Size) -> int:
    return size if isinstance(size, int) else hint_of(size)
