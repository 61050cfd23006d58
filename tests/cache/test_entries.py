"""Whole entries: what one process has captured, another one uses, unless anything has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import windfall
from tests.cache.entry_changes import CHANGES, Change
from windfall import whole_entries
from windfall.cache import key
from windfall.cache.fingerprint import Fingerprints, code_digest
from windfall.frontend.values.calls import CALLS, calls
from windfall.ir.names import Unnameable

X = torch.linspace(-2, 2, 12).reshape(3, 4)
ROOT = Path(windfall.__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def compiled(program: Callable[..., Any], folder: Path, **options: Any) -> Any:
    chosen = {
        "cache": "on",
        "cache_dir": str(folder),
        "verify": False,
        "cache_entries": "always",
        **options,
    }
    return windfall.compile(program, options=chosen)


def happened(function: Any) -> list[str]:
    events = windfall.explanation(function).events
    return [event.facts["how"] for event in events if event.kind == "cache"]


def reasons(function: Any) -> list[str]:
    events = windfall.explanation(function).events
    return [
        event.facts["reason"]
        for event in events
        if event.kind == "cache" and "reason" in event.facts
    ]


def program(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * 2 + 1).sum(-1)


# ------------------------------------------------------------------------------- whatever changes


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the processes of each row did."""
    place = tmp_path_factory.mktemp("changes")
    command = [sys.executable, "-W", "ignore", "-m", "tests.cache.entry_changes", str(place)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: processes for name, *processes in rows}


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: row.name)
def test_a_change_is_seen(row: Change, told: dict[str, list[dict[str, Any]]]) -> None:
    """The same program finds the entry; a changed one does not use it, or it is right there too."""
    first, second, changed = told[row.name]
    for one in (first, second, changed):
        assert "error" not in one, one
        assert one["fallbacks"] == []
        torch.testing.assert_close(*(torch.tensor(one[name]) for name in ("answer", "eager")))
        assert one["dtype"][0] == one["dtype"][1] and one["grad"][0] == one["grad"][1]
    if row.kept:
        assert "entry found" not in second["how"]
        assert row.kept == "any" or row.kept in second["reasons"]
    else:
        # every entry of the second process is one of the first
        assert second["how"].count("entry found") == first["how"].count("entry stored") > 0
        assert "entry stored" not in second["how"]
    if not row.same:  # else the row could not fail
        assert changed["eager"] != first["eager"]
    if row.found:
        assert changed["how"] == ["entry found"]
    else:
        assert changed["how"] != ["entry found"] * len(changed["how"])


def test_rows_have_names_of_their_own() -> None:
    names = [row.name for row in CHANGES]
    assert len(set(names)) == len(names) > 80


# ---------------------------------------------------------------------------------- found or not


def test_nothing_is_captured_again(folder: Path) -> None:
    first, second = compiled(program, folder), compiled(program, folder)
    assert torch.equal(first(X), second(X))
    assert happened(first) == ["stored", "entry stored"] and happened(second) == ["entry found"]
    events = windfall.explanation(second).events
    spent = {str(one.kind): one.seconds for one in events if one.kind.is_stage}
    assert spent.pop("bind") > 0 and spent.pop("enter") > 0
    assert spent == dict.fromkeys(["capture", "build", "assemble", "rewrite"], 0.0)  # told of
    one, other = (windfall.explanation(f) for f in (first, second))
    assert [note.text for note in other.kernels()] == [note.text for note in one.kernels()] != []
    assert other.to_dict()["graph_count"] == one.to_dict()["graph_count"] == 1


def test_guards_are_those_of_the_capture(folder: Path) -> None:
    first, second = compiled(program, folder), compiled(program, folder)
    for function in (first, second):
        function(X)
    texts = [[one.guards for one in windfall.cache_entries(f)] for f in (first, second)]
    assert texts[0] == texts[1]
    wide = torch.ones(5, 4)
    torch.testing.assert_close(second(wide), program(wide))  # no entry fits: compiled anew
    assert happened(second)[0] == "entry found" and len(windfall.cache_entries(second)) == 2


