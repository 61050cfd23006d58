"""Models of transformers, made from tiny configurations (`architectures.py`), used and trained."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.architectures import ARCHITECTURES, BY_NAME
from tests.conformance.checking import Made, check_one
from tests.conformance.sweep import Line


def names() -> list[str]:
    """Each model, to be used and to be trained."""
    return [f"{row.name}:{mode}" for row in ARCHITECTURES for mode in ("eval", "train")]


def check(name: str, backend: str, line: Line) -> None:
    """One model; with gradients when it is trained as native code."""
    model, _, mode = name.partition(":")
    check_one(maker(model, mode == "train"), backend, line)


def maker(name: str, training: bool) -> Callable[[], Made]:
    """Equal models, again and again."""
    row = BY_NAME[name]

    def make() -> Made:
        return row.build(training), (), row.inputs()

    return make
