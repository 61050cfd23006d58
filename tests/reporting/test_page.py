"""The HTML report: what stands in it, that it holds together, and that a browser shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from tests.reporting.page_parser import PageParser
from windfall.errors import UserError
from windfall.reporting.compilations import history_of
from windfall.reporting.markup import Markup, counted, escaped, prose, tag
from windfall.reporting.page import Page

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Broken(torch.nn.Module):
    """Has a break, a graph on either side of it, and gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.softmax(self.first(x), -1)
        print(end="")
        y: torch.Tensor = self.second(x).sum()
        return y


def refused(x: torch.Tensor, words: Any) -> torch.Tensor:
    return x.sin() if words in {"<script>alert(1)</script>"} else x.cos()


def written(tmp_path: Path, *compiled: Any) -> PageParser:
    path = windfall.report(tmp_path / "out.html", *compiled)
    return PageParser(Path(path).read_text(encoding="utf-8"))


def trained(**options: Any) -> Any:
    compiled = windfall.compile(Broken(), options=options)
    for rows in (3, 5, 6):
        compiled(torch.randn(rows, 4)).backward()
    return compiled


def holds_together(page: PageParser) -> None:
    assert not page.unbalanced
    assert len(page.ids) == len(set(page.ids)), "an id stands twice"
    assert page.links, "nothing is linked"
    assert all(link.startswith("#") for link in page.links), "a link leads out of the file"
    assert {link[1:] for link in page.links} <= set(page.ids), "a link without a target"
    assert not page.fetched, "something is fetched"


def test_it_tells_everything(tmp_path: Path) -> None:
    compiled = trained(records=True)
    page = written(tmp_path, compiled)
    holds_together(page)
    break_ = windfall.explanation(compiled).breaks[0]
    for word in (
        *(f"W{break_.number:04d}", break_.hint, "test_page.py", "print(end="),  # breaks, lines
        *("Compiled again", "expected f32[3, 4]", "got f32[5, 4]"),  # recompilations
        *("must hold", "L['x']", "torch._C._nn.linear", "softmax"),  # guards, graphs
        *("Generated Python", "def "),  # source
        *("Memory plan", "kernel0", "Loops", "LLVM", "define"),  # programs
        *("Time by stage", "differentiate", "Compile tree", "backward"),
        *("Graph trees", "Nothing ran eagerly but steps at breaks"),
        *(windfall.__version__, torch.__version__),
    ):
        assert word in page.text, word
    assert "svg" in page.tags and "rect" in page.tags  # the memory plan's picture


def test_kernels_and_lines_lead_to_each_other(tmp_path: Path) -> None:
    page = written(tmp_path, trained())
    lines = [one for one in page.links if one.startswith("#line-")]
    kernels = [one for one in page.links if "-kernel-" in one]
    assert lines and kernels
    holds_together(page)


def test_without_records_it_says_what_is_missing(tmp_path: Path) -> None:
    page = written(tmp_path, trained())
    assert "WINDFALL_REPORT" in page.text and "LLVM" not in page.text
    assert "arena of" in page.text  # how large, is known all the same


def test_what_ran_eagerly_is_told_and_text_of_the_user_is_escaped(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)> & co"
    compiled = windfall.compile(refused, name=name)
    for words in ("<script>alert(1)</script>", "plain"):
        compiled(X, words)
    page = written(tmp_path, compiled)
    holds_together(page)
    assert name in page.text and "img" not in page.tags
    assert page.tags.count("script") == 1  # our own
    with windfall.set_stance("eager_on_recompile"):
        compiled(X.double(), "plain")
    page = written(tmp_path, compiled)
    assert "stance eager_on_recompile" in page.text and "Ran eagerly" in page.text


def test_a_process_reports_all_that_is_alive(tmp_path: Path) -> None:
    names = [f"one-{number}-of-three" for number in range(3)]
    first, second, silent = (windfall.compile(lambda x: x.sin(), name=name) for name in names)
    first(X)
    second(X)
    page = written(tmp_path)
    holds_together(page)
    assert [name in page.text for name in names] == [True, True, False]  # the last was not called
    page = written(tmp_path, second)
    assert [name in page.text for name in names] == [False, True, False]
    del silent


def test_every_stage_belongs_to_one_compilation() -> None:
    told = windfall.explanation(trained(records=True))
    history = history_of("it", told)
    stages = [one for one in told.events if one.kind.is_stage]
    owned = [event for one in history.compilations for event in one.stages]
    assert len(owned) + len(history.others) == len(stages)
    assert not history.others
    with_graph = [one for one in history.compilations if one.capture is not None]
    assert [len(one.programs) for one in with_graph] == [2] * len(with_graph)


def test_a_graph_from_the_cache_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WINDFALL_CACHE_DIR", str(folder))
    monkeypatch.setenv("WINDFALL_CACHE", "on")

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 3

    windfall.compile(program)(X)
    again = windfall.compile(program)
    again(X)
    page = written(tmp_path, again)
    assert "Cache on disk found 1" in page.text and "from the cache" in page.text


