"""Fake tensors: sizes, strides and dtype, but no data; torch's ops run on them and compute nothing.

Enters: `TensorType`s. Leaves: tensors of class `FakeTensor`, on which torch functions, composite
operators and the real autograd engine work; `FakeMode` makes factory functions answer fakes too and
tells an observer of each op that is dispatched.

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
from functools import lru_cache
from typing import Any, NoReturn, TypeGuard

import torch

from windfall import torch_abi
from windfall.errors import InternalError, Specialise, Unsupported
from windfall.ir import symint
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Expression, Size
from windfall.ops import registry, unsized
from windfall.ops.layout import differ
from windfall.ops.schema import QUESTIONS, SPECIAL, Plan, Return, plan_of
from windfall.ops.schema import functional_name as functional_name
from windfall.ops.schema import returns_of as returns_of
from windfall.ops.schema import writes_of as writes_of
from windfall.ops.symbolic import (
    Number,
    as_torch,
    at,
    is_symbolic,
    plain,
    settled,
    symbols_in,
)
from windfall.ops.trial import generalised, tried

Observer = Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any], None]

# The numbered reasons of this file (see `frontend/breaks.py` for the table's shape).
REASONS = {
    100: "a value of a tensor is read while only its type is known",
    101: "an op has neither a shape rule nor a meta kernel",
    102: "a tensor that is not an input of the graph is written",
}


class DataDependent(Unsupported):
    """The result of this step depends on a tensor's data: the program must run up to here."""

    def __init__(self, detail: str) -> None:
        super().__init__(100, detail)


class Storage:
    """Memory that tensors share: an identity with a number to print."""

    __slots__ = ("number", "written")
    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.written = False  # so that constants in it are none any more

    def __repr__(self) -> str:
        return f"Storage({self.number})"


# ------------------------------------------------------------------------------------- tensors


class FakeTensor(torch.Tensor):
    """A tensor without data. Made by `fake` and by ops on other fakes."""

    __slots__ = ("_fake_constant", "_fake_offset", "_fake_storage", "_fake_type")
    _fake_type: TensorType  # never marked requires_grad: autograd keeps that itself
    _fake_storage: Storage
    _fake_offset: Size
    _fake_constant: torch.Tensor | None

    __torch_function__ = torch_abi.disabled_torch_function

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, kwargs or {}, _UNCOUNTED)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"FakeTensor({type_of(self)}, {self._fake_storage})"

    # These read data without any dispatch.
    def tolist(self) -> NoReturn:
        """Reads data."""
        raise DataDependent("tolist()")

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Reads data."""
        raise DataDependent("numpy()")

    def data_ptr(self) -> NoReturn:
        """Reads an address."""
        raise DataDependent("data_ptr()")


def is_fake(value: object) -> TypeGuard[FakeTensor]:
    """Whether `value` is a tensor without data."""
    return value.__class__ is FakeTensor


def _make(
    type: TensorType,
    storage: Storage,
    offset: Size = 0,
    requires_grad: bool = False,
) -> FakeTensor:
    tensor: FakeTensor
    if symint.varying and (is_symbolic(type) or offset.__class__ is Expression):
        type = _settled_type(type)
        sizes, strides = tuple(map(as_torch, type.sizes)), tuple(map(as_torch, type.strides))
        tensor = torch_abi.varying_tensor(
            FakeTensor, sizes, strides, as_torch(offset), type.dtype, type.device, requires_grad
        )
    else:
        type = _shared(type)
        tensor = torch_abi.wrapper_tensor(
            FakeTensor, type.sizes, type.strides, offset, type.dtype, type.device, requires_grad
        )
    tensor._fake_type = type
    tensor._fake_storage = storage
    tensor._fake_offset = offset
    tensor._fake_constant = None
    return tensor


@lru_cache(maxsize=4096)
def _shared(type: TensorType) -> TensorType:
    """One record for equal types: a model has thousands of tensors, of few types."""
    return type


def _settled_type(type: TensorType) -> TensorType:
    sizes = tuple(map(settled, type.sizes))
    return type if sizes == type.sizes else replace(type, sizes=sizes)


def fake(
    type: TensorType,
    *,
    requires_grad: bool | None = None,
    storage: Storage | None = None,
    offset: Size = 0,
) -> torch.Tensor:
    """A fake of this type, a leaf; by default with memory of its own. `requires_grad` None: as the
    type says."""
    wanted = type.requires_grad if requires_grad is None else requires_grad
    return _make(type.without_grad(), storage or Storage(), offset, wanted)


def type_of(tensor: torch.Tensor) -> TensorType:
    """The type of a fake or real tensor, with its present `requires_grad`."""
    if tensor.__class__ is not FakeTensor:
        return TensorType.of(tensor)
    known = tensor._fake_type
    if not tensor.requires_grad:
        return known
    return TensorType(known.dtype, known.sizes, known.strides, known.device, True)


def storage_of(tensor: torch.Tensor) -> Storage:
    """The memory that a fake lives in: one object for all views of a base."""
    assert tensor.__class__ is FakeTensor, "only fakes have a storage of ours"
    return tensor._fake_storage


def offset_of(tensor: torch.Tensor) -> Size:
    """Where a fake starts in its storage, in elements."""
    assert tensor.__class__ is FakeTensor, "only fakes have an offset of ours"
    return tensor._fake_offset


def constant_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The value of a fake that is a known constant (as `torch.tensor(2.0)` makes), else None."""
    if tensor.__class__ is not FakeTensor:
        return tensor
    return None if tensor._fake_storage.written else tensor._fake_constant


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
        kwargs = kwargs or {}
        if plan_of(func).composite:
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
            if symint.varying:
                args, kwargs = plain(args), {name: plain(one) for name, one in kwargs.items()}
            self.observer(func, args, kwargs, result)
        return result


