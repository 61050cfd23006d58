"""A module that is called with other parameters, as Python."""

from __future__ import annotations

from typing import Any


def stateless(exchanged: Any, module: Any, arguments: Any, keywords: Any) -> Any:
    """`torch.func.functional_call`, while the registries hold the tensors that were given."""
    try:
        result = module(*arguments, **keywords)
    except BaseException as error:
        refuse_call(exchanged, error)
    return give_back(exchanged, result)


def refuse_call(exchanged: Any, error: Any) -> Any:
    """Has a rule: all is done natively, and raises what it raises."""


def give_back(exchanged: Any, result: Any) -> Any:
    """Has a rule: the registries hold what they held."""
