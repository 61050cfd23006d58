"""What a function behind `functools.lru_cache` is expected to answer.

Enters: the function, constants that it is called with, and what interpreting it has given. Leaves:
the object that the cache answers, asked for in each call before anything else is done. Invariant:
only the cache knows its answers (an argument that is equal to an earlier one, a global that was
another then), so another answer than the expected one ends the segment where it began, and eager
does the call (`GraphFailed`, ADR 90).
"""

from __future__ import annotations

from typing import Any, ClassVar

from windfall.dataclass import dataclass
from windfall.errors import GraphFailed
from windfall.ir.codec import record
from windfall.ir.constants import same_constant

_IMMUTABLE = (int, float, complex, bool, str, bytes, type(None))


@record
@dataclass(frozen=True, slots=True, eq=False)
class CachedAnswer:
    """A call of such a function, and its answer."""

    identities: ClassVar[tuple[str, ...]] = ("function",)

    function: Any
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    answer: Any

    def __call__(self) -> Any:
        """The cache's own object, if it is the expected one."""
        try:
            found = self.function(*self.arguments, **dict(self.keywords))
        except Exception as error:
            raise GraphFailed(f"{type(error).__name__}: {error}", error) from None
        if not same_constant(found, self.answer):
            raise GraphFailed(f"{self}, and its cache answers something else")
        return found

    def is_call(self, function: Any, arguments: Any, keywords: Any) -> bool:
        """Whether it is a call of that function with these constants."""
        return self.function is function and same_constant(
            (self.arguments, self.keywords), (arguments, keywords)
        )

    def __str__(self) -> str:
        named = (f"{name}={value!r}" for name, value in self.keywords)
        given = ", ".join((*map(repr, self.arguments), *named))
        return f"{self.function.__name__}({given}) is {self.answer!r}"


def is_immutable(value: Any) -> bool:
    """Whether a constant stays as it is, whoever has it."""
    if type(value) is tuple:
        return all(map(is_immutable, value))
    return type(value) in _IMMUTABLE
