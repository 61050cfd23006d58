"""Calls of `torch.utils.checkpoint`: their operations are tagged, and judged at the end.

Enters: a call of `checkpoint`, interpreted by `polyfills/checkpointing.py`. Leaves: nodes whose
`NodeInfo.checkpoint` says in which call they stand and what a policy says of their ATen ops; the
partitioner computes them again. Invariant: a call is captured only if running the function a second
time, as eager does in backward, cannot be told from not doing so: it writes nothing that was there
before, has no effects, its random numbers are to be the same ones, and (with `use_reentrant`, where
eager runs it without gradients first) all it answers needs a gradient. Else torch itself is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from windfall import torch_abi
from windfall.frontend.breaks import CHECKPOINT, stop
from windfall.frontend.graph import Dispatched
from windfall.frontend.polyfills import checkpointing
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.enumeration import Member
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.symbolic import SymInt
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look, settled
from windfall.identity_map import IdentityMap
from windfall.ir.custom import CustomGradient
from windfall.ir.node import Checkpoint, Policy, info, set_info
from windfall.ir.symint import Expression
from windfall.ops.fake import Storage, is_fake, storage_of, writes_of

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


# ------------------------------------------------------------------------------------ the region


class OpenRegion(Value):
    """A call of `checkpoint` that is being interpreted."""

    __slots__ = (
        "answers", "arguments", "checkpoint", "dispatched", "effects", "existing", "grad",
        "journal", "left", "modes", "preserve", "reentrant", "start",
    )  # fmt: skip
    made_of = object

    def __init__(
        self, machine: Machine, arguments: list[Value], existing: IdentityMap[Any, None]
    ) -> None:
        super().__init__()
        graph, effects = machine.graph, machine.effects
        self.checkpoint = Checkpoint(graph.regions, graph.checkpoint)
        self.dispatched: list[Dispatched] = []
        self.start = len(graph.calls)
        self.effects = len(effects.entries)
        self.journal = len(effects.journal)
        self.modes = torch_abi.modes()
        self.grad = torch.is_grad_enabled()
        self.arguments = arguments
        self.existing = existing
        self.preserve = self.reentrant = self.left = False
        self.answers: list[Policy] = []


@calls(torch_checkpoint.checkpoint)
def _checkpoint(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if machine.graph.levels:
        stop(CHECKPOINT, "inside of a function that torch.func transforms, which refuses it")
    machine.frames.hold_together()
    return machine.values.polyfill("checkpoint", arguments, keywords)


@calls(checkpointing.refuse)
def _refuse(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    stop(CHECKPOINT, str(arguments[0].as_constant(machine)))


@calls(checkpointing.begin_region)
def _begin_region(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    function, given, named, reentrant, preserve = arguments
    graph = machine.graph
    written = (one for entry in machine.effects.entries for one in entry.operands)
    region = OpenRegion(
        machine, given.unpack(machine), _reachable([function, given, named, *written])
    )
    region.reentrant = bool(_truth(machine, reentrant))
    region.preserve = bool(_truth(machine, preserve))
    if region.reentrant:
        needs = [one.fake(machine).requires_grad for one in _tensors(region.arguments)]
        if graph.hides_grad or not any(needs):
            stop(CHECKPOINT, "checkpoint warns that no argument needs a gradient")
    before = graph.checkpoint, graph.hides_grad

    def undo() -> None:
        graph.checkpoint, graph.hides_grad = before
        graph.dispatched.pop()

    machine.effects.undo(undo)
    region.journal += 1
    graph.regions += 1
    graph.checkpoint = region.checkpoint
    graph.hides_grad |= region.reentrant
    graph.dispatched.append(region.dispatched)
    return region


def _truth(machine: Machine, value: Value) -> Any:
    found = value.truth(machine)
    if isinstance(found, Value):
        stop(CHECKPOINT, f"{value.describe()} as an option of checkpoint")
    return found


def _tensors(values: Iterable[Value]) -> list[Tensor]:
    return [one for one in values if isinstance(one, Tensor)]


def _reachable(roots: list[Any]) -> IdentityMap[Any, None]:
    """All values, and of what they keep their contents in, to which ways lead from
    these. Nothing is looked at."""
    found: IdentityMap[Any, None] = IdentityMap()
    waiting = list(roots)
    while waiting:
        one = settled(waiting.pop())
        kind = type(one)
        if one in found:
            continue
        if issubclass(kind, Value):
            found[one] = None
            for base in kind.__mro__:
                for name in getattr(base, "__slots__", ()):
                    if name not in _NO_CONTENTS and hasattr(one, name):
                        waiting.append(getattr(one, name))
        elif kind in (list, tuple, dict, set):
            if kind is not tuple:  # which cannot change, and the empty one is everybody's
                found[one] = None
            waiting.extend(one.values() if kind is dict else one)
    return found


# What a value knows of an object from outside, or of the graph.
_NO_CONTENTS = frozenset(
    {"real", "source", "guarded", "_fake", "_node", "_type", "code", "globals"}
)


@calls(checkpointing.leave_region)
def _leave_region(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Without gradients a checkpoint is a call like any other (breaks included)."""
    (region,) = arguments
    assert isinstance(region, OpenRegion)
    _close(machine, region)
    region.left = True
    return machine.values.literal(None)


