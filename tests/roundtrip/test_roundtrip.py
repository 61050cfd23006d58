"""Records of golden programs, of some op samples and of small models come back from plain data.

The whole corpus: `make conformance`, or `python -m tests.roundtrip`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import torch

from tests.roundtrip.check import Report, check
from tests.roundtrip.child import run_elsewhere
from tests.roundtrip.corpus import Item, corpus, records
from windfall.ir.stages import Program

EACH_OP = 40  # of so many, one is among the quick tests


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the other process: sums depend on how many threads there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _checked(items: Iterable[Item]) -> Report:
    report = Report()
    for item in items:
        check(item.name, *records(item), report)
    run_elsewhere(report)
    assert report.wrong == []
    return report


def _items(start: str) -> list[Item]:
    return [item for item in corpus() if item.name.startswith(start)]


def test_golden_programs() -> None:
    """And an answer that is another one is seen."""
    report = Report()
    for item in _items("golden ")[::3]:
        check(item.name, *records(item), report)
    assert report.wrong == []
    entries = [one for one in report.tasks if one.golden]
    assert report.stored.total() > 150 and len(entries) > 8
    wrong = [replace(one, answer="another") for one in (report.tasks[0], entries[0])]
    report.tasks += wrong
    run_elsewhere(report)
    assert [one.split(": in")[0] for one in report.wrong] == [one.where for one in wrong]


def test_some_op_samples() -> None:
    assert _checked(_items("op ")[::EACH_OP]).stored["Program"] > 15


def test_small_models() -> None:
    """Forward, backward, and both around them."""
    report = _checked([one for one in _items("model tiny") if one.name.endswith("training")])
    assert report.stored["Program"] == 6 and len(report.tasks) == 9


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["golden ", "op ", "model "])
def test_everything(kind: str) -> None:
    _checked(_items(kind))


def test_what_was_made_of_a_graph_may_not_be_unstorable() -> None:
    (item,) = _items("golden pointwise")
    labelled, answers = records(item)
    (program,) = (record for _, record, _ in labelled if isinstance(record, Program))
    broken = replace(program, errors={1: (type("Local", (Exception,), {}), "said")})
    check("here", [("build", broken, {})], answers, report := Report())
    assert len(report.wrong) == 1 and "cannot be stored" in report.wrong[0]
    assert torch.is_tensor(answers[0])
