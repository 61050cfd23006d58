"""The call path of a compiled object: entries in turn, then the slow path.

Enters: entries and a slow path. Leaves: a builtin that tries each entry and, when all miss, when
keywords are given or when a stance (`windfall/stance.py`) wants to be asked, calls
`slow(*args, **kwargs)`; so it does where an entry's graph failed (`GraphFailed`).

Invariant: entries may be replaced at any time, also while a call is under way: that call goes on
with the entries it started with, which it keeps alive.

    >>> call = dispatcher((entry,), slow)
    >>> replace_entries(call, (newer, entry))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from windfall import locks, stance, torch_abi
from windfall.errors import GraphFailed, InternalError, hide_our_frames
from windfall.ir.stages import MISS, Entry
from windfall.runtime import support
from windfall.runtime.machine import offsets
from windfall.runtime.words import Words

Dispatcher = Callable[..., Any]


class _Held:
    """What a dispatcher refers to; its entries change."""

    __slots__ = ("__weakref__", "block", "entries", "lock", "slow")

    def __init__(self, slow: Callable[..., Any]) -> None:
        self.entries: tuple[Callable[..., Any], ...] = ()
        self.slow = slow
        self.block = 0
        self.lock = locks.lock()  # of those who replace the entries


def _nowhere(*args: Any, **kwargs: Any) -> Any:
    raise InternalError("a dispatcher without a slow path was called")


def dispatcher(
    entries: Sequence[Entry] = (),
    slow: Callable[..., Any] = _nowhere,
    *,
    native: bool = True,
    compiled: support.Compiled = support.quickly,
) -> Dispatcher:
    """A builtin over these entries; `slow` gets the arguments as they came. `compiled` as of
    `support`."""
    held = _Held(slow)
    code = support.support(compiled) if native else None
    if code is None:
        return PublicDispatcher(held, entries)
    words = Words()
    words.keep.append(stance.ASKED)
    fixed = offsets.DISPATCHER.named(
        entries=0,
        slow=id(slow),
        no_entry=words.object(MISS),
        asked=int(stance.ASKED),
        failed=words.object(GraphFailed),
    )
    words.add(*fixed)
    block = words.build()
    held.block = int(block)
    _set_entries(held, entries)
    address = code.address("dispatch")
    keep = (held, words.keep, code)
    return torch_abi.make_builtin("compiled", address, block, keep, keywords=True)


def replace_entries(call: Dispatcher, entries: Sequence[Entry]) -> None:
    """Let the dispatcher try these entries from now on."""
    if isinstance(call, PublicDispatcher):
        call.replace(entries)
        return
    _set_entries(_held(call), entries)


def set_slow_path(call: Dispatcher, slow: Callable[..., Any]) -> None:
    """What the dispatcher calls where no entry answers: said once, before the first call, by
    whoever makes an object whose class has the dispatcher in it."""
    held = _held(call)
    with held.lock:
        held.slow = slow
        if held.block:
            torch_abi.write_word(held.block + offsets.DISPATCHER.offset("slow"), id(slow))


def _held(call: Dispatcher) -> _Held:
    if isinstance(call, PublicDispatcher):
        return call.held
    found: _Held = next(one for one in call.__self__ if isinstance(one, _Held))  # type: ignore[attr-defined]
    return found


def _set_entries(held: _Held, entries: Sequence[Entry]) -> None:
    calls = tuple(entry.call for entry in entries)
    with held.lock:
        before, held.entries = held.entries, calls
        torch_abi.write_word(held.block + offsets.DISPATCHER.offset("entries"), id(calls))
    del before  # only now: until here the block named it


class PublicDispatcher:
    """The same in Python, for where native code cannot be."""

    def __init__(self, held: _Held, entries: Sequence[Entry]) -> None:
        self.held = held
        self.replace(entries)

    def replace(self, entries: Sequence[Entry]) -> None:
        """Try these entries from now on."""
        self.held.entries = tuple(entry.call for entry in entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Try each entry, then the slow path."""
        held = self.held
        try:
            if not kwargs and not stance.asked:
                answer = self._fast(args)
                if answer is not MISS:
                    return answer
            return held.slow(*args, **kwargs)
        except BaseException as error:
            hide_our_frames(error)
            raise

    def _fast(self, slots: tuple[Any, ...]) -> Any:
        for entry in self.held.entries:
            try:
                answer = entry(*slots)
            except GraphFailed:  # the slow path begins it again
                return MISS
            if answer is not MISS:
                return answer
        return MISS


def callable_type(base: type, call: Dispatcher) -> type:
    """A subclass of `base` whose instances, when called, call `call` itself: a builtin does not
    bind, so nothing stands between the caller and the machine code."""
    return type(
        base.__name__, (base,), {"__call__": call, "__slots__": (), "__module__": base.__module__}
    )
