"""Running a program: pointers, allocations, the step, results as Python objects."""

from __future__ import annotations

from windfall import torch_abi
from windfall.llvm import FALSE, NULL, TRUE, ZERO, Cases, Fields, Value, integer
from windfall.runtime.machine import arena, gradient_pool, recycled
from windfall.runtime.machine.arithmetic import calculate
from windfall.runtime.machine.basics import MachineCode, function
from windfall.runtime.machine.offsets import (
    ARENA_ROW,
    ERROR_ROW,
    FRESH_ROW,
    INPUT,
    INPUT_ROW,
    INPUT_VIEW,
    LEAF,
    NO_MEMORY,
    OBJECT_ROW,
    OBJECT_VIEW,
    PLAN,
    RELEASE_BYTES,
    RESULT,
    TUPLE,
    UNFIT,
)


def _quantity(row: Fields, name: str, table: Value) -> Value:
    """A number of a row: itself, or what stands at its place in the table of sizes."""
    code, here = row.code, row.at(name)
    there = code.element(table, code.load("i64", here))
    fixed = code.equal(code.word(here, 1), 0)
    return code.load("i64", code.select(fixed, here, there))


# ----------------------------------------------------------------------------- the table of sizes


def _start_table(code: MachineCode, plan: Fields, table: Value) -> None:
    """The table of sizes as it starts; the symbols' values are to be stored at their places."""
    code.copy(table, plan["table"], plan["table_words"])


def _set_symbol(code: MachineCode, plan: Fields, table: Value, index: Value, value: Value) -> None:
    place = code.word(plan["symbol_places"], index)
    code.store(value, code.element(table, place))


def _finish_table(code: MachineCode, plan: Fields, table: Value) -> Value:
    """All that follows from the symbols' values; false: some of it has no value."""
    base = code.convert("ptrtoint", table, "i64")
    return calculate(code, base, plan["instruction_rows"], plan["instructions"])


@function("i1", "ptr", "ptr", "ptr")
def table_of_cells(code: MachineCode, address: Value, table: Value, cells: Value) -> None:
    """The table of sizes for symbols that stand in cells; false: some of it has no value."""
    plan = Fields(code, PLAN, address)
    _start_table(code, plan, table)
    with code.repeat(ZERO, plan["symbols"]) as loop:
        value = code.load("i64", code.word(cells, loop.index, "ptr"))
        _set_symbol(code, plan, table, loop.index, value)
    code.ret(_finish_table(code, plan, table))


@function("i1")
def too_large(code: MachineCode) -> None:
    """Set an exception; the answer is false."""
    code.raise_error("OverflowError", "a size of a compiled graph does not fit 64 bits")
    code.ret(FALSE)


@function("i1", "ptr", "ptr", "ptr")
def table_of_objects(code: MachineCode, address: Value, table: Value, objects: Value) -> None:
    """The table of sizes for symbols that are Python integers; false: an exception is set."""
    plan = Fields(code, PLAN, address)
    _start_table(code, plan, table)

    with code.repeat(ZERO, plan["symbols"]) as loop:
        value, fits = code.integer_of(code.word(objects, loop.index, "ptr"))
        with code.when(code.equal(fits, 0)):
            code.ret(too_large(code))
        with code.when(code.equal(value, -1)):
            code.require(code.is_null(code.call("PyErr_Occurred", "ptr")), FALSE)
        _set_symbol(code, plan, table, loop.index, value)
    done = _finish_table(code, plan, table)
    code.ret(code.either(code.equal(done, 0), lambda: too_large(code), TRUE))


# --------------------------------------------------------------------------------------- buffers


