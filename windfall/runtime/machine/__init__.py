"""The shared machine code, as LLVM text. `support.py` loads it; start reading at `builtins.py`."""
