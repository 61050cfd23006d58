"""The cheapest cut of a directed graph: Dinic's algorithm on flat arrays.

Enters: edges with capacities. Leaves: the vertices on the sink's side of a minimum cut, the one
nearest to the sink (where values are cut off late, less is computed twice).
Invariant: capacities are non-negative integers; `INFINITE` edges are never cut (a graph in which
they would have to be raises).
"""

from __future__ import annotations

from collections import deque

from windfall.errors import InternalError

INFINITE = 1 << 60


class FlowGraph:
    """Vertices are numbers; edges stand in pairs, each beside its reverse (`edge ^ 1`)."""

    def __init__(self) -> None:
        self._edges_of: list[list[int]] = []
        self._head: list[int] = []
        self._room: list[int] = []

    def vertex(self) -> int:
        """A new vertex."""
        self._edges_of.append([])
        return len(self._edges_of) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """A new edge."""
        self._edges_of[tail].append(len(self._head))
        self._edges_of[head].append(len(self._head) + 1)
        self._head += (head, tail)
        self._room += (capacity, 0)

    def sink_side(self, source: int, sink: int) -> set[int]:
        """The vertices that still reach the sink once the flow is maximal: of all minimum cuts
        this is the one nearest to the sink."""
        total = 0
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return self._reaching(sink)
            positions = [0] * len(self._edges_of)
            while pushed := self._push(source, sink, levels, positions):
                total += pushed
                if total >= INFINITE:
                    raise InternalError("no finite cut: something that cannot be saved must be")

    def _reaching(self, sink: int) -> set[int]:
        found = {sink}
        waiting = [sink]
        while waiting:
            for edge in self._edges_of[waiting.pop()]:
                tail = self._head[edge]
                if self._room[edge ^ 1] > 0 and tail not in found:
                    found.add(tail)
                    waiting.append(tail)
        return found

    def _levels(self, source: int) -> list[int]:
        """Distances from the source over edges with room."""
        levels = [-1] * len(self._edges_of)
        levels[source] = 0
        waiting = deque([source])
        while waiting:
            vertex = waiting.popleft()
            for edge in self._edges_of[vertex]:
                head = self._head[edge]
                if self._room[edge] > 0 and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    waiting.append(head)
        return levels

    def _push(self, source: int, sink: int, levels: list[int], positions: list[int]) -> int:
        """Send flow along one path that descends the levels; 0 if there is none any more."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edge = self._next_edge(vertex, levels, positions)
            if edge is not None:
                path.append(edge)
                vertex = self._head[edge]
            elif path:
                edge = path.pop()
                vertex = self._head[edge ^ 1]
                positions[vertex] += 1
            else:
                return 0
        pushed = min(self._room[edge] for edge in path)
        for edge in path:
            self._room[edge] -= pushed
            self._room[edge ^ 1] += pushed
        return pushed

    def _next_edge(self, vertex: int, levels: list[int], positions: list[int]) -> int | None:
        edges = self._edges_of[vertex]
        while positions[vertex] < len(edges):
            edge = edges[positions[vertex]]
            if self._room[edge] > 0 and levels[self._head[edge]] == levels[vertex] + 1:
                return edge
            positions[vertex] += 1
        return None