@function("ptr", "ptr", "i64")
def data_of(code: MachineCode, handle: Value, item: Value) -> None:
    """The address of a tensor's first element, given the bytes of an element."""
    tensors = code.tensors
    impl = code.load("ptr", handle)
    storage = code.field(impl, tensors.storage, "ptr")
    with code.when(code.different(code.field(storage, tensors.storage_check, "i8"), 0)):
        slot = code.reserve("ptr")
        code.store(NULL, slot)
        code.call("aoti_torch_get_data_ptr", "i32", handle, slot)
        code.ret(code.load("ptr", slot))
    data = code.field(storage, tensors.storage_data, "ptr")
    start = code.element(data, code.binary("mul", code.field(impl, tensors.storage_offset), item))
    code.ret(code.select(code.is_null(data), NULL, start))


def _shape(row: Fields, table: Value) -> tuple[Value, Value]:
    """Where the sizes and the strides of a row stand: fixed, or in the table of sizes."""
    code = row.code
    base = code.select(code.equal(row["varies"], 0), NULL, table)
    start = code.convert("ptrtoint", base, "i64")
    sizes, strides = (
        code.convert("inttoptr", code.binary("add", start, row[name]), "ptr")
        for name in ("sizes", "strides")
    )
    return sizes, strides


@function("i1", "ptr", "ptr", "ptr")
def is_fit(code: MachineCode, object: Value, address: Value, table: Value) -> None:
    """Whether a tensor is what a row says: memory that may be read as it lies, of this dtype, sizes
    and strides (of a dimension that has but one element, or in no elements at all, any stride)."""
    row, layout = Fields(code, INPUT_ROW, address), code.tensors
    impl = code.field(object, layout.handle, "ptr")
    others = code.binary("and", code.field(impl, layout.key_set), ~torch_abi.plain_keys())
    rank = row["rank"]
    for have, want in (
        (others, ZERO),
        (code.convert("zext", code.field(impl, layout.dtype, "i16"), "i64"), row["dtype"]),
        (code.field(impl, layout.rank), rank),
    ):
        code.require(code.equal(have, want), FALSE)
    inside = code.offset(impl, layout.rank + 8)
    near = code.compare("icmp ule", rank, layout.inline_dims)
    shape = code.select(near, inside, code.load("ptr", inside))
    steps = code.element(shape, code.select(near, integer(layout.inline_dims), rank), "i64")
    sizes, strides = _shape(row, table)
    some = code.different(_quantity(row, "elements", table), 0)
    with code.repeat(ZERO, rank) as loop:
        size = code.word(sizes, loop.index)
        code.require(code.equal(code.word(shape, loop.index), size), FALSE)
        counts = code.both(code.different(size, 1), some)
        other = code.different(code.word(steps, loop.index), code.word(strides, loop.index))
        code.require(code.equal(code.both(counts, other), 0), FALSE)
    code.ret(TRUE)


@function("void", "ptr", "i32")
def fail(code: MachineCode, address: Value, number: Value) -> None:
    """Set the exception that an error of the program stands for."""
    plan = Fields(code, PLAN, address)
    wide = code.convert("sext", number, "i64")
    with (
        code.each(plan["error_rows"], plan["errors"], ERROR_ROW) as (_, row),
        code.when(code.equal(row["code"], wide)),
    ):
        code.call("PyErr_SetString", "void", row["class"], row["text"])
        code.ret()
    code.call("PyErr_SetString", "void", plan["other_error"], plan["other_text"])


