"""The steps of a check that look at tensors: one for sizes kept inside of it, one for more, one
that leaves sizes to `dimensions`, which reads them as numbers, and one that compares where tensors
lie."""

from __future__ import annotations

from windfall import torch_abi
from windfall.llvm import NULL, TRUE, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import HOLDS, MachineCode, function, step
from windfall.runtime.machine.execute import data_of

RECORD = "object* wanted*"
# What is wanted, which tensors that are alike share. There follow, for `tensor`, all the inline
# sizes and strides and masks of those that count; for `large_tensor`, as many sizes, then strides,
# as the rank says.
WANTED = Struct("class* keys dtype rank requires_grad ...")
DIMENSION_ROW = Struct("place target* least greatest")
TENSOR_ROW = Struct("object* item span*")
SPAN = Struct("start end index")


@step(RECORD)
def tensor(code: MachineCode, record: Fields) -> None:
    """A tensor that keeps its sizes inside."""
    object, wanted = code.value(record), Fields(code, WANTED, record["wanted"])
    impl = _check_metadata(code, object, wanted)
    code.check(_fits_inside(code, impl, wanted))
    _check_gradient(code, object, impl, wanted)


@step(RECORD)
def large_tensor(code: MachineCode, record: Fields) -> None:
    """A tensor of so many dimensions that it points to its sizes."""
    wanted = Fields(code, WANTED, record["wanted"])
    object = code.value(record)
    code.check(code.equal(alike(code, object, wanted.base), HOLDS))
    sizes = code.field(code.field(object, code.tensors.handle, "ptr"), code.tensors.rank + 8, "ptr")
    bytes = code.binary("shl", wanted["rank"], 4)
    code.check(code.equal(code.call("memcmp", "i32", sizes, wanted.end, bytes), 0))


@step(RECORD)
def shapeless_tensor(code: MachineCode, record: Fields) -> None:
    """A tensor whose sizes are looked at otherwise."""
    code.check(code.equal(alike(code, code.value(record), record["wanted"]), HOLDS))


@function("i32", "ptr", "ptr")
def alike(code: MachineCode, object: Value, address: Value) -> None:
    """Whether a tensor is as wanted, but for its shape."""
    wanted = Fields(code, WANTED, address)
    _check_gradient(code, object, _check_metadata(code, object, wanted), wanted)
    code.ret(HOLDS)


def _fits_inside(code: MachineCode, impl: Value, wanted: Fields) -> Value:
    """Compare the sizes and strides that lie in the tensor, pairs of words at a time."""
    count = 2 * code.tensors.inline_dims
    starts = (
        code.offset(impl, code.tensors.rank + 8),
        wanted.end,
        code.offset(wanted.end, 8 * count),
    )
    total = code.constant(0, "i64", 2)
    for place in range(0, count, 2):
        have, want, mask = (code.load("i64", code.offset(one, 8 * place), 2) for one in starts)
        differ = code.binary("and", code.binary("xor", have, want), mask)
        total = code.binary("or", total, differ)
    return code.equal(code.binary("or", code.part(total, 0, 1), code.part(total, 1, 1)), 0)


def _check_metadata(code: MachineCode, object: Value, wanted: Fields) -> Value:
    """Class, keys, dtype and rank; the answer is the tensor behind the Python object."""
    layout = code.tensors
    code.check(code.equal(code.type_of(object), wanted["class"]))
    impl = code.field(object, layout.handle, "ptr")
    code.check_words(
        (code.field(impl, layout.key_set), wanted["keys"]),
        (code.convert("zext", code.field(impl, layout.dtype, "i16"), "i64"), wanted["dtype"]),
        (code.field(impl, layout.rank), wanted["rank"]),
    )
    return impl


def _check_gradient(code: MachineCode, object: Value, impl: Value, wanted: Fields) -> None:
    meta = code.field(impl, code.tensors.autograd, "ptr")
    some = code.different(meta, NULL)
    needs = code.either(some, lambda: _requires_grad(code, object, impl, meta), ZERO)
    code.check(code.equal(needs, wanted["requires_grad"]))


def _requires_grad(code: MachineCode, object: Value, impl: Value, meta: Value) -> Value:
    """Whether a tensor needs a gradient; one with a forward-mode tangent is a miss."""
    layout = code.tensors
    with code.when(code.different(code.field(meta, layout.forward_grad, "ptr"), NULL)):
        handle = code.offset(object, layout.handle)
        tangent = code.call(torch_abi.FORWARD_GRAD, "ptr", impl, 0, handle)
        undefined = code.assembly.outside(torch_abi.UNDEFINED_TENSOR)
        code.check(code.equal(code.load("ptr", tangent), undefined))
    # A leaf that is marked needs one; anything else (results, views of results) must be asked.
    unmarked = code.different(code.field(meta, layout.requires_grad, "i8"), 1)
    return code.either(unmarked, lambda: code.flag(torch_abi.REQUIRES_GRAD, impl), integer(1))


@step("object* kind function accumulator hooks post_hook count before_node of_tensor behind_node")
def plain_leaf(code: MachineCode, record: Fields) -> None:
    """A leaf that nobody listens to, of what was seen to be a tensor; the words are places in its
    autograd part (`torch_abi.LeafLayout`), and in the node that accumulates its gradient, which is
    held weakly: its memory is there, and counts who holds it."""
    impl = code.field(code.value(record), code.tensors.handle, "ptr")
    meta = code.field(impl, code.tensors.autograd, "ptr")
    code.check(code.different(meta, NULL))
    hooks = code.offset(meta, record["hooks"])
    code.check_words(
        (code.field(meta, 0), record["kind"]),
        (code.field(meta, record["function"]), ZERO),
        (code.field(meta, record["post_hook"]), ZERO),
        (code.field(hooks, 0), code.field(hooks, 8)),
    )
    node = code.field(meta, record["accumulator"], "ptr")
    with code.when(code.different(node, NULL)):
        holders = code.load("i32", code.offset(node, record["count"]))
        with code.when(code.different(holders, integer(0, "i32"))):
            vectors = [code.offset(node, record[one]) for one in _VECTORS]
            code.check_words(*((code.field(one, 0), code.field(one, 8)) for one in vectors))


