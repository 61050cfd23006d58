"""What goes on from break to break without Python in between.

Enters: the class of what a segment answers that goes on, a dictionary of positions. Leaves: a
builtin `chain(result, stands)` that runs segment after segment and answers what the last one
returns; None where there is no native code.

Invariant: it does the usual alone. Where a position is not in the dictionary, no entry fits, too
many segments in a row do nothing with tensors, or one raises, `stands` says where the program
stands, with its slots as they were, and nothing else has happened.

    >>> stands = [None, None, None, 0, 500]  # where it stands, what raised, idle, at most
    >>> chain(result, stands)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from windfall import torch_abi
from windfall.ir.stages import MISS
from windfall.runtime import support
from windfall.runtime.machine.chain import CHAIN, PAIR
from windfall.runtime.words import Words

Chain = Callable[[Any, list[Any]], Any]


def make_chain(
    continuation: type, taken: object, points: dict[Any, Any], entries: type
) -> Chain | None:
    """The builtin. `continuation` has slots `position` and `slots`, `entries` (the class of items
    of `points`) `calls` and `is_idle`; `taken` stands where slots were."""
    code = support.support()
    if code is None:
        return None
    offsets = {
        "position": torch_abi.member_offset(continuation, "position"),
        "slots": torch_abi.member_offset(continuation, "slots"),
        "calls": torch_abi.member_offset(entries, "calls"),
        "idle": torch_abi.member_offset(entries, "is_idle"),
    }
    known = {name: offset for name, offset in offsets.items() if offset is not None}
    if len(known) != len(offsets):
        return None
    words = Words()
    objects = {"class": continuation, "taken": taken, "points": points, "miss": MISS}
    words.add(*CHAIN.named(**known, **{name: words.object(one) for name, one in objects.items()}))
    keep = (words.keep, code)
    return torch_abi.make_builtin("chain", code.address("chain"), words.build(), keep)


@functools.cache
def pair_maker(kind: type) -> Callable[[Any, Any], Any]:
    """A builtin that makes what `kind(first, second)` does, a class of two slots which `__init__`
    only fills: in a third of the time, and a segment that ends in a break makes one each time. The
    class itself where there is no native code."""
    names = kind.__dict__.get("__slots__", ())
    places = [torch_abi.member_offset(kind, name) for name in names]
    code = support.support()
    if code is None or len(places) != 2 or places[0] is None or places[1] is None:
        return kind
    words = Words()
    words.add(*PAIR.words(words.object(kind), places[0], places[1]))
    keep = (words.keep, code)
    return torch_abi.make_builtin(kind.__name__, code.address("pair"), words.build(), keep)
