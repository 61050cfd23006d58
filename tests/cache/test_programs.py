"""What one process has compiled, another one finds; and whatever shapes code is a miss."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import windfall
from windfall import autograd, jit
from windfall.cache import Unkeyed, key, key_of
from windfall.cache import store as stores
from windfall.ir.passes import Row
from windfall.options import Options, TreeOptions

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def compiled(program: Callable[..., Any], folder: Path, **options: Any) -> Any:
    chosen = {"cache": "on", "cache_dir": str(folder), **options}
    return windfall.compile(program, options=chosen)


def happened(function: Any) -> list[str]:
    """What the cache did for a compiled object, in order."""
    events = windfall.explanation(function).events
    return [event.facts["how"] for event in events if event.kind == "cache"]


def stages(function: Any) -> set[str]:
    return {str(one.kind) for one in windfall.explanation(function).events if one.kind.is_stage}


def program(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * 2 + 1).sum(-1)


def trained(model: torch.nn.Module, call: Any, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss = call(x).square().sum()
    loss.backward()
    return [loss.detach(), *(one.grad.clone() for one in model.parameters())]  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------ found again


def test_the_second_compilation_runs_no_stage_of_code_generation(folder: Path) -> None:
    first, second = compiled(program, folder), compiled(program, folder)
    assert torch.equal(first(X), second(X))
    torch.testing.assert_close(second(X), program(X))
    assert happened(first) == ["stored"] and happened(second) == ["found"]
    assert stages(second) == {"capture", "rewrite", "build", "bind", "enter"}  # built: told of
    assert windfall.explanation(second).cached == {"found": 1}
    kernels = [[note.text for note in windfall.explanation(f).kernels()] for f in (first, second)]
    assert kernels[0] == kernels[1] != []


def test_training_finds_both_halves(folder: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    first, second = compiled(model, folder), compiled(model, folder)
    ours = [trained(model, call, X) for call in (first, second)]
    for here, there in zip(*ours, strict=True):
        assert torch.equal(here, there)
    torch.testing.assert_close(ours[1], trained(model, model, X))
    assert happened(first) == ["stored", "stored"] and happened(second) == ["found", "found"]
    assert "emit" not in stages(second)


def test_sizes_that_vary_are_found(folder: Path) -> None:
    functions = [compiled(program, folder) for _ in range(2)]
    for function in functions:
        for rows in (3, 5, 6, 9):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(function(x), program(x))
    assert happened(functions[1]) == ["found", "found"]  # one size, then any


def test_second_derivatives_are_right_from_the_cache(folder: Path) -> None:
    def gradients(f: Any) -> tuple[torch.Tensor, ...]:
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), x)

    functions = [compiled(program, folder) for _ in range(2)]
    for function in functions:
        torch.testing.assert_close(gradients(function), gradients(program))
    assert set(happened(functions[1])) == {"found"}


CHILD = """
import json, sys, torch, windfall
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.linspace(-2, 2, 12).reshape(3, 4)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
written = torch.zeros(4)
def writes(x, into):
    into.add_(x.sum(0))
    return into * 2
def body(x):
    return F.gelu(x * 2 + 1).sum(-1)
told = []
for target, args in ((body, (x,)), (model, (x,)), (writes, (x, written))):
    call = windfall.compile(target)
    torch.manual_seed(1)
    result = call(*args)
    answer = [result]
    if result.requires_grad:
        result.square().sum().backward()
        answer += [one.grad for one in model.parameters()]
    events = windfall.explanation(call).events
    how = [event.facts["how"] for event in events if event.kind == "cache"]
    told.append([how, [one.detach().double().flatten().tolist() for one in [*answer, written]]])
