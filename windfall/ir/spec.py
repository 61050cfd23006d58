"""What is legal between stages: one verifier for each record, run under `verify=True` and in tests.

Enters: what a stage made: a capture, a graph, a joint graph or its halves, loops, a schedule, a
memory plan, a module, a program. Leaves: nothing, or an `InternalError` that names the rule and
shows what breaks it. Invariant: verifying changes nothing. A record gets its verifier by a row of
`VERIFIERS`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.errors import InternalError
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.loop import (
    REDUCTIONS,
    SCALAR_OPS,
    Axis,
    Buffer,
    BufferView,
    Call,
    Definition,
    Fold,
    Kernel,
    Loop,
    Loops,
    MemoryPlan,
    PartCall,
    Scalar,
    Schedule,
    Statement,
    Store,
    is_size,
    walk,
)
from windfall.ir.node import KEY, info
from windfall.ir.source import AMBIENT
from windfall.ir.stages import (
    Capture,
    Executable,
    Joint,
    LlvmModule,
    Program,
    PythonStep,
    Signature,
    Split,
)
from windfall.ir.symint import Atom, Size, bounds, known_at_least, symbols_of


def _demand(holds: bool, rule: str, what: object) -> None:
    """`what` is a node itself and not its text: writing it out costs more than all checks of it."""
    if not holds:
        shown = what.format_node() if isinstance(what, torch.fx.Node) else what
        raise InternalError(f"{rule}: {shown}")


# --------------------------------------------------------------------------------------- graphs


def verify_graph(graph: torch.fx.Graph) -> None:
    """An SSA graph of ATen overloads, as codegen takes it."""
    seen: set[torch.fx.Node] = set()
    last = None
    for node in graph.nodes:
        _demand(KEY in node.meta, "every node has a NodeInfo", node)
        _demand(
            all(each in seen for each in node.all_input_nodes),
            "a node uses nodes before it",
            node,
        )
        _demand(node.op in _NODE_RULES, "a graph has nodes of known kinds", node)
        _NODE_RULES[node.op](node)
        seen.add(node)
        last = node
    _demand(last is not None and last.op == "output", "a graph ends with its output", last)


def _placeholder(node: torch.fx.Node) -> None:
    _demand(isinstance(info(node).type, TensorType), "inputs are tensors", node)


def _call(node: torch.fx.Node) -> None:
    if node.target is operator.getitem:
        return
    if isinstance(node.target, Subgraphs):
        _bodies(node, node.target)
        return
    if torch_abi.is_overload(getattr(node.target, "func", None)):
        return  # an op that writes, called on copies
    mutable = torch_abi.op_writes(node.target)
    _demand(mutable is not None, "calls are ATen overloads", node)
    _demand(not mutable, "nothing is written in place", node)


def _bodies(node: torch.fx.Node, target: Subgraphs) -> None:
    for graph in target.graphs:
        verify_graph(graph)
        constants = [one for one in graph.nodes if one.op == "get_attr"]
        _demand(not constants, "constants of bodies are operands", node)
    types = tuple(one.without_grad() for one in target.result_types)
    _demand(info(node).type == types, "a node answers what its bodies answer", node)


def _output(node: torch.fx.Node) -> None:
    values = node.args[0]
    _demand(
        isinstance(values, (list, tuple))
        and all(value is None or isinstance(value, torch.fx.Node) for value in values),
        "a graph returns a tuple of nodes or None",
        node,
    )


def _anything(node: torch.fx.Node) -> None:
    pass


_NODE_RULES = {
    "placeholder": _placeholder,
    "get_attr": _anything,
    "call_function": _call,
    "output": _output,
}


# -------------------------------------------------------------------------------------- scalars


def _verify_scalar(
    root: Scalar, buffers: Mapping[str, Buffer], axes: frozenset[Atom], finished: set[Scalar]
) -> None:
    """Known ops, right numbers of arguments, loads of known buffers, no unbound axis."""
    unbound = root.free - axes
    _demand(not unbound, "every axis has a loop", [atom.key for atom in unbound])
    for node in walk(root):
        if node.op == "load":
            name, _ = node.attribute
            _demand(name in buffers, "a load is of a known buffer", name)
            _demand(
                buffers[name].type.dtype is node.dtype,
                "a load has its buffer's dtype",
                f"{name}: {node.dtype}",
            )
        elif node.op in SCALAR_OPS:
            count, rule = SCALAR_OPS[node.op]
            _demand(len(node.arguments) == count, f"{node.op} takes {count} arguments", node)
            wanted = torch.bool if rule == "bool" else node.arguments[-1].dtype
            _demand(node.dtype is wanted, f"{node.op} gives {wanted}", node.dtype)
        elif node.op == "reduce":
            _demand(node.attribute[0] in REDUCTIONS, "a reduction is known", node.attribute[0])
        else:
            _demand(node.op in _LEAVES, "an op is known", node.op)


_LEAVES = ("constant", "index", "cast", "masked", "checked")


def _verify_offset(
    buffer: Buffer, offset: Size, axes: frozenset[Atom], ragged: bool = False
) -> None:
    """`ragged`: some loop ends early in its last round, which ranges of axes do not tell."""
    unbound = [atom for atom in symbols_of(offset) - axes if not is_size(atom)]
    _demand(not unbound, "every axis has a loop", offset)
    low, high = bounds(offset)
    varies = any(map(is_size, symbols_of(offset)))  # ranges of its parts say too little
    inside = ragged or varies or low is None or low >= 0
    _demand(inside, "a store is inside its buffer", f"{buffer.name}[{offset}]")
    sizes, strides = buffer.type.sizes, buffer.type.strides
    fixed = all(isinstance(part, int) for part in (*sizes, *strides))
    if ragged or varies or high is None or not fixed:
        return
    last = sum((int(str(n)) - 1) * int(str(s)) for n, s in zip(sizes, strides, strict=True))
    _demand(high <= last, "a store is inside its buffer", f"{buffer.name}[{offset}]")


# ---------------------------------------------------------------------------------------- loops


def verify_loops(loops: Loops) -> None:
    """Definitions and calls in an order in which they can be computed. What is written in place is
    read no more by the name that it had."""
    buffers = loops.buffers
    ready = {
        name
        for name, each in buffers.items()
        if each.place in ("input", "constant") and each.over is None
    }
    for item in loops.items:
        if isinstance(item, Call):
            for view in _views(item.arguments):
                exists = view.buffer in ready or view.type.elements == 0
                _demand(exists, "a call reads what exists", view.buffer)
            made = item.results
        else:
            _verify_definition(item, loops.buffers, ready)
            made = (item.buffer,)
        ready.update(made)
        ready -= {buffers[name].over for name in made}
    _verify_results(loops.results, loops.buffers, ready)


def _verify_definition(item: Definition, buffers: Mapping[str, Buffer], ready: set[str]) -> None:
    axes = frozenset(each.atom for each in item.axes)
    inner = [n for n in walk(item.value) if n.op == "reduce" and n is not item.value]
    _demand(not inner, "a reduction stands at the root of a definition", item.buffer)
    _verify_scalar(item.value, buffers, axes, set())
    for node in walk(item.value):
        if node.op == "load":
            _demand(node.attribute[0] in ready, "a definition reads what exists", node.attribute)
    _verify_offset(buffers[item.buffer], item.offset, axes)
    _demand(
        buffers[item.buffer].type.dtype is item.value.dtype,
        "a definition has its buffer's dtype",
        item.buffer,
    )


def _verify_results(
    results: Sequence[BufferView | None], buffers: Mapping[str, Buffer], ready: set[str]
) -> None:
    for view in results:
        if view is not None and view.type.elements != 0:
            _demand(view.buffer in ready, "a result exists", view.buffer)
            _demand(buffers[view.buffer].place != "temporary", "a result is not in the arena", view)


def _views(value: object) -> Iterator[BufferView]:
    if isinstance(value, BufferView):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _views(each)


# ------------------------------------------------------------------------------------- schedule


def verify_schedule(schedule: Schedule) -> None:
    """Kernels whose loops bind every axis and whose folds end before they are used."""
    for item in schedule.items:
        if isinstance(item, PartCall):
            verify_schedule(item.part.schedule)
        elif isinstance(item, Kernel):
            _Check(schedule.buffers).body(item.body, ())


class _Check:
    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        self.finished: set[Scalar] = set()
        self.open: set[Scalar] = set()

    def body(self, body: Sequence[Statement], loops: tuple[Axis, ...]) -> None:
        """Statements inside these loops."""
        for statement in body:
            if isinstance(statement, Loop):
                self._loop(statement, loops)
            else:
                self._statement(statement, loops)

    def _loop(self, loop: Loop, loops: tuple[Axis, ...]) -> None:
        taken = {each.atom for each in loops}
        _demand(loop.axis.atom not in taken, "an axis has one loop", loop.axis)
        _demand(not loop.parallel or not loops, "only the outermost loop is parallel", loop.axis)
        self.body(loop.body, (*loops, loop.axis))
        ended = {
            node for node in self.open if not any(each.atom in taken for each in node.attribute[1])
        }
        self.open -= ended
        self.finished |= ended

    def _statement(self, statement: Store | Fold, loops: tuple[Axis, ...]) -> None:
        axes = frozenset(each.atom for each in loops)
        root = statement.value
        if isinstance(statement, Fold):
            _demand(root.op == "reduce", "a fold is of a reduction", root.op)
            _demand(
                all(each.atom in axes for each in root.attribute[1]),
                "a fold stands inside the loops of its axes",
                root.attribute,
            )
            _demand(root not in self.open, "a value is folded once", root.attribute)
            self.open.add(root)
            root = root.arguments[0]
        else:
            _demand(statement.buffer in self.buffers, "a store is to a known buffer", statement)
            ragged = any(not isinstance(each.extent, int) for each in loops)
            _verify_offset(self.buffers[statement.buffer], statement.offset, axes, ragged)
        _verify_scalar(root, self.buffers, axes, self.finished)
        for node in _outside_folds(root):
            _demand(node in self.finished, "a fold ends before it is used", node.attribute)


def _outside_folds(root: Scalar) -> Iterator[Scalar]:
    """The reductions that an expression uses, not looking into them."""
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "reduce":
            yield node
        else:
            stack.extend(node.arguments)


# -------------------------------------------------------------------------------------- captures


def verify_capture(capture: Capture) -> None:
    """A graph with typed nodes, an input for each placeholder, and the thread's state guarded."""
    nodes = list(capture.graph.nodes)
    names = [node.name for node in nodes if node.op == "placeholder"]
    given = [one.name for one in capture.inputs]
    _demand(names == given, "placeholders are the inputs, in order", (names, given))
    for node in nodes:
        _demand(KEY in node.meta, "every node has a NodeInfo", node)
    first = capture.guards[0].source if capture.guards else None
    _demand(first is AMBIENT, "the state of the thread is guarded first", capture.guards[:1])
    _demand(
        (capture.resume is None) or (capture.stopped is not None),
        "a capture that goes on says why it stopped",
        capture.name,
    )