def test_sizes_that_vary(folder: Path) -> None:
    functions = [compiled(program, folder) for _ in range(2)]
    for sizes, function in zip(((3, 5, 6), (3, 7, 9)), functions, strict=True):
        for rows in sizes:
            x = torch.randn(rows, 4)
            torch.testing.assert_close(function(x), program(x))
    assert happened(functions[1]) == ["entry found"] * 2  # one size, then any, with other numbers


def test_one_key_has_several_entries(folder: Path) -> None:
    """A model that is trained and asked in turn."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0))
    for turn in range(2):
        function = compiled(model, folder)
        for training in (True, False, True):
            model.train(training)
            torch.testing.assert_close(function(X), model(X))
        found = [one for one in happened(function) if one.startswith("entry")]
        passed = ["entry found", "entry passed over", "entry found"]
        assert found == (passed if turn else ["entry stored", "entry passed over", "entry stored"])


def test_entries_past_the_last_variant_are_kept_too(folder: Path) -> None:
    class Counted(torch.nn.Module):
        step = 0.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if self.step is None else x * self.step

    for number in range(12):
        model = Counted()
        model.step = f"{number}"  # type: ignore[assignment]
        model.forward = lambda x, model=model: x * len(model.step)  # type: ignore[method-assign]
        function = compiled(lambda x, model=model: x * float(model.step), folder)
        torch.testing.assert_close(function(X), X * number)


def test_training_and_second_derivatives(folder: Path) -> None:
    def gradients(f: Any) -> tuple[torch.Tensor, ...]:
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), x)

    functions = [compiled(program, folder) for _ in range(2)]
    for function in functions:
        torch.testing.assert_close(gradients(function), gradients(program))
    assert happened(functions[1])[0] == "entry found"


def test_a_break_that_may_not_be_is_refused(folder: Path) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x + 1

    compiled(broken, folder)(X)
    assert happened(found := compiled(broken, folder)) == [] and found(X) is not None
    assert set(happened(found)) == {"entry found"}
    with pytest.raises(windfall.UserError):
        windfall.compile(
            broken,
            fullgraph=True,
            options={"cache": "on", "cache_dir": str(folder), "verify": False},
        )(X)


def test_whoever_asks_is_shown(folder: Path) -> None:
    compiled(program, folder)(X)
    for options in ({"records": True}, {"logs": ("guards",)}, {"verify": True}):
        shown = compiled(program, folder, **options)
        shown(X)
        assert "entry found" not in happened(shown)
    off = compiled(program, folder, cache_entries="off")
    off(X)
    assert happened(off) == ["found"]


def test_what_runs_op_by_op_is_told_each_time(folder: Path) -> None:
    for _ in range(2):
        eager = compiled(program, folder, backend="eager")
        eager(X)
        assert happened(eager) == ["entry not stored"]


def test_a_rule_from_outside_is_no_key(folder: Path) -> None:
    def mine(value: Any) -> Any:
        return value

    @calls(mine)
    def rule(machine: Any, arguments: Any, keywords: Any) -> Any:
        return arguments[0]

    try:
        function = compiled(program, folder)
        function(X)
        assert any("added from outside" in one for one in reasons(function))
        assert "entry stored" not in happened(function)
    finally:
        del CALLS[mine]


@pytest.mark.parametrize("what", ["_source_digest", "sys.version", "cpu"])
def test_surroundings_count(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another windfall, another Python, another processor."""
    compiled(program, folder)(X)
    if what == "_source_digest":
        monkeypatch.setattr(key, "_source_digest", lambda: "another")
    elif what == "cpu":
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    else:
        monkeypatch.setattr(sys, "version", "another")
    key.surroundings.cache_clear()
    try:
        function = compiled(program, folder)
        function(X)
        assert happened(function) == ["stored", "entry stored"]
    finally:
        monkeypatch.undo()
        key.surroundings.cache_clear()


# ------------------------------------------------------------------------------- real processes

