"""The swap matrix: a function compiled for one kind of object is called with another.

Enters: operations, kinds, a place, how many pairs are drawn. Leaves: `Failure` records and counts.

For an operation and kinds A, B the *true protocol* is: compile anew, call with A, call with B; the
answers, their types and the classes of exceptions are eager's. There are millions of pairs, so the
sweep takes a short cut that loses nothing but what it samples:

* Entries belong to the compiled object, and a call tries A's entry first. Where A's entry accepts
  B, the answer is A's entry's: it is run and compared, without compiling anew (accepting changes
  nothing but counters). A difference is confirmed by the true protocol.
* Where A's entry misses B at the very start, B is compiled as in a fresh object, but for what was
  learnt of A: sizes and numbers that vary. Learning compares values of the same or of related
  types. So pairs of one type, of types that derive from each other and of one family always take
  the true protocol, the others are sampled.
* Where A's entry accepts B and a later segment misses it (the program broke in between), the pair
  takes the true protocol.

Sequences of three (`WARM_UP`) let something vary first: `int(a)` for 1, 2, then for every kind.
Invariant: every run gets fresh objects; eager's outcome is only used where two eager runs agree.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import windfall
from tests.conformance.swap.describe import Description, describe, raised
from tests.conformance.swap.kinds import KINDS, REPRESENTATIVE, Kind
from tests.conformance.swap.operations import OPERATIONS, TWO_OPERANDS, Operation
from tests.conformance.swap.places import Program, build
from windfall.frontend.state import Start

CONFIRMED = 3  # differences of one row that are confirmed by the true protocol
SECONDS = 2  # of processor time, for one call; most take microseconds
WARM_UP: dict[str, tuple[str, ...]] = {
    "ints": ("one", "two"),
    "negative_ints": ("minus_one", "zero"),
    "floats": ("one_and_half", "two_and_half"),
    "int_then_float": ("one", "one_and_half"),
    "truths": ("true", "false"),
    "texts": ("text_x", "text_one"),
    "lists": ("list_one", "list_three"),
    "tuples": ("tuple_one", "tuple_two"),
    "tensors": ("tensor", "tensor_three"),
    "scalars": ("scalar_int", "scalar_float"),
    "objects": ("plain_object", "attributes"),
    "none_then_int": ("none", "one"),
}


LATE: Description = (("late",),)
# What memory holds that nobody has written to: `torch.Tensor(1)`.
UNDEFINED = frozenset(
    (name, "class_tensor")
    for name in ("called_with", "called_stars", "mapped_by", "filtered_by", "sorted_key")
)


@dataclass(frozen=True)
class Failure:
    """One call that answered something else than eager: the last of `calls`."""

    operation: str
    calls: tuple[tuple[str, ...], ...]  # the kinds of the operands of each call
    expected: Description
    got: Description
    place: str
    between: bool
    stale: bool = False  # an entry of an earlier call answered
    guards: tuple[str, ...] = ()  # of all entries

    @property
    def first(self) -> bool:
        """Whether already the first call is wrong: nothing is stale then."""
        return len(self.calls) == 1

    @property
    def cause(self) -> str:
        """What failures of one group have in common."""
        when = "first call" if self.first else "stale entry" if self.stale else "later capture"
        return f"{when}, {_difference(self.expected, self.got)}"

    def __str__(self) -> str:
        calls = "; ".join(", ".join(one) for one in self.calls)
        where = self.place + (" between tensor operations" if self.between else "")
        answers = f"{_short(self.got)}, eager {_short(self.expected)}"
        return f"{self.operation} ({where}) of {calls}: {answers}"


def _difference(expected: Description, got: Description) -> str:
    """In which way two outcomes differ."""
    if got == LATE:
        return "no end"
    wanted, given = expected[0], got[0]
    if wanted == given:
        return "the operand is left otherwise"
    if wanted[0] == "raises":
        if given[0] != "raises":
            return f"answers instead of {wanted[1]}"
        return f"{given[1]} instead of {wanted[1]}" if wanted[1] != given[1] else "other words"
    if given[0] == "raises":
        return f"{given[1]} instead of an answer"
    return "another answer" if wanted[0] == given[0] else "an answer of another type"


def _short(description: Description) -> str:
    text = str(description)
    return text if len(text) < 160 else text[:157] + "..."


@dataclass
class Result:
    """What a sweep found."""

    compared: Counter[str] = field(default_factory=Counter)  # how many calls, by how they were made
    unstable: list[str] = field(default_factory=list)  # eager itself is not repeatable
    failures: list[Failure] = field(default_factory=list)

    def groups(self) -> dict[tuple[str, str], list[Failure]]:
        """Failures by operation and cause, those of the simplest kinds first."""
        order = {name: number for number, name in enumerate(KINDS)}
        found: dict[tuple[str, str], list[Failure]] = defaultdict(list)
        for one in self.failures:
            found[one.operation, one.cause].append(one)
        for group in found.values():
            group.sort(key=lambda one: (len(one.calls), [order[k] for c in one.calls for k in c]))
        return dict(sorted(found.items()))


class Missed:
    """Instead of an answer: no entry accepts these operands, at the start or later."""

    __slots__ = ("start",)

    def __init__(self, start: bool) -> None:
        self.start = start


AT_START, LATER = Missed(True), Missed(False)


class Late(BaseException):
    """A call took too long."""


def _alarm(number: int, frame: Any) -> None:
    raise Late  # again and again: a callback that swallows one does not stop the next


@contextlib.contextmanager
def alarms() -> Iterator[None]:
    """Calls that take too long raise `Late` here."""
    before = signal.signal(signal.SIGPROF, _alarm)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(
    program: Program, callee: Any, kinds: tuple[Kind, ...], text: bool
) -> Description | Missed:
    """Call with fresh operands: the answer, and what became of operands that have a state."""
    operands = tuple(kind.make() for kind in kinds)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, 0.5)
    try:
        answered = _answered(program, callee, operands, text)
        if isinstance(answered, Missed):
            return answered
        after = (describe(one) for one, kind in zip(operands, kinds, strict=True) if kind.stateful)
        return (answered, *after)
    except Late:
        return LATE
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answered(
    program: Program, callee: Any, operands: tuple[Any, ...], text: bool
) -> Description | Missed:
    try:
        answer = program.call(callee, operands)
    except Late:
        raise
    except BaseException as error:
        return raised(error, text)
    if type(answer) is Missed:
        return answer
    *around, answer = answer if program.between else (answer,)
    if type(answer) is int and any(_is_hash(answer, one) for one in operands):
        return ("hash of the operand", *map(describe, around))
    return (*describe(answer, operands), *map(describe, around))


def _is_hash(answer: int, operand: Any) -> bool:
    """Whether a number is made of the address of an operand, or of what it holds."""
    if abs(answer) < 10**6:  # no address
        return False
    try:
        return answer in (id(operand), object.__hash__(operand), hash(operand))
    except Exception:  # it cannot be hashed
        return False


def healthy() -> bool:
    """Whether torch still works in this thread: an interrupted capture may leave a mode on."""
    return bool(torch.allclose(torch.ones(2), torch.ones(2)))


class Sweep:
    """One operation at one place: eager's outcomes, and comparisons with them."""

    def __init__(
        self, operation: Operation, result: Result, place: str = "argument",
        between: bool = False, operands: int = 1, text: bool = False,
    ) -> None:  # fmt: skip
        self.operation = operation
        self.result = result
        self.place = place
        self.between = between
        self.text = text
        self.program = build(operation, place, between, operands)
        self._eager: dict[tuple[str, ...], Description | None] = {}
        self._wrong: dict[tuple[str, ...], Description] = {}  # what first calls answer wrongly

    def kinds(self, wanted: Iterable[Kind]) -> list[Kind]:
        """Those that this operation may be given, and with which eager is repeatable."""
        name = self.operation.name
        allowed = [
            one
            for one in wanted
            if not (self.operation.writes and one.shared) and (name, one.name) not in UNDEFINED
        ]
        return [one for one in allowed if self.eager((one,)) is not None]

    def eager(self, kinds: tuple[Kind, ...]) -> Description | None:
        """Eager's outcome; None: two runs of it differ."""
        key = tuple(one.name for one in kinds)
        if key not in self._eager:
            first, second = (self._run_eager(kinds) for _ in range(2))
            self._eager[key] = first if first == second and first != LATE else None
            if self._eager[key] is None:
                self.result.unstable.append(f"{self.operation.name} of {', '.join(key)}")
        return self._eager[key]

    def _run_eager(self, kinds: tuple[Kind, ...]) -> Description:
        got = outcome(self.program, self.program.function, kinds, self.text)
        assert not isinstance(got, Missed)
        return got

    def compile(self) -> Any:
        """A fresh compiled object; an error of our own is not hidden behind eager's answer."""
        return windfall.compile(self.program.function, backend="eager", options={"strict": True})

    def compare(
        self, compiled: Any, calls: tuple[tuple[Kind, ...], ...], how: str
    ) -> Failure | Missed | None:
        """Do the last of `calls`; the others were done."""
        expected = self.eager(calls[-1])
        if expected is None:
            return None
        before = entry_count(compiled)
        got = outcome(self.program, compiled, calls[-1], self.text)
        if isinstance(got, Missed):
            return got
        self.result.compared[how] += 1
        if got == expected:
            return None
        names = tuple(tuple(one.name for one in call) for call in calls)
        if self._wrong.get(names[-1]) == got:
            return None  # a first call says the same, and it was told
        guards = tuple(guard_texts(compiled)) if len(calls) > 1 else ()
        stale = len(calls) > 1 and entry_count(compiled) == before
        return Failure(
            self.operation.name, names, expected, got, self.place, self.between, stale, guards
        )

    def true_protocol(self, calls: tuple[tuple[Kind, ...], ...], how: str = "true") -> bool:
        """Compile anew, do all calls; the first that differs is noted. True: none did."""
        compiled = self.compile()
        for count in range(1, len(calls) + 1):
            failure = self.compare(compiled, calls[:count], how)
            if isinstance(failure, Failure):
                fresh = not failure.first and not failure.stale
                self._note(self._alone(failure, calls[count - 1]) if fresh else failure)
                return False
        return True

    def _alone(self, failure: Failure, call: tuple[Kind, ...]) -> Failure:
        """A later call that was captured anew: the same failure as of a first call, if it is."""
        found = self.compare(self.compile(), (call,), "alone")
        return found if isinstance(found, Failure) else failure

    def _note(self, failure: Failure) -> None:
        if failure.first:
            self._wrong[failure.calls[0]] = failure.got
        self.result.failures.append(failure)

    def first_calls(self, kinds: list[Kind]) -> list[Kind]:
        """Compile anew for each kind; those with which the first call is right."""
        return [one for one in kinds if self.true_protocol(((one,),), "first")]

    def row(self, before: tuple[Kind, ...], kinds: list[Kind], choice: Choice) -> None:
        """All pairs of what was called `before` and each of `kinds`."""
        earlier = tuple((one,) for one in before)
        compiled = self.compile()
        for count in range(1, len(earlier) + 1):
            failure = self.compare(compiled, earlier[:count], "warm up")
            if isinstance(failure, Failure):
                return  # its own pair tells it
        _stop_at_misses(compiled)
        chosen = random.Random(f"{self.operation.name} {[one.name for one in before]}{choice.seed}")
        doubtful = 0
        for kind in kinds:
            calls = (*earlier, (kind,))
            if chosen.random() < choice.share(before[-1], kind):
                self.true_protocol(calls)
                continue
            found = self.compare(compiled, calls, "accepted")
            if found is LATER:
                self.true_protocol(calls, "missed later")
            elif found is AT_START:
                self.result.compared["missed"] += 1
            elif isinstance(found, Failure):
                doubtful += 1
                if doubtful > CONFIRMED or self.true_protocol(calls, "confirmed"):
                    self._note(found)