told.append(sorted({"torch._dynamo", "torch._inductor", "sympy"} & sys.modules.keys()))
print(json.dumps(told))
"""


def child(folder: Path, **variables: str) -> Any:
    environment = {**os.environ, "WINDFALL_CACHE": "on", "WINDFALL_CACHE_DIR": str(folder)}
    environment |= {"PYTHONPATH": str(Path(windfall.__file__).parents[1]), **variables}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_another_process_finds_it(folder: Path) -> None:
    (cold, said), (warm, more) = child(folder), child(folder)
    assert said == more == ""
    assert [how for how, _ in cold[:-1]] == [["stored"], ["stored", "stored"], ["stored"]]
    assert [how for how, _ in warm[:-1]] == [["found"], ["found", "found"], ["found"]]
    assert [answer for _, answer in cold[:-1]] == [answer for _, answer in warm[:-1]]  # to the bit
    assert warm[-1] == []


# ------------------------------------------------------------------------ what shapes code misses


@contextlib.contextmanager
def set_to(write: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    write(value)
    try:
        yield
    finally:
        write(before)


def patched(owner: Any, name: str, value: Any) -> AbstractContextManager[None]:
    return set_to(lambda one: setattr(owner, name, one), value, getattr(owner, name))


WORLDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "determinism": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "precision": lambda: set_to(torch.set_float32_matmul_precision, "medium", "highest"),
    "precision of one library": lambda: patched(
        torch.backends.mkldnn.matmul, "fp32_precision", "bf16"
    ),
    # In the way that stays open once torch.testing has shut the other one.
    "precision of all": lambda: torch.backends.flags(fp32_precision="tf32"),
    "oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "flash attention": lambda: set_to(torch.backends.cuda.enable_flash_sdp, False, True),
    "uninitialised memory": lambda: patched(
        torch.utils.deterministic, "fill_uninitialized_memory", False
    ),
    "vectors": lambda: patched(jit, "vector_bits", lambda: 128),
    "text of windfall": lambda: patched(key, "surroundings", lambda: "another"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("world", WORLDS)
def test_another_world_misses(world: str, folder: Path) -> None:
    compiled(program, folder)(X)
    with WORLDS[world]():
        other = compiled(program, folder)
        torch.testing.assert_close(other(X), program(X), check_dtype=False)
    assert happened(other) == ["stored"]
    again = compiled(program, folder)
    again(X)
    assert happened(again) == ["found"]


PROGRAMS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "a constant": (lambda x: F.gelu(x * 3 + 1).sum(-1), X),
    "the type of a constant": (lambda x: F.gelu(x * 2.0 + 1).sum(-1), X),
    "an op": (lambda x: F.relu(x * 2 + 1).sum(-1), X),
    "an option of an op": (lambda x: F.gelu(x * 2 + 1, approximate="tanh").sum(-1), X),
    "sizes": (program, X[:2]),
    "strides": (program, X.t().contiguous().t()),
    "dtype": (program, X.double()),
    "gradients": (program, X.clone().requires_grad_()),
}


def test_our_own_text_is_all_read(tmp_path: Path) -> None:
    """A byte, a name, a folder, a file more: each is another text; what Python writes is none."""
    (tmp_path / "room" / "__pycache__").mkdir(parents=True)
    one, two = tmp_path / "one.py", tmp_path / "room" / "two.py"
    one.write_text("x = 1\n")
    two.write_text("y = 2\n")
    told = [key._source_digest(str(tmp_path))]

    def again() -> None:
        told.append(key._source_digest(str(tmp_path)))

    (tmp_path / "room" / "__pycache__" / "two.py").write_text("left over")
    (tmp_path / "notes.txt").write_text("none")
    again()
    assert told.pop() == told[0]
    one.write_text("x = 3\n")
    again()
    one.rename(tmp_path / "other.py")
    again()
    two.rename(tmp_path / "two.py")
    again()
    (tmp_path / "empty.py").write_text("")
    again()
    assert len(set(told)) == len(told) == 5


@pytest.mark.parametrize("other", PROGRAMS)
def test_another_program_misses(other: str, folder: Path) -> None:
    named = {"program": lambda x: F.gelu(x * 2 + 1).sum(-1)}
    compiled(named["program"], folder)(X)
    changed, x = PROGRAMS[other]
    function = compiled(changed, folder)
    torch.testing.assert_close(function(x), changed(x))
    assert happened(function) == ["stored"]


@pytest.mark.parametrize("closed_over", [2, 2.5, torch.tensor(2.0), torch.arange(4.0)])
def test_what_is_closed_over(closed_over: Any, folder: Path) -> None:
    def times(by: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * by + 1

    for by in (closed_over, closed_over + 1, closed_over):
        torch.testing.assert_close(compiled(times(by), folder)(X), times(by)(X))


def test_a_patched_function(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(program, folder)(X)
    monkeypatch.setattr(F, "gelu", lambda x: x * 100)
    function = compiled(program, folder)
    torch.testing.assert_close(function(X), program(X))
    assert happened(function) == ["not stored"]  # nothing tells what it does
    monkeypatch.undo()
    function = compiled(program, folder)
    torch.testing.assert_close(function(X), program(X))
    assert happened(function) == ["found"]


def test_what_is_no_operation_may_be_anyones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile` is windfall's in `windfall run`."""
    compiled(program, folder)(X)
    monkeypatch.setattr(torch, "compile", lambda f: f)
    function = compiled(program, folder)
    torch.testing.assert_close(function(X), program(X))
    assert happened(function) == ["found"]


