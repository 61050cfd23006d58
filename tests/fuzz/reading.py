"""Random programs that read data on their way, and what a call of them does.

Enters: a seed. Leaves: the source of a function `f(x, y, m, w)`: masks, counts, slices by them,
writes, checks, branches. `outcome` is all that a caller can see of a call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

# (elements that the mask selects, rows)
CALLS = ((3, 6), (0, 6), (1, 6), (6, 6), (2, 6), (4, 9), (2, 5))

_TENSORS = (
    "{t}[m]",
    "x[m]",
    "x[~m]",
    "x[x[:, 0] > 1]",
    "{t}[:{i}]",
    "{t}[{i}:]",
    "{t}[1:]",
    "{t}[-1:]",
    "{t}[:2]",
    "{t}[1:3]",
    "{t}[::2]",
    "torch.cat([{t}, {t}])",
    "{t} * {i} + 1",
    "({t} * 2).sin()",
    "{t} + {t}",
    "{t}.sum(0, keepdim=True)",
    "torch.zeros({i}, 4)",
    "{t}.reshape(-1, 4)",
    "{t}.flatten().view(-1, 4)",
    "{t}.t().contiguous().t()",
    "x.index_select(0, m.nonzero()[:, 0])",
    "torch.softmax({t}, 1)",
    "{t}.sort(0)[0]",
    "F.pad({t}, (0, 0, 0, {i}))",
    "{t}.narrow(0, 0, {i})",
    "{t}[{i}].unsqueeze(0)",
    "{t}.max(0, keepdim=True)[0]",
    "torch.where({t} > 1, 1.0, 0.0)",
    "F.layer_norm({t}, (4,))",
    "{t}.clone()",
    "F.linear({t}, w)",
    "{t}.expand({i}, 4)",
    "{t}.unique(dim=0)",
    "torch.repeat_interleave({t}, m.long(), 0)",
)
_NUMBERS = ("{t}.shape[0]", "len({t}) + {t}.numel()", "({t} > 0.3).sum().item()", "int(m.sum())")
_STATEMENTS = (
    "{t}.add_({i})",
    "{t}.mul_(2)",
    "{t}[:{i}] += 1",
    "m[0] = False",
    "m.logical_not_()",
    "x[x[:, 0] > 1] = 3",
    "torch._check({i} >= {k}, lambda: 'no')",
    "torch._check({i} != {k})",
    "assert {i} < {k}",
    "if {i} > {k}: x = x + 1",
)
_FORMS = ("{n}", "{n}", "{n}", "{n} + 1", "{n} - 1", "{n} // 2", "2 * {n}", "-{n}", "min({n}, 3)")


def program(seed: int) -> str:
    """The source of a function."""
    chosen = random.Random(seed)
    tensors, numbers, lines = ["x", "y"], ["n0"], ["n0 = m.sum().item()"]

    def filled(template: str) -> str:
        while "{" in template:
            number = chosen.choice(_FORMS).format(n=chosen.choice(numbers))
            parts = {"t": chosen.choice(tensors), "i": number, "k": str(chosen.randrange(7))}
            name = template[template.index("{") + 1]
            template = template.replace(f"{{{name}}}", parts[name], 1)
        return template

    for index in range(1, chosen.randrange(4, 11)):
        kind = chosen.choice("ttttnss")
        if kind == "t":
            lines.append(f"t{index} = {filled(chosen.choice(_TENSORS))}")
            tensors.append(f"t{index}")
        elif kind == "n":
            lines.append(f"n{index} = {filled(chosen.choice(_NUMBERS))}")
            numbers.append(f"n{index}")
        else:
            lines.append(filled(chosen.choice(_STATEMENTS)))
    lines.append(f"return x, m, {', '.join([*tensors[-4:], *numbers[-2:]])}")
    return "def f(x, y, m, w):\n" + "".join(f"    {line}\n" for line in lines)


def inputs(seed: int, count: int, rows: int) -> list[torch.Tensor]:
    """The arguments of a call."""
    drawn = torch.Generator().manual_seed(seed)
    x, y, w = (torch.randn(size, 4, generator=drawn) for size in (rows, rows, 4))
    return [x, y, torch.arange(rows) < count, w]


def outcome(function: Callable[..., Any], given: list[torch.Tensor], grad: bool) -> Any:
    """What a call answers or raises, what it wrote, and gradients."""
    arguments = [one.clone() for one in given]
    for index in (0, 3) if grad else ():
        arguments[index].requires_grad_()
    try:
        results = function(*arguments)
    except (RuntimeError, LookupError, ValueError, AssertionError) as error:
        text = str(error)  # kernels have a text of their own for positions that do not exist
        return type(error), "" if "out of range" in text else text, arguments[1:3]
    found = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
    gradients: list[Any] = []
    if found:
        try:
            sum((one * one).sum() for one in found).backward()  # type: ignore[union-attr]
        except RuntimeError as error:
            return type(error), str(error).partition(":")[0]
        gradients = [arguments[0].grad, arguments[3].grad]
    return results, arguments[1:3], gradients


def same(one: Any, other: Any) -> bool:
    """Equal in all that a caller can see."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            (one.dtype, one.shape, one.stride(), one.requires_grad)
            == (other.dtype, other.shape, other.stride(), other.requires_grad)
        ) and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)
