"""Modes of the thread that a program switches: gradients, autocast, inference mode, attention.

Enters: `torch.no_grad()`, `torch.autocast()`, `inference_mode`, `sdpa_kernel` and their like: their
Python code is interpreted, and in the end calls C functions, which have rules here. Leaves: nodes
in the graph, so that operations after them are recorded in that mode; while tracing, the thread's
own mode is switched too, so that operations on fakes see it. Invariant: `capture` gives the modes
back (`torch_abi.set_modes`); a segment that leaves other modes than it found switches them in its
source (`lines`).

    with torch.autocast("cpu", dtype=torch.bfloat16):     set_mode("autocast_enabled_cpu", True)
        y = x @ w                                         set_mode("autocast_dtype_cpu", bfloat16)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.frontend.breaks import ARGUMENTS, TORCH_CALL, UNKNOWN_CALL, stop
from windfall.frontend.state import HELD
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import CALLS, Rule, calls
from windfall.frontend.values.constant import Constant, fold
from windfall.frontend.values.objects import Opaque
from windfall.frontend.values.tensor import METHOD_RULES, Tensor
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals
from windfall.ir.source import ByMethod, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


def switch(machine: Machine, name: str, value: Any) -> None:
    """Switch a mode, in the graph and here."""
    before = torch_abi.SWITCHES[name].read()
    if before == value:
        return
    machine.effects.undo(lambda: torch_abi.set_mode(name, before))
    torch_abi.set_mode(name, value)
    machine.effects.switched.add(name)
    if name == "grad":
        machine.graph.call("call_function", torch_abi.set_grad_mode, (value,), {}, None)
    else:
        machine.graph.call("call_function", torch_abi.set_mode, (name, value), {}, None)


def present(machine: Machine, name: str) -> Any:
    """How a mode stands, relied upon where that is how the segment found it."""
    value = torch_abi.SWITCHES[name].read()
    if name not in machine.effects.switched and name not in _AMBIENT:
        _rely(machine, torch_abi.SWITCHES[name].read, name, value)
    return value


def _rely(machine: Machine, reader: Callable[[], Any], name: str, value: Any) -> None:
    """Rely on what a function of no arguments answers."""
    asked = ByMethod(Known(reader, name), torch_abi.Asked, "answer")
    if (asked, "mode") not in machine.effects.relied:
        machine.effects.relied.add((asked, "mode"))
        machine.guards.add(asked, Equals(value), "a mode is read")


def setting(machine: Machine, reader: Callable[[], Any]) -> Value:
    """A setting of the process that a program reads and others write: relied upon."""
    value = reader()
    _rely(machine, reader, reader.__name__, value)
    return machine.values.literal(value)


def _settings(*readers: Callable[[], Any]) -> None:
    """Rows for functions that answer one."""

    def rule_of(reader: Callable[[], Any]) -> Rule:
        def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
            if arguments or keywords:
                stop(ARGUMENTS, reader.__name__)
            return setting(machine, reader)

        return rule

    for one in readers:
        calls(one)(rule_of(one))


_settings(
    torch.get_num_threads,
    torch.get_num_interop_threads,
    torch.get_float32_matmul_precision,
    torch.get_deterministic_debug_mode,
    torch.is_warn_always_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled,
    *torch_abi.FLAG_READERS,
)


@calls(torch_abi.transforms_active)
def _transforms_active(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """In the body of a transform, or where the whole is called inside of one."""
    if machine.graph.levels:
        return machine.values.literal(True)
    return setting(machine, torch_abi.transforms_active)


# What the guard on ambient state says already.
_AMBIENT = ("grad", "inference", "autocast_enabled_cpu", "autocast_enabled_cuda")
_BY_GUARDS = ("inference", "inference_depth")


def lines(machine: Machine, recipe: Recipe, found: Mapping[str, Any]) -> list[str]:
    """Statements that leave the modes as the program did; `found` is how they were."""
    written = []
    entered = machine.effects.entered
    for name, value in torch_abi.modes().items():
        if name in _BY_GUARDS or (value == found[name] and not (name == "grad" and entered)):
            continue
        if name == "grad":
            written.append(f"{recipe.known(torch_abi.set_grad_mode, 'set_grad_mode')}({value})")
        else:
            shown = recipe.known(value, name) if not isinstance(value, bool) else repr(value)
            written.append(f"{recipe.known(torch_abi.set_mode, 'set_mode')}({name!r}, {shown})")
    depth = machine.effects.autocast_depth
    deeper, back = torch.autocast_increment_nesting, torch.autocast_decrement_nesting
    call = recipe.known(deeper, "enter_autocast") if depth > 0 else ""
    call = recipe.known(back, "leave_autocast") if depth < 0 else call
    return written + [f"{call}()"] * abs(depth)


@calls(torch_abi.set_grad_mode)
def _set_grad_mode(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (mode,) = arguments
    switch(machine, "grad", bool(mode.as_constant(machine)))
    return machine.values.literal(None)


@calls(torch_abi.tracing_state)
def _tracing_state(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(None)


# ------------------------------------------------------------------------------------- autocast


def _device(machine: Machine, arguments: Arguments, count: int) -> tuple[str, list[Any]]:
    """The device type goes first; older forms without it mean CUDA."""
    plain = [one.as_constant(machine) for one in arguments]
    if len(plain) == count - 1:
        plain.insert(0, "cuda")
    if len(plain) != count or not isinstance(plain[0], str):
        stop(ARGUMENTS, "autocast")
    if f"autocast_enabled_{plain[0]}" not in torch_abi.SWITCHES:
        stop(TORCH_CALL, f"autocast on {plain[0]}")
    return plain[0], plain[1:]


@calls(torch.is_autocast_enabled)
def _is_autocast_enabled(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if not arguments:  # of any device
        return machine.values.literal(torch.is_autocast_enabled())
    device, _ = _device(machine, arguments, 1)
    return machine.values.literal(present(machine, f"autocast_enabled_{device}"))


@calls(torch.get_autocast_dtype)
def _get_autocast_dtype(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    device, _ = _device(machine, arguments, 1)
    return machine.values.literal(present(machine, f"autocast_dtype_{device}"))


@calls(torch.is_autocast_cache_enabled)
def _is_cache_enabled(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(present(machine, "autocast_cache"))


@calls(torch.set_autocast_enabled)
def _set_autocast_enabled(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    device, (mode,) = _device(machine, arguments, 2)
    switch(machine, f"autocast_enabled_{device}", bool(mode))
    return machine.values.literal(None)


@calls(torch.set_autocast_dtype)
def _set_autocast_dtype(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    device, (dtype,) = _device(machine, arguments, 2)
    switch(machine, f"autocast_dtype_{device}", dtype)
    return machine.values.literal(None)


@calls(torch.set_autocast_cache_enabled)
def _set_cache_enabled(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    switch(machine, "autocast_cache", bool(arguments[0].as_constant(machine)))
    return machine.values.literal(None)


@calls(torch.autocast_increment_nesting)
def _increment_nesting(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(machine.effects.nest_autocast(1))


@calls(torch.autocast_decrement_nesting)
def _decrement_nesting(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """How deep it is nested outside is not known, so what was cast is forgotten at each level:
    that costs a cast, a weight that was kept too long would be a wrong one."""
    machine.effects.nest_autocast(-1)
    machine.graph.call("call_function", torch.clear_autocast_cache, (), {}, None)
    return machine.values.literal(1)


@calls(torch.clear_autocast_cache)
def _clear_cache(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    machine.graph.call("call_function", torch.clear_autocast_cache, (), {}, None)
    return machine.values.literal(None)


def _folded(*functions: Any) -> None:
    def rule_of(function: Any) -> Any:
        return lambda machine, arguments, keywords: fold(machine, function, arguments, keywords)

    for one in functions:
        if one not in CALLS:
            calls(one)(rule_of(one))


_folded(
    torch.amp.autocast_mode.is_autocast_available,
    torch_abi.private_backend_name,
)


@calls(torch_abi.function_mode_enabled)
def _function_mode_enabled(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(False)  # ambient, and refused before the capture


# ---------------------------------------------------------------------------------- inference mode


class _InferenceGuard(Value):
    """Its two methods are read here, so that leaving one natively is one break and not two."""

    __slots__ = ()

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """They are bound to it."""
        if name in ("__enter__", "__exit__"):
            return machine.values.method(self, name)
        return super().get_attribute(machine, name)


class Inference(_InferenceGuard):
    """The guard that `torch.inference_mode` holds, made in this segment."""

    __slots__ = ("grad", "mode", "quiet")

    def __init__(self, machine: Machine, mode: bool) -> None:
        super().__init__()
        self.mode = mode
        self.grad = torch.is_grad_enabled()  # brought back when it is left
        self.quiet = torch.is_inference_mode_enabled() == mode  # it switches gradients alone
        entered = machine.effects.entered

        def undo() -> None:
            entered.pop()

        machine.effects.undo(undo)
        entered.append(self)
        if self.quiet:
            switch(machine, "grad", not mode)
        else:
            self._enter(machine)

    def python_type(self) -> type:
        """torch's own class."""
        made: type = torch_abi.inference_guard
        return made

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """Made is entered. What is not nested is left to torch."""
        entered = machine.effects.entered
        if name == "__exit__" and any(one is self for one in entered):
            if entered[-1] is not self:
                stop(UNKNOWN_CALL, "_InferenceMode.__exit__, not nested")
            machine.effects.undo(lambda: entered.append(self))
            entered.pop()
            if self.quiet:
                switch(machine, "grad", self.grad)
            else:
                self._leave(machine)
        return machine.values.literal(None)

    def _enter(self, machine: Machine) -> None:
        before = torch_abi.modes()
        machine.effects.undo(lambda: torch_abi.set_modes(before))
        machine.graph.call("call_function", torch_abi.enter_inference, (self.mode,), {}, None)
        torch_abi.enter_inference(self.mode)
        machine.effects.switched |= {"inference", "grad"}

    def _leave(self, machine: Machine) -> None:
        before = torch.is_grad_enabled()

        def undo() -> None:
            torch_abi.enter_inference(self.mode)
            torch_abi.set_grad_mode(before)

        machine.effects.undo(undo)
        machine.graph.call("call_function", torch_abi.leave_inference, (), {}, None)
        torch_abi.leave_inference()

    def rebuild(self, recipe: Recipe) -> str:
        """A guard of torch's. (Those that are not left were named by `hold`.)"""
        return f"{recipe.known(torch_abi.left_inference, 'left_inference')}({self.mode})"