def _close(machine: Machine, region: OpenRegion) -> None:
    graph = machine.graph

    before = graph.hides_grad

    def undo() -> None:
        graph.checkpoint, graph.hides_grad = region.checkpoint, before
        graph.dispatched.append(region.dispatched)

    machine.effects.undo(undo)
    graph.checkpoint = region.checkpoint.parent
    graph.hides_grad = before and not region.reentrant
    graph.dispatched.pop()
    machine.frames.let_go()


@calls(checkpointing.end_region)
def _end_region(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    region, result = arguments
    assert isinstance(region, OpenRegion)
    if region.left:
        return result
    _check_effects(machine, region)
    _check_operations(region)
    if region.reentrant:
        _check_reentrant(machine, region, result)
    if region.answers:
        _note_policies(machine, region)
    _close(machine, region)
    return result


# ---------------------------------------------------------------------------- what is not captured


def _check_effects(machine: Machine, region: OpenRegion) -> None:
    effects = machine.effects
    if len(effects.entries) != region.effects:
        stop(CHECKPOINT, "a checkpointed function with effects")
    if torch_abi.modes() != region.modes:
        stop(CHECKPOINT, "a checkpointed function that switches a mode")
    for action in effects.journal[region.journal :]:
        for cell in getattr(action, "__closure__", None) or ():
            if cell.cell_contents in region.existing:
                stop(CHECKPOINT, "a checkpointed function that changes an object")


def _check_operations(region: OpenRegion) -> None:
    made: set[Storage] = set()
    for one in region.dispatched:
        given = {storage_of(fake) for fake in _fakes((one.arguments, one.keywords))}
        if any(storage not in made for storage in _written(one)):
            stop(CHECKPOINT, f"a checkpointed function that writes: {one.operation}")
        made.update({storage_of(fake) for fake in _fakes(one.result)} - given)
        if not region.preserve and torch.Tag.nondeterministic_seeded in one.operation.tags:
            stop(CHECKPOINT, f"preserve_rng_state=False and {one.operation}")


def _written(one: Dispatched) -> Iterable[Storage]:
    for index, name in writes_of(one.operation):
        given = one.arguments
        for fake in _fakes(given[index] if index < len(given) else one.keywords.get(name)):
            yield storage_of(fake)


def _fakes(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _fakes(one)
    elif isinstance(value, dict):
        yield from _fakes(tuple(value.values()))
    elif is_fake(value):
        yield value


def _check_reentrant(machine: Machine, region: OpenRegion, result: Value) -> None:
    """Eager runs the function without gradients, as an `autograd.Function` of its arguments: what
    it answers needs a gradient whatever it is made of, tensors in containers do not, and gradients
    of all else go straight to leaves."""
    results = result.unpack(machine) if type(look(result)) is Tuple else [result]
    outside = {id(storage_of(one.fake(machine))) for one in _tensors(region.arguments)}
    for one in results:
        if not isinstance(one, Tensor):
            if not one.is_constant():
                stop(CHECKPOINT, f"a checkpoint with use_reentrant answers {one.describe()}")
            continue
        fake = one.fake(machine)
        differentiable = fake.dtype.is_floating_point or fake.dtype.is_complex
        if one.source is not None or id(storage_of(fake)) in outside:
            stop(CHECKPOINT, "a checkpoint with use_reentrant answers what it was given")
        if differentiable and region.grad and not fake.requires_grad:
            stop(CHECKPOINT, "a checkpoint with use_reentrant answers a tensor without gradient")
    _check_ways(machine, region, results)
    inside = machine.graph.calls[region.start :]
    known = {id(one.node(machine)) for one in _tensors(region.arguments)}
    for node in inside:
        for given in node.all_input_nodes:
            if given.op == "placeholder" or given in inside or id(given) in known:
                continue
            if getattr(info(given).type, "requires_grad", False):
                stop(CHECKPOINT, "a checkpoint with use_reentrant reads a tensor past arguments")


def _check_ways(machine: Machine, region: OpenRegion, results: Sequence[Value]) -> None:
    """If one result has a gradient, eager gives zeros to arguments that others alone lead to."""
    fakes = [one.fake(machine) for one in results if isinstance(one, Tensor)]
    needing = [one for one in fakes if one.requires_grad]
    arguments = [one.fake(machine) for one in _tensors(region.arguments)]
    given = {_edge(one) for one in arguments if one.requires_grad}
    if len(needing) > 1 and len({frozenset(_ways(one, given)) for one in needing}) > 1:
        stop(CHECKPOINT, "results of a checkpoint with use_reentrant are made of other arguments")


def _edge(tensor: torch.Tensor) -> tuple[Any, int]:
    found = torch.autograd.graph.get_gradient_edge(tensor)
    return found.node, found.output_nr


def _ways(result: torch.Tensor, ends: Collection[Any]) -> Iterator[Any]:
    """Those of these edges that the history of a result leads to."""
    waiting = [_edge(result)]
    seen = {*waiting}
    while waiting:
        edge = waiting.pop()
        if edge in ends:
            yield edge
        elif edge[0] is not None:
            new = [one for one in edge[0].next_functions if one not in seen]
            seen.update(new)
            waiting += new


# --------------------------------------------------------------------------------------- policies


class Contexts(Value):
    """One of the two contexts that `create_selective_checkpoint_contexts` answers."""

    __slots__ = ("policy",)
    made_of = torch_abi.selective_context

    def __init__(self, policy: Value) -> None:
        super().__init__()
        self.policy = policy


@calls(torch_checkpoint.create_selective_checkpoint_contexts)
def _create_contexts(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    names = ("policy_fn_or_list", "allow_cache_entry_mutation")
    given = {**dict(zip(names, arguments, strict=False)), **keywords}
    policy = given["policy_fn_or_list"]
    if not machine.graph.dispatched:
        stop(CHECKPOINT, "contexts that are made outside of a checkpoint")
    if isinstance(policy, List):
        for one in policy.items(machine):
            if not torch_abi.is_overload(getattr(look(one), "real", None)):
                stop(CHECKPOINT, f"{one.describe()} in a list of ops")
    made = Contexts(policy)
    return Tuple([made, made])


@calls(checkpointing.policy_of)
def _policy_of(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    found = look(arguments[0])
    parts = found.unpack(machine) if isinstance(found, Tuple | List) else []
    if len(parts) != 2 or not all(isinstance(one, Contexts) for one in parts):
        stop(CHECKPOINT, "a context_fn that answers contexts of the user's own")
    policy: Value = found.unpack(machine)[0].policy
    return policy


class Operand(Tensor):
    """A tensor that an op was given, or answered, shown to a policy: it may be asked for its type,
    and no more."""

    __slots__ = ()

    def node(self, machine: Machine) -> torch.fx.Node:
        """None: a policy computes nothing."""
        stop(CHECKPOINT, "a policy that computes with tensors")


@calls(checkpointing.operations_of)
def _operations_of(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (region,) = arguments
    assert isinstance(region, OpenRegion)
    rows: list[Value] = []
    for one in _asked_about(region):
        parts = (one.operation, one.arguments, dict(one.keywords), one.result)
        rows.append(Tuple([_shown(machine, part) for part in parts]))
    return Tuple(rows)


def _asked_about(region: OpenRegion) -> list[Dispatched]:
    ignored = torch_checkpoint.SAC_IGNORED_OPS
    return [one for one in region.dispatched if one.operation not in ignored]


def _shown(machine: Machine, value: Any) -> Value:
    if is_fake(value):
        return Operand(fake=value)
    if isinstance(value, Expression):
        return SymInt(value)
    if type(value) is tuple:
        return Tuple([_shown(machine, one) for one in value])
    if type(value) is list:
        return List([_shown(machine, one) for one in value])
    if type(value) is dict:
        return machine.values.created_dict({k: _shown(machine, v) for k, v in value.items()})
    return machine.values.literal_or_known(value, str(value))


@calls(checkpointing.decide)
def _decide(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    region, answer = arguments
    assert isinstance(region, OpenRegion)
    machine.effects.undo(lambda: region.answers.pop() and None)
    region.answers.append(_policy(machine, look(answer)))
    return machine.values.literal(None)


def _policy(machine: Machine, answer: Value) -> Policy:
    """Of a policy's answer; whatever says not to save means what eager takes it for."""
    if isinstance(answer, Constant) and isinstance(answer.as_constant(machine), bool):
        return Policy.MUST_SAVE if answer.as_constant(machine) else Policy.PREFER_RECOMPUTE
    real = answer.real if isinstance(answer, Member) else None
    if not isinstance(real, torch_checkpoint.CheckpointPolicy):
        stop(CHECKPOINT, f"a policy that answers {answer.describe()}")
    return Policy.__members__.get(real.name, Policy.PREFER_RECOMPUTE)


def _note_policies(machine: Machine, region: OpenRegion) -> None:
    asked = _asked_about(region)
    _check_kept(region, asked)
    said: dict[int, list[tuple[str, Policy]]] = {}
    for one, policy in zip(asked, region.answers, strict=True):
        said.setdefault(one.call, []).append((str(one.operation), policy))
    for index, node in enumerate(machine.graph.calls[region.start :], region.start):
        if isinstance(node.target, CustomGradient):
            stop(CHECKPOINT, "a policy, and a function with a gradient of its own")
        known = info(node)
        assert known.checkpoint is not None
        inner = known.checkpoint.policies
        both = _combined(inner, said.get(index, [])) if inner else tuple(said.get(index, []))
        set_info(node, replace(known, checkpoint=replace(known.checkpoint, policies=both)))


def _check_kept(region: OpenRegion, asked: list[Dispatched]) -> None:
    """Eager refuses, in backward, what was kept and then written."""
    kept: set[Storage] = set()
    for one, policy in zip(asked, region.answers, strict=True):
        if not kept.isdisjoint(_written(one)):
            stop(CHECKPOINT, f"{one.operation} writes what a policy keeps")
        if policy in (Policy.MUST_SAVE, Policy.PREFER_SAVE):
            kept.update(storage_of(fake) for fake in _fakes(one.result))


def _combined(
    inner: tuple[tuple[str, Policy], ...], outer: list[tuple[str, Policy]]
) -> tuple[tuple[str, Policy], ...]:
    """What calls within each other say of the same ops: any of them may keep a value, unless the
    inner one insists."""
    if [op for op, _ in inner] != [op for op, _ in outer]:
        stop(CHECKPOINT, "policies of checkpoints within each other")
    pairs = zip(inner, outer, strict=True)
    return tuple(
        (op, said if said is not Policy.PREFER_RECOMPUTE else other)
        for (op, said), (_, other) in pairs
    )


__all__ = ["Contexts", "OpenRegion", "Operand"]
