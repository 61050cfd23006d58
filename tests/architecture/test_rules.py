"""Each rule, on text that breaks it and on text that does not: a rule that cannot fail is none."""

from __future__ import annotations

import pytest

from tests.architecture import rules
from tests.architecture.scan import Module, scan


def house(**texts: str) -> dict[str, Module]:
    """Modules by name; `ir__loop` stands for `windfall.ir.loop`, `package` for `windfall`."""
    named = {
        "windfall" if name == "package" else "windfall." + name.replace("__", "."): text
        for name, text in texts.items()
    }
    folders = {name.rpartition(".")[0] for name in named}
    named = {**{folder: "" for folder in folders if folder}, **named}
    return {name: scan(name, text, name in folders) for name, text in named.items()}


UPWARD = {
    "plain import": "import windfall.ops.registry",
    "from a module": "from windfall.ops.registry import lookup",
    "from a package": "from windfall.ops import registry",
    "relative": "from ..ops import registry",
    "inside a function": "def f():\n    from windfall.ops import registry",
    "for types only": "if TYPE_CHECKING:\n    from windfall.ops import registry",
    "by string": "import importlib\nimportlib.import_module('windfall.ops.registry')",
    "by a string in part": "from importlib import import_module as i\ni(f'windfall.ops.{name}')",
}


@pytest.mark.parametrize("text", UPWARD.values(), ids=UPWARD.keys())
def test_an_import_upward_is_seen(text: str) -> None:
    (broken,) = rules.import_direction(house(ir__loop=text, ops__registry=""))
    assert broken.startswith("windfall.ir.loop:")
    assert "windfall.ops" in broken


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("frontend__machine", "codegen__lower"),
        ("runtime__bind", "autograd__joint"),
        ("codegen__lower", "pipeline"),
        ("pipeline", "api"),
        ("reporting__explain", "api"),
        ("errors", "ir__loop"),
        ("api", "package"),
    ],
)
def test_rooms_keep_to_their_floor(importer: str, imported: str) -> None:
    target = "windfall" if imported == "package" else "windfall." + imported.replace("__", ".")
    modules = house(**{imported: "", importer: f"import {target}"})
    assert len(rules.import_direction(modules)) == 1


def test_imports_downward_and_at_home_are_fine() -> None:
    modules = house(
        errors="",
        options="from windfall.errors import UserError",
        ir__loop="from windfall import errors",
        codegen__lower="from windfall.ir.loop import Loop\nfrom windfall.codegen import plan",
        codegen__plan="from windfall.ir import loop",
        pipeline="from windfall.codegen.lower import lower",
        package="from windfall.pipeline import run",
    )
    assert rules.import_direction(modules) == []


def test_a_new_place_must_be_given_a_floor() -> None:
    (broken,) = rules.import_direction(house(helpers=""))
    assert "has no floor" in broken


def test_a_cycle_is_seen_once_even_through_local_imports() -> None:
    modules = house(
        ir__a="from windfall.ir import b",
        ir__b="def f():\n    import windfall.ir.c",
        ir__c="from windfall.ir.a import x",
        ir__d="from windfall.ir import a",
    )
    (cycle,) = rules.import_cycles(modules)
    assert {"windfall.ir.a", "windfall.ir.b", "windfall.ir.c"} == set(cycle.split(" -> "))


def test_imports_for_types_make_no_cycle() -> None:
    modules = house(
        ir__a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from windfall.ir import b",
        ir__b="from windfall.ir import a",
    )
    assert rules.import_cycles(modules) == []


def test_no_cycle_without_one() -> None:
    modules = house(ir__a="", ir__b="import windfall.ir.a", ir__c="from windfall.ir import a, b")
    assert rules.import_cycles(modules) == []


def test_a_knot_is_what_leads_to_each_other_types_counted() -> None:
    modules = house(
        ir__a="if TYPE_CHECKING:\n    from windfall.ir import b",
        ir__b="def f():\n    import windfall.ir.c",
        ir__c="from windfall.ir.a import x",
        ir__d="from windfall.ir import a",
        ir__e="import windfall.ir.f",
        ir__f="import windfall.ir.e",
    )
    three, two = rules.import_knots(modules)
    assert three == ["windfall.ir.a", "windfall.ir.b", "windfall.ir.c"]
    assert two == ["windfall.ir.e", "windfall.ir.f"]


REPLACED = {
    "import": "import torch._dynamo",
    "below": "from torch._inductor.utils import x",
    "from torch": "from torch import _functorch",
    "chain": "import torch\ntorch._C._dynamo.eval_frame",
    "string": "import importlib\nimportlib.import_module('torch._dynamo.config')",
    "builtin": "__import__('torch._inductor')",
}