# --------------------------------------------------------------------------------------- autograd


def _counts(graph: torch.fx.Graph) -> tuple[int, int]:
    inputs = sum(node.op == "placeholder" for node in graph.nodes)
    (output,) = (node for node in graph.nodes if node.op == "output")
    results: Any = output.args[0]
    return inputs, len(results)


def _visible(signature: Signature) -> int:
    """Writes and fresh results."""
    return len(signature.writes) + signature.fresh


def verify_joint(joint: Joint) -> None:
    """Primals and tangents in; writes, fresh results and gradients out."""
    verify_graph(joint.graph)
    inputs, results = _counts(joint.graph)
    tangents = len(joint.tangents_for) + len(joint.write_tangents_for)
    wanted = len(joint.signature.inputs) + tangents
    _demand(inputs == wanted, "a joint graph takes primals and tangents", (inputs, wanted))
    wanted = _visible(joint.signature) + len(joint.gradients_for)
    _demand(results == wanted, "it gives writes, results and gradients", (results, wanted))


def verify_split(split: Split) -> None:
    """Forward gives what backward takes."""
    verify_graph(split.forward)
    inputs, results = _counts(split.forward)
    wanted = len(split.signature.inputs)
    _demand(inputs == wanted, "forward takes the primals", (inputs, wanted))
    wanted = _visible(split.signature) + len(split.saved)
    _demand(results == wanted, "forward gives writes, results and what is saved", (results, wanted))
    if split.backward is None:
        return
    verify_graph(split.backward)
    inputs, results = _counts(split.backward)
    kept = len(split.saved_inputs) + len(split.saved_results) + len(split.saved)
    wanted = kept + len(split.tangents_for) + len(split.write_tangents_for)
    _demand(inputs == wanted, "backward takes what is saved and tangents", (inputs, wanted))
    wanted = len(split.gradients_for)
    _demand(results == wanted, "backward gives the gradients", (results, wanted))


