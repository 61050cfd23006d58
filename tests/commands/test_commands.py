"""The command line: each verb, its JSON, its exit codes, and what the doctor finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from tests.diagnosis.plants import PLANTS
from windfall import jit, torch_abi
from windfall.cache import DiskStore, private_directory
from windfall.cache import store as stores
from windfall.commands import doctor, main

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = private_directory(tmp_path / "cache")
    monkeypatch.setenv("WINDFALL_CACHE_DIR", str(made))
    monkeypatch.setenv("WINDFALL_CACHE", "on")
    return made


def filled() -> None:
    for by in (2, 3):
        windfall.compile(lambda x, by=by: x.sin() * by)(X)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert main(["--json", *words]) == code
    return json.loads(capsys.readouterr().out)


# -------------------------------------------------------------------------------------------- cache


def test_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled()
    entries = said(capsys, "cache", "ls")["entries"]
    assert len(entries) == 2 and all(one["about"].startswith("graph ") for one in entries)
    shown = said(capsys, "cache", "show", entries[0]["key"][:10])
    assert "sin" in shown["kernels"][0]["text"]
    assert said(capsys, "cache", "verify") == {"damaged": []}
    assert said(capsys, "cache", "gc") == {"gone": 0}
    assert said(capsys, "cache", "gc", "0") == {"gone": 2}
    filled()
    assert said(capsys, "cache", "clear") == {"gone": 2}
    assert said(capsys, "cache", "ls")["entries"] == []


def test_a_damaged_entry_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled()
    store = DiskStore(folder, 1 << 20)
    with store._session() as connection:
        connection.execute("update entries set data = x'00'")
    assert len(said(capsys, "cache", "verify", code=1)["damaged"]) == 2
    assert len(said(capsys, "cache", "ls")["moved_aside"]) == 2
    assert main(["cache", "ls"]) == 0
    assert "not what was written" in capsys.readouterr().out


def test_one_file(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exported, imported elsewhere, found there."""
    filled()
    file = tmp_path / "file"
    assert said(capsys, "cache", "export", str(file)) == {"entries": 2}
    monkeypatch.setenv("WINDFALL_CACHE_DIR", str(private_directory(tmp_path / "other")))
    assert main(["cache", "import", str(file)]) == 2
    assert "--trust" in capsys.readouterr().err
    answer = said(capsys, "cache", "import", str(file), "--trust")
    assert answer == {"entries": 2, "fits": True}
    function = windfall.compile(lambda x, by=2: x.sin() * by)
    function(X)
    # Another line of this file than `filled`'s, so it is stored anew; that one is found.
    assert windfall.explanation(function).cached == {"stored": 1}
    assert "2 entries" in windfall.load_cache(file)
    assert windfall.save_cache(tmp_path / "again").startswith("3 entries")


