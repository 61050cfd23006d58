"""Calls of torch functions: one node of the graph and one run on fake tensors.

Enters: a torch function or method name with symbolic arguments. Leaves: the value of its result.
Invariant: the function has run on fakes before its node exists; a result that is one of the
arguments (in place, `out=`) is that argument's value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.fx

from windfall import torch_abi
from windfall.directives import directive_of, is_exporting, is_skipped
from windfall.errors import Unsupported
from windfall.frontend.bounds import TAKEN_APART, admit_parts
from windfall.frontend.breaks import (
    ARGUMENTS,
    DATA_READ,
    NATIVE_FUNCTION,
    NOT_A_GRAPH_ARGUMENT,
    TORCH_CALL,
    UNKNOWN_CALL,
    WATCHER,
    stop,
)
from windfall.frontend.inner_names import is_replaced, looked_up
from windfall.frontend.policy import Treatment, treatment
from windfall.frontend.values import number_calls
from windfall.frontend.values.arity import fits
from windfall.frontend.values.base import Arguments, ByIdentity, Given, Keywords, Value
from windfall.frontend.values.calls import CALLS, calls
from windfall.frontend.values.class_value import find
from windfall.frontend.values.constant import Constant, fold
from windfall.frontend.values.demands import misfit
from windfall.frontend.values.directed import follow
from windfall.frontend.values.function import Function
from windfall.frontend.values.numpy_scalars import refuse_as_data
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.subclassed import Subclassed
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look, real_of
from windfall.frontend.values.wrap import wraps
from windfall.frontend.values.wrapper import wrapper_result
from windfall.ir.guard import Equals
from windfall.ir.reading import is_among
from windfall.ir.source import Attribute, BoundTo, Known, Source
from windfall.ops.fake import is_fake
from windfall.ops.wrapped import is_wrapper

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

Kind = str  # "call_function" or "call_method"


def _split(
    machine: Machine, arguments: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...], dict[str, Any]]:
    """Arguments of the node, and arguments for the run on fakes."""
    pairs = [one.graph_argument(machine) for one in arguments]
    named = {name: one.graph_argument(machine) for name, one in keywords.items()}
    return (
        tuple(node for node, _ in pairs),
        {name: node for name, (node, _) in named.items()},
        tuple(plain for _, plain in pairs),
        {name: plain for name, (_, plain) in named.items()},
    )


def torch_call(
    machine: Machine,
    kind: Kind,
    target: str | Callable[..., Any],
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
) -> Value:
    """Put a call into the graph."""
    from windfall.frontend.graph import value_type

    if machine.frames.stack and is_skipped(machine.frames.stack[-1].code):
        stop(
            NATIVE_FUNCTION,
            f"{machine.frames.stack[-1].code.co_qualname} is disabled (not recursively)",
        )
    arguments = number_calls.with_sizes(machine, target, arguments)
    # Looking comes first: a number from outside that varies is known as one only then.
    arguments = [look(one) for one in arguments]
    if any(isinstance(one, Tensor) for one in keywords.values()) or machine.symbols.by_name:
        arguments, keywords = number_calls.prepared(machine, target, arguments, keywords)
    nodes, named_nodes, plain, named_plain = _split(machine, arguments, keywords)
    refuse_as_data(target, [*plain, *named_plain.values()])
    function = target if callable(target) else getattr(torch.Tensor, target)
    if type(function) is types.FunctionType:
        _rely_on_inner_names(machine, function)
    name = function.__name__ if hasattr(function, "__name__") else ""
    if name in TAKEN_APART and plain and isinstance(plain[0], torch.Tensor):
        admit_parts(machine, name, plain[0], plain[1:], named_plain)
    result = machine.graph.on_fakes(function, plain, named_plain)
    if not _has_tensor(result) and not isinstance(result, tuple | list):
        return _plain_result(machine, kind, target, nodes, named_nodes, result)
    node = machine.graph.call(kind, target, nodes, named_nodes, value_type(result))
    machine.graph.reads.define(node, result)
    return result_value(machine, node, result)


def _rely_on_inner_names(machine: Machine, function: types.FunctionType) -> None:
    """What it looks up when it runs has to be what it is now: the node stands for all of it."""
    if function in machine.guards.functions:
        return
    places, methods = looked_up(function)
    for space, name in places:
        globals_ = machine.values.globals_dict(space, str(space.get("__name__")))
        known = globals_.entries.get(name, machine)  # the program may have written it
        written = known is not machine and real_of(known) is not space[name]
        if written or is_replaced(space, name, space[name]):
            _refuse_inside(function, name)
        assert globals_.source is not None
        machine.guards.names.setdefault(globals_.source, {})[name] = space[name]
    for name in methods:
        if is_replaced(torch.Tensor, name, machine.guards.rely_on_answer(torch.Tensor, name)):
            _refuse_inside(function, name)
    machine.guards.functions.add(function)


def _refuse_inside(function: types.FunctionType, name: str) -> NoReturn:
    """It is followed, or called natively: its node, which graphs are kept by, says what is torch's
    own."""
    stop(NOT_A_GRAPH_ARGUMENT, f"{function.__qualname__}, which calls {name}: that was replaced")


def _has_tensor(result: Any) -> bool:
    if isinstance(result, tuple | list):
        return any(_has_tensor(one) for one in result)
    return isinstance(result, torch.Tensor)


# What may answer something else than a tensor: comparisons with None, item assignment.
_OPERATORS = "_operator"


def _plain_result(
    machine: Machine,
    kind: Kind,
    target: str | Callable[..., Any],
    nodes: tuple[Any, ...],
    named: dict[str, Any],
    result: Any,
) -> Value:
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if result is None and torch_abi.answers_nothing(target):
        machine.graph.call(kind, target, nodes, named, None)
        return machine.values.literal(None)
    if getattr(target, "__module__", None) != _OPERATORS:
        stop(TORCH_CALL, f"{name} answers {type(result).__name__}")
    if name == "setitem":
        machine.graph.call(kind, target, nodes, named, None)
    _refuse_text(target, name, result)
    return machine.values.literal(result)


def _refuse_text(function: Any, name: str, result: Any) -> None:
    """Text that Python makes of a tensor shows its data: `ascii`, `format`, `%`. (What torch says
    of one, its type's name, depends on the type.)"""
    module = str(getattr(function, "__module__", None)).partition(".")[0]
    if isinstance(result, str | bytes) and module != "torch":
        stop(DATA_READ, f"the text that {name} makes of a tensor")


def result_value(machine: Machine, node: torch.fx.Node, result: Any) -> Value:
    """The value of a result on fakes; parts of tuples are read by nodes of their own."""
    from windfall.frontend.graph import value_type

    if isinstance(result, torch.Tensor):
        known = machine.graph.fakes.get(result)
        if known is not None:
            return known
        if not is_fake(result) and not is_wrapper(result):
            stop(TORCH_CALL, f"{node.target} answers a {type(result).__name__}")
        wraps_others = is_wrapper(result)
        made = wrapper_result(node, result) if wraps_others else Tensor(node=node, fake=result)
        machine.graph.fakes[result] = made
        return made
    if isinstance(result, tuple | list):
        items = [
            result_value(machine, machine.graph.item(node, index, value_type(one)), one)
            if _has_tensor(one) or isinstance(one, tuple | list)
            else machine.values.literal(one)
            for index, one in enumerate(result)
        ]
        if isinstance(result, list):
            return List(items)
        return Tuple(items) if type(result) is tuple else Record(type(result), items)
    return machine.values.literal(result)


class Record(Tuple):
    """A named tuple as torch's functions return them (`values`, `indices`)."""

    __slots__ = ("cls",)

    def __init__(self, cls: type, items: list[Value]) -> None:
        super().__init__(items)
        self.cls = cls

    def python_type(self) -> type:
        """The record's class."""
        return self.cls

    def same_kind(self, items: list[Value]) -> Value:
        """A slice of a record is a tuple."""
        return Tuple(items)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """A field, by name."""
        for index, item in enumerate(self.items(machine)):
            member = getattr(self.cls, name, None)
            if isinstance(member, types.MemberDescriptorType) and _field(self.cls, index) == name:
                return item
        return super().get_attribute(machine, name)

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        return f"{recipe.known(self.cls, self.cls.__name__)}({super().rebuild(recipe)})"


def _field(cls: type, index: int) -> str:
    """The name of a field of a struct sequence, by its position."""
    names = [
        name for name, value in vars(cls).items() if isinstance(value, types.MemberDescriptorType)
    ]
    probe = cls(range(len(names)))
    return next((name for name in names if getattr(probe, name) == index), "")


def torch_fold(
    machine: Machine, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]
) -> Value:
    """A method that asks for the type only: its answer is a constant."""
    plain = [_type_only(machine, one) for one in arguments]
    named = {key: _type_only(machine, one) for key, one in keywords.items()}
    function = getattr(torch.Tensor, name)
    answer = machine.graph.on_fakes(function, tuple(plain), named)
    return machine.values.literal(_placed(machine, function, arguments, answer))


