"""The golden programs: files that hold a small program and what each stage says of it.

Enters: `tests/goldens/programs/<name>.txt`: Python source, a line `MARK`, then what stages printed.
Leaves: the program, loaded (`load`), run (`run`), and the text of its stages (`stages_text`).
Invariant: the text is the same on every machine: kernels are those of 256-bit vectors, of LLVM the
instructions are counted; on another Python what the front end says is left out (`golden.py`).

The source has `torch`, `nn` and `F` ready. It defines `program`, a function or a module, and
`calls`, which yields what each call is given: a tuple, or a dict of keywords. It may define
`options`, and `tell`, which answers what else the program has changed. What needs a gradient is
differentiated.
"""

from __future__ import annotations

import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import windfall
from tests.golden import TESTS
from windfall.autograd import Flat
from windfall.events import Event, EventKind
from windfall.ir.graph_text import print_graph
from windfall.ir.loop import Loops, MemoryPlan, Schedule
from windfall.ir.stages import Capture, Entry, Executable, Joint, LlvmModule, Segment, Split
from windfall.ir.text import loops_text, schedule_text

FOLDER = TESTS / "goldens" / "programs"
MARK = "#" * 35 + " what each stage says " + "#" * 35 + "\n"


@dataclass(frozen=True, slots=True)
class GoldenProgram:
    """A program of a file."""

    name: str
    source: str
    module: types.ModuleType

    @property
    def options(self) -> dict[str, Any]:
        """Those that it is compiled with."""
        return getattr(self.module, "options", {})


def names() -> list[str]:
    """Every golden program."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> GoldenProgram:
    """The program, made anew; its module can be imported by its name, so that records name it."""
    path = FOLDER / f"{name}.txt"
    source = path.read_text(encoding="utf-8").partition(MARK)[0]
    module = types.ModuleType(f"golden_{name}")
    module.__dict__.update(__file__=str(path), torch=torch, nn=nn, F=nn.functional)
    sys.modules[module.__name__] = module
    torch.manual_seed(0)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return GoldenProgram(name, source, module)


# ------------------------------------------------------------------------------------- running


def run(program: GoldenProgram, target: Callable[..., Any]) -> list[Any]:
    """What `target` does in every call: results, the tensors that it was given (which it may have
    written), their gradients and those of parameters; and whatever the program tells."""
    answers = []
    torch.manual_seed(1)
    given = list(program.module.calls())
    for one in given:
        torch.manual_seed(2)
        args, kwargs = ((), one) if isinstance(one, dict) else (one, {})
        result = target(*args, **kwargs)
        outputs = list(tensors(result))
        total = sum((weighed(each) for each in outputs if each.requires_grad), torch.zeros(()))
        if total.requires_grad:
            total.backward()
        inputs = [*tensors(one), *_parameters(program.module.program)]
        answers += [result, *inputs, *(each.grad for each in inputs if each.is_leaf)]
    tell = getattr(program.module, "tell", None)
    return [*answers, tell() if tell else None]


def weighed(result: torch.Tensor) -> torch.Tensor:
    """A loss in which every element counts otherwise."""
    weight = torch.linspace(-1, 2, result.numel()).reshape(result.shape)
    return (result * weight).sum()


def _parameters(program: Any) -> Iterable[torch.Tensor]:
    return program.parameters() if isinstance(program, nn.Module) else ()


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors anywhere in a value."""
    match value:
        case torch.Tensor():
            yield value
        case dict():
            yield from tensors(tuple(value.values()))
        case list() | tuple():
            for each in value:
                yield from tensors(each)


def compiled(program: GoldenProgram) -> Any:
    """The compiled program, which keeps all records."""
    options = {"records": True, "strict": True, **program.options}
    backend = options.pop("backend", "windfall")
    return windfall.compile(program.module.program, backend=backend, options=options)


# ---------------------------------------------------------------------------------------- text


def stages_text(events: Iterable[Event]) -> str:
    """What each stage says, in the order in which they ran."""
    parts: list[str] = []
    for event in events:
        text = _texts(event).rstrip()
        if event.kind is EventKind.ARRANGE and any(text in part for part in parts):
            text = "unchanged"
        if text:
            parts.append(f"== {event.kind} of {event.subject}\n{text}\n")
    return "\n".join(parts)


def _texts(event: Event) -> str:
    if "raised" in event.facts:
        return str(event.facts["raised"])
    if event.kind in _OF_FACTS:
        return f"{event.facts.get('what', '')} {event.facts.get('reason', '')}".strip()
    show = TEXTS.get(type(event.record))
    return show(event.record) if show is not None else ""


_OF_FACTS = (EventKind.FALLBACK, EventKind.RECOMPILE, EventKind.SPECIALISE)


def _capture(capture: Capture) -> str:
    parts = [print_graph(capture.graph)]
    parts += [f"guard: {guard}" for guard in capture.guards]
    parts += [f"effect: {effect}" for effect in capture.effects]
    if capture.stopped is not None:
        parts.append(f"break: W{capture.stopped.number:04d} {capture.stopped.detail}")
    return "\n".join(parts)


def _joint(joint: Joint) -> str:
    signature = joint.signature
    written = [str(index) for index in signature.writes]
    outputs = [one.kind if one.base < 0 else f"{one.kind} {one.base}" for one in signature.outputs]
    said = [f"outputs: {', '.join(outputs)}", *(["writes: " + ", ".join(written)] * bool(written))]
    return "\n".join([*said, print_graph(joint.graph)])


def _split(split: Split) -> str:
    backward = split.backward
    if backward is None:
        return "forward alone"
    kept = f"inputs {list(split.saved_inputs)}, results {list(split.saved_results)}"
    return "\n".join(
        [
            f"saved: {kept}, {len(split.saved)} more",
            print_graph(split.forward),
            print_graph(backward),
        ]
    )


def _plan(plan: MemoryPlan) -> str:
    places = [f"{name} at {offset}" for name, offset in plan.offsets.items()]
    return ", ".join([f"{plan.arena_bytes} bytes", *places])


_INSTRUCTION = re.compile(r"^  (?:%\S+ = )?(\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^define [^\n]*?@([\w.]+)\(.*?^}", re.MULTILINE | re.DOTALL)


def _module(module: LlvmModule) -> str:
    lines = []
    for function in _FUNCTION.finditer(module.text):
        counted = sorted(Counter(_INSTRUCTION.findall(function[0])).items())
        lines.append(f"{function[1]}: " + ", ".join(f"{count} {name}" for name, count in counted))
    steps = [getattr(step, "function", None) or f"python {step.target}" for step in module.steps]  # type: ignore[union-attr]
    return "\n".join([*lines, f"steps: {', '.join(steps)}"])


def _entry(entry: Entry) -> str:
    return f"{'native' if entry.native else 'generated'}: {entry.segment.direct or 'by its source'}"


TEXTS: dict[type, Callable[[Any], str]] = {
    Capture: _capture,
    Segment: lambda segment: segment.source,
    Flat: str,
    Joint: _joint,
    Split: _split,
    torch.fx.Graph: print_graph,
    Loops: loops_text,
    Schedule: schedule_text,
    MemoryPlan: _plan,
    LlvmModule: _module,
    Executable: str,
    Entry: _entry,
}
