"""Handlers of the bytecode, by family; `table.py` first."""

from windfall.frontend.opcodes import (  # noqa: F401  (each import fills the table)
    calls,
    control,
    displays,
    exceptions,
    operators,
    stack,
)
