"""Transforms of `torch.func`: the function is interpreted once, and one node holds its graph.

Enters: calls of what `grad`, `vmap`, `jacrev` and their like have made, and of `vjp` and `jvp`.
Leaves: a node whose target is torch's own transform of the captured graph (`ir/transform.py`); what
the function reads from outside, closures included, is an operand. Invariant: the function is
interpreted on tensors that stand for what it would be given (one sample, one that needs a
gradient); then torch's transform is run on tensors without data, so that what it answers, and what
it refuses, is torch's own. A function that does anything but compute tensors breaks (W0049), and
the whole call is made natively.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import LeaveReal
from windfall.frontend.breaks import ARGUMENTS, BODY, UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, ByIdentity, Keywords, Value
from windfall.frontend.values.calls import CodeRule, calls, calls_of, calls_of_module
from windfall.frontend.values.function import Function
from windfall.frontend.values.levels import (
    CapturedFunction,
    TransformCall,
    put_transform,
    stand_for,
    start,
    tensors_of,
    type_inside,
)
from windfall.frontend.values.pytrees import (
    LEAF,
    Tree,
    nested,
    put_together,
    spread,
    taken_apart,
)
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.ops.fake import storage_of

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

Node = torch.fx.Node


# -------------------------------------------------------------------------------------- arguments


@dataclass(slots=True)
class _Chosen:
    """Arguments of a function, flat, and those of them that it is differentiated by."""

    leaves: list[Value]
    tree: Tree
    places: list[int]  # of the leaves that are chosen
    chosen: Tree  # how these stand together


def _chosen(machine: Machine, arguments: Value, argnums: Value | None) -> _Chosen:
    """`argnums` None: all."""
    leaves: list[Value] = []
    tree = taken_apart(machine, arguments, leaves)
    starts = [sum(one.count for one in tree.parts[:index]) for index in range(len(tree.parts))]
    if argnums is None:
        numbers: Any = tuple(range(len(tree.parts)))
    else:
        numbers = argnums.as_constant(machine)
    several = numbers if isinstance(numbers, tuple) else (numbers,)
    count = len(tree.parts)
    if not several or not all(type(one) is int and -count <= one < count for one in several):
        stop(BODY, f"argnums {numbers} of {count} arguments")
    several = tuple(one % count for one in several)
    if len(set(several)) < len(several):
        stop(BODY, "argnums that name an argument twice")
    places = [starts[one] + index for one in several for index in range(tree.parts[one].count)]
    if not places or not all(isinstance(leaves[one], Tensor) for one in places):
        stop(BODY, "gradients of something else than tensors")
    parts = tuple(tree.parts[one] for one in several)
    chosen = Tree(tuple, parts) if isinstance(numbers, tuple) else parts[0]
    return _Chosen(leaves, tree, places, chosen)


def _given_all(
    machine: Machine, call: TransformCall, leaves: Sequence[Value], needing: Sequence[int]
) -> list[Value]:
    """Leaves with all tensors replaced by what stands for them; some need a gradient."""
    found: list[Value] = []
    for place, one in enumerate(leaves):
        if isinstance(one, Tensor):
            call.given.append(one)
            found.append(stand_for(machine, call, one, type_inside(machine, one), place in needing))
        else:
            found.append(one)
    return found


def _places_of_tensors(leaves: Sequence[Value], places: Sequence[int]) -> tuple[int, ...]:
    """Places among all leaves as places among the tensors of them."""
    tensors = [place for place, one in enumerate(leaves) if isinstance(one, Tensor)]
    return tuple(tensors.index(one) for one in places)


def _flag(machine: Machine, value: Value | None) -> bool:
    return value is not None and bool(value.as_constant(machine))


def _refuse_hooks() -> None:
    if torch_abi.hooks_saved_tensors():
        stop(BODY, "hooks for saved tensors")


# ------------------------------------------------------------------------------------------- grad


@dataclass(slots=True)
class _Grad(TransformCall):
    argnums: tuple[int, ...] = ()
    chosen: Tree = LEAF
    with_value: bool = False
    with_more: bool = False

    row = "grad"
    enables_grad = True

    def settings(self, result: Tree) -> tuple[Any, ...]:
        if _parts(result, self.with_more)[0].kind is not None:
            stop(BODY, f"the function of {self.name} returns no tensor")
        return (self.argnums,)

    def answer(
        self, machine: Machine, result: Tree, leaves: list[Value], made: CapturedFunction
    ) -> Value:
        gradients = put_together(machine, self.chosen, iter(leaves[: self.chosen.count]))
        value, *others = leaves[self.chosen.count :]
        more = put_together(machine, _parts(result, self.with_more)[1], iter(others))
        if not self.with_value:
            return Tuple([gradients, more]) if self.with_more else gradients
        return Tuple([gradients, Tuple([value, more]) if self.with_more else value])


_NOTHING = Tree(tuple)


def _parts(result: Tree, with_more: bool) -> tuple[Tree, Tree]:
    """What is differentiated, and what is not (`has_aux`)."""
    if not with_more:
        return result, _NOTHING
    if result.kind is not tuple or len(result.parts) != 2:
        stop(BODY, "has_aux=True, of a function that does not return two things")
    return result.parts[0], result.parts[1]


def _grad_rule(with_value: bool) -> Any:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        names = ("func", "argnums", "has_aux", "args", "kwargs")
        given = dict(zip(names, arguments, strict=False)) | keywords
        _refuse_hooks()
        chosen = _chosen(machine, given["args"], given["argnums"])
        named: list[Value] = []
        tree_of_named = taken_apart(machine, given["kwargs"], named)
        machine.frames.hold_together()
        call = _Grad(
            "torch.func.grad",
            start=len(machine.graph.calls),
            argnums=_places_of_tensors(chosen.leaves, chosen.places),
            chosen=chosen.chosen,
            with_value=with_value,
            with_more=_flag(machine, given["has_aux"]),
        )
        leaves = _given_all(machine, call, [*chosen.leaves, *named], chosen.places)
        args = put_together(machine, chosen.tree, iter(leaves[: len(chosen.leaves)]))
        others = put_together(machine, tree_of_named, iter(leaves[len(chosen.leaves) :]))
        return start(machine, call, given["func"], args, others)

    return rule


_TRANSFORMS = "torch._functorch.eager_transforms"
calls_of_module(_TRANSFORMS, "grad_impl")(_grad_rule(False))
calls_of_module(_TRANSFORMS, "grad_and_value_impl")(_grad_rule(True))


# ------------------------------------------------------------------------------------------- vmap


@dataclass(slots=True)
class _Vmap(TransformCall):
    in_dims: tuple[int, ...] = ()
    out_dims: Any = 0
    randomness: str = "error"
    chunk_size: int | None = None

    row = "vmap"

    def settings(self, result: Tree) -> tuple[Any, ...]:
        out_dims = self.out_dims
        if result.kind is None and isinstance(out_dims, tuple) and len(out_dims) == 1:
            (out_dims,) = out_dims
        found = tuple(spread(out_dims, result, "out_dims"))
        if not all(one is None or type(one) is int for one in found):
            stop(BODY, "out_dims that are no numbers")
        return self.in_dims, found, self.randomness, self.chunk_size

    def answer(
        self, machine: Machine, result: Tree, leaves: list[Value], made: CapturedFunction
    ) -> Value:
        return put_together(machine, result, iter(leaves))


@calls_of_module("torch._functorch.vmap", "vmap_impl")
def _vmap(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    function, in_dims, out_dims, randomness, chunk_size, *args = arguments
    leaves: list[Value] = []
    tree = taken_apart(machine, Tuple(args), leaves)
    given = in_dims.as_constant(machine)
    if not isinstance(given, int | tuple) or not args:
        stop(BODY, "in_dims of vmap")
    dims = spread(given, tree, "in_dims")
    machine.frames.hold_together()
    call = _Vmap(
        "torch.func.vmap",
        start=len(machine.graph.calls),
        out_dims=out_dims.as_constant(machine),
        randomness=randomness.as_constant(machine),
        chunk_size=chunk_size.as_constant(machine),
    )
    found: list[Value] = []
    for one, dim in zip(leaves, dims, strict=True):
        if dim is None:
            found.append(one)  # as it is: it is read from outside
            continue
        if not isinstance(one, Tensor) or type(dim) is not int:
            stop(BODY, f"vmap over {one.describe()}")
        found.append(_sample(machine, call, one, dim))
        call.in_dims = (*call.in_dims, dim)
    if not call.given:
        stop(BODY, "vmap over nothing")
    args_ = put_together(machine, tree, iter(found))
    return start(machine, call, function, args_, machine.values.created_dict(keywords))


def _sample(machine: Machine, call: TransformCall, tensor: Tensor, dim: int) -> Tensor:
    """What stands for one of many."""
    whole = type_inside(machine, tensor)
    if not -whole.rank <= dim < whole.rank:
        stop(BODY, f"vmap over dimension {dim} of {tensor.describe()}")
    sizes, strides = list(whole.sizes), list(whole.strides)
    del sizes[dim], strides[dim]
    one = replace(whole, sizes=tuple(sizes), strides=tuple(strides))
    call.given.append(tensor)
    made: Tensor = stand_for(machine, call, tensor, one, False)
    return made


# ------------------------------------------------------------------------------------ jvp and vjp


@dataclass(slots=True)
class _Jvp(TransformCall):
    strict: bool = False
    with_more: bool = False

    row = "jvp"

    def settings(self, result: Tree) -> tuple[Any, ...]:
        return _parts(result, self.with_more)[0].count, self.strict

    def answer(
        self, machine: Machine, result: Tree, leaves: list[Value], made: CapturedFunction
    ) -> Value:
        first, more = _parts(result, self.with_more)
        rest = iter(leaves)
        found = [put_together(machine, first, rest), put_together(machine, first, rest)]
        return Tuple([*found, put_together(machine, more, rest)] if self.with_more else found)


@calls(torch.func.jvp)
def _jvp(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = dict(zip(("func", "primals", "tangents"), arguments, strict=False)) | keywords
    where, directions = given["primals"], given["tangents"]
    if type(look(where)) is not Tuple or type(look(directions)) is not Tuple:
        stop(BODY, "primals or tangents of jvp that are no tuple")
    moved: list[Value] = []
    chosen = _chosen(machine, where, None)
    if taken_apart(machine, directions, moved) != chosen.tree:
        stop(BODY, "tangents of jvp that do not fit")
    machine.frames.hold_together()
    call = _Jvp(
        "torch.func.jvp",
        start=len(machine.graph.calls),
        strict=_flag(machine, given.get("strict")),
        with_more=_flag(machine, given.get("has_aux")),
    )
    leaves = _given_all(machine, call, chosen.leaves, ())
    for one in moved:
        if not isinstance(one, Tensor):
            stop(BODY, "tangents of jvp that are no tensors")
        type_inside(machine, one)
        call.given.append(one)
    args = put_together(machine, chosen.tree, iter(leaves))
    return start(machine, call, given["func"], args, machine.values.created_dict({}))


@dataclass(slots=True)
class _Vjp(TransformCall):
    where: Tree = LEAF
    place: str = ""
    with_more: bool = False

    row = "vjp"
    enables_grad = True

    def settings(self, result: Tree) -> tuple[Any, ...]:
        return (_parts(result, self.with_more)[0].count,)

    def answer(
        self, machine: Machine, result: Tree, leaves: list[Value], made: CapturedFunction
    ) -> Value:
        if made.draws:
            stop(BODY, "torch.func.vjp of a function that draws random numbers")
        first, more = _parts(result, self.with_more)
        rest = iter(leaves)
        pulls = Pullback(machine, self, first, made, tensors_of(leaves))
        found = [put_together(machine, first, rest), pulls]
        return Tuple([*found, put_together(machine, more, rest)] if self.with_more else found)


class Pullback(ByIdentity):
    """What `torch.func.vjp` answers: gradients of results to gradients of arguments."""

    __slots__ = ("call_", "given", "made_", "modes", "results", "versions", "watched")
    made_of = FunctionType

    def __init__(
        self,
        machine: Machine,
        call: _Vjp,
        results: Tree,
        made: CapturedFunction,
        leaves: list[Tensor],
    ) -> None:
        super().__init__()
        self.call_, self.results, self.made_ = call, results, made
        self.given = [one.node(machine) for one in call.given]
        self.watched = [*self.given, *made.others, *(one.node(machine) for one in leaves)]
        self.versions, self.modes = _versions(machine, self.watched), _modes()

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """One node: the forward pass again, which is that of `vjp`, and the backward pass."""
        if keywords or len(arguments) != 1:
            stop(ARGUMENTS, "how the graph of torch.func.vjp is kept")
        leaves: list[Value] = []
        if taken_apart(machine, arguments[0], leaves) != self.results:
            stop(BODY, "gradients that do not fit the results of torch.func.vjp")
        tensors = tensors_of(leaves)
        if len(tensors) < len(leaves):
            stop(BODY, "gradients of torch.func.vjp that are no tensors")
        pairs = zip(self.versions, _versions(machine, self.watched), strict=True)
        if any(then[0] != now[0] or now[1] > then[1] for then, now in pairs):
            stop(BODY, "a tensor that torch.func.vjp was given, or answered, is written")
        if _modes() != self.modes:
            stop(BODY, "modes that torch.func.vjp was not called in")
        for one in tensors:
            type_inside(machine, one)
        given = [*self.given, *(one.node(machine) for one in tensors)]
        found = put_transform(machine, "pull_back", (len(tensors),), given, self.made_)
        return put_together(machine, self.call_.where, iter(found))

    def rebuild(self, recipe: Recipe) -> str:
        """One that lives on is torch's own from the start."""
        raise LeaveReal(self.call_.place)


