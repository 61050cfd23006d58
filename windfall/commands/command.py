"""`windfall VERB …`: which verbs there are, what they take, how they end.

Enters: the words of the command line. Leaves: an exit code: 0 all is well, 1 something is not (it
was said), 2 the words are wrong. Invariant: a verb answers an `Answer`, printed as text or, with
`--json`, as one JSON object on standard output; what the user got wrong is one line on standard
error, never a traceback of ours.

A new verb is a module with `VERB = Verb(…)`, and a row of `VERBS`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from windfall.commands import bench, bisect, cache, doctor, explain, report, run
from windfall.commands.verb import Answer, Verb
from windfall.errors import UserError
from windfall.version import VERSION

VERBS: tuple[Verb, ...] = (
    doctor.VERB,
    run.VERB,
    explain.VERB,
    report.VERB,
    bench.VERB,
    bisect.VERB,
    cache.VERB,
)


def main(words: Sequence[str] | None = None) -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser("windfall", description="A compiler for PyTorch programs.")
    parser.add_argument("--version", action="version", version=f"windfall {VERSION}")
    parser.add_argument("--json", action="store_true", help="answer one JSON object")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        added = verbs.add_parser(verb.name, help=verb.help, description=verb.help)
        added.add_argument("--json", action="store_true", default=argparse.SUPPRESS,
                           help="answer one JSON object")  # fmt: skip
        verb.arguments(added)
        added.set_defaults(run=verb.run)
    given = parser.parse_args(words)
    try:
        answer: Answer = given.run(given)
    except UserError as error:
        print(f"windfall {given.verb}: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(answer.data, default=str))
    elif answer.text:
        print(answer.text)
    return answer.code
