"""A picture of the graph tree of this thread: `windfall.tree_picture()`.

Enters: a `TreeManager`. Leaves: SVG text: a box for each recording (its region, bytes, replays),
the current path drawn bold, the pool's size, and why regions ran unrecorded. It has the colour of
the text around it, so that it can stand in a page of any colours. Invariant: it tells
what is there, and changes nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from windfall.runtime import trees

if TYPE_CHECKING:
    from windfall.runtime.trees import Node, TreeManager

_WIDTH, _HEIGHT, _GAP = 190, 50, 16
_STYLE = (
    ".tree text{font:12px sans-serif;fill:currentColor}"
    ".tree rect,.tree path{fill:none;stroke:currentColor}"
    ".tree .now rect{stroke-width:3}.tree .why{fill:#c33}"
)


def tree_picture(managers: Iterable[TreeManager] | None = None) -> str:
    """SVG of all trees that there are: one for each thread that has called something recorded."""
    parts: list[str] = []
    top, wide = 0, 400
    for manager in trees.CPU_TREES if managers is None else managers:
        drawn = _Drawing(manager, top)
        parts += drawn.parts
        top, wide = drawn.bottom, max(wide, drawn.right)
    if not parts:
        parts, top = [_text(8, 20, "no graph tree")], 40
    size = f'width="{wide}" height="{top + _GAP}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="tree" {size}>'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>"])


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{shown}>{html.escape(text)}</text>'


class _Drawing:
    """One tree, from left to right; siblings below each other."""

    def __init__(self, manager: TreeManager, top: int) -> None:
        self.parts: list[str] = []
        self.right = 0
        self._path = {*manager.current.path()}
        head = (
            f"{manager.device.name}: {manager.nodes} recordings, pool of {manager.bytes} bytes, "
            f"{len(manager.live)} results alive, generation {manager.generation}"
        )
        self.parts.append(_text(8, top + 20, head))
        self.bottom = top + 32
        for child in _children(manager.root):
            self._node(child, None)
        for line in _reasons(manager):
            self.bottom += 16
            self.parts.append(_text(8, self.bottom, line, "why"))

    def _node(self, node: Node, start: tuple[int, int] | None) -> None:
        assert node.region is not None
        x, y = 8 + (node.depth - 1) * (_WIDTH + 2 * _GAP), self.bottom
        middle = y + _HEIGHT // 2
        if start is not None:
            self.parts.append(f'<path d="M{start[0]} {start[1]} L{x} {middle}"/>')
        lines = [node.region.name[-26:], f"replayed {node.replays}", _size(node)]
        now = ' class="now"' if node in self._path else ""
        box = f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>'
        rows = "".join(_text(x + 6, y + 15 + 14 * at, one) for at, one in enumerate(lines) if one)
        title = f"<title>{html.escape(node.region.where)}</title>"
        self.parts.append(f"<g{now}>{title}{box}{rows}</g>")
        self.right = max(self.right, x + _WIDTH + _GAP)
        children = [*_children(node)]
        for child in children:
            self._node(child, (x + _WIDTH, middle))
        if not children:
            self.bottom = y + _HEIGHT + _GAP


def _children(node: Node) -> Iterator[Node]:
    return (one for siblings in node.children.values() for one in siblings)


def _size(node: Node) -> str:
    ground = getattr(node.recording, "ground", ())
    total = sum(last - first for first, last in ground)
    return f"{total} bytes" if total else ""


def _reasons(manager: TreeManager) -> Iterator[str]:
    seen = {node.region for node in manager.root.below() if node.region is not None}
    for region in sorted(seen, key=lambda one: one.number):
        for skip, times in region.counters.skipped.items():
            yield f"{region.name}: {times} times unrecorded: {skip.reason}"
        for why, times in region.counters.why.items():
            yield f"{region.name}: recorded again {times} times: {why}"
