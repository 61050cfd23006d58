"""The loops of a code object, found without running it, and how to run one natively.

Enters: a code object. Leaves: its natural loops: where each is entered, what belongs to it, where
it is left, which names it touches. Invariant: every path from outside into a body goes through its
head; every edge out of a body, an exception's included, leads to one of `exits`.

    >>> [loop.head for loop in loops(f.__code__)]     # def f(n): for i in range(n): g(i)
    [6]

The front end decides by `reads` and `writes` whether a loop can meet a tensor. If not, it calls
`run_loop` when its frame stands at the head: the loop runs at CPython's speed to its end, and the
frame goes on at one of the exits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType

from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.frontend.bytecode import Instruction, decode
from windfall.frontend.fragment import Arrival, Slots
from windfall.frontend.fragments import Fragments
from windfall.frontend.stack_effects import StackEffects, once_per_code, stack_effects
from windfall.frontend.state import FrameShape


@dataclass(frozen=True, slots=True)
class Names:
    """What instructions touch: variables of the frame by number, all else by name. Attributes are
    those of any object; items and what called functions do are not told."""

    variables: frozenset[int]
    globals: frozenset[str]
    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class BytecodeLoop:
    """One loop. A FOR_ITER stands at the head of a `for`, the first instruction of the body at that
    of a `while` (its condition has been tested once before)."""

    head: int
    body: frozenset[int]
    exits: frozenset[int]
    reads: Names
    writes: Names
    calls: bool  # something is called: by name, or a lambda or comprehension of its own
    yields: bool  # cannot be run natively: a generator's frame is left in the middle


@once_per_code
def loops(code: CodeType) -> tuple[BytecodeLoop, ...]:
    """All natural loops; an outer one stands before those inside it."""
    shape = stack_effects(code)
    edges = [_edges(shape, index) for index in range(len(shape.opcodes))]
    before = _reversed(edges, shape)
    bodies: dict[int, set[int]] = {}
    for source, after in enumerate(edges):
        for head in after:
            if head <= source and shape.stacks[source] is not None:
                if head not in bodies and source in _reach(edges, 0, without=head):
                    continue  # a jump back that is no loop: it can be reached past its target
                bodies.setdefault(head, {head}).update(_reach(before, source, without=head))
    found = [_loop(code, shape, edges, head, body) for head, body in bodies.items()]
    return tuple(sorted(found, key=lambda loop: (-len(loop.body), loop.head)))


def loop_at(code: CodeType, index: int) -> BytecodeLoop | None:
    """The loop whose head is this instruction."""
    for loop in loops(code):
        if loop.head == index:
            return loop
    return None


def run_loop(
    fragments: Fragments, shape: FrameShape, loop: BytecodeLoop, slots: Slots, handled: bool = False
) -> tuple[Arrival, Slots]:
    """Run a loop from where the frame stands (its head, or any instruction of its body) until it is
    left; `slots` are those of `shape`, then the exception being handled, where `handled`.

    What comes back: where the frame goes on, and its slots there. At an exit that is a handler, the
    exception is on the stack; a `return` inside of a loop is an exit too, before it is executed.
    What no handler of the frame covers is raised; a loop without exits ends in no other way.
    `Unsupported`: the loop yields.
    """
    if shape.ip not in loop.body:
        raise InternalError(f"{shape} does not stand in the loop at {loop.head}")
    native = fragments.native(shape, loop.exits, handled)
    arrival, after = native(slots)
    settled: tuple[Arrival, Slots] = arrival.settled(after)
    return settled


# ------------------------------------------------------------------------------------------ edges


def _edges(shape: StackEffects, index: int) -> tuple[int, ...]:
    handler = shape.handlers[index]
    after = shape.successors[index]
    return after if handler is None else (*after, handler.target)


def _reversed(edges: list[tuple[int, ...]], shape: StackEffects) -> list[tuple[int, ...]]:
    before: list[list[int]] = [[] for _ in edges]
    for source, after in enumerate(edges):
        if shape.stacks[source] is not None:  # dead code leads nowhere
            for target in after:
                before[target].append(source)
    return [tuple(one) for one in before]


def _reach(edges: list[tuple[int, ...]], start: int, without: int) -> set[int]:
    """What can be reached from an instruction when another one is taken away."""
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        index = waiting.pop()
        if index != without and index not in seen:
            seen.add(index)
            waiting.extend(edges[index])
    return seen


def _loop(
    code: CodeType, shape: StackEffects, edges: list[tuple[int, ...]], head: int, body: set[int]
) -> BytecodeLoop:
    inside = [shape.listing.instructions[index] for index in sorted(body)]
    names = {one.name for one in inside}
    reads, writes = _names(shape.listing.variables, inside)
    return BytecodeLoop(
        head,
        frozenset(body),
        frozenset(after for index in body for after in edges[index] if after not in body),
        reads,
        writes,
        not names.isdisjoint(_CALLS),
        "YIELD_VALUE" in names,
    )


# ------------------------------------------------------------------------------------------ names

_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})

# Opcode → (whose name it is, whether it reads, whether it writes).
_TOUCH: dict[str, tuple[str, bool, bool]] = {
    f"{verb}_{noun}": (kind, verb == "LOAD", verb != "LOAD")
    for verb in ("LOAD", "STORE", "DELETE")
    for noun, kind in (
        ("FAST", "variable"),
        ("DEREF", "variable"),
        ("GLOBAL", "global"),
        ("NAME", "global"),
        ("ATTR", "attribute"),
    )
} | {
    "LOAD_METHOD": ("attribute", True, False),
    "LOAD_CLOSURE": ("variable", True, False),
    "LOAD_CLASSDEREF": ("variable", True, False),
    "LOAD_FROM_DICT_OR_DEREF": ("variable", True, False),
    "LOAD_FROM_DICT_OR_GLOBALS": ("global", True, False),
    "LOAD_FAST_CHECK": ("variable", True, False),
    "LOAD_FAST_AND_CLEAR": ("variable", False, True),
    "LOAD_SUPER_ATTR": ("attribute", True, False),
    "IMPORT_FROM": ("attribute", True, False),
}


def _names(variables: tuple[str, ...], inside: Iterable[Instruction]) -> tuple[Names, Names]:
    """(read, written), by these instructions and by the functions that they make."""
    touched = set(_touched(inside))
    number = {name: index for index, name in enumerate(variables)}

    def of(read: bool) -> Names:
        chosen: dict[str, set[str]] = {"variable": set(), "global": set(), "attribute": set()}
        for kind, name, reads, writes in touched:
            if reads if read else writes:
                chosen[kind].add(name)
        return Names(
            frozenset(number[name] for name in chosen["variable"]),
            frozenset(chosen["global"]),
            frozenset(chosen["attribute"]),
        )

    return of(True), of(False)


def _touched(inside: Iterable[Instruction]) -> Iterator[tuple[str, str, bool, bool]]:
    for one in inside:
        touch = _TOUCH.get(one.name)
        if touch is not None:
            kind, reads, writes = touch
            yield kind, one.value, reads, writes
        elif isinstance(one.value, CodeType):
            # What it closes over is the frame's own; its other variables are nobody's business.
            for row in _touched(decode(one.value).instructions):
                if row[0] != "variable" or row[1] in one.value.co_freevars:
                    yield row
