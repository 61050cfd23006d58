"""`windfall bisect MODULE:FUNCTION ARGUMENTS… [-o FILE]`: where eager and compiled part.

Enters: what `explain` takes, and a file. Leaves: the finding; where something goes wrong, the exit
code 1 and a program that shows it, in the file. Invariant: the function runs on copies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from windfall import api
from windfall.commands import explain
from windfall.commands.verb import Answer, Verb
from windfall.errors import UserError


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", default="windfall-bisect.py", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=110.0, help="how long it may look")
    explain.arguments(parser)


def _run(given: argparse.Namespace) -> Answer:
    function, args = explain.called_with(given)
    found = api.bisect(function, tuple(args), seconds=given.seconds)
    if not found.found:
        return Answer(str(found), found.to_dict())
    try:
        Path(given.output).write_text(found.program, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{given.output} cannot be written: {error.strerror}") from error
    text = f"{found}\nshown by: {given.output}"
    return Answer(text, {**found.to_dict(), "file": given.output}, 1)


VERB = Verb("bisect", "which stage, graph and operation goes wrong", _arguments, _run)
