"""How a value can be changed, by its kind; and how the thread's state can.

Enters: a place. Leaves: `Change`s that can be made and undone. Invariant: a change is made in both
worlds by the same code, each from its own old value.
"""

from __future__ import annotations

import collections
import contextlib
import numbers
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tests.fuzz.places import BY_PLACE, MISSING, Path, is_user, read, set_attribute

Undo = Callable[[], None]


@dataclass(frozen=True)
class Change:
    """`make` answers another value for the place, `from_root` one that stands elsewhere; or `act`
    changes the value itself and answers how to undo it."""

    name: str
    make: Callable[[Any], Any] | None = None
    act: Callable[[Any], Undo] | None = None
    from_root: Callable[[Any], Any] | None = None  # the new value, found elsewhere in the world

    def apply(self, root: Any, path: Path) -> Undo | None:
        """Make the change; None where it cannot be made."""
        owner, last = read(root, path[:-1]), path[-1]
        old = last.read(owner)
        if self.act is not None:
            return self.act(old)
        if last.write is None:
            return None
        new, write = self._made(root, old), last.write
        if new is MISSING and last.key is BY_PLACE:
            return None
        write(owner, new)
        if new is MISSING and isinstance(owner, list | collections.deque):
            return lambda: owner.insert(last.key, old)
        return lambda: write(owner, old)

    def _made(self, root: Any, old: Any) -> Any:
        if self.from_root is not None:
            return self.from_root(root)
        assert self.make is not None
        return self.make(old)


class Sub(torch.Tensor):
    """A subclass without behaviour."""


def _twice(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result * 2 if isinstance(result, torch.Tensor) else result

    wrapper.__module__ = "program_changed"
    return wrapper


def _other_constants(function: types.FunctionType) -> Undo:
    code = function.__code__
    changed = tuple(one + 1 if type(one) in (int, float) else one for one in code.co_consts)
    function.__code__ = code.replace(co_consts=changed)
    return lambda: setattr(function, "__code__", code)


def _set_data(tensor: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]) -> Undo:
    old = tensor.data
    tensor.data = make(old)
    return lambda: setattr(tensor, "data", old)


def _in_place(tensor: torch.Tensor) -> Undo:
    with torch.no_grad():
        tensor.add_(1)
    return lambda: torch.no_grad()(lambda: tensor.sub_(1))()


def _flip(tensor: torch.Tensor) -> Undo:
    if not tensor.is_leaf or not tensor.is_floating_point():
        return lambda: None
    tensor.requires_grad_(not tensor.requires_grad)
    return lambda: tensor.requires_grad_(not tensor.requires_grad)


def _like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    values = values.detach()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(values, tensor.requires_grad and values.is_floating_point())
    return values.requires_grad_(tensor.requires_grad and values.is_floating_point())


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor.T.contiguous().T if tensor.dim() == 2 else torch.stack([tensor, tensor], -1)[..., 0]
    )


def _added(owner: Any, key: Any, value: Any) -> Undo:
    owner[key] = value
    return lambda: owner.__delitem__(key)


def _new_attribute(name: str, value: Any) -> Callable[[Any], Undo]:
    def act(owner: Any) -> Undo:
        if not hasattr(owner, "__dict__") or name in vars(owner):
            return lambda: None
        owner.__dict__[name] = value
        return lambda: owner.__dict__.pop(name)

    return act


def _class_attribute(name: str, value: Any) -> Callable[[Any], Undo]:
    def act(owner: type) -> Undo:
        old = vars(owner).get(name, MISSING)
        if not is_user(owner.__module__):
            return lambda: None
        set_attribute(owner, name, value)
        return lambda: set_attribute(owner, name, old)

    return act


def _registered(owner: type) -> Undo:
    """With an abstract class of the library's; nothing undoes it."""
    if is_user(owner.__module__):
        numbers.Number.register(owner)
    return lambda: None


def _shadowed(owner: Any) -> Undo:
    """A method of the instance's own, before each of its class's."""
    undone = []
    if not hasattr(owner, "__dict__"):
        return lambda: None
    for name, value in list(vars(type(owner)).items()):
        if isinstance(value, types.FunctionType) and not name.startswith("__"):
            owner.__dict__[name] = _twice(getattr(owner, name))
            undone.append(name)
    return lambda: [owner.__dict__.pop(name) for name in undone]  # type: ignore[return-value]


def _subclassed(owner: Any) -> Undo:
    kind = type(owner)
    methods = {
        name: _twice(value)
        for name, value in vars(kind).items()
        if isinstance(value, types.FunctionType) and not name.startswith("__")
    }
    try:
        owner.__class__ = type(kind.__name__, (kind,), {**methods, "__slots__": ()})
    except TypeError:  # not an instance of a class of the user's
        return lambda: None
    return lambda: setattr(owner, "__class__", kind)


def _rotated(owner: dict[Any, Any]) -> Undo:
    """The same entries in another order."""
    before = dict(owner)

    def refill(items: list[tuple[Any, Any]]) -> None:
        owner.clear()
        owner.update(items)

    refill(list(before.items())[::-1])
    return lambda: refill(list(before.items()))


def _list_grown(owner: Any) -> Undo:
    owner.append(owner[0] if len(owner) else 1)
    return lambda: owner.__delitem__(-1)


