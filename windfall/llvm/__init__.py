"""LLVM text, written by calls: values, instructions, branches, loops, functions, structures.

Enters: calls such as `code.binary("add", a, b)` or `with code.repeat(begin, end) as loop`. Leaves:
the text of a module, for `jit.py`. Kernels (`codegen`) and the machine code that all entries share
(`runtime/machine`) are written with it; who writes names no block and no phi: control flow nests,
and what it carries or joins is given and answered as values.

Invariant: a value is written once, before every use of it.

    >>> assembly = Assembly()
    >>> with assembly.function("sum", "i64", "ptr", "i64", exported=True) as code:
    ...     numbers, count = code.parameters
    ...     with code.repeat(ZERO, count, start=[ZERO]) as loop:
    ...         (total,) = loop.carried
    ...         loop.carry(code.binary("add", total, code.word(numbers, loop.index)))
    ...     code.ret(loop.results[0])
    >>> jit.load(assembly.text()).address("sum")
"""

from __future__ import annotations

from windfall.llvm.code import Assembly, Cases, Code, CountedLoop, Fields
from windfall.llvm.values import (
    BITS,
    FALSE,
    NULL,
    TRUE,
    ZERO,
    Struct,
    Value,
    align_of,
    integer,
    literal,
    mangled,
    vector,
)

__all__ = [
    "BITS",
    "FALSE",
    "NULL",
    "TRUE",
    "ZERO",
    "Assembly",
    "Cases",
    "Code",
    "CountedLoop",
    "Fields",
    "Struct",
    "Value",
    "align_of",
    "integer",
    "literal",
    "mangled",
    "vector",
]
