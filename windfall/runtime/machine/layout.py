"""Where machine code finds things: the words of blocks and plans, and CPython's type flags.

Python writes these tables (`words.py`), the LLVM text of this folder reads them.
"""

from __future__ import annotations

# Words of the block of a check or an entry.
SLOTS, SLOT_CELLS, START, REST, MISS, PLAN, BODY, INPUT_COUNT, INPUT_CELLS, CLOCK, LAST = range(11)
SYMBOL_CELLS = 11
BLOCK_WORDS = 12
# Words of the block of a dispatcher.
ENTRIES, SLOW, NO_ENTRY, ASKED, FAILED = range(5)
# Words of a plan: how to run a program. A quantity is two words: a number and 0, or a place in the
# table of sizes, in bytes, and 1.
(
    BUFFERS,
    TEMPLATE,  # the buffer table, constants filled in
    INPUTS,
    INPUT_ROWS,  # position, buffer, bytes of an element (0: a float), elements (a quantity)
    FRESH,
    FRESH_ROWS,  # buffer, rank, sizes, strides, dtype, sizes in the table?, bytes (2 words), keep?
    ARENA_BYTES,  # a quantity
    ARENA_BYTES_MOVE,
    ARENA_COUNT,
    ARENA_ROWS,  # buffer, offset (a quantity)
    STEP,
    TOUCHED,  # how many bytes the program looks at (a quantity)
    TOUCHED_MOVES,
    OBJECTS,
    OBJECT_ROWS,  # kind, index, sizes, strides, offset (a quantity), sizes in the table?, rank
    STRUCTURE,
    ORDER_COUNT,
    ORDER,
    ERRORS,
    ERROR_ROWS,  # code, exception class, text
    OTHER_ERROR,
    OTHER_TEXT,
    AS_STRIDED,
    TABLE_WORDS,  # of the table of sizes; 0: nothing varies, and kernels are given null
    TABLE,  # what it starts as
    SYMBOLS,
    SYMBOL_PLACES,  # where in the table their values go
    INSTRUCTIONS,
    INSTRUCTION_ROWS,
) = range(29)
INPUT_ROW_WORDS, FRESH_ROW_WORDS, ARENA_ROW_WORDS, OBJECT_ROW_WORDS = 5, 9, 3, 8
# A program that touches this many bytes runs long enough for other threads to be let in.
RELEASE_BYTES = 1 << 20
# Kinds of objects that a run makes.
NOTHING, INPUT, INPUT_VIEW, RESULT, OBJECT_VIEW = range(5)
# The error that says that there is no memory for a run; codes of steps are small.
NO_MEMORY = 1 << 30
# Structures of what a run returns.
LEAF, TUPLE, LIST = range(3)

LIST_FLAG, TUPLE_FLAG, DICT_FLAG, TYPE_FLAG = 1 << 25, 1 << 26, 1 << 29, 1 << 31  # of CPython types
