"""Memory of large gradients, kept from one backward pass to the next.

A step of training throws the gradients away and makes new ones of the same sizes. Memory that goes
back to the system in between (the C library gives back what is large, or what lies at the top of
its heap) is faulted in again page by page: for BERT with four layers 50,000 faults, a fifth of the
step. So a second handle on the storage of each large result of a backward pass stays in a table;
when nobody else holds that storage any more, the next result of this size takes it.

Invariant: a storage is taken only while this table holds the only reference to it, and only where
it is what it was (it was not resized, nor moved to shared memory). Everything happens under the
GIL. What has not been used for a while is given back at the next call of any compiled function, and
all of it with the last function that could use it (`kept.trim`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from windfall.llvm import FALSE, NULL, TRUE, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import MachineCode, function
from windfall.torch_abi import StorageCount

PLACES = 512
SMALLEST = 1 << 20  # bytes
PATIENCE = 1 << 36  # cycles of the processor's clock, some twenty seconds
PAUSE = 1 << 33  # between two looks at what is idle
PLACE = Struct("handle* data* bytes dtype seen")  # `seen`: when it was last in use


def _some(code: MachineCode) -> Value:
    """How many places are filled."""
    return code.assembly.variable("gradient_pool.some", "i64")


def _add_to(code: MachineCode, address: Value, number: int) -> None:
    code.store(code.binary("add", code.load("i64", address), number), address)


def _now(code: MachineCode) -> Value:
    return code.call("llvm.readcyclecounter", "i64")


def _table(code: MachineCode) -> Value:
    return code.assembly.variable("gradient_pool", f"[{PLACES * PLACE.size} x i64]")


def _place(code: MachineCode, index: Value) -> Fields:
    first = code.binary("mul", index, PLACE.size)
    return Fields(code, PLACE, code.element(_table(code), first, "i64"))


@function("ptr", exported=True)
def places(code: MachineCode) -> None:
    """Where the table stands."""
    code.ret(_table(code))


def _storage(code: MachineCode, place: Fields) -> Value:
    return code.field(code.load("ptr", place["handle"]), code.tensors.storage, "ptr")


@contextmanager
def _each(code: MachineCode) -> Iterator[Fields]:
    """A loop over the places that are filled."""
    with code.repeat(ZERO, integer(PLACES), certain=True) as loop:
        place = _place(code, loop.index)
        with code.when(code.different(place["handle"], NULL)):
            yield place


def _others(code: MachineCode, place: Fields, count: StorageCount) -> Value:
    """How often somebody else has the storage. Below 0: it is counted in a way of which we know
    nothing (Python has an object for it)."""
    at = code.offset(_storage(code, place), count.offset)
    counted = code.write(f"load atomic i64, ptr {at.text} acquire, align 8", "i64")
    more = code.binary("sub", counted, count.sole)
    return code.select(code.compare("icmp ult", more, 1 << 20), more, integer(-1))


@function("void", "ptr")
def drop(code: MachineCode, address: Value) -> None:
    """Forget what a place holds."""
    place = Fields(code, PLACE, address)
    handle = place["handle"]
    place["handle"] = NULL
    _add_to(code, _some(code), -1)
    code.call("aoti_torch_delete_tensor_object", "i32", handle)


def _share(code: MachineCode, handle: Value, shape: Sequence[Value], slot: Value) -> Value:
    """Another tensor over the memory of one, put into a slot; whether that went well."""
    name = "aoti_torch__reinterpret_tensor"
    return code.equal(code.call(name, "i32", handle, *shape, ZERO, slot), 0)


@function("i1", "i64", "i64", "i64", "ptr", "ptr", "ptr")
def take(code: MachineCode, bytes: Value, dtype: Value, *rest: Value) -> None:
    """A tensor over memory that was kept, put into a slot; false: there is none."""
    *shape, slot = rest
    count = code.facts.storage_count
    if count is None:
        code.ret(FALSE)
        return
    with _each(code) as place:
        same = code.both(code.equal(place["bytes"], bytes), code.equal(place["dtype"], dtype))
        with code.when(same):
            others = _others(code, place, count)
            with code.when(code.equal(others, 0)):
                storage = _storage(code, place)
                plain = code.equal(code.field(storage, code.tensors.storage_check, "i8"), 0)
                data = code.field(storage, code.tensors.storage_data, "ptr")
                with code.when(code.both(plain, code.equal(data, place["data"]))):
                    code.require(_share(code, place["handle"], shape, slot), FALSE)
                    place["seen"] = _now(code)
                    code.ret(TRUE)
            with code.when(code.compare("icmp sle", others, 0)):
                drop(code, place.base)
    code.ret(FALSE)


@function("void", "ptr", "i64", "i64", "i64", "ptr", "ptr")
def add(code: MachineCode, handle: Value, bytes: Value, dtype: Value, *shape: Value) -> None:
    """Remember the memory of a fresh result, if there is a place."""
    if code.facts.storage_count is None:
        return
    with code.repeat(ZERO, integer(PLACES), certain=True) as loop:
        place = _place(code, loop.index)
        with code.when(code.is_null(place["handle"])):
            with code.when(code.binary("xor", _share(code, handle, shape, place.at("handle")), 1)):
                place["handle"] = NULL
                code.ret()
            _add_to(code, _some(code), 1)
            place["data"] = code.field(_storage(code, place), code.tensors.storage_data, "ptr")
            place["bytes"], place["dtype"], place["seen"] = bytes, dtype, _now(code)
            code.ret()


@function("void")
def sweep(code: MachineCode) -> None:
    """Give back what has been idle for long."""
    count = code.facts.storage_count
    if count is None:
        return
    with code.when(code.equal(code.load("i64", _some(code)), 0)):
        code.ret()
    now, looked = _now(code), code.assembly.variable("gradient_pool.looked", "i64")
    since = code.binary("sub", now, code.load("i64", looked))
    with code.when(code.compare("icmp ugt", since, PAUSE)):
        code.store(now, looked)
        with _each(code) as place:
            others = _others(code, place, count)
            with code.when(code.compare("icmp sgt", others, 0)):
                place["seen"] = now
            age = code.binary("sub", now, place["seen"])
            old = code.compare("icmp ugt", age, PATIENCE)
            unknown = code.compare("icmp slt", others, 0)
            with code.when(code.binary("or", old, unknown)):
                drop(code, place.base)


@function("i64", exported=True)
def trim(code: MachineCode) -> None:
    """Give everything back; the answer is how many bytes that was."""
    if code.facts.storage_count is None:
        code.ret(ZERO)
        return
    freed = code.reserve("i64")
    code.store(ZERO, freed)
    with _each(code) as place:
        code.store(code.binary("add", code.load("i64", freed), place["bytes"]), freed)
        drop(code, place.base)
    code.ret(code.load("i64", freed))