@function("i1", "ptr", "ptr", "ptr", "ptr")
def fill_inputs(
    code: MachineCode, address: Value, tensors: Value, table: Value, buffers: Value
) -> None:
    """Where the inputs stand; false: an exception is set."""
    plan = Fields(code, PLAN, address)
    with code.each(plan["input_rows"], plan["inputs"], INPUT_ROW) as (_, row):
        item = row["item"]
        elements = _quantity(row, "elements", table)
        object = code.word(tensors, row["position"], "ptr")
        checked = code.different(row["checked"], 0)
        fit = code.either(checked, lambda: is_fit(code, object, row.base, table), TRUE)
        with code.when(code.equal(fit, 0)):
            code.call("PyErr_SetString", "void", plan["unfit"], code.assembly.string(UNFIT))
            code.ret(FALSE)
        data = code.either(
            code.equal(item, 0),
            # A Python float is read where it stands.
            lambda: code.offset(object, code.objects.float_value),
            lambda: data_of(code, code.offset(object, code.tensors.handle), item),
        )
        with code.when(code.both(code.is_null(data), code.different(elements, 0))):
            code.raise_error("RuntimeError", "an input of the graph has no storage")
            code.ret(FALSE)
        code.store(data, code.element(buffers, row["buffer"], "ptr"))
    code.ret(TRUE)


@function("i1", "ptr", "ptr", "ptr", "ptr", "ptr")
def fill_fresh(
    code: MachineCode,
    address: Value,
    handles: Value,
    table: Value,
    buffers: Value,
    places: Value,
) -> None:
    """Memory for results: that of `places`, where a tensor stands there, else that of an object
    that died, or memory that was kept, else fresh; false: an exception is set."""
    plan = Fields(code, PLAN, address)
    none = code.assembly.outside("_Py_NoneStruct")
    with code.each(plan["fresh_rows"], plan["fresh"], FRESH_ROW) as (index, row):
        rank, dtype = row["rank"], row["dtype"]
        sizes, strides = _shape(row, table)
        slot = code.element(handles, index, "ptr")
        bytes = _quantity(row, "bytes", table)
        keep = code.different(row["keep"], 0)
        shape = (rank, sizes, strides)
        placed = code.different(places, NULL)
        place = code.either(placed, lambda: code.word(places, index, "ptr"), none)
        fresh = code.equal(place, none)
        ring = row["ring"]
        rings = code.both(fresh, code.different(ring, NULL))
        object = code.either(rings, lambda: recycled.take(code, ring), NULL)
        code.store(object, _recycled(code, plan, handles, index))
        missing = code.is_null(object)
        again = code.both(fresh, keep, missing)
        found = code.either(
            again, lambda: gradient_pool.take(code, bytes, dtype, *shape, slot), FALSE
        )
        with code.when(code.both(missing, code.equal(found, 0))):

            def allocated() -> Value:
                zero, short = integer(0, "i32"), code.convert("trunc", dtype, "i32")
                return code.call("aoti_torch_empty_strided", "i32", *shape, short, zero, zero, slot)

            def given() -> Value:
                held = code.offset(place, code.tensors.handle)
                return code.call("aoti_torch_new_tensor_handle", "i32", held, slot)

            failed = code.either(fresh, allocated, given)
            with code.when(code.different(failed, 0)):
                code.store(NULL, slot)
                fail(code, plan.base, integer(NO_MEMORY, "i32"))
                code.ret(FALSE)
            with code.when(again):
                gradient_pool.add(code, code.load("ptr", slot), bytes, dtype, *shape)
        inside = code.offset(object, code.tensors.handle)
        handle = code.select(missing, code.load("ptr", slot), inside)
        data = data_of(code, handle, row["item"])
        code.store(data, code.element(buffers, row["buffer"], "ptr"))
    code.ret(TRUE)


def _recycled(code: MachineCode, plan: Fields, handles: Value, index: Value) -> Value:
    """Where a recycled object stands, if a result is one: behind all handles."""
    return code.element(handles, code.binary("add", plan["fresh"], index), "ptr")


@function("void", "ptr", "ptr", "ptr")
def recycle(code: MachineCode, address: Value, handles: Value, objects: Value) -> None:
    """Remember fresh results that are to be recycled, once nothing but their objects has them."""
    plan = Fields(code, PLAN, address)
    with code.each(plan["object_rows"], plan["objects"], OBJECT_ROW) as (at, row):
        index, object = row["index"], code.word(objects, at, "ptr")
        made = code.equal(row["kind"], RESULT)
        with code.when(code.both(made, code.different(object, NULL))):
            first = code.binary("mul", index, FRESH_ROW.size)
            fresh = Fields(code, FRESH_ROW, code.element(plan["fresh_rows"], first, "i64"))
            ring = fresh["ring"]
            new = code.is_null(code.load("ptr", _recycled(code, plan, handles, index)))
            with code.when(code.both(new, code.different(ring, NULL))):
                recycled.keep(code, ring, object)


