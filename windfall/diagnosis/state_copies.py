"""Copies of a program's state, on which it can be run once more without being noticed.

Enters: a function or module and its arguments. Leaves: the same over other memory: tensors that
share memory share it in the copy too, modules, containers and objects are deep copies, functions
are made again over copies of what they close over and of the tensors and modules that they read
from their globals. Invariant: nothing that is reached so is written when the copy runs. What cannot
be copied raises `Uncopied`. Effects on anything else (files, a counter in another module) are the
program's, and happen again.
"""

from __future__ import annotations

import contextlib
import copy
import io
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from windfall.errors import WindfallError


class Uncopied(WindfallError):
    """Something that a program reads cannot be copied; the text says what."""


class Copies:
    """Copies that belong together: one of each tensor, object and function."""

    def __init__(self) -> None:
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []  # of an original and its copy
        self._memo: dict[int, Any] = {}
        self._kept: list[Any] = []  # so that no id is used twice
        self._storages: dict[int, Any] = {}
        self._functions: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """The copy of a value."""
        try:
            if isinstance(value, types.FunctionType):
                return self._function(value)
            self._prepare(value, set())
            return copy.deepcopy(value, self._memo)
        except Uncopied:
            raise
        except Exception as error:
            text = f"{type(value).__name__} cannot be copied: {type(error).__name__}: {error}"
            raise Uncopied(text) from error

    def _prepare(self, value: Any, seen: set[int]) -> None:
        """Copy the tensors (and functions) that a deep copy would come to, our way."""
        if id(value) in seen or id(value) in self._memo:
            return
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            self._remember(value, self._tensor(value))
        elif isinstance(value, types.FunctionType):
            self._remember(value, self._function(value))
        elif isinstance(value, torch.Generator):
            self._remember(value, value.clone_state())
        else:
            for one in _inside(value):
                self._prepare(one, seen)

    def _remember(self, value: Any, made: Any) -> None:
        self._kept.append(value)
        self._memo[id(value)] = made

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if id(value) in self._memo:
            made: torch.Tensor = self._memo[id(value)]
            return made
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            made = copy.deepcopy(value.detach() if not value.is_leaf else value)
        else:
            made = self._strided(value)
        self.pairs.append((value, made))
        if value.is_leaf and value.grad is not None:
            self._remember(value, made)
            made.grad = self._tensor(value.grad)
        return made

    def _strided(self, value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        key = storage.data_ptr() or id(value)
        if key not in self._storages:
            self._kept.append(storage)
            self._storages[key] = storage.clone()  # type: ignore[no-untyped-call]
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        with torch.no_grad():
            made.set_(self._storages[key], value.storage_offset(), value.shape, value.stride())
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=value.requires_grad)
        if value.requires_grad:
            made.requires_grad_()
            # Not a leaf either: it may be written.
            with torch.enable_grad():
                return made if value.is_leaf else made.clone()
        return made

    def _function(self, function: types.FunctionType) -> Any:
        """A function over copies of what it closes over and reads from its globals."""
        known = self._functions.get(id(function))
        if known is not None:
            return known
        if not _is_of_a_user(function):
            return function
        names = {**function.__globals__}
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        made = types.FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells
        )
        made.__dict__.update(function.__dict__)
        made.__qualname__, made.__module__ = function.__qualname__, function.__module__
        self._functions[id(function)] = made
        self._kept.append(function)
        for name in _read_names(function.__code__):
            found = names.get(name)
            if isinstance(found, torch.Tensor | torch.nn.Module | types.FunctionType | list | dict):
                names[name] = self.of(found)
        for old, new in zip(function.__closure__ or (), cells, strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                new.cell_contents = self.of(old.cell_contents)
        made.__defaults__ = self.of(function.__defaults__)
        made.__kwdefaults__ = self.of(function.__kwdefaults__)
        return made


def _is_of_a_user(function: types.FunctionType) -> bool:
    top = (function.__module__ or "").partition(".")[0]
    return top not in ("torch", "windfall", "transformers") and top not in sys.stdlib_module_names


def _read_names(code: types.CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return {*code.co_names}.union(*map(_read_names, inner))


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, types.MethodType):
        yield value.__self__
    elif not isinstance(value, type | types.ModuleType):
        yield from getattr(value, "__dict__", {}).values()


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """What runs inside draws random numbers and prints without being noticed."""
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    numpy_state = numpy.get_state() if numpy is not None else None
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.set_state(numpy_state)
