"""Fake tensors: sizes, strides and dtype, but no data; torch's ops run on them and compute nothing.

Enters: `TensorType`s. Leaves: tensors of class `FakeTensor`, on which torch functions, composite
operators and the real autograd engine work; `FakeMode` makes factory functions answer fakes too and
tells an observer of each op that is dispatched. (`fake_tensor.py` has the tensors themselves, and
`meta_kernel.py` how torch is asked.)

The type of a result comes from the op's `shape` rule in the registry; an op without one asks its
meta kernel (counted in `FakeMode.fallbacks`: those written in Python load torch._dynamo, slowly).

Invariants: faking reads no data, writes no real tensor and draws no random number; tensors that
would share memory share one `Storage` (`storage_of`), at the offset they would have. Sizes may vary
(`symbolic.py`): torch sees `torch.SymInt`s; rules, types and the observer see expressions.

    >>> x = fake(TensorType.contiguous(torch.float32, (2, 3)))
    >>> with FakeMode():
    ...     y = (x @ x.t()).relu_()
    >>> str(type_of(y)), storage_of(y) is storage_of(x)
    ('f32[2, 2]', False)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.errors import InternalError, Specialise, Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.generators import StandIns, given, using
from windfall.ir.symint import Read, payloads, read_symbol
from windfall.ops import registry, unsized
from windfall.ops.creation import blank_value
from windfall.ops.fake_tensor import (
    REASONS,
    DataDependent,
    FakeTensor,
    Marks,
    Storage,
    as_fakes,
    as_types,
    become,
    constant_of,
    fake,
    forget_constant,
    hint,
    is_fake,
    is_wrapper_class,
    lift,
    make,
    number_of,
    offset_of,
    place_of,
    settled_type,
    storage_of,
    takes_ops_apart,
    type_of,
    typed,
    varying_number,
)
from windfall.ops.layout import differ
from windfall.ops.meta_kernel import by_meta_kernel
from windfall.ops.number_ranges import rely_on_ranges
from windfall.ops.refused_dtypes import refuse, refuse_empty, refuse_numbers
from windfall.ops.schema import (
    QUESTIONS,
    SPECIAL,
    Plan,
    Return,
    counts_writes,
    functional_name,
    plan_of,
    returns_of,
    starts_anew,
    writes_of,
)
from windfall.ops.shape_rule_check import generalised, tried
from windfall.ops.symbolic import (
    at,
    is_symbolic,
    plain,
    symbols_in,
)

__all__ = [
    "REASONS",
    "DataDependent",
    "FakeMode",
    "FakeTensor",
    "Observer",
    "Storage",
    "constant_of",
    "counts_writes",
    "fake",
    "functional_name",
    "infer",
    "is_fake",
    "is_wrapper_class",
    "number_of",
    "offset_of",
    "returns_of",
    "storage_of",
    "type_of",
    "varying_number",
    "writes_of",
]

Observer = Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any], None]


# ---------------------------------------------------------------------------------------- mode


class FakeMode(torch_abi.DispatchMode):  # type: ignore[no-untyped-call]
    """While entered, every op of this thread answers fakes, factory functions included.

    `observer(func, args, kwargs, result)` is called after each dispatched op; `func` may write its
    arguments, and what was passed is seen as it was passed."""

    def __init__(
        self, observer: Observer | None = None, count: unsized.Count | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observer = observer
        self.count = count  # who names what is read from data; None: that is `DataDependent`
        self.fallbacks: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(map(takes_ops_apart, types)):
            return NotImplemented
        kwargs = kwargs or {}
        plan = plan_of(func)
        if plan.composite:
            with self:
                return func.decompose(*args, **kwargs)
        try:
            result = _run(func, args, kwargs, self.fallbacks)
        except DataDependent:
            found = None
            if self.count is not None:
                found = unsized.answer(func, args, kwargs, self.count)
            if found is None:
                raise
            result = _fresh(found)
        if self.observer is not None:
            if payloads.varying:
                args, kwargs = plain(args), {name: plain(one) for name, one in kwargs.items()}
            self.observer(func, args, kwargs, result)
        if plan.op.blank and torch.are_deterministic_algorithms_enabled():
            fill: Any = torch.ops.aten.fill.Scalar
            return self.__torch_dispatch__(fill, types, (result, blank_value(result.dtype)))
        return result


def _fresh(found: TensorType | tuple[TensorType, ...]) -> Any:
    if isinstance(found, TensorType):
        return make(found, Storage())
    return tuple(make(one, Storage()) for one in found)


_UNCOUNTED: Counter[str] = Counter()  # ops on fakes outside any mode


# --------------------------------------------------------------------------------- special ops


def _data_dependent(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Reads of constants are answered; others cannot be. A special rule may also answer
    `NotImplemented`: then the op is as any other."""
    known = [constant_of(one) if isinstance(one, torch.Tensor) else one for one in args]
    if any(one is None and given is not None for one, given in zip(known, args, strict=True)):
        raise DataDependent(str(func))
    result = func(*known, **kwargs)
    return lift(result) if isinstance(result, torch.Tensor) else result


