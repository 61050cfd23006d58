"""Tensors that died, handed out again as fresh ones: memory, TensorImpl and Python object at once.

A result that crosses a break, or is saved for backward, is made and thrown away in each step. A
small one costs more to make (three allocations and a Python object that the collector counts) than
to compute. So a ring of a few such objects stays with each of these results, and the next run takes
one that nobody has any more.

Invariant: an object is taken only while the ring has the one reference to it and all words that
anything done to a tensor would change are as they were (`torch_abi.tensor_footprint`), in a thread
of the same inference mode. Everything happens under the GIL; an object that is taken is held at
once. Nothing is dropped between the reading of the inputs and the run, since dropping may run any
code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from windfall import torch_abi
from windfall.llvm import FALSE, NULL, TRUE, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import MachineCode, function

RING = Struct(torch_abi.RING_WORDS)
PLACE = Struct("object* mode ...")
STRIKES = 8  # objects in a row that were changed: their kind is not worth keeping


@contextmanager
def _each(code: MachineCode, ring: Fields) -> Iterator[Fields]:
    """A loop over the places of a ring."""
    with code.repeat(ZERO, integer(torch_abi.RING_PLACES), certain=True) as loop:
        first = code.binary("mul", loop.index, ring["size"])
        yield Fields(code, PLACE, code.element(ring.end, first, "i64"))


def _parts(code: MachineCode, object: Value, ring: Fields) -> list[tuple[Value, Value]]:
    """Where the words of a tensor's footprint stand, and how many; the last may be null."""
    tensors = code.tensors
    impl = code.field(object, tensors.handle, "ptr")
    return [
        (code.offset(object, ring["start"]), ring["before"]),
        (code.offset(object, 8), ring["object"]),
        (impl, ring["impl"]),
        (code.field(impl, tensors.storage, "ptr"), ring["storage"]),
        (code.field(impl, ring["counter"], "ptr"), ring["version"]),
    ]


@function("i1", "ptr", "ptr", "ptr")
def is_as_made(code: MachineCode, address: Value, object: Value, kept: Value) -> None:
    """Whether the words of a footprint are those that were kept. (An inference tensor has no
    counter of versions; whether there is one is told by the words of the TensorImpl.)"""
    at = kept
    for part, count in _parts(code, object, Fields(code, RING, address)):
        bytes = code.binary("mul", count, 8)
        bytes = code.select(code.is_null(part), ZERO, bytes)
        different = code.call("memcmp", "i32", part, at, bytes)
        code.require(code.equal(different, 0), FALSE)
        at = code.element(at, count, "i64")
    code.ret(TRUE)


def _mode(code: MachineCode) -> Value:
    """The thread's inference mode: what tensors that are made now are."""
    layout = code.facts.thread
    flags = code.field(code.call(torch_abi.AUTOGRAD_STATE, "ptr"), layout.flags, "i8")
    return code.binary("and", code.convert("zext", flags, "i64"), layout.inference_flag)


def _is_alone(code: MachineCode, object: Value) -> Value:
    """Whether an object has one owner."""
    return code.equal(code.load("i64", object), 1)


@function("ptr", "ptr")
def take(code: MachineCode, address: Value) -> None:
    """An object that nobody has any more, a new reference; null: there is none."""
    ring, mode = Fields(code, RING, address), _mode(code)
    with _each(code, ring) as place:
        object = place["object"]
        with code.when(code.different(object, NULL)):
            free = code.both(_is_alone(code, object), code.equal(place["mode"], mode))
            with code.when(free), code.when(is_as_made(code, address, object, place.end)):
                code.hold(object)
                ring["strikes"] = ZERO
                code.ret(object)
    code.ret(NULL)


@function("void", "ptr", "ptr")
def keep(code: MachineCode, address: Value, object: Value) -> None:
    """Remember a fresh object that no handle refers to any more, if there is a place: one that is
    free, or whose object is nobody's and was changed."""
    ring = Fields(code, RING, address)
    strikes = ring["strikes"]
    with code.when(code.compare("icmp uge", strikes, STRIKES)):
        give_up(code, address)
        code.ret()
    with _each(code, ring) as place:
        held = place["object"]

        def spent() -> Value:
            changed = code.equal(is_as_made(code, address, held, place.end), 0)
            return code.both(_is_alone(code, held), changed)

        with code.when(code.either(code.different(held, NULL), spent, TRUE)):
            code.hold(object)
            place["object"], place["mode"] = object, _mode(code)
            at = place.end
            for part, count in _parts(code, object, ring):
                with code.when(code.different(part, NULL)):
                    code.copy(at, part, count)
                at = code.element(at, count, "i64")
            with code.when(code.different(held, NULL)):
                ring["strikes"] = code.binary("add", strikes, 1)
                code.drop(held)  # which may run any code: last
            code.ret()


@function("void", "ptr")
def give_up(code: MachineCode, address: Value) -> None:
    """Let go of all objects."""
    with _each(code, Fields(code, RING, address)) as place:
        held = place["object"]
        with code.when(code.different(held, NULL)):
            place["object"] = NULL
            code.drop(held)
