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
from windfall.errors import GraphFailed, hide_our_frames
from windfall.ir.stages import MISS, Entry
from windfall.runtime import support
from windfall.runtime.machine import layout
from windfall.runtime.words import Words

Dispatcher = Callable[..., Any]


class _Held:
    """What a dispatcher refers to; its entries change."""

    __slots__ = ("__weakref__", "block", "entries", "lock", "prefix", "slow")

    def __init__(self, slow: Callable[..., Any], prefix: tuple[Any, ...]) -> None:
        self.entries: tuple[Callable[..., Any], ...] = ()
        self.slow = slow
        self.prefix = prefix
        self.block = 0
        self.lock = locks.lock()  # of those who replace the entries


def dispatcher(
    entries: Sequence[Entry],
    slow: Callable[..., Any],
    *,
    prefix: tuple[Any, ...] = (),
    native: bool = True,
) -> Dispatcher:
    """A builtin over these entries. `prefix` stands before the arguments that entries are given
    (the module of a compiled module); `slow` gets the arguments as they came."""
    held = _Held(slow, prefix)
    code = support.support() if native else None
    if code is None:
        return PublicDispatcher(held, entries)
    words = Words()
    words.keep.append(stance.ASKED)
    failed = words.object(GraphFailed)
    fixed = (0, id(slow), words.object(MISS), int(stance.ASKED), failed)
    words.add(*fixed, len(prefix), *map(id, prefix))
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
    held = next(one for one in call.__self__ if isinstance(one, _Held))  # type: ignore[attr-defined]
    _set_entries(held, entries)


def _set_entries(held: _Held, entries: Sequence[Entry]) -> None:
    calls = tuple(entry.call for entry in entries)
    with held.lock:
        before, held.entries = held.entries, calls
        torch_abi.write_word(held.block + 8 * layout.ENTRIES, id(calls))
    del before  # only now: until here the block named it


class PublicDispatcher:
    """The same in Python, for where native code cannot be."""

    def __init__(self, held: _Held, entries: Sequence[Entry]) -> None:
        self._held = held
        self.replace(entries)

    def replace(self, entries: Sequence[Entry]) -> None:
        """Try these entries from now on."""
        self._held.entries = tuple(entry.call for entry in entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Try each entry, then the slow path."""
        held = self._held
        try:
            if not kwargs and not stance.asked:
                answer = self._fast((*held.prefix, *args))
                if answer is not MISS:
                    return answer
            return held.slow(*args, **kwargs)
        except BaseException as error:
            hide_our_frames(error)
            raise

    def _fast(self, slots: tuple[Any, ...]) -> Any:
        for entry in self._held.entries:
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
