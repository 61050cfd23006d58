"""Generators that the program hands to random operations: every operation that takes one, from an
argument, an attribute and a global, with eager's numbers, and generators as eager leaves them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import windfall
from tests.autograd.both import Compile, both, eager, leaf, raised, run, same, seen

A_STEP = {"a step at a break": 1}

# Of `p`, between 0 and 1, and `q`, which needs a gradient, drawing from `g`.
OPERATIONS = {
    "rand": "torch.rand(3, 4, generator=g)",
    "rand, large": "torch.rand(40, 50, generator=g)",
    "rand, bfloat16": "torch.rand(20, dtype=torch.bfloat16, generator=g)",
    "rand, out": "torch.rand(3, out=torch.empty(3), generator=g)",
    "rand_like": "torch.rand_like(p, generator=g)",
    "randn": "torch.randn(3, 4, generator=g)",
    "randn, odd": "torch.randn(17, generator=g)",
    "randn, double": "torch.randn(33, dtype=torch.float64, generator=g)",
    "randn, complex": "torch.randn(3, dtype=torch.complex64, generator=g)",
    "randn_like": "torch.randn_like(p, generator=g)",
    "randint": "torch.randint(9, (3, 4), generator=g)",
    "randint, low": "torch.randint(2, 9, (3, 4), generator=g)",
    "randint_like": "torch.randint_like(p, 9, generator=g)",
    "randperm": "torch.randperm(9, generator=g)",
    "bernoulli": "torch.bernoulli(p, generator=g)",
    "bernoulli, method": "p.bernoulli(generator=g)",
    "bernoulli_": "torch.empty(3, 4).bernoulli_(0.5, generator=g)",
    "bernoulli_, tensor": "torch.empty(3, 4).bernoulli_(p, generator=g)",
    "bernoulli_, transposed": "torch.empty(4, 3).t().bernoulli_(p, generator=g)",
    "multinomial": "torch.multinomial(p, 2, generator=g)",
    "multinomial, replaced": "p.multinomial(9, True, generator=g)",
    "normal, tensors": "torch.normal(p, p, generator=g)",
    "normal, numbers": "torch.normal(0.0, 2.0, (3, 4), generator=g)",
    "normal, deviation": "torch.normal(p, 2.0, generator=g)",
    "normal, mean": "torch.normal(2.0, p, generator=g)",
    "normal_": "torch.empty(3, 4).normal_(1, 2, generator=g)",
    "normal_, transposed": "torch.empty(4, 20).t().normal_(generator=g)",
    "uniform_": "torch.empty(3, 4).uniform_(1, 2, generator=g)",
    "uniform_, half": "torch.empty(20, dtype=torch.float16).uniform_(generator=g)",
    "exponential_": "torch.empty(3, 4).exponential_(1.5, generator=g)",
    "cauchy_": "torch.empty(3, 4).cauchy_(generator=g)",
    "geometric_": "torch.empty(3, 4).geometric_(0.5, generator=g)",
    "log_normal_": "torch.empty(3, 4).log_normal_(generator=g)",
    "random_": "torch.empty(3, 4, dtype=torch.int64).random_(generator=g)",
    "random_, to": "torch.empty(3, 4).random_(9, generator=g)",
    "random_, from": "torch.empty(3, 4).random_(2, 9, generator=g)",
    "poisson": "torch.poisson(p * 4, generator=g)",
    "binomial": "torch.binomial(torch.full((3, 4), 9.0), p, generator=g)",
    "_standard_gamma": "torch._standard_gamma(p, g)",
    "_sample_dirichlet": "torch._sample_dirichlet(p, g)",
    "rrelu": "torch.rrelu(p - 0.5, 0.1, 0.3, True, g)",
    "rrelu, gradient": "torch.rrelu(q - 0.5, 0.1, 0.3, True, g)",
    "rrelu_": "torch.rrelu_(p - 0.5, 0.1, 0.3, True, g)",
    "dropout by hand": "p * (torch.rand(p.shape, generator=g) > 0.3)",
    "dead": "[torch.rand(3, generator=g), p][1]",
}
# Schemas that take one and that users do not call: they are made of the others, or of names.
_NOT_CALLED = re.compile(r"_fused_dropout|rrelu_with_noise|.*(\.out|_out|_names|\.Tensor_out)$")


def test_the_table_has_every_operation_that_takes_one() -> None:
    """By their names, without underscores at the end."""
    taking = set()
    for name in torch._C._dispatch_get_all_op_names():
        library, _, rest = name.partition("::")
        if library == "aten" and not _NOT_CALLED.match(rest):
            schema = torch._C._get_schema(*name.partition(".")[::2])
            if any("Generator" in str(one.type) for one in schema.arguments):
                taking.add(rest.partition(".")[0].strip("_").replace("_functional", ""))
    known = {one.partition(",")[0].strip("_") for one in OPERATIONS}
    assert taking - known <= {"normal", "uniform", "exponential", "cauchy", "geometric", "random"}
    assert not {one for one in taking - known if f"{one}_" not in OPERATIONS}


class _Holder:
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(11)


def _scenario(source: str, calls: int = 4) -> Any:
    """A function of `p, q, g, h`, called with one generator and then with another."""

    def scenario(compile: Compile) -> Any:
        space: dict[str, Any] = {"torch": torch, "F": F, "checkpoint": checkpoint}
        space["rand"] = torch.rand
        space["of_module"] = torch.Generator().manual_seed(4)
        exec(source, space)
        function, told, holder = compile(space["run"]), [], _Holder()
        g = torch.Generator().manual_seed(2)
        for call in range(calls):
            if call == 2:
                g = torch.Generator().manual_seed(9)
            p, q, results = torch.rand(3, 4), leaf(3, 4, dtype=torch.float32), []

            def ask(p: Any = p, q: Any = q, g: Any = g, results: list[Any] = results) -> None:
                found = function(p, q, g, holder)
                results.extend(found if isinstance(found, tuple) else [found])

            told.append(raised(ask))
            told.append(seen(*results, p))
            roots = [one for one in results if one.requires_grad]
            tangents = [torch.ones_like(one) for one in roots]
            told.append(raised(lambda r=roots, t=tangents: torch.autograd.backward(r, t)))
            told.append(q.grad)
            told += [one.get_state() for one in (g, holder.generator, space["of_module"])]
            told.append(torch.rand(2))  # the thread's own
        return told

    return scenario


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations(operation: str) -> None:
    text = OPERATIONS[operation]
    lines = ["def run(p, q, g, h):"]
    for name, where in (("a", "g"), ("b", "h.generator"), ("c", "of_module"), ("d", "None")):
        lines.append(f"    {name} = {text.replace('generator=g', f'generator={where}')}")
    if ", g)" in text:
        lines[-4:] = [
            f"    {name} = {text.replace(', g)', f', {where})')}"
            for name, where in (("a", "g"), ("b", "h.generator"), ("c", "of_module"), ("d", "None"))
        ]
    both(_scenario("\n".join([*lines, "    return a * 2, b, c, d"])))


PROGRAMS: dict[str, tuple[str, dict[str, int] | None]] = {
    "one that is two": ("h.other = g; r = rand(3, generator=g) + rand(3, generator=h.other)", None),
    "another for a while": (
        "old = h.generator; h.generator = g; r = rand(3, generator=h.generator)\n"
        "h.generator = old; r = r * rand(3, generator=h.generator)",
        None,
    ),
    "the default one": ("r = rand(3, generator=torch.default_generator) + rand(3)", None),
    "in a loop": (
        "for i in range(4):\n    q = q * torch.bernoulli(p, generator=g) + i\nr = q",
        None,
    ),
    "in a list": ("r = torch.cat([rand(3, generator=one) for one in (g, h.generator)])", None),
    "by keywords": ("r = rand(3, **{'generator': g})", None),
    "asked": ("r = rand(3, generator=g if g is not None else None, device=g.device)", None),
    "nothing else": ("rand(3, generator=g); r = p", None),
    "a gradient": ("r = (q * rand(q.shape, generator=g)).sin()", None),
    "a gradient inside": (
        "loss = (q * rand(q.shape, generator=g)).pow(2).sum(); r = torch.autograd.grad(loss, q)[0]",
        None,
    ),
    "a written argument": (
        "p.uniform_(generator=g); p[1:].bernoulli_(0.5, generator=g); r = p * 2",
        None,
    ),
    "a function": (
        "def inner(x): return x * rand(x.shape, generator=g)\nr = inner(inner(q))",
        None,
    ),
    "behind a break": (
        "a = rand(4, generator=g)\nprint(end='')\nr = a * rand(4, generator=g) * q",
        A_STEP,
    ),
    "seeded": ("g.manual_seed(5); r = rand(3, generator=g)", {"a step at a break": 2}),
    "its state": (
        "s = g.get_state(); a = rand(3, generator=g); g.set_state(s)\nr = a + rand(3, generator=g)",
        {"a step at a break": 4},
    ),
    "the thread's seed": ("a = rand(3); torch.manual_seed(5); r = a + rand(3)", A_STEP),
    "the thread's state": (
        "s = torch.get_rng_state(); a = F.dropout(q, 0.5)\ntorch.set_rng_state(s); "
        "r = a * F.dropout(q, 0.5)",
        {"a step at a break": 2},
    ),
    "forked": (
        "with torch.random.fork_rng():\n    torch.manual_seed(3)\n    a = F.dropout(q, 0.5)\n"
        "r = a * F.dropout(q, 0.5)",
        {"a step at a break": 4},
    ),
    "checkpointed": (
        "r = checkpoint(lambda x: (x * rand(x.shape, generator=g)).sin(), q, use_reentrant=False)",
        A_STEP,
    ),
    "in a batch": (
        "r = torch.vmap(lambda x: x * rand(x.shape, generator=g), randomness='different')(p)",
        A_STEP,
    ),
    "of a transform": (
        "r = torch.func.grad(lambda x: (x * rand(x.shape, generator=g)).sum())(p)",
        A_STEP,
    ),
    "in a branch": (
        "r = torch.cond(p.sum() > 0, lambda x: x * rand(x.shape, generator=g), "
        "lambda x: x.sin(), (q,))",
        A_STEP,
    ),
    "refused": (
        "a = rand(3, generator=g); r = torch.bernoulli(p * 9, generator=g)",
        {"a call, or the rest of it": 4},
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: str) -> None:
    text, how = PROGRAMS[program]
    lines = [f"    {one}" for one in text.split("\n")]
    both(_scenario("\n".join(["def run(p, q, g, h):", *lines, "    return r"])), how)


_OWN_FORWARD = """
class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        mask = torch.rand(x.shape, generator=g)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, d):
        (mask,) = ctx.saved_tensors
        return d * mask, None