def _fresh(found: TensorType | tuple[TensorType, ...]) -> Any:
    if isinstance(found, TensorType):
        return _make(found, Storage())
    return tuple(_make(one, Storage()) for one in found)


_UNCOUNTED: Counter[str] = Counter()  # ops on fakes outside any mode


# --------------------------------------------------------------------------------- special ops


def _data_dependent(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Reads of constants are answered; others cannot be. A special rule may also answer
    `NotImplemented`: then the op is as any other."""
    known = [constant_of(one) if isinstance(one, torch.Tensor) else one for one in args]
    if any(one is None and given is not None for one, given in zip(known, args, strict=True)):
        raise DataDependent(str(func))
    result = func(*known, **kwargs)
    return _lift(result) if isinstance(result, torch.Tensor) else result


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


def _lift(constant: torch.Tensor) -> FakeTensor:
    result = _make(TensorType.of(constant), Storage())
    result._fake_constant = constant
    return result


def _lift_fresh(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    (constant,) = args
    return constant if is_fake(constant) else _lift(constant.detach())


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
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    # Asked by `.data =`: fakes may always take another fake's place.
    "aten._has_compatible_shallow_copy_type.default": lambda func, args, kwargs: True,
}
for _name in ("item", "is_nonzero", "equal", "allclose", "_local_scalar_dense"):
    SPECIAL[f"aten.{_name}.default"] = _data_dependent


# --------------------------------------------------------------------------------- running one


def _run(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], counted: Counter[str]) -> Any:
    plan = plan_of(func)
    answer = _run_specially(func, plan, args, kwargs)
    if answer is not NotImplemented:
        return answer
    types = [one._fake_type if one.__class__ is FakeTensor else _typed(one) for one in args]
    named = {name: _typed(one) for name, one in kwargs.items()} if kwargs else {}
    if symint.varying and is_symbolic([*types, *named.values()]):
        return _run_symbolic(func, plan, args, kwargs, types, named)
    if plan.shape is not None:
        if plan.plain:
            answer = plan.shape(*types, **named)
            if answer.__class__ is TensorType:
                made = _make(answer, Storage())
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
    return _by_meta_kernel(func, plan, args, kwargs)


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
        return _lift(func(*args, **kwargs).resolve_conj())  # a view of a number that was wrapped
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
    if not any(one.payload.__class__ is symint.Read for one in symbols_in(given)):
        return tried(func, rule, types, named)
    try:
        return rule(*types, **named)
    except (Specialise, RuntimeError, ValueError, IndexError, TypeError):
        # No expression describes it; no two such places are known to be one.
        return symint.read_symbol(f"place {next(_PLACES)}", None, None)


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
    if view is None or not view.view or view.shape is None or not is_fake(args[0]):
        return _by_examples(func, plan, args, kwargs)
    target = args[0]
    type = tried(func, view.shape, types, named)
    if not isinstance(type, TensorType):
        return _by_examples(func, plan, args, kwargs)
    shift = tried(func, view.offset, types, named) if view.offset is not None else 0
    start = 0 if view.absolute_offset else target._fake_offset
    _become(target, _settled_type(type), target._fake_storage, start + shift)
    return target


def _typed(value: Any) -> Any:
    """`value` with types in place of tensors, lists included."""
    kind = value.__class__
    if kind is FakeTensor:
        return value._fake_type
    if kind is list or kind is tuple:
        return [_typed(one) for one in value]
    if isinstance(value, torch.Tensor):
        return _number_or_type(value)
    if kind is torch.SymInt:
        return value.node.size
    return _hint(value.node.number) if kind is torch.SymFloat else value


def _hint(number: Any) -> Any:
    """A number that varies, as rules see it: only its kind matters to them."""
    return number.value if isinstance(number, Number) else number


def _number_or_type(value: torch.Tensor) -> Any:
    """The type of a real tensor; a number that torch wrapped in a tensor is that number again,
    because it takes part in dtype promotion as a number."""
    if torch_abi.is_wrapped_number(value):
        return _hint(number_of(value))
    return TensorType.of(value).without_grad()


def varying_number(value: torch.Tensor) -> Any:
    """The size or `Number` that a real tensor stands for, or the tensor itself."""
    size = torch_abi.wrapped_size(value)
    return value if size is None else plain(size)


def number_of(wrapped: torch.Tensor) -> Any:
    """The number that torch wrapped in a tensor, or the size or `Number` that varies."""
    size = torch_abi.wrapped_size(wrapped) if symint.varying else None
    return wrapped.item() if size is None else plain(size)


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
        # Anything odd (a resize, a dtype that does not fit) is the meta kernel's to judge.
        if found.dtype != target._fake_type.dtype or differ(found.sizes, target._fake_type.sizes):
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
    if plan.op is not None and plan.op.offset is not None:
        offsets = plan.op.offset(*types, **named)
    return _wrap_all(plan, args, kwargs, answer, offsets)


def _wrap_all(
    plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any], answer: Any, offsets: Any
) -> Any:
    for index in plan.written:
        _forget_constant(plan.argument(index, args, kwargs))
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
            return [_make(one, Storage()) for one in answer]
        return _make(answer, Storage()) if isinstance(answer, TensorType) else answer
    base = plan.argument(returned.argument, args, kwargs)
    if not returned.view:
        return base
    absolute = plan.op is not None and plan.op.absolute_offset
    storage, start = _place(base)
    if returned.many:
        shifts = offsets if isinstance(offsets, tuple | list) else [offsets or 0] * len(answer)
        return [
            _make(one, storage, shift if absolute else start + shift)
            for one, shift in zip(answer, shifts, strict=True)
        ]
    shift = offsets or 0
    result = _make(answer, storage, shift if absolute else start + shift)
    if answer == _typed(base) and (absolute or not shift):
        result._fake_constant = constant_of(base)
    return result


def _place(base: torch.Tensor) -> tuple[Storage, Any]:
    """Where a base lives. A real tensor has no storage of ours: each view of it gets its own,
    which is right because real tensors may not be written."""
    if is_fake(base):
        return base._fake_storage, base._fake_offset
    return Storage(), base.storage_offset()


def _forget_constant(target: Any) -> None:
    if is_fake(target):
        target._fake_constant = None
        target._fake_storage.written = True
    elif isinstance(target, list | tuple):
        for one in target:
            _forget_constant(one)
    elif isinstance(target, torch.Tensor):
        raise Unsupported(102, f"a real {TensorType.of(target)} is written while tracing")


# ---------------------------------------------------------------------------------- meta kernel


class _Twins:
    """Tensors on the meta device that stand for the arguments of one op."""

    def __init__(self) -> None:
        self._by_identity: dict[int, torch.Tensor] = {}
        self._memory: dict[Storage, torch.Tensor] = {}
        self.device: torch.device | None = None

    def of(self, value: Any) -> Any:
        """`value` with twins in place of tensors and the meta device in place of devices."""
        if isinstance(value, torch.Tensor):
            twin = self._by_identity.get(id(value))
            if twin is None:
                twin = self._by_identity[id(value)] = self._twin(value)
            return twin
        if isinstance(value, list | tuple):
            return type(value)([self.of(one) for one in value])
        if isinstance(value, torch.device):
            self.device = value
            return torch.device("meta")
        return value

    def _twin(self, value: torch.Tensor) -> Any:
        if not is_fake(value) and torch_abi.is_wrapped_number(value):
            return _hint(number_of(value))
        self.device = self.device or value.device
        known = _typed(value)
        start: Any = value._fake_offset if is_fake(value) else value.storage_offset()
        if not start:
            return torch.empty_strided(known.sizes, known.strides, dtype=known.dtype, device="meta")
        extent = (
            start
            + 1
            + sum(
                (size - 1) * stride for size, stride in zip(known.sizes, known.strides, strict=True)
            )
        )
        memory = torch.empty(max(extent, 0), dtype=known.dtype, device="meta")
        return memory.as_strided(known.sizes, known.strides, start)

    def original(self, twin: torch.Tensor, args: Any) -> torch.Tensor | None:
        """The argument that `twin` stands for, if any."""
        for one in args:
            if isinstance(one, list | tuple):
                found = self.original(twin, one)
                if found is not None:
                    return found
            elif isinstance(one, torch.Tensor) and self._by_identity.get(id(one)) is twin:
                return one
        return None


def _by_meta_kernel(func: Any, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Ask torch: run the op on tensors of the meta device."""
    twins = _Twins()
    twin_args = [twins.of(one) for one in args]
    twin_kwargs = {name: twins.of(one) for name, one in kwargs.items()}
    for index in plan.written:
        _forget_constant(plan.argument(index, args, kwargs))
    if not twins.device and "device" in plan.names:
        twin_kwargs["device"] = torch.device("meta")
    try:
        answer = func(*twin_args, **twin_kwargs)
    except NotImplementedError as error:
        raise Unsupported(101, f"{func}: {str(error).splitlines()[0]}") from error
    device = twins.device or torch.get_default_device()
    for index in plan.written:
        _repair(plan.argument(index, args, kwargs), twins, device)
    everything = (*args, *kwargs.values())
    if len(plan.returns) > 1:
        return tuple(
            _from_meta(one, plan, returned, twins, everything, device)
            for returned, one in zip(plan.returns, answer, strict=True)
        )
    if not plan.returns:
        return None
    return _from_meta(answer, plan, plan.returns[0], twins, everything, device)


def _by_examples(func: Any, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """An op without a rule on sizes that vary: its meta kernel is asked at several sizes. What it
    writes must keep its type; views need a rule."""
    given = _typed([*args, *kwargs.values()])
    symbols = symbols_in(given)
    names = frozenset(atom.key for atom in symbols)
    if any(one.view or one.many for one in plan.returns):
        raise Specialise(names, str(func))

    def ask(values: Mapping[str, int]) -> Any:
        there = tuple(_fakes_at(one, values) for one in args)
        named = {name: _fakes_at(one, values) for name, one in kwargs.items()}
        written = [plan.argument(index, there, named) for index in plan.written]
        before = _as_types(written)
        answer = _run(func, there, named, _UNCOUNTED)
        if _as_types(written) != before:
            raise Specialise(names, f"{func}, which resizes,")
        answers = answer if isinstance(answer, tuple) else (answer,)
        return tuple(
            _as_types(one)
            for returned, one in zip(plan.returns, answers, strict=False)
            if returned.argument is None
        )

    fresh = iter(_as_fakes(generalised(func, ask, symbols, given)))
    for index in plan.written:
        _forget_constant(plan.argument(index, args, kwargs))
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
        return at(_hint(number_of(value)), values)
    return at(_hint(plain(value)), values)


def _type_from_meta(answer: torch.Tensor, device: torch.device) -> TensorType:
    return replace(TensorType.of(answer), device=device, requires_grad=False)


def _from_meta(
    answer: Any,
    plan: Plan,
    returned: Return,
    twins: _Twins,
    everything: tuple[Any, ...],
    device: torch.device,
) -> Any:
    if isinstance(answer, list | tuple):
        return [_from_meta(one, plan, returned, twins, everything, device) for one in answer]
    if not isinstance(answer, torch.Tensor):
        return answer
    same = twins.original(answer, everything)
    if same is not None:
        return same
    type = _type_from_meta(answer, device)
    if returned.argument is None or not returned.view:
        return _make(type, Storage())
    base = everything[returned.argument]
    storage, _ = _place(base)
    offset: Any = answer.storage_offset()
    return _make(type, storage, offset)


def _repair(target: Any, twins: _Twins, device: torch.device) -> None:
    """Give a written fake the sizes, strides and offset that its twin has now."""
    if isinstance(target, list | tuple):
        for one in target:
            _repair(one, twins, device)
    elif is_fake(target):
        twin = twins.of(target)
        type, offset = _type_from_meta(twin, device), twin.storage_offset()
        if type != target._fake_type or offset != target._fake_offset:
            _become(target, type, target._fake_storage, offset)


def _become(target: FakeTensor, type: TensorType, storage: Storage, offset: Size) -> None:
    """Change the metadata of a fake in place, as `t_` and `set_` do. Autograd's own record of the
    tensor (its version, its history) stays."""
    torch_abi.replace_data(target, _make(type, storage, offset))
    target._fake_type, target._fake_storage, target._fake_offset = type, storage, offset


def _set(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    args = plain(args)
    target, source = args[0], args[1] if len(args) > 1 else None
    if not is_fake(target) or not (source is None or is_fake(source)):
        raise Unsupported(101, f"{func} with a storage")
    _forget_constant(target)
    if source is None:
        _become(target, TensorType.contiguous(target.dtype, (0,)), Storage(), 0)
    elif len(args) == 2:
        _become(target, source._fake_type, source._fake_storage, source._fake_offset)
    else:
        offset, sizes = args[2], tuple(args[3])
        type = TensorType.contiguous(target.dtype, sizes)
        if len(args) > 4 and args[4]:
            type = replace(type, strides=tuple(args[4]))
        _become(target, type, source._fake_storage, offset)
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
        if symint.varying and is_symbolic([*args, *(kwargs or {}).values()]):
            answer = tried(func, plan.shape, args, kwargs or {})
            if isinstance(answer, TensorType):
                return _settled_type(answer)
        else:
            answer = plan.shape(*args, **(kwargs or {}))
        if answer is not NotImplemented:
            return answer
    with FakeMode() as mode:
        result = mode.__torch_dispatch__(
            func,
            (),
            tuple(map(_as_fakes, args)),
            {k: _as_fakes(v) for k, v in (kwargs or {}).items()},
        )
    return _as_types(result)


def _as_fakes(value: Any) -> Any:
    if isinstance(value, TensorType):
        return fake(value, requires_grad=False)
    if isinstance(value, list | tuple):
        return [_as_fakes(one) for one in value]
    return as_torch(value) if isinstance(value, Expression) else value


def _as_types(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return type_of(value).without_grad()
    if isinstance(value, list | tuple):
        return tuple(_as_types(one) for one in value)
    return value
