"""Higher-order functions of torch, as Python: bodies are interpreted once each, then cut out.

Each body stands between `begin_body` and `end_body`; what it did in between becomes a graph of its
own, and `finish_...` puts one node into the graph that holds all of them.
"""

from __future__ import annotations

from typing import Any


def branch(flag: Any, true_function: Any, false_function: Any, operands: Any) -> Any:
    """`torch.cond`."""
    bodies = begin_bodies("torch.cond")
    begin_body(bodies)
    result = true_function(*operands)
    end_body(bodies, result)
    begin_body(bodies)
    result = false_function(*operands)
    end_body(bodies, result)
    return finish_branch(bodies, flag)


def scan(combine: Any, init: Any, xs: Any, dim: Any, reverse: Any) -> Any:
    """`scan` of torch's higher-order operations."""
    bodies = begin_bodies("scan")
    begin_loop(bodies, init, xs, dim, reverse)
    done = False
    while not done:  # until it is known of all that is carried whether it needs a gradient
        carried, slices = begin_round(bodies)
        begin_body(bodies)
        result = combine(carried, slices)
        end_body(bodies, result)
        done = end_round(bodies)
    return finish_scan(bodies)


def map_over(function: Any, xs: Any, arguments: Any) -> Any:
    """`map` of torch's higher-order operations."""
    bodies = begin_bodies("map")
    begin_loop(bodies, (), xs, 0, False)
    _, slices = begin_round(bodies)
    begin_body(bodies)
    result = function(slices, *arguments)
    end_body(bodies, ((), result))
    end_round(bodies)
    return finish_scan(bodies)[1]


def associative_scan(combine: Any, xs: Any, dim: Any, reverse: Any) -> Any:
    """`associative_scan` of torch's higher-order operations: the first, then what is carried."""
    bodies = begin_bodies("associative_scan")
    begin_loop(bodies, (), xs, dim, reverse)
    done = False
    while not done:
        carried, slices = begin_round(bodies)
        begin_body(bodies)
        result = combine(carried, slices)
        end_body(bodies, (result, copied(bodies, result)))
        done = end_round(bodies)
    return finish_scan(bodies)[1]


def copied(bodies: Any, result: Any) -> Any:
    """Has a rule: the same of new tensors."""


def while_loop(condition: Any, body: Any, carried: Any) -> Any:
    """`while_loop` of torch's higher-order operations."""
    bodies = begin_bodies("while_loop")
    begin_loop(bodies, carried, (), 0, False)
    done = False
    while not done:
        given, _ = begin_round(bodies)
        begin_body(bodies)
        flag = condition(*given)
        end_body(bodies, flag)
        begin_body(bodies)
        result = body(*given)
        end_body(bodies, (result, ()))
        done = end_round(bodies)
    return finish_while(bodies)


def begin_loop(bodies: Any, init: Any, xs: Any, dim: Any, reverse: Any) -> Any:
    """Has a rule."""


def begin_round(bodies: Any) -> Any:
    """Has a rule: what stands for the values that are carried, and for slices."""


def end_round(bodies: Any) -> Any:
    """Has a rule: whether the body was captured as it is."""


def finish_scan(bodies: Any) -> Any:
    """Has a rule: what was carried last, and what is stacked."""


def finish_while(bodies: Any) -> Any:
    """Has a rule: what was carried last."""


def begin_bodies(name: Any) -> Any:
    """Has a rule: what the bodies are gathered in."""


def begin_body(bodies: Any) -> Any:
    """Has a rule."""


def end_body(bodies: Any, result: Any) -> Any:
    """Has a rule."""


def finish_branch(bodies: Any, flag: Any) -> Any:
    """Has a rule: the results of the branch."""
