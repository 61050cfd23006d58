"""A break where none may be: the error that says so.

Enters: why capturing stopped. Leaves: a `BreakError` with the user's stack, the reason, its number
and what to change.
"""

from __future__ import annotations

import linecache

from windfall.errors import BreakError
from windfall.frontend.breaks import is_no_break
from windfall.ir.stages import Break


def refuse_break(name: str, stopped: Break, fullgraph: bool) -> None:
    """Raise, unless this is a way of stopping that is no break."""
    if is_no_break(stopped.number):
        return
    stack = stopped.stack or ((stopped.where,) if stopped.where else ())
    wish = "cannot be one graph" if fullgraph else "needs a break here"
    lines = [f"{'fullgraph=True' if fullgraph else 'error_on_graph_break'}, but {name} {wish}."]
    for one in stack:
        lines.append(f'  File "{one.file}", line {one.line}, in {one.function}')
        lines.append(f"    {linecache.getline(one.file, one.line).strip()}")
    lines.append(f"  W{stopped.number:04d} {stopped.reason}: {stopped.detail}")
    lines.append(f"  what to do: {stopped.hint}")
    raise BreakError("\n".join(line for line in lines if line.strip()), stopped.number, stack)