_VECTORS = ("before_node", "of_tensor", "behind_node")


@step("object* outside count ...")
def dimensions(code: MachineCode, record: Fields) -> None:
    """Read sizes and strides of what was seen to be a tensor of this rank."""
    impl = code.field(code.value(record), code.tensors.handle, "ptr")
    inside = code.offset(impl, code.tensors.rank + 8)
    near = code.equal(record["outside"], 0)
    shape = code.select(near, inside, code.load("ptr", inside))
    with code.each(record.end, record["count"], DIMENSION_ROW) as (_, row):
        number = code.field(shape, row["place"])
        code.store(number, row["target"])
        code.check_range(number, row)


@function("i64", "ptr")
def start_of(code: MachineCode, row: Value) -> None:
    """The address of a tensor's first element, as a number."""
    fields = Fields(code, TENSOR_ROW, row)
    handle = code.offset(code.value(fields), code.tensors.handle)
    code.ret(code.convert("ptrtoint", data_of(code, handle, fields["item"]), "i64"))


@function("i32", "ptr", "ptr")
def earlier(code: MachineCode, one: Value, other: Value) -> None:
    """Which of two spans starts first, as `qsort` asks."""
    starts = code.load("i64", one), code.load("i64", other)
    less, more = (code.compare(f"icmp {how}", *starts) for how in ("ult", "ugt"))
    code.ret(code.binary("sub", *(code.convert("zext", flag, "i32") for flag in (more, less))))


@step("written count ...")
def overlap(code: MachineCode, record: Fields) -> None:
    """No written tensor shares bytes with another; what the cells hold was seen to be tensors.
    They are looked at in the order of memory: there is no meeting behind the next one."""
    count, rows, written = record["count"], record.end, record["written"]
    spans = code.reserve_words(code.binary("mul", count, SPAN.size))
    with code.each(rows, count, TENSOR_ROW) as (index, row):
        span = code.element(spans, code.binary("mul", index, SPAN.size), "i64")
        start = start_of(code, row.base)
        end = code.binary("add", start, code.load("i64", row["span"]))
        for place, word in enumerate((start, end, index)):
            code.store(word, code.element(span, place, "i64"))
    known = code.assembly.declare("qsort", "void", ["ptr", "i64", "i64", "ptr"])
    code.call(known, "void", spans, count, integer(8 * SPAN.size), earlier.address)
    ends = [code.reserve("i64"), code.reserve("i64")]  # of all so far, of the written ones
    for one in ends:
        code.store(ZERO, one)
    with code.each(spans, count, SPAN) as (_, row):
        start, end = row["start"], row["end"]
        is_written = code.compare("icmp ult", row["index"], written)
        before = code.load("i64", code.select(is_written, *ends))
        # A tensor without elements meets nothing.
        meets = code.both(code.compare("icmp ult", start, before), code.different(start, end))
        code.check(code.equal(meets, 0))
        for one, counts in zip(ends, (TRUE, is_written), strict=True):
            last = code.load("i64", one)
            further = code.both(code.compare("icmp ugt", end, last), counts)
            code.store(code.select(further, end, last), one)


@step("object* item end* its_item bytes")
def distance(code: MachineCode, record: Fields) -> None:
    """One tensor lies so many bytes behind another; both were seen to be tensors."""
    starts = []
    for name, size in (("object", "item"), ("end", "its_item")):
        object = code.load("ptr", record[name])
        handle = code.offset(object, code.tensors.handle)
        starts.append(code.convert("ptrtoint", data_of(code, handle, record[size]), "i64"))
    code.check(code.equal(code.binary("sub", starts[1], starts[0]), record["bytes"]))


FLOAT, DOUBLE, INTEGER = range(3)  # kinds of numbers in tensors


@step("object* kind item low high whole")
def scalar(code: MachineCode, record: Fields) -> None:
    """A number that a tensor without dimensions holds, a float or a 64-bit integer: between two
    others, given by their bits, and perhaps a whole one. The cell was seen to hold such a tensor.
    Integers are rounded, in their order, and bounds are far below where that shows."""
    handle = code.offset(code.value(record), code.tensors.handle)
    data = data_of(code, handle, record["item"])
    code.check(code.different(data, NULL))
    value = code.either(
        code.equal(record["kind"], FLOAT),
        lambda: code.convert("fpext", code.load("float", data), "double"),
        lambda: code.either(
            code.equal(record["kind"], INTEGER),
            lambda: code.convert("sitofp", code.load("i64", data), "double"),
            lambda: code.load("double", data),
        ),
    )
    low, high = (code.convert("bitcast", record[name], "double") for name in ("low", "high"))
    code.check(code.compare("fcmp oge", value, low))
    code.check(code.compare("fcmp ole", value, high))

    def is_whole() -> Value:
        cut = code.convert("sitofp", code.convert("fptosi", value, "i64"), "double")
        return code.compare("fcmp oeq", cut, value)

    code.check(code.either(code.equal(record["whole"], 0), lambda: TRUE, is_whole))
