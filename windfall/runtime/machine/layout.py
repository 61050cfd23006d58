"""Where machine code finds things: the words of blocks and plans, and CPython's type flags.

Python writes these tables (`words.py`), the LLVM text of this folder reads them.
"""

from __future__ import annotations

# Words of the block of a check or an entry.
SLOTS, SLOT_CELLS, START, REST, MISS, PLAN, BODY, INPUT_COUNT, INPUT_CELLS = range(9)
# Words of the block of a dispatcher.
ENTRIES, SLOW, NO_ENTRY, PREFIX_COUNT, PREFIX = range(5)
# Words of a plan: how to run a program.
(
    BUFFERS,
    TEMPLATE,  # the buffer table, constants filled in
    INPUTS,
    INPUT_ROWS,  # position, buffer, bytes of an element, elements
    FRESH,
    FRESH_ROWS,  # buffer, rank, sizes, strides, dtype
    ARENA_BYTES,
    ARENA_COUNT,
    ARENA_ROWS,  # buffer, offset
    STEP,
    RELEASE,  # whether to release the GIL
    OBJECTS,
    OBJECT_ROWS,  # kind, index, sizes, strides, offset
    STRUCTURE,
    ORDER_COUNT,
    ORDER,
    ERRORS,
    ERROR_ROWS,  # code, exception class, text
    OTHER_ERROR,
    OTHER_TEXT,
    AS_STRIDED,
) = range(21)
OBJECT_ROW_WORDS = 5
# Kinds of objects that a run makes.
NOTHING, INPUT, INPUT_VIEW, RESULT, OBJECT_VIEW = range(5)
# Structures of what a run returns.
LEAF, TUPLE, LIST = range(3)

LIST_FLAG, TUPLE_FLAG, DICT_FLAG, TYPE_FLAG = 1 << 25, 1 << 26, 1 << 29, 1 << 31  # of CPython types
