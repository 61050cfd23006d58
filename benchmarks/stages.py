"""Where windfall's compile time goes: CPU time of each stage, model by model.

Enters: nothing. Leaves: three tables and a verdict for each of the rules that they are there for:
BERT with 12 layers compiles in at most DEPTH_GOAL times the CPU time of BERT with 4, capture aside,
and is differentiated and split in at most JOINT_GOAL times; the latter takes at most PEER_GOAL of
what torch.compile's counterpart takes (AOT autograd: metadata, joint graph, partition; same run);
and no stage takes more than its share when the program grows (LINEAR). Each figure is the
median over fresh processes, `python -m benchmarks.stages RECIPE MODE LAYERS`, in which one small
function was compiled before: what is paid once for a process is not counted. Python's collector
runs where it likes: what it takes is told in columns of its own (in capture, and elsewhere), not as
part of the stage in which it struck. It has collected once before the compilation begins, so that
the columns tell what the compilation's own objects cause, and not those of imports and of the model
(a full collection falls due once the objects since the last one are a quarter of all).
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks import process, results
from benchmarks.case import Mode, Subject, runner
from benchmarks.models import MODELS, inference_subject, training_subject
from examples.models import TINY, bert

if TYPE_CHECKING:  # windfall is for the child alone
    from windfall.events import Event

DEPTH_GOAL = 1.6
JOINT_GOAL = 1.5
PEER_GOAL = 1 / 5
PEER = "torch.compile's AOT autograd"
GROWTH = (2, 4, 8, 16, 32)  # layers of a BERT whose tensors are tiny
# Time may grow with this power of the number of operations between the two largest programs, for
# timing is not exact; and a stage below MINOR of the whole is not judged.
LINEAR = 1.25
MINOR = 0.01
COLLECTOR = "collector"
CAPTURING = "collector in capture"
MODES: tuple[Mode, ...] = ("inference", "training")


@dataclass(frozen=True, slots=True)
class Profile:
    """CPU seconds by stage, and how many operations were compiled (forward and backward)."""

    name: str
    stages: dict[str, float]
    operations: int
    fallbacks: list[str]

    @property
    def total(self) -> float:
        return sum(self.stages.values())

    @property
    def aside(self) -> float:
        """All but capture, and what the collector took in it: what equal blocks save."""
        return self.total - sum(self.stages.get(one, 0.0) for one in ("capture", CAPTURING))

    @property
    def uncollected(self) -> float:
        """The same without the collector."""
        return self.aside - self.stages.get(COLLECTOR, 0.0)


def run(repeats: int, path: Path | None, quick: bool) -> bool:
    """Measure, print, write; whether every goal is met."""
    models = list(_models(repeats, quick))
    growth = {mode: list(_growth(mode, repeats)) for mode in MODES[: 1 if quick else 2]}
    print("\nstages: CPU milliseconds of compiling, median of fresh processes\n")
    print(_stage_table(models))
    verdicts = [_depth(models, mode) for mode in MODES]
    verdicts += _joint(models, _median(PEER, repeats, "bert-12", "training", "peer"))
    for mode, profiles in growth.items():
        print(f"\nBERT of {', '.join(map(str, GROWTH))} layers, {mode}: µs for each operation\n")
        table, verdict = _growth_table(profiles)
        print(table)
        verdicts.append(verdict)
    print()
    print("\n".join(text for _, text in verdicts))
    if path:
        _write(path, models, growth)
    return all(met for met, _ in verdicts)


def _models(repeats: int, quick: bool) -> Iterator[Profile]:
    for mode in MODES:
        for title, recipe, _ in MODELS:
            if not quick or recipe.startswith("bert"):
                yield _median(f"{title}, {mode}", repeats, recipe, mode, "0")


def _growth(mode: Mode, repeats: int) -> Iterator[Profile]:
    for layers in GROWTH:
        yield _median(f"{layers} layers", repeats, "tiny", mode, str(layers))


def _median(name: str, repeats: int, *arguments: str) -> Profile:
    found = [process.answer("benchmarks.stages", *arguments) for _ in range(repeats)]
    print(f"measured {name}", file=sys.stderr, flush=True)
    kinds = found[0]["stages"]
    stages = {kind: statistics.median(one["stages"][kind] for one in found) for kind in kinds}
    return Profile(name, stages, found[0]["operations"], found[0]["fallbacks"])


# ----------------------------------------------------------------------------------------- tables


def _kinds(profiles: Sequence[Profile]) -> list[str]:
    return list(dict.fromkeys(kind for one in profiles for kind in one.stages))


def _stage_table(profiles: Sequence[Profile]) -> str:
    kinds = _kinds(profiles)
    lines = [["model", *kinds, "sum", "operations", ""]]
    for one in profiles:
        times = [f"{one.stages.get(kind, 0.0) * 1e3:.0f}" for kind in kinds]
        note = f"runs eagerly: {one.fallbacks[0][:60]}" if one.fallbacks else ""
        lines.append([one.name, *times, f"{one.total * 1e3:.0f}", str(one.operations), note])
    return results.aligned(lines)


def _depth(profiles: Sequence[Profile], mode: Mode) -> tuple[bool, str]:
    """Whether twelve equal blocks are compiled as cheaply as four."""
    four, twelve = (
        next(one for one in profiles if one.name == f"BERT, {layers} layers, {mode}")
        for layers in (4, 12)
    )
    ratio = twelve.aside / four.aside
    met = ratio <= DEPTH_GOAL and not (four.fallbacks or twelve.fallbacks)
    return met, (
        f"BERT of 12 layers / of 4, {mode}, capture aside: {ratio:.2f} "
        f"(goal {DEPTH_GOAL} {'met' if met else 'missed'}); without the collector: "
        f"{twelve.uncollected / four.uncollected:.2f}; with capture: "
        f"{twelve.total / four.total:.2f}"
    )


def _joint(profiles: Sequence[Profile], peer: Profile) -> Iterator[tuple[bool, str]]:
    """Whether equal blocks are differentiated and split once, and in a fifth of the peer's time."""
    four, twelve = (
        sum(one.stages[kind] for kind in ("differentiate", "split"))
        for layers in (4, 12)
        for one in profiles
        if one.name == f"BERT, {layers} layers, training"
    )
    for what, ratio, goal in (
        ("BERT of 12 layers / of 4", twelve / four, JOINT_GOAL),
        (f"BERT of 12 layers / {PEER}", twelve / peer.total, PEER_GOAL),
    ):
        text = f"{what}, differentiate and split: {ratio:.3f} (goal {goal:.3f}"
        yield ratio <= goal, f"{text} {'met' if ratio <= goal else 'missed'})"


