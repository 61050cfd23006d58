"""How mappings are filled, as Python."""

from __future__ import annotations

from typing import Any


def fill_mapping(mapping: Any, other: Any, keywords: Any) -> None:
    """`OrderedDict.update(mapping, other, **keywords)`."""
    if isinstance(other, dict):
        for key in other:
            mapping[key] = other[key]
    elif hasattr(other, "keys"):
        for key in other.keys():  # noqa: SIM118  (not `other.__iter__`)
            mapping[key] = other[key]
    else:
        for pair in other:
            key, value = pair
            mapping[key] = value
    for key in keywords:
        mapping[key] = keywords[key]


def filled_mapping(mapping: Any, arguments: Any, keywords: Any) -> Any:
    """A new `OrderedDict` of the user's class, filled as its `__init__` does."""
    fill_mapping(mapping, arguments[0] if arguments else (), keywords)
    return mapping


def filled_with_pairs(mapping: Any, pairs: Any, keywords: Any) -> Any:
    """The mapping behind `dict.update(mapping, pairs, **keywords)`, of pairs that interpreted code
    gives."""
    number = -1
    for pair in pairs:
        number += 1
        refused = False
        try:
            parts = tuple(pair)
        except TypeError:
            refused = True
        if refused:
            text = f"cannot convert dictionary update sequence element #{number} to a sequence"
            raise TypeError(text)
        if len(parts) != 2:
            text = f"dictionary update sequence element #{number} has length {len(parts)}"
            raise ValueError(f"{text}; 2 is required")
        mapping[parts[0]] = parts[1]
    for key in keywords:
        mapping[key] = keywords[key]
    return mapping


def update_with_pairs(mapping: Any, pairs: Any, keywords: Any) -> None:
    """`dict.update(mapping, pairs, **keywords)`: likewise."""
    filled_with_pairs(mapping, pairs, keywords)


def dict_fromkeys(keys: Any, value: Any) -> Any:
    """`dict.fromkeys(keys, value)`."""
    made = {}
    for key in keys:
        made[key] = value
    return made