@dataclass(frozen=True)
class Choice:
    """How many of the pairs take the true protocol: of those that are related, of the others."""

    close: float = 1.0
    far: float = 0.01
    seed: int = 0
    only_first: bool = False  # no pairs at all

    def share(self, one: Kind, other: Kind) -> float:
        """How likely this pair is to take it."""
        return self.close if related(one, other) else self.far


def _stop_at_misses(compiled: Any) -> None:
    """From now on `compiled` raises `Missed` where it would compile."""
    natively = compiled._natively

    def missed(found: Any, tried: Any, slots: Any) -> Any:
        if found.native:  # eager runs whatever comes
            return natively(found.point, slots)
        if isinstance(found.point, Start):
            return AT_START
        with contextlib.suppress(Exception):  # to its end: what it has entered is left
            natively(found.point, slots)
        return LATER

    compiled._missed = missed


def entry_count(compiled: Any) -> int:
    """How many entries there are, at all points."""
    return sum(len(one.entries) for one in compiled._points.values())


def guard_texts(compiled: Any) -> Iterator[str]:
    """The guards of all entries, for people."""
    for entries in compiled.entries().values():
        for entry in entries:
            for guard in entry.segment.capture.guards:
                if not _COMMON.search(str(guard)):
                    yield str(guard)