def _growth_table(profiles: Sequence[Profile]) -> tuple[str, tuple[bool, str]]:
    """Time for each operation as the program grows; the power is between the two largest."""
    last, largest = profiles[-2:]
    lines = [["stage", *(f"{one.operations} operations" for one in profiles), "power"]]
    steep = []
    for kind in _kinds(profiles):
        shares = [one.stages.get(kind, 0.0) / one.operations for one in profiles]
        power = growth_power(
            (last.operations, last.stages.get(kind, 0.0)),
            (largest.operations, largest.stages.get(kind, 0.0)),
        )
        share = largest.stages.get(kind, 0.0) / largest.total
        judged = kind not in (COLLECTOR, CAPTURING) and share > MINOR
        if judged and power > LINEAR:
            steep.append(kind)
        lines.append([kind, *(f"{one * 1e6:.1f}" for one in shares), f"{power:.2f}"])
    verdict = f"stages that grow faster than the program: {', '.join(steep) or 'none'}"
    return results.aligned(lines), (not steep, verdict)


def growth_power(smaller: tuple[int, float], larger: tuple[int, float]) -> float:
    """The p of time ~ operations**p between two programs; 1 is linear, 0 is no growth."""
    if min(smaller[1], larger[1]) <= 0:
        return 0.0
    return math.log(larger[1] / smaller[1]) / math.log(larger[0] / smaller[0])