def test_backward_passes_of_the_engine_are_told(tmp_path: Path) -> None:
    weight = torch.ones(3, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        for _ in range(3):
            (weight.exp() * 2).sum().backward()
    told = passes.explanation()
    assert told.passes
    page = PageParser(Page([history_of("passes", told)], "1").text())
    holds_together(page)
    assert "Backward passes" in page.text


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        windfall.report(tmp_path / "missing" / "out.html")


def test_an_empty_process_has_a_report_too() -> None:
    page = PageParser(Page([], "1").text())
    assert "Nothing has been compiled" in page.text


SCRIPT = """
import torch, windfall
def main():
    f = windfall.compile(lambda x: (x * 2).relu().sum(), name="of the script")
    f(torch.ones(3, 4))
main()
"""


def test_a_process_writes_it_when_it_ends(tmp_path: Path) -> None:
    """Also of objects that are gone by then."""
    out = tmp_path / "of-%p.html"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2],
        env={"WINDFALL_REPORT": str(out), "WINDFALL_CACHE": "off", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("of-*.html")
    assert re.fullmatch(r"of-\d+\.html", file.name) and str(file) in done.stderr
    page = PageParser(file.read_text(encoding="utf-8"))
    holds_together(page)
    assert "of the script" in page.text and "LLVM" in page.text


def test_markup() -> None:
    assert tag("p", "a < b", tag("b", "&"), None, title='"') == (
        '<p title="&quot;">a &lt; b<b>&amp;</b></p>'
    )
    assert escaped(["<", Markup("<i>")]) == "&lt;<i>"
    assert tag("input", data_part=True, class_=None, open=False) == "<input data-part>"


def test_prose_and_counts() -> None:
    assert escaped(prose("use `item()` < later")) == "use <code>item()</code> &lt; later"
    assert prose("one ` alone") == ["one ` alone"]
    assert [counted(n, "time", "times") for n in (0, 1, 2)] == ["0 times", "1 time", "2 times"]


def test_breaks_are_counted_by_place(tmp_path: Path) -> None:
    """One break that two entries end in is one, above and below; no backtick is left in prose."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print(end="")
        return y * 2

    function = windfall.compile(broken, options={"records": True})
    for rows in (2, 3, 5):
        function(torch.ones(rows, 3, dtype=torch.float64 if rows == 5 else torch.float32))
    text = Path(windfall.report(tmp_path / "out.html", function)).read_text(encoding="utf-8")
    assert "Breaks (1)" in text and re.search(r"<b>1</b>breaks", text)
    boxes = re.findall(r'<div class="break".*?</div>', text, re.DOTALL)
    assert len(boxes) == 1 and "`" not in boxes[0]


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Asks of the page what a reader would notice; the answers stand in its title.
ASKS = """
<script>
const answers = [];
const all = what => [...document.querySelectorAll(what)];
const details = () => all("details").filter(one => !one.closest(".gone"));
answers.push(details().length);
field.value = "softmax"; field.dispatchEvent(new Event("input"));
answers.push(details().length);
field.value = "no such words"; field.dispatchEvent(new Event("input"));
answers.push(details().length);
field.value = ""; field.dispatchEvent(new Event("input"));
answers.push(details().length);
location.hash = all("a").map(one => one.hash).find(one => one.includes("kernel"));
follow();
answers.push(+(document.querySelector(":target").getClientRects().length > 0));
answers.push(+(document.documentElement.scrollWidth <= innerWidth));
document.title = "answers " + answers.join(" ");
</script>
"""


@pytest.mark.conformance
@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")
@pytest.mark.parametrize("width", [500, 1200])  # chromium has no narrower window
def test_in_a_browser(tmp_path: Path, width: int) -> None:
    """The search hides and shows, a link opens what it leads to, nothing is wider than the window,
    and both colour schemes give a picture."""
    path = Path(windfall.report(tmp_path / "out.html", trained(records=True)))
    asked = tmp_path / "asked.html"
    asked.write_text(path.read_text(encoding="utf-8").replace("</body>", ASKS + "</body>"))
    common = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu",
              f"--window-size={width},900", "--virtual-time-budget=3000",
              f"--user-data-dir={tmp_path / 'profile'}"]  # fmt: skip
    dumped = subprocess.run(
        [*common, "--dump-dom", asked.as_uri()], capture_output=True, text=True, timeout=120
    ).stdout
    found = re.search(r"<title>answers ([\d ]+)</title>", dumped)
    assert found, dumped[:500]
    everything, some, none, again, shown, fits = map(int, found[1].split())
    assert everything > some > 0 == none and again == everything
    assert shown and fits
    pictures = []
    for dark in ([], ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]):
        picture = tmp_path / f"{len(pictures)}.png"
        subprocess.run(
            [*common, *dark, f"--screenshot={picture}", path.as_uri()],
            capture_output=True, timeout=120, check=True,
        )  # fmt: skip
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1] and all(one.startswith(b"\x89PNG") for one in pictures)
