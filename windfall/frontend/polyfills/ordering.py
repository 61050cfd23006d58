"""Sorting, heaps, smallest and largest, reducing, as Python.

`order_of` has a rule of its own: where all keys are constants CPython sorts them, and only the
others are compared one by one in interpreted code.
"""

from __future__ import annotations

from typing import Any

from windfall.frontend.polyfills.core import rest


def sorted_(iterable: Any, /, *, key: Any = None, reverse: Any = False) -> Any:
    """`sorted(iterable, key=key, reverse=reverse)`."""
    items = list(iterable)
    keys = items
    if key is not None:
        keys = []
        for item in items:
            keys.append(key(item))
    result = []
    for index in order_of(keys, True if reverse else False):  # noqa: SIM210
        result.append(items[index])
    return result


def sort_list(items: Any, key: Any = None, reverse: Any = False) -> None:
    """`items.sort(key=key, reverse=reverse)`."""
    items[:] = sorted_(items, key=key, reverse=reverse)


def order_of(keys: Any, reverse: bool) -> Any:
    """The places of the keys in ascending order; equal ones stay in order. Compares by `<` only."""
    places = [*range(len(keys))]
    width = 1
    while width < len(places):
        merged = []
        start = 0
        while start < len(places):
            left = places[start : start + width]
            right = places[start + width : start + 2 * width]
            while left and right:
                # Of equal keys the left one goes first, in either direction.
                if reverse:
                    later = keys[left[0]] < keys[right[0]]
                else:
                    later = keys[right[0]] < keys[left[0]]
                merged.append(right.pop(0) if later else left.pop(0))
            merged.extend(left)
            merged.extend(right)
            start += 2 * width
        places = merged
        width *= 2
    return places


def extreme(name: str, items: Any, key: Any, largest: bool, given: bool, default: Any) -> Any:
    """`min` and `max`: the first of the smallest (largest)."""
    found = False
    best = best_key = None
    for item in items:
        item_key = item if key is None else key(item)
        if not found:
            found, best, best_key = True, item, item_key
        elif (item_key > best_key) if largest else (item_key < best_key):
            best, best_key = item, item_key
    if found:
        return best
    if given:
        return default
    raise ValueError(f"{name}() arg is an empty sequence")


def reduce(function: Any, iterable: Any, /, *initial: Any) -> Any:
    """`functools.reduce(function, iterable[, initial])`."""
    try:
        iterator = iter(iterable)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    if initial:
        (value,) = initial
    else:
        try:
            value = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    for item in rest(iterator):
        value = function(value, item)
    return value


# ------------------------------------------------------------------------------------- heaps


def heapify(heap: Any, /) -> None:
    """`heapq.heapify(heap)`."""
    for index in reversed(range(len(heap) // 2)):
        sift_up(heap, index)


def heappush(heap: Any, item: Any, /) -> None:
    """`heapq.heappush(heap, item)`."""
    heap.append(item)
    sift_down(heap, 0, len(heap) - 1)


def heappop(heap: Any, /) -> Any:
    """`heapq.heappop(heap)`."""
    last = heap.pop()
    if heap:
        first = heap[0]
        heap[0] = last
        sift_up(heap, 0)
        return first
    return last


def heapreplace(heap: Any, item: Any, /) -> Any:
    """`heapq.heapreplace(heap, item)`."""
    first = heap[0]
    heap[0] = item
    sift_up(heap, 0)
    return first


def heappushpop(heap: Any, item: Any, /) -> Any:
    """`heapq.heappushpop(heap, item)`."""
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        sift_up(heap, 0)
    return item


def sift_down(heap: Any, start: int, place: int) -> None:
    """Move the item at `place` towards the root until its parent is not larger."""
    item = heap[place]
    while place > start:
        above = (place - 1) >> 1
        if not item < heap[above]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = item


def sift_up(heap: Any, place: int) -> None:
    """Let the smaller child rise until a leaf is reached, then put the item there and move it back:
    the comparisons that heapq makes."""
    end = len(heap)
    start = place
    item = heap[place]
    child = 2 * place + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = item
    sift_down(heap, start, place)


# ------------------------------------------------------------------------------- containers


def _first_difference(left: Any, right: Any) -> int:
    """The place of the first items that differ, or the end of one: a comparison may change both."""
    index = 0
    while index < len(left) and index < len(right):
        one, other = left[index], right[index]
        if not (one is other or one == other):
            break
        index += 1
    return index


def equal_sequences(left: Any, right: Any, unequal: bool) -> bool:
    """`left == right` of sequences of one length."""
    index = _first_difference(left, right)
    if index < len(left) and index < len(right):
        return unequal
    return (len(left) == len(right)) != unequal


def equal_mappings(left: Any, right: Any, unequal: bool) -> bool:
    """`left == right` of dicts with the same keys."""
    for key in left:
        one, other = left[key], right[key]
        if not (one is other or one == other):
            return unequal
    return not unequal


def order_sequences(left: Any, right: Any, operation: str) -> Any:
    """`left operation right` for the four orderings: the first items that differ decide."""
    index = _first_difference(left, right)
    if index < len(left) and index < len(right):
        one, other = left[index], right[index]
        if operation == "<":
            return one < other
        if operation == "<=":
            return one <= other
        return one > other if operation == ">" else one >= other
    if operation == "<":
        return len(left) < len(right)
    if operation == "<=":
        return len(left) <= len(right)
    return len(left) > len(right) if operation == ">" else len(left) >= len(right)