def _modes() -> dict[str, Any]:
    """Those that the forward pass depends on; gradients are enabled in it."""
    return {name: value for name, value in torch_abi.modes().items() if name != "grad"}


def _versions(machine: Machine, nodes: Sequence[Node]) -> list[tuple[int, bool]]:
    """How often each tensor was written, as torch counts it, and whether the present body, or the
    graph outside of any, has written it."""
    wanted = set(nodes)
    found = {
        one.node(machine): one.fake(machine)
        for one in machine.graph.fakes.values()
        if isinstance(one, Tensor) and one.used and one.node(machine) in wanted
    }
    fakes = [found[one] for one in nodes if one in found]
    return [
        (version, storage_of(one) in machine.graph.written)
        for version, one in zip(torch_abi.versions_of(fakes), fakes, strict=True)
    ]


@calls(torch.func.vjp)
def _vjp(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    function, *primals = arguments
    if machine.frames.is_left_real():
        stop(UNKNOWN_CALL, "torch.func.vjp, whose function outlives the graph")
    _refuse_hooks()
    chosen = _chosen(machine, Tuple(primals), None)
    place = machine.frames.place_of_call()
    machine.frames.hold_together()
    call = _Vjp(
        "torch.func.vjp",
        start=len(machine.graph.calls),
        where=chosen.tree,
        place=place,
        with_more=_flag(machine, keywords.get("has_aux")),
    )
    leaves = _given_all(machine, call, chosen.leaves, chosen.places)
    args = put_together(machine, chosen.tree, iter(leaves))
    return start(machine, call, function, args, machine.values.created_dict({}))


# ------------------------------------------------------------------------------ jacrev and jacfwd


@dataclass(slots=True)
class _Jacobian(TransformCall):
    argnums: tuple[int, ...] = ()
    chosen: Tree = LEAF
    setting: Any = None  # the size of chunks, or how random numbers are drawn
    with_more: bool = False

    def settings(self, result: Tree) -> tuple[Any, ...]:
        return self.argnums, _parts(result, self.with_more)[0].count, self.setting

    def answer(
        self, machine: Machine, result: Tree, leaves: list[Value], made: CapturedFunction
    ) -> Value:
        first, more = _parts(result, self.with_more)
        rest = iter(leaves)
        found = put_together(machine, nested(first, self.chosen), rest)
        return Tuple([found, put_together(machine, more, rest)]) if self.with_more else found


@dataclass(slots=True)
class _Reverse(_Jacobian):
    row = "jacrev"
    enables_grad = True


@dataclass(slots=True)
class _Forward(_Jacobian):
    row = "jacfwd"


def _of_jacobian(kind: type[_Jacobian], name: str, setting: str) -> CodeRule:
    """The rule of the function that `jacrev` or `jacfwd` has made: its settings are variables of
    its closure."""

    def rule(machine: Machine, made: Any, arguments: Arguments, keywords: Keywords) -> Value:
        assert isinstance(made, Function)
        cells = zip(made.code.co_freevars, made.closure(machine), strict=True)
        held = {name: cell.get(machine) for name, cell in cells}
        made.rely(machine)
        if keywords or _flag(machine, held.get("_preallocate_and_copy")):
            stop(ARGUMENTS, name)
        function, wanted = held["func"], held[setting]
        assert function is not None and wanted is not None
        _refuse_hooks()
        chosen = _chosen(machine, Tuple(list(arguments)), held["argnums"])
        machine.frames.hold_together()
        call = kind(
            name,
            start=len(machine.graph.calls),
            argnums=_places_of_tensors(chosen.leaves, chosen.places),
            chosen=chosen.chosen,
            setting=wanted.as_constant(machine),
            with_more=_flag(machine, held["has_aux"]),
        )
        needing = chosen.places if kind.enables_grad else ()
        leaves = _given_all(machine, call, chosen.leaves, needing)
        args = put_together(machine, chosen.tree, iter(leaves))
        return start(machine, call, function, args, machine.values.created_dict({}))

    return rule


def _followed(machine: Machine, made: Any, arguments: Arguments, keywords: Keywords) -> Value:
    """What these have made says that it is the user's; it calls what has a rule."""
    found: Value = made.inline(machine, arguments, keywords)
    return found


def _left_alone(machine: Machine, made: Any, arguments: Arguments, keywords: Keywords) -> Value:
    stop(UNKNOWN_CALL, "a function that torch.func.functionalize has made")


for _make in (torch.func.grad, torch.func.grad_and_value, torch.func.vmap):
    calls_of(_make(torch.sin))(_followed)
calls_of(torch.func.functionalize(torch.sin))(_left_alone)


@calls(torch.func.functionalize, torch.func.linearize, torch.func.debug_unwrap)
def _native(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    stop(UNKNOWN_CALL, "functionalize, linearize or debug_unwrap of torch.func")


calls_of(torch.func.jacrev(torch.sin))(_of_jacobian(_Reverse, "torch.func.jacrev", "chunk_size"))
calls_of(torch.func.jacfwd(torch.sin))(_of_jacobian(_Forward, "torch.func.jacfwd", "randomness"))
