"""The wheel: pure Python, everything in it, and it works where nothing else of this clone is."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import windfall

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, torch, windfall
assert windfall.__file__.startswith(sys.prefix), windfall.__file__
f = windfall.compile(lambda x: torch.softmax(x, -1) * 2, verify=1)
x = torch.randn(3, 4, requires_grad=True)
f(x).sum().backward()
told = windfall.explanation(f)
assert not told.fallbacks and told.kernels(), told
windfall.report("out.html", f)
print(windfall.__version__)
"""


def wheel(folder: Path) -> Path:
    """Built from a copy of the sources, so that nothing is left in the clone."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in names:
        if name.startswith("windfall/") or name in ("pyproject.toml", "README.md", "LICENSE"):
            place = folder / "source" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), "./source"],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.conformance
def test_the_wheel_works_in_an_environment_of_its_own(tmp_path: Path) -> None:
    made = wheel(tmp_path)
    assert made.name == f"windfall-{windfall.__version__}-py3-none-any.whl"
    inside = zipfile.ZipFile(made).namelist()
    assert "windfall/py.typed" in inside and "windfall/reporting/page.py" in inside
    assert not [one for one in inside if one.startswith(("tests", "benchmarks", "examples"))]
    metadata = next(one for one in inside if one.endswith("METADATA"))
    text = zipfile.ZipFile(made).read(metadata).decode()
    assert "Provides-Extra: rich" in text and "Provides-Extra: docs" in text
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    # Torch and llvmlite are large: those that are here serve, as a folder that is looked at last.
    shared = next(home.glob("lib/python*/site-packages")) / "shared.pth"
    shared.write_text(str(Path(torch.__file__).parents[1]))
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "--no-index", str(made)],
                   check=True, capture_output=True, timeout=300)  # fmt: skip
    clean = {"PATH": "/usr/bin:/bin", "WINDFALL_CACHE": "off"}
    done = subprocess.run(
        [python, "-I", "-c", PROGRAM],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env=clean,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == windfall.__version__ and (tmp_path / "out.html").exists()
    verb = subprocess.run(
        [str(home / "bin" / "windfall"), "explain", "torch:sin", "torch.ones(2)"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env=clean,
    )  # fmt: skip
    assert verb.returncode == 0 and "1 graph" in verb.stdout, verb.stderr[-2000:]