# Guards that each entry of this matrix has.
_COMMON = re.compile(r"^thread ambient|__code__ is|^globals of|^builtins")


@functools.cache
def _type_of(kind: Kind) -> type:
    return type(kind.make())


@functools.cache
def related(one: Kind, other: Kind) -> bool:
    """Of one family, or of types of which one derives from the other."""
    left, right = _type_of(one), _type_of(other)
    derived = left is not object and right is not object
    derived = derived and (issubclass(left, right) or issubclass(right, left))
    apart = one.family == other.family and one.family in _APART
    return not apart and (left is right or derived or _close(one, other))


# Families of which something is learnt (numbers, sizes, lengths), or that are small. Elsewhere a
# pair of one exact type, or of types that derive from each other, is what counts.
_CLOSE = ("int", "float", "complex", "text", "singleton", "slice", "torch", "record", "tensor")
# Nothing is learnt of these: their entries go by identity.
_APART = ("class", "function", "enum")


def _close(one: Kind, other: Kind) -> bool:
    return one.family == other.family and one.family in _CLOSE


def sweep_operation(
    sweep: Sweep, kinds: Iterable[Kind], choice: Choice | None = None, sample: int = 0
) -> None:
    """The matrix of one operation, of all these kinds or of a sample of them."""
    choice = choice or Choice()
    wanted = list(kinds)
    if 0 < sample < len(wanted):
        drawn = random.Random(f"{sweep.operation.name} {choice.seed}").sample(wanted, sample)
        wanted = [one for one in wanted if one in drawn]
    usable = sweep.kinds(wanted)
    right = sweep.first_calls(usable)
    if choice.only_first:
        return
    for kind in right:
        sweep.row((kind,), usable, choice)
    for names in WARM_UP.values():
        before = tuple(KINDS[name] for name in names)
        if len(sweep.kinds(before)) == len(before) and (sample or set(before) <= set(wanted)):
            sweep.row(before, usable, choice)