CHILD = """
import sys, torch, windfall, json
from torch import nn
class Block(nn.Module):
    names = ("a", "b")
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    def forward(self, x):
        for name in self.names:
            x = torch.relu(self.layers[name](x)) if name in {"a", "b", "c"} else x
        return x
torch.manual_seed(0)
x, model = torch.ones(2, 4), Block()
call = windfall.compile(model)
assert torch.allclose(call(x), model(x), atol=1e-6)
call(x).sum().backward()
how = [e.facts["how"] for e in windfall.explanation(call).events if e.kind == "cache"]
print(json.dumps([how, sorted({"torch._dynamo", "torch._inductor"} & sys.modules.keys())]))
"""


def test_a_model_of_another_process(folder: Path) -> None:
    """With another hash seed, and so other orders of sets."""
    seen = []
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "WINDFALL_CACHE": "on", "WINDFALL_CACHE_DIR": str(folder)}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "WINDFALL_VERIFY": "0"}
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        seen.append(json.loads(done.stdout))
    assert seen[0][0] == ["stored", "entry not stored", "stored"]
    assert seen[1][0] == ["found", "entry stored", "found"]
    assert seen[2] == [["entry found", "found"], []]


# --------------------------------------------------------------------------------- damaged entries


def _spoilt(folder: Path, change: Callable[[bytes], bytes]) -> None:
    """Change what is kept of the entry, as somebody could who has the digests too."""
    from windfall.cache.store import DiskStore

    store = DiskStore(folder, 1 << 29)
    (row,) = (one for one in store.rows() if one.about.startswith("entry"))
    data = store.get(row.key)
    assert data is not None
    store.put(row.key, change(data), row.about)
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"",
        lambda data: data[:8] + b"{" + data[9:],
        lambda data: data.replace(b"StoredSegment", b"StoredSegmend"),
        lambda data: data.replace(b"TensorIs", b"TensorIz"),
    ],
)
def test_an_entry_that_cannot_be_read_is_made_anew(
    folder: Path, change: Callable[[bytes], bytes]
) -> None:
    compiled(program, folder)(X)
    _spoilt(folder, change)
    function = compiled(program, folder)
    torch.testing.assert_close(function(X), program(X))
    assert happened(function) == ["unreadable", "found", "entry stored"]
    assert happened(again := compiled(program, folder)) == [] and again(X) is not None
    assert happened(again) == ["entry found"]


def test_a_name_that_is_not_loaded_is_not_imported(folder: Path) -> None:
    compiled(program, folder)(X)
    _spoilt(folder, lambda data: data.replace(b"torch._C._nn:gelu", b"torch._C_nn_:gelu"))
    function = compiled(program, folder)
    torch.testing.assert_close(function(X), program(X))
    assert happened(function)[0] == "entry passed over" and "is not loaded" in reasons(function)[0]
    assert "torch._C_nn_" not in sys.modules


# ----------------------------------------------------------------------------------- fingerprints


class Plain:
    number = 1

    def method(self) -> int:
        return 1


def _other_method(self: Plain) -> int:
    return 2


def test_what_tells_things_apart() -> None:
    told = Fingerprints()
    different = [
        1, True, 1.0, "1", b"1", None, ..., 0.0, -0.0, (1,), [1], {1}, frozenset({1}), {1: 1},
        (1, 2), (2, 1), {1: 2, 2: 1}, {2: 1, 1: 2}, torch.float32, torch.device("cpu"), program,
        program.__code__, Plain, Plain.method, torch.relu, torch.Tensor.add, torch, torch.nn,
        property(program), staticmethod(program), classmethod(program), torch.Size([1]), range(1),
    ]  # fmt: skip
    texts = [told.of(one) for one in different]
    assert len(set(texts)) == len(texts)
    assert texts == [Fingerprints().of(one) for one in different]


def test_a_class_is_its_methods_and_bases() -> None:
    def named(**members: Any) -> type:
        return type("Same", (Plain,), {"__module__": "here", **members})

    told = [
        Fingerprints().of(named(method=Plain.method)),
        Fingerprints().of(named(method=_other_method)),
        Fingerprints().of(named()),
        Fingerprints().of(type("Same", (), {"__module__": "here"})),
    ]
    assert len(set(told)) == 4
    assert Fingerprints().of(named()) == Fingerprints().of(named(data=3))  # a guard's business


