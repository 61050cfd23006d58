"""Context managers of the public surface that compiled code enters: they are interpreted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from windfall.directives import set_breaks_are_errors


class error_on_graph_break:
    """Inside of it (`with`, or a decorated function) a break is an error, or (`False`) is not.

    It is looked at when a part of a program is compiled. `fullgraph=True` stands above it.
    """

    def __init__(self, error: bool) -> None:
        self.error = bool(error)

    def __enter__(self) -> None:
        self.before = set_breaks_are_errors(self.error)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        set_breaks_are_errors(self.before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, always run inside of it."""
        error = self.error

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(error):
                return function(*args, **kwargs)

        return inside
