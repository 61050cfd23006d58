"""`capture`: from a state to a `Capture`.

Enters: a `State` and `Facts`. Leaves: the graph up to the next break or return, what it relied on,
what is replayed, how live values are rebuilt and how to go on. Raises `Unsupported` where not even
the first step can be described: then the program runs natively from this point. Invariant: nothing
of the state's values is kept, and torch's modes are left as they were found.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.errors import (
    Counts,
    InternalError,
    SourceLine,
    Specialise,
    Unsupported,
    WindfallError,
)
from windfall.frontend.breaks import (
    AMBIENT_MODE,
    ATTRIBUTE_WRITE,
    OVERLAP,
    RECURSION,
    described,
    stop,
)
from windfall.frontend.effects import Effect
from windfall.frontend.exchange import cuts
from windfall.frontend.exchanged_memory import refuse_exchanges
from windfall.frontend.flow import live_variables
from windfall.frontend.gradient_effects import settled
from windfall.frontend.interpreter import Interpreter
from windfall.frontend.marks import refusal
from windfall.frontend.recipe import Recipe
from windfall.frontend.resume import resumed
from windfall.frontend.segment_records import Rebuild, Resume
from windfall.frontend.state import Facts, Position, Start, State, distinct
from windfall.frontend.values.base import Value
from windfall.frontend.values.generator import StillRunning
from windfall.frontend.values.keys import is_tensor_key
from windfall.frontend.values.modes import hold, leave_entered
from windfall.frontend.values.modes import lines as mode_lines
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.sym_str import SymStr
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import is_unseen, look, made_here, same
from windfall.frontend.write_counts import count_writes
from windfall.ir.dtype import TensorType
from windfall.ir.guard import (
    AMBIENT,
    AmbientIs,
    ClassAttributesAre,
    Equals,
    Guard,
    HasKey,
    ItemsAre,
    SameObjects,
    simplified,
)
from windfall.ir.node import NodeInfo, info, set_info
from windfall.ir.reading import byte_range, class_name
from windfall.ir.source import DictOf, Distance, Item, ItemOfObject, Known, Overlap, Source
from windfall.ir.stages import Capture, Direct, GraphInput
from windfall.ir.symint import hint_of, symbols_of


def capture(state: State, facts: Facts) -> Capture:
    """Interpret from `state` until the program returns or cannot be followed."""
    ambient = AmbientIs(**torch_abi.ambient()._asdict())
    watched = ambient.dispatch_modes or ambient.function_modes or ambient.function_state
    if watched or ambient.profiled:
        stop(AMBIENT_MODE, str(state.point))
    modes = torch_abi.modes()
    machine = Interpreter(state, facts)
    try:
        return _run(machine, ambient, modes)
    finally:  # once more: an interrupt may come while it is closed
        machine.close()


def _run(machine: Interpreter, ambient: AmbientIs, modes: Mapping[str, Any]) -> Capture:
    point = machine.state.point
    try:
        with machine.symbols.assumed:
            machine.begin()
            machine.run()
            try:
                captured = _finished(machine, ambient, modes)
            except StillRunning:
                machine.take_back()
                captured = _finished(machine, ambient, modes)
            _refuse_counters(machine)
            _refuse_late_writes(machine)
            stack = machine.frames.stack if machine.stopped is not None else []
            refuse_exchanges(machine, [one.code for one in stack])
            return captured
    except Specialise as reason:
        _refuse_marked(machine, reason)
        reason.where = reason.where or machine.frames.where()
        reason.sources = machine.symbols.sources(reason.names)
        raise
    except WindfallError:
        raise
    except RecursionError as error:  # an object that is called by calling itself, nested data
        raise Unsupported(RECURSION.number, f"{point}: {error}") from error
    except Exception as error:
        raise InternalError(f"capture of {point}: {type(error).__name__}: {error}") from error
    finally:
        try:
            if machine.effects.switched:
                torch_abi.set_modes(modes)
                torch.clear_autocast_cache()  # of casts of fakes
        finally:
            machine.close()


def _refuse_counters(machine: Interpreter) -> None:
    """A number that was relied upon and is written by the program itself: the next call would find
    another one."""
    _count_variables(machine)
    counted, lengths = machine.effects.counted, machine.effects.lengths
    if not counted and not lengths:
        return
    facts = machine.facts
    fixed = {
        str(guard.source)
        for guard in machine.guards.taken
        if guard.source in counted and type(guard.check) is Equals
    }
    found = frozenset((fixed | lengths) - facts.static - facts.dynamic)
    if found:
        raise Counts(found)


def _refuse_late_writes(machine: Interpreter) -> None:
    """Memory that a tensor was given (`x.data = y`) is written: whose version that counts is known
    to eager alone."""
    for one in machine.effects.replaced:
        if isinstance(one, Tensor) and one.is_written(machine):
            raise Unsupported(ATTRIBUTE_WRITE.number, f"{one.describe()}.data, written later")


def _count_variables(machine: Interpreter) -> None:
    """A local variable that holds another number at the end of a segment than at its start, as in
    loops."""
    point, slots = machine.state.point, iter(machine.slots)
    for depth, shape in enumerate(point.frames if isinstance(point, Position) else ()):
        stands = (
            depth < len(machine.frames.stack) and machine.frames.stack[depth].code is shape.code
        )
        for index in shape.variables:
            before = next(slots)
            after = machine.frames.stack[depth].variables[index] if stands else None
            if after is not None and not is_unseen(before) and not same(before, after):
                machine.effects.count(before, after)
        for _ in range(sum(shape.stack)):
            next(slots)


def _refuse_marked(machine: Interpreter, reason: Specialise) -> None:
    """What the user marked as varying cannot be fixed quietly."""
    by_name = machine.symbols.by_name
    found = [by_name[name] for name in reason.names if name in by_name]
    if reason.edge or any(one.is_read for one in found):
        return  # it is fixed for this one value; a break settles it
    for symbol in found:
        if symbol.marked:
            reason.where = reason.where or machine.frames.where()
            value = None if symbol.expression is None else hint_of(symbol.expression)
            raise refusal(str(symbol.source), reason, value)


def _finished(machine: Interpreter, ambient: AmbientIs, modes: Mapping[str, Any]) -> Capture:
    point = machine.state.point
    recipe = Recipe(
        (*point.slot_names, _name(machine)), machine.symbols.by_name, machine.graph.reads.node
    )
    _ask_caches(machine, recipe)
    effects = hold(machine, recipe)
    recipe.lines.extend(effects)
    replayed = settled(machine, machine.effects.entries)
    if machine.stopped is not None and replayed:
        _name_texts(machine, recipe)
    for effect in replayed:
        line = effect.line(recipe)
        recipe.line(line)
        effects.append(line)
    for line in mode_lines(machine, recipe, modes):
        recipe.line(line)
        effects.append(line)
    result: str | None = None
    resume: Resume | None = None
    where = _origin(machine)
    if machine.stopped is None:
        assert machine.frames.result is not None
        result = recipe.expression(machine.frames.result)
    else:
        resume = resumed(machine, recipe)
        _name_module(machine, recipe)
    plain = not (effects or machine.graph.generators or machine.effects.cached)
    direct = _direct(machine, recipe) if plain and result is not None else None
    counts = count_writes(machine, recipe) if direct is None else None
    if counts is not None:
        recipe.line(counts)
    inputs = _close(machine, recipe)
    _rely_on_distinctness(machine, replayed)
    if machine.facts.verify:
        _verify_covered(machine)
    paths = recipe.paths([*(one.source for one in inputs), *machine.graph.generators])
    rebuild = Rebuild(
        point.slot_names,
        tuple(recipe.reads),
        paths[: len(inputs)],
        len(recipe.outputs),
        tuple(recipe.lines),
        result,
        recipe.namespace,
        direct,
        paths[len(inputs) :],
    )
    stopped = machine.stopped
    return Capture(
        _name(machine),
        machine.graph.graph,
        inputs,
        (
            Guard(AMBIENT, ambient, "torch functions depend on it"),
            *_answers(machine),
            *simplified(machine.guards.taken),
            *_presence(machine),
        ),
        tuple(effects),
        rebuild,
        resume,
        described(stopped, stopped.where, _stack(machine)) if stopped is not None else None,
        where,
        machine.operations,
        machine.guards.own or recipe.own,
    )


def _ask_caches(machine: Interpreter, recipe: Recipe) -> None:
    """Before all else: where a cache answers something else, nothing has been done."""
    for expected, value in machine.effects.cached:
        name = recipe.fresh("cached")
        recipe.alias(value, name)
        recipe.reads.append(f"{name} = {recipe.known(expected, 'expected')}()")


def _name_texts(machine: Interpreter, recipe: Recipe) -> None:
    """Texts that the step takes, or that are live behind it, are made before anything is written:
    who interrupts their making finds the program where the segment began."""
    for frame in machine.frames.stack:
        live = live_variables(frame.listing)[frame.instructions[frame.ip].index]
        variables = (one for index, one in enumerate(frame.variables) if index in live)
        for value in (*variables, *frame.stack):
            if value is not None and made_here(value, SymStr):
                recipe.name(value)


def _name_module(machine: Interpreter, recipe: Recipe) -> None:
    """Classes that a native step makes (`type(...)`, `namedtuple`) are of the module whose globals
    the calling frame has: the step's frame is the segment's."""
    frame = next((one for one in reversed(machine.frames.stack) if not one.is_ours), None)
    if frame is not None and "__name__" in frame.globals:
        recipe.namespace["__name__"] = frame.globals["__name__"]


def _verify_covered(machine: Interpreter) -> None:
    """Whatever was looked at has a guard that tells its class: `Outside.see` adds it, and a kind
    that is covered otherwise says by which check."""
    told: dict[Source, set[type | None]] = {}
    for guard in machine.guards.taken:
        told.setdefault(guard.source, set()).add(guard.check.implied_class())
    for source, kind in machine.guards.seen:
        if kind not in told.get(source, ()):
            raise InternalError(f"{source} was looked at, and no guard says that it is {kind}")


def _stack(machine: Interpreter) -> tuple[SourceLine, ...]:
    return tuple(frame.line for frame in machine.frames.stack if not frame.is_ours)


def _answers(machine: Interpreter) -> list[Guard]:
    """Operators and methods of tensors, and how modules are called, are still as captured."""
    return [
        Guard(
            Known(cls, class_name(cls)),
            ClassAttributesAre(tuple(found), tuple(found.values())),
            "users patch torch's classes",
        )
        for cls, found in machine.guards.answers.items()
    ] + [
        Guard(
            source,
            ItemsAre(tuple(found), tuple(found.values())),
            "torch's Python functions call them",
        )
        for source, found in machine.guards.names.items()
    ]


def _presence(machine: Interpreter) -> list[Guard]:
    """What was found in a dict and never looked at (`hasattr`) must still be there. Where another
    guard walks through the item, that one fails when it is gone."""
    walked: set[Source] = set()
    for guard in machine.guards.taken:
        source: Source | None = guard.source
        while source is not None and source not in walked:
            walked.add(source)
            source = source.base
    return [
        Guard(source, HasKey(key, True), "it was found")
        for source, key in dict.fromkeys(machine.guards.found)
        if (ItemOfObject if is_tensor_key(key) else Item)(source, key) not in walked
    ]


def _name(machine: Interpreter) -> str:
    point = machine.state.point
    word = "".join(c if c.isalnum() else "_" for c in point.name.replace("<locals>.", ""))
    if isinstance(point, Start):
        # No name that the source uses for something else.
        return f"{word}_" if word.startswith("position") else distinct((word,))[0]
    frame = point.frames[-1]
    from windfall.frontend.bytecode import decode

    return f"{word}_resume_at_{decode(frame.code).instructions[frame.ip].offset}"


def _origin(machine: Interpreter) -> SourceLine | None:
    point = machine.state.point
    if isinstance(point, Position):
        frame = point.frames[-1]
        from windfall.frontend.bytecode import decode

        listing = decode(frame.code)
        return listing.lines[listing.instructions[frame.ip].line]
    target = point.target
    target = getattr(target, "forward", target)
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    if code is None:
        return None
    return SourceLine(code.co_filename, code.co_firstlineno, code.co_qualname)


def _direct(machine: Interpreter, recipe: Recipe) -> Direct | None:
    """Whether the whole work is to return results of the graph."""
    value = machine.frames.result
    # A list has a line of its own; anything else is work that only the source does.
    if recipe.lines and not (isinstance(value, List) and len(recipe.lines) == 1):
        return None
    assert value is not None
    if value.source is not None:
        return None
    if isinstance(value, Tensor):
        return Direct((_index(recipe, machine, value),), "leaf")
    if type(look(value)) in (Tuple, List):
        items = value.unpack(machine)
        if items and all(made_here(one, Tensor) and one.source is None for one in items):
            leaves = tuple(_index(recipe, machine, one) for one in items)
            return Direct(leaves, "tuple" if isinstance(value, Tuple) else "list")
    return None


def _index(recipe: Recipe, machine: Interpreter, value: Value) -> int:
    assert isinstance(value, Tensor)
    return recipe.outputs.index(value.node(machine))


def _close(machine: Interpreter, recipe: Recipe) -> tuple[GraphInput, ...]:
    """End the graph: its output node; what nobody uses is left out."""
    builder = machine.graph
    leave_entered(machine)
    buckets = builder.buckets or torch_abi.active_buckets()
    if buckets is not None:
        sent = cuts(builder.graph, recipe.outputs, buckets)
        recipe.outputs.extend(one for one in sent if one not in recipe.outputs)
    node = builder.graph.output(tuple(recipe.outputs))
    set_info(node, NodeInfo(tuple(info(one).type for one in recipe.outputs)))
    for one in reversed(builder.calls):
        if one.target == "size" and info(one).reads and not one.users:
            builder.graph.erase_node(one)
        elif one.target is operator.getitem and not one.users:
            held = one.args[0]
            if isinstance(held, torch.fx.Node) and isinstance(info(held).type, tuple):
                builder.graph.erase_node(one)
    kept = [one.type for node, one in builder.inputs if node.users]
    needed = {name for one in kept if isinstance(one, TensorType) for name in names_in(one)}
    for name in sorted(needed):
        builder.symbol(name)
    written = set()
    if builder.written:
        outside = (one for one in machine.values.from_outside() if isinstance(one, Tensor))
        written = {one.source for one in outside if one.is_written(machine)}
    inputs = []
    for placeholder, described_input in builder.inputs:
        if placeholder.users or str(described_input.type) in needed:
            is_written = described_input.source in written
            inputs.append(replace(described_input, written=True) if is_written else described_input)
        else:
            builder.graph.erase_node(placeholder)
    return tuple(inputs)


def names_in(type: TensorType) -> frozenset[str]:
    """The symbols of a type."""
    found = (symbols_of(one) for one in (*type.sizes, *type.strides))
    return frozenset(atom.key for symbols in found for atom in symbols)


def _rely_on_distinctness(machine: Interpreter, effects: Sequence[Effect]) -> None:
    """What the program writes is none of the other things that it reads."""
    tensors = [one for one in machine.values.from_outside() if isinstance(one, Tensor) and one.used]
    written = tuple(one for one in tensors if one.is_written(machine))
    others = tuple(one for one in tensors if not one.is_written(machine))
    apart: set[int] = set()  # tensors that share no memory, and have some, are not one object
    if written and len(tensors) > 1:
        source = Overlap(_sources(written), _sources(others))
        if source.read(machine.state.values):
            source = _placed(machine, source)
        else:
            apart = {id(one) for one in written if _has_elements(one._type)}
        machine.guards.add(source, Equals(False), "an argument is written")
    changed = dict.fromkeys(effect.operands[0] for effect in effects)
    kinds = {_kind(value) for value in changed} - {None}
    guarded: dict[Any, list[Value]] = {}
    for one in machine.values.from_outside():
        if one.guarded and _kind(one) in kinds:
            guarded.setdefault((_kind(one), one.python_type()), []).append(one)
    for value in changed:
        found = guarded.get((_kind(value), value.python_type()), ()) if _kind(value) else ()
        alike = tuple(
            one
            for one in found
            if one is not value
            and one.source != value.source
            and not (id(one) in apart and id(value) in apart)
        )
        if value.source is not None and alike:
            check = SameObjects(_sources(alike), False)
            machine.guards.add(value.source, check, "it is written")


def _placed(machine: Interpreter, found: Overlap) -> Overlap:
    """Tensors that lie upon or between each other: their distances are relied upon, and the first
    of them stands for all. What varies has no such place, and what is read on the way would have to
    be read again."""
    values, written = machine.state.values, set(found.written)
    types = {one.source: one.type for _, one in machine.graph.inputs}
    ranges = sorted(
        ((*byte_range(one.read(values)), place, one))
        for place, one in enumerate((*found.written, *found.others))
    )
    groups: list[tuple[int, int, list[tuple[int, Source]]]] = []
    for start, end, _, source in ranges:
        if groups and start < groups[-1][1] and start < end:
            first, last, members = groups.pop()
            groups.append((first, max(last, end), [*members, (start, source)]))
        else:
            groups.append((start, end, [(start, source)]))
    rows: list[tuple[Source, int, bool]] = []
    for first, last, members in groups:
        sources = [one for _, one in members]
        if len(members) == 1 or written.isdisjoint(sources):
            rows += [(one, 0, one in written) for one in sources]
            continue
        fixed = all(_is_fixed(types.get(one)) for one in sources)
        # What is known of a number in a tensor is known of those who write that tensor alone.
        counted = not machine.graph.contents.asked.isdisjoint(sources)
        if not fixed or counted or any(info(node).reads for node in machine.graph.calls):
            raise Unsupported(OVERLAP.number, str(found))
        for start, one in members[1:]:
            distance = Distance(sources[0], one)
            machine.guards.add(distance, Equals(start - first), "they share memory")
        rows.append((sources[0], last - first, True))
    rows.sort(key=lambda row: not row[2])
    count = sum(is_written for *_, is_written in rows)
    names = tuple(one for one, *_ in rows)
    return Overlap(names[:count], names[count:], tuple(reach for _, reach, _ in rows))


def _is_fixed(type: object) -> bool:
    return isinstance(type, TensorType) and not names_in(type)


def _has_elements(type: TensorType | None) -> bool:
    return type is not None and _is_fixed(type) and type.elements != 0


def _sources(values: Sequence[Value]) -> tuple[Source, ...]:
    return tuple(one.source for one in values if one.source is not None)


def _kind(value: Value) -> str | None:
    """Objects of one kind and type could be one object on another call. What is known for good
    (None) could not, and an instance dictionary is no other dict (but two objects may come to share
    one)."""
    if isinstance(value.source, Known):
        return None
    return "dictionary of an object" if isinstance(value.source, DictOf) else "object"


def example_inputs(captured: Capture, state: State) -> tuple[Any, ...]:
    """The graph's inputs, read from the example values of the state."""
    return tuple(one.source.read(state.values) for one in captured.inputs)