@pytest.mark.parametrize(
    "value", [object(), Plain(), [].append, torch.nn.Linear(1, 1), iter(()), {"a": object()}]
)
def test_what_has_no_content(value: Any) -> None:
    with pytest.raises(Unnameable):
        Fingerprints().of(value)


def test_sets_in_code_have_no_order() -> None:
    def code(items: frozenset[str]) -> types.CodeType:
        made: types.CodeType = program.__code__.replace(co_consts=(None, items, (1, items)))
        return made

    assert code_digest(code(frozenset("abc"))) == code_digest(code(frozenset("cba")))
    assert code_digest(code(frozenset("abc"))) != code_digest(code(frozenset("abd")))


# ---------------------------------------------------------------------------- the second process


def test_what_one_process_asks_for_is_not_written_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process leaves its mark, the second one stores, the third one finds."""

    def asked() -> list[str]:
        function = compiled(program, folder, cache_entries="second")
        torch.testing.assert_close(function(X), program(X))
        return [one for one in happened(function) if one.startswith("entry")]

    assert [asked(), asked()] == [["entry not stored"]] * 2, "the same process, twice"
    monkeypatch.setattr(whole_entries, "_mark", lambda: b"asked for by another")
    assert asked() == ["entry stored"]
    assert asked() == ["entry found"]
    monkeypatch.undo()
    assert asked() == ["entry found"]


def test_the_default_waits_for_a_second_process() -> None:
    assert windfall.Options().cache_entries == "second"
    with pytest.raises(windfall.UserError, match="cache_entries"):
        windfall.compile(program, options={"cache_entries": True})


def test_whoever_reads_entries_knows_all_kinds_of_record() -> None:
    """What captures, differentiates and generates is not loaded for it; no record stands there."""
    text = """
import importlib, pkgutil, sys
import windfall.whole_entries
from windfall.ir.codec import MAKERS
early, loaded = set(MAKERS), set(sys.modules)
assert not loaded & {"windfall.frontend.interpreter", "windfall.codegen", "windfall.autograd.joint"}
for one in pkgutil.walk_packages(windfall.__path__, "windfall."):
    if "__main__" not in one.name:
        importlib.import_module(one.name)
print(sorted(set(MAKERS) - early))
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT)
    assert ran.stdout.splitlines()[-1:] == ["[]"], ran.stdout + ran.stderr


def test_an_entry_that_is_found_loads_nothing_that_captures(folder: Path) -> None:
    text = f"""
import sys, torch, windfall
def program(x):
    return (x * 2 + 1).relu().sum(-1)
chosen = {{"cache": "on", "cache_dir": {str(folder)!r}, "cache_entries": "always", "verify": False}}
call = windfall.compile(program, options=chosen)
x = torch.ones(3, 4)
assert torch.equal(call(x), program(x))
how = [one.facts["how"] for one in windfall.explanation(call).events if one.kind == "cache"]
heavy = {{"windfall.frontend.interpreter", "windfall.codegen", "windfall.autograd.joint"}}
print(how, sorted(heavy & set(sys.modules)))
"""
    said = []
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT)
        assert not ran.returncode, ran.stderr
        said.append(ran.stdout.splitlines()[-1])
    assert "'stored', 'entry stored'" in said[0] and "windfall.codegen" in said[0]
    assert said[1] == "['entry found'] []"


def test_the_code_that_entries_share_is_compiled_once_for_all_processes(folder: Path) -> None:
    text = f"""
import torch, windfall
from windfall import jit
seen, real = [], jit.compile_object
def spied(text, **how):
    seen.append(len(text))
    return real(text, **how)
jit.compile_object = spied
call = windfall.compile(torch.nn.ReLU(), options={{"cache": "on", "cache_dir": {str(folder)!r}}})
print(len(seen), call(torch.ones(2)).tolist())
"""
    said = []
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT)
        assert not ran.returncode, ran.stderr
        said.append(ran.stdout.splitlines()[-1])
    assert said == ["1 [1.0, 1.0]", "0 [1.0, 1.0]"]
