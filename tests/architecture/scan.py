"""Source text in, dotted names out: what a module imports and what it refers to.

Enters: a module's name and text. Leaves: a `Module` whose `imports` and `references` are dotted
paths with their lines; local names are followed back to the import that bound them, wherever in the
file that import stands. Invariant: nothing is executed.

    >>> scan("windfall.x", "import os as o\no.environ").references
    (Reference(path='os.environ', line=2, for_types=False),)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Reference:
    path: str
    line: int
    for_types: bool = False  # an import under `if TYPE_CHECKING:`


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    tree: ast.Module
    imports: tuple[Reference, ...]
    references: tuple[Reference, ...]  # names and attribute chains that begin with an import
    attributes: tuple[Reference, ...]  # every attribute read or written, by its last name


def scan(name: str, text: str, is_package: bool = False) -> Module:
    tree = ast.parse(text)
    package = name if is_package else name.rpartition(".")[0]
    imports: list[Reference] = []
    bound: dict[str, str] = {}
    for_types = _nodes_for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports.append(Reference(alias.name, node.lineno, id(node) in for_types))
                root = alias.name.partition(".")[0]
                bound[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(package, node)
            for alias in node.names:
                path = f"{base}.{alias.name}"
                imports.append(Reference(path, node.lineno, id(node) in for_types))
                bound[alias.asname or alias.name] = path
    imports.extend(_imports_by_string(tree, bound))
    return Module(
        name, tree, tuple(imports), tuple(_references(tree, bound)), tuple(_attributes(tree))
    )


def scan_tree(root: Path, package: str) -> dict[str, Module]:
    """Every module of `package` under the folder `root`."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = scan(name, path.read_text(encoding="utf-8"), is_package)
    return found


def _nodes_for_types(tree: ast.Module) -> set[int]:
    """What stands under `if TYPE_CHECKING:` and so never runs."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }


def _absolute(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
    """The full path of `a.b.c` where `a` was imported; `getattr(a, "b")` counts as `a.b`."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, bound)
        return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Call):
        name = _constant_attribute(node)
        base = _dotted(node.args[0], bound) if name else None
        return base and f"{base}.{name}"
    return None


_BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}


def _constant_attribute(node: ast.Call) -> str | None:
    """The name in `getattr(x, "name")` and its relatives."""
    known = isinstance(node.func, ast.Name) and node.func.id in _BY_NAME and len(node.args) > 1
    if known and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str):
        return node.args[1].value
    return None


def _references(tree: ast.Module, bound: dict[str, str]) -> list[Reference]:
    found = []
    inner: set[int] = set()  # parts of a longer chain that is reported already
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call) or id(node) in inner:
            continue
        path = _dotted(node, bound)
        if path is None:
            continue
        found.append(Reference(path, node.lineno))
        inner.update(id(part) for part in ast.walk(node))
    return found


def _attributes(tree: ast.Module) -> list[Reference]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append(Reference(node.attr, node.lineno))
        elif isinstance(node, ast.Call) and (name := _constant_attribute(node)):
            found.append(Reference(name, node.lineno))
    return found


def _imports_by_string(tree: ast.Module, bound: dict[str, str]) -> list[Reference]:
    """`importlib.import_module("a.b")`, `__import__("a.b")`; of `f"a.b.{name}"`, the package."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        is_builtin = isinstance(node.func, ast.Name) and node.func.id == "__import__"
        if not is_builtin and _dotted(node.func, bound) != "importlib.import_module":
            continue
        argument = node.args[0]
        is_packaged = isinstance(argument, ast.JoinedStr)
        first = argument.values[0] if is_packaged else argument
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            path = first.value.rpartition(".")[0] if is_packaged else first.value
            found.append(Reference(path, node.lineno))
    return found
