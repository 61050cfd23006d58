"""Calls of any ATen op through torch's dispatcher, from generated code, without Python.

Enters: a `Call` of the entry "dispatcher": an op, its arguments, `BufferView`s for tensors. Leaves:
LLVM text in the driver: handles are made for the operands, the arguments are put on a stack of
64-bit words, the op is called, and its results are used where they are or copied to where they
were planned.

Invariant: every handle is deleted, also when a call fails; a failed call ends the step with the
number of an error. What the C interface cannot carry (numbers of unknown kind, generators, results
that are lists) is left to Python: `supports` says so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.loop import BufferView, Call, Lazy
from windfall.ir.symint import Expression
from windfall.llvm import FALSE, TRUE, ZERO, Value, integer
from windfall.ops.registry import may_keep

if TYPE_CHECKING:
    from windfall.codegen.emit import Driver


# ----------------------------------------------------------------------------- what it can carry


def supports(target: Any, arguments: Sequence[Any], keywords: dict[str, Any], results: Any) -> bool:
    """Whether the op can be called with these arguments (`Lazy` or `BufferView` for tensors)."""
    found = torch_abi.op_schema(target)
    if found is None or torch_abi.dispatcher_version() is None:
        return False
    _, _, parameters, returned = found
    if any(each != "Tensor" for each in returned) or len(returned) != len(results):
        return False
    if any(not (each is None or isinstance(each, TensorType)) for each in results):
        return False
    return all(
        _carries(parameter.type, value)
        for parameter, value in complete(parameters, arguments, keywords)
    )


def complete(
    parameters: Sequence[torch_abi.Parameter], arguments: Sequence[Any], keywords: dict[str, Any]
) -> list[tuple[torch_abi.Parameter, Any]]:
    """Every parameter of an op with its value: given, by name, or the default."""
    values = []
    for place, parameter in enumerate(parameters):
        if place < len(arguments):
            values.append((parameter, arguments[place]))
        else:
            values.append((parameter, keywords.get(parameter.name, parameter.default)))
    return values


def _part(kind: str, outer: str) -> str | None:
    return kind[len(outer) + 1 : -1] if kind.startswith(f"{outer}[") else None


def _carries(kind: str, value: Any) -> bool:
    inner = _part(kind, "Optional")
    if inner is not None:
        return value is None or _carries(inner, value)
    inner = _part(kind, "List")
    if inner is not None:
        return isinstance(value, (list, tuple)) and all(_carries(inner, each) for each in value)
    accepted = ACCEPTED.get(kind)
    return accepted is not None and accepted(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_tensor(value: Any) -> bool:
    if isinstance(value, (Lazy, BufferView)):
        return (
            torch_abi.dtype_code(value.type.dtype) is not None and value.type.device.type == "cpu"
        )
    return False


ACCEPTED: dict[str, Callable[[Any], bool]] = {
    "Tensor": _is_tensor,
    "int": lambda value: isinstance(value, (int, Expression)),
    "float": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "ScalarType": lambda value: (
        isinstance(value, torch.dtype) and torch_abi.dtype_code(value) is not None
    ),
    "Device": lambda value: str(value) == "cpu",
    "Layout": lambda value: value is torch.strided,
}


# -------------------------------------------------------------------------------------- writing


def write(driver: Driver, call: Call) -> None:
    """Write the call and what becomes of its results."""
    invocation = call.attributes
    found = torch_abi.op_schema(invocation.target)
    assert found is not None
    name, overload, parameters, returned = found
    (arguments,) = call.arguments
    given = complete(parameters, arguments, dict(invocation.keywords))
    described = torch_abi.described_parameters(invocation.target)
    own = may_keep(invocation.target)
    words = [
        _described(driver, value)
        if parameter.name in described and can_describe(value.type)
        else _encode(driver, parameter.type, value, own)
        for parameter, value in given
    ]
    stack = driver.reserve(f"[{max(len(words), len(returned))} x i64]", 8)
    driver.store(stack, words)
    driver.checked(
        "torch_call_dispatcher",
        [
            driver.code.assembly.string(name),
            driver.code.assembly.string(overload),
            stack,
            integer(_known(torch_abi.dispatcher_version())),
        ],
        str(invocation.target),
    )
    names = iter(call.results)
    shared = torch_abi.aliased_results(invocation.target)
    for place in range(len(returned)):
        handle = driver.code.load("ptr", driver.code.element(stack, place, "i64"))
        if invocation.results[place]:
            _settle(driver, handle, next(names), shared[place])
        else:
            delete(driver, handle)


def _known(number: int | None) -> int:
    assert number is not None, "asked before by `supports`"
    return number


def delete(driver: Driver, handle: Value) -> None:
    """Drop one reference to a tensor."""
    driver.call("aoti_torch_delete_tensor_object", [handle])


def _made(driver: Driver, symbol: str, arguments: Sequence[Value]) -> Value:
    """A function that answers through its last argument, a pointer: what it answered."""
    slot = driver.slot()
    driver.call(symbol, [*arguments, slot])
    return driver.code.load("ptr", slot)


def _word(driver: Driver, pointer: Value) -> Value:
    return driver.code.convert("ptrtoint", pointer, "i64")


def _encode(driver: Driver, kind: str, value: Any, own: bool = False) -> Value:
    """A value as the word that stands for it; `own`: tensors have memory of their own."""
    inner = _part(kind, "Optional")
    if inner is not None:
        if value is None:
            return ZERO
        word = _encode(driver, inner, value, own)
        box = _made(driver, "torch_new_stable_ivalue", [])
        driver.code.store(word, box)
        return _word(driver, box)
    inner = _part(kind, "List")
    if inner is not None:
        words = [_encode(driver, inner, each, own) for each in value]
        made = _made(driver, "torch_new_list_reserve_size", [integer(len(words))])
        for word in words:
            driver.call("torch_list_push_back", [made, word])
        return _word(driver, made)
    if own and kind == "Tensor":
        return _owned(driver, value)
    return ENCODERS[kind](driver, value)


def _owned(driver: Driver, value: BufferView) -> Value:
    """A copy: an op of somebody else's may keep what it is given, longer than this program keeps
    its memory as it is."""
    lent = tensor_handle(driver, driver.pointer(value), value.type)
    made = _made(driver, "aoti_torch_clone_preserve_strides", [lent])
    delete(driver, lent)
    return _word(driver, made)


def _tensor(driver: Driver, value: BufferView) -> Value:
    return _word(driver, tensor_handle(driver, driver.pointer(value), value.type))


def tensor_handle(driver: Driver, pointer: Value, type: TensorType) -> Value:
    """A tensor over memory that it does not own."""
    code = _known(torch_abi.dtype_code(type.dtype))
    return _made(
        driver,
        "aoti_torch_create_tensor_from_blob",
        [
            pointer,
            integer(type.rank),
            driver.numbers(type.sizes),
            driver.numbers(type.strides),
            ZERO,
            integer(code, "i32"),
            integer(0, "i32"),
            integer(0, "i32"),
        ],
    )


def can_describe(type: TensorType) -> bool:
    """Whether oneDNN may read such memory by its description."""
    fixed = all(isinstance(size, int) and size > 0 for size in type.sizes)
    return fixed and type.dtype is torch.float32 and type.is_contiguous


def _described(driver: Driver, value: BufferView) -> Value:
    """A row-major tensor over memory that it does not own, which oneDNN knows by a description: its
    convolutions then read it as it is, without a copy in the layout of the other operands."""
    type = value.type
    layout, description = torch_abi.memory_description(type.sizes)
    slot = driver.slot()
    driver.call(
        "aoti_torch_create_tensor_from_blob_v2",
        [
            driver.pointer(value),
            integer(type.rank),
            driver.numbers(type.sizes),
            driver.numbers(type.strides),
            ZERO,
            integer(_known(torch_abi.dtype_code(type.dtype)), "i32"),
            integer(0, "i32"),
            integer(0, "i32"),
            slot,
            integer(layout, "i32"),
            driver.code.assembly.octets(description),
            integer(len(description)),
        ],
    )
    return _word(driver, driver.code.load("ptr", slot))


def _string(driver: Driver, value: str) -> Value:
    length = Value(str(len(value.encode())), "i64")
    return _word(
        driver,
        _made(driver, "torch_new_string_handle", [driver.code.assembly.string(value), length]),
    )


def _bits(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


ENCODERS: dict[str, Callable[[Driver, Any], Value]] = {
    "Tensor": _tensor,
    "int": lambda driver, value: (
        driver.size(value) if isinstance(value, Expression) else integer(int(value))
    ),
    "float": lambda driver, value: Value(str(_bits(float(value))), "i64"),
    "bool": lambda driver, value: integer(int(value)),
    "str": _string,
    "ScalarType": lambda driver, value: integer(_known(torch_abi.dtype_code(value))),
    "Device": lambda driver, value: integer(0xFFFFFFFF),  # kind 0, index -1
    "Layout": lambda driver, value: ZERO,
}


# -------------------------------------------------------------------------------------- results


def _settle(driver: Driver, handle: Value, name: str, shared: bool) -> None:
    """Use a result where it is, if it lies there as planned and this step alone needs it; else copy
    it to its planned place. A view of an operand (`shared`) is copied: its memory is the operand's,
    which may be given back before the view is read."""
    code = driver.code
    type = driver.emission.schedule.buffers[name].type
    if type.elements == 0:
        delete(driver, handle)
        return
    same = FALSE if shared else _laid_out(driver, handle, type)
    data = _made(driver, "aoti_torch_get_data_ptr", [handle])
    planned = driver.buffer(name)
    local = driver.is_local(name)

    def stay() -> Value:
        if not local:
            driver.copy_bytes(planned, data, type)
        return data

    def copy() -> Value:
        target = tensor_handle(driver, planned, type)
        given = [target, handle, integer(0, "i32")]
        driver.checked("aoti_torch_copy_", given, f"copying of {name}")
        delete(driver, target)
        return planned

    used = code.either(same, stay, copy, ("here", "copy", "settled"))
    if local:
        driver.adopt(name, used, handle)
    else:
        delete(driver, handle)


def _laid_out(driver: Driver, handle: Value, type: TensorType) -> Value:
    """Whether a tensor has the sizes and strides that were planned. (Were the shape rule of an op
    wrong, copying would fail; reading would go past the memory of the result.)"""
    code = driver.code
    lengths = _made(driver, "aoti_torch_get_sizes", [handle])
    strides = _made(driver, "aoti_torch_get_strides", [handle])
    same = TRUE
    for place, (size, wanted) in enumerate(zip(type.sizes, type.strides, strict=True)):
        asked = [(lengths, size)] if size == 1 else [(lengths, size), (strides, wanted)]
        for numbers, planned in asked:
            found = code.load("i64", code.element(numbers, place, "i64"))
            same = code.both(same, code.equal(found, driver.size(planned)))
    return same
