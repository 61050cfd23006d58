"""What a compilation finds in its thread, it leaves there, whatever ends it.

Enters: the thread, at the door of a compilation. Leaves: the thread as it was, where an exception
(an interrupt, memory that is short, an error of ours or of a backend) comes out of that door.

Whoever switches something on switches it off in a `finally` of its own, and that is how a
compilation that ends well leaves things. But an interrupt may come inside of that very `finally`,
or between a switch and the `try` behind it: then the fence, which took note of everything before,
puts it back. Invariant: one interrupt at any line is borne; `FENCED` names all that is put back,
and rooms with thread-local state of their own add it there.

    >>> with fence():
    ...     torch._C._set_grad_enabled(False); raise KeyboardInterrupt
    >>> torch.is_grad_enabled()
    True
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.overrides
import torch.utils._python_dispatch

from windfall.torch_abi.probes import named
from windfall.torch_abi.switches import SWITCHES, Switch

_get_dispatch_modes: Any = named(
    "_get_current_dispatch_mode_stack",
    lambda: torch.utils._python_dispatch._get_current_dispatch_mode_stack,
)
_get_function_modes: Any = named(
    "_get_current_function_mode_stack", lambda: torch.overrides._get_current_function_mode_stack
)


def _dispatch_modes() -> tuple[Any, ...]:
    return tuple(_get_dispatch_modes())


def _set_dispatch_modes(wanted: tuple[Any, ...]) -> None:
    while torch._C._len_torch_dispatch_stack():
        torch._C._pop_torch_dispatch_stack(None)
    for one in wanted:
        torch._C._push_on_torch_dispatch_stack(one)


def _function_modes() -> tuple[Any, ...]:
    return tuple(_get_function_modes())


def _set_function_modes(wanted: tuple[Any, ...]) -> None:
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for one in wanted:
        torch._C._push_on_torch_function_stack(one)


def saved_tensor_hooks() -> tuple[Any, ...]:
    """The thread's hooks for tensors that autograd saves, outermost first. They can be read only
    from the top."""
    state = torch._C._autograd
    taken: list[Any] = []
    try:
        while (top := state._top_saved_tensors_default_hooks(False)) is not None:
            taken.append(top)
            state._pop_saved_tensors_default_hooks()
    finally:
        set_saved_tensor_hooks(tuple(reversed(taken)))
    return tuple(reversed(taken))


def set_saved_tensor_hooks(wanted: tuple[Any, ...]) -> None:
    """Let these be the hooks."""
    state = torch._C._autograd
    while state._top_saved_tensors_default_hooks(False) is not None:
        state._pop_saved_tensors_default_hooks()
    for pack, unpack in wanted:
        state._push_saved_tensors_default_hooks(pack, unpack)


# Beside the modes of `SWITCHES`.
FENCED: dict[str, Switch] = {
    "dispatch_modes": Switch(_dispatch_modes, _set_dispatch_modes),
    "function_modes": Switch(_function_modes, _set_function_modes),
    "saved_tensor_hooks": Switch(saved_tensor_hooks, set_saved_tensor_hooks),
}


@contextlib.contextmanager
def fence() -> Iterator[None]:
    """An exception that leaves finds the thread as it was when this was entered."""
    switches = (*FENCED.values(), *SWITCHES.values())
    before = [one.read() for one in switches]
    try:
        yield
    except BaseException:
        for switch, found in zip(switches, before, strict=True):
            if switch.read() != found:
                switch.write(found)
        raise


@contextlib.contextmanager
def without_dispatch_modes() -> Iterator[None]:
    """Whoever records the operations of this thread is not told of those here: a compiler works
    with tensors of its own."""
    modes = _dispatch_modes()
    try:
        _set_dispatch_modes(())
        yield
    finally:
        _set_dispatch_modes(modes)


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """The thread's hooks for tensors that autograd saves (`saved_tensors_hooks`, checkpoints) are
    not told of what is saved here: a compiler works with tensors of its own."""
    hooks = saved_tensor_hooks()
    try:
        set_saved_tensor_hooks(())
        yield
    finally:
        set_saved_tensor_hooks(hooks)
