"""The shared machine code, function by function. `support.py` loads it; start reading at
`builtin_bodies.py`, and at `basics.py` for how a function is written."""