@function("void", "ptr", "ptr", "ptr", "ptr")
def fill_arena(
    code: MachineCode, address: Value, block: Value, table: Value, buffers: Value
) -> None:
    """Where intermediate values stand."""
    plan = Fields(code, PLAN, address)
    with code.each(plan["arena_rows"], plan["arena_count"], ARENA_ROW) as (_, row):
        data = code.element(block, _quantity(row, "offset", table))
        code.store(data, code.element(buffers, row["buffer"], "ptr"))


# ----------------------------------------------------------------------------------- the program


@function("void", "ptr", "ptr", "ptr")
def each_input(code: MachineCode, address: Value, tensors: Value, function: Value) -> None:
    """Call a function with each input."""
    plan = Fields(code, PLAN, address)
    with code.each(plan["input_rows"], plan["inputs"], INPUT_ROW) as (_, row):
        code.call(function, "void", code.word(tensors, row["position"], "ptr"))


@function("i32", "ptr", "ptr", "ptr", "ptr", "i1")
def work(
    code: MachineCode,
    address: Value,
    tensors: Value,
    table: Value,
    buffers: Value,
    release: Value,
) -> None:
    """The program's own code, without the GIL if that is to be released."""
    function = Fields(code, PLAN, address)["step"]
    with code.when(release):
        # Another thread may drop an input meanwhile: hold them.
        each_input(code, address, tensors, code.assembly.declare("Py_IncRef", "void", ["ptr"]))
        thread = code.call("PyEval_SaveThread", "ptr")
        answer = code.call(function, "i32", buffers, table)
        code.call("PyEval_RestoreThread", "void", thread)
        code.ret(answer)
    code.ret(code.call(function, "i32", buffers, table))


# --------------------------------------------------------------------------------------- results


@function("ptr", "ptr", "i64")
def int_tuple(code: MachineCode, numbers: Value, rank: Value) -> None:
    """A tuple of integers, a new reference."""
    tuple = code.call("PyTuple_New", "ptr", rank)
    code.require(code.different(tuple, NULL), NULL)
    with code.repeat(ZERO, rank) as loop:
        number = code.call("PyLong_FromLongLong", "ptr", code.word(numbers, loop.index))
        with code.when(code.is_null(number)):
            code.drop(tuple)
            code.ret(NULL)
        code.call("PyTuple_SetItem", "i32", tuple, loop.index, number)
    code.ret(tuple)


@function("ptr", "ptr", "i64", "ptr")
def shape_of(code: MachineCode, address: Value, word: Value, table: Value) -> None:
    """Sizes or strides of a row as a tuple, a new reference: one that the plan has, or from the
    table."""
    row = Fields(code, OBJECT_ROW, address)
    with code.when(code.equal(row["varies"], 0)):
        tuple = code.convert("inttoptr", word, "ptr")
        code.hold(tuple)
        code.ret(tuple)
    code.ret(int_tuple(code, code.element(table, word), row["rank"]))


