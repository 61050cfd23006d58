"""One function, uncompiled and compiled, on equal inputs: the check that every sweep makes.

Enters: `make`, which answers a function and its arguments afresh, always equal. Leaves: facts
written into a `Line`: whether results, inputs and gradients agree, and what was captured. Each
compiled function is called twice: the call that compiles, and one that uses what was compiled.
"""

from __future__ import annotations

import contextlib
import random
import unittest.mock
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conformance.sweep import DIFFERENT, REFUSED, Line
from tests.programs.observe import Comparison
from tests.programs.subjects import Windfall
from windfall.frontend.interpreter import Interpreter
from windfall.ops.fake import is_fake

Made = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Probe(TorchDispatchMode):
    """Notes the ATen ops that run on the memory of these tensors. (Numbers that C++ wraps into
    tensors of its own, as for `x[0] = 2.0`, are no data of the user.)"""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.data = {address_of(one) for one in tensors} - {None, 0}
        self.ran: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(address_of(one) in self.data for one in tensors_in([args, kwargs])):
            self.ran.append(str(function))
        return function(*args, **(kwargs or {}))


def address_of(tensor: torch.Tensor) -> int | None:
    """Where the memory of a tensor is; None: it has none."""
    if is_fake(tensor) or tensor.layout is not torch.strided or tensor.device.type == "meta":
        return None
    return tensor.untyped_storage().data_ptr()


def data_of(made: Made) -> list[torch.Tensor]:
    """The tensors that a program is given, and those of the module that it is."""
    function, args, kwargs = made
    given = list(tensors_in([args, kwargs]))
    if isinstance(function, torch.nn.Module):
        given += [*function.parameters(), *function.buffers()]
    return [one for one in given if not torch.nn.parameter.is_lazy(one)]


@contextlib.contextmanager
def probed_captures(tensors: Iterable[torch.Tensor]) -> Iterator[Probe]:
    """Every capture meanwhile runs under one probe: tracing must not touch the data of the user.
    (The probe is set up inside: calls under a dispatch mode of the user's run eagerly.)"""
    probe, plain = Probe(tensors), Interpreter.run

    def run(machine: Interpreter) -> None:
        with probe:
            plain(machine)

    with unittest.mock.patch.object(Interpreter, "run", run):
        yield probe


class Tags(TorchDispatchMode):
    """Notes whether an ATen op ran whose result's size or value depends on data."""

    _TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(tag in function.tags for tag in self._TAGS):
            self.found.add(str(function))
        return function(*args, **(kwargs or {}))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a nested structure."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return (one for one in leaves if isinstance(one, torch.Tensor))


def gradients(result: Any, inputs: list[torch.Tensor]) -> tuple[Any, ...]:
    """The gradients of a fixed weighing of every result, for those inputs that want one."""
    total: Any = 0
    for number, one in enumerate(tensors_in(result)):
        if one.requires_grad and (one.is_floating_point() or one.is_complex()):
            weights = torch.linspace(0.5, 1.5 + number, one.numel()).reshape(one.shape)
            product = one * weights.to(one.device)
            total = total + (product.abs() if one.is_complex() else product).sum()
    wanted = [one for one in inputs if one.requires_grad]
    if not isinstance(total, torch.Tensor) or not wanted:
        return ()
    return torch.autograd.grad(total, wanted, allow_unused=True)


def answer(made: Made, call: Callable[..., Any], differentiate: bool) -> tuple[Any, Any, Any]:
    """What a call returns, its gradients, and its inputs after it."""
    function, args, kwargs = made
    torch.manual_seed(7)
    numpy.random.seed(7)
    random.seed(7)
    result = call(*args, **kwargs)
    given = [args, kwargs]
    inputs = list(tensors_in(given))
    if isinstance(function, torch.nn.Module):
        inputs += list(function.parameters())
        given.append(function.state_dict())
    return result, gradients(result, inputs) if differentiate else (), given


