"""`torch.utils.checkpoint` compiled: eager's values, gradients, random numbers and savings."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

import windfall
from windfall.events import EventKind

aten = torch.ops.aten
SAVE, RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE


class Block(nn.Module):
    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = dropout

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        hidden = torch.tanh(self.into(x)).exp() * scale
        return self.out(F.dropout(hidden, self.dropout, self.training))


class Net(nn.Module):
    """Blocks, each called as `around(block, x)`."""

    def __init__(self, around: Callable[..., Any], blocks: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(blocks))
        self.around = around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.around(block, x)
        return x.sin()


def plain(block: Any, x: torch.Tensor) -> torch.Tensor:
    return block(x)


def keywords(block: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=False, scale=0.5, determinism_check="none")


def not_reentrant(block: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=False)


def reentrant(block: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=True, preserve_rng_state=True)


def nested(block: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda t: not_reentrant(block, t.cos()).sin(), x, use_reentrant=False)


def late(block: Any, x: torch.Tensor) -> torch.Tensor:
    with set_checkpoint_early_stop(False):
        return checkpoint(block, x, use_reentrant=False)


def in_sequence(block: Any, x: torch.Tensor) -> torch.Tensor:
    parts = [block.into, torch.tanh, block.out, torch.tanh]
    return checkpoint_sequential(parts, 2, x, use_reentrant=False)


def selective(policy: Any) -> Callable[..., Any]:
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def around(block: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False, context_fn=contexts)

    return around


def keeps_matrices(context: Any, op: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    return SAVE if op is aten.addmm.default else RECOMPUTE


def keeps_large(context: Any, op: Any, *arguments: Any, **named: Any) -> bool:
    return context.op_output.shape[-1] == 16 and not context.is_recompute


def counts(block: Any, x: torch.Tensor) -> torch.Tensor:
    """Every second product is kept, as torchtitan does it."""

    def contexts() -> Any:
        seen: Any = defaultdict(int)

        def policy(context: Any, op: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
            seen[op] += 1
            return SAVE if op == aten.addmm.default and seen[op] % 2 == 0 else RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)


AROUND = {
    "not reentrant": not_reentrant,
    "keywords": keywords,
    "reentrant": reentrant,
    "nested": nested,
    "late": late,
    "in sequence": in_sequence,
    "policy": selective(keeps_matrices),
    "policy by size": selective(keeps_large),
    "policy that counts": counts,
    "list": selective([aten.addmm.default]),
}


def bytes_saved(function: Callable[..., Any], *arguments: Any, but: Any = ()) -> tuple[Any, int]:
    """The result, and the bytes that autograd saves, those of `but` not counted."""
    known = {one.data_ptr() for one in but}
    saved: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        if one.data_ptr() not in known:
            saved[one.data_ptr()] = one.untyped_storage().nbytes()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        result = function(*arguments)
    return result, sum(saved.values())


def trained(model: nn.Module, call: Callable[..., Any], x: torch.Tensor) -> tuple[list[Any], int]:
    """Result, gradients, the next random number; and what was saved."""
    model.zero_grad()
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    y, saved = bytes_saved(call, x, but=model.parameters())
    y.sum().backward()
    return [y, x.grad, *(one.grad for one in model.parameters()), torch.rand(3)], saved


def native(compiled: Any) -> None:
    """All of it ran in native code, without a break."""
    assert windfall.explanation(compiled).eager == {}


def products(compiled: Any) -> list[int]:
    """How many matrix products the forward and the backward of each graph have."""
    events = windfall.explanation(compiled).events
    splits = [one.record for one in events if one.kind is EventKind.SPLIT]
    halves = [half for split in splits for half in (split.forward, split.backward)]
    ops = (aten.mm.default, aten.addmm.default)
    return [sum(node.target in ops for node in half.nodes) for half in halves]


# What eager keeps where hooks do not see it: floats a row, of each block.
KEPT = {"policy": 24, "policy by size": 64, "policy that counts": 8, "list": 24}
# Products in backward: four for the gradients of each block, and those that are computed again. The
# last one of a block is no operand of a gradient, unless a sine follows inside of the checkpoint.
AGAIN = {"nested": 2, "in sequence": 0, "policy": 0, "policy by size": 0, "list": 0}


@pytest.mark.parametrize(
    ("name", "dropout"),
    # Kept by its size, the mask of dropout would be written afterwards: eager refuses.
    [(name, p) for name in AROUND for p in (0.0, 0.5) if (name, p) != ("policy by size", 0.5)],
)
def test_blocks_are_computed_again(name, dropout):
    model = Net(AROUND[name], dropout=dropout)
    compiled = windfall.compile(model, options={"records": True})
    x = torch.randn(32, 8)
    expected, most = trained(model, model, x)
    for _ in range(2):
        found, saved = trained(model, compiled, x)
        torch.testing.assert_close(found, expected)
    native(compiled)
    assert products(compiled) == [4, 8 + 2 * AGAIN.get(name, 1)]
    masks = 2 * 32 * 16 * 4 if dropout and name != "in sequence" else 0
    assert saved <= most + 2 * 32 * 4 * KEPT.get(name, 0) + masks


@pytest.mark.parametrize("name", AROUND)
def test_under_no_grad_it_is_a_call(name):
    model = Net(AROUND[name])
    x = torch.randn(4, 8)
    compiled = windfall.compile(model)
    with torch.no_grad():
        if name == "reentrant":  # no argument needs a gradient, and torch warns
            with pytest.warns(UserWarning, match="None of the inputs"):
                torch.testing.assert_close(compiled(x), model(x))
        else:
            torch.testing.assert_close(compiled(x), model(x))
            native(compiled)


@pytest.mark.parametrize("name", ["not reentrant", "reentrant", "nested", "policy"])
def test_interleaved_calls_draw_and_keep_their_own_numbers(name):
    model = Net(AROUND[name], dropout=0.5)
    compiled = windfall.compile(model)
    results = []
    for call in (model, compiled):
        torch.manual_seed(5)
        inputs = [torch.ones(4, 8, requires_grad=True) for _ in range(3)]
        losses = [call(one).sum() for one in inputs]
        for loss in reversed(losses):
            loss.backward()
        results.append([*losses, *(one.grad for one in inputs), torch.rand(1)])
    torch.testing.assert_close(*results)
    native(compiled)


@pytest.mark.parametrize("name", ["not reentrant", "reentrant", "policy by size"])
def test_sizes_vary(name):
    model = Net(AROUND[name])
    compiled = windfall.compile(model)
    for rows in (3, 5, 8, 13):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(trained(model, compiled, x)[0], trained(model, model, x)[0])
    native(compiled)
    assert len(windfall.explanation(compiled).graphs) == 2


def test_autocast_around_and_backward_outside():
    model = Net(not_reentrant)
    compiled = windfall.compile(model)
    x, results = torch.randn(4, 8), []
    for call in (model, compiled):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = call(x).float().sum()
        loss.backward()
        results.append([loss, *(one.grad for one in model.parameters())])
    torch.testing.assert_close(*results, rtol=2e-2, atol=2e-2)
    native(compiled)


def opposite(inner: Any, outer: Any) -> Callable[..., Any]:
    around = selective(outer)

    def both(block: Any, x: torch.Tensor) -> torch.Tensor:
        return around(lambda t: selective(inner)(block, t.cos()).tanh(), x)

    return both


def never(context: Any, op: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_RECOMPUTE


@pytest.mark.parametrize(
    ("inner", "outer", "again"),
    [
        (keeps_matrices, never, 0),
        (never, keeps_matrices, 1),
        (never, never, 1),
        (keeps_matrices, keeps_matrices, 0),
    ],
)
def test_nested_with_opposite_policies(inner, outer, again):
    model = Net(opposite(inner, outer), blocks=1)
    compiled = windfall.compile(model, options={"records": True})
    x = torch.randn(32, 8)
    torch.testing.assert_close(trained(model, compiled, x)[0], trained(model, model, x)[0])
    native(compiled)
    assert products(compiled) == [2, 4 + again]


def test_consecutive_blocks_keep_what_is_between():
    """Each is computed again from its own input, not from that of the first."""
    model = Net(not_reentrant, blocks=4)
    compiled = windfall.compile(model)
    _, saved = trained(model, compiled, torch.randn(32, 8))
    native(compiled)
    assert saved == 32 * 8 * 4 * 5  # what goes into each, and what the sine reads


# ------------------------------------------------------------------- what is torch's own affair


def writes_a_buffer(x, state):
    state["buffer"].add_(1)
    return x.exp()


def counts_calls(x, state):
    state["calls"] += 1
    return x.exp()


def appends(x, state):
    state["list"].append(1)
    return x.exp()


def normalises(x, state):
    return F.batch_norm(x, state["mean"], state["deviation"], training=True).exp()


def state_of() -> dict[str, Any]:
    return {
        "buffer": torch.zeros(3),
        "calls": 0,
        "list": [],
        "mean": torch.zeros(3),
        "deviation": torch.ones(3),
    }


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("body", [writes_a_buffer, counts_calls, appends, normalises])
def test_effects_happen_as_often_as_in_eager(body, reentrant):
    results = []
    for compiles in (False, True):
        state = state_of()

        def step(x, state=state):
            return checkpoint(lambda t: body(t, state), x, use_reentrant=reentrant).sum()

        call = windfall.compile(step) if compiles else step
        x = torch.linspace(0, 1, 6).view(2, 3).requires_grad_()
        call(x).backward()
        results.append([x.grad, *state.values()])
    assert str(results[0]) == str(results[1])
    assert [one.number for one in windfall.explanation(call).breaks] == [48]


def test_an_object_of_the_caller_is_changed_as_often_as_in_eager():
    """One that was made in the same graph, before."""

    def step(x):
        seen = []

        def body(t):
            seen.append(t.shape)
            return t.exp()

        return checkpoint(body, x, use_reentrant=False).sum(), seen

    compiled = windfall.compile(step)
    lengths = []
    for call in (step, compiled):
        loss, seen = call(torch.ones(3, requires_grad=True))
        loss.backward()
        lengths.append(len(seen))
    assert lengths == [2, 2]
    assert [one.number for one in windfall.explanation(compiled).breaks] == [48]


def test_an_object_of_the_function_itself_may_change():
    def body(t):
        parts = [t]
        parts.append(t.exp())
        table = {"a": parts[1]}
        table["b"] = table.pop("a").sin()
        return table["b"]

    compiled = windfall.compile(lambda x: checkpoint(body, x, use_reentrant=False).sum())
    x = torch.ones(3, requires_grad=True)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, torch.ones(3).exp().cos() * torch.ones(3).exp())
    native(compiled)


def test_numbers_that_are_not_preserved_are_drawn_again():
    def step(x):
        drop = functools.partial(F.dropout, p=0.5)
        return checkpoint(drop, x, use_reentrant=False, preserve_rng_state=False).sum()

    compiled, results = windfall.compile(step), []
    for call in (step, compiled):
        torch.manual_seed(2)
        x = torch.ones(64, requires_grad=True)
        loss = call(x)
        loss.backward()
        results.append([loss, x.grad, torch.rand(1)])
    torch.testing.assert_close(*results)
    assert [one.number for one in windfall.explanation(compiled).breaks] == [48]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("none needs", lambda x, w: checkpoint(lambda t: t * w, x.detach(), use_reentrant=True)),
        ("past arguments", lambda x, w: _past_arguments(x, w)),
        ("in a list", lambda x, w: checkpoint(lambda t: [t * w], x, use_reentrant=True)[0]),
        ("detached", lambda x, w: checkpoint(lambda t: (t * w).detach(), x, use_reentrant=True)),
        ("given", lambda x, w: checkpoint(lambda t: t.view(-1), x * 1, use_reentrant=True)),
        ("mode", lambda x, w: checkpoint(_looks_at_mode, x, use_reentrant=True)),
        ("flag", lambda x, w: checkpoint(_looks_at_flag, x, use_reentrant=True)),
    ],
)
def test_reentrant_as_eager(text, step):
    """What autograd sees of a function that runs without gradients first."""
    compiled, results = windfall.compile(step), []
    for call in (step, compiled):
        x, w = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = call(x, w)
        error = None
        if y.requires_grad:
            try:
                y.sum().backward()
            except RuntimeError as raised:
                error = str(raised)
        results.append(repr([y.detach(), y.requires_grad, x.grad, w.grad, error]))
    assert results[0] == results[1]
    assert [one.number for one in windfall.explanation(compiled).breaks] == [48]


def _past_arguments(x, w):
    v = w * 2
    return checkpoint(lambda t: t * v, x, use_reentrant=True)


def _looks_at_mode(t):
    return t * 2 if torch.is_grad_enabled() else t * 2.0


def _looks_at_flag(t):
    u = t * 2
    return u * 3 if u.requires_grad else u * 3.0


def test_what_eager_warns_of_or_refuses_is_eager_itself():
    x = torch.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match="use_reentrant"):
        windfall.compile(lambda x: checkpoint(torch.exp, x))(x)
    with pytest.raises(ValueError, match="determinism_check"):
        windfall.compile(
            lambda x: checkpoint(torch.exp, x, use_reentrant=False, determinism_check="odd")
        )(x)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        windfall.compile(lambda x: checkpoint(torch.exp, x, use_reentrant=True, out=None))(x)
    with pytest.raises(ValueError, match="OpOverload"):
        windfall.compile(lambda x: selective([aten.exp])(torch.exp, x))(x)
    with pytest.raises(ZeroDivisionError):
        windfall.compile(lambda x: checkpoint(lambda t: t / (1 // 0), x, use_reentrant=False))(x)


def test_debug_is_eager_itself():
    def step(x):
        with set_checkpoint_debug_enabled(True):
            return checkpoint(torch.exp, x, use_reentrant=False)

    compiled = windfall.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own, about the frames that it shows
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
    assert 48 in [one.number for one in windfall.explanation(compiled).breaks]


def test_a_break_inside_leaves_the_whole_call_to_eager():
    def body(t):
        u = t.exp()
        return u * 2 if u.sum() > 0 else u

    def step(x):
        return checkpoint(body, x * 2, use_reentrant=False).sin()

    compiled, results = windfall.compile(step), []
    for call in (step, compiled):
        x = torch.ones(3, requires_grad=True)
        call(x).sum().backward()
        results.append(x.grad)
    torch.testing.assert_close(*results)
    assert [one.number for one in windfall.explanation(compiled).breaks] == [2]


def test_a_policy_that_changes_is_asked_again():
    keeps = {"ops": (aten.exp.default,)}

    def policy(context, op, *arguments, **named):
        return SAVE if op in keeps["ops"] else RECOMPUTE

    compiled = windfall.compile(lambda x: selective(policy)(lambda t: t.exp().sin(), x).cos())
    x = torch.ones(3, requires_grad=True)
    compiled(x).sum().backward()
    keeps["ops"] = ()
    compiled(x).sum().backward()
    assert len(windfall.explanation(compiled).recompiles) == 1
    native(compiled)


def test_saved_and_then_written_is_refused_as_in_eager():
    def body(t):
        u = t.exp()
        u.mul_(2)
        return u.sin()

    compiled = windfall.compile(lambda x: selective([aten.exp.default])(body, x))
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="has been mutated"):
        compiled(x).sum().backward()


def test_custom_gradients_inside():
    class Negate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return -g

    def step(x):
        return checkpoint(lambda t: Negate.apply(t.exp()).sin(), x, use_reentrant=False).cos()

    compiled = windfall.compile(step)
    gradients = []
    for call in (step, compiled):
        x = torch.ones(3, requires_grad=True)
        call(x).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)
    native(compiled)


def test_backward_again_and_second_derivatives():
    def step(x):
        return checkpoint(lambda t: (t.exp() * t).sin(), x, use_reentrant=False).sum()

    compiled = windfall.compile(step)
    results = []
    for call in (step, compiled):
        x = torch.linspace(0, 1, 4, dtype=torch.float64).requires_grad_()
        loss = call(x)
        loss.backward(retain_graph=True)
        loss.backward()
        (first,) = torch.autograd.grad(call(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        results.append([x.grad, first, second])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_models_with_gradient_checkpointing(kind, reentrant):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        sizes |= {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**sizes, use_cache=False, loss_type="ForCausalLM")
        )
    else:
        sizes |= {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, intermediate_size=32))
    model.train()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})

    def step(tokens):
        return model(input_ids=tokens, labels=tokens).loss

    compiled, tokens, results = windfall.compile(step), torch.arange(16).view(2, 8), []
    for call in (step, compiled):
        model.zero_grad()
        torch.manual_seed(1)
        loss = call(tokens)
        loss.backward()
        results.append([loss, *(one.grad for one in model.parameters()), torch.rand(1)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    native(compiled)
    (capture,) = windfall.explanation(compiled).graphs
    assert capture.stopped is None