@pytest.mark.parametrize("text", REPLACED.values(), ids=REPLACED.keys())
def test_the_replaced_systems_are_seen_even_in_torch_abi(text: str) -> None:
    assert rules.replaced_systems(scan("windfall.torch_abi", text))


def test_words_about_the_replaced_systems_are_fine() -> None:
    text = '"""Not torch._dynamo."""\nimport torch\ntorch.compile\nname = "torch._dynamo"'
    assert rules.replaced_systems(scan("windfall.ir.x", text)) == []


ENVIRONMENT = {
    "environ": "import os\nos.environ['A']",
    "getenv": "import os\nos.getenv('A')",
    "alias": "import os as system\nsystem.environ.get('A')",
    "from": "from os import environ",
    "putenv": "def f():\n    import os\n    os.putenv('A', 'b')",
    "getattr": "import os\ngetattr(os, 'environ')",
}


@pytest.mark.parametrize("text", ENVIRONMENT.values(), ids=ENVIRONMENT.keys())
def test_readers_of_the_environment_are_seen(text: str) -> None:
    assert rules.environment_readers(scan("windfall.ir.x", text))
    assert rules.environment_readers(scan("windfall.options", text)) == []


def test_other_uses_of_os_are_fine() -> None:
    text = "import os\nos.path.join('a', 'b')\nenviron = 1"
    assert rules.environment_readers(scan("windfall.ir.x", text)) == []


PRIVATE = {
    "chain": "import torch\ntorch._C._get_tracing_state()",
    "import": "import torch._subclasses",
    "from": "from torch._prims_common import is_contiguous",
    "from torch": "from torch import _C",
    "alias": "import torch.nn.functional as F\nF._verify_batch_size",
    "deep": "from torch.utils import _pytree",
    "function": "import torch\ntorch._foreach_add",
    "getattr": "import torch\ngetattr(torch, '_C')",
    "getattr, then more": "import torch\ngetattr(torch.utils, '_pytree').tree_map",
    "string": "from importlib import import_module\nimport_module('torch._C')",
    "assignment": "import torch\ntorch._x = 1",
    "class": "import torch\ntorch.Tensor._make_subclass",
    "tensor": "def f(x):\n    return x._cdata",
    "tensor, by string": "def f(x):\n    return getattr(x, '_version')",
}


@pytest.mark.parametrize("text", PRIVATE.values(), ids=PRIVATE.keys())
def test_private_symbols_of_torch_are_seen(text: str) -> None:
    assert rules.private_torch(scan("windfall.frontend.x", text))
    assert rules.private_torch(scan("windfall.torch_abi", text)) == []
    assert rules.private_torch(scan("windfall.torch_abi.thread", text)) == []


def test_public_symbols_and_own_private_names_are_fine() -> None:
    text = "\n".join(
        [
            "import torch",
            "import torch.fx as fx",
            "torch.Tensor.__add__, torch.__version__, fx.Graph()",
            "torch.ops.aten._softmax.default",
            "_own = 1",
            "class A:",
            "    def f(self):",
            "        return self._own",
        ]
    )
    assert rules.private_torch(scan("windfall.frontend.x", text)) == []


BEHIND = {
    "module": "import windfall.torch_abi.probes",
    "from the package": "from windfall.torch_abi import layouts",
    "from a module": "def f():\n    from windfall.torch_abi.symbols import loaded",
    "relative": "from ..torch_abi.symbols import loaded",
    "chain": "from windfall import torch_abi\ntorch_abi.tensors.tensor_layout",
}


@pytest.mark.parametrize("text", BEHIND.values(), ids=BEHIND.keys())
def test_what_stands_behind_the_door_is_seen(text: str) -> None:
    assert rules.behind_the_door(scan("windfall.runtime.x", text))
    assert rules.behind_the_door(scan("windfall.torch_abi.thread", text)) == []


def test_the_door_itself_is_for_all() -> None:
    text = "from windfall import torch_abi\nfrom windfall.torch_abi import symbol\ntorch_abi.memory"
    assert rules.behind_the_door(scan("windfall.runtime.x", text)) == []


def test_users_of_llvmlite_are_seen() -> None:
    text = "def f():\n    import llvmlite.binding as llvm"
    assert rules.llvm_users(scan("windfall.codegen.build", text))
    assert rules.llvm_users(scan("windfall.jit", text)) == []


