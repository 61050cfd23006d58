"""Which node runs next: torch's order, ties included.

Enters: nodes that are ready, with their priorities. Leaves: the one to run. Invariant: the order is
that of `std::priority_queue` of the C++ library that torch is built with; among equals that is not
the order in which they came. Hooks of several leaves show it: all leaves have the same priority.

    >>> queue = ReadyQueue()
    >>> for one in "abcd":
    ...     queue.push(7, one)
    >>> "".join(queue.pop() for _ in range(4))
    'acbd'
"""

from __future__ import annotations

from typing import Generic, TypeVar

One = TypeVar("One")


class ReadyQueue(Generic[One]):
    """A binary heap, the greatest priority first."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, One]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, priority: int, one: One) -> None:
        """Add one."""
        self._heap.append((priority, one))
        self._rise(len(self._heap) - 1, (priority, one))

    def pop(self) -> One:
        """Take the first. The hole that it leaves sinks to the bottom along the greater children,
        the right one of equals; what was last fills it and rises."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last[1]
        first, size, hole = heap[0], len(heap), 0
        while hole < (size - 1) // 2:
            child = 2 * (hole + 1)
            if heap[child][0] < heap[child - 1][0]:
                child -= 1
            heap[hole] = heap[child]
            hole = child
        if size % 2 == 0 and hole == (size - 2) // 2:  # a left child alone
            heap[hole] = heap[2 * hole + 1]
            hole = 2 * hole + 1
        self._rise(hole, last)
        return first[1]

    def _rise(self, hole: int, value: tuple[int, One]) -> None:
        heap = self._heap
        while hole:
            parent = (hole - 1) // 2
            if not heap[parent][0] < value[0]:
                break
            heap[hole] = heap[parent]
            hole = parent
        heap[hole] = value
