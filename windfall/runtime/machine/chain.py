"""Segment after segment: what runs between two breaks of a program, where nothing is to compile.

The loop of `frontend/compiled_object.py` for the usual case: the position at which a segment ended
is known, one of its entries fits, nothing is raised. Whatever else comes up is left to that loop:
it is told where the program stands and does the rest, as if this had not been there.
"""

from __future__ import annotations

from windfall.llvm import NULL, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import MachineCode, function
from windfall.runtime.machine.builtin_bodies import block_of

# The block: the class of what a segment answers that goes on, and where that has its parts; what
# stands in place of slots that were taken; a dictionary of positions; where an item of it has its
# calls, and whether none of them does anything with tensors.
CHAIN = Struct("class* position slots taken* points* calls idle miss*")
# The list that a caller gives: where the program stands, the entry that raised and among which,
# how many segments in a row did nothing with tensors, how many may.
STANDS, RAISED, AMONG, IDLE, MOST = range(5)
_ENDLESS = integer(1 << 62)
# The block of a constructor: a class, and where its instances have their two slots.
PAIR = Struct("class* first second")


def _set_item(code: MachineCode, items: Value, place: int, object: Value) -> None:
    """Replace an item of a list by one of which the reference is given away."""
    at = code.element(items, place, "ptr")
    before = code.load("ptr", at)
    code.store(object, at)
    code.drop(before)


@function("ptr", "ptr", "ptr", "i64", "ptr", "ptr")
def first_answer(
    code: MachineCode, calls: Value, arguments: Value, count: Value, missed: Value, which: Value
) -> None:
    """What the first of these entries answers that does not miss (null: it raised); `missed`, a new
    reference, where all do. The last one that was called stands in `which`."""
    items = code.offset(calls, code.objects.tuple_items)
    with code.repeat(ZERO, code.field(calls, code.objects.size)) as loop:
        call = code.word(items, loop.index, "ptr")
        code.store(call, which)
        answer = code.vectorcall(call, arguments, count)
        with code.when(code.different(answer, missed)):
            code.ret(answer)
        code.drop(answer)
    code.hold(missed)
    code.ret(missed)


@function("void", "ptr", "ptr", "i64")
def tell(code: MachineCode, told: Value, result: Value, idle: Value) -> None:
    """Say where the program stands."""
    items = code.field(told, code.objects.list_items, "ptr")
    code.hold(result)
    _set_item(code, items, STANDS, result)
    number = code.call("PyLong_FromLongLong", "ptr", idle)
    with code.when(code.different(number, NULL)):
        _set_item(code, items, IDLE, number)


@function("void", "ptr", "ptr", "ptr")
def tell_raised(code: MachineCode, told: Value, call: Value, found: Value) -> None:
    """Say which entry raised, and of which point."""
    items = code.field(told, code.objects.list_items, "ptr")
    for place, one in ((RAISED, call), (AMONG, found)):
        code.hold(one)
        _set_item(code, items, place, one)


@function("ptr", "ptr", "ptr", "i64", name="chain", exported=True)
def chain(code: MachineCode, self: Value, arguments: Value, _: Value) -> None:
    """A builtin that goes on from what a segment answered until one returns; what it answers is
    that, or the last that goes on, where Python is to go on from it."""
    block = block_of(code, self, CHAIN)
    first, told = code.load("ptr", arguments), code.word(arguments, 1, "ptr")
    items = code.field(told, code.objects.list_items, "ptr")
    idle, _ = code.integer_of(code.word(items, IDLE, "ptr"))
    most, _ = code.integer_of(code.word(items, MOST, "ptr"))
    which = code.reserve("ptr")
    code.hold(first)
    with code.repeat(ZERO, _ENDLESS, start=[first, idle], certain=True) as loop:
        result, idle = loop.carried
        with code.when(code.different(code.type_of(result), block["class"])):
            code.ret(result)
        position = code.field(result, block["position"], "ptr")
        found = code.call("PyDict_GetItemWithError", "ptr", block["points"], position)
        with code.when(code.is_null(found)):
            tell(code, told, result, idle)
            code.ret(result)
        nothing = code.equal(
            code.field(found, block["idle"], "ptr"), code.assembly.outside("_Py_TrueStruct")
        )
        more = code.select(nothing, code.binary("add", idle, 1), ZERO)
        with code.when(code.compare("icmp sgt", more, most)):
            tell(code, told, result, idle)
            code.ret(result)
        calls = code.field(found, block["calls"], "ptr")
        code.hold(found)  # which may be forgotten meanwhile, and its calls replaced
        code.hold(calls)
        answer = one_segment(code, block.base, result, calls, which)
        with code.when(code.is_null(answer)):
            tell(code, told, result, idle)
            tell_raised(code, told, code.load("ptr", which), found)
        code.drop(calls)
        code.drop(found)
        with code.when(code.is_null(answer)):
            code.drop(result)
            code.ret(NULL)
        with code.when(code.equal(answer, block["miss"])):
            code.drop(answer)
            tell(code, told, result, idle)
            code.ret(result)
        code.drop(result)
        loop.carry(answer, more)
    code.ret(loop.results[0])


@function("ptr", "ptr", "ptr", "ptr", "ptr")
def one_segment(
    code: MachineCode, address: Value, result: Value, calls: Value, which: Value
) -> None:
    """What the segment answers at which a program stands. The slots are with the segment alone
    while it runs; they are put back where it raised, or where no entry fits."""
    block = Fields(code, CHAIN, address)
    place = code.offset(result, block["slots"])
    slots, taken = code.load("ptr", place), block["taken"]
    code.hold(taken)
    code.store(taken, place)
    given = code.offset(slots, code.objects.tuple_items)
    count = code.field(slots, code.objects.size)
    answer = first_answer(code, calls, given, count, block["miss"], which)
    undone = code.binary("or", code.is_null(answer), code.equal(answer, block["miss"]))

    def put_back() -> Value:
        code.store(slots, place)
        return taken

    code.drop(code.either(undone, put_back, slots))
    code.ret(answer)


@function("ptr", "ptr", "ptr", "i64", name="pair", exported=True)
def pair(code: MachineCode, self: Value, arguments: Value, _: Value) -> None:
    """A builtin that makes an object of two slots, as its class would."""
    block = block_of(code, self, PAIR)
    made = code.call("PyType_GenericAlloc", "ptr", block["class"], ZERO)
    code.require(code.different(made, NULL), NULL)
    for place, name in enumerate(("first", "second")):
        given = code.word(arguments, place, "ptr")
        code.hold(given)
        code.store(given, code.offset(made, block[name]))
    code.ret(made)
