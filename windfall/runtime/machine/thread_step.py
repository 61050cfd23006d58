"""The step of a check that looks at the thread."""

from __future__ import annotations

from windfall import torch_abi
from windfall.llvm import Fields, Struct
from windfall.runtime.machine.basics import MachineCode, step

CAST_ROW = Struct("device dtype")


@step(
    "flags included excluded dispatch_modes function_modes function_state profiled default_dtype"
    " deterministic context* count ..."
)
def ambient(code: MachineCode, record: Fields) -> None:
    """The thread's state, all of it, and its autocast dtypes."""
    layout = code.facts.thread
    state = code.call(torch_abi.AUTOGRAD_STATE, "ptr")
    flags = code.convert("zext", code.field(state, layout.flags, "i8"), "i64")
    code.check_words(
        (code.binary("and", flags, layout.grad_flag | layout.inference_flag), record["flags"]),
        (code.field(state, layout.keys), record["included"]),
        (code.field(state, layout.keys + 8), record["excluded"]),
    )
    code.check_words(
        (code.call(torch_abi.DISPATCH_MODES, "i64"), record["dispatch_modes"]),
        (code.call(torch_abi.FUNCTION_MODES, "i64"), record["function_modes"]),
        (code.small(torch_abi.FUNCTION_STATE), record["function_state"]),
        (code.flag(torch_abi.HAS_CALLBACKS), record["profiled"]),
        (code.small(torch_abi.DEFAULT_DTYPE), record["default_dtype"]),
        (code.flag(torch_abi.DETERMINISTIC, record["context"]), record["deterministic"]),
    )
    with code.each(record.end, record["count"], CAST_ROW) as (_, row):
        device = code.convert("trunc", row["device"], "i8")
        code.check(code.equal(code.small(torch_abi.AUTOCAST_DTYPE, device), row["dtype"]))