# ---------------------------------------------------------------------------------------- programs


def verify_plan(plan: MemoryPlan) -> None:
    """Every temporary begins inside the arena."""
    for name, offset in plan.offsets.items():
        _demand(known_at_least(offset, 0), "a temporary begins in the arena", name)
        if isinstance(plan.arena_bytes, int) and isinstance(offset, int):
            _demand(offset <= plan.arena_bytes, "a temporary begins in the arena", name)
    same = plan.lives.keys() == plan.offsets.keys()
    _demand(same, "a temporary has a life", plan.lives.keys() ^ plan.offsets.keys())


def verify_module(module: LlvmModule | Program) -> None:
    """Steps and results name buffers that exist; inputs have a buffer each, in order."""
    inputs = [one.type for one in module.buffers if one.place == "input"]
    given = [one.without_grad() for one in module.inputs]
    same = [one.without_grad() for one in inputs] == given
    _demand(same, "input buffers are the inputs, in order", (inputs, given))
    for step in module.steps:
        if isinstance(step, PythonStep):
            named = all(0 <= one < len(module.buffers) for one in step.results)
            _demand(named, "a step fills buffers that exist", step.target)
        elif isinstance(module, LlvmModule):
            defined = f"@{step.function}(" in module.text
            _demand(defined, "a step's function is in the text", step.function)
    for result in module.results:
        if result.buffer is not None:
            place = module.buffers[result.buffer].place
            _demand(place != "arena", "a result is not in the arena", result)