def _placed(machine: Machine, function: Any, arguments: Sequence[Value], answer: Any) -> Any:
    """An answer, which counts from where the memory is the user's if it says a place there."""
    if function is torch.Tensor.storage_offset and arguments and isinstance(arguments[0], Tensor):
        return answer + arguments[0].place_of_memory(machine)
    return answer


def _type_only(machine: Machine, value: Value) -> Any:
    if isinstance(value, Tensor):
        machine.graph.look_at_sizes(value.fake(machine))
        return value.fake(machine)
    if isinstance(value, Tuple | List):
        plain = value.graph_argument(machine)[1]
        return torch.Size(plain) if value.python_type() is torch.Size else plain
    return value.as_constant(machine)


def treated(
    machine: Machine, how: Treatment, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    """A call as the policy says."""
    name = getattr(function, "__name__", repr(function))
    if how is Treatment.GRAPH:
        return _in_graph(machine, function, arguments, keywords)
    if how is Treatment.FOLD:
        given = (*arguments, *keywords.values())
        if function not in _SHOWS and any(isinstance(one, Tensor | Tuple | List) for one in given):
            plain = tuple(_type_only(machine, one) for one in arguments)
            named = {key: _type_only(machine, one) for key, one in keywords.items()}
            result = machine.graph.on_fakes(function, plain, named)
            if _has_tensor(result):
                return torch_call(machine, "call_function", function, arguments, keywords)
            _refuse_text(function, name, result)
            return machine.values.literal(_placed(machine, function, arguments, result))
        return fold(machine, function, arguments, keywords)
    stop(WATCHER if how is Treatment.WATCHER else UNKNOWN_CALL, name)


_SHOWS = (format, ascii, repr)  # what they say of a tensor is its data, not its type


# A Python function of torch that cannot be one node (it gets a callable, or answers no tensor) is
# followed instead.
_FOLLOWED = (NOT_A_GRAPH_ARGUMENT.number, TORCH_CALL.number)


def _in_graph(machine: Machine, function: Any, arguments: Arguments, keywords: Keywords) -> Value:
    try:
        return torch_call(machine, "call_function", function, arguments, keywords)
    except Unsupported as refused:
        if refused.number not in _FOLLOWED or not isinstance(function, types.FunctionType):
            raise
    followed = machine.values.known(function, function.__qualname__)
    assert isinstance(followed, Function)
    return followed.inline(machine, arguments, keywords)


class Builtin(ByIdentity, Given):
    """A callable written in C."""

    __slots__ = ()

    def describe(self) -> str:
        """Its name."""
        return getattr(self.real, "__qualname__", None) or repr(self.real)

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """As the user said, a special rule, else as the policy says."""
        said = directive_of(self.real)
        if said is not None:
            self.rely(machine)
            return follow(machine, said, self.real, arguments, keywords)
        rule = _rule(self.real)
        if rule is not None:
            self.rely(machine)
            result: Value = rule(machine, arguments, keywords)
            return result
        if isinstance(self.real, types.MethodDescriptorType | types.WrapperDescriptorType):
            return self._unbound(machine, arguments, keywords)
        how = treatment(self.real)
        if how is Treatment.NATIVE:
            stop(UNKNOWN_CALL, self.describe())
        self.rely(machine)
        return treated(machine, how, self.real, arguments, keywords)

    def _unbound(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """`torch.Tensor.add(x, y)`, `str.upper(s)`, `list.append(l, x)`."""
        if not arguments:
            stop(UNKNOWN_CALL, self.describe())
        owner, name = arguments[0], self.real.__name__
        if not issubclass(owner.python_type(), self.real.__objclass__):
            stop(UNKNOWN_CALL, self.describe())
        if isinstance(owner, Subclassed):
            if find(owner.kind, name) is not self.real:  # `dict.__delitem__` of an `OrderedDict`
                stop(UNKNOWN_CALL, f"{self.describe()} of {owner.describe()}")
            self.rely(machine)
            owner.guard_type(machine)
            return owner.builtin_method(machine, name, arguments[1:], keywords)
        if not isinstance(owner, Tensor | Constant | Tuple | List):
            stop(UNKNOWN_CALL, self.describe())
        bad = misfit(self.real, arguments, keywords) is not None
        if bad or not fits(self.real, len(arguments), keywords):
            stop(ARGUMENTS, self.describe())
        self.rely(machine)
        if (
            isinstance(owner, Tensor)
            and machine.guards.rely_on_answer(owner.exact_class, name) is not self.real
        ):
            # A graph calls methods by their names: this one is behind what the user put before it.
            stop(UNKNOWN_CALL, f"{self.describe()}, which was patched")
        return owner.call_method(machine, name, arguments[1:], keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Its names."""
        if name in ("__name__", "__qualname__", "__doc__", "__module__"):
            self.rely(machine)
            try:
                return machine.values.literal(getattr(self.real, name))
            except AttributeError as error:
                raise machine.values.raised(error) from None
        return super().get_attribute(machine, name)


def _rule(real: Any) -> Any:
    try:
        return CALLS.get(real)
    except TypeError:  # not hashable
        return None


@wraps(
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
def _wrap_builtin(machine: Machine, value: Any, source: Source | None) -> Value:
    owner = getattr(value, "__self__", None)
    if source is not None and is_among(type(owner), (dict, list, tuple, str, int, float, bytes)):
        # A method of a container that was bound outside: the container is what matters.
        held = machine.values.wrap(owner, BoundTo(source))
        method = machine.values.method(held, value.__name__)
        method.source = source
        machine.guards.add(Attribute(source, "__name__"), Equals(value.__name__), "a bound method")
        return machine.values.remember(value, method)
    return machine.values.remember(value, Builtin(value, source or Known(value, value.__name__)))


@wraps(torch.finfo, torch.iinfo)
def _wrap_info(machine: Machine, value: Any, source: Source | None) -> Value:
    return Constant(value, source)


@calls(torch.is_tensor)
def _is_tensor(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (value,) = arguments
    value.guard_type(machine)
    return machine.values.literal(issubclass(value.python_type(), torch.Tensor))


@calls(getattr(torch.jit, "is_scripting"), getattr(torch.jit, "is_tracing"))  # noqa: B009
def _false(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(False)


@calls(torch.compiler.is_exporting, is_exporting, *torch_abi.TRACER_QUESTIONS)
def _not_exporting(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(False)


@calls(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _compiling(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    # torch's own call of a module leaves out hooks with `always_call` when it hears a yes; its
    # optimizers compute another way then, with numbers of single precision.
    frame = machine.frames.stack[-1] if machine.frames.stack else None
    if frame is None:
        return machine.values.literal(True)
    is_optimizer = str(frame.globals.get("__name__")).startswith("torch.optim.")
    answer = frame.code is not torch_abi.CALL_OF_MODULES and not is_optimizer
    return machine.values.literal(answer)


@calls(torch.is_grad_enabled)
def _grad_enabled(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    frame = machine.frames.stack[-1] if machine.frames.stack else None
    if machine.graph.hides_grad and frame is not None and not frame.is_ours:
        gives_back = frame.globals.get("__name__") == "torch.autograd.grad_mode"
        if not gives_back:
            stop(machine.graph.hidden_by, "grad mode is read: eager may run this either way")
    return machine.values.literal(torch.is_grad_enabled())  # ambient, guarded always
