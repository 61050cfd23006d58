"""Which gradients the backward pass that runs now has any use for.

Enters: the context of a Python function whose backward the engine runs. Leaves: for each tensor
that the function took, whether its gradient goes anywhere. Invariant: where this build does not
tell, all of them do. (`ctx.needs_input_grad` says what might be asked for, not what is.)
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from windfall.torch_abi.probes import NotFound, c_function, fact, only, word_offset, words_at
from windfall.torch_abi.symbols import symbol

_EDGE = "_ZN5torch8autograd4impl13gradient_edgeERKN2at6TensorE"
_TASK = "_ZN5torch8autograd32get_current_graph_task_exec_infoEv"
_WANTED = "_ZNK5torch8autograd4Node26task_should_compute_outputEm"
_MAP_WORDS = 7  # of what the engine keeps for each node that it runs: a hash map


class _EdgeProbe(torch.autograd.Function):
    """A node that looks around."""

    @staticmethod
    def forward(context: Any, seen: list[Any], *inputs: torch.Tensor) -> torch.Tensor:
        context.seen = seen
        return sum(inputs).detach() * 1  # type: ignore[union-attr]

    @staticmethod
    def backward(context: Any, *tangents: Any) -> Any:
        context.seen.append(context)
        task = c_function(_TASK, ctypes.c_void_p)()
        context.seen.append(words_at(task, _MAP_WORDS) if task else None)
        return None, *tangents * (len(context.needs_input_grad) - 1)


def _node_of(tensor: torch.Tensor) -> int:
    """The address of the node behind a tensor; it is never freed."""
    edge = (ctypes.c_uint64 * 2)()
    impl = ctypes.c_void_p(tensor._cdata)
    c_function(_EDGE, None, ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.addressof(edge), ctypes.addressof(impl)
    )
    return int(edge[0])


@fact
def _node_offset() -> int:
    """Where the Python object of a node has the address of torch's."""
    if symbol(_WANTED) is None:
        raise NotFound(f"no exported symbol {_WANTED}")
    results = [_EdgeProbe.apply([], torch.ones(1, requires_grad=True)) for _ in range(3)]  # type: ignore[no-untyped-call]
    contexts = [one.grad_fn for one in results]
    words = type(contexts[0]).__basicsize__ // 8
    nodes = [_node_of(one) for one in results]
    return word_offset([id(one) for one in contexts], nodes, words, "a node's address")


@fact
def _trimmed_offset() -> int:
    """Where the engine's map of nodes has their count, which is 0 where no gradient is left out."""

    def counted(chain: int, inputs: bool) -> list[int]:
        x, seen = torch.ones(1, requires_grad=True), list[Any]()
        y = x
        for _ in range(chain):
            y = y * 1
        y = _EdgeProbe.apply(seen, y)  # type: ignore[no-untyped-call]
        torch.autograd.grad(y, x) if inputs else y.backward()
        if seen[1] is None:
            raise NotFound("the engine's map of nodes")
        found: list[int] = seen[1]
        return found

    none, short, long = counted(1, False), counted(1, True), counted(4, True)
    return only(
        (
            8 * place
            for place in range(_MAP_WORDS)
            if none[place] == 0 and short[place] in (3, 4) and long[place] == short[place] + 3
        ),
        "how many nodes a pass goes to",
    )


def gradients_left_out() -> bool:
    """Whether the pass that runs now was told which gradients it is for."""
    offset = _trimmed_offset()
    if offset is None:
        return False
    task = _called(_TASK)()
    return bool(task and _word_at(task + offset).value)


def gradients_used(context: Any, count: int) -> tuple[bool, ...]:
    """Which of the first `count` tensors that a function took are given a gradient by this pass."""
    offset = _node_offset()
    if offset is None:
        return (True,) * count
    node, used = _word_at(id(context) + offset).value, _called(_WANTED)
    return tuple([used(node, index) for index in range(count)])


_word_at = ctypes.c_uint64.from_address
_SIGNATURES = {
    _TASK: ctypes.PYFUNCTYPE(ctypes.c_void_p),
    _WANTED: ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64),
}


@functools.cache
def _called(name: str) -> Any:
    """A function of torch's that a probe has found."""
    return _SIGNATURES[name](symbol(name))  # type: ignore[arg-type]
