"""`copy.deepcopy` of what the interpreter models: constants, containers, plain objects.

Enters: a value. Leaves: a created one, one for each object that is reached, as the memo of
`copy.deepcopy` has it. Invariant: classes with a say in copying (`__deepcopy__`, `__reduce__`,
`__getstate__`...) are refused, as is everything whose copy is not plain; nothing is changed before
all is known to be copied.
"""

from __future__ import annotations

import collections
import copy
from typing import TYPE_CHECKING

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, find
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.enumeration import Member, MixedMember, itself_copied
from windfall.frontend.values.function import Function
from windfall.frontend.values.mapping import Dict, InstanceDict
from windfall.frontend.values.objects import Object, is_plain_class
from windfall.frontend.values.ordered import Ordered
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.sets import Set
from windfall.frontend.values.unseen import look, same
from windfall.identity_map import IdentityMap
from windfall.ir.guard import ABSENT

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_HOOKS = ("__deepcopy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_OBJECT_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__new__")
_OWN_HOOKS = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__")  # asked of the object


class _Copier:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.memo: IdentityMap[Value, Value] = IdentityMap()

    def copied(self, value: Value) -> Value:
        value = look(value)
        kind = type(value)
        known = self.memo.get(value)
        if known is not None:
            return known
        if isinstance(value, Member | MixedMember):
            return itself_copied(self.machine, value)
        if isinstance(value, Constant | Class | Function):
            return value
        if kind in (Dict, Ordered, InstanceDict):
            assert isinstance(value, Dict)
            return self._dict(value)
        if kind is List:
            assert isinstance(value, List)
            made = self.memo[value] = List([])
            made._items = [self.copied(one) for one in value.items(self.machine)]
            return made
        if kind is Tuple:
            assert isinstance(value, Tuple)
            return self._tuple(value)
        if isinstance(value, Set) and not value.load(self.machine) - self._plain(value):
            return value if value.made_of is frozenset else Set(set(value.load(self.machine)))
        if kind is Object:
            assert isinstance(value, Object)
            return self._object(value)
        stop(UNKNOWN_CALL, f"deepcopy of {value.describe()}")

    def _plain(self, value: Set) -> set[object]:
        return set(value.load(self.machine)) - set(value.values)

    def _tuple(self, value: Tuple) -> Value:
        """A tuple whose items stay the same is its own copy."""
        items = value.items(self.machine)
        made = [self.copied(one) for one in items]
        known = self.memo.get(value)
        if known is not None:  # a list in it holds it, and has copied it
            return known
        if all(same(one, other) for one, other in zip(items, made, strict=True)):
            return value
        self.memo[value] = Tuple(made)
        return self.memo[value]

    def _dict(self, value: Dict) -> Dict:
        entries = value.load(self.machine)
        if value.keys or any(isinstance(key, Value) for key in entries):
            stop(UNKNOWN_CALL, f"deepcopy of {value.describe()} with objects as keys")
        self._refuse_attributes(value)
        made = value.like({})
        self.memo[value] = made
        for key, one in entries.items():
            assert one is not None, "a whole dict has no absent items"
            made.entries[key] = self.copied(one)
        return made

    def _refuse_attributes(self, value: Dict) -> None:
        """An `OrderedDict` from outside may have attributes (state dicts of modules do)."""
        real, source = value.real, value.source
        if value.made_of is not collections.OrderedDict or real is None or source is None:
            return
        if self.machine.values.length_of(self.machine.values.instance_dict(real, source, value)):
            stop(UNKNOWN_CALL, f"deepcopy of {value.describe()} with attributes")

    def _object(self, value: Object) -> Value:
        machine, cls = self.machine, value.cls
        value.guard_type(machine)
        plain = (
            is_plain_class(cls.real)
            and all(cls.find(machine, name) is ABSENT for name in _HOOKS)
            and all(cls.find(machine, name) is find(object, name) for name in _OBJECT_HOOKS)
            and not getattr(cls.real, "__slots__", ())
        )
        attributes = value.attributes(machine)
        if not plain or attributes is None:
            stop(UNKNOWN_CALL, f"deepcopy of {value.describe()}")
        if any(attributes.lookup(machine, name) is not None for name in _OWN_HOOKS):
            stop(UNKNOWN_CALL, f"deepcopy of {value.describe()}, which has a say in it")
        made = self.memo[value] = Object(cls)
        copied = made.attributes(machine)
        assert copied is not None, "an object of the same class"
        copied.entries.update(self._dict(attributes).entries)
        return made


@calls(copy.deepcopy)
def _deepcopy(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords or len(arguments) != 1:
        stop(ARGUMENTS if not arguments else UNKNOWN_CALL, "deepcopy with a memo")
    return _Copier(machine).copied(arguments[0])
