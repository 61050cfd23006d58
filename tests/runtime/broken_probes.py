"""A process whose torch lacks something, for `test_broken_probes.py`: after one import, a child for
each way of breaking. A child that crashes, answers otherwise than eager, or warns another number of
times than once is told of. (Facts that few programs need are missed in silence.)

    python -m tests.runtime.broken_probes probes|symbols [all]
"""

from __future__ import annotations

import os
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

import windfall
from windfall import autograd, codegen, frontend, jit, runtime, subgraphs
from windfall.torch_abi import probes, symbols

NO_MEMORY = {"freed_history_text", "makes_nodes_directly"}
if sys.version_info >= (3, 13):
    NO_MEMORY.add("dict_version_offset")  # which is known not to be there
PROBES = [probe.__name__ for probe in probes._PROBES]


def programs() -> None:
    """Forward, backward, a module with a step, a break in a loop: as eager."""
    x = torch.linspace(-2, 2, 24).reshape(4, 6)

    def loop(x: torch.Tensor, n: int) -> torch.Tensor:
        for i in range(n):
            x = x * 2 + i
            if i == 1:
                windfall.graph_break()
        return torch.nn.functional.gelu(x).sum(-1)

    compiled = windfall.compile(loop)
    for one in (compiled, windfall.compile(loop, mode="reduce-overhead")):
        for n in (2, 3, 2, 2):
            torch.testing.assert_close(one(x, n), loop(x, n))
    torch.testing.assert_close(compiled(x[:2], 2), loop(x[:2], 2))
    answers = []
    for wrap in (lambda model: model, windfall.compile):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        call: Any = wrap(model)
        for _ in range(3):
            optimizer.zero_grad()
            call(x).square().sum().backward()
            optimizer.step()
        answers.append([one.detach().clone() for one in model.parameters()])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other)


def in_child(label: str, break_it: Callable[[], Any], warnings_wanted: int = 1) -> bool:
    """Whether all is well; what is not is printed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            break_it()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                programs()
            ours = [one for one in said if "Not found in torch" in str(one.message)]
            code = 0 if len(ours) == warnings_wanted else 2
            if code:
                print(label, [str(one.message) for one in said])
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print(f"{label}: ended with {status}")
    return status == 0


def break_probe(name: str, kind: str) -> None:
    """The probe fails from now on: by not finding, by an error, by reading other memory."""
    real, bytes_at = probes.in_fresh_thread, probes.bytes_at

    def broken(ask: Callable[[], Any]) -> Any:
        if ask.__name__ != name:
            return real(ask)
        if kind == "not found":
            raise probes.NotFound("moved")
        if kind == "error":
            raise struct.error("another size")
        readers = [
            module
            for module in list(sys.modules.values())
            if getattr(module, "__name__", "").startswith("windfall.torch_abi")
            and getattr(module, "bytes_at", None) is bytes_at
        ]
        try:
            for module in readers:
                module.bytes_at = lambda address, count: bytes(count)  # type: ignore[attr-defined]
            found = real(ask)
        finally:
            for module in readers:
                module.bytes_at = bytes_at  # type: ignore[attr-defined]
        return found

    probes.in_fresh_thread = broken


def break_symbol(name: str) -> None:
    """No library exports it."""
    real = symbols.symbol

    def lacking(asked: str) -> int | None:
        return None if asked == name else real(asked)

    for module in list(sys.modules.values()):
        if getattr(module, "symbol", None) is real:
            module.symbol = lacking  # type: ignore[attr-defined]


def load() -> None:
    """What each child would load anew, four fifths of its time; no probe is asked yet. Of torch:
    `assert_close` loads its distributed tensors, the first optimizer all of `torch._dynamo`."""
    torch.testing.assert_close(0, 0)
    torch.optim.SGD([torch.zeros(1)])
    for room in (windfall, autograd, codegen, frontend, runtime, subgraphs):
        for name in dir(room):
            getattr(room, name)
    jit.load("define i32 @seven() {\n  ret i32 7\n}\n")


def main(what: str, all_of_them: bool) -> int:
    load()
    fine = True
    if what == "probes":
        kinds = ("not found", "error", "zeros")
        for place, name in enumerate(PROBES):
            for kind in kinds if all_of_them else kinds[place % 2 : place % 2 + 1]:
                # A probe that reads no memory is not broken by other memory.
                if kind == "zeros" and name in NO_MEMORY:
                    continue
                wanted = int(name not in probes._LATE)
                label = f"{name}, {kind}"
                fine &= in_child(label, lambda n=name, k=kind: break_probe(n, k), wanted)
    if what == "symbols":
        names = symbols.NATIVE_SYMBOLS
        for name in names if all_of_them else names[::6]:
            fine &= in_child(name, lambda n=name: break_symbol(n))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "all" in sys.argv))
