"""HTML that is written by code: what is text is escaped, what is markup says so.

Enters: names of elements, attributes, children. Leaves: `Markup`, which goes through unchanged;
every other child is text. Invariant: nothing of the user's (a path, a name, a line of source) can
become markup; an attribute that is None or False is left out.

    >>> tag("p", "a < b", tag("b", "!"), title='"')
    '<p title="&quot;">a &lt; b<b>!</b></p>'
"""

from __future__ import annotations

import html
from typing import Any

_EMPTY = frozenset({"meta", "input", "br", "rect", "path"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: Any) -> Markup:
    """`value` as markup: text is escaped, sequences are joined, None is nothing."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup("")
    if isinstance(value, list | tuple):
        return Markup("".join(map(escaped, value)))
    return Markup(html.escape(str(value)))


def prose(text: str) -> list[Any]:
    """A sentence of ours, in which words between backticks are code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without its fellow
        return [text]
    return [tag("code", part) if index % 2 else part for index, part in enumerate(parts)]


def counted(number: int, one: str, several: str) -> str:
    """`1 time`, `2 times`."""
    return f"{number} {one if number == 1 else several}"


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. `class_` is the attribute `class`; other names have `-` where here is `_`."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{escaped(children)}</{name}>")
