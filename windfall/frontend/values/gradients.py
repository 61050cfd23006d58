"""What programs do with autograd's records: hooks, `.grad`, `.data`, functions with own gradients.

Enters: `register_hook`, writes of `.grad` and `.data`, `torch.autograd.Function.apply`. Leaves:
effects (hooks and writes are done after the graph, in program order), and for a function one node
whose target holds the graphs of its forward and its backward (`ir/custom.py`). Invariant: no code
of the user runs: forward and backward are interpreted, both at once or, where that cannot be done,
the call is made natively.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.frontend.breaks import (
    ARGUMENTS,
    ATTRIBUTE_WRITE,
    CHECKPOINT,
    REBUILD,
    UNKNOWN_ATTRIBUTE,
    stop,
)
from windfall.frontend.breaks import UNKNOWN_CALL as CALL
from windfall.frontend.effects import restore
from windfall.frontend.gradient_effects import WRITE as GRADIENT_WRITE
from windfall.frontend.polyfills import core
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.sequence import SequenceValue, Tuple
from windfall.frontend.values.tensor import METHOD_RULES, WRITE_RULES, Tensor
from windfall.frontend.values.unseen import look, same
from windfall.ir.custom import CustomGradient
from windfall.ir.generators import generator_at
from windfall.ir.node import info
from windfall.ir.reading import class_name
from windfall.ops.fake import storage_of

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

# ----------------------------------------------------------------------------------------- hooks


class Handle(Value):
    """What `register_hook` answers; the hook is registered where this is rebuilt."""

    __slots__ = ("hook", "method", "tensor", "written")
    made_of = torch.utils.hooks.RemovableHandle

    def __init__(
        self, tensor: Tensor, method: str, hook: Value | None, written: set[Any] | None
    ) -> None:
        super().__init__()
        self.tensor = tensor
        self.method = method
        self.hook = hook
        self.written = written  # memory that operations write, if this must not be

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`remove`."""
        if name == "remove":
            return machine.values.method(self, name)
        stop(UNKNOWN_ATTRIBUTE, f"a hook's handle.{name}")

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`remove`."""
        machine.effects.add("{}.remove()", self)
        return machine.values.literal(None)

    def rebuild(self, recipe: Recipe) -> str:
        """Registered now: the gradient passes the tensor whatever was computed from it before."""
        fake = self.tensor._fake
        if self.written is not None and fake is not None and storage_of(fake) in self.written:
            stop(REBUILD, "a tensor with a hook is written later")
        tensor = recipe.name(self.tensor)
        hook = recipe.name(self.hook) if self.hook is not None else ""
        return recipe.bind(self, f"{tensor}.{self.method}({hook})")


def _register(name: str, hooks: int = 1) -> None:
    def rule(tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if keywords or len(arguments) != hooks:
            stop(ARGUMENTS, name)
        fake = tensor.fake(machine)
        if not fake.requires_grad or (tensor.source is None and name not in _OF_RESULTS):
            stop(CALL, f"{name} of {tensor.describe()}")
        written = None
        if tensor.source is None or tensor.is_written(machine):
            if tensor.is_written(machine):
                stop(CALL, f"{name} of {tensor.describe()}, which was written")
            written = machine.graph.written
            if torch_abi.is_view(fake):
                # What arrives at a view arrives at its base: only op by op it is a node by itself.
                hooked = torch_abi.hooked
                machine.graph.call("call_function", hooked, (tensor.node(machine),), {}, None)
        handle = Handle(tensor, name, arguments[0] if hooks else None, written)
        machine.effects.add("{}", handle)
        return handle if hooks else machine.values.literal(None)

    METHOD_RULES[name] = rule


_OF_RESULTS = ("register_hook", "retain_grad")
_register("register_hook")
_register("retain_grad", hooks=0)
_register("register_post_accumulate_grad_hook")


def _is_own(tensor: Tensor, machine: Machine) -> bool:
    """Whether autograd's record of a tensor is the graph's alone: the graph made it, and no other
    tensor looks at its memory from before (what a view leads to is its base's matter)."""
    graph = machine.graph
    if tensor.source is not None or graph.levels or graph.checkpoint is not None:
        return False
    return not (graph.hides_grad or torch_abi.is_view(tensor.fake(machine)))


def _is_unseen(fake: Any) -> bool:
    """Whether it is a view that was made where autograd does not look (`unseen_views.py`)."""
    try:
        return torch_abi.was_unseen(fake)
    except RuntimeError:  # what it looks at has been written where autograd looks
        return True


def _requires_grad(
    tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords
) -> Value:
    """A leaf is made of what the graph computed, in the graph. Of what is so already nothing is to
    do: transformers ask it of embeddings, for the sake of checkpoints."""
    given = [*arguments, *keywords.values()] or [machine.values.literal(True)]
    if len(given) != 1 or not keywords.keys() <= {"requires_grad"} or not given[0].is_constant():
        stop(ARGUMENTS, "requires_grad_")
    wanted = given[0].as_constant(machine)
    if tensor.fake(machine).requires_grad is wanted:
        if _is_unseen(tensor.fake(machine)):  # of what is a view itself, it may need none so far
            return machine.values.torch_call("call_method", "requires_grad_", [tensor, *given], {})
        return tensor
    if not isinstance(wanted, bool) or not _is_own(tensor, machine):
        stop(UNKNOWN_ATTRIBUTE, f"{tensor.describe()}.requires_grad_()")
    return machine.values.torch_call("call_method", "requires_grad_", [tensor, *given], {})


def _detach(tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """What the graph computed forgets how, in the graph."""
    if arguments or keywords:
        stop(ARGUMENTS, "detach_")
    if not _is_own(tensor, machine):
        stop(UNKNOWN_ATTRIBUTE, f"{tensor.describe()}.detach_()")
    return machine.values.torch_call("call_method", "detach_", [tensor], {})


def _write_requires_grad(tensor: Tensor, machine: Machine, value: Value) -> None:
    """As the method, which alone may be asked of what is computed and needs one already."""
    if not _is_own(tensor, machine) or not tensor.fake(machine).is_leaf:
        stop(ATTRIBUTE_WRITE, f"{tensor.describe()}.requires_grad")
    _requires_grad(tensor, machine, [value], {})


METHOD_RULES["requires_grad_"] = _requires_grad
METHOD_RULES["detach_"] = _detach
WRITE_RULES["requires_grad"] = _write_requires_grad


# --------------------------------------------------------------------------------- .grad and .data


def _write_grad(tensor: Tensor, machine: Machine, value: Value) -> None:
    """Of a tensor from outside."""
    if tensor.source is None:
        stop(ATTRIBUTE_WRITE, f"{tensor.describe()}.grad")
    mine = tensor.fake(machine)
    if isinstance(value, Tensor):
        theirs = value.fake(machine)
        same = theirs.shape == mine.shape and theirs.dtype == mine.dtype
        if not same or theirs.device != mine.device or theirs.layout != mine.layout:
            stop(ATTRIBUTE_WRITE, f"{tensor.describe()}.grad of another type")
    elif value.python_type() is not type(None):
        stop(ATTRIBUTE_WRITE, f"{tensor.describe()}.grad")
    before = tensor.children.get("grad")
    machine.effects.undo(lambda: restore(tensor.children, "grad", before))
    tensor.children["grad"] = value
    machine.effects.add(GRADIENT_WRITE, tensor, value)


def _write_data(tensor: Tensor, machine: Machine, value: Value) -> None:
    """The same tensor with other memory: from here on a node of that memory stands for it."""
    if tensor.source is None or not isinstance(value, Tensor):
        stop(ATTRIBUTE_WRITE, f"{tensor.describe()}.data")
    mine, theirs = tensor.fake(machine), value.fake(machine)
    if mine.requires_grad or theirs.requires_grad or mine.dtype != theirs.dtype:
        stop(ATTRIBUTE_WRITE, f"{tensor.describe()}.data")
    machine.effects.add("{}.data = {}", tensor, value)
    other = machine.values.torch_call("call_method", "detach", [value], {})
    assert isinstance(other, Tensor)
    before = tensor._node, tensor._fake
    fake = other.fake(machine)

    def restore() -> None:
        tensor._node, tensor._fake = before
        machine.graph.fakes[fake] = other

    machine.effects.undo(restore)
    replaced = machine.effects.replaced
    replaced.append(tensor)
    machine.effects.undo(lambda: replaced.remove(tensor))
    tensor.node(machine)
    tensor._node, tensor._fake = other.node(machine), fake
    machine.graph.fakes[fake] = tensor


WRITE_RULES["grad"] = _write_grad
WRITE_RULES["data"] = _write_data


# ------------------------------------------------------------------------- functions with gradients


class Context(Value):
    """The `ctx` of a function while its forward and backward are interpreted."""

    __slots__ = (
        "arguments",
        "attributes",
        "cls",
        "constant",
        "dirty",
        "effects",
        "grads",
        "hidden",
        "middle",
        "mode",
        "needs",
        "once",
        "results",
        "saved",
        "start",
        "whole",
    )
    made_of = torch.autograd.function.FunctionCtx

    def __init__(self, cls: Class, arguments: list[Value], start: int, effects: int) -> None:
        super().__init__()
        self.cls = cls
        self.arguments = arguments
        self.start = start  # calls of the graph before the forward
        self.middle = start  # and before the backward
        self.effects = effects
        self.mode = torch.is_grad_enabled()
        self.hidden = False  # whether the grad mode was none of the program's business before
        self.once = False  # whether its backward has no derivative
        self.attributes = Dict({})
        self.saved: list[Value] = []
        self.whole = True  # gradients that are missing are zeros
        self.dirty: list[Value] = []  # arguments that forward writes
        self.constant: list[Value] = []  # results without a gradient
        self.needs: list[bool] = []
        self.results: list[Value] = []
        self.grads: list[torch.fx.Node] = []

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """What was saved, its methods, and attributes of the user's own."""
        if name == "saved_tensors":
            return Tuple(list(self.saved))
        if name == "needs_input_grad":
            return Tuple([machine.values.literal(one) for one in self.needs])
        if name in _METHODS:
            return machine.values.method(self, name)
        found = self.attributes.lookup(machine, name)
        if found is None:
            stop(UNKNOWN_ATTRIBUTE, f"ctx.{name}")
        return found

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """The user's own."""
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            stop(ATTRIBUTE_WRITE, f"ctx.{name}")
        self.attributes.store(machine, name, value)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """What a function says of its tensors; once each, as the last word counts."""
        undo = machine.effects.undo
        if name == "set_materialize_grads":
            if keywords or len(arguments) != 1 or not arguments[0].is_constant():
                stop(ARGUMENTS, name)
            whole = self.whole
            undo(lambda: setattr(self, "whole", whole))
            self.whole = bool(arguments[0].as_constant(machine))
            return machine.values.literal(None)
        target: list[Value] = getattr(self, _METHODS[name])
        before = list(target)
        undo(lambda: target.__setitem__(slice(None), before))
        target[:] = arguments
        return machine.values.literal(None)


_METHODS = {
    "save_for_backward": "saved",
    "mark_non_differentiable": "constant",
    "mark_dirty": "dirty",
    "set_materialize_grads": "whole",
}


@calls(torch_abi.FUNCTION_APPLY)
def _apply(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    cls, *given = arguments
    plain = torch.autograd.Function
    if not isinstance(cls, Class) or keywords:
        stop(CALL, "autograd.Function.apply")
    if cls.find(machine, "jvp") is not vars(plain).get("jvp", cls.find(machine, "jvp")):
        stop(CALL, f"{cls.describe()} has a forward derivative")
    apart = cls.find(machine, "setup_context") is not _plain("setup_context")
    machine.frames.hold_together()
    parts = [cls, machine.values.tuple(given), machine.values.literal(apart)]
    return machine.values.polyfill("apply_function", parts)


def _plain(name: str) -> Any:
    for base in torch.autograd.Function.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


@calls(core.begin_forward)
def _begin_forward(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    cls, given = arguments
    assert isinstance(cls, Class)
    values = given.unpack(machine)
    context = Context(cls, values, len(machine.graph.calls), len(machine.effects.entries))
    for one in values:
        tensor = isinstance(one, Tensor)
        if isinstance(one, Tensor):
            one.node(machine)  # its placeholder stands outside
        context.needs.append(
            tensor and context.mode and bool(getattr(one, "fake")(machine).requires_grad)  # noqa: B009
        )
    _grad_mode(machine, False)
    return context


def _grad_mode(machine: Machine, mode: bool) -> None:
    """Not a node: forward and backward are graphs of their own."""
    before = torch.is_grad_enabled()
    machine.effects.undo(lambda: torch_abi.set_grad_mode(before))
    torch_abi.set_grad_mode(mode)
    machine.effects.switched.add("grad")


@calls(core.wants_backward)
def _wants_backward(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Whether any gradient is wanted; else what forward gave is the result."""
    context, result = arguments
    assert isinstance(context, Context)
    context.results = result.unpack(machine) if isinstance(result, SequenceValue) else [result]
    wanted = any(context.needs)
    for one in context.results:
        if not isinstance(one, Tensor):
            stop(CALL, f"{context.cls.describe()} answers {one.describe()}")
        # One that is given back as it is is an alias with another gradient; or it is written.
        given = any(same(one, other) for other in context.arguments)
        if given and not wanted:
            stop(CALL, f"{context.cls.describe()} answers {one.describe()}, without gradients")
        if one.source is not None and not given:
            stop(CALL, f"{context.cls.describe()} answers a tensor from outside")
    _judge(machine, context)
    if not wanted:
        _grad_mode(machine, context.mode)
        _no_effects(machine, context)
        machine.frames.let_go()
    return machine.values.literal(wanted)


def _judge(machine: Machine, context: Context) -> None:
    """What was said of tensors is kept to: what is written is an argument and a result; where a
    gradient may be missing there is one result, whose gradient is there whenever it is asked."""
    name = context.cls.describe()
    results = [one for one in context.results if not any(same(one, c) for c in context.constant)]
    if not context.whole and len(results) != 1:
        stop(CALL, f"{name} takes gradients that are missing")
    for one in context.dirty:
        known = any(same(one, other) for other in context.arguments)
        if not known or not any(same(one, other) for other in context.results):
            stop(CALL, f"{name} marks {one.describe()} as written")


def _no_effects(machine: Machine, context: Context) -> None:
    if len(machine.effects.entries) != context.effects:
        stop(CALL, f"{context.cls.describe()} has effects")
    written = machine.graph.written
    dirty = {storage_of(one.fake(machine)) for one in context.dirty if isinstance(one, Tensor)}
    for one in context.arguments:
        if isinstance(one, Tensor) and storage_of(one.fake(machine)) in written - dirty:
            stop(CALL, f"{context.cls.describe()} writes its arguments")


@calls(core.begin_backward)
def _begin_backward(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Gradients of the results: they stand in the graph until it is cut. Eager runs a backward with
    or without a history; it is read with one, and must not ask."""
    (context,) = arguments
    assert isinstance(context, Context)
    context.middle = len(machine.graph.calls)
    context.once = _is_once_differentiable(context.cls)
    grads: list[Value] = []
    for one in context.results:
        like = machine.values.torch_call("call_function", torch.empty_like, [one], {})
        assert isinstance(like, Tensor)
        context.grads.append(like.node(machine))
        grads.append(like)
    if not context.once:
        context.hidden = machine.graph.hides_grad
        _grad_mode(machine, True)
        _hide_grad(machine, True)
    return Tuple(grads)


def _is_once_differentiable(cls: Class) -> bool:
    """Whether torch's decorator stands around the backward: that asks for the mode, and cuts."""
    for base in cls.real.__mro__:
        found = vars(base).get("backward")
        if found is not None:
            code = getattr(getattr(found, "__func__", found), "__code__", None)
            return code is torch_abi.ONCE_DIFFERENTIABLE
    return False


def _hide_grad(machine: Machine, hidden: bool) -> None:
    graph = machine.graph
    before = graph.hides_grad, graph.hidden_by

    def undo() -> None:
        graph.hides_grad, graph.hidden_by = before

    machine.effects.undo(undo)
    graph.hides_grad, graph.hidden_by = hidden, CHECKPOINT if graph.checkpoint else CALL


@calls(core.finish_function)
def _finish_function(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Cut both parts out of the graph; one node does what they do."""
    context, result, found = arguments
    assert isinstance(context, Context)
    _no_effects(machine, context)
    grads = found.unpack(machine) if isinstance(found, SequenceValue) else [found]
    if len(grads) != len(context.arguments):
        stop(CALL, f"{context.cls.describe()}.backward answers {len(grads)} gradients")
    nodes: list[torch.fx.Node | None] = []
    for one, needed in zip(grads, context.needs, strict=True):
        if isinstance(one, Tensor) and needed:
            nodes.append(one.node(machine))
        elif isinstance(one, Tensor) or (isinstance(one, Constant) and one.value is None):
            nodes.append(None)
        else:
            stop(CALL, f"{context.cls.describe()}.backward answers {one.describe()}")
    made, inputs = _cut(machine, context, nodes)
    _grad_mode(machine, context.mode)
    if not context.once:
        _hide_grad(machine, context.hidden)
    results = machine.values.torch_call("call_function", made, inputs, {})
    machine.frames.let_go()
    if isinstance(result, Tensor):
        return results.unpack(machine)[0]
    return results if type(look(result)) is Tuple else stop(CALL, "a function answers a list")


def _refuse_nodes(
    context: Context, forward: Sequence[torch.fx.Node], backward: Sequence[torch.fx.Node]
) -> None:
    """What no graph of such a function may hold."""
    name = context.cls.describe()
    switched = [one for one in forward if torch_abi.is_mode_switch(one.target)]
    switched += [
        one
        for one in backward
        if torch_abi.is_mode_switch(one.target) and one.target is not torch_abi.set_grad_mode
    ]
    if switched or any(info(one).reads for one in (*forward, *backward)):
        stop(CALL, f"{name} switches modes, or reads data")
    if any(one.target is generator_at for one in backward):
        stop(CALL, f"{name} draws from a generator of its own in its backward")


def _cut(
    machine: Machine, context: Context, gradients: list[torch.fx.Node | None]
) -> tuple[CustomGradient, list[Value]]:
    builder = machine.graph
    forward = builder.calls[context.start : context.middle]
    backward = [one for one in builder.calls[context.middle :] if one not in context.grads]
    _refuse_nodes(context, forward, backward)
    tensors = [one for one in context.arguments if isinstance(one, Tensor)]
    known = (one for one in builder.fakes.values() if isinstance(one, Tensor))
    values = {id(one.node(machine)): one for one in known if one.used}
    outside: list[torch.fx.Node] = [one.node(machine) for one in tensors]
    results = [one.node(machine) for one in context.results if isinstance(one, Tensor)]
    constant = [one.node(machine) for one in context.constant if isinstance(one, Tensor)]
    inside = {*forward, *backward, *context.grads}
    for node in (*forward, *backward):
        for used in node.all_input_nodes:
            if used not in inside and used not in outside:
                outside.append(used)
    own = [node for node in gradients if node is not None]
    for node in own:
        if node not in inside and node not in outside:
            outside.append(node)
    wanted: list[torch.fx.Node | None] = []
    position = iter(range(len(context.arguments)))
    for one in context.arguments:
        index = next(position)
        if isinstance(one, Tensor):
            wanted.append(gradients[index])
    made = CustomGradient.cut(
        class_name(context.cls.real),
        outside,
        forward,
        backward,
        results,
        context.grads,
        [*wanted, *[None] * (len(outside) - len(tensors))],
        [results.index(one) for one in constant if one in results],
        [outside.index(one.node(machine)) for one in context.dirty if isinstance(one, Tensor)],
        once=context.once,
    )
    if any(id(node) not in values for node in outside):
        stop(CALL, f"{context.cls.describe()} uses part of a result")
    inputs: list[Value] = [*tensors, *(values[id(node)] for node in outside[len(tensors) :])]
    builder.cut(context.start)
    return made, inputs
