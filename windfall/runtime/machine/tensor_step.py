"""The steps of a check that look at tensors: one for sizes kept inside of it, one for more, one
that leaves sizes to `dimensions`, which reads them as numbers, and one that compares where tensors
lie."""

from __future__ import annotations

from windfall import torch_abi
from windfall.llvm import NULL, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import HOLDS, MachineCode, function, step
from windfall.runtime.machine.execute import data_of

RECORD = "object* wanted*"
# What is wanted, which tensors that are alike share. There follow, for `tensor`, all the inline
# sizes and strides and masks of those that count; for `large_tensor`, as many sizes, then strides,
# as the rank says.
WANTED = Struct("class* keys dtype rank requires_grad ...")
DIMENSION_ROW = Struct("place target* least greatest")
TENSOR_ROW = Struct("object* item span*")


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


@step("written count ...")
def overlap(code: MachineCode, record: Fields) -> None:
    """No written tensor shares bytes with another; what the cells hold was seen to be tensors."""
    count, rows = record["count"], record.end

    def place(index: Value) -> tuple[Value, Value, Value]:
        first = code.binary("mul", index, TENSOR_ROW.size)
        row = Fields(code, TENSOR_ROW, code.element(rows, first, "i64"))
        start, span = start_of(code, row.base), code.load("i64", row["span"])
        return start, span, code.binary("add", start, span)

    with code.repeat(ZERO, record["written"]) as one:
        start, span, end = place(one.index)
        with code.repeat(code.binary("add", one.index, 1), count) as other:
            its_start, its_span, its_end = place(other.index)
            before = code.compare("icmp ult", start, its_end)
            after = code.compare("icmp ult", its_start, end)
            # A tensor without elements meets nothing.
            some = code.both(code.different(span, 0), code.different(its_span, 0))
            meet = code.both(before, after, some)
            code.check(code.equal(meet, 0))
