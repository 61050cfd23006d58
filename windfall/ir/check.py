"""A condition on numbers that are read from data, checked where it stands in the program.

Enters: what is compared, the exception, and the code of its message. Leaves: a target of a node in
captured graphs: called with the two numbers, and with what the message's code closes over. It
raises as eager does, or answers None. Invariant: the message is computed only where it is raised.

    >>> DataCheck(">=", RuntimeError, None)(3, 0)
"""

from __future__ import annotations

import types
from typing import Any

from windfall.dataclass import dataclass
from windfall.ir.relation import COMPARISONS

# What torch says where the program says nothing.
_DEFAULT = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please "
    "report an enhancement request to PyTorch.)"
)


@dataclass(frozen=True, slots=True)
class Message:
    """A function without arguments that the program gave, apart from what it closes over."""

    code: types.CodeType
    globals: dict[str, Any]

    def text(self, held: tuple[Any, ...]) -> str:
        """What it says."""
        cells = tuple(map(types.CellType, held))
        return str(types.FunctionType(self.code, self.globals, None, None, cells)())


class DataCheck:
    """See the module."""

    def __init__(
        self,
        operation: str,
        error: type[Exception],
        message: Message | tuple[str, ...] | None,  # a tuple: the exception's arguments
    ) -> None:
        self.operation = operation
        self.error = error
        self.message = message
        self.__name__ = self.__qualname__ = f"check_{_WORDS[operation]}"
        self.__module__ = __name__

    def __call__(self, left: int, right: int, *held: Any) -> None:
        """Raise unless it is so."""
        if not COMPARISONS[self.operation](left, right):
            if isinstance(self.message, tuple):
                raise self.error(*self.message)
            raise self.error(_DEFAULT if self.message is None else self.message.text(held))


_WORDS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
