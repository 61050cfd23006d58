"""What Python functions of torch look up by name when they run: another object tomorrow, perhaps.

Enters: a Python function that stands in a graph as one node (`torch.nn.functional.softmax`).
Leaves: the names that its code, and that of the functions of torch in Python which it calls, reads
from modules (`torch`, `torch._C._nn`), each with its dictionary, and those that it asks tensors
for. Invariant: it is read off the code, not off a run: no branch that was not taken is left out.
CodeNames are kept with the code, objects are looked up anew in each capture.

    F.softmax      in torch.nn.functional: has_torch_function_unary, _get_softmax_dim, ...
                   of tensors: softmax
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch.overrides

from windfall.dataclass import dataclass
from windfall.ir.guard import ABSENT
from windfall.ir.reading import dict_of, is_a, resolve

# One way to an object: a name among the globals, and attributes of it; or, of a tensor (or of
# something else that is not known), one attribute.
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CodeNames:
    """What one code object says."""

    paths: tuple[Path, ...]  # from its globals
    of_values: frozenset[str]  # attributes of what it computes with


_NAMES: dict[types.CodeType, CodeNames] = {}


def names_of(code: types.CodeType) -> CodeNames:
    """What a code object, with those inside of it, reads by name."""
    found = _NAMES.get(code)
    if found is None:
        paths: dict[Path, None] = {}
        of_values: set[str] = set()
        _read(code, paths, of_values)
        found = _NAMES[code] = CodeNames(tuple(paths), frozenset(of_values))
    return found


def _read(code: types.CodeType, paths: dict[Path, None], of_values: set[str]) -> None:
    path: Path = ()
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            path = (one.argval,)
            paths[path] = None
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            of_values.add(one.argval)
            if path:
                path = (*path, one.argval)
                paths[path] = None
        elif one.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
            path = ()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _read(constant, paths, of_values)


def looked_up(
    function: types.FunctionType,
) -> tuple[list[tuple[dict[str, Any], str]], dict[str, None]]:
    """What a function looks up, as things are now: dictionaries of modules with a name in each, and
    attributes of tensors. Functions of torch that it reaches are followed. (Operators are left out:
    those of these functions are of sizes and numbers.)"""
    places: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
    methods: dict[str, None] = {}
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        names = names_of(one.__code__)
        for path in names.paths:
            waiting.extend(_followed(_last(one.__globals__, path, places)))
        for name in sorted(names.of_values):
            found = resolve(torch.Tensor, name)
            if found is not ABSENT and name not in methods and name not in _OF_CLASSES:
                methods[name] = None
                waiting.extend(_followed(found))
        for cell in one.__closure__ or ():
            waiting.extend(_followed(_content(cell)))
        waiting.extend(_followed(getattr(one, "__wrapped__", None)))
    return list(places.values()), methods


_OF_CLASSES = ("__name__", "__qualname__", "__module__")


def _last(
    space: dict[str, Any], path: Path, places: dict[tuple[int, str], tuple[dict[str, Any], str]]
) -> Any:
    """The object at the end of a path, noting the last step; None: it leads out of modules."""
    for index, name in enumerate(path):
        if name not in space:
            return None
        if index == len(path) - 1:
            found = space[name]
            home = str(space.get("__name__")).partition(".")[0]
            replaceable = callable(found) and not issubclass(type(found), type)
            if replaceable and home == "torch" and found is not _OTHER_CLASSES:
                places[id(space), name] = space, name
            return found
        if not is_a(space[name], types.ModuleType):
            return None
        space = dict_of(space[name])
    return None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _followed(value: Any) -> Iterator[types.FunctionType]:
    """A Python function of torch, but for what is called of tensors with a class of their own."""
    if type(value) is types.FunctionType and value is not _OTHER_CLASSES:
        home = str(value.__module__).partition(".")[0]
        if home == "torch":
            yield value


_OTHER_CLASSES = torch.overrides.handle_torch_function


# What stood in each place when it was met first.
_FIRST: dict[tuple[int, str], Any] = {}


def is_replaced(owner: Any, name: str, value: Any) -> bool:
    """Whether something else stands in a place of torch's than torch has put there: another object
    than was met there first, or somebody else's."""
    if _FIRST.setdefault((id(owner), name), value) is not value:
        return True
    kind = type(value)
    if kind is types.FunctionType or kind is functools._lru_cache_wrapper:
        home = str(value.__module__).partition(".")[0]
        return home != "torch" and home not in sys.stdlib_module_names
    return str(kind.__module__).partition(".")[0] not in ("torch", "builtins", "typing")