def _write(path: Path, models: list[Profile], growth: dict[Mode, list[Profile]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "suite": "stages",
        "machine": results.machine(),
        "models": [asdict(one) for one in models],
        "growth": {mode: [asdict(one) for one in found] for mode, found in growth.items()},
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten: {path}")


# ------------------------------------------------------------------------------------ in the child


def _subject(recipe: str, mode: Mode, layers: int) -> Subject:
    if recipe == "tiny":
        made = bert(layers, TINY)
        if mode == "inference":
            return Subject(made.model(), made.inputs(1))
        return Subject(made.objective(), made.batch(2))
    make = inference_subject if mode == "inference" else training_subject
    return make(recipe, 1)()


def _peer(recipe: str) -> None:
    """What torch.compile's counterpart of differentiate and split takes, nothing being built. Its
    modules are loaded before, and a small function was compiled."""
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    spent = 0.0

    def backend(
        module: torch.fx.GraphModule, examples: list[torch.Tensor]
    ) -> Callable[..., object]:
        nonlocal spent
        started = time.thread_time()
        try:
            made: Callable[..., object] = aot_module_simplified(
                module,
                examples,
                fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
                bw_compiler=lambda graph, _: make_boxed_func(graph.forward),
                partition_fn=min_cut_rematerialization_partition,
            )
            return made
        finally:
            spent += time.thread_time() - started

    torch.set_num_threads(1)
    small = torch.nn.Linear(4, 4)
    torch.compile(small, backend=backend)(torch.ones(2, 4)).sum().backward()
    subject = training_subject(recipe, 1)()
    gc.collect()
    spent = 0.0
    torch.compile(subject.program, backend=backend)(*subject.inputs)
    print(json.dumps({"stages": {PEER: spent}, "operations": 0, "fallbacks": []}))


class Collections:
    """When Python's collector ran, and how much CPU time it took."""

    def __init__(self) -> None:
        self._started = (0.0, 0.0)
        self.pauses: list[tuple[float, float]] = []
        gc.callbacks.append(self._told)

    def _told(self, phase: str, info: dict[str, int]) -> None:
        now = (time.perf_counter(), time.thread_time())
        if phase == "start":
            self._started = now
        else:
            self.pauses.append((self._started[0], now[1] - self._started[1]))

    def within(self, event: Event) -> float:
        """What it took during a stage."""
        end = event.started + event.seconds
        return sum(spent for moment, spent in self.pauses if event.started <= moment < end)


def _child(recipe: str, mode: Mode, layers: str) -> None:
    import windfall
    from windfall.reporting.explain import explanation_of
    from windfall.twin import compiled_of

    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = windfall.compile(torch.nn.Linear(4, 4))
    small(torch.ones(2, 4)).sum().backward()
    subject = _subject(recipe, mode, int(layers))
    compiled = windfall.compile(subject.program, options={"records": True})
    gc.collect()
    collections = Collections()
    with torch.set_grad_enabled(mode == "training"):
        runner(subject, compiled, mode)()
    told = explanation_of(compiled_of(compiled).log)
    joints = [event.record.graph for event in told.events if event.kind == "differentiate"]
    answer = {
        "stages": _stages(told.events, collections),
        "operations": sum(map(_count, joints or [one.graph for one in told.graphs])),
        "fallbacks": told.fallbacks + [one.detail for one in told.breaks],
    }
    print(json.dumps(answer))


def _stages(events: Sequence[Event], collections: Collections) -> dict[str, float]:
    stages: dict[str, float] = {}
    collected = {COLLECTOR: 0.0, CAPTURING: 0.0}
    for event in events:
        if event.seconds:
            pause = collections.within(event)
            stages[event.kind] = stages.get(event.kind, 0.0) + event.cpu_seconds - pause
            collected[CAPTURING if event.kind == "capture" else COLLECTOR] += pause
    return {**stages, **collected}


def _count(graph: torch.fx.Graph) -> int:
    return sum(node.op.startswith("call") for node in graph.nodes)


if __name__ == "__main__":
    if sys.argv[3] == "peer":
        _peer(sys.argv[1])
    else:
        _child(*sys.argv[1:])  # type: ignore[arg-type]