def check_one(
    make: Callable[[], Made], backend: str, line: Line, values: bool = True, name: str = ""
) -> None:
    """Add to a line what one sample says. `values`: False where results are not initialised."""
    differentiate = backend != "eager"
    first, again = make(), make()
    tags = Tags()
    try:
        expected = [answer(made, made[0], differentiate) for made in (first, again)]
        again = make()
        with tags:
            again[0](*again[1], **again[2])
    except Exception as error:  # not a program: nothing to compare with
        line.detail = line.detail or f"uncompiled: {type(error).__name__}: {error}"
        line.status = REFUSED if not line.samples else line.status
        return
    line.status = line.status.replace(REFUSED, "equal")
    line.data_dependent |= bool(tags.found)
    line.tensors |= any(True for _ in tensors_in([again[1], again[2], expected]))
    line.samples += 1
    subject = Windfall(backend, strict=False, verify=True)
    made = make()
    compiled = subject.compile(made[0])
    for number, wanted in enumerate(expected):
        if number:
            made = (made[0], *make()[1:])
            if isinstance(made[0], torch.nn.Module):
                wanted = expected_second(make, differentiate)
        with probed_captures(data_of(made)) as probe:
            given = answer(made, compiled, differentiate)
        line.executed += probe.ran
        compare(wanted, given, subject.exact, values, line, f"call {number}")
    told(subject, line, name)
    line.captured &= not line.executed


def expected_second(make: Callable[[], Made], differentiate: bool) -> tuple[Any, Any, Any]:
    """What the second call of one and the same module answers (its buffers have changed)."""
    made = make()
    answer(made, made[0], differentiate)
    return answer((made[0], *make()[1:]), made[0], differentiate)


def compare(expected: Any, given: Any, exact: bool, values: bool, line: Line, where: str) -> None:
    """Note the first difference."""
    comparison = Comparison("", exact)
    with torch._C.DisableTorchFunction():
        comparison.walk(expected[0], given[0], f"{where}: result")
        comparison.walk(expected[2], given[2], f"{where}: inputs")
        for number, pair in enumerate(zip(expected[1], given[1], strict=True)):
            # Whether two gradients are one tensor is the engine's own affair.
            alone = Comparison("", exact)
            alone.walk(*pair, f"{where}: gradient {number}")
            noise = ("strides", "value") if not exact and nearly(*pair) else ("strides",)
            comparison.differences += [one for one in alone.differences if one.aspect not in noise]
    found = [one for one in comparison.differences if values or one.aspect != "value"]
    if found:
        line.status = DIFFERENT
        line.detail = "\n".join(map(str, found[:4]))


def nearly(expected: Any, given: Any) -> bool:
    """Whether a gradient is right but for rounding: sums that cancel are as wrong as their largest
    part is large, in eager too."""
    if not isinstance(expected, torch.Tensor) or not isinstance(given, torch.Tensor):
        return False
    if expected.layout is not torch.strided or given.layout is not torch.strided:
        return False
    if expected.shape != given.shape or expected.dtype != given.dtype or not expected.numel():
        return False
    scale = max(1.0, float(expected.detach().abs().nan_to_num(posinf=0.0).max()))
    return torch.allclose(given, expected, rtol=1e-4, atol=3e-5 * scale, equal_nan=True)


def told(subject: Windfall, line: Line, name: str) -> None:
    """What was captured."""
    explained = subject.explanation
    line.graphs += len(explained.graphs)
    line.breaks += [f"W{one.number:04d} {one.detail} at {one.where}" for one in explained.breaks]
    line.fallbacks += explained.fallbacks
    whole = not explained.breaks and not explained.fallbacks
    # A program without tensors (torch.broadcast_shapes) is whole without a graph.
    line.captured &= whole and (bool(explained.graphs) or not line.tensors)
    names = {node_name(node) for one in explained.graphs for node in one.graph.nodes}
    line.named &= not name or not line.tensors or plain_name(name) in names


def node_name(node: Any) -> str:
    """What a node calls; of a read attribute (`x.mT`), the attribute."""
    return plain_name(node.args[1] if node.target is getattr else node.target)


def plain_name(target: Any) -> str:
    """`torch.nn.functional.relu`, `"relu_"`, `aten.relu.default` as `relu`; `log_sigmoid` as
    `logsigmoid`."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    text = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    last = text.removesuffix(".default").split(".")[-1]
    for prefix in ("linalg_", "special_", "fft_"):
        last = last.removeprefix(prefix)
    return last.replace("_", "")