def test_every_option_counts_or_is_declared_harmless() -> None:
    """A new option misses unless somebody says that it shapes no code."""
    others: dict[str, Any] = {
        "numerics": "another",
        "memory_budget": 0.5,
        "partition": "eager",
        "dynamic": True,
        "native": False,
        "mode": "reduce-overhead",
        "compiled_autograd": True,
        "backend": "another",
        "trees": TreeOptions(),
    }
    assert {one.name for one in fields(Options)} == key.HARMLESS | others.keys()
    for name, value in others.items():
        assert key.settings(replace(Options(), **{name: value})) != key.settings(Options())


SURROUNDINGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "torch": lambda patch: patch.setattr(torch, "__version__", "9.9"),
    "torch's build": lambda patch: patch.setattr(torch.__config__, "show", lambda: "another"),
    "its commit": lambda patch: patch.setattr(torch.version, "git_version", "abc"),
    "what it uses of the processor": lambda patch: patch.setattr(
        torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT"
    ),
    "LLVM and the processor": lambda patch: patch.setattr(jit, "versions", lambda: ("1",)),
    "the interpreter": lambda patch: patch.setattr(sys, "version", "3.99"),
    "our own text": lambda patch: patch.setattr(key, "_source_digest", lambda: "another"),
}


@pytest.mark.parametrize("changed", SURROUNDINGS)
def test_other_surroundings_miss(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key.surroundings.__wrapped__()
    SURROUNDINGS[changed](monkeypatch)
    assert key.surroundings.__wrapped__() != before


# ------------------------------------------------------------------- what has no key is not stored


def test_a_rule_from_outside(folder: Path) -> None:
    autograd.PASSES.add(Row("looks", lambda joint: joint))
    try:
        function = compiled(program, folder)
        function(X)
    finally:
        autograd.PASSES.remove("looks")
    assert happened(function) == ["not stored"]
    assert "looks" in str(reasons(function))


def reasons(function: Any) -> list[str]:
    events = windfall.explanation(function).events
    return [event.facts["reason"] for event in events if event.kind == "cache"]


@pytest.mark.filterwarnings("ignore:.*overridden.*:UserWarning")
def test_a_kernel_of_the_users_for_an_op_of_torch(folder: Path) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("erfinv", lambda x: x + 1, "CPU")
    try:
        function = compiled(program, folder)
        function(X)
        assert happened(function) == ["not stored"] and "aten::erfinv" in str(reasons(function))
    finally:
        library._destroy()


def test_an_op_of_the_users(folder: Path) -> None:
    library = torch.library.Library("cached", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x * 2, "CPU")
    library.impl("doubled", torch.empty_like, "Meta")
    function = compiled(lambda x: torch.ops.cached.doubled(x) + 1, folder)
    torch.testing.assert_close(function(X), X * 2 + 1)
    assert happened(function) == ["not stored"] and "cached" in str(reasons(function))


def test_a_name_of_the_users_has_no_key() -> None:
    with pytest.raises(Unkeyed, match="is not torch's"):
        key_of("graph", (Path,), Options())


def test_whoever_wants_to_see_the_stages_sees_them(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compiled(program, folder)(X)
    told = windfall.explain(program, options={"cache": "on", "cache_dir": str(folder)})(X)
    assert "emit" in {str(one.kind) for one in told.events}
    for options in ({"records": True}, {"logs": ("llvm",)}, {"logs": ("loops",)}):
        function = compiled(program, folder, **options)
        function(X)
        assert happened(function) == []
    function = compiled(program, folder, logs=("cache", "kernels", "graph"))
    capfd.readouterr()
    function(X)
    assert happened(function) == ["found"]
    said = capfd.readouterr().err
    assert "how=found" in said and "kernel" in said


# ------------------------------------------------------------------------------------ modes, faults


def test_modes(folder: Path) -> None:
    off = compiled(program, folder, cache="off")
    off(X)
    assert happened(off) == [] and not folder.exists()
    compiled(program, folder)(X)
    size = (folder / stores.NAME).stat().st_size
    reader = compiled(program, folder, cache="read")
    reader(X)
    assert happened(reader) == ["found"]
    other = compiled(lambda x: x.sin().cos() + 7, folder, cache="read")
    other(X)
    assert (folder / stores.NAME).stat().st_size == size and happened(other) == ["not stored"]
    for wrong in ({"cache": "maybe"}, {"cache_dir": 3}, {"cache_bytes": -1}):
        with pytest.raises(windfall.UserError, match=next(iter(wrong))):
            windfall.compile(program, options=wrong)


def test_an_entry_that_cannot_be_read_is_made_anew(folder: Path) -> None:
    """Whole, with a right digest, and yet nothing that can be decoded: nothing of it is run."""
    compiled(program, folder)(X)
    for content in (b"", b"junk" * 9, _naming("os:system"), _naming("no_such_module:f")):
        with sqlite3.connect(folder / stores.NAME) as connection:
            ((found,),) = connection.execute("select key from entries")
            row = (stores.digest(found, content), content)
            connection.execute("update entries set digest = ?, data = ?", row)
        connection.close()
        function = compiled(program, folder)
        torch.testing.assert_close(function(X), program(X))
        assert happened(function) == ["unreadable", "stored"]
    with sqlite3.connect(folder / stores.NAME) as connection:
        told = [row[0] for row in connection.execute("select reason from quarantine")]
    connection.close()
    assert len(told) == 4 and sum("is not torch's" in one for one in told) == 2


def _naming(name: str) -> bytes:
    text = json.dumps([1, [["name", name]], [0]]).encode()
    return len(text).to_bytes(8, "little") + text


FAULTS: dict[str, Callable[[Path], None]] = {
    "open to others": lambda folder: folder.mkdir(mode=0o777) or folder.chmod(0o777),
    "a file": lambda folder: folder.write_text("") and None,
    "no database": lambda folder: (
        folder.mkdir(mode=0o700) or (folder / stores.NAME).mkdir(mode=0o700)
    ),
    "a link": lambda folder: (
        folder.mkdir(mode=0o700) or (folder / stores.NAME).symlink_to(folder.parent / "elsewhere")
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cache_that_cannot_be_used_costs_one_warning(
    fault: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    FAULTS[fault](folder)
    with caplog.at_level(logging.WARNING, logger="windfall"):
        for body in (program, lambda x: x.sin() + 1, lambda x: x.cos() + 1, lambda x: x.exp() + 1):
            function = compiled(body, folder)
            torch.testing.assert_close(function(X), body(X))
            assert happened(function) == ["not stored"]
    assert len(caplog.records) == 1
    assert "the cache on disk is not used" in caplog.text and str(folder) in caplog.text
    assert not (folder.parent / "elsewhere").exists()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDFALL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert Options.checked().cache_dir == "/somewhere/windfall"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Options.checked().cache_dir == ""  # none
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/of-mine")
    assert Options.checked().cache_dir == "/home/of-mine/.cache/windfall"
    monkeypatch.setenv("WINDFALL_CACHE_DIR", "/another")
    monkeypatch.setenv("WINDFALL_CACHE", "read")
    monkeypatch.setenv("WINDFALL_CACHE_BYTES", "1000")
    chosen = Options.checked()
    assert (chosen.cache_dir, chosen.cache, chosen.cache_bytes) == ("/another", "read", 1000)
    monkeypatch.setenv("WINDFALL_CACHE_BYTES", "much")
    with pytest.raises(windfall.UserError, match="cache_bytes"):
        Options.checked()
