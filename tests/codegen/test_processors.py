"""Code for other processors than this one: what is chosen, what is refused, what the code contains.

Code for the narrower ones runs here too: `WINDFALL_TARGET=x86-64-v2 pytest tests/codegen`. That for
aarch64 is made and looked at, never run."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.codegen.harness import Trace
from tests.codegen.test_registry import CHUNKS, first_samples
from tests.codegen.test_text import GRAPHS
from windfall import jit
from windfall.codegen import emit, lower, plan, schedule
from windfall.errors import UserError
from windfall.targets import TARGETS, Processor, chosen, of_host

V4 = of_host("x86_64", "t", "some", ",".join(f"+{one}" for one in TARGETS["x86-64-v4"].needs))
X86 = [one for one in TARGETS.values() if one.machine == "x86_64"]


def test_the_host_is_the_widest_row_that_it_can_run() -> None:
    assert (V4.vector_bits, V4.sleef, V4.cpu) == (512, "avx512f", "some")
    for row in X86:
        present = ",".join(f"+{one}" for one in row.needs) + ",-sse4a"
        host = of_host("AMD64", "t", "some", present)
        assert (host.machine, host.vector_bits) == ("x86_64", row.vector_bits)
        less = of_host("x86_64", "t", "some", present.replace("+sse4.2", "-sse4.2"))
        assert (less.vector_bits, less.sleef) == (128, "")
    assert of_host("riscv64", "t", "some", "+v").vector_bits == 128
    assert of_host("arm64", "t", "some", "+neon").sleef == "advsimd"


def test_no_instruction_of_a_row_is_missing_in_a_wider_one() -> None:
    for narrow, wide in itertools.pairwise(X86):
        assert narrow.needs < wide.needs and narrow.vector_bits < wide.vector_bits


@pytest.mark.parametrize(
    ("name", "host", "message"),
    [
        ("avx", V4, "is not known; accepted: 'host', 'x86-64-v2'"),
        ("aarch64", V4, "is for aarch64, not x86_64"),
        ("x86-64-v4", of_host("x86_64", "t", "c", "+avx2"), "lacks avx, avx512bw"),
    ],
)
def test_what_cannot_run_here_is_refused(name: str, host: Processor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen(name, host)


def test_a_name_is_chosen() -> None:
    assert chosen("", V4) is V4 and chosen("host", V4) is V4
    assert chosen("x86-64-v3", V4) == replace(TARGETS["x86-64-v3"], triple="t")


# --------------------------------------------------------------------------- what code is made of


@pytest.fixture
def made_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Processor]]:
    """Code is written for this processor, until the test ends."""

    def set_to(name: str) -> Processor:
        monkeypatch.setattr(jit, "target", lambda: TARGETS[name])
        monkeypatch.setattr(jit, "vector_bits", lambda: TARGETS[name].vector_bits)
        return TARGETS[name]

    yield set_to


def text_of(trace: Trace) -> str:
    kernels = schedule(lower(trace.graph))
    return emit(kernels, plan(kernels)).text


def all_texts() -> Iterator[str]:
    for make in GRAPHS.values():
        trace = Trace()
        trace.returns(*make(trace))
        yield text_of(trace)
    for names in CHUNKS[::6]:
        trace, outs, _ = first_samples(names)
        trace.returns(*outs)
        yield text_of(trace)


# Beyond x86-64-v2: every encoding of AVX and later (their names begin with a v), their registers,
# and the rest of v3.
BEYOND_V2 = re.compile(
    r"^\s+(v\w+|(andn|bextr|blsi|blsmsk|blsr|bzhi|lzcnt|movbe|mulx|pdep|pext|rorx|sarx|shlx|shrx"
    r"|tzcnt)[lqw]?)\s|%[yz]mm|%k[0-7]\b",
    re.MULTILINE,
)
BEYOND_V3 = re.compile(r"%zmm|%[xy]mm(1[6-9]|[23]\d)|%k[0-7]\b")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(jit.target().machine != "x86_64", reason="about another machine")
@pytest.mark.parametrize(
    ("name", "beyond", "wider"),
    [("x86-64-v2", BEYOND_V2, "x86-64-v3"), ("x86-64-v3", BEYOND_V3, "x86-64-v4")],
    ids=["v2", "v3"],
)
def test_code_has_no_instruction_beyond_its_processor(
    name: str, beyond: re.Pattern[str], wider: str, made_for: Any
) -> None:
    processor = made_for(name)
    found: dict[str, int] = {name: 0, wider: 0}
    for text in all_texts():
        for to in (processor, TARGETS[wider]):
            made = jit.compile_object(text, optimise=0, want_assembly=True, made_for=to)
            assert made.assembly is not None
            found[to.name] += len(beyond.findall(made.assembly))
    assert found[name] == 0
    # The wider one's code has them: the pattern finds what it looks for. (Vectors of the text are
    # narrow, so v4 shows by its registers alone.)
    assert found[wider] > 0 or wider == "x86-64-v4"


def test_the_patterns_find_what_they_look_for() -> None:
    for line in ("\tvaddps\t%xmm0, %xmm1, %xmm2\n", "\ttzcntl\t%eax, %eax\n", "\tmovq %ymm1, 3\n"):
        assert BEYOND_V2.search(line), line
    for line in ("\taddps\t%xmm0, %xmm1\n", "\trep\t\tbsfq\t%rax, %rcx\n", "\tcallq\tvfmadd@PLT\n"):
        assert not BEYOND_V2.search(line), line
    assert BEYOND_V3.search("\tvaddps\t%zmm0, %zmm1, %zmm2\n")
    assert BEYOND_V3.search("\tvpxor\t%xmm16, %xmm1, %xmm2\n")
    assert not BEYOND_V3.search("\tvaddps\t%ymm0, %ymm15, %ymm2\n")


@pytest.mark.filterwarnings("ignore")
def test_kernels_compile_for_aarch64(made_for: Any) -> None:
    processor = made_for("aarch64")
    vectors = 0
    for text in all_texts():
        made = jit.compile_object(text, optimise=0, want_assembly=True, made_for=processor)
        assert made.data[:4] == b"\x7fELF" and made.data[18:20] == b"\xb7\x00"  # EM_AARCH64
        assert made.assembly is not None
        vectors += len(re.findall(r"\bv\d+\.4s\b", made.assembly))
        assert not re.search(r"%[xyz]mm", made.assembly)
    assert vectors > 100


FMA = """
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @f(ptr %p) {
  %x = load <4 x float>, ptr %p
  %y = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %x, <4 x float> %x)
  store <4 x float> %y, ptr %p
  ret void
}
"""


@pytest.mark.skipif(jit.target().machine != "x86_64", reason="about another machine")
def test_functions_that_llvm_calls_by_itself_are_known_to_be_needed() -> None:
    """LLVM ends the process where it does not find one: they are looked for before."""
    assert jit.compile_object(FMA, made_for=TARGETS["x86-64-v2"]).needs == ("fmaf",)
    assert jit.compile_object(FMA, made_for=TARGETS["x86-64-v3"]).needs == ()


# ------------------------------------------------------------------------------- whole processes

PROGRAM = """
import torch, windfall
from windfall import jit
f = windfall.compile(lambda x: torch.nn.functional.gelu(x * 2 + 1).sum(-1))
x = torch.linspace(-2, 2, 64).reshape(4, 16)
torch.testing.assert_close(f(x), torch.nn.functional.gelu(x * 2 + 1).sum(-1))
told = windfall.explanation(f)
assert not told.fallbacks, told.fallbacks
cache = [event.facts["how"] for event in told.events if event.kind == "cache"]
print(jit.target().name, jit.vector_bits(), *cache)
"""


def in_a_process(target: str, folder: Path) -> subprocess.CompletedProcess[str]:
    space = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "WINDFALL_TARGET": target,
        "WINDFALL_CACHE": "on",
        "WINDFALL_CACHE_DIR": str(folder),
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=space, capture_output=True, text=True
    )


# What each compilation of a process makes, kernels or not, is printed as LLVM writes it.
WHOLE = """
from windfall import jit
make = jit._compiled
def shown(module, machine, optimise, want_assembly):
    made = make(module, machine, optimise, True)
    print(made.assembly)
    return made
