"""What drivers and thread bodies say to OpenMP.

Enters: a function under construction. Leaves: calls of the OpenMP library that torch has loaded, so
that both use one pool of threads. Invariant: inside of a team no further threads are started.
"""

from __future__ import annotations

from windfall.llvm import Code, Value, integer


def count(code: Code, most: Value) -> Value:
    """How many threads to start here, at most so many; 1 inside of a team."""
    allowed = code.call("omp_get_max_threads", "i32")
    nested = code.different(code.call("omp_in_parallel", "i32"), 0)
    few = code.select(code.compare("icmp slt", allowed, most), allowed, most)
    return code.select(nested, integer(1, "i32"), few)


def start(code: Code, function: str, block: Value, count: Value) -> None:
    """Call `void function(ptr block)` on so many threads."""
    body = Value(f"@{function}", "ptr")
    code.call("GOMP_parallel", "void", body, block, count, integer(0, "i32"))


def share(code: Code, count: Value) -> tuple[Value, Value]:
    """The part of `count` iterations that is this thread's: its begin and its end."""
    thread = code.call("omp_get_thread_num", "i32")
    team = code.call("omp_get_num_threads", "i32")
    own = code.convert("zext", thread, "i64")
    size = code.convert("zext", team, "i64")
    ends = [code.binary("mul", one, count) for one in (own, code.binary("add", own, 1))]
    first, last = (code.binary("udiv", one, size) for one in ends)
    return first, last
