"""The rules of the house, as functions from scanned modules to the places that break them.

Enters: modules of `scan.py`. Leaves: lists of lines such as `windfall.ir.x:3: imports …`; empty
means that the rule holds. DESIGN.md and `docs/adr/` say why each stands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.architecture.scan import Module, Reference

# From the ground up. A module may import from lower floors and from its own place; two places on
# one floor (rooms joined by `|`) never import each other. On the ground floor single files may:
# the check for cycles holds them.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "collector",
        "dataclass",
        "doors",
        "errors",
        "identity_map",
        "locks",
        "options",
        "events",
        "targets",
        "torch_abi",
        "jit",
        "llvm",
        "stance",
        "directives",
        "plugins",
        "variants",
        "version",
    ),
    ("ir",),
    ("ops",),
    ("frontend", "autograd", "codegen", "runtime", "cache", "engine"),
    ("subgraphs", "reuse", "devices"),
    ("backends", "staging", "compiled"),
    ("on_demand", "caching"),
    ("link", "programs"),
    ("whole_entries",),
    ("pipeline",),
    ("around", "reporting", "twin"),
    ("backward", "diagnosis"),
    ("api", "saved"),
    ("dynamo_plugin", "commands"),
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


def import_knots(modules: Mapping[str, Module]) -> list[list[str]]:
    """Modules that all lead to each other, the largest group first; here imports that only name
    types count too: whoever reads one of the group has to know all of it."""
    edges = {
        name: {path for path, _ in _internal_imports(module, modules)}
        for name, module in modules.items()
    }
    reached = {name: _reachable(edges, name) for name in edges}
    knots = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in edges
    }
    return sorted((sorted(one) for one in knots if len(one) > 1), key=len, reverse=True)


def _reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        more = edges[waiting.pop()] - found
        found |= more
        waiting.extend(more)
    return found


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


# What only control flow has, in LLVM text: a phi, a jump.
_BLOCKS = re.compile(r"(^|= )phi |\blabel %")


def blocks_by_hand(module: Module) -> list[str]:
    """Text of LLVM's control flow outside of the writer, which alone numbers blocks and phis."""
    if place(module.name) == "llvm":
        return []
    return [
        f"{module.name}:{node.lineno}: {node.value.strip()!r} (only windfall/llvm writes blocks)"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _BLOCKS.search(node.value)
    ]


def around_the_look(modules: Mapping[str, Module]) -> list[str]:
    """Ways past `unseen.look` in the front end: `type(value)` compared with a kind of value is not
    told what an unseen one stands for; the real object, the making of kinds (`wrap.wrap`) and `see`
    are for the door (`values/outside.py`) alone."""
    kinds = _kinds_of_value(modules)
    broken = []
    for module in modules.values():
        if place(module.name) != "frontend" or module.name.endswith("values.unseen"):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare) and _is_bare_type(node.left):
                named = {one.id for part in node.comparators for one in _names(part)}
                if named & kinds:
                    told = ", ".join(sorted(named & kinds))
                    broken.append(f"{module.name}:{node.lineno}: type(...) compared with {told}")
        broken += [
            f"{module.name}:{seen.line}: {seen.path} is for the door alone"
            for seen in module.imports
            if seen.path in _DOOR_ALONE and module.name not in _DOOR_ALONE[seen.path]
        ]
        if not module.name.endswith("values.outside"):
            broken += [
                f"{module.name}:{seen.line}: .see(...) is for the door alone"
                for seen in module.attributes
                if seen.path == "see"
            ]
    return broken


_VALUES = "windfall.frontend.values"
_DOOR_ALONE = {
    f"{_VALUES}.unseen.Unseen": frozenset[str](),
    f"{_VALUES}.unseen.unseen": frozenset({f"{_VALUES}.outside"}),
    f"{_VALUES}.wrap.wrap": frozenset({f"{_VALUES}.outside"}),
}


def _kinds_of_value(modules: Mapping[str, Module]) -> set[str]:
    """The names of all classes that derive from `Value`, and of tuples of such."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for module in modules.values()
        if place(module.name) == "frontend"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    kinds = {"Value"}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return kinds


def _is_bare_type(node: ast.expr) -> bool:
    """`type(x)` of a name or attribute; `type(look(x))` has looked."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    asked = node.func.id == "type" and len(node.args) == 1
    return asked and not (
        isinstance(node.args[0], ast.Call)
        and isinstance(node.args[0].func, ast.Name)
        and node.args[0].func.id == "look"
    )


def _names(node: ast.expr) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def kept_exceptions(module: Module) -> list[str]:
    """A caught exception that gets a second name holds, by its traceback, the frame that has that
    name, and so whatever the program has called us with: such a name is deleted."""
    broken = []
    for function in ast.walk(module.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        gone = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Delete)
            for name in node.targets
            if isinstance(name, ast.Name)
        }
        for handler in ast.walk(function):
            if isinstance(handler, ast.ExceptHandler) and handler.name is not None:
                for name, line in _second_names(handler, handler.name):
                    if name not in gone and (module.name, name) not in EMPTIED:
                        broken.append(f"{module.name}:{line} keeps an exception as {name}")
    return broken


# `_again` empties them.
EMPTIED = {("windfall.frontend.compiled_object", "failed")}


