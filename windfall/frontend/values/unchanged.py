"""Whether a piece of the program left everything as it was.

Enters: the condition of the machine before and behind the piece. Leaves: what changed, in words.
Invariant: objects from outside are told by the log of effects; those that the program has made are
compared, as far as frames can reach them. What is not known counts as changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.frontend.frame import Frame
from windfall.frontend.values.base import Value
from windfall.frontend.values.unseen import is_unseen, made_here, settled

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@dataclass(frozen=True, slots=True)
class Condition:
    """How things stand. `states` has created values by identity, and what they hold; it keeps them,
    so that no identity is used again."""

    effects: tuple[int, ...]
    modes: dict[str, Any]
    states: dict[int, tuple[Value, Any]]


def condition(machine: Machine, besides: Value) -> Condition:
    """How things stand now, `besides` left out."""
    effects = machine.effects
    logged = (len(effects.entries), effects.autocast_depth, len(effects.entered))
    return Condition(logged, torch_abi.modes(), _states(machine, besides))


def changed(machine: Machine, before: Condition, besides: Value) -> str:
    """What is not as it was."""
    now = condition(machine, besides)
    if now.effects != before.effects:
        return "changes an object from outside"
    if now.modes != before.modes:
        return "switches a mode and leaves it so"
    for identity, (_, state) in before.states.items():
        if identity in now.states and now.states[identity][1] != state:
            return "changes an object that was there before"
    return ""


def _states(machine: Machine, besides: Value) -> dict[int, tuple[Value, Any]]:
    found: dict[int, tuple[Value, Any]] = {}
    seen = {id(besides)}
    waiting: list[Any] = [
        one for frame in machine.frames.stack for one in (*frame.variables, *frame.stack)
    ]
    while waiting:
        value = settled(waiting.pop())
        if id(value) in seen or is_unseen(value) or not made_here(value, Value):
            continue
        seen.add(id(value))
        state = tuple(_shown(getattr(value, name, None), waiting) for name in _slots(type(value)))
        if value.source is None:
            found[id(value)] = (value, state)
    return found


def _slots(kind: type) -> list[str]:
    names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    return [name for name in names if name not in _LEFT_OUT]


# What values keep of answers that they gave before, and live objects: those are from outside, and
# may hold the whole process (a function's globals hold every module that it names, and cycles).
_LEFT_OUT = frozenset(("guarded", "source", "_fake", "_node", "_type", "real", "globals"))
_PLAIN = (int, str, bool, float, type(None))


def _shown(part: Any, parts: list[Any]) -> Any:
    """What is compared of a part; values in it go to `parts`."""
    if is_unseen(part):
        return part.source
    part = settled(part)
    kind = part.__class__
    if issubclass(kind, Value):
        parts.append(part)
        return id(part) if part.source is None else part.source  # which looking does not change
    if kind in (list, tuple):
        return tuple(_shown(one, parts) for one in part)
    if kind is dict:
        return tuple((_shown(key, parts), _shown(one, parts)) for key, one in part.items())
    if kind is Frame:
        return (part.ip, _shown(part.stack, parts), _shown(part.variables, parts))
    return part if kind in _PLAIN else id(part)
