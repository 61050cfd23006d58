"""Views that are made between autograd nodes: other results were made of them.

Enters: the `Signature` of a graph, whose `between` names such outputs. Leaves: what each of them
waits for, and, in a call, the view: made by eager's ops of the input, the result or the view that
it looks at, so that its history is eager's. Invariant: a view is made after what it leads to and
before the nodes that lead to it.

    f(x) = h, v, v.sum()  with h = x.exp(), v = h.t()
    node of h; then v = h.t(); then the node of the sum, which leads to v
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windfall.autograd.conventions import at_sizes, made_view
from windfall.ir.stages import Signature, Split


def awaited(signature: Signature) -> tuple[int, ...]:
    """For each output of `between`, what has to be there before: the number of an input, a result
    or another view, as in `Joint.gradients_for`."""
    count, writes = len(signature.inputs), len(signature.writes)
    first = count + writes + signature.fresh
    found = []
    for place in signature.between:
        fact = signature.outputs[place]
        if fact.kind == "view_of_view":
            found.append(first + signature.between.index(fact.base))
        elif fact.kind == "view_of_input":
            seen = fact.base in signature.writes and signature.inputs[fact.base].visible
            written = count + signature.writes.index(fact.base) if seen else fact.base
            found.append(written)
        else:
            found.append(count + writes + fact.base)
    return tuple(found)


class ViewsBetween:
    """The views of one graph. `before` has, for each of its nodes in order, the positions of those
    that are made before the node is attached."""

    def __init__(self, split: Split, attached: Sequence[tuple[int, ...]]) -> None:
        signature = split.signature
        self.count = len(signature.between)
        self._facts = [signature.outputs[place] for place in signature.between]
        self._places = {place: index for index, place in enumerate(signature.between)}
        self._names = tuple(map(str, split.symbols))
        self._writes = len(signature.writes)
        first, waits = len(signature.inputs) + split.visible, awaited(signature)
        # Results that become what autograd refuses writes to: at once, by their positions.
        self.of_results = {
            self._writes + fact.base: index
            for index, fact in enumerate(self._facts)
            if fact.kind == "fresh"
        }
        taken = self.of_results.values()
        left = dict.fromkeys(one for one in range(self.count) if one not in taken)
        self.before: list[list[int]] = []
        for inputs in attached:
            needed: list[int] = []
            waiting = [one - first for one in inputs if one >= first]
            while waiting:
                needed.append(waiting.pop())
                waiting += [one - first for one in (waits[needed[-1]],) if one >= first]
            self.before.append([one for one in dict.fromkeys(reversed(needed)) if one in left])
            for one in self.before[-1]:
                del left[one]
        self.last = [*left]

    def make(
        self,
        view: int,
        sizes: Any,
        primals: Sequence[Any],
        shown: Sequence[Any],
        made: list[Any],
        pieces: dict[int, Any],
    ) -> None:
        """Make one of them, of what there is by now."""
        fact = self._facts[view]
        if self._names:
            fact = at_sizes(fact, dict(zip(self._names, sizes, strict=True)))
        if fact.kind == "view_of_view":
            base = made[self._places[fact.base]]
        elif fact.kind == "view_of_input":
            base = primals[fact.base]
        else:
            base = shown[self._writes + fact.base]
        made[view] = made_view(fact, base, pieces)
