"""How each recorded step enters the SSA graph.

Enters: the steps of a `Trace`. Leaves: nodes in a `Functional`, and a place for each tensor. A
step is handled by the first of these that knows it: HANDLERS by name, then what its schema says (a
view, a write, neither).

Invariant: in-place ops become their functional counterparts and a write of the place; an op that
has none is called on copies (`Functionalized`). Nothing else is refused but with a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import torch.fx

from windfall.autograd.functional import Functional
from windfall.autograd.numbers import with_numbers_as_tensors
from windfall.autograd.restride import same_layout
from windfall.autograd.ssa_memory import Memory
from windfall.autograd.tracing import Step, written_by
from windfall.errors import Unsupported
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.node import info, tensor_type
from windfall.ir.placement import meet
from windfall.ir.symint import Size, hint_of, payloads
from windfall.ops import fake as fakes
from windfall.ops.layout import differ, is_non_overlapping_and_dense, smaller
from windfall.ops.registry import lookup
from windfall.ops.schema import argument, overload

aten = torch.ops.aten

Handler = Callable[[Functional, Step], None]


class Functionalized:
    """An op that writes its arguments and has no functional counterpart: called on copies of what
    it writes, it answers its own results, then the written copies."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.writes = fakes.writes_of(func)
        self.__name__ = f"functional_{func}".replace(".", "_").replace("::", "_")

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        positional = list(args)
        written = []
        for index, name in self.writes:
            holder: Any = positional if index < len(positional) else kwargs
            key: Any = index if index < len(positional) else name
            if isinstance(holder[key], torch.Tensor):
                holder[key] = holder[key].clone()
                written.append(holder[key])
        result = self.func(*positional, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        return (*results, *written) if self.func._schema.returns else tuple(written)


def add_steps(build: Functional, steps: Iterable[Step]) -> None:
    """Translate recorded steps, in order."""
    for step in steps:
        build.origin = step.origin
        if isinstance(step.func, Subgraphs):
            _handle_bodies(build, step)
            continue
        if payloads.varying:
            step = with_numbers_as_tensors(build, step)
        _check_overlap(build, step)
        record = lookup(step.func)
        handler = _handle_alias if record.alias else HANDLERS.get(record.name, _handle_by_schema)
        handler(build, step)


def _check_overlap(build: Functional, step: Step) -> None:
    """Refuse ops that read, at other places, the memory that they write: eager raises, or answers
    what its loops come to."""
    targets = [one for one in written_by(step) if fakes.is_fake(one)]
    if not targets:
        return
    memories = {build.place(one).memory for one in targets}
    written = {name for _, name in fakes.writes_of(step.func)}
    names = [one.name for one in step.func._schema.arguments]
    given = {**dict(zip(names, step.args, strict=False)), **step.kwargs}
    for name, value in given.items():
        for one in _fakes(value) if name not in written else ():
            if build.place(one).memory in memories:
                aligned = _reads_where_it_writes(step.func, name)
                for target in targets:
                    if _overlap(build, target, one) and not (aligned and _same(build, target, one)):
                        raise Unsupported(212, str(step.func))


def _reads_where_it_writes(func: Any, name: str) -> bool:
    """Whether this argument may be the one that is written: each element is read before it is
    written (`y[:n] *= 2` ends with a copy of memory to itself), or it is `self` of an op that has
    an in-place form (`addmm(c, a, b, out=c)`)."""
    if func is torch.ops.aten.copy_.default or torch.Tag.pointwise in func.tags:
        return True
    return name == "self" and hasattr(torch.ops.aten, f"{func.overloadpacket.__name__}_")


def _fakes(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple):
        return [found for one in value for found in _fakes(one)]
    return [value] if fakes.is_fake(value) else []


def _same(build: Functional, one: torch.Tensor, other: torch.Tensor) -> bool:
    at_same = fakes.offset_of(one) == fakes.offset_of(other)
    return at_same and same_layout(build.place(one).type, build.place(other).type)


def _overlap(build: Functional, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors overlap. Where both fill a range of one memory eager looks, and raises;
    where one does not (`x.sub_(x[:, :1])`), it answers what its loops come to."""
    places = build.place(one), build.place(other)
    types = [place.type for place in places]
    if places[0].memory is not places[1].memory or any(0 in type.sizes for type in types):
        return False
    starts = [fakes.offset_of(tensor) for tensor in (one, other)]
    if not all(is_non_overlapping_and_dense(type.sizes, type.strides) for type in types):
        first, second = map(_as_hinted, types)
        begin, its_begin = (
            hint_of(start) * type.dtype.itemsize for start, type in zip(starts, types, strict=True)
        )
        return meet(first, second, its_begin - begin)
    (start, end), (its_start, its_end) = (
        (first * type.dtype.itemsize, (first + _extent(type)) * type.dtype.itemsize)
        for first, type in zip(starts, types, strict=True)
    )
    return smaller(start, its_end) and smaller(its_start, end)


def _as_hinted(type: TensorType) -> TensorType:
    """With numbers for sizes that vary."""
    sizes, strides = (tuple(map(hint_of, one)) for one in (type.sizes, type.strides))
    return replace(type, sizes=sizes, strides=strides)


def _handle_bodies(build: Functional, step: Step) -> None:
    """An operation with bodies: pure, by what stands in them."""
    args = [build.operand(one) for one in step.args]
    node = build.add(step.func, args, {}, step.types)
    bind_results(build, step.result, step.types, node)


def _handle_by_schema(build: Functional, step: Step) -> None:
    if torch.Tag.inplace_view in step.func.tags:
        _handle_view_in_place(build, step)
    elif fakes.writes_of(step.func):
        _handle_write(build, step)
    elif any(one.view for one in fakes.returns_of(step.func)):
        _handle_view(build, step)
    else:
        _handle_pure(build, step)


def _handle_pure(build: Functional, step: Step) -> None:
    args = [build.operand(one) for one in step.args]
    kwargs = {name: build.operand(one) for name, one in step.kwargs.items()}
    if not _tensors(step.result) and step.func._schema.returns:
        return  # a fact about sizes, already used
    node = build.add(step.func, args, kwargs, step.types)
    bind_results(build, step.result, step.types, node)
    if not node.all_input_nodes:
        build.made_of_nothing = step.result


def _tensors(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_tensors(one) for one in value)
    return isinstance(value, torch.Tensor)


def bind_results(
    build: Functional, result: Any, types: Any, node: torch.fx.Node, first: int = 0
) -> None:
    """Give each new tensor of `result` a memory that holds its part of `node`."""
    if fakes.is_fake(result):
        build.fresh(result, types, node)
    elif isinstance(result, tuple | list):
        for index, (one, type) in enumerate(zip(result, types, strict=True), first):
            if fakes.is_fake(one):
                memory = Memory(type)
                memory.source = (node, index)
                build.bind(one, memory.root)
            elif isinstance(one, list | tuple):
                part = build.add(operator.getitem, (node, index), {}, type)
                bind_results(build, one, type, part)


def _handle_view(build: Functional, step: Step) -> None:
    """A view of an argument: of a constant, it is a constant node's view; a list of views becomes
    single ones where there is a rule for it."""
    base, *rest = step.args
    known = fakes.constant_of(step.result) if isinstance(step.result, torch.Tensor) else None
    if known is not None:
        build.fresh(step.result, step.types, build.constant(known))
        return
    if not fakes.is_fake(base):
        place = Memory(TensorType.of(base)).root
        place.memory.node = build.constant(base)
    else:
        place = build.place(base)
    if isinstance(step.result, list | tuple):
        name = lookup(step.func).piece
        if name is None:
            raise Unsupported(200, str(step.func))
        pieces = PIECES[name](step.types, _named(step, "dim"))
        for tensor, type, (func, args) in zip(step.result, step.types, pieces, strict=True):
            build.bind(tensor, place.view(func, args, {}, type))
        return
    build.bind(step.result, place.view(step.func, tuple(rest), dict(step.kwargs), step.types))


def _named(step: Step, name: str) -> Any:
    return argument(step.func, name, step.args, step.kwargs)


def _slices(types: Sequence[TensorType], dim: int) -> list[tuple[Any, tuple[Any, ...]]]:
    pieces: list[tuple[Any, tuple[Any, ...]]] = []
    start: Size = 0
    for one in types:
        end = start + one.sizes[dim]
        pieces.append((aten.slice.Tensor, (dim, start, end)))
        start = end
    return pieces


def _selections(types: Sequence[TensorType], dim: int) -> list[tuple[Any, tuple[Any, ...]]]:
    return [(aten.select.int, (dim, index)) for index in range(len(types))]


# By the op that makes one of the views.
PIECES: dict[str, Callable[..., list[tuple[Any, tuple[Any, ...]]]]] = {
    "aten.slice.Tensor": _slices,
    "aten.select.int": _selections,
}


def _handle_as_strided(build: Functional, step: Step) -> None:
    """A view by address: it looks at the root, wherever it was taken from."""
    base = step.args[0]
    place = build.place(base)
    given = _named(step, "storage_offset")
    root = place.memory.root
    absolute = fakes.offset_of(step.result)
    if place.memory.input is not None:
        if given is not None or absolute:
            raise Unsupported(203, f"as_strided at offset {given} of input {place.memory.input}")
        if smaller(_extent(root.type), _extent(step.types)):
            raise Unsupported(203, f"as_strided beyond input {place.memory.input}")
    offset = absolute or None
    if step.result.requires_grad and place.whole().parent is not None:
        first = absolute - fakes.offset_of(base)
        root.memory.looked_beyond |= not _lies_inside(place.type, step.types, first)
    args = (list(step.types.sizes), list(step.types.strides), offset)
    build.bind(step.result, root.view(aten.as_strided.default, args, {}, step.types))


def _lies_inside(base: TensorType, view: TensorType, first: Size) -> bool:
    """Whether a view that begins so many elements behind the start of another tensor shows nothing
    but elements of that (never wrongly affirmed)."""
    if not is_non_overlapping_and_dense(base.sizes, base.strides):
        return same_layout(base, view) and not differ((first,), (0,))
    return smaller(-1, first) and not smaller(_extent(base), first + _extent(view))


def _extent(type: TensorType) -> Any:
    pairs = zip(type.sizes, type.strides, strict=True)
    return 0 if 0 in type.sizes else 1 + sum((size - 1) * stride for size, stride in pairs)


def _handle_view_in_place(build: Functional, step: Step) -> None:
    """`t_` and the like: the tensor looks at its memory in another way from now on."""
    target = step.args[0]
    place = build.place(target)
    type = step.types
    func = _counterpart(step.func)
    if func is None or not any(one.view for one in fakes.returns_of(func)):
        raise Unsupported(200, str(step.func))
    build.bind(target, place.view(func, tuple(step.args[1:]), dict(step.kwargs), type))


def _handle_resize(build: Functional, step: Step) -> None:
    target = step.args[0]
    place = build.place(target)
    if same_layout(place.type, step.types):
        return
    if place.whole().parent is not None or place.type.elements != 0:
        raise Unsupported(200, f"resize_ from {place.type} to {step.types}")
    build.fresh(target, step.types, _full(build, step.types, 0))


def _handle_set(build: Functional, step: Step) -> None:
    if len(step.args) != 2:
        raise Unsupported(200, str(step.func))
    target, source = step.args
    place = build.place(source)
    build.bind(target, place.view(aten.alias.default, (), {}, place.type))


def _handle_alias(build: Functional, step: Step) -> None:
    """Tensors that are the same to everybody but autograd."""
    (base, *_) = step.args
    if base is step.result:
        return
    if not fakes.is_fake(base):
        node = build.constant(base)
        build.fresh(step.result, tensor_type(node), node)
        build.made_of_nothing = step.result
        return
    place = build.place(base)
    if base is build.made_of_nothing:
        # Factories detach what they made before anybody sees it: that is the tensor itself.
        place.tensor = None
        build.bind(step.result, place)
        return
    build.bind(step.result, place.view(step.func, (), {}, place.type))


def _ignore(build: Functional, step: Step) -> None:
    """Concerns autograd alone."""


def _counterpart(func: Any) -> Any:
    found = overload(lookup(func).functional or fakes.functional_name(func))
    return None if found is None or found._schema.is_mutable or found is func else found


def _handle_write(build: Functional, step: Step) -> None:
    """An op that writes arguments: its functional counterpart, then the writes."""
    func = _counterpart(step.func)
    if func is None:
        _handle_without_counterpart(build, step)
        return
    targets = written_by(step)
    names = {name for _, name in fakes.writes_of(step.func)}
    in_place = fakes.writes_of(step.func)[0][0] == 0
    args = [build.operand(one) for one in (*step.args, *_left_out(step, func))]
    kwargs = {
        name: build.operand(one)
        for name, one in step.kwargs.items()
        if in_place or name not in names
    }
    node = build.emit(func, *args, **kwargs)
    types = step.types if isinstance(step.types, tuple) else (step.types,) * len(targets)
    for target, result, type in zip(targets, _parts(build, node), types, strict=True):
        _store(build, target, result, type)


def _left_out(step: Step, func: Any) -> list[Any]:
    """Arguments that were left to their defaults, where the counterpart has none for them."""
    own, others = step.func._schema.arguments, func._schema.arguments
    missing: list[Any] = []
    for parameter, other in list(zip(own, others, strict=False))[len(step.args) :]:
        if other.kwarg_only or other.has_default_value() or parameter.name in step.kwargs:
            break
        missing.append(parameter.default_value)
    return missing


def _parts(build: Functional, node: torch.fx.Node) -> list[torch.fx.Node]:
    types = info(node).type
    if not isinstance(types, tuple):
        return [node]
    return [
        build.add(operator.getitem, (node, index), {}, type) for index, type in enumerate(types)
    ]


def _store(
    build: Functional, target: torch.Tensor, value: torch.fx.Node, now: TensorType | None
) -> None:
    """Write `value` to a tensor; one that an `out=` op resized (to `now`) gets new memory."""
    place = build.place(target)
    resized = now is not None and differ(now.sizes, place.type.sizes)
    if now is not None and resized and place.whole().parent is None:
        build.fresh(target, now, build.restride(build.cast(value, now), now))
    else:
        build.write(place, build.cast(value, place.type))


def _handle_without_counterpart(build: Functional, step: Step) -> None:
    """An op that answers something besides what it writes: some have a twin that answers both
    (`rrelu_with_noise_functional`), others are called on copies."""
    name = f"{step.func.namespace}.{step.func.overloadpacket.__name__}_functional"
    func = overload(f"{name}.{step.func._overloadname}") or Functionalized(step.func)
    _add_with_writes(build, step, func, written_by(step))


def _add_with_writes(
    build: Functional, step: Step, func: Any, targets: Sequence[torch.Tensor]
) -> None:
    """A call of `func`, which answers the step's own results, then what it writes to `targets`."""
    args = [build.operand(one) for one in step.args]
    kwargs = {name: build.operand(one) for name, one in step.kwargs.items()}
    made = step.result if isinstance(step.result, tuple) else (step.result,)
    results = step.types if isinstance(step.result, tuple) else (step.types,)
    if not step.func._schema.returns:
        made = results = ()
    types = (*results, *(build.place(one).type for one in targets))
    node = build.add(func, args, kwargs, types)
    bind_results(build, made, results, node)
    for index, target in enumerate(targets, len(made)):
        part = build.add(operator.getitem, (node, index), {}, types[index])
        build.write(build.place(target), part)


def _handle_copy(build: Functional, step: Step) -> None:
    place = build.place(step.args[0])
    source = build.operand(step.args[1])
    build.write(place, build.cast(source, place.type))


def _full(build: Functional, type: TensorType, value: Any) -> torch.fx.Node:
    node = build.emit(
        aten.full.default, list(type.sizes), value, dtype=type.dtype, device=type.device
    )
    return build.restride(node, type)


def _handle_fill(build: Functional, step: Step) -> None:
    place = build.place(step.args[0])
    value = step.args[1] if len(step.args) > 1 else 0
    if isinstance(value, torch.Tensor):
        node = build.cast(build.operand(value), place.type)
    else:
        node = _full(build, place.type, value)
    build.write(place, node)


def _handle_batch_norm(build: Functional, step: Step) -> None:
    """Its running statistics are written in training, though the schema is silent about it."""
    training = _named(step, "training")
    running = [_named(step, "running_mean"), _named(step, "running_var")]
    if not training or running[0] is None or running[1] is None:
        # Nothing is written then, and this overload does not say that something were.
        _handle_pure(build, replace(step, func=aten.native_batch_norm.default))
    else:
        _add_with_writes(build, step, _counterpart(step.func), running)


def _handle_bernoulli(build: Functional, step: Step) -> None:
    """Numbers are drawn in the order in which the target lies in memory; the functional op draws
    them in the order of its dimensions."""
    target = step.args[0]
    place = build.place(target)
    order = _memory_order(place.type)
    if order == list(range(place.type.rank)):
        _handle_write(build, step)
        return
    p = _named(step, "p")
    given: Any = p
    if isinstance(p, torch.Tensor):
        wide = build.emit(aten.expand.default, build.operand(p), list(place.type.sizes))
        given = build.emit(aten.permute.default, wide, order)
    base = build.emit(aten.permute.default, build.operand(target), order)
    func = aten.bernoulli.Tensor if isinstance(p, torch.Tensor) else aten.bernoulli.p
    drawn = build.emit(func, base, given, generator=step.kwargs.get("generator"))
    back = [order.index(dim) for dim in range(place.type.rank)]
    _store(build, target, build.emit(aten.permute.default, drawn, back), step.types)


def _handle_normal(build: Functional, step: Step) -> None:
    """Its stream depends on whether the target is one piece of memory, which a copy always is."""
    type = build.place(step.args[0]).type
    if not is_non_overlapping_and_dense(type.sizes, type.strides):
        raise Unsupported(200, f"normal_ of a part of a tensor, {type}")
    _handle_write(build, step)


def _memory_order(type: TensorType) -> list[int]:
    """The dimensions, the outermost in memory first; what decides it is assumed of sizes."""
    order = sorted(range(type.rank), key=lambda dim: -hint_of(type.strides[dim]))
    wide = [dim for dim in order if type.sizes[dim] != 1]
    for outer, inner in pairwise(wide):
        smaller(type.strides[outer], type.strides[inner])
    return list(range(type.rank)) if wide == sorted(wide) else order


HANDLERS: dict[str, Handler] = {
    "aten.bernoulli_.float": _handle_bernoulli,
    "aten.bernoulli_.Tensor": _handle_bernoulli,
    "aten.normal_.default": _handle_normal,
    "aten.detach_.default": _ignore,
    "aten.as_strided.default": _handle_as_strided,
    "aten.as_strided_.default": _handle_as_strided,
    "aten.copy_.default": _handle_copy,
    "aten.zero_.default": _handle_fill,
    "aten.fill_.Scalar": _handle_fill,
    "aten.fill_.Tensor": _handle_fill,
    "aten.resize_.default": _handle_resize,
    "aten.set_.source_Tensor": _handle_set,
    "aten.native_batch_norm.default": _handle_batch_norm,
    "aten._native_batch_norm_legit.default": _handle_batch_norm,
    "aten._has_compatible_shallow_copy_type.default": _ignore,
}
