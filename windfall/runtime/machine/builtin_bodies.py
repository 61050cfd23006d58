"""The bodies of builtins: a check, an entry, a bound program, a dispatcher."""

from __future__ import annotations

from collections.abc import Callable

from windfall.llvm import FALSE, NULL, TRUE, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import HOLDS, MISS, MachineCode, function
from windfall.runtime.machine.execute import execute, table_of_cells, table_of_objects
from windfall.runtime.machine.offsets import BLOCK, DISPATCHER, PLAN

RAISED = integer(2, "i32")
TRIES = 10_000  # of a check that asks to be started again


def block_of(code: MachineCode, self: Value, struct: Struct) -> Fields:
    """The table of a builtin: its `__self__` is a tuple, the first item of which owns it."""
    holder = code.field(self, code.objects.tuple_items, "ptr")
    inside = code.field(holder, code.objects.structure_data, "ptr")
    return Fields(code, struct, code.load("ptr", inside))


@function("i1", "ptr", "ptr")
def holds(code: MachineCode, address: Value, arguments: Value) -> None:
    """Whether all records of a check hold."""
    block = Fields(code, BLOCK, address)
    slots, cells, start = block["slots"], block["slot_cells"], block["start"]
    step = code.load("ptr", start)
    with code.repeat(ZERO, integer(TRIES), certain=True):
        code.copy(cells, arguments, slots)
        answer = code.call(step, "i32", start, arguments)
        code.require(code.different(answer, HOLDS), TRUE)
        code.require(code.different(answer, MISS), FALSE)
    code.ret(FALSE)


@function("i32", "ptr", "ptr", "i64")
def passes(code: MachineCode, address: Value, arguments: Value, count: Value) -> None:
    """Whether a check holds, its Python part too: 0 miss, 1 holds, 2 an exception that is none of
    ours (an interrupt) is to be raised."""
    block = Fields(code, BLOCK, address)
    code.check(code.equal(block["slots"], count))
    code.check(holds(code, address, arguments))
    rest = block["rest"]
    code.require(code.different(rest, NULL), HOLDS)
    answer = code.vectorcall(rest, arguments, count)
    code.require(code.different(answer, NULL), RAISED)
    code.drop(answer)
    code.check(code.equal(answer, code.assembly.outside("_Py_TrueStruct")))
    # Python ran in between: what the cells point to may be gone, so all is read again.
    code.check(holds(code, address, arguments))
    code.ret(HOLDS)


@function("ptr", "ptr", "ptr", "i64", name="check", exported=True)
def check(code: MachineCode, self: Value, arguments: Value, count: Value) -> None:
    """A builtin that is only a check."""
    state = passes(code, block_of(code, self, BLOCK).base, arguments, count)
    code.require(code.different(state, RAISED), NULL)
    true, false = (code.assembly.outside(f"_Py_{name}Struct") for name in ("True", "False"))
    answer = code.select(code.equal(state, HOLDS), true, false)
    code.hold(answer)
    code.ret(answer)


def _sizes(
    code: MachineCode, plan: Fields, fill: Callable[[Value], Value], failed: Callable[[], Value]
) -> Value:
    """The table of sizes of a call; null where nothing varies."""

    def made() -> Value:
        table = code.reserve_words(words)
        with code.when(code.equal(fill(table), 0)):
            code.ret(failed())
        return table

    words = plan["table_words"]
    return code.either(code.different(words, 0), made, NULL)


@function("ptr", "ptr", "ptr", "i64", name="entry", exported=True)
def entry(code: MachineCode, self: Value, arguments: Value, count: Value) -> None:
    """A builtin that checks, then runs its program or calls its Python function."""
    block = block_of(code, self, BLOCK)

    def miss() -> Value:
        missed = block["miss"]
        code.hold(missed)
        return missed

    state = passes(code, block.base, arguments, count)
    code.require(code.different(state, RAISED), NULL)
    with code.when(code.equal(state, MISS)):
        code.ret(miss())
    clock = block["clock"]
    now = code.binary("add", code.load("i64", clock), 1)
    code.store(now, clock)
    code.store(now, block["last"])
    plan = Fields(code, PLAN, block["plan"])
    with code.when(code.is_null(plan.base)):
        code.ret(code.vectorcall(block["body"], arguments, count))
    inputs, cells = block["input_count"], block["input_cells"]
    tensors = code.reserve_words(inputs)
    with code.repeat(ZERO, inputs) as loop:
        tensor = code.load("ptr", code.word(cells, loop.index, "ptr"))
        code.store(tensor, code.element(tensors, loop.index, "ptr"))

    def fill(table: Value) -> Value:
        return table_of_cells(code, plan.base, table, block["symbol_cells"])

    # What has no value in 64 bits is left to another entry.
    code.ret(execute(code, plan.base, tensors, _sizes(code, plan, fill, miss), NULL, NULL))


