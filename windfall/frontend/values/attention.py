"""`flex_attention`: functions of one score, applied to all of them at once.

Enters: calls of `torch.nn.attention.flex_attention`, with functions of the user. Leaves: ordinary
nodes, by way of `polyfills/attention.py`. Torch maps such a function over each place (`vmap`); here
it is called once on tensors of all places. Invariant: between `begin_lanes` and `end_lanes` every
operator that gets a lane treats each place by itself: it is pointwise, and its other operands have
no dimensions; or it looks up one element of a tensor from outside. Anything else breaks, for it
would mix places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.traceback

from windfall.frontend.breaks import ARGUMENTS, BODY, stop
from windfall.frontend.polyfills import attention
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls, calls_of_module
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.function import Function
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.ops.fake import is_fake, writes_of
from windfall.ops.layout import differ
from windfall.ops.symbolic import from_torch

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

aten = torch.ops.aten
HOME = "torch.nn.attention.flex_attention"


def _bound(names: tuple[str, ...], arguments: Arguments, keywords: Keywords) -> Keywords:
    return dict(zip(names, arguments, strict=False)) | keywords


@calls_of_module(HOME, "flex_attention")
def _flex_attention(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    names = (
        *("query", "key", "value", "score_mod", "block_mask", "scale", "enable_gqa"),
        *("return_lse", "kernel_options"),
    )
    given = _bound(names, arguments, keywords)
    none, values = machine.values.literal(None), machine.values
    tensors = [look(given[name]) for name in names[:3]]
    for one in tensors:
        if not isinstance(one, Tensor) or one.fake(machine).dim() != 4:
            stop(ARGUMENTS, "flex_attention")
    kinds = {one.fake(machine).dtype for one in tensors}
    query, key, value = ([from_torch(size) for size in one.fake(machine).shape] for one in tensors)
    other = differ(query[3], key[3]) or differ(tuple(key[:3]), tuple(value[:3]))
    plain = not other and len(kinds) == 1 and kinds.pop().is_floating_point
    if not plain or torch.is_autocast_enabled("cpu"):
        stop(ARGUMENTS, "flex_attention of several dtypes, lengths, or under autocast")
    if look(given.get("kernel_options", none)).python_type() is not type(None):
        stop(ARGUMENTS, "flex_attention with kernel_options")
    flags = [given.get(name) or values.literal(False) for name in ("enable_gqa", "return_lse")]
    if not all(isinstance(look(one), Constant) for one in flags):
        stop(ARGUMENTS, "flex_attention with flags that are no bools")
    output = values.known(_home().AuxOutput, "AuxOutput")
    parts = [
        *(given.get(name, none) for name in names[:6]),
        *flags,
        given.get("return_aux", none),
        output,
    ]
    return _together(machine, "flex_attention", parts)


def _home() -> Any:
    return torch.nn.attention.flex_attention


def _together(machine: Machine, name: str, parts: list[Value]) -> Value:
    machine.frames.hold_together()
    function = machine.values.known(getattr(attention, name), name)
    return machine.values.polyfill("held_together", [function, machine.values.tuple(parts)])


@calls_of_module(HOME, "create_mask")
def _create_mask(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    names = ("mod_fn", "B", "H", "Q_LEN", "KV_LEN", "device")
    given, values = _bound(names, arguments, keywords), machine.values
    mod = look(given["mod_fn"])
    if not isinstance(mod, Function):
        stop(ARGUMENTS, "create_mask of something else than a function")
    count = mod.code.co_argcount - len(mod.defaults(machine))
    if count not in (4, 5):
        stop(ARGUMENTS, f"create_mask of a function of {count} arguments")
    sizes = [look(given[name]) for name in names[1:5]]
    one = values.literal(1)
    sizes = [one if size.python_type() is type(None) else size for size in sizes]
    device = given.get("device", values.literal(None))
    parts = [mod, values.literal(count == 5), values.tuple(sizes), device]
    return _together(machine, "create_mask", parts)


@calls_of_module(HOME, "_ordered_to_dense")
def _ordered_to_dense(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """A part of `create_block_mask`, which torch does by `vmap`."""
    names = ("num_blocks_in_row", "col_indices", "num_cols")
    given = _bound(names, arguments, keywords)
    return machine.values.polyfill("ordered_to_dense", [given[name] for name in names])


@calls(torch.fx.traceback.annotate)
def _annotate(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Notes for those who trace by torch.fx: nothing, to a program that runs."""
    return machine.values.known(contextlib.nullcontext, "nullcontext").call(machine, [], {})


@calls(attention.let_go)
def _let_go(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    machine.frames.let_go()
    return machine.values.literal(None)


@calls(attention.leave_to_eager)
def _leave_to_eager(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    stop(ARGUMENTS, f"flex_attention: {arguments[0].as_constant(machine)}")


# ---------------------------------------------------------------------------------------- lanes


class ScoreLanes:
    """The tensors that a function was given, and what it made of them."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        self._known = {id(one): one for one in given}  # kept: no identity is used again

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor stands for one number at each place."""
        return id(tensor) in self._known

    def note(self, operation: Any, arguments: Any, keywords: Any, result: Any) -> None:
        """An operator must treat each place by itself."""
        given = list(_tensors((arguments, tuple(keywords.values()))))
        if any(map(self.holds, given)):
            others = [one for one in given if not self.holds(one)]
            if not self._treats_places_apart(operation, arguments, others):
                stop(BODY, f"a function of flex_attention mixes places: {operation}")
            if operation not in _OF_THE_TYPE:
                self._known |= {id(one): one for one in _tensors(result)}

    def _treats_places_apart(
        self, operation: Any, arguments: tuple[Any, ...], others: list[torch.Tensor]
    ) -> bool:
        if operation in _OF_THE_TYPE:
            return True
        if writes_of(operation):
            return False
        if operation is aten.index.Tensor:
            held, indices = arguments
            whole = len(indices) == held.dim() and None not in indices
            return whole and not self.holds(held) and all(one.dim() == 0 for one in others[1:])
        pointwise = torch.Tag.pointwise in operation.tags or operation in _BY_ELEMENT
        return pointwise and all(one.dim() == 0 for one in others)


@calls(attention.begin_lanes)
def _begin_lanes(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    graph, outer = machine.graph, machine.graph.lanes

    def restore() -> None:
        graph.lanes = outer

    machine.effects.undo(restore)
    given = [look(one) for one in arguments[0].unpack(machine)]
    graph.lanes = ScoreLanes([one.fake(machine) for one in given])
    return machine.values.literal(None)


@calls(attention.end_lanes)
def _end_lanes(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    result, lanes = look(arguments[0]), machine.graph.lanes
    assert lanes is not None
    machine.graph.lanes = None
    if not isinstance(result, Tensor):
        stop(BODY, f"a function of flex_attention returns {result.describe()}")
    found = result.fake(machine)
    if found.dim() and not lanes.holds(found):
        stop(BODY, "a function of flex_attention returns more than one number for a place")
    return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if is_fake(value):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)


# Of a lane they take the type: what they answer is the same for all places.
_OF_THE_TYPE = frozenset((aten.new_zeros.default, aten.new_ones.default, aten.new_full.default))
# Element by element, though torch does not tag them so.
_BY_ELEMENT = frozenset(
    (
        aten._to_copy.default,
        aten.clone.default,
        aten.detach.default,
        aten.alias.default,
        aten.zeros_like.default,
        aten.ones_like.default,
        aten.full_like.default,
        aten.where.self,
    )
)
