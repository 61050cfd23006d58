"""What a scalar expression costs, in rough units of one vector addition.

Enters: nodes of an expression. Leaves: a number, which only choices depend on, never results.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.ir.loop import Scalar

_COST: dict[str, int] = {
    **dict.fromkeys(("constant", "index"), 0),
    **dict.fromkeys(("div", "sqrt", "reciprocal", "rsqrt"), 6),
    **dict.fromkeys(("exp", "exp2", "sigmoid", "log", "log2", "tanh", "sin", "cos"), 20),
    **dict.fromkeys(("erf", "expm1", "log1p", "log10", "erfc", "tan"), 25),
    **dict.fromkeys(("truncdiv", "floordiv", "remainder", "fmod"), 25),
    **dict.fromkeys(("pow", "atan2", "lgamma", "digamma", "erfinv", "hypot", "nextafter"), 60),
    **dict.fromkeys("asin acos atan sinh cosh asinh acosh atanh".split(), 40),  # noqa: SIM905
}


def cost_of(nodes: Iterable[Scalar]) -> int:
    """The cost of computing each of these nodes once."""
    return sum(_COST.get(node.op, 1) for node in nodes)