@function("ptr", "ptr", "ptr", "ptr", "i64", "ptr")
def view(
    code: MachineCode, address: Value, base: Value, row: Value, offset: Value, table: Value
) -> None:
    """A view of a tensor with the shape of a row; null: an exception is set."""
    fields = Fields(code, OBJECT_ROW, row)
    given = [
        base,
        shape_of(code, row, fields["sizes"], table),
        shape_of(code, row, fields["strides"], table),
        code.call("PyLong_FromLongLong", "ptr", offset),
    ]
    arguments = code.reserve("[4 x ptr]")
    for place, one in enumerate(given):
        code.store(one, code.element(arguments, place, "ptr"))
    made = code.both(*(code.different(one, NULL) for one in given))
    method = Fields(code, PLAN, address)["as_strided"]
    result = code.either(made, lambda: code.vectorcall(method, arguments, 4), NULL)
    for one in given[1:]:
        with code.when(code.different(one, NULL)):
            code.drop(one)
    code.ret(result)


@function("i1", "ptr", "ptr", "ptr", "ptr", "ptr")
def make_objects(
    code: MachineCode,
    address: Value,
    tensors: Value,
    handles: Value,
    table: Value,
    objects: Value,
) -> None:
    """The Python objects of a run; false: an exception is set."""
    plan = Fields(code, PLAN, address)
    rows, count = plan["object_rows"], plan["objects"]
    # Wrapping may run the collector, hence any code: first hold the inputs that are still needed.
    with code.each(rows, count, OBJECT_ROW) as (index, row):
        kind = row["kind"]
        is_input = code.equal(kind, INPUT)
        with code.when(code.binary("or", is_input, code.equal(kind, INPUT_VIEW))):
            object = code.word(tensors, row["index"], "ptr")
            code.hold(object)
            code.store(object, code.element(objects, index, "ptr"))
    with code.each(rows, count, OBJECT_ROW) as (index, row):
        slot = code.element(objects, index, "ptr")
        made = _made_object(code, plan.base, row, handles, table, objects, slot)
        code.store(made, slot)
        code.require(code.different(made, NULL), FALSE)
    code.ret(TRUE)


def _made_object(
    code: MachineCode,
    plan: Value,
    row: Fields,
    handles: Value,
    table: Value,
    objects: Value,
    slot: Value,
) -> Value:
    def nothing() -> Value:
        none = code.assembly.outside("_Py_NoneStruct")
        code.hold(none)
        return none

    def view_of(base: Value) -> Value:
        """Inputs and tensors of the caller's may begin anywhere in their storage."""
        impl = code.field(base, code.tensors.handle, "ptr")
        start = code.field(impl, code.tensors.storage_offset)
        return view(code, plan, base, row.base, code.binary("add", start, offset), table)

    def input_view() -> Value:
        base = code.load("ptr", slot)
        seen = view_of(base)
        code.drop(base)
        return seen

    def object_view() -> Value:
        return view_of(code.word(objects, row["index"], "ptr"))

    def wrapped() -> Value:
        index = row["index"]
        ready = code.load("ptr", _recycled(code, Fields(code, PLAN, plan), handles, index))

        def held() -> Value:
            code.hold(ready)
            return ready

        def made() -> Value:
            return code.call(torch_abi.WRAP, "ptr", code.word(handles, index, "ptr"))

        return code.either(code.different(ready, NULL), held, made)

    offset = _quantity(row, "offset", table)
    cases: Cases = {
        (INPUT,): lambda: code.load("ptr", slot),
        (INPUT_VIEW,): input_view,
        (RESULT,): wrapped,
        (OBJECT_VIEW,): object_view,
    }
    return code.switch(row["kind"], cases, nothing)


@function("ptr", "ptr", "ptr")
def structure(code: MachineCode, address: Value, objects: Value) -> None:
    """What a run returns, a new reference."""
    plan = Fields(code, PLAN, address)
    kind, count, order = plan["structure"], plan["order_count"], plan["order"]

    def item(index: Value) -> Value:
        object = code.word(objects, code.word(order, index), "ptr")
        code.hold(object)
        return object

    def tuple_or_list(name: str, result: str, *parameters: str) -> Value:
        declare = code.assembly.declare
        both = (declare(f"{kind}_{name}", result, parameters) for kind in ("PyTuple", "PyList"))
        return code.select(code.equal(kind, TUPLE), *both)

    with code.when(code.equal(kind, LEAF)):
        code.ret(item(ZERO))
    whole = code.call(tuple_or_list("New", "ptr", "i64"), "ptr", count)
    code.require(code.different(whole, NULL), NULL)
    put = tuple_or_list("SetItem", "i32", "ptr", "i64", "ptr")
    with code.repeat(ZERO, count) as loop:
        code.call(put, "i32", whole, loop.index, item(loop.index))
    code.ret(whole)


