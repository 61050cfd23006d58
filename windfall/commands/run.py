"""`windfall run SCRIPT …`: an unmodified script, whose `torch.compile` is windfall's.

Enters: a script (or `-m MODULE`) and its arguments. Leaves: what the script does; its exit code.
Invariant: the script sees itself as `__main__` with its own `sys.argv` and path; torch's own
compiler is never asked. A backend that the script names is asked for only if it is its own
callable.
"""

from __future__ import annotations

import argparse
import functools
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from windfall import api
from windfall.commands.verb import Answer, Verb
from windfall.errors import UserError

# Names of torch.compile's own backends: what they would do is done by windfall.
_TORCH_BACKENDS = ("inductor", "aot_eager", "cudagraphs", "eager", "aot_eager_decomp_partition")


class Served:
    """What stands for `torch.compile`, and counts."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self.count = 0
        self._options = options or {}  # beside those of the script

    def compile(
        self, model: Any = None, *, backend: Any = None, options: Any = None, **arguments: Any
    ) -> Any:
        """As `windfall.compile`."""
        if model is None:
            return functools.partial(self.compile, backend=backend, options=options, **arguments)
        self.count += 1
        if isinstance(backend, str) and backend in _TORCH_BACKENDS:
            backend = None
        options = {**(options or {}), **self._options}
        return api.compile(model, backend=backend, options=options, **arguments)


@contextmanager
def serving(options: dict[str, Any] | None = None) -> Iterator[Served]:
    """While entered, `torch.compile` is windfall's, with these options."""
    served, before = Served(options), torch.compile
    torch.compile = served.compile
    try:
        yield served
    finally:
        torch.compile = before


@contextmanager
def _seen_as(words: Sequence[str], folder: str) -> Iterator[None]:
    argv, path = sys.argv, list(sys.path)
    sys.argv = list(words)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", metavar="MODULE", help="a module instead of a script")
    parser.add_argument("--report", metavar="FILE", help="write an HTML report when it ends")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT …")


def _run(given: argparse.Namespace) -> Answer:
    words = given.words
    start: Callable[[], Any]
    if given.module:
        argv, folder = [given.module, *words], os.getcwd()
        start = functools.partial(
            runpy.run_module, given.module, run_name="__main__", alter_sys=True
        )
    else:
        if not words:
            raise UserError("which script? See --help")
        if not os.path.isfile(words[0]):
            raise UserError(f"{words[0]} is no script; see --help")
        argv, folder = words, os.path.dirname(os.path.abspath(words[0]))
        start = functools.partial(runpy.run_path, words[0], run_name="__main__")
    code = 0
    options = {"report": given.report} if given.report else None
    with serving(options) as served, _seen_as(argv, folder):
        try:
            start()
        except SystemExit as left:
            code = _exit_code(left)
    return Answer("", {"compiled": served.count, "exit": code}, code)


def _exit_code(left: SystemExit) -> int:
    if left.code is None or isinstance(left.code, int):
        return left.code or 0
    print(left.code, file=sys.stderr)
    return 1


VERB = Verb("run", "run a script; its torch.compile is windfall's", _arguments, _run)
