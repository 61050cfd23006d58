"""CPython's own tests of the language and its types, compiled.

    python -m tests.conformance.cpython [--files test_dict,test_set] [--between-tensors]
        [--only GeneratorTest] [--jobs 1] [--timeout 60] [--json F]

Enters: the `test` package of the interpreter that runs. Leaves: for each test method how it ends
uncompiled, compiled, and compiled between two tensor operations; a table, and the differences.
Invariant: a test counts as equal only where it ended in the same way (the same kind, the same
exception classes) as the uncompiled one in the same process.

`selection.py`: which files, and which tests are left out, with reasons; `child.py`: one file in a
process of its own; `sweep.py`: children, and what they found; `known.txt`: differences that are
known, with reasons.
"""
