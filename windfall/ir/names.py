"""Live things by names under which another process finds them again.

Enters: a function, a class, a module, an operator, the globals of a module. Leaves: a text that
`resolve` turns into the very same object, or `Unnameable` with the reason. Invariant: a name is
given only after it was resolved and led back to the same object, so a name is never wrong where it
was made.

    >>> name_of(torch.nn.functional.softplus), name_of(torch.Tensor.add)
    ('torch._C._nn:softplus', 'torch._C:TensorBase.add')
    >>> resolve("torch:relu") is torch.relu
    True
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from windfall.errors import WindfallError
from windfall.ir.reading import class_name

# Where functions stand that do not say it themselves, or do not say it right.
HOMES = (
    "torch", "torch._C._nn", "torch.nn.functional", "torch._C._linalg", "torch._C._fft",
    "torch._C._special", "torch._C", "_operator", "builtins", "math",
)  # fmt: skip


class Unnameable(WindfallError):
    """An object that another process cannot find; the text says why."""


def name_of(value: Any) -> str:
    """The name of an object: `module:qualname`, or `module:` for a module itself."""
    for name in _candidates(value):
        try:
            found = resolve(name)
        except (ImportError, AttributeError, KeyError):
            continue
        if found is value:
            return name
    raise Unnameable(_reason(value))


def resolve(name: str) -> Any:
    """The object of a name; its module is imported where it is not loaded yet."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in filter(None, path.split(".")):
        raw = isinstance(found, types.MappingProxyType)  # `Class.__dict__`: what stands in a class
        found = found[part] if raw else getattr(found, part)
    return found


def _candidates(value: Any) -> Iterator[str]:
    if isinstance(value, types.ModuleType):
        yield f"{value.__name__}:"
        return
    if isinstance(value, staticmethod | classmethod):
        inside, _, last = value.__func__.__qualname__.rpartition(".")
        yield f"{value.__func__.__module__}:{inside}.__dict__.{last}"
        return
    name: Any = getattr(value, "__qualname__", None)
    if not isinstance(name, str) or "<" in name:  # a decorator may give one all the same
        name = getattr(value, "__name__", None)
    if not isinstance(name, str) or "<" in name:
        return
    module = getattr(value, "__module__", None)
    owner = getattr(value, "__objclass__", None)
    if isinstance(owner, type):
        yield f"{owner.__module__}:{owner.__qualname__}.{value.__name__}"
    home = module if isinstance(module, str) else "builtins"
    yield from (f"{home}:{name}", f"{home}:{name}.__func__")  # the latter: of a class method
    yield from (f"{home}:{name.rpartition('.')[2]}" for home in HOMES)
    if isinstance(value, type):  # the class of functions says that it is `builtins.function`
        yield from (f"types:{name}" for name, one in vars(types).items() if one is value)
        yield f"_collections_abc:{name}"  # so do the classes of iterators
    # `Tensor.__pow__` is called `TensorBase.pow`, after what it wraps.
    yield from (f"torch:Tensor.{name}" for name, one in vars(torch.Tensor).items() if one is value)


def _reason(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str) and "<locals>" in name:
        return f"{name} is made inside of a function"
    if isinstance(name, str) and "<lambda>" in name:
        return "a lambda has no name"
    if isinstance(value, types.BuiltinFunctionType) and value.__module__ is None:
        return f"{value.__name__} is machine code of this process"
    if isinstance(name, str):
        return f"{getattr(value, '__module__', None)}:{name} does not lead to it"
    return f"an object of {class_name(type(value))} has no name"


def operator_name(value: Any) -> str:
    """`aten::add.Tensor`; an operator that its library no longer has is not nameable."""
    name = str(value.name())
    try:
        if resolve_operator(name) is value:
            return name
    except AttributeError:
        pass
    raise Unnameable(f"operator {name} is not registered under its name")


def packet_name(value: Any) -> str:
    """`aten.add` of an operator whose overload its arguments choose."""
    name = str(value)
    if resolve_packet(name) is not value:
        raise Unnameable(f"operator {name} is not registered under its name")
    return name


def resolve_packet(name: str) -> Any:
    """The operator of a name; None where there is none."""
    namespace, _, packet = name.partition(".")
    return getattr(getattr(torch.ops, namespace), packet, None)


def resolve_operator(name: str) -> Any:
    """The overload of a name."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def code_name(code: types.CodeType) -> str:
    """`module:qualname@line` of code that stands in a function of a module, or in one inside."""
    found = _code_in(_FILES, code) or _code_in(_modules_by_file(), code)
    if found is None:
        raise Unnameable(f"no module leads to the code of {code.co_qualname}")
    return found


def _code_in(modules: Mapping[str, Sequence[str]], code: types.CodeType) -> str | None:
    for name in modules.get(code.co_filename, ()):
        found = f"{name}:{code.co_qualname}@{code.co_firstlineno}"
        try:
            if resolve_code(found) is code:
                return found
        except AttributeError:
            continue
    return None


# Names of the modules of a file, as they were when it was last looked: a hint, for there are
# thousands of modules, and every answer is resolved again.
_FILES: dict[str, tuple[str, ...]] = {}


def _modules_by_file() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # asks no `__getattr__` of a module
        if isinstance(file, str):
            found[file] = (*found.get(file, ()), name)
    _FILES.update(found)
    return found


def resolve_code(name: str) -> types.CodeType:
    """The code of a name; `AttributeError` where there is none."""
    path, _, line = name.rpartition("@")
    outer, *inner = path.split(_INSIDE)
    found = _code_of(resolve(outer), outer.partition(":")[2])
    for step in inner:
        wanted = f"{found.co_qualname}{_INSIDE}{step}"
        inside = [one for one in found.co_consts if isinstance(one, types.CodeType)]
        named = [one for one in inside if one.co_qualname == wanted]
        several = len(named) > 1
        fitting = [one for one in named if not several or one.co_firstlineno == int(line)]
        if not fitting:
            raise AttributeError(name)
        found = fitting[0]
    return found


_INSIDE = ".<locals>."


def _code_of(value: Any, qualname: str) -> types.CodeType:
    """The code of a function, looked for under what decorators have put around it."""
    seen: set[int] = set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        code = getattr(value, "__code__", None)
        if isinstance(code, types.CodeType) and code.co_qualname == qualname:
            return code
        value = getattr(value, "__func__", None) or getattr(value, "__wrapped__", None)
    raise AttributeError(qualname)


def globals_name(namespace: dict[str, Any]) -> str | None:
    """The name of the module whose globals these are; None: they are no module's."""
    name = namespace.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return name if module is not None and vars(module) is namespace else None
