"""What the documents show is run: each python block, in order, one namespace for each page. A text
block that follows a python block is what it prints; `pytest --bless` rewrites it."""

from __future__ import annotations

import difflib
import inspect
import io
import linecache
import re
import sys
import types
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from tests.golden import normalised
from windfall import autograd, codegen, frontend, jit, link, on_demand, runtime, stance
from windfall.autograd.variant import variant
from windfall.frontend import breaks
from windfall.options import VARIABLES
from windfall.reporting import reference

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\s*^```text\n(?P<shown>.*?)^```$)?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    code: str
    shown: str | None  # what it prints, where the document says so
    span: tuple[int, int]  # of `shown` in the document's text


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    return [
        Block(
            text.count("\n", 0, found.start("code")) + 1,
            found["code"],
            found["shown"],
            found.span("shown"),
        )
        for found in BLOCK.finditer(text)
    ]


def run(name: str, text: str) -> str:
    """Run the blocks; answers the document as it should be, with what the blocks really print."""
    namespace: dict[str, object] = {"__name__": "document"}
    # Tracebacks and windfall's own messages name lines of the document.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    pieces, end = [], 0
    for block in blocks(text):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), namespace)
        if block.shown is not None:
            pieces += [text[end : block.span[0]], normalised(printed.getvalue())]
            end = block.span[1]
    return "".join([*pieces, text[end:]])


def check(path: Path, bless: bool) -> None:
    text = path.read_text(encoding="utf-8")
    actual = run(str(path), text)
    if bless and actual != text:
        path.write_text(actual, encoding="utf-8")
    elif actual != text:
        diff = difflib.unified_diff(
            text.splitlines(), actual.splitlines(), "document", "now", lineterm=""
        )
        raise AssertionError("\n".join(["prints something else (--bless accepts):", *diff]))


@pytest.mark.parametrize(
    "path",
    [path for path in documents() if blocks(path.read_text(encoding="utf-8"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_examples_run(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.name == "overview.md" and sys.version_info[:2] != (3, 11):
        pytest.skip("shows bytecode of Python 3.11")
    monkeypatch.setattr(jit, "vector_bits", lambda: 256)  # kernels print the same everywhere
    windfall.reset()  # what other tests of this process recorded is none of the document's
    check(path, request.config.getoption("--bless"))


EXAMPLE = """Words.

```python
x = 1
```

```
not python
```

```python
print(x + 1)
```

```text
2
```

More words.
"""


def test_blocks_share_names_and_keep_their_lines() -> None:
    assert [(block.line, block.shown) for block in blocks(EXAMPLE)] == [(4, None), (12, "2\n")]
    assert run("example.md", EXAMPLE) == EXAMPLE


def test_an_example_that_fails_is_seen() -> None:
    with pytest.raises(AssertionError):
        run("example.md", "```python\nassert 1 + 1 == 3\n```\n")


def test_an_example_that_prints_something_else_is_seen_and_can_be_blessed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(EXAMPLE.replace("x = 1", "x = 2"))
    with pytest.raises(AssertionError, match=r"(?s)-2\n\+3"):
        check(page, bless=False)
    check(page, bless=True)
    assert page.read_text() == EXAMPLE.replace("x = 1", "x = 2").replace("\n2\n", "\n3\n")


def test_the_page_of_breaks_is_the_table(request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs" / "breaks.md"
    if request.config.getoption("--bless"):
        page.write_text(breaks.page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == breaks.page(), "--bless writes it anew"


def test_each_reason_for_a_break_has_its_page(request: pytest.FixtureRequest) -> None:
    folder, pages = ROOT / "docs" / "breaks", breaks.pages()
    if request.config.getoption("--bless"):
        folder.mkdir(exist_ok=True)
        for name, text in pages.items():
            (folder / name).write_text(text, encoding="utf-8")
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert found == pages, "--bless writes them anew"


def test_the_page_of_options_is_what_there_is(request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs" / "options.md"
    if request.config.getoption("--bless"):
        page.write_text(reference.page(), encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert text == reference.page(), "--bless writes it anew"
    assert all(f"`{name}`" in text for name in VARIABLES)


def test_the_navigation_has_every_page() -> None:
    """But the pages of single reasons and decisions, which their tables link."""
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    docs = ROOT / "docs"
    found = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert listed <= found
    assert {one for one in found - listed if not one.startswith(("breaks/W", "adr/0"))} == set()


def test_the_page_of_the_public_surface_has_every_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in windfall.__all__ if f"`{name}" not in text]
    assert not missing, f"docs/api.md says nothing of {missing}"
    arguments = inspect.signature(windfall.compile).parameters
    assert not [name for name in arguments if f"`{name}`" not in text]
    stances = [name for name in stance.STANCES if f"`{name}`" not in text]
    assert not stances


def _prose(page: Path) -> str:
    return _prose_of(page.read_text(encoding="utf-8"))


def _prose_of(text: str) -> str:
    return re.sub(r"(?ms)^```.*?^```", "", text)


def test_the_walk_goes_through_the_stages_once_and_in_order() -> None:
    """Below the list of the stages, each function is named once, where its turn is in a call."""
    text = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
    listed = re.search(r"^(capture → .*)$", text, re.MULTILINE)
    assert listed is not None
    stages = listed[1].split(" → ")
    assert len(stages) > 12
    rooms = (frontend, autograd, codegen, runtime)
    functions = {
        stage: next(getattr(room, stage) for room in rooms if hasattr(room, stage))
        for stage in stages
    }
    functions["link"] = link.link
    functions["variant"] = variant
    functions["BackwardCompiler.compile"] = on_demand.BackwardCompiler.compile
    walk = text[listed.end() :].partition("```")[2]  # behind the block that lists them
    named = re.findall(r"`([\w.]+)`", _prose_of(walk))
    assert [name for name in functions if named.count(name) != 1] == []
    assert [name for name in named if name in functions] == _order_of_calls(functions)


def _order_of_calls(functions: dict[str, Callable[..., Any]]) -> list[str]:
    """The functions in the order in which a first training step calls them."""
    names = {function.__code__: name for name, function in functions.items()}
    called: list[str] = []

    def note(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in names:
            called.append(names[frame.f_code])

    y = torch.randn(4, 8, requires_grad=True)
    compiled = windfall.compile(lambda x, y: (x * y).sin().sum(-1), options={"cache": "off"})
    sys.setprofile(note)
    try:
        compiled(torch.randn(4, 8), y).sum().backward()
    finally:
        sys.setprofile(None)
    assert y.grad is not None and not windfall.explanation(compiled).eager
    return list(dict.fromkeys(called))


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*documents(), ROOT / "CONTRIBUTING.md", *ROOT.glob("windfall/*/README.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)[^):]*\)", _prose(page))
        if not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)
