"""What values and opcode handlers ask to be made: literals, iterators, exceptions, calls.

Enters: Python objects and values. Leaves: values. Kinds reach it as `machine.values`, so that they
need not import each other. Invariant: nothing made here has a source, but what is known for good.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windfall.frontend import polyfills
from windfall.frontend.bounds import admit_values
from windfall.frontend.breaks import UNKNOWN_ATTRIBUTE, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.flow import returns_none
from windfall.frontend.policy import Treatment
from windfall.frontend.polyfills import iterators
from windfall.frontend.values import (  # noqa: F401  (rows of the tables)
    attention,
    attribute_calls,
    backward_calls,
    checkpointing,
    checks,
    class_checks,
    classes,
    compiled,
    control_flow,
    copies,
    defaultdict,
    deque,
    distributions,
    enumeration,
    foreach,
    getters,
    gradients,
    hints,
    inspection,
    live_iterator,
    logs,
    loop_calls,
    loss_scales,
    mapping_proxy,
    mathematics,
    modes,
    module,
    numpy_scalars,
    optimizers,
    ordered,
    parallel,
    partial,
    python_module,
    questions,
    random_generators,
    readings,
    recurrent,
    references,
    schedules,
    sets,
    standard,
    stateless,
    subclassed,
    sym_bool,
    sym_str,
    symbolic,
    torchapi,
    torchobjects,
    transforms,
)
from windfall.frontend.values.base import Arguments, Keywords, Raised, Value
from windfall.frontend.values.builtin import KindMethod
from windfall.frontend.values.class_value import Class, find, is_abstract
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.exception import Exception_, builtin_base, looks_at_arguments
from windfall.frontend.values.function import Function, Method
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.iterator import ItemsIterator, OverIterator, Read
from windfall.frontend.values.mapping import Dict, InstanceDict
from windfall.frontend.values.objects import Object, Opaque, is_plain_class
from windfall.frontend.values.outside import Outside
from windfall.frontend.values.ranges import Range
from windfall.frontend.values.sequence import SequenceValue, Tuple
from windfall.frontend.values.unseen import look
from windfall.ir.guard import ABSENT, LengthIs
from windfall.ir.reading import class_dict, class_name, dict_of, mro_of, reads_are_hooked
from windfall.ir.source import DictOf, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine, Pair

_NONE = Constant(None)
_TRUE = Constant(True)
_FALSE = Constant(False)


_LIBRARY = ("enum", "typing", "abc")  # metaclasses that are not followed


class ValueFactory(Outside):
    """The half of `machine.values` that makes objects."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.modelled = 0  # elements of large containers
        self._globals_dicts: dict[int, Dict] = {}
        self.own_dicts: list[InstanceDict] = []
        self.stand_ins: list[type] = []  # of classes that the program makes

    def close(self) -> None:
        """Let go of everything: a dictionary and its object refer to each other."""
        for table in self.__dict__.get("own_dicts", ()):
            table.forget()
        for stand_in in self.__dict__.get("stand_ins", ()):
            classes.leave_bases(stand_in)
        self.__dict__.clear()

    # --------------------------------------------------------------------------------- constants

    def literal(self, value: Any) -> Value:
        """The value of a Python object that was computed here."""
        if value is None:
            return _NONE
        if value is True:
            return _TRUE
        if value is False:
            return _FALSE
        return self.wrap(value, None)

    def literal_or_known(self, value: Any, name: str) -> Value:
        """A constant, or an object that is known for good."""
        return self.wrap(value, None if isinstance(value, str | int) else Known(value, name))

    def varying(self, value: Any, source: Source) -> Value:
        """A number from outside that varies."""
        return symbolic.varying(self._machine, value, source)

    def item(self, tensor: Any) -> Value | None:
        """`tensor.item()` without its value; None: the value is needed."""
        return readings.item(self._machine, tensor)

    def flag(self, tensor: Any) -> Value | None:
        """`bool(tensor)` without its value; None: the value is needed."""
        return sym_bool.read(self._machine, tensor)

    def made_sure(self, condition: Value) -> bool:
        """Whether a graph sees to it that a truth of data holds: else eager does all of it."""
        return checks.made_sure(self._machine, condition, True)

    def items(self, tensor: Any) -> Value | None:
        """`tensor.tolist()` without the values; None: they are needed."""
        return readings.items(self._machine, tensor)

    def index(self, value: Value) -> Value:
        """What stands in a slice: a tensor without dimensions is the integer that it holds."""
        return readings.index(self._machine, value)

    def place_arguments(self, parts: Sequence[Value]) -> list[Any]:
        """The arguments in the graph of the parts of a slice, each a pair."""
        return symbolic.place_arguments(self._machine, parts)

    def tuple(self, items: Sequence[Value]) -> Tuple:
        """A tuple."""
        return Tuple(list(items))

    def constant_tuple(self, value: Sequence[Any]) -> Value:
        """A tuple that stands in the code of the program: wherever it is read, one object."""
        made = self.wrap(value, None)
        if isinstance(made, Tuple) and made.source is None and made.real is None:
            made.real = value
            self.remember(value, made)
        return made

    def created_dict(self, entries: Mapping[Any, Value]) -> Dict:
        """A dict."""
        return Dict(dict(entries))

    # --------------------------------------------------------------------------------- iterators

    def iterator(self, items: list[Value]) -> Value:
        """Over items that are fixed now."""
        return ItemsIterator(Tuple(items))

    def iterate_over(
        self, owner: Value, kind: type, read: Read, made: str = "iter({})"
    ) -> OverIterator:
        """Over what `read` tells of the places of `owner`; `made` makes a real one of it."""
        return OverIterator(owner, kind, read, made)

    def iterate_sequence(self, owner: SequenceValue | Range) -> Value:
        """Over a sequence as it is when asked."""
        return ItemsIterator(owner)

    def is_generator(self, value: Value) -> bool:
        """Whether asking it for an item runs interpreted code."""
        return isinstance(value, Generator)

    def runs_frames(self, value: Value) -> bool:
        """Whether iterating over it runs interpreted code."""
        return isinstance(value, Generator | Object)

    # -------------------------------------------------------------------------------- exceptions

    def raised(self, error: BaseException, **fields: Value) -> Raised:
        """The program raises this; `fields` are what CPython notes on it beside `args`."""
        made = self.wrap(error, None)
        assert isinstance(made, Exception_)
        made.fields.update(fields)
        made.set_context(self._machine)
        return Raised(made)

    def no_attribute(self, owner: Value, name: str, text: str) -> Raised:
        """An attribute is missing."""
        return self.raised(AttributeError(text), name=self.literal(name), obj=owner)

    # ------------------------------------------------------------------------------ dictionaries

    def instance_dict(self, real: Any, source: Source | None, owner: Value) -> Dict:
        """The dictionary of an object."""
        if real is None or source is None:
            made = InstanceDict(owner)
            self.own_dicts.append(made)
            return made
        found = look(self.wrap(dict_of(real), DictOf(source, reads_are_hooked(type(real)))))
        if not isinstance(found, Dict):  # `self.__dict__ = self`
            stop(UNKNOWN_ATTRIBUTE, f"the dictionary of {source}, a {found.describe()}")
        return found

    def globals_dict(self, space: dict[str, Any], name: str) -> Dict:
        """The globals of a module."""
        found = self._globals_dicts.get(id(space))
        if found is None:
            wrapped = look(self.wrap(space, Known(space, f"globals of {name}")))
            if not isinstance(wrapped, Dict):
                stop(UNKNOWN_OPERATION, f"globals of {name} are no plain dict")
            wrapped.guarded = {"type"}  # the dict is known by itself
            found = self._globals_dicts[id(space)] = wrapped
        return found

    def string_keyed(self, value: Value) -> Keywords:
        """The items of `__kwdefaults__`, or of `**keywords`."""
        if isinstance(value, Dict):
            items = value.load(self._machine).items()
            if all(isinstance(key, str) for key, _ in items):
                return {key: one for key, one in items if one is not None}
        elif value.is_constant() and value.as_constant(self._machine) is None:
            return {}
        stop(UNKNOWN_OPERATION, f"keywords from {value.describe()}")

    def length_of(self, value: Value) -> int:
        """The length of a container from outside, relied upon without looking into it."""
        value = look(value)
        real = getattr(value, "real", None)
        if value.source is None or real is None:
            return int(value.length(self._machine).as_constant(self._machine))
        if isinstance(value, Dict) and (value.whole or value.writes):
            return len(value.load(self._machine))
        value.guard_type(self._machine)
        value.guard(self._machine, "length", LengthIs(len(real)))
        return len(real)

    # ------------------------------------------------------------------------------------- calls

    def method(self, owner: Value, name: str) -> Value:
        """A method of a builtin kind."""
        return KindMethod(owner, name)

    def polyfill(
        self, name: str, arguments: Sequence[Value], keywords: Keywords | None = None
    ) -> Value:
        """Interpret a Python function of ours instead of a builtin."""
        admit_values(self._machine, arguments)
        found = polyfills.TABLE[name]
        if found.__module__ == iterators.__name__ and self._machine.frames.is_left_real():
            stop(UNKNOWN_CALL, f"{name} that is an object of its own")
        function = self.known(found, name)
        assert isinstance(function, Function)
        return function.inline(self._machine, list(arguments), keywords or {})

    def call_special(self, owner: Value, name: str, arguments: Arguments) -> Value:
        """Call a special method of an object."""
        return self._special(owner, name).call(self._machine, arguments, {})

    def ask_special(self, owner: Value, name: str, *arguments: Value) -> Value:
        """The same, and the answer judged as the builtin does that asks for it."""
        asked = self._special(owner, name)
        return self.polyfill("ask", [self.literal(name), asked, self.tuple(arguments)])

    def _special(self, owner: Value, name: str) -> Value:
        method = owner.dunder(self._machine, name) if isinstance(owner, Object) else None
        if method is None:
            stop(UNKNOWN_CALL, f"{owner.describe()}.{name}")
        return method

    def context_methods(self, manager: Value) -> Pair | None:
        """`__enter__` and `__exit__` of a context manager, bound; None: they cannot be followed."""
        if not isinstance(manager, Object):
            return None
        found = [manager.dunder(self._machine, name) for name in ("__enter__", "__exit__")]
        enter, leave = found
        for one in found:
            if not isinstance(one, Method) or not isinstance(one.function, Function):
                return None
        return (enter, leave) if enter is not None and leave is not None else None

    def class_attribute(self, owner: Value, cls: type, name: str) -> Value:
        """A method that a builtin class gives to its instances."""
        raw = find(cls, name)
        return Method(self.known(raw, f"{class_name(cls)}.{name}"), owner)

    def opaque(self, real: Any, source: Source) -> Value:
        """An object that is not looked into."""
        return self.remember(real, Opaque(real, source))

    def instantiate(
        self, cls: Class, arguments: Arguments, keywords: Keywords, *, plainly: bool = False
    ) -> Value:
        """`cls(...)` for a class of the user; `plainly`: as `type.__call__` does it."""
        machine = self._machine
        real = cls.real
        call = cls.meta(machine, "__call__")
        if call is not find(type, "__call__") and not plainly:
            # Those of the standard library read their caller's module from its frame.
            followed = isinstance(call, types.FunctionType) and call.__module__ not in _LIBRARY
            if not followed:
                stop(UNKNOWN_CALL, f"{cls.describe()} has a metaclass with __call__")
            hook = self.known(call, f"{class_name(type(real))}.__call__")
            return hook.call(machine, [cls, *arguments], keywords)
        if issubclass(real, BaseException):
            return self._exception(cls, arguments, keywords)
        if cls.find(machine, "__del__") is not ABSENT:
            stop(UNKNOWN_CALL, f"{cls.describe()} has __del__: when its instances die is seen")
        new = cls.find(machine, "__new__")
        held = subclassed.instantiate(machine, cls, arguments, keywords)
        if held is not None:
            return held
        if isinstance(new, staticmethod) and isinstance(new.__func__, types.FunctionType):
            return self._instantiate_by_new(cls, new.__func__, arguments, keywords)
        restored = any("__new__" in class_dict(one) for one in mro_of(real)[:-1])
        if restored or new is not find(object, "__new__") or not is_plain_class(real):
            stop(UNKNOWN_CALL, f"{cls.describe()} has its own __new__")
        if is_abstract(machine, cls):
            stop(UNKNOWN_CALL, f"{cls.describe()} is abstract")
        return self._initialised(cls, arguments, keywords)

    def _initialised(self, cls: Class, arguments: Arguments, keywords: Keywords) -> Value:
        machine = self._machine
        made = module.created(cls) or Object(cls)
        init = cls.find(machine, "__init__")
        if init is find(object, "__init__"):
            if arguments or keywords:
                stop(UNKNOWN_CALL, f"{cls.describe()} takes no arguments")
            return made
        hook = cls.value_of(machine, "__init__", init)
        if not isinstance(hook, Function) or not self._machine.frames.stack:
            stop(UNKNOWN_CALL, f"{cls.describe()}.__init__")
        return self.initialise(hook, made, arguments, keywords)

    def initialise(
        self, hook: Function, made: Value, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """Call the `__init__` of something new, which is to return None."""
        if not returns_none(hook.code):
            packed = [self.tuple(arguments), self.created_dict(keywords)]
            return self.polyfill("initialise", [hook, made, *packed])
        hook.inline(self._machine, [made, *arguments], keywords, discard=True)
        return made

    def _instantiate_by_new(
        self, cls: Class, new: Any, arguments: Arguments, keywords: Keywords
    ) -> Value:
        machine = self._machine
        init = cls.value_of(machine, "__init__", cls.find(machine, "__init__"))
        made = self.known(new, f"{class_name(cls.real)}.__new__")
        packed = [self.tuple(arguments), self.created_dict(keywords)]
        return self.polyfill("instantiate", [made, init, cls, *packed])

    def _exception(self, cls: Class, arguments: Arguments, keywords: Keywords) -> Value:
        machine = self._machine
        made = Exception_(cls, Tuple(list(arguments)))
        base = builtin_base(cls.real)
        own = cls.find(machine, "__new__") is not find(base, "__new__")
        if own or looks_at_arguments(cls.real, len(arguments)):
            stop(UNKNOWN_CALL, f"{cls.describe()} has its own __new__")
        init = cls.find(machine, "__init__")
        if init is not find(base, "__init__"):
            hook = cls.value_of(machine, "__init__", init)
            # Of such a class OSError leaves `args` to its own `__init__`.
            if not isinstance(hook, Function) or issubclass(base, OSError):
                stop(UNKNOWN_CALL, f"{cls.describe()}.__init__")
            return self.initialise(hook, made, arguments, keywords)
        if keywords:
            stop(UNKNOWN_CALL, f"{cls.describe()} with keywords")
        return made

    def torch_call(
        self, kind: str, target: Any, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value:
        """Put a call of torch into the graph."""
        return torchapi.torch_call(self._machine, kind, target, arguments, keywords)

    def torch_fold(
        self, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value:
        """Ask a tensor method about types."""
        return torchapi.torch_fold(self._machine, name, arguments, keywords)

    def treated(
        self, how: Treatment, function: Any, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A call as the policy says."""
        return torchapi.treated(self._machine, how, function, arguments, keywords)
