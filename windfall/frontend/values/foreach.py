"""`torch._foreach_*`: one op for each tensor of a list, which is what eager does on the CPU.

Enters: calls of these functions with lists of tensors. Leaves: one node of the graph for each
tensor, of the op that eager's own loop calls. So a number that varies goes in as it does beside a
single tensor, writes are those of single tensors, and passes see nothing but ordinary ops.
Invariant: what the rules do not know (other devices, lists that do not fit) goes to the graph as
the call itself, and is torch's to refuse.

    _foreach_add_(xs, ys, alpha=a)    xs[0].add_(ys[0], alpha=a); xs[1].add_(ys[1], alpha=a)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.frontend.name_tables import words
from windfall.frontend.policy import Treatment
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import treated
from windfall.frontend.values.unseen import look

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

# How one op is called: with a tensor, the other arguments at its place, and the keywords.
Call = Callable[["Machine", str, Arguments, Keywords], Value]


def _method(machine: Machine, name: str, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.torch_call("call_method", name, arguments, keywords)


def _mul(machine: Machine, name: str, arguments: Arguments, keywords: Keywords) -> Value:
    """In place and by a number eager calls `mul_.Scalar`, which takes the number for its *first*
    operand: beside half precision it is rounded to that (0.999 is 1 in bfloat16), as no other
    operation does with it."""
    written, factor = (look(one) for one in arguments)
    if name == "mul_" and isinstance(written, Tensor) and not isinstance(factor, Tensor):
        dtype = written.fake(machine).dtype
        if dtype in (torch.bfloat16, torch.float16):
            named = {"dtype": machine.values.literal(dtype)}
            factor = machine.values.torch_call(
                "call_function", torch.scalar_tensor, [arguments[1]], named
            )
            arguments = [arguments[0], factor]
    return _method(machine, name, arguments, keywords)


def _limit(by_number: str, by_tensor: str) -> Call:
    """Extremes: of a number it is a clamp, of two tensors an op without an in-place form."""

    def call(machine: Machine, name: str, arguments: Arguments, keywords: Keywords) -> Value:
        in_place = "_" if name.endswith("_") else ""
        if not isinstance(arguments[1], Tensor):
            return _method(machine, by_number + in_place, arguments, keywords)
        found = _method(machine, by_tensor, arguments, keywords)
        return _method(machine, "copy_", [arguments[0], found], {}) if in_place else found

    return call


def _with_value(machine: Machine, name: str, arguments: Arguments, keywords: Keywords) -> Value:
    """The last argument is the keyword `value` of the op."""
    if len(arguments) == 4:
        arguments, keywords = arguments[:3], {**keywords, "value": arguments[3]}
    return _method(machine, name, arguments, keywords)


def _norm(machine: Machine, name: str, arguments: Arguments, keywords: Keywords) -> Value:
    named = dict(zip(("ord", "dtype"), arguments[1:], strict=False)) | keywords
    norm = torch.linalg.vector_norm
    return machine.values.torch_call("call_function", norm, [arguments[0]], named)


_UNARY = words("""
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero
""")
# By the name of the op: how it is called, and how many arguments it has at most.
_CALLS: dict[str, tuple[Call, int]] = {
    **dict.fromkeys(_UNARY, (_method, 1)),
    **dict.fromkeys(("add", "sub", "div", "pow"), (_method, 2)),
    "mul": (_mul, 2),
    "lerp": (_method, 3),
    "copy": (_method, 3),
    **dict.fromkeys(("addcmul", "addcdiv"), (_with_value, 4)),
    **dict.fromkeys(("maximum", "clamp_min"), (_limit("clamp_min", "maximum"), 2)),
    **dict.fromkeys(("minimum", "clamp_max"), (_limit("clamp_max", "minimum"), 2)),
    "norm": (_norm, 3),
}
_KEYWORDS = words("alpha value ord dtype non_blocking")


def _lists(
    machine: Machine, name: str, arguments: Arguments, keywords: Keywords
) -> list[list[Value] | None] | None:
    """The items of each argument that is a list, None where it is one value for all; or None: this
    call is not one that the rules know."""
    if not keywords.keys() <= _KEYWORDS or not arguments:
        return None
    found = [one.unpack(machine) if type(look(one)) in (List, Tuple) else None for one in arguments]
    first = found[0]
    if not first or any(one is not None and len(one) != len(first) for one in found):
        return None
    if not all(isinstance(look(one), Tensor) for one in first):
        return None
    takes_list = name.rstrip("_") in ("addcmul", "addcdiv", "lerp", "copy")
    if takes_list and (len(found) < 2 or found[1] is None):
        return None
    if len(found) == 4 and any(isinstance(look(one), Tensor) for one in found[3] or arguments[3:]):
        return None  # scalars that are read from a tensor, or are tensors, which torch refuses
    for one, each in zip(arguments, found, strict=True):
        if each is None and isinstance(one, Tensor) and one.fake(machine).dim():
            return None  # which is no number for all
    tensors = [one for each in found if each is not None for one in each]
    for one in (*tensors, *arguments):
        if isinstance(one, Tensor) and one.fake(machine).device.type != "cpu":
            return None
    return found


def _one_by_one(
    function: Any,
    name: str,
    call: Call,
    most: int,
    machine: Machine,
    arguments: Arguments,
    keywords: Keywords,
) -> Value:
    lists = _lists(machine, name, arguments, keywords) if len(arguments) <= most else None
    if lists is None:
        return treated(machine, Treatment.GRAPH, function, arguments, keywords)
    first = lists[0]
    assert first is not None
    made = [
        call(
            machine,
            name,
            [
                one if each is None else each[place]
                for one, each in zip(arguments, lists, strict=True)
            ],
            keywords,
        )
        for place in range(len(first))
    ]
    return arguments[0] if name.endswith("_") else Tuple(made)


for _function, _name in torch_abi.FOREACH.items():
    _how = _CALLS.get(_name.removesuffix("_"))
    if _how is not None:
        calls(_function)(partial(_one_by_one, _function, _name, *_how))