def _run(
    code: MachineCode, block: Fields, arguments: Value, count: Value, arena: Value, places: Value
) -> None:
    """A program, of the values of its symbols and its inputs."""
    with code.when(code.different(block["slots"], count)):
        code.raise_error("TypeError", "a compiled graph got another number of inputs")
        code.ret(NULL)
    plan = Fields(code, PLAN, block["plan"])

    def fill(table: Value) -> Value:
        return table_of_objects(code, plan.base, table, arguments)

    table = _sizes(code, plan, fill, lambda: NULL)
    tensors = code.element(arguments, plan["symbols"], "ptr")
    code.ret(execute(code, plan.base, tensors, table, arena, places))


@function("ptr", "ptr", "ptr", "i64", name="run", exported=True)
def run(code: MachineCode, self: Value, arguments: Value, count: Value) -> None:
    """A builtin that is a program."""
    _run(code, block_of(code, self, BLOCK), arguments, count, NULL, NULL)


@function("ptr", "ptr", "ptr", "i64", name="run_placed", exported=True)
def run_placed(code: MachineCode, self: Value, arguments: Value, count: Value) -> None:
    """A program whose first two arguments are the address of an arena, and a tuple of tensors (or
    None) for its results."""
    address, _ = code.integer_of(code.load("ptr", arguments))
    places = code.offset(code.word(arguments, 1, "ptr"), code.objects.tuple_items)
    rest, fewer = code.element(arguments, 2, "ptr"), code.binary("sub", count, 2)
    arena = code.convert("inttoptr", address, "ptr")
    _run(code, block_of(code, self, BLOCK), rest, fewer, arena, places)


@function("ptr", "ptr", "ptr", "i64", "ptr")
def try_entries(
    code: MachineCode, address: Value, arguments: Value, count: Value, missed: Value
) -> None:
    """What the first entry that does not miss answers; else `missed`, a borrowed reference."""
    block = Fields(code, DISPATCHER, address)
    entries = block["entries"]
    code.hold(entries)
    with code.repeat(ZERO, code.field(entries, code.objects.size)) as loop:
        items = code.offset(entries, code.objects.tuple_items)
        answer = code.vectorcall(code.word(items, loop.index, "ptr"), arguments, count)
        with code.when(code.different(answer, missed)):
            with code.when(code.is_null(answer)):
                # A graph that came to no end is the slow path's to begin again.
                ours = code.call("PyErr_ExceptionMatches", "i32", block["failed"])
                with code.when(code.different(ours, 0)):
                    code.call("PyErr_Clear", "void")
                    code.drop(entries)
                    code.ret(missed)
            code.drop(entries)
            code.ret(answer)
        code.drop(answer)
    code.drop(entries)
    code.ret(missed)


@function("ptr", "ptr", "ptr", "i64", "ptr", name="dispatch", exported=True)
def dispatch(code: MachineCode, self: Value, arguments: Value, count: Value, names: Value) -> None:
    """A builtin that tries its entries in turn, then calls the slow path."""
    block = block_of(code, self, DISPATCHER)
    usual = code.equal(code.load("i64", block["asked"]), 0)
    with code.when(code.both(code.is_null(names), usual)):
        missed = block["no_entry"]
        answer = try_entries(code, block.base, arguments, count, missed)
        with code.when(code.different(answer, missed)):
            code.ret(answer)
    slow = block["slow"]
    code.hold(slow)
    result = code.vectorcall(slow, arguments, count, names)
    code.drop(slow)
    code.ret(result)