def twins() -> list[list[Kind]]:
    """Kinds of exactly the same type, of those types that have a twin."""
    found: dict[type, list[Kind]] = defaultdict(list)
    for one in KINDS.values():
        found[_type_of(one)].append(one)
    return [group for group in found.values() if any(one.family == "twin" for one in group)]


def sweep_twins(sweep: Sweep, choice: Choice | None = None) -> None:
    """Each pair of two objects of one type, of one operation: content that no guard tells apart."""
    for group in twins():
        usable = sweep.kinds(group)
        right = sweep.first_calls(usable)
        for one in right:
            twin = one.family == "twin"
            others = [other for other in usable if twin or other.family == "twin"]
            sweep.row((one,), others, choice or Choice())


def sweep_two_operands(
    result: Result, count: int, seed: int, between: bool = False, names: Iterable[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> None:  # fmt: skip
    """Pairs of pairs, drawn at random: in a third each, the left, the right or both change."""
    chosen = random.Random(seed)
    operations = [TWO_OPERANDS[name] for name in names] or list(TWO_OPERANDS.values())
    kinds = list(KINDS.values())
    share = max(1, count // len(operations))
    for operation in operations:
        sweep = Sweep(operation, result, between=between, operands=2)
        for _ in range(share):
            left, right, other_left, other_right = (chosen.choice(kinds) for _ in range(4))
            changes = chosen.choice(("left", "right", "both"))
            before = (left, right)
            after = (
                left if changes == "right" else other_left,
                right if changes == "left" else other_right,
            )
            sweep.true_protocol((before, after), "two operands")
        tell(operation.name)


def operations_named(names: Iterable[str]) -> list[Operation]:
    """By name; none given: all."""
    return [OPERATIONS[name] for name in names] or list(OPERATIONS.values())


def kinds_named(names: Iterable[str]) -> list[Kind]:
    """By name, by family, the representative ones; none given: all."""
    wanted = set(names)
    exact = set(REPRESENTATIVE) if "representative" in wanted else set()  # some name families too
    wanted.discard("representative")
    unknown = wanted - set(KINDS) - {one.family for one in KINDS.values()}
    if unknown:
        raise SystemExit(f"no such kind or family: {', '.join(sorted(unknown))}")
    everything = not wanted and not exact
    return [
        one
        for one in KINDS.values()
        if everything or one.name in exact or {one.name, one.family} & wanted
    ]
