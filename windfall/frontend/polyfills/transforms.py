"""Transforms of `torch.func`, as Python: the function is interpreted once, then cut out."""

from __future__ import annotations

from typing import Any


def transformed(body: Any, function: Any, arguments: Any, keywords: Any) -> Any:
    """A function that was given to a transform, on what stands for its arguments."""
    try:
        result = function(*arguments, **keywords)
    except BaseException as error:
        refuse_body(body, error)
    return finish_transform(body, result)


def refuse_body(body: Any, error: Any) -> Any:
    """Has a rule: the transform is done natively, and raises what it raises."""


def finish_transform(body: Any, result: Any) -> Any:
    """Has a rule: what the transform answers."""
