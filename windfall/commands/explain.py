"""`windfall explain MODULE:FUNCTION ARGUMENTS…`: what happens to a function when it is compiled.

Enters: where a function is found, and expressions for its arguments, which see `torch` and the
module's own names. Leaves: its explanation. Invariant: the function is called once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

import torch

from windfall import api
from windfall.commands.verb import Answer, Verb
from windfall.errors import UserError


def resolved(place: str) -> Any:
    """The function at `module:path`."""
    module, _, path = place.partition(":")
    if not path:
        raise UserError(f"{place!r} is no place of a function: write MODULE:FUNCTION")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{place}: {error}") from error
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """A function and what it is called with: what several verbs take."""
    parser.add_argument("place", metavar="MODULE:FUNCTION")
    parser.add_argument(
        "expressions", nargs="*", metavar="ARGUMENT", help="Python, such as 'torch.randn(2, 3)'"
    )


def called_with(given: argparse.Namespace) -> tuple[Any, list[Any]]:
    """The function of the command line, and its arguments."""
    function = resolved(given.place)
    names = {**vars(sys.modules[given.place.partition(":")[0]]), "torch": torch}
    try:
        args = [eval(one, names) for one in given.expressions]
    except Exception as error:
        raise UserError(f"an argument raised {type(error).__name__}: {error}") from error
    return function, args


def _run(given: argparse.Namespace) -> Answer:
    function, args = called_with(given)
    told = api.explain(function)(*args)
    return Answer(str(told), told.to_dict())


VERB = Verb("explain", "compile a function, call it once, tell what happened", arguments, _run)