jit._compiled = shown
from tests.runtime.broken_probes import programs
programs()
"""

HAS_AVX2 = TARGETS["x86-64-v3"].needs <= {
    one[1:] for one in jit.target().features.split(",") if one.startswith("+")
}


@pytest.mark.skipif(not HAS_AVX2, reason="this processor, or the one chosen, has no AVX2")
def test_nothing_that_a_process_makes_is_beyond_its_processor() -> None:
    """Guards, entries, what runs between segments, backward: whatever is compiled."""
    found = {}
    for name in ("x86-64-v2", "x86-64-v3"):
        space = os.environ | {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "WINDFALL_TARGET": name,
            "WINDFALL_CACHE": "off",
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WHOLE], env=space, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        functions = len(re.findall(r"@function$", done.stdout, re.MULTILINE))
        found[name] = (functions, *(len(p.findall(done.stdout)) for p in (BEYOND_V2, BEYOND_V3)))
    functions, beyond_v2, beyond_v3 = found["x86-64-v2"]
    assert functions > 20 and not beyond_v2 and not beyond_v3, found
    functions, beyond_v2, beyond_v3 = found["x86-64-v3"]
    assert functions > 20 and beyond_v2 and not beyond_v3, found


@pytest.mark.skipif(not HAS_AVX2, reason="this processor, or the one chosen, has no AVX2")
def test_what_was_stored_for_one_processor_is_not_found_by_another(tmp_path: Path) -> None:
    said = [in_a_process(name, tmp_path) for name in ("x86-64-v3", "x86-64-v2", "x86-64-v3")]
    assert [one.stdout.split() for one in said] == [
        ["x86-64-v3", "256", "stored"],
        ["x86-64-v2", "128", "stored"],
        ["x86-64-v3", "256", "found"],
    ], [one.stderr for one in said]


def test_a_wrong_name_is_said_when_something_is_to_be_compiled(tmp_path: Path) -> None:
    said = in_a_process("x86-64-v9", tmp_path)
    assert (
        said.returncode and "windfall.errors.UserError: WINDFALL_TARGET='x86-64-v9'" in said.stderr
    )