def run(p, q, g, h):
    return Masked.apply(q, g).sin()
"""
_OWN_BACKWARD = """
class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        ctx.g = g
        return x * 2

    @staticmethod
    def backward(ctx, d):
        return d * torch.rand(d.shape, generator=ctx.g), None

def run(p, q, g, h):
    return Noisy.apply(q, g).sin()
"""


def test_a_function_with_a_gradient_of_its_own() -> None:
    """What its forward draws is in the graph; what its backward draws is drawn when that runs."""
    both(_scenario(_OWN_FORWARD))
    both(_scenario(_OWN_BACKWARD), A_STEP)


def test_gradients_of_gradients() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda x, g: (x * torch.rand(x.shape, generator=g)).pow(3).sum())
        g, x = torch.Generator().manual_seed(1), leaf(5, dtype=torch.float32)
        (first,) = torch.autograd.grad(compiled(x, g), x, create_graph=True)
        first.pow(2).sum().backward()
        return first, x.grad, g.get_state()

    made = both(scenario)
    assert not windfall.explanation(made[0]).fallbacks


@pytest.mark.parametrize("settings", [{"mode": "reduce-overhead"}, {"dynamic": True}])
def test_settings(settings: dict[str, Any]) -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda x, g: x * torch.rand(x.shape, generator=g) + torch.rand(x.shape))
        told = []
        for size in (3, 3, 3, 5, 7, 7):
            g = torch.Generator().manual_seed(size)
            told += [compiled(torch.ones(size), g).clone(), g.get_state()]
        return told

    made: list[Any] = []

    def compiling(function: Any) -> Any:
        made.append(windfall.compile(function, **settings))
        return made[-1]

    same(run(scenario, compiling), run(scenario, eager))
    assert not windfall.explanation(made[0]).eager


def test_a_new_generator_is_not_compiled_for() -> None:
    compiled = windfall.compile(lambda g: torch.rand(3, generator=g) * 2)
    for seed in range(12):
        g = torch.Generator().manual_seed(seed)
        wanted = torch.rand(3, generator=torch.Generator().manual_seed(seed)) * 2
        assert torch.equal(compiled(g), wanted)
    assert len(windfall.explanation(compiled).graphs) == 1
