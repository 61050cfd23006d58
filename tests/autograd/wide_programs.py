# ruff: noqa: E501 (tables of expressions)
"""Wider programs made by chance: all kinds of numbers and layouts, sizes that change from call to call,
random numbers, contexts, checkpoints, functions with backwards of their own.

Enters: a `random.Random`. Leaves: a `Wide`: the source of a function, its arguments as words, and what is
done before and after it is called. Invariant: as in `made_programs.py`, the same `Wide` is the same
program, and it is text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.autograd.made_programs import PURE, VIEWS, WRITES, Stage

_PREFACE = """
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a * a

    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return 3 * a * a * g


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a)
        ctx.mark_non_differentiable(flag := a > 0)
        return a * 2, flag

    @staticmethod
    def backward(ctx, g, _):
        a, = ctx.saved_tensors
        return g * 2, None


def rows(a):
    return torch.tensor([0, 0, a.shape[0] - 1])


def places(a):
    return torch.zeros(a.shape, dtype=torch.long)


def slope(a, b):
    found = torch.autograd.grad(a.sum(), b, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(b) if found is None else found


def slope_with_history(a, b):
    found = torch.autograd.grad(a.sum(), b, create_graph=True, allow_unused=True)[0]
    return torch.zeros_like(b) if found is None else found

"""

DTYPES = ("float64",) * 6 + ("float32",) * 5 + (
    "bfloat16", "float16", "complex64", "complex128", "int64", "int32", "uint8", "int8", "bool",
)  # fmt: skip
SHAPES = ("n m",) * 4 + ("n n",) * 4 + ("m",) * 2 + ("n",) * 2 + (
    "", "1", "0 m", "n 1", "1 m", "2 n m", "2 n n", "2 3 n m", "1 3 n n",
)  # fmt: skip
LAYOUTS = ("plain",) * 6 + ("turned", "stepped", "inside", "channels last", "expanded")
KINDS = ("leaf",) * 4 + ("result",) * 3 + ("plain",) * 3 + ("view of a result",)
ALIASES = ("same", "detached", "rows", "turned", "row", "data")

MORE_VIEWS = (
    "{a}.expand(2, *{a}.shape)", "{a}.movedim(0, -1)", "{a}.unflatten(0, (1, -1))", "{a}.real", "{a}.imag",
    "torch.view_as_real({a})", "{a}.permute(*range({a}.dim() - 1, -1, -1))", "{a}.mT", "{a}.squeeze(0)",
    "{a}[None]", "{a}[..., -1]", "{a}[:, 1:]", "{a}.tensor_split(2)[0]", "{a}.diagonal(offset=1)",
    "{a}.conj()", "{a}.data", "{a}.reshape(-1)", "torch.atleast_2d({a})", "{a}.as_strided((2, 2), (1, 2))",
    "{a}.view(-1)[::2]", "{a}.swapaxes(0, 1)", "{a}[-1]", "{a}[..., 0:1].expand_as({a})", "{a}.unsqueeze(-1)",
    "{a}.contiguous(memory_format=torch.channels_last)", "torch.broadcast_tensors({a}, {b})[0]",
    "{a}.unfold(-1, 2, 2)", "{a}.alias() if hasattr({a}, 'alias') else {a}[:]", "{a}.view({a}.dtype)",
    "{a}.split([1, {a}.shape[0] - 1])[1]", "{a}.flatten(0, 1)", "{a}.hsplit(2)[1]", "{a}.detach()[1:]",
)  # fmt: skip
MORE_PURE = (
    "{a}.to(torch.bfloat16)", "{a}.half()", "{a}.float()", "{a}.double()", "{a}.to({b}.dtype)", "{a}.bool()",
    "{a}.int()", "{a} > {b}", "{a} == {b}", "{a} / {b}", "{a} - {b}", "{a} // 2", "{a} % 3", "{a} ** 2",
    "2 ** {a}", "{a} / 0", "~({a} > 0)", "torch.where({a} > 0, 1.0, {a})", "torch.where({a} > {b}, {a}, 0)",
    "{a}[[0, 0]]", "{a}[rows({a})]", "{a}.gather(0, places({a}))", "{a}.scatter(0, places({a}), {a})",
    "{a}.scatter_add(0, places({a}), {a})", "{a}.index_add(0, rows({a}), {a}[rows({a})])",
    "{a}.index_put((rows({a}),), {a}[rows({a})], accumulate=True)", "{a}.index_select(0, rows({a}))",
    "{a}.topk(2, 0).values", "{a}.cummax(0).values", "{a}.argmax()", "{a}.cumprod(0)", "{a}.logsumexp(-1)",
    "{a}.var(0)", "{a}.std(-1, correction=0)", "{a}.norm()", "{a}.amax(0)", "{a}.prod(-1)", "{a}.sum(-1)",
    "torch.einsum('...i,...i->...', {a}, {b})", "{a}.mT @ {b}", "F.linear({a}, {b})", "{a} @ {a}.mT",
    "F.layer_norm({a}, {a}.shape[-1:])", "F.pad({a}, (1, 0))", "F.gelu({a})", "F.silu({a})",
    "F.scaled_dot_product_attention({a}, {a}, {a})", "torch.lerp({a}, {b}, 0.3)", "torch.maximum({a}, {b})",
    "torch.addcmul({a}, {b}, {b}, value=0.5)", "{a}.clamp(min={b})", "{a}.nan_to_num()", "{a}.roll(1, 0)",
    "{a}.flip(0)", "{a}.tril()", "{a}.repeat(2, 1)", "{a}.repeat_interleave(2, 0)", "torch.cat([{a}, {a}])",
    "torch.stack([{a}, {b}]).sum(0)", "torch.rand_like({a})", "torch.bernoulli({a}.sigmoid())",
    "F.dropout({a}, 0.3) + {a}", "F.normalize({a}, dim=-1)", "Cube.apply({a})", "Pair.apply({a}, {b})[0]",
    "Pair.apply({a}, {b})[1]", "checkpoint(lambda t: (t * 2).sin(), {a}, use_reentrant=False)",
    "checkpoint(lambda t: F.dropout(t.exp(), 0.5) * t, {a}, use_reentrant=False)",
    "checkpoint(lambda t, u: t.tanh() + u, {a}, {b}, use_reentrant=True)", "slope({a}, {b})",
    "slope_with_history({a}, {b})", "slope(({b} * {b}).sin(), {b})", "slope_with_history({b} ** 3, {b})",
    "{a}.sum() * {b}", "{a}.mean()", "{a} + 1j", "{a}.abs()", "{a}.sigmoid()", "{a}.relu() * {b}", "{a}.round()",
    "{a}.median(0).values", "{a}.sort(-1, descending=True).values", "{a}.squeeze().contiguous()",
    "F.max_pool2d({a}, 2)", "F.avg_pool2d({a}, 2)", "F.conv2d({a}, torch.ones(2, 3, 2, 2, dtype={a}.dtype))",
    "F.interpolate({a}, scale_factor=2)", "F.batch_norm({a}, None, None, training=True)", "{a}.new_zeros(3) + 1",
    "torch.full_like({a}, 2)", "torch.arange({a}.shape[0])", "{a} + torch.arange({a}.shape[-1])", "{a}.clone().t()",
    "{a} * torch.tensor(2.5)", "{a} + torch.tensor([1, 2, 3])[1]", "{a}.unique()", "{a}[{a} > 0]", "{a}.sum().item() + {b}",
    "torch.empty_like({a}).copy_({b})", "{a}.masked_fill({a} < 0, 0)", "F.one_hot(rows({a})).to({a}.dtype)",
    "{a}.detach().requires_grad_() * {b}", "torch.logaddexp({a}, {b})", "torch.cdist({a}, {a})", "{a}.expm1() - {a}",
    "torch.eye({a}.shape[0], dtype={a}.dtype) * {a}", "F.softplus({a}).log()", "{a}.atan2({b})", "{a}.trace()",
    "torch.tensordot({a}, {b}, 1)", "torch.outer({a}.flatten(), {b}.flatten())", "torch.nn.Parameter({a}) * 2",
    "sum({a}.unbind(0))", "torch.vmap(lambda t: t * 2)({a})", "torch.func.grad(lambda t: (t ** 2).sum())({a})",
)  # fmt: skip
MORE_WRITES = (
    "{a}[{a} > 0] = 1", "{a}.index_put_((rows({a}),), {a}[rows({a})].clone(), accumulate=True)", "{a}[1:][0].mul_(2)",
    "{a}.scatter_(0, places({a}), 2)", "{a}.scatter_add_(0, places({a}), {b}.clone())", "{a}.index_fill_(0, rows({a}), 1)",
    "{a}.index_copy_(0, rows({a})[1:], {b}[:2].clone())", "{a}.mT.add_(1)", "{a}.fill_diagonal_(1)", "{a}.copy_({b})",
    "torch.add({a}, {b}, out={c})", "torch.mul({a}, 2, out={c})", "torch._foreach_add_([{a}, {b}], 1)", "{a} += {b}",
    "torch._foreach_mul_([{a}, {b}], [2, 3])", "{a}.bernoulli_(0.5)", "{a}.normal_()", "{a}.uniform_()", "{a} *= {b}",
    "{a}.lerp_({b}, 0.5)", "{a}.addcmul_({b}, {b})", "{a}.masked_scatter_({a} > 0, {b}.clone())", "{a}.detach_()",
    "{a}.view(-1)[::2].add_(1)", "{a}.real.mul_(2)", "{a}.clamp_(0, 1)", "{a}.round_()", "{a}.sub_({a}.mean())",
    "{a}.div_(2)", "{a}.floor_divide_(2)", "{a}.bitwise_or_(1)", "{a}.logical_not_()", "{a}[..., 1:] = {a}[..., :-1].clone()",
    "{a}[0], {a}[1] = {a}[1].clone(), {a}[0].clone()", "{a}.data.add_(1)", "{a}.data = {a}.data * 2", "{a}[:, 0] += {b}[:, 0]",
    "{a}.diagonal().mul_(2)", "{a}.squeeze(0).add_(1)", "{a}.exp_()", "{a}.sigmoid_()", "{a}.neg_()", "{a}.pow_(2)",
    "{a}.masked_fill_({b} > 0, 3)", "F.dropout({a}, 0.5, inplace=True)", "F.relu({a}, inplace=True)", "{a}.addmm_({b}, {b})",
    "{a}.cumsum_(0)", "{a}.tril_()", "{a}.unsqueeze(0)[0].mul_(2)", "{a}.expand(2, *{a}.shape)[0].mul_(2)",
    "{a}.retain_grad()", "{a}.requires_grad_()", "{a}.index_add_(0, rows({a}), {b}[rows({b})])", "{a}.index_reduce_(0, rows({a}), {b}[rows({b})], 'amax')",
    "{a}.set_({b})", "{a}.resize_({a}.shape)", "{a}.t_()", "{a}.unsqueeze_(0)", "{a}.put_(torch.tensor([0, 1]), {b}.flatten()[:2].clone())",
)  # fmt: skip
CONTEXTS = (
    "with torch.no_grad():", "with torch.no_grad():", "with torch.enable_grad():", "for _ in range(2):",
    "with torch.autocast('cpu', torch.bfloat16):", "with torch.inference_mode():", "if {a}.dim() > 1:",
    "if {a}.sum() > 0:", "with torch.set_grad_enabled(False):",
)  # fmt: skip
SIZES = ((4, 3), (4, 3), (5, 3), (6, 2), (4, 3))


@dataclass(frozen=True)
class Wide:
    """A program. `arguments`: of each, its dtype, sizes, layout and kind; or "alias", which and how."""

    source: str
    arguments: tuple[tuple[str, ...], ...]
    actions: tuple[tuple[Any, ...], ...]

    def function(self) -> Callable[..., Any]:
        """The function of the source."""
        namespace: dict[str, Any] = {}
        exec(compile(_PREFACE + self.source, "<wide>", "exec"), namespace)
        found: Callable[..., Any] = namespace["run"]
        return found

    def __str__(self) -> str:
        return f"{self.source}\narguments {self.arguments}\nactions {self.actions}"


def arguments(
    made: Wide, sizes: tuple[int, int]
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """The arguments by name, and the leaves behind them."""
    leaves: list[torch.Tensor] = []
    values: dict[str, torch.Tensor] = {}
    for name, words in zip("xyzw", made.arguments, strict=False):
        if words[0] == "alias":
            values[name] = _alias(values[words[1]], words[2])
        else:
            values[name] = _fresh(words, sizes, leaves)
    return values, leaves


def _alias(one: torch.Tensor, how: str) -> torch.Tensor:
    if how == "detached":
        return one.detach()
    if how == "data":
        return one.data
    if how == "rows" and one.dim() and one.shape[0] > 1:
        return one[1:]
    if how == "turned" and one.dim() > 1:
        return one.mT
    if how == "row" and one.dim() and one.shape[0] > 1:
        return one[1]
    return one


def _fresh(
    words: tuple[str, ...], sizes: tuple[int, int], leaves: list[torch.Tensor]
) -> torch.Tensor:
    dtype, shape = getattr(torch, words[0]), _shape(words[1], sizes)
    if dtype.is_floating_point or dtype.is_complex:
        one = torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(
            dtype
        )
    else:
        one = torch.randint(-3, 4, shape).to(dtype)
    one = _laid(one, words[2])
    if not (dtype.is_floating_point or dtype.is_complex) or words[3] == "plain":
        return one
    one.requires_grad_()
    leaves.append(one)
    if words[3] == "result":
        return one * 1
    return (one * 2)[...] if words[3] == "view of a result" else one


def _shape(words: str, sizes: tuple[int, int]) -> tuple[int, ...]:
    known = {"n": sizes[0], "m": sizes[1]}
    return tuple(known[one] if one in known else int(one) for one in words.split())


def _laid(one: torch.Tensor, how: str) -> torch.Tensor:
    if how == "turned" and one.dim() > 1:
        return one.mT.contiguous().mT
    if how == "stepped" and one.dim():
        return torch.stack([one, one], -1)[..., 0]
    if how == "inside" and one.dim():
        return torch.cat([one, one])[one.shape[0] :]
    if how == "channels last" and one.dim() == 4:
        return one.contiguous(memory_format=torch.channels_last)
    if how == "expanded" and one.dim() and one.shape[0]:
        return one[:1].expand(one.shape)
    return one


def make(r: random.Random) -> Wide:
    """A program, by chance. Lines that eager refuses are not taken."""
    given: list[tuple[str, ...]] = []
    for place in range(r.randrange(2, 5)):
        if place and r.random() < 0.2:
            given.append(("alias", r.choice("xyzw"[:place]), r.choice(ALIASES)))
        elif place and r.random() < 0.6:  # alike, so that they go together
            given.append(
                (
                    given[0][0] if len(given[0]) == 4 else "float64",
                    r.choice(SHAPES),
                    r.choice(LAYOUTS),
                    r.choice(KINDS),
                )
            )
        else:
            given.append((r.choice(DTYPES), r.choice(SHAPES), r.choice(LAYOUTS), r.choice(KINDS)))
    names = "xyzw"[: len(given)]
    empty = Wide(f"def run({', '.join(names)}):\n    pass\n", tuple(given), ())
    torch.manual_seed(0)
    values, _ = arguments(empty, SIZES[0])
    scope: dict[str, Any] = {**values}
    exec(_PREFACE, scope)
    lines: list[str] = []
    for count in range(r.randrange(2, 11)):
        line, assigned = _line(r, sorted(values), f"v{count}")
        head = r.choice(CONTEXTS).format(a=r.choice(sorted(values))) if r.random() < 0.15 else ""
        if _works(line, head, scope):
            lines += [head, f"    {line}"] if head else [line]
            if assigned and isinstance(scope.get(assigned), torch.Tensor):
                if head.startswith("if"):
                    lines += ["else:", f"    {assigned} = {r.choice(sorted(values))}"]
                values[assigned] = scope[assigned]
    results = [r.choice(sorted(values)) for _ in range(r.randrange(1, 5))]
    body = "\n    ".join([*lines, f"return {', '.join(results)},"])
    source = f"def run({', '.join(names)}):\n    {body}\n"
    return Wide(source, tuple(given), _actions(r, len(results), names))


def _line(r: random.Random, names: list[str], new: str) -> tuple[str, str]:
    """A line, and the name that it gives to something."""
    a, b, c = (r.choice(names) for _ in range(3))
    kind = r.random()
    if kind < 0.25:
        table = MORE_VIEWS if r.random() < 0.6 else VIEWS
    elif kind < 0.5:
        table = MORE_WRITES if r.random() < 0.7 else WRITES
        return r.choice(table).format(a=a, b=b, c=c), ""
    else:
        table = MORE_PURE if r.random() < 0.75 else PURE
    return f"{new} = {r.choice(table).format(a=a, b=b)}", new


REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AttributeError)


def _works(line: str, head: str, scope: dict[str, Any]) -> bool:
    try:
        exec(f"{head}\n    {line}" if head else line, scope)
        for one in scope.values():
            if isinstance(one, torch.Tensor):
                one.grad_fn  # noqa: B018 (of a view whose base was written: it may raise)
                if one.numel() > 4000:
                    return False
    except REFUSALS:
        return False
    return True


def _actions(r: random.Random, results: int, names: str) -> tuple[tuple[Any, ...], ...]:
    places = list(range(results))
    found = [_watched(r, name) for name in names if r.random() < 0.2]
    found.append(("call",))
    found += [_watched(r, place) for place in places if r.random() < 0.3]
    if r.random() < 0.15:
        found.append(("call",))  # the results of the first call are gone
    if r.random() < 0.15:
        found.append(("write", r.choice([*places, *names])))
    return (*found, *(_pass(r, places) for _ in range(r.randrange(1, 4))))


def _watched(r: random.Random, where: str | int) -> tuple[Any, ...]:
    return r.choice(["retain", "hook", "doubling hook"]), where


PASSES = ("backward",) * 7 + ("backward to some",) * 2 + ("gradients",) * 5 + ("of results",) * 2


def _pass(r: random.Random, places: list[int]) -> tuple[Any, ...]:
    """A backward pass."""
    chosen = tuple(sorted(r.sample(places, r.randrange(1, len(places) + 1))))
    kind, retain = r.choice((*PASSES, "again", "again", "again", "again")), r.random() < 0.6
    if kind == "of results":
        others = tuple(sorted(r.sample(places, r.randrange(1, len(places) + 1))))
        return kind, chosen, others, retain
    return kind, chosen, retain


class WideStage(Stage):
    """One run of a program, at these sizes."""

    made: Any

    def __init__(self, made: Wide, call: Callable[..., Any], sizes: tuple[int, int]) -> None:
        self.made = made
        self.call = call
        self.told: list[Any] = []
        self.hooked: list[tuple[str, torch.Tensor]] = []
        torch.manual_seed(0)
        self.values, self.leaves = arguments(made, sizes)
        self.results: tuple[torch.Tensor, ...] = ()

    def _backward_to_some(self, places: tuple[int, ...], retain: bool) -> None:
        roots, tangents = self._roots(places)
        if roots and self.leaves:
            torch.autograd.backward(roots, tangents, retain_graph=retain, inputs=self.leaves[:1])
