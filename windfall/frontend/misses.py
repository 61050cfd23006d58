"""Why a call fits no entry, in words: where the value is, what was expected, what is there now, and
which line of the program made it a condition.

Enters: the guard that does not hold and the slots of the call. Leaves: text. Invariant: reading and
printing run no user code.

    x.shape: expected is Tensor float32[4, 3], got float32[5, 3] (a tensor; f.py:12 in f)
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from windfall import torch_abi
from windfall.frontend.evaluate import answer, failures
from windfall.ir import guard as checks
from windfall.ir.dtype import TensorType
from windfall.ir.guard import AMBIENT, SYMBOLS, AmbientIs, Guard
from windfall.ir.symint import Atom, symbols_of

_SHORT = 60


def why_missed(guards: Iterable[Guard], slots: tuple[Any, ...]) -> str:
    """The first of these guards that does not hold, told for people."""
    symbols: dict[str, int] = {}
    broken = next(failures(guards, slots, symbols), None)
    return "no guard fails now" if broken is None else told(broken, slots, symbols)


def told(guard: Guard, slots: tuple[Any, ...], symbols: Mapping[str, int]) -> str:
    """Source, expected, actual, and what relied on it where."""
    notes = "; ".join(str(one) for one in (guard.reason, guard.where) if one)
    found = _actual(guard, slots, symbols) + (f" ({notes})" if notes else "")
    return f"{guard.source}: expected {_expected(guard)}, got {found}"


def _expected(guard: Guard) -> str:
    check = guard.check
    if not isinstance(check, checks.TensorIs):
        return str(check)
    sizes = (*check.type.sizes, *check.type.strides)
    symbols = {atom.key: atom for size in sizes for atom in symbols_of(size)}
    ranges = [_range(symbols[key]) for key in sorted(symbols)]
    return str(check.type) + (f" where {', '.join(ranges)}" if any(ranges) else "")


def _range(symbol: Atom) -> str:
    """Between which values a size that varies lies: 0 and 1 are never among them."""
    top = "" if symbol.high is None else f" and <= {symbol.high}"
    return f"{symbol.key} >= {symbol.low}{top}"


def _actual(guard: Guard, slots: tuple[Any, ...], symbols: Mapping[str, int]) -> str:
    if guard.source is AMBIENT:
        return str(AmbientIs(**torch_abi.ambient()._asdict()))
    if guard.source is SYMBOLS:
        return ", ".join(f"{name} = {value}" for name, value in symbols.items())
    try:
        value = guard.source.read(slots)
    except Exception as error:  # a path that is no longer there
        return f"nothing ({type(error).__name__})"
    describe = _ACTUAL.get(type(guard.check), _described)
    return describe(guard.check, value)


def _tensor(check: Any, value: Any) -> str:
    if type(value) is not check.exact_class or not isinstance(value, torch.Tensor):
        return _described(check, value)
    found = str(TensorType.of(value))
    if found != str(check.type):
        return found
    return f"{found} with dispatch keys {torch_abi.dispatch_keys(value):#x}"


def _length(check: Any, value: Any) -> str:
    kind = type(value)
    return f"length {kind.__len__(value)}" if hasattr(kind, "__len__") else _described(check, value)


def _kind(check: Any, value: Any) -> str:
    return f"type {type(value).__qualname__}"


def _keys(check: Any, value: Any) -> str:
    return _cut(f"keys {list(value)!r}") if type(value) is dict else _described(check, value)


def _changed(check: Any, value: Any) -> str:
    pairs = zip(check.names, check.values, strict=True)
    changed = [name for name, found in pairs if answer(value, name) is not found]
    return f"another {', '.join(changed)}"


def _described(check: Any, value: Any) -> str:
    """A constant as it is written; anything else by its class: its own repr is user code."""
    if isinstance(value, torch.Tensor):
        return str(TensorType.of(value))
    if type(value) in _WRITTEN:
        return _cut(repr(value))
    return f"<{type(value).__qualname__} at {id(value):#x}>"


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


_WRITTEN = {int, float, bool, complex, str, bytes, types.NoneType, torch.dtype, torch.device,
            torch.Size, range, slice}  # fmt: skip
_ACTUAL: dict[type, Callable[[Any, Any], str]] = {
    checks.TensorIs: _tensor,
    checks.LengthIs: _length,
    checks.TypeIs: _kind,
    checks.KeysAre: _keys,
    checks.Answers: _changed,
}