def _index(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Only a mask makes the size of the result depend on data."""
    for one in args[1]:
        if one is not None and one.dtype in (torch.bool, torch.uint8):
            raise DataDependent(f"{func} with a mask")
    return NotImplemented


def _repeat_interleave(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if kwargs.get("output_size") is not None:
        return NotImplemented
    return _data_dependent(func, args, kwargs)


def _lift_fresh(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    (constant,) = args
    return constant if is_fake(constant) else lift(constant.detach())


def _to_copy(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A number that was wrapped is a constant of another dtype (`vmap` makes such of numbers)."""
    if isinstance(args[0], torch.Tensor):
        return NotImplemented
    return lift(func(*args, **kwargs))


def _as_integers(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A kernel wants sizes or strides as plain integers."""
    known = args[0]._fake_type
    names = frozenset(atom.key for atom in symbols_in(known))
    raise Specialise(names, f"an op in C++ on {known}")


SPECIAL |= dict.fromkeys(QUESTIONS, _as_integers)
SPECIAL |= {
    "aten.lift_fresh.default": _lift_fresh,
    "aten.lift.default": _lift_fresh,
    "aten.index.Tensor": _index,
    "aten._to_copy.default": _to_copy,
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    # Asked by `.data =`: fakes may always take another fake's place.
    "aten._has_compatible_shallow_copy_type.default": lambda func, args, kwargs: True,
}
for _name in ("item", "is_nonzero", "equal", "allclose", "_local_scalar_dense"):
    SPECIAL[f"aten.{_name}.default"] = _data_dependent


# --------------------------------------------------------------------------------- running one


def _run(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], counted: Counter[str]) -> Any:
    plan = plan_of(func)
    result = _run_unmarked(func, plan, args, kwargs, counted)
    if not plan.composite and plan.special is None:
        refuse_empty(func, args, kwargs, result)
    seen = args[0] if args else None
    marks = seen._fake_marks if seen.__class__ is FakeTensor else None
    if (marks is not None or plan.op.marks) and plan.returns and plan.returns[0].view:
        change = _MARKED.get(str(func))
        marks = change(marks or Marks()) if change is not None else marks
        for one in result if isinstance(result, list | tuple) else (result,):
            one._fake_marks = marks if marks is not None and any(marks) else None
    return result


# Views that mark what is read through them; all others show the marks of what they look at.
_MARKED: dict[str, Callable[[Marks], Marks]] = {
    "aten._conj.default": lambda marks: marks._replace(conjugate=not marks.conjugate),
    "aten._neg_view.default": lambda marks: marks._replace(negative=not marks.negative),
    "aten.view_as_real.default": lambda marks: marks._replace(conjugate=False),
}


def _run_unmarked(
    func: Any,
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    counted: Counter[str],
) -> Any:
    answer = _run_specially(func, plan, args, kwargs)
    if answer is not NotImplemented:
        return answer
    types = [one._fake_type if one.__class__ is FakeTensor else typed(one) for one in args]
    named = {name: typed(one) for name, one in kwargs.items()} if kwargs else {}
    refuse(func, types, named)
    if plan.numbers:
        refuse_numbers(func, plan, types, named)
    if payloads.varying and is_symbolic([*types, *named.values()]):
        rely_on_ranges(plan, func, types, named)
        return _run_symbolic(func, plan, args, kwargs, types, named)
    if plan.shape is not None:
        if plan.plain:
            answer = plan.shape(*types, **named)
            if answer.__class__ is TensorType:
                made = make(answer, Storage())
                if not answer.sizes:
                    folded = _folded(func, args, kwargs)
                    if folded is not None and TensorType.of(folded) == answer:
                        made._fake_constant = folded
                return made
        else:
            answer = _by_rule(plan, plan.shape, args, kwargs, types, named)
        if answer is not NotImplemented:
            return _wrap(plan, args, kwargs, types, named, answer)
    counted[str(func)] += 1
    return by_meta_kernel(func, plan, args, kwargs)


def _run_uncounted(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return _run(func, args, kwargs, _UNCOUNTED)


FakeTensor._fake_run = _run_uncounted


def _folded(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The value of an op on constants without dimensions, as `torch.div(8, 4) - 1` is: such tensors
    are used as sizes."""
    known = []
    found = bool(args) and isinstance(args[0], int | float) and _takes_tensors(func)
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Tensor):
            constant = constant_of(one)
            if constant is None or constant.dim() or varying_number(constant) is not constant:
                return None
            known.append(constant)
            found = True
        elif isinstance(one, list | tuple):
            return None
        else:
            known.append(one)
    if not found or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    named = dict(zip(kwargs, known[len(args) :], strict=True))
    result: torch.Tensor = func(*known[: len(args)], **named)
    return result


def _takes_tensors(func: Any) -> bool:
    """Whether a number that is given first stands for a tensor."""
    arguments = func._schema.arguments
    return bool(arguments) and str(arguments[0].type) == "Tensor"


def _run_specially(func: Any, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What does not go by a shape rule; `NotImplemented` if this does."""
    if plan.composite:
        return func.decompose(*args, **kwargs)
    if plan.special is not None:
        return plan.special(func, args, kwargs)
    if plan.reads_data:
        return _data_dependent(func, args, kwargs)
    if args and plan.returns and plan.returns[0].view and not isinstance(args[0], torch.Tensor):
        return lift(func(*args, **kwargs).resolve_conj())  # a view of a number that was wrapped
    return NotImplemented


def _run_symbolic(
    func: Any,
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    types: list[Any],
    named: dict[str, Any],
) -> Any:
    """An op on sizes that vary: whatever its rules answer is tried at known sizes."""
    shape, op = plan.shape, plan.op
    if shape is None:
        if torch.Tag.inplace_view in func.tags:
            return _see_otherwise(func, plan, args, kwargs, types, named)
        return _by_examples(func, plan, args, kwargs)

    def rule(*types: Any, **named: Any) -> Any:
        return tried(func, shape, types, named)

    answer = _by_rule(plan, rule, args, kwargs, types, named)
    if answer is NotImplemented:
        return _by_examples(func, plan, args, kwargs)
    offsets: Any = None
    if op is not None and op.offset is not None:
        offsets = _offsets(func, op.offset, types, named)
    return _wrap_all(plan, args, kwargs, answer, offsets)


def _offsets(func: Any, rule: Any, types: list[Any], named: dict[str, Any]) -> Any:
    given = [*types, *named.values()]
    if not any(one.payload.__class__ is Read for one in symbols_in(given)):
        return tried(func, rule, types, named)
    try:
        return rule(*types, **named)
    except (Specialise, RuntimeError, ValueError, IndexError, TypeError):
        # No expression describes it; no two such places are known to be one.
        return read_symbol(f"place {next(_PLACES)}", None, None)


_PLACES = itertools.count()


def _see_otherwise(
    func: Any,
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    types: list[Any],
    named: dict[str, Any],
) -> Any:
    """`t_` and the like on sizes that vary, by the rule of the op that answers a view."""
    view = registry.lookup(functional_name(func))
    if not view.view or view.shape is None or not is_fake(args[0]):
        return _by_examples(func, plan, args, kwargs)
    target = args[0]
    type = tried(func, view.shape, types, named)
    if not isinstance(type, TensorType):
        return _by_examples(func, plan, args, kwargs)
    shift = tried(func, view.offset, types, named) if view.offset is not None else 0
    start = 0 if starts_anew(view, plan.names, args, kwargs) else target._fake_offset
    become(target, settled_type(type), target._fake_storage, start + shift)
    return target


def _by_rule(
    plan: Plan,
    rule: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    types: list[Any],
    named: dict[str, Any],
) -> Any:
    """The answer of the shape rule; for a writing op, that of its functional counterpart, which
    must fit what is written."""
    if not plan.written:
        return rule(*types, **named)
    names = {plan.names[index] for index in plan.written} if plan.out else ()
    answer = rule(*types, **{k: v for k, v in named.items() if k not in names})
    if answer is NotImplemented or not plan.returns:
        return NotImplemented
    answers = answer if isinstance(answer, tuple) else (answer,)
    for returned, found in zip(plan.returns, answers, strict=False):
        if returned.argument is None:
            continue
        target = plan.argument(returned.argument, args, kwargs)
        if not is_fake(target) or found is None:
            return NotImplemented
        its_sizes = target._fake_type.sizes
        # No op that goes by this rule resizes what it writes; meta kernels of some do.
        if not plan.out and differ(found.sizes, its_sizes):
            raise RuntimeError(
                f"output with shape {list(its_sizes)} doesn't match the broadcast shape "
                f"{list(found.sizes)}"
            )
        # Anything odd (a resize, a dtype that does not fit) is the meta kernel's to judge.
        if found.dtype != target._fake_type.dtype or differ(found.sizes, its_sizes):
            return NotImplemented
    return answer


def _wrap(
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    types: list[Any],
    named: dict[str, Any],
    answer: Any,
) -> Any:
    """Tensors for the types that a rule answered."""
    offsets: Any = None
    if plan.op.offset is not None:
        offsets = plan.op.offset(*types, **named)
    return _wrap_all(plan, args, kwargs, answer, offsets)


def _wrap_all(
    plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any], answer: Any, offsets: Any
) -> Any:
    for index in plan.written:
        forget_constant(plan.argument(index, args, kwargs))
    if not plan.returns:
        return None
    if len(plan.returns) == 1:
        return _wrap_one(plan, plan.returns[0], args, kwargs, answer, offsets)
    if not isinstance(answer, tuple) or len(answer) != len(plan.returns):
        raise InternalError(f"the shape rule of {plan.op} answers {answer}")
    return tuple(
        _wrap_one(plan, returned, args, kwargs, one, None)
        for returned, one in zip(plan.returns, answer, strict=True)
    )


def _wrap_one(
    plan: Plan,
    returned: Return,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    answer: Any,
    offsets: Any,
) -> Any:
    if returned.argument is None:
        if returned.many and isinstance(answer, tuple | list):
            return [make(one, Storage()) for one in answer]
        return make(answer, Storage()) if isinstance(answer, TensorType) else answer
    base = plan.argument(returned.argument, args, kwargs)
    if not returned.view:
        return base
    absolute = starts_anew(plan.op, plan.names, args, kwargs)
    storage, start = place_of(base)
    if returned.many:
        shifts = offsets if isinstance(offsets, tuple | list) else [offsets or 0] * len(answer)
        return [
            make(one, storage, shift if absolute else start + shift)
            for one, shift in zip(answer, shifts, strict=True)
        ]
    shift = offsets or 0
    result = make(answer, storage, shift if absolute else start + shift)
    if answer == typed(base) and (absolute or not shift):
        result._fake_constant = constant_of(base)
    return result


def _by_examples(func: Any, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """An op without a rule on sizes that vary: its meta kernel is asked at several sizes. What it
    writes must keep its type; views need a rule."""
    given = typed([*args, *kwargs.values()])
    symbols = symbols_in(given)
    names = frozenset(atom.key for atom in symbols)
    if any(one.view or one.many for one in plan.returns):
        raise Specialise(names, str(func))

    def ask(values: Mapping[str, int]) -> Any:
        there = tuple(_fakes_at(one, values) for one in args)
        named = {name: _fakes_at(one, values) for name, one in kwargs.items()}
        written = [plan.argument(index, there, named) for index in plan.written]
        before = as_types(written)
        answer = _run(func, there, named, _UNCOUNTED)
        if as_types(written) != before:
            raise Specialise(names, f"{func}, which resizes,")
        answers = answer if isinstance(answer, tuple) else (answer,)
        return tuple(
            as_types(one)
            for returned, one in zip(plan.returns, answers, strict=False)
            if returned.argument is None
        )

    fresh = iter(as_fakes(generalised(func, ask, symbols, given)))
    for index in plan.written:
        forget_constant(plan.argument(index, args, kwargs))
    made = tuple(
        next(fresh) if one.argument is None else plan.argument(one.argument, args, kwargs)
        for one in plan.returns
    )
    return made if len(made) > 1 else made[0] if made else None


def _fakes_at(value: Any, values: Mapping[str, int]) -> Any:
    if is_fake(value):
        return fake(at(value._fake_type, values), requires_grad=False)
    if isinstance(value, list | tuple):
        return [_fakes_at(one, values) for one in value]
    if isinstance(value, torch.Tensor) and torch_abi.wrapped_size(value) is not None:
        return at(hint(number_of(value)), values)
    return at(hint(plain(value)), values)


def _set(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    args = plain(args)
    target, source = args[0], args[1] if len(args) > 1 else None
    if not is_fake(target) or not (source is None or is_fake(source)):
        raise Unsupported(101, f"{func} with a storage")
    forget_constant(target)
    if source is None:
        become(target, TensorType.contiguous(target.dtype, (0,)), Storage(), 0)
    elif len(args) == 2:
        become(target, source._fake_type, source._fake_storage, source._fake_offset)
    else:
        offset, sizes = args[2], tuple(args[3])
        type = TensorType.contiguous(target.dtype, sizes)
        if len(args) > 4 and args[4]:
            type = replace(type, strides=tuple(args[4]))
        become(target, type, source._fake_storage, offset)
    return target


for _name in ("default", "source_Tensor", "source_Tensor_storage_offset", "source_Storage"):
    SPECIAL[f"aten.set_.{_name}"] = _set
SPECIAL["aten.set_.source_Storage_storage_offset"] = _set


# ------------------------------------------------------------------------------ types, directly


def infer(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """The type of what an overload answers, where `TensorType`s stand in place of tensors: a
    `TensorType`, or a tuple of them (for lists too), or what the op answers instead of a tensor."""
    plan = plan_of(func)
    if plan.plain and plan.shape is not None and not plan.composite and not plan.special:
        if payloads.varying and is_symbolic([*args, *(kwargs or {}).values()]):
            answer = tried(func, plan.shape, args, kwargs or {})
            if isinstance(answer, TensorType):
                return settled_type(answer)
        else:
            answer = plan.shape(*args, **(kwargs or {}))
        if answer is not NotImplemented:
            return answer
    with FakeMode() as mode, using(StandIns()):
        result = mode.__torch_dispatch__(
            func,
            (),
            tuple(as_fakes(given(one)) for one in args),
            {k: as_fakes(given(v)) for k, v in (kwargs or {}).items()},
        )
    return as_types(result)