def _module_hook(module: torch.nn.Module) -> Undo:
    return module.register_forward_hook(lambda one, args, out: out * 2).remove


def _module_pre_hook(module: torch.nn.Module) -> Undo:
    return module.register_forward_pre_hook(lambda one, args: (args[0] + 1, *args[1:])).remove


def _training(module: torch.nn.Module) -> Undo:
    module.training = not module.training
    return lambda: setattr(module, "training", not module.training)


REMOVED = Change("removed", lambda old: MISSING)

# By kind: the first rows that fit are all tried.
CHANGES: tuple[tuple[Any, tuple[Change, ...]], ...] = (
    (bool, (Change("not", lambda old: not old), Change("as int", int), REMOVED)),
    (
        int,
        (
            Change("+1", lambda old: old + 1),
            Change("+3", lambda old: old + 3),  # when it varies already
            Change("as float", float),
            REMOVED,
        ),
    ),
    (
        float,
        (
            Change("+0.5", lambda old: old + 0.5),
            Change("+0.125", lambda old: old + 0.125),  # when it varies already
            Change("nan", lambda old: float("nan")),
        ),
    ),
    (str, (Change("longer", lambda old: old + "x"), Change("None", lambda old: None))),
    (type(None), (Change("one", lambda old: 1), Change("tensor", lambda old: torch.ones(3)))),
    (
        torch.Tensor,
        (
            Change("other values", lambda old: _like(old, old + 1)),
            Change("float64", lambda old: _like(old, old.double())),
            Change("int64", lambda old: old.detach().long()),
            Change("longer", lambda old: _like(old, torch.cat([old, old]))),
            Change("other strides", lambda old: _like(old, _transposed(old))),
            Change("a parameter", lambda old: torch.nn.Parameter(old.detach().clone())),
            Change("no parameter", lambda old: old.detach().clone()),
            Change("a subclass", lambda old: old.detach().clone().as_subclass(Sub)),
            Change("a number", lambda old: 2),
            Change("data =", act=lambda old: _set_data(old, lambda data: data + 1)),
            Change(
                "data = longer",
                act=lambda old: _set_data(old, lambda data: torch.cat([data, data])),
            ),
            Change("data = float64", act=lambda old: _set_data(old, lambda data: data.double())),
            Change("data = other strides", act=lambda old: _set_data(old, _transposed)),
            Change("in place", act=_in_place),
            Change("requires_grad", act=_flip),
            REMOVED,
        ),
    ),
    (
        torch.nn.Module,
        (
            Change("identity", lambda old: torch.nn.Identity()),
            Change("hook", act=_module_hook),
            Change("pre-hook", act=_module_pre_hook),
            Change("training", act=_training),
            Change("forward", act=_new_attribute("forward", lambda x, *rest: x - 1)),
        ),
    ),
    (
        types.FunctionType,
        (Change("twice", _twice), Change("other constants", act=_other_constants), REMOVED),
    ),
    (
        (staticmethod, classmethod),
        (Change("twice", lambda old: type(old)(_twice(old.__func__))), REMOVED),
    ),
    (property, (Change("constant", lambda old: 7),)),
    (list, (Change("grown", act=_list_grown), Change("copied", list), Change("tuple", tuple))),
    (collections.deque, (Change("grown", act=_list_grown),)),
    (tuple, (Change("shorter", lambda old: old[:-1]), Change("list", list))),
    (
        dict,
        (
            Change("new key", act=lambda old: _added(old, "new", 1)),
            Change("absent key", act=lambda old: _added(old, "absent", 9)),
            Change("other order", act=_rotated),
            Change("copied", lambda old: old.copy()),
        ),
    ),
    (
        type,
        (
            Change("extra", act=_class_attribute("extra", 1)),
            Change("bonus", act=_class_attribute("bonus", 4)),
            Change("registered", act=_registered),
        ),
    ),
    (set, (Change("smaller", lambda old: set(list(sorted(old))[1:])),)),
    (
        object,
        (
            Change("extra", act=_new_attribute("extra", 1)),
            Change("bonus", act=_new_attribute("bonus", 4)),
            Change("shadowed methods", act=_shadowed),
            Change("subclassed", act=_subclassed),
        ),
    ),
)


def changes_of(value: Any) -> Iterator[Change]:
    """The changes that can be tried on a value."""
    for kind, changes in CHANGES:
        if isinstance(value, kind):
            yield from changes
            if kind is not torch.nn.Module:
                return


# ---------------------------------------------------------------------------------- the thread


class Negating(TorchFunctionMode):
    """A mode that changes what `+` answers."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        return (
            -result if function in (torch.add, torch.Tensor.add, torch.Tensor.__add__) else result
        )


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def _patched_question() -> Iterator[None]:
    """A method of tensors is the user's; torch's own is inherited, so that it comes back."""
    original = torch.Tensor.is_contiguous
    torch.Tensor.is_contiguous = lambda self, **named: not original(self, **named)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del torch.Tensor.is_contiguous


AMBIENT: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default dtype": _default_dtype,
    "deterministic": _deterministic,
    "function mode": Negating,
    "no torch function": torch._C.DisableTorchFunction,
    "saved tensor hooks": lambda: torch.autograd.graph.save_on_cpu(),
    "a patched question": _patched_question,
}
