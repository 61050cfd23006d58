"""Tables of names, written as one text.

>>> sorted(words("b a"))
['a', 'b']
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
