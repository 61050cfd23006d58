"""Where machine code finds things: the words of blocks and plans, and CPython's type flags.

Python writes these tables (`words.py`), the functions of this folder read them, both by the same
declaration. (The words of a record stand at the step that reads it.)
"""

from __future__ import annotations

from windfall.llvm import Struct

# The block of a check or an entry.
BLOCK = Struct(
    "slots slot_cells* start* rest* miss* plan* body* input_count input_cells* clock* last*"
    " symbol_cells*"
)
# The block of a dispatcher.
DISPATCHER = Struct("entries* slow* no_entry* asked* failed*")
# How to run a program. A quantity (`name?`) that varies is a place in the table of sizes, in bytes.
PLAN = Struct(
    "buffers template*"  # the buffer table, constants filled in
    " inputs input_rows* fresh fresh_rows* arena_bytes? arena_count arena_rows* step*"
    " touched?"  # how many bytes the program looks at
    " objects object_rows* structure order_count order* errors error_rows* other_error* other_text*"
    " as_strided* unfit* rings"  # whether results are recycled
    " table_words table*"  # the table of sizes as it starts; 0 words: nothing varies, it is null
    " symbols symbol_places*"  # where in the table their values go
    " instructions instruction_rows*"
)
INPUT_ROW = Struct(
    "position buffer item elements?"  # bytes of an element; 0: a float
    " checked dtype rank sizes strides varies"  # what is checked; else the guards did
)
# Addresses of sizes and strides, or, where they vary, places in the table.
FRESH_ROW = Struct("buffer dtype rank sizes strides varies item bytes? keep ring*")
ARENA_ROW = Struct("buffer offset?")
# Sizes and strides: tuples, or, where they vary, places in the table.
OBJECT_ROW = Struct("kind index sizes strides offset? varies rank")
ERROR_ROW = Struct("code class* text*")
UNFIT = "a tensor is not what the graph was compiled for"
# A program that touches this many bytes runs long enough for other threads to be let in.
RELEASE_BYTES = 1 << 20
# Kinds of objects that a run makes.
NOTHING, INPUT, INPUT_VIEW, RESULT, OBJECT_VIEW = range(5)
# The error that says that there is no memory for a run; codes of steps are small.
NO_MEMORY = 1 << 30
# Structures of what a run returns.
LEAF, TUPLE, LIST = range(3)

LIST_FLAG, TUPLE_FLAG, DICT_FLAG, TYPE_FLAG = 1 << 25, 1 << 26, 1 << 29, 1 << 31  # of CPython types