def flipped(data: bytes) -> bytes:
    return data[:-50] + bytes([data[-50] ^ 1]) + data[-49:]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data + b"x", flipped, lambda data: b"", lambda d: b"PK"],
)
def test_a_damaged_file_is_refused(
    damage: Callable[[bytes], bytes], folder: Path, tmp_path: Path
) -> None:
    filled()
    file = tmp_path / "file"
    windfall.save_cache(file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(windfall.UserError, match=r"file.* (is damaged|is not a file)"):
        windfall.load_cache(file)
    with pytest.raises(windfall.UserError, match="No such file"):
        windfall.load_cache(tmp_path / "missing")


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["cache", "show", "zz"], "beginning of 0 keys"),
        (["cache", "gc", "much"], "number of bytes"),
        (["explain", "torch"], "MODULE:FUNCTION"),
        (["explain", "torch:no_such"], "no_such"),
        (["explain", "torch:relu", "1 +"], "SyntaxError"),
        (["run", "no_such_script.py"], "no_such_script.py is no script"),
        (["run"], "which script?"),
    ],
)
def test_wrong_words(
    words: list[str], about: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert about in told.err and told.out == "" and told.err.count("\n") == 1


def test_cache_shows_an_entry(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its source and names; nothing of it is linked, so it shows in any process."""

    def added(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1

    windfall.compile(added, options={"verify": False, "cache_entries": "always"})(torch.ones(3))
    rows = said(capsys, "cache", "ls")["entries"]
    (key,) = (row["key"] for row in rows if row["about"].startswith("entry "))
    shown = said(capsys, "cache", "show", key)
    assert re.match(r"def \w*added\(x\):", shown["source"]) and len(shown["names"]) > 1


def test_cache_shows_what_was_asked_for_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    windfall.compile(lambda x: x.sin() + 1, options={"verify": False})(torch.ones(3))
    rows = said(capsys, "cache", "ls")["entries"]
    (key,) = (row["key"] for row in rows if row["about"].startswith("asked for: entry "))
    assert said(capsys, "cache", "show", key)["about"].startswith("asked for: ")
    assert said(capsys, "cache", "verify") == {"damaged": []}


def test_options_may_stand_before_the_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exported"
    said(capsys, "cache", "export", str(file))
    assert "entries" in said(capsys, "cache", "import", "--trust", str(file))


@pytest.mark.parametrize(
    "words",
    [[], ["no-such-verb"], ["cache", "no-such-action"], ["cache", "export"], ["cache", "show"]],
)
def test_words_that_are_no_verb(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"windfall {windfall.__version__}\n"


# ------------------------------------------------------------------------------------ explain, run


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "explain", "torch.nn.functional:softsign", "torch.randn(2, 3)")
    assert told["graph_count"] == 1 and told["break_count"] == 0


SCRIPT = """
import sys
import torch
@torch.compile(fullgraph=True)
def decorated(x):
    return x.sin() + 1
def plain(x):
    return x.cos() + 1
model = torch.nn.Linear(4, 2)
model.compile(backend="inductor")
x = torch.ones(3, 4)
assert torch.allclose(decorated(x), x.sin() + 1)
assert torch.allclose(torch.compile(plain, backend="inductor")(x), plain(x))
model(x).sum().backward()
assert type(decorated).__module__.startswith("windfall"), type(decorated)
assert __name__ == "__main__" and sys.argv[1:] == ["--flag", "3"], sys.argv
assert "torch._dynamo" not in sys.modules or loaded_before
sys.exit(7)
"""


def test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"loaded_before = {'torch._dynamo' in sys.modules}\n" + SCRIPT)
    before, argv, path = torch.compile, sys.argv, list(sys.path)
    told = said(capsys, "run", str(script), "--flag", "3", code=7)
    assert told == {"compiled": 3, "exit": 7}
    assert torch.compile is before and sys.argv is argv and sys.path == path


def test_a_script_that_raises_shows_its_own_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('mine')")
    with pytest.raises(ValueError, match="mine"):
        main(["run", str(script)])
    script.write_text("import sys; sys.exit('words')")
    assert main(["run", str(script)]) == 1


# ----------------------------------------------------------------------------------------- doctor


def test_a_healthy_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WINDFALL_VERIFY")
    found = said(capsys, "doctor")
    assert not any(one["fails"] for one in found.values())
    assert found["a program"]["what"].startswith("right, in ")
    assert found["a program"]["advice"] == ""
    assert "0 entries" in found["cache"]["what"]


def _damaged(folder: Path) -> None:
    filled()
    store = DiskStore(folder, 1 << 20)
    with store._session() as connection:
        connection.execute("update entries set data = x'00'")
    store.verify()


# What is wrong with a machine, and what the doctor says of it.
FAULTS: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], Any], str, str]] = {
    "torch": (lambda f, m: m.setattr(torch, "__version__", "2.99"), "pytorch", "install"),
    "system": (
        lambda f, m: m.setattr(doctor.platform, "machine", lambda: "vax"), "system", "never",
    ),
    "vectors": (lambda f, m: m.setattr(jit, "vector_bits", lambda: 128), "processor", "slower"),
    "facts": (
        lambda f, m: m.setattr(torch_abi, "missing", lambda: ["a"]),
        "shortcuts",
        "slower path; not found: a",
    ),
    "threads": (
        lambda f, m: m.setattr(os, "sched_getaffinity", lambda pid: {0}),
        "threads",
        "OMP_NUM_THREADS=1",
    ),
    "disabled": (lambda f, m: m.setenv("WINDFALL_DISABLE", "1"), "options", "unset"),
    "no native": (lambda f, m: m.setenv("WINDFALL_NATIVE", "0"), "options", "unset"),
    "no cache": (lambda f, m: m.setenv("WINDFALL_CACHE", "off"), "cache", "for itself"),
    "open folder": (lambda f, m: f.chmod(0o777), "cache", "mend it"),
    "a folder that is a file": (
        lambda f, m: m.setenv("WINDFALL_CACHE_DIR", __file__), "cache", "mend it",
    ),
    "damage": (lambda f, m: _damaged(f), "cache", "is the disk well"),
    "no database": (lambda f, m: (f / stores.NAME).mkdir(), "cache", "mend it"),
    "full disk": (lambda f, m: m.setattr(doctor, "FEW_BYTES", 1 << 70), "cache", "almost full"),
    "no LLVM": (
        lambda f, m: m.setattr(jit, "load", lambda text: 1 / 0), "llvm", "report",
    ),
    "wrong answers": (
        lambda f, m: m.setattr(doctor.api, "compile", lambda f, **_: lambda x: f(x) + 1),
        "a program",
        "report",
    ),
}  # fmt: skip


@pytest.mark.hides_errors
@pytest.mark.parametrize("fault", FAULTS)
def test_the_doctor_finds(
    fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant, where, advice = FAULTS[fault]
    plant(folder, monkeypatch)
    found = doctor.examined()[where]
    assert advice in found.advice
    if found.fails:
        assert main(["doctor"]) == 1
        assert f"BAD   {where}" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------- report


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, trace = tmp_path / "out.html", tmp_path / "trace.json"
    words = ["report", "-o", str(out), "--timeline", str(trace)]
    told = said(capsys, *words, "torch.nn.functional:gelu", "torch.ones(2, 3)")
    assert told == {"report": str(out), "timeline": str(trace)}
    page = out.read_text()
    assert "LLVM" in page and "gelu" in page
    assert "run" in {one["name"] for one in json.loads(trace.read_text())["traceEvents"]}
    missing = str(tmp_path / "no" / "out.html")
    assert main(["report", "-o", missing, "torch:sin", "torch.ones(2)"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_script_is_reported(tmp_path: Path) -> None:
    """When its process ends: so in one of its own."""
    script, out = tmp_path / "script.py", tmp_path / "out.html"
    script.write_text(
        "import torch\n"
        "f = torch.compile(lambda x: x.sin() * 2, options={'trace.enabled': True})\n"
        "print(f(torch.zeros(3)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "windfall", "run", "--report", str(out), str(script)],
        capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tensor([0., 0., 0.])" in done.stdout and str(out) in done.stderr
    assert "LLVM" in out.read_text()


# ------------------------------------------------------------------------------------------- bisect


def test_bisect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shown.py"
    words = ["bisect", "-o", str(out), "torch:sin", "torch.ones(2, 3)"]
    assert said(capsys, *words)["found"] is False and not out.exists()
    planted = next(one for one in PLANTS if one.part == "aten.sin.default")
    with planted.entered():
        told = said(capsys, *words, code=1)
    assert (told["stage"], told["part"]) == ("lowering", "aten.sin.default")
    assert told["file"] == str(out) and "windfall.compile" in out.read_text()
