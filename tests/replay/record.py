"""python -m tests.replay.record OUT [--only TEXT]: what the windfall on the path makes of it all.

Enters: names of items. Leaves: a file with one JSON line for each item: its sections (log, subject,
text) in the order in which stages ran, and last what it answered. Invariant: the texts are those of
`logs=`, which every commit has; two runs of one commit write equal files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch

import windfall
from tests.golden import normalised
from tests.replay.corpus import Item, corpus
from tests.replay.described import described

# Not `loops`: kernels print the same, scheduled.
LOGS = "graph,guards,breaks,source,joint,split,kernels,llvm,fallbacks,recompiles,evictions"
_HEAD = re.compile(r"^\[windfall\] (\w+) of (.*)$", re.MULTILINE)
# Addresses of this process, as decimal numbers: heap, then libraries and stacks.
_ADDRESS = re.compile(r"\b(?:9[3-4]\d{12}|1[34]\d{13})\b")

Section = tuple[str, str, str]


def sections(item: Item) -> list[Section]:
    """What each stage printed of one item, and what it answered."""
    printed = io.StringIO()
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    with contextlib.redirect_stderr(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answer = "\n".join(
                described(one)
                for one in item.run(lambda f: windfall.compile(f, options={"logs": LOGS}))
            )
        except Exception as error:  # the other commit has to raise the same
            answer = described(error)
    return [*_divided(printed.getvalue()), ("answer", item.name, _smooth(answer))]


def _smooth(text: str) -> str:
    return _ADDRESS.sub("ADDRESS", normalised(text))


def _divided(text: str) -> Iterator[Section]:
    heads = list(_HEAD.finditer(text))
    ends = [one.start() for one in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield head[1], _smooth(head[2]).strip(), _smooth(text[head.end() : end])


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay.record", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="items whose name has this in it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # sums do not depend on the machine's load
    with chosen.out.open("w", encoding="utf-8") as out:
        for item in corpus():
            if chosen.only in item.name:
                out.write(json.dumps({"item": item.name, "sections": sections(item)}) + "\n")


if __name__ == "__main__":
    main()
