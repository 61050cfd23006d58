"""`windfall report MODULE:FUNCTION ARGUMENTS… [-o FILE]`: the HTML report of one function.

Enters: what `explain` takes, and a file. Leaves: the file, and where it is. Invariant: the function
is compiled with all records kept and called once; the report tells of it alone. For a whole script:
`windfall run --report FILE script.py`.
"""

from __future__ import annotations

import argparse

from windfall import api
from windfall.commands import explain
from windfall.commands.verb import Answer, Verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", default="windfall-report.html", metavar="FILE")
    parser.add_argument("--timeline", metavar="FILE", help="also write a trace for Perfetto")
    explain.arguments(parser)


def _run(given: argparse.Namespace) -> Answer:
    function, args = explain.called_with(given)
    compiled = api.compile(function, options={"records": True, "runs": True})
    compiled(*args)
    said = {"report": api.report(given.output, compiled)}
    if given.timeline:
        said["timeline"] = api.timeline(given.timeline, compiled)
    return Answer("\n".join(f"{what}: {path}" for what, path in said.items()), said)


VERB = Verb("report", "compile a function, call it once, write an HTML report", _arguments, _run)
