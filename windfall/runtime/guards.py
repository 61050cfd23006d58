"""Guards as a check that runs in nanoseconds, in tiers.

Enters: `Guard`s and the number of slots. Leaves: a `CompiledCheck`: a builtin that answers True or
False, and the whole check as Python text, for people and for where no native code can be.

The first tier is a table of records that the machine code of `support.py` walks: thread state,
exact types, tensor metadata, constants, identities. Values in dictionaries are remembered together
with the version of the dictionary: while that stands, a read is one comparison; when it moved, the
names are looked up again, and only the names that are read. What has no native form is left to the
second tier, a generated Python function, called when the first tier holds.

Invariant: checking runs no user code and keeps no input alive. Identities are held weakly where
possible: when the object dies its word is overwritten, for its address may be used again.

A kind of check is one class of `ir`, which says its native form to the `Writer` that
`tensor_guards.py` and `object_guards.py` implement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from windfall.dataclass import dataclass
from windfall.ir.guard import Guard, first_failure
from windfall.ir.source import AMBIENT, SYMBOLS, Distance, Overlap, ScalarOf, Source
from windfall.runtime import support
from windfall.runtime.encoder import EncodedCheck, Encoder
from windfall.runtime.guard_text import check_text, python_check, slot_names, symbols_in
from windfall.runtime.tensor_guards import CheckWriter
from windfall.runtime.words import Place


def _input_cell(encoder: Encoder, source: Source) -> Place | None:
    if not isinstance(source, ScalarOf):
        return encoder.cell(source)
    cell = encoder.cell(source.of)
    if cell is not None:
        encoder.record("type", cell, encoder.words.object(float))
    return cell


COMPARED = (Distance, Overlap)  # tensors with each other, once each is known to be one


def in_order(guards: Sequence[Guard]) -> list[Guard]:
    """Cheapest and likeliest to fail first: the thread, arguments, what is reached from them; then
    what compares sizes, which those have bound; last what compares tensors with each other."""
    depths: dict[int, int] = {}  # of sources, which the guards keep alive

    def depth(source: Source) -> int:
        """How many reads lie between a root and the value."""
        found = depths.get(id(source))
        if found is None:
            base = source.base
            found = depths[id(source)] = 0 if base is None else 1 + depth(base)
        return found

    def rank(guard: Guard) -> tuple[int, int]:
        if guard.source is AMBIENT:
            return 0, 0
        if isinstance(guard.source, COMPARED):
            return 3, 0
        return (2, 0) if guard.source is SYMBOLS else (1, depth(guard.source))

    return sorted(guards, key=rank)


def encode(
    guards: Sequence[Guard], inputs: Sequence[Source], names: Sequence[str]
) -> EncodedCheck | None:
    """The native form of a check, with the cells at which `inputs` are found once it holds (of a
    float that a graph takes as a tensor, the float). Guards without a native form become a Python
    function that the native code calls. None: an input has no native walk."""
    encoder = CheckWriter(guards, inputs, len(names))
    encoder.reserve_keys()
    last = [guard for guard in guards if isinstance(guard.source, COMPARED)]
    left = [
        guard
        for guard in guards
        if not isinstance(guard.source, COMPARED) and not guard.check.encode(encoder, guard.source)
    ]
    settled = encoder.settle()
    left += [guard for guard in last if not guard.check.encode(encoder, guard.source)]
    if not settled or any(map(symbols_in, left)):
        # Python binds symbols for itself, and so needs all guards that speak of any.
        kept = set(map(id, left))
        left = [guard for guard in guards if id(guard) in kept or symbols_in(guard)]
    cells = [_input_cell(encoder, source) for source in inputs]
    found = tuple(cell for cell in cells if cell is not None)
    if len(found) != len(cells):
        return None
    encoded = encoder.finish()
    encoded.inputs = found
    if left:
        encoded.set(rest=encoded.words.object(python_check(left, names)))
    return encoded


# -------------------------------------------------------------------------------------- the check


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """`call(*slots)` answers whether every guard holds; `text` is the same check for people."""

    call: Callable[..., bool]
    text: str
    native: bool
    guards: tuple[Guard, ...]

    def first_failure(self, *slots: Any) -> Guard | None:
        """The first guard that does not hold of these slots: why a call missed."""
        return first_failure(self.guards, slots)


def compile_check(
    guards: Sequence[Guard], slot_count: int, *, native: bool = True
) -> CompiledCheck:
    """A check of all `guards` against the slots of a call."""
    ordered = in_order(guards)
    names = slot_names(ordered, slot_count)
    text = check_text(ordered, names)
    encoded = encode(ordered, (), names) if native and support.support() is not None else None
    if encoded is None:
        call = _counting_slots(python_check(ordered, names), slot_count)
        return CompiledCheck(call, text, False, tuple(ordered))
    return CompiledCheck(encoded.builtin("check", "check"), text, True, tuple(ordered))


def _counting_slots(check: Callable[..., bool], slot_count: int) -> Callable[..., bool]:
    def counted(*slots: Any) -> bool:
        return len(slots) == slot_count and check(*slots)

    return counted