# ------------------------------------------------------------------------------------- all of it


@function("ptr", "ptr", "ptr", "ptr", "ptr", "ptr", "ptr", "ptr", "ptr")
def run(
    code: MachineCode,
    address: Value,
    tensors: Value,
    table: Value,
    buffers: Value,
    handles: Value,
    objects: Value,
    given: Value,
    places: Value,
) -> None:
    """Everything between what `execute` takes and gives back."""
    plan = Fields(code, PLAN, address)

    def wrap() -> Value:
        made = make_objects(code, address, tensors, handles, table, objects)
        return code.either(made, lambda: structure(code, address, objects), NULL)

    def failed(number: Value) -> Value:
        fail(code, address, number)
        return NULL

    code.require(fill_inputs(code, address, tensors, table, buffers), NULL)
    code.require(fill_fresh(code, address, handles, table, buffers, places), NULL)
    with code.when(code.is_null(plan["step"])):
        code.ret(wrap())
    bytes = _quantity(plan, "arena_bytes", table)
    wants = code.different(bytes, 0)
    own = code.both(wants, code.is_null(given))
    block = code.either(own, lambda: arena.take(code, bytes), given)
    with code.when(wants):
        with code.when(code.is_null(block)):
            code.ret(failed(integer(NO_MEMORY, "i32")))
        fill_arena(code, address, block, table, buffers)
    release = code.compare("icmp sge", _quantity(plan, "touched", table), RELEASE_BYTES)
    status = work(code, address, tensors, table, buffers, release)
    with code.when(own):
        arena.give(code, block)
    result = code.either(code.equal(status, 0), wrap, lambda: failed(status))
    with code.when(release):
        each_input(code, address, tensors, code.assembly.declare("Py_DecRef", "void", ["ptr"]))
    code.ret(result)


@function("ptr", "ptr", "ptr", "ptr", "ptr", "ptr")
def execute(
    code: MachineCode, address: Value, tensors: Value, table: Value, block: Value, places: Value
) -> None:
    """Run a plan on the tensors of its inputs, with the table of its sizes, in an arena (null: one
    of the owner's), with memory for its results (null: as it was bound); the answer is a new
    reference, or null and an exception."""
    plan = Fields(code, PLAN, address)
    counts = [plan[name] for name in ("buffers", "fresh", "objects")]
    both = code.binary("mul", counts[1], 2)  # handles, then recycled objects
    buffers, handles, objects = map(code.reserve_words, (counts[0], both, counts[2]))
    code.copy(buffers, plan["template"], counts[0])
    code.clear(handles, both)
    code.clear(objects, counts[2])
    result = run(code, address, tensors, table, buffers, handles, objects, block, places)
    for row, count, symbol, answer in (
        (handles, counts[1], "aoti_torch_delete_tensor_object", "i32"),
        (code.element(handles, counts[1], "ptr"), counts[1], "Py_DecRef", "void"),
        (objects, counts[2], "Py_DecRef", "void"),
    ):
        if row is objects:
            with code.when(
                code.both(code.different(result, NULL), code.different(plan["rings"], 0))
            ):
                recycle(code, address, handles, objects)
        with code.repeat(ZERO, count) as loop:
            held = code.word(row, loop.index, "ptr")
            with code.when(code.different(held, NULL)):
                code.call(symbol, answer, held)
    gradient_pool.sweep(code)
    code.ret(result)
