"""The rules of the house, as functions from scanned modules to the places that break them.

Enters: modules of `scan.py`. Leaves: lists of lines such as `windfall.ir.x:3: imports …`; empty
means that the rule holds. DESIGN.md and `docs/adr/` say why each stands.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from tests.architecture.scan import Module, Reference

# From the ground up. A module may import from lower floors and from its own place; two places on
# one floor (rooms joined by `|`) never import each other. On the ground floor single files may:
# the check for cycles holds them.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "locks", "options", "events", "torch_abi", "jit", "stance", "directives", "plugins"),
    ("ir",),
    ("ops",),
    ("frontend", "autograd", "codegen", "runtime", "cache"),
    ("pieces",),
    ("pipeline",),
    ("report", "twin"),
    ("api",),
    ("dynamo_plugin",),
    ("", "__main__"),  # the package itself: the public names
)
FLOOR_OF = {place: floor for floor, places in enumerate(FLOORS) for place in places}

REPLACED = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch._C._dynamo")

ENVIRONMENT = (
    "os.environ",
    "os.environb",
    "os.getenv",
    "os.getenvb",
    "os.putenv",
    "os.unsetenv",
    "posix.environ",
)

DOOR = "windfall.torch_abi"
BEHIND_THE_DOOR = tuple(
    path.stem
    for path in sorted((Path(__file__).resolve().parents[2] / "windfall/torch_abi").glob("*.py"))
    if path.stem != "__init__"
)

# Private attributes of tensors and tensor classes that show without torch's name before them.
TENSOR_PRIVATE = {
    "_base",
    "_cdata",
    "_is_view",
    "_make_subclass",
    "_make_wrapper_subclass",
    "_typed_storage",
    "_version",
}


def place(module: str) -> str:
    """`windfall.ir.loop` stands in `ir`; the package itself in ``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def import_direction(modules: Mapping[str, Module]) -> list[str]:
    broken = []
    for module in modules.values():
        here = place(module.name)
        if here not in FLOOR_OF:
            broken.append(f"{module.name}:1: {here!r} has no floor in tests/architecture/rules.py")
            continue
        for target, seen in _internal_imports(module, modules):
            there = place(target)
            if there == here:
                continue
            floor = FLOOR_OF.get(there, len(FLOORS))
            files = floor == FLOOR_OF[here] == 0
            if floor >= FLOOR_OF[here] and not files:
                broken.append(f"{module.name}:{seen.line}: imports {target}, which is not below it")
    return broken


def import_cycles(modules: Mapping[str, Module]) -> list[str]:
    """Each cycle once, as `a -> b -> a`. Imports inside functions count; those that only name types
    do not: they never run (though they too must go downward)."""
    edges = {
        name: sorted(
            {path for path, seen in _internal_imports(module, modules) if not seen.for_types}
            - {name}
        )
        for name, module in modules.items()
    }
    cycles: dict[frozenset[str], str] = {}
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            cycle = path[path.index(name) :]
            cycles.setdefault(frozenset(cycle), " -> ".join([*cycle, name]))
        elif name not in done:
            for target in edges[name]:
                visit(target, [*path, name])
            done.add(name)

    for name in edges:
        visit(name, [])
    return sorted(cycles.values())


def replaced_systems(module: Module) -> list[str]:
    return [
        f"{module.name}:{seen.line}: refers to {seen.path}"
        for seen in (*module.imports, *module.references)
        if any(_under(seen.path, system) for system in REPLACED)
    ]


def environment_readers(module: Module) -> list[str]:
    if module.name == "windfall.options":
        return []
    return [
        f"{module.name}:{seen.line}: {seen.path} (only windfall/options.py reads the environment)"
        for seen in _distinct(module)
        if any(_under(seen.path, name) for name in ENVIRONMENT)
    ]


def private_torch(module: Module) -> list[str]:
    if place(module.name) == "torch_abi":
        return []
    seen = [ref for ref in _distinct(module) if _is_private(ref.path)]
    private = {ref.line for ref in seen}
    seen += [
        ref for ref in module.attributes if ref.path in TENSOR_PRIVATE and ref.line not in private
    ]
    return [
        f"{module.name}:{ref.line}: {ref.path} (only windfall/torch_abi touches torch's private)"
        for ref in seen
    ]


def behind_the_door(module: Module) -> list[str]:
    """Imports of a module of `torch_abi`: its package is the door, and says what leaves it."""
    if place(module.name) == "torch_abi":
        return []
    return [
        f"{module.name}:{seen.line}: {seen.path} (windfall.torch_abi itself is the door)"
        for seen in _distinct(module)
        if any(_under(seen.path, f"{DOOR}.{part}") for part in BEHIND_THE_DOOR)
    ]


def llvm_users(module: Module) -> list[str]:
    if module.name == "windfall.jit":
        return []
    return [
        f"{module.name}:{seen.line}: {seen.path} (only windfall/jit.py knows llvmlite)"
        for seen in module.imports
        if _under(seen.path, "llvmlite")
    ]


def missing_docstring(module: Module) -> list[str]:
    return [] if ast.get_docstring(module.tree) else [f"{module.name}:1: has no docstring"]


def _is_private(path: str) -> bool:
    first, *rest = path.split(".")
    # Below torch.ops stand names of ATen ops (`aten._softmax`), which are data to us.
    if first != "torch" or rest[:1] == ["ops"]:
        return False
    return any(part.startswith("_") and not part.startswith("__") for part in rest)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + ".")


def _distinct(module: Module) -> list[Reference]:
    return list(dict.fromkeys((*module.imports, *module.references)))


def _internal_imports(module: Module, modules: Mapping[str, Module]) -> list[tuple[str, Reference]]:
    """The modules of the package that `module` imports: `from a.b import c` is `a.b.c` where that
    is a module, else `a.b`."""
    found = []
    for seen in module.imports:
        path = seen.path
        while path not in modules and "." in path:
            path = path.rpartition(".")[0]
        if path in modules:
            found.append((path, seen))
    return found
