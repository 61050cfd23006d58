"""The stance: what compiled objects do in this process right now, whatever they were made with.

Enters: `set_stance(...)`, as a function, a decorator or a context manager. Leaves: the record that
`frontend/compiled_object.py` asks on its slow path, and one word of memory that the native call
path reads: while it is not 0, no entry is called directly. Invariant: leaving a context (or a
decorated function) puts back the stance that stood when it was entered, also when stances are
nested; a stance changes which code runs, never a result.

    >>> with set_stance("force_eager"):
    ...     compiled(x)                      # the original function runs
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import UserError

STANCES = {
    "default": "compile what is missing",
    "force_eager": "call the original, always",
    "eager_on_recompile": "use what is compiled; what is missing runs eagerly",
    "fail_on_recompile": "use what is compiled; what is missing is an error",
    "eager_then_compile": "the first call of each compiled object runs eagerly",
    "aot_eager_then_compile": "as eager_then_compile",
}


@dataclass(frozen=True, slots=True)
class Stance:
    """One stance. `skip_guards` is accepted and changes nothing: guards are always checked."""

    name: str = "default"
    skip_guards: bool = False
    backend: str | Callable[..., Any] | None = None

    @property
    def usual(self) -> bool:
        """Whether entries may be called without asking."""
        return self.name == "default" and self.backend is None


# Not 0: compiled objects ask for the stance on every call. The native call path reads it.
ASKED = torch_abi.memory(bytes(8))
asked = False  # the same for Python
_current = Stance()


def current() -> Stance:
    """The stance that stands now, in all threads."""
    return _current


def _set(stance: Stance) -> None:
    global _current, asked
    _current, asked = stance, not stance.usual
    torch_abi.write_word(int(ASKED), int(not stance.usual))


def set_stance(
    stance: str = "default",
    *,
    skip_guard_eval_unsafe: bool = False,
    force_backend: str | Callable[..., Any] | None = None,
) -> StanceScope:
    """Set the stance, from this call on; as a context manager or a decorator, for so long."""
    if stance not in STANCES:
        listed = ", ".join(map(repr, STANCES))
        raise UserError(f"stance={stance!r} is not known; accepted: {listed}")
    if force_backend is not None and stance != "default":
        raise UserError("force_backend can only stand with stance='default'")
    return StanceScope(Stance(stance, bool(skip_guard_eval_unsafe), force_backend))


class StanceScope:
    """A stance that was set, and what stood before."""

    def __init__(self, stance: Stance) -> None:
        self._before = current()
        self._stance = stance
        self._outer = [self._before]  # of the call that made this object: the first `with`'s
        self._entered = 0
        _set(stance)

    def __enter__(self) -> None:
        if self._entered:
            self._outer.append(current())
        self._entered += 1
        _set(self._stance)

    def __exit__(self, *error: Any) -> None:
        _set(self._outer.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs in this stance; until it is called, nothing changes."""
        _set(self._before)
        stance = self._stance

        @functools.wraps(function)
        def in_stance(*args: Any, **kwargs: Any) -> Any:
            before = current()
            _set(stance)
            try:
                return function(*args, **kwargs)
            finally:
                _set(before)

        return in_stance