def test_a_long_file_without_a_reason_is_seen() -> None:
    long = "x = 1\n" * (rules.LONG + 1)
    assert rules.long_without_reason(scan("windfall.ir.x", '"""Words."""\n' + long))
    assert rules.long_without_reason(scan("windfall.ir.x", '"""One file: words."""\n' + long)) == []
    assert rules.long_without_reason(scan("windfall.ir.x", "x = 1\n" * rules.LONG)) == []


@pytest.mark.parametrize(
    "text", ['f"phi {type} [{a}, %{b}]"', '"  %i = phi i64 [ 0, %entry ]"', 'f"br label %{head}"']
)
def test_blocks_that_are_written_by_hand_are_seen(text: str) -> None:
    assert rules.blocks_by_hand(scan("windfall.runtime.machine.x", text))
    assert rules.blocks_by_hand(scan("windfall.llvm.code", text)) == []


def test_words_about_blocks_are_fine() -> None:
    text = '"""No label, no phi."""\ncode.start("label")\nphi = 1'
    assert rules.blocks_by_hand(scan("windfall.codegen.emit", text)) == []


def test_a_name_for_two_classes_is_seen() -> None:
    modules = house(**{"ir.loop": "class Loop: ...", "frontend.loops": "class Loop: ..."})
    assert rules.names_of_several(modules) == [
        "Loop is a class of windfall.frontend.loops and of windfall.ir.loop"
    ]
    assert not rules.names_of_several(house(**{"ir.loop": "class _Loop: ...\nclass View: ..."}))
    hidden = {"ir.loop": "class _Text: ...", "codegen.emit": "def f():\n    class _Text: ..."}
    assert len(rules.names_of_several(house(**hidden))) == 1


def test_a_name_for_two_files_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SHARED_FILES", {"guards": "guards"})
    modules = house(ir__guards="", frontend__guards="", ir__graph="", engine__graph="")
    assert rules.files_of_several(modules) == [
        "graph.py stands for windfall.engine.graph and windfall.ir.graph: one idea?"
    ]
    assert rules.files_of_several(house(ir__guards="", ir__graph="")) == [
        "guards.py stands once: no row of SHARED_FILES"
    ]


def test_a_missing_docstring_is_seen() -> None:
    assert rules.missing_docstring(scan("windfall.ir.x", "x = 1"))
    assert rules.missing_docstring(scan("windfall.ir.x", '"""Words."""')) == []


KINDS = {
    "frontend__values__base": "class Value: ...",
    "frontend__values__list": "class List(Value): ...",
}


@pytest.mark.parametrize(
    "text",
    [
        "if type(value) is List: ...",
        "if type(self.owner) in (List, Value): ...",
        "from windfall.frontend.values.unseen import Unseen",
        "from windfall.frontend.values.wrap import wrap",
        "machine.see(value, source)",
    ],
)
def test_a_way_around_the_look_is_seen(text: str) -> None:
    assert len(rules.around_the_look(house(**KINDS, frontend__values__rule=text))) == 1


@pytest.mark.parametrize(
    "text",
    ["if type(look(value)) is List: ...", "isinstance(value, List)", "if type(real) is list: ..."],
)
def test_looking_is_fine(text: str) -> None:
    assert not rules.around_the_look(house(**KINDS, frontend__values__rule=text))


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self, x): self.known[id(x)] = 1\n",
        "class A:\n    def f(self, x): return self.known.get(id(x))\n",
        "class A:\n    def f(self, x): self.known.add(id(x))\n",
        "def f(machine, x): return id(x) not in machine.graph.fakes\n",
    ],
)
def test_a_table_by_address_is_seen(text: str) -> None:
    assert len(rules.addresses_as_keys(scan("windfall.frontend.x", text))) == 1


def test_tables_of_one_call_are_fine() -> None:
    text = (
        "def f(xs):\n    seen = {id(x) for x in xs}\n    return [x for x in xs if id(x) in seen]\n"
    )
    assert rules.addresses_as_keys(scan("windfall.frontend.x", text)) == []


@pytest.mark.parametrize("kept", ["error", "kept or error", "error or None"])
def test_an_exception_that_is_kept_is_seen(kept: str) -> None:
    text = f"def f():\n    kept = None\n    try: g()\n    except E as error: kept = {kept}\n"
    assert len(rules.kept_exceptions(scan("windfall.ir.x", text))) == 1
    gone = text + "    del kept\n"
    assert rules.kept_exceptions(scan("windfall.ir.x", gone)) == []


def test_its_words_may_be_kept() -> None:
    text = "def f():\n    try: g()\n    except E as error: kept = str(error)\n"
    assert rules.kept_exceptions(scan("windfall.ir.x", text)) == []