def hold(machine: Machine, recipe: Recipe) -> list[str]:
    """The statement that makes the guards that the segment leaves entered, in their order. Should
    the segment not come to its end, they are left in the reverse order (`entry`)."""
    entered = machine.effects.entered
    if not entered:
        return []
    make = recipe.known(torch_abi.held_inference, "held_inference")
    for index, one in enumerate(entered):
        recipe.alias(one, f"{HELD}[{index}]")
    return [f"{HELD} = ({' '.join(f'{make}({one.mode}, {one.grad}),' for one in entered)})"]


def leave_entered(machine: Machine) -> None:
    """A graph that ends leaves what it has entered: the segment's source enters it again, by guards
    that the program holds."""
    for one in machine.effects.entered:
        if not one.quiet:
            machine.graph.call("call_function", torch_abi.leave_inference, (), {}, None)


class HeldInference(_InferenceGuard, Opaque):
    """A guard from outside that an earlier segment, or the program, has entered: it is left
    natively."""

    __slots__ = ()

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """Natively."""
        stop(UNKNOWN_CALL, f"{self.describe()}.{name}")


@wraps(torch_abi.inference_guard)
def _wrap_held(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(
        value, HeldInference(value, source or Known(value, "_InferenceMode"))
    )


@calls(torch_abi.inference_guard)
def _inference_guard(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (mode,) = arguments
    return Inference(machine, bool(mode.as_constant(machine)))


def _is_inference_tensor(
    tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords
) -> Value:
    """Stand-ins of tensors from outside are made outside of inference mode; their keys are
    relied upon."""
    if arguments or keywords:
        stop(ARGUMENTS, "is_inference")
    fake = tensor.fake(machine)
    return machine.values.literal((tensor.real if tensor.real is not None else fake).is_inference())


METHOD_RULES["is_inference"] = _is_inference_tensor


@calls(torch.is_inference)
def _is_inference_call(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) != 1 or not isinstance(arguments[0], Tensor):
        stop(ARGUMENTS, "is_inference")
    return _is_inference_tensor(arguments[0], machine, [], {})


@calls(torch.is_inference_mode_enabled)
def _is_inference(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.literal(torch.is_inference_mode_enabled())


# ------------------------------------------------------------------------------------- attention


@wraps(torch_abi.attention_backend)
def _wrap_backend(machine: Machine, value: Any, source: Source | None) -> Value:
    return Constant(value, source)


def _reader(function: Any, name: str) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        return machine.values.literal(present(machine, name))

    calls(function)(rule)


def _writer(function: Any, name: str) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        switch(machine, name, arguments[0].as_constant(machine))
        return machine.values.literal(None)

    calls(function)(rule)


for _function, _name in torch_abi.attention_readers.items():
    _reader(_function, _name)
for _function, _name in torch_abi.attention_writers.items():
    _writer(_function, _name)