def verify_program(program: Program) -> None:
    """A module's rules, and a role for each value, if there are roles."""
    verify_module(program)
    if program.roles.inputs or program.roles.results:
        wanted = (len(program.symbols) + len(program.inputs), len(program.results))
        found = (len(program.roles.inputs), len(program.roles.results))
        _demand(found == wanted, "there is a role for each input and each result", program.roles)


def verify_executable(executable: Executable) -> None:
    """Its program and itself take the same inputs; each result belongs to one node at most."""
    program = executable.program
    if isinstance(program, Program):
        verify_program(program)
        same = executable.roles.inputs == program.roles.inputs
        _demand(same, "there is a role for each input of the program", executable)
    owned = [result for region in executable.node for result in region.results]
    _demand(len({*owned}) == len(owned), "a result belongs to one node", owned)
    for region in executable.node:
        tensors = len(region.saves.inputs) + len(region.saves.results)
        _demand(tensors == len(region.component.saved), "a node saves what it needs", region.saves)


VERIFIERS: dict[type, Callable[[Any], None]] = {
    Capture: verify_capture,
    Joint: verify_joint,
    Split: verify_split,
    torch.fx.Graph: verify_graph,
    Loops: verify_loops,
    Schedule: verify_schedule,
    MemoryPlan: verify_plan,
    LlvmModule: verify_module,
    Program: verify_program,
    Executable: verify_executable,
}


def verify(record: Any) -> None:
    """What a stage made, where there is something to be said of it."""
    check = VERIFIERS.get(type(record))
    if check is not None:
        check(record)
