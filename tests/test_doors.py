"""Packages whose names are loaded when they are first used: `windfall/doors.py`."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOORS = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "windfall").rglob("__init__.py")
    if "windfall.doors" in path.read_text()
)


def test_the_doors_are_found() -> None:
    assert {"windfall", "windfall.autograd", "windfall.engine", "windfall.runtime"} <= set(DOORS)


@pytest.mark.parametrize("package", DOORS)
def test_tables_say_what_type_checkers_see(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    (seen,) = [
        node for node in tree.body if isinstance(node, ast.If) and "TYPE" in ast.unparse(node.test)
    ]
    for_types = {
        alias.name: node.module
        for node in seen.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert for_types == {name: f"{package}.{own}" for name, own in module._MODULES.items()}


@pytest.mark.parametrize("package", DOORS)
def test_no_name_is_that_of_a_module(package: str) -> None:
    """Whoever loads a module sets it as an attribute of its package."""
    module = importlib.import_module(package)
    names = {one.name for one in pkgutil.iter_modules(module.__path__)}
    assert not names & {*module._MODULES, *getattr(module, "__all__", ())}


@pytest.mark.parametrize("package", DOORS)
def test_every_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    for name in module._MODULES:
        assert name in dir(module)
        assert getattr(module, name) is vars(module)[name], "from now on a plain attribute"
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'not_there'"):
        _ = module.not_there


def loaded(program: str) -> set[str]:
    """The modules of windfall that a program of its own process loads."""
    text = f"import sys, json, torch\n{program}\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {name for name in json.loads(ran.stdout.splitlines()[-1]) if name.startswith("windfall")}


LEFT = ("windfall.engine.", "windfall.runtime.trees.", "windfall.subgraphs.", "windfall.commands")
TRAINING = {"windfall.autograd.compiled_graph", "windfall.autograd.higher"}


def test_the_import_loads_no_room() -> None:
    ground = {f"windfall.{name}" for name in ("collector", "doors", "version")}
    assert loaded("import windfall") == {"windfall", *ground}


def test_a_question_loads_no_room() -> None:
    seen = loaded("import windfall; assert not windfall.is_compiling()")
    assert not {name for name in seen if name.split(".")[1:2] in (["frontend"], ["ops"], ["ir"])}


FIRST = "import windfall; f = windfall.compile(lambda x: x + 1); "


def test_what_an_inference_loads() -> None:
    seen = loaded(FIRST + "f(torch.ones(3))")
    unneeded = {name for name in seen if name.startswith(LEFT) or name in TRAINING}
    assert unneeded <= {"windfall.runtime.trees.place", "windfall.subgraphs.cuts"}


def test_what_a_training_call_loads() -> None:
    seen = loaded(FIRST + "f(torch.ones(3, requires_grad=True)).sum().backward()")
    unneeded = {name for name in seen if name.startswith(LEFT)}
    assert unneeded <= {"windfall.runtime.trees.place", "windfall.subgraphs.cuts"}
    assert seen >= TRAINING


def test_a_capture_finds_plain_attributes() -> None:
    """A compiled function that is the first to name something of the package."""
    program = (
        "import windfall\n"
        "def f(x):\n    windfall.graph_break()\n    return x + windfall.is_compiling()\n"
        "told = windfall.explain(f)(torch.ones(2))\n"
        "assert len(told.breaks) == 1, told\n"
    )
    assert "windfall.frontend.capture_run" in loaded(program)
