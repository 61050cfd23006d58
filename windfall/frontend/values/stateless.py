"""`torch.func.functional_call`: a module that is called with other parameters than its own.

Enters: calls of it. Leaves: the call of the module, interpreted, while its registries hold the
tensors that were given. Invariant: afterwards the registries hold what they held, so there is no
effect; a module that puts another tensor in the place of one of these is called natively (W0049),
and so is all of it where it breaks or raises. Which parameters are one tensor is relied upon.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import TYPE_CHECKING

import torch

from windfall.dataclass import dataclass
from windfall.frontend.breaks import BODY, stop
from windfall.frontend.polyfills import stateless
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls, calls_of_module
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.module import Module
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@dataclass(slots=True)
class _Place:
    """Where a tensor of a module stands."""

    registry: Dict
    key: str
    own: Value


@dataclass(slots=True)
class _Exchange:
    """A tensor that stands in the place of a module's own."""

    place: _Place
    given: Tensor


class Exchanged(Value):
    """All tensors of one call."""

    __slots__ = ("exchanges",)
    made_of = object

    def __init__(self, exchanges: list[_Exchange]) -> None:
        super().__init__()
        self.exchanges = exchanges


@dataclass(slots=True)
class _Tensors:
    """The parameters and buffers of a module, by name."""

    places: dict[str, _Place] = field(default_factory=dict)

    def gather(self, machine: Machine, module: Value, prefix: str) -> None:
        """Those of a module, then of the modules in it."""
        module = look(module)
        if not isinstance(module, Module):
            stop(BODY, f"functional_call of {module.describe()}")
        module.guard_type(machine)
        for name in ("_parameters", "_buffers"):
            registry = look(module.registry(machine, name))
            for key, value in registry.load(machine).items() if registry is not None else ():
                found = look(value) if value is not None else None
                if isinstance(found, Tensor):
                    assert registry is not None
                    self.places[f"{prefix}{key}"] = _Place(registry, key, found)
        inside = module.registry(machine, "_modules")
        for key, value in inside.load(machine).items() if inside is not None else ():
            if value is not None and isinstance(look(value), Module):
                self.gather(machine, value, f"{prefix}{key}.")


_NAMES = ("module", "parameters_and_buffers", "args", "kwargs")


@calls_of_module("torch.nn.utils.stateless", "_functional_call")
def _functional_call(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = dict(zip(_NAMES, arguments, strict=False)) | keywords
    module, tensors = look(given["module"]), look(given["parameters_and_buffers"])
    if not isinstance(module, Module) or not isinstance(tensors, Dict):
        stop(BODY, f"functional_call of {module.describe()}")
    if issubclass(module.python_type(), _REFUSED):
        stop(BODY, f"functional_call of {module.describe()}")
    ties, strict = (
        name in given and bool(given[name].as_constant(machine))
        for name in ("tie_weights", "strict")
    )
    found = _Tensors()
    found.gather(machine, module, "")
    named = _exchanges(machine, found, tensors, ties)
    if strict and named.keys() != found.places.keys():
        stop(BODY, "functional_call(strict=True) with other names than the module's")
    exchanges = _each_once(named.values())
    machine.frames.hold_together()
    for one in exchanges:
        _put(machine, one.place, one.given)
    parts = [Exchanged(exchanges), module, *_arguments(machine, given)]
    return machine.values.polyfill("stateless", parts)


_REFUSED = (torch.jit.ScriptModule, torch.nn.DataParallel)


def _arguments(machine: Machine, given: dict[str, Value]) -> list[Value]:
    """`args` may be one argument, or None."""
    values = machine.values
    args, named = look(given["args"]), look(given["kwargs"])
    if args.python_type() is type(None):
        args = values.tuple(())
    elif not issubclass(args.python_type(), tuple):
        args = Tuple([args])
    return [args, values.created_dict({}) if named.python_type() is type(None) else named]


def _exchanges(
    machine: Machine, found: _Tensors, tensors: Dict, ties: bool
) -> dict[str, _Exchange]:
    """Which tensors go where; with `ties`, one for all places of what is one tensor."""
    made: dict[str, _Exchange] = {}
    tied: dict[int, list[str]] = {}
    if ties:
        for name, place in found.places.items():
            place.own.key(machine)  # told apart from the others
            tied.setdefault(id(place.own), []).append(name)
    for name, value in tensors.load(machine).items():
        tensor = look(value) if value is not None else None
        if name not in found.places or not isinstance(tensor, Tensor):
            stop(BODY, f"functional_call with {name}")
        for other in tied.get(id(found.places[name].own), [name]):
            known = made.setdefault(other, _Exchange(found.places[other], tensor))
            if known.given is not tensor:
                stop(BODY, f"functional_call with several tensors for {other}")
    return made


def _each_once(exchanges: Collection[_Exchange]) -> list[_Exchange]:
    """A module that stands at several places has one registry; what torch leaves behind in it, if
    it is given several names of one place, is its own."""
    made = {(id(one.place.registry), one.place.key): one for one in exchanges}
    if len(made) < len(exchanges):
        stop(BODY, "functional_call with several names of one module")
    return list(made.values())


def _put(machine: Machine, place: _Place, value: Value) -> None:
    """Without an effect: it is taken out again before anybody sees it."""
    entries, key = place.registry.entries, place.key
    before = entries[key]

    def restore() -> None:
        entries[key] = before

    machine.effects.undo(restore)
    entries[key] = value


@calls(stateless.refuse_call)
def _refuse(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    stop(BODY, f"the module of functional_call raises {arguments[1].describe()}")


@calls(stateless.give_back)
def _give_back(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exchanged, result = arguments
    assert isinstance(exchanged, Exchanged)
    for one in exchanged.exchanges:
        held = one.place.registry.entries.get(one.place.key)
        if held is None or look(held) is not one.given:
            stop(BODY, f"a module that replaces its {one.place.key} in functional_call")
        _put(machine, one.place, one.place.own)
    machine.frames.let_go()
    return result
