"""Equal graphs are compiled once: what one compiled object has, in case another entry needs it.

Enters: executables, by the keys of their graphs (`ir/graph_key.py`), and what they are linked to.
Leaves: the same for an equal graph, with the roles that inputs have there. Invariant: equal graphs
share one call, and with it the variants of backward; a call lives as long as somebody has the
executable or the call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch.fx

from windfall.ir.role import Role, Roles
from windfall.ir.stages import Executable, GraphCallable, Program
from windfall.variants import Variants

KEPT_GRAPHS = 8  # of one compiled object


class Graphs:
    """The latest graphs, and what was linked."""

    def __init__(self) -> None:
        # With the graph, since a key has addresses of its constants.
        self._made = Variants[Hashable, tuple[Executable, torch.fx.Graph]](KEPT_GRAPHS)
        self._calls: WeakKeyDictionary[Executable, dict[Hashable, GraphCallable]] = (
            WeakKeyDictionary()
        )

    def find(self, key: Hashable, roles: Sequence[Role]) -> Executable | None:
        """What was made for an equal graph, with these roles of inputs."""
        known = self._made.get(key)
        return None if known is None else self._relabelled(known[0], roles)

    def add(self, key: Hashable, executable: Executable, graph: torch.fx.Graph) -> None:
        """Keep what was made for a graph."""
        self._made.add(key, (executable, graph))

    def call(
        self, executable: Executable, link: Callable[[], GraphCallable], place: Hashable = None
    ) -> GraphCallable:
        """What an executable is linked to at a kind of place, now if not before."""
        linked = self._calls.setdefault(executable, {})
        found = linked.get(place)
        if found is None:
            found = linked[place] = link()
        return found

    def _relabelled(self, executable: Executable, roles: Sequence[Role]) -> Executable:
        """The same work on inputs that are something else, by the same call."""
        pairs = zip(roles, executable.roles.inputs, strict=True)
        inputs = tuple(replace(new, written=old.written) for new, old in pairs)
        if inputs == executable.roles.inputs:
            return executable
        program = executable.program
        if isinstance(program, Program):
            program = replace(program, roles=Roles(inputs, program.roles.results))
        roles_now = Roles(inputs, executable.roles.results)
        made = replace(executable, program=program, roles=roles_now)
        self._calls[made] = self._calls.setdefault(executable, {})
        return made
