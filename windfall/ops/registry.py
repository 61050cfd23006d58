"""The dictionary of ATen ops: one `Op` record each, looked up by overload.

Enters: records declared in the family files of this room. Leaves: what the other rooms ask of an
op: facts are fields here, code that works on a room's own data stands in that room. Invariant:
each default is safe, so that an op of which nobody says anything is compiled to what eager answers.
Shape falls back to torch's own meta kernel, lowering to a call of the op. So does a rule that
answers `NotImplemented`, which means "not for these arguments" (complex numbers, say).

* `shape(*types, **kwargs)`: like the op, but `TensorType`s stand where tensors stand; answers the
  `TensorType` of the result (or a tuple of them; None for an undefined one). Needed by fake
  tensors. It raises what eager raises where the arguments do not fit. Sizes may be expressions;
  questions about them go through `layout.differ` and `layout.smaller`.
* `lower(builder, *values, **kwargs)`: the op in the loop IR (see `ir/loop.py`): `Lazy` in place
  of tensors, a `Lazy` (or a tuple of them) as answer, with exactly the types of `shape`.
* `samples()`: argument tuples for the tests that enumerate this registry.

The other fields are told where they stand. `tests/ops/test_fields.py` holds each of them against
torch's schema or against what the op does with its samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.ir.control_flow import Subgraphs
from windfall.ir.passes import is_own

Shape = Callable[..., Any]
Lower = Callable[..., Any]
Samples = Callable[[], Iterator[tuple[tuple[Any, ...], dict[str, Any]]]]

EVERY = range(64)  # the positions of all operands of an op


@dataclass(frozen=True, slots=True)
class Op:
    """One ATen overload, by its name: `aten.add.Tensor`."""

    name: str
    shape: Shape | None = None
    lower: Lower | None = None
    samples: Samples | None = None
    random: bool = False  # draws from a generator
    zero_or_one: bool = False  # each element of the result is 0 or 1
    recompute: bool = False  # cheap enough to be done again in backward
    whole: bool = False  # a composite that is not taken apart

    # Memory: the result shares the first argument's storage, and starts `offset(*types, **kwargs)`
    # elements after it (a tuple if `shape` answers one; None: at the same place), or after the
    # start of the storage where that is `absolute_offset`.
    view: bool = False
    offset: Callable[..., Any] | None = None
    absolute_offset: bool = False
    # Positions that are written although the schema does not say so; the overload that answers what
    # is written instead, where its name does not tell; what is written and else not looked at.
    mutates: tuple[int, ...] = ()
    functional: str | None = None

    # Elements: each of the result is one of the first argument's; of the same type as that, the
    # result is that again; the very same tensor to everybody but autograd.
    moves: bool = False
    no_op: bool = False
    alias: bool = False
    uniform: int | str | None = None  # what all elements are, or the argument that says so
    blank: bool = False  # what memory held; where eager fills that, `fake.py` notes it
    unit: tuple[int, ...] = ()  # operands that, being 1, leave the other one as it is
    tensor_form: str | None = None  # the overload with a tensor in place of the number

    # Views that are written: what makes the first argument of the view again (an overload, or a
    # rule of `autograd/inverse.py`), or puts the view into it (`slice_scatter`); whether the view
    # only marks memory, so that as a value it is what `inverse` computes; for lists of views, the
    # overload that makes one of them.
    inverse: str | None = None
    scatter: str | None = None
    marks: bool = False
    piece: str | None = None

    # Data. Positions of operands all of whose elements the lowering reads, whichever of its
    # results is computed; whether the op may refuse data (raise), and what it asks of its operands
    # where it becomes loops, or writes its first argument in place (`failing.ElementCheck`s).
    reads: Collection[int] = ()
    refuses: bool = True
    checks: Callable[..., Any] | None = None
    own_error: bool = False  # what it raises has a class and words that only Python carries
    from_memory: bool = False  # dear, and takes operands from memory: they are stored for it anyway
    keeps: bool = False  # second derivatives read operands and results that first ones may not
    phases: bool = False  # of complex results, the derivative looks at tangents past any dispatch
    rereads: bool = False  # reads an element of the first operand several times (windows overlap)

    # Layout: its elements are the same however its operands lie in memory, and `shape` says how
    # they lie then; but for the results at these positions. Images are pooled fastest by vectors
    # of channels.
    any_layout: bool = False
    by_layout: tuple[int, ...] = ()
    pools: bool = False


# What is known of every operation with bodies (`ir/control_flow.py`), which are no ATen ops.
WITH_BODIES = Op("windfall.subgraphs", from_memory=True)

_OPS: dict[str, Op] = {}
_BY_TARGET: dict[Any, Op] = {}  # OpOverload -> record: spares the making of its name


def declare(op: Op) -> Op:
    """Add a record; an op is declared once."""
    assert op.name not in _OPS, f"{op.name} is declared twice"
    _OPS[op.name] = op
    _BY_TARGET.clear()
    return op


def lookup(target: Any) -> Op:
    """The record of an `OpOverload` (or of its name); of what nobody declared, one that says so
    little that it is true."""
    try:
        return _BY_TARGET[target]
    except KeyError:
        if isinstance(target, Subgraphs):  # not kept: it is a program of its own
            return WITH_BODIES
        name = str(target)
        op = _BY_TARGET[target] = _OPS.get(name) or _undeclared(name, target)
        return op


def _undeclared(name: str, target: Any) -> Op:
    random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    return Op(name, random=random, refuses=_may_refuse(target))


def _may_refuse(target: Any) -> bool:
    """Whether an op of which nobody says so may refuse data: but for views and derivatives (of what
    was not refused), and what is called on copies of what it writes."""
    if not torch_abi.is_overload(target) or target.namespace != "aten":
        return is_foreign(target)
    views = any(one.alias_info is not None for one in target._schema.returns)
    return not views and "backward" not in target._schema.name


def foreign() -> list[str]:
    """The ATen ops whose record somebody else than windfall has declared."""
    return [
        op.name
        for op in _OPS.values()
        if any(one is not None and not is_own(one) for one in (op.shape, op.lower))
        and op.name.startswith("aten.")
    ]


# Torch's own, besides ATen: they keep nothing of what they are given.
_TORCH_LIBRARIES = frozenset({"mkldnn", "mkl", "onednn", "quantized", "prims"})


def may_keep(target: Any) -> bool:
    """Whether an op may keep its operands after it has answered."""
    func = getattr(target, "func", target)
    return is_foreign(target) and func.namespace not in _TORCH_LIBRARIES


def is_foreign(target: Any) -> bool:
    """Whether a target is an op of somebody else's (or that, called on copies of what it writes).
    Which of ATen's refuse data is declared."""
    target = getattr(target, "func", target)
    return torch_abi.is_overload(target) and target.namespace != "aten"


def all_ops() -> tuple[Op, ...]:
    """Every record, by name."""
    return tuple(sorted(_OPS.values(), key=lambda op: op.name))