def _second_names(handler: ast.ExceptHandler, error: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(handler):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                parts = value.values if isinstance(value, ast.BoolOp) else [value]
                kept = any(isinstance(part, ast.Name) and part.id == error for part in parts)
                if kept and isinstance(one, ast.Name):
                    yield one.id, node.lineno


# Tables by address that hold what they are about themselves, each in its way.
HELD = {
    ("windfall.autograd.directions", "constants"),  # of the graph that is read
    ("windfall.autograd.loops", "constants"),
    ("windfall.codegen.emit", "parts"),  # parts of the schedule that is emitted
    ("windfall.codegen.lower", "parts"),
    ("windfall.diagnosis.state_copies", "_functions"),  # in `_kept`
    ("windfall.diagnosis.state_copies", "_memo"),  # that of `copy.deepcopy`
    ("windfall.engine.pass_recording", "_known"),  # rows hold their tensor
    ("windfall.frontend.guards", "_keys"),  # by classes; their objects are in the rows
    ("windfall.frontend.recipe", "_asked"),  # while the value is built
    ("windfall.frontend.recipe", "_building"),
    ("windfall.frontend.recipe", "_known"),  # in the namespace
    ("windfall.frontend.recompile_policy", "_first"),  # of entries that are tried
    ("windfall.frontend.values.attention", "_known"),  # rows hold their tensor
    ("windfall.frontend.values.factory", "_globals_dicts"),  # the value holds its dict
    ("windfall.frontend.values.outside", "_memo"),  # in `_alive`
    ("windfall.frontend.values.questions", "values"),  # no table: the number that `id` answers
    ("windfall.identity_map", "_rows"),
    ("windfall.ir.codec", "_known"),  # in `_held`
    ("windfall.ir.source", "_by_identity"),  # in `_held`
    ("windfall.runtime.guard_text", "_names"),  # in the namespace
}


def addresses_as_keys(module: Module) -> list[str]:
    """An attribute is a table by `id(…)` of objects that may go before it does: the next object at
    that address is taken for the one that is gone. `IdentityMap` holds its keys."""
    broken = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript):
            table, keys = node.value, [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            table, keys = node.func.value, node.args[:1]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            table, keys = node.comparators[0], [node.left]
        else:
            continue
        if not isinstance(table, ast.Attribute) or (module.name, table.attr) in HELD:
            continue
        if any(map(_is_address, keys)):
            broken.append(f"{module.name}:{node.lineno}: {table.attr} is a table by address")
    return broken


def _is_address(key: ast.expr) -> bool:
    return isinstance(key, ast.Call) and isinstance(key.func, ast.Name) and key.func.id == "id"


# Words of two fields, which no other word would be clearer than.
SHARED_NAMES = {
    "Value",  # LLVM's, and what a Python program computes
}


def names_of_several(modules: Mapping[str, Module]) -> list[str]:
    """Classes of one name in different modules: whoever searches finds the wrong one."""
    homes: dict[str, list[str]] = {}
    for name, module in sorted(modules.items()):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    return [
        f"{name} is a class of {' and of '.join(found)}"
        for name, found in homes.items()
        if len(found) > 1 and name not in SHARED_NAMES
    ]


# Files of one name in several folders, and the one idea that all of them are about. Handlers of
# opcodes (`opcodes/`) and their native forms (`steps/`) go in pairs; so do kinds of value
# (`values/`) and their rules in Python (`polyfills/`).
SHARED_FILES = {
    "attention": "attention: the op, its kinds of value, its rules in Python",
    "base": "what the kinds of its folder derive from",
    "cache": "the cache on disk, and the verb that shows it",
    "calls": "calls of Python: callables, opcodes, native forms",
    "checkpointing": "`torch.utils.checkpoint`",
    "compiled": "compiled objects, from outside and inside of compiled code",
    "control": "jumps and loops of bytecode",
    "control_flow": "operations with bodies",
    "displays": "instructions that make and unpack containers",
    "distributions": "`torch.distributions`",
    "entries": "compiled entries, and what is told of them",
    "exceptions": "instructions that raise and catch",
    "explain": "`windfall.explain`, and its verb",
    "foreach": "`torch._foreach_*`",
    "guards": "guards, as they are collected and as they are checked",
    "objects": "objects of Python: as values, and what is checked of them",
    "operators": "operators and items of bytecode",
    "optimizers": "`torch.optim`",
    "parallel": "`DistributedDataParallel`",
    "passes": "passes: what a table is, and the tables",
    "recurrent": "recurrent layers",
    "stateless": "`torch.func.functional_call`",
    "symbolic": "numbers that vary: as values of the program, as torch knows them",
    "tensors": "tensors in memory, and what is checked of them",
    "transforms": "transforms of `torch.func`",
    "variant": "one compilation of the same thing for other keys (see the glossary)",
}


def files_of_several(modules: Mapping[str, Module]) -> list[str]:
    """Files of one name for different ideas, and rows of `SHARED_FILES` that nobody needs."""
    homes: dict[str, list[str]] = {}
    packages = {name.rpartition(".")[0] for name in modules}
    for name in sorted(modules):
        if name not in packages:
            homes.setdefault(name.rpartition(".")[2], []).append(name)
    several = {name: found for name, found in homes.items() if len(found) > 1}
    return [
        *(
            f"{name}.py stands for {' and '.join(found)}: one idea?"
            for name, found in several.items()
            if name not in SHARED_FILES
        ),
        *(
            f"{name}.py stands once: no row of SHARED_FILES"
            for name in SHARED_FILES.keys() - several.keys()
        ),
    ]


def missing_docstring(module: Module) -> list[str]:
    return [] if ast.get_docstring(module.tree) else [f"{module.name}:1: has no docstring"]


LONG = 600  # lines


def long_without_reason(module: Module) -> list[str]:
    """A file that long is two things, or its header says why it is one: `One file: …`."""
    lines = module.tree.body[-1].end_lineno if module.tree.body else None
    if (lines or 0) <= LONG or "One file: " in (ast.get_docstring(module.tree) or ""):
        return []
    return [f"{module.name}:1: has {lines} lines, and its header does not say why it is one file"]


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
