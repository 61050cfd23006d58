"""Inputs that are views, and are written: every kind of input, written in every way, and what the
history says that eager gives it (hooks, retained gradients, refusals)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from tests.autograd.both import Compile, both, eager, leaf, raised, run, same

BY_EAGER = {"a graph, op by op": 1}


def _input(kind: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """An input of four elements, and what it is a view of, from the leaf on."""
    if kind == "plain":
        one = torch.randn(4, dtype=torch.float64)
        return one, [one]
    if kind == "view of a plain one":
        base = torch.randn(3, 4, dtype=torch.float64)
        return base[1], [base]
    if kind == "detached":
        base = leaf(4) * 1
        return base.detach(), [base]
    first = leaf(3, 4) if kind != "result" else leaf(4)
    base = first * 2
    if kind == "result":
        return base, [first, base]
    if kind == "view":
        return base[1], [first, base]
    assert kind == "view of a view"
    middle = base[1:]
    return middle[0], [first, base, middle]


KINDS = ("plain", "view of a plain one", "detached", "result", "view", "view of a view")

WRITES = {
    "itself": "z.mul_(p)",
    "a part": "z[1:].mul_(p[1:])",
    "parts": "z[1:].mul_(p[1:]); z[:1].mul_(p[:1])",
    "a part, itself": "z[1:].mul_(p[1:]); z.mul_(p)",
    "itself, a part": "z.mul_(p); z[1:].mul_(p[1:])",
    "an older view": "v.mul_(p[1:])",
    "an older view twice": "v.mul_(p[1:]); v.mul_(p[1:])",
    "another older view": "w.mul_(p[:2])",
    "unseen": "with torch.no_grad(): z.mul_(p)",
    "unseen, a part": "with torch.no_grad(): z[1:].mul_(p[1:])",
    "seen, read, unseen": "z.mul_(p); r = z.exp(); torch._foreach_mul_([z.detach()], 2)",
    "seen, read, seen": "z.mul_(p); r = z.exp(); z.mul_(2)",
    "unseen, read, seen": "z.detach().mul_(2); r = z.exp(); z.mul_(p)",
    "in place, in place": "z.mul_(p); z.relu_()",
}
RETURNS = ("v", "n", "v, z", "v, w", "v, v[1:]", "n, n.exp()")


def _program(kind: str, write: str, returned: str) -> Any:
    """`v` and `w` are views from before the writes, `n` from after; `r` is made of the input."""
    lines = ["def run(p, z):", "    v = z[1:]", "    w = z[:2]", "    r = z.sin()"]
    if kind == "fresh":
        lines[1:1] = ["    z = torch.zeros(4, dtype=torch.float64)"]
    lines += [f"    {one.strip()}" for one in WRITES[write].split(";")]
    lines += ["    n = z[2:]", f"    return {returned},"]
    namespace: dict[str, Any] = {"torch": torch}
    exec("\n".join(lines), namespace)
    return namespace["run"]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", [*KINDS, "fresh"])
def test_who_may_be_written_afterwards(kind: str, write: str) -> None:
    """A view whose base was given a history after it was made is refused by eager until somebody
    asks it for its own."""
    for returned in RETURNS:

        def scenario(compile: Compile, returned: str = returned) -> Any:
            p = leaf(4)
            z, behind = (None, []) if kind == "fresh" else _input(kind)
            results: list[Any] = []
            refused = raised(lambda: results.extend(compile(_program(kind, write, returned))(p, z)))
            if refused is not None:
                return refused
            every = [*results, *([] if z is None else [z]), *behind]
            told = [raised(lambda one=one: one.mul_(1.0)) for one in every if one is not p]  # type: ignore[misc]
            return told, [(one.is_leaf, one.requires_grad) for one in every]

        _same_as_eager(scenario)


@pytest.mark.parametrize("hooked", ["before", "after", "retained"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", [*KINDS])
def test_whose_hooks_are_called(kind: str, write: str, hooked: str) -> None:
    """Hooks of the input, of what it is a view of, and of results; and all gradients."""
    for returned in ("v, z", "r, z", "v.exp(), n.exp()"):

        def scenario(compile: Compile, returned: str = returned) -> Any:
            p = leaf(4)
            z, behind = _input(kind)
            told: list[Any] = []
            if hooked == "before":
                # (Not the written input itself: eager is asked then, for another reason.)
                _watch([one for one in behind if one is not z], hooked, told)
            results: list[Any] = []
            refused = raised(lambda: results.extend(compile(_program(kind, write, returned))(p, z)))
            if refused is not None:
                return refused
            watched = [one for one in (*results, z, *behind) if one.requires_grad]
            # (`register_hook` of one that was left behind ends the process, in eager.)
            assert all(one.is_leaf or one.grad_fn is not None for one in watched)
            if hooked != "before":
                _watch(watched, hooked, told)
            roots = [one for one in results if one.requires_grad]
            tangents = [torch.full_like(one, 10.0**place) for place, one in enumerate(roots)]
            said = raised(lambda: torch.autograd.backward(roots, tangents)) if roots else None
            gradients = [one.grad for one in watched if one.is_leaf or one.retains_grad]
            # Which of several hooks is first is nobody's promise, nor how far a pass came.
            return said or (sorted(told, key=lambda one: one[0]), gradients, p.grad)

        _same_as_eager(scenario)


def _watch(tensors: list[torch.Tensor], how: str, told: list[Any]) -> None:
    for place, one in enumerate(tensors):
        if how == "retained":
            one.retain_grad()
        elif one.requires_grad:

            def double(gradient: torch.Tensor, place: int = place) -> torch.Tensor:
                told.append((place, gradient.clone()))
                return gradient * 2

            one.register_hook(double)


def _same_as_eager(scenario: Any) -> None:
    same(run(scenario, windfall.compile), run(scenario, eager))


def test_how_they_run() -> None:
    """What is no view, and a view that nothing older looks at, natively; others by eager."""

    def scenario(kind: str, write: str, returned: str) -> Any:
        def told(compile: Compile) -> Any:
            p = leaf(4)
            z, behind = _input(kind)
            results = compile(_program(kind, write, returned))(p, z)
            sum(one.sum() for one in results).backward()
            return results, z, behind, p.grad

        return told

    for kind in ("result", "view", "view of a view"):
        both(scenario(kind, "itself", "n, z"))
        both(scenario(kind, "a part", "n, z"))
    both(scenario("result", "unseen", "n, z"))
    both(scenario("result", "itself", "v, z"))
    both(scenario("view", "itself", "v, z"), BY_EAGER)
    both(scenario("view", "unseen", "n, z"), BY_EAGER)
    (compiled,) = both(scenario("view of a plain one", "itself", "n, z"), BY_EAGER)
    assert windfall.explanation(compiled).fallbacks == ["an input that is written is a view"]


def test_strides_make_no_leaf() -> None:
    """A column of a result is no leaf: it is written in the graph, not at a break."""

    def scenario(compile: Compile) -> Any:
        def run(column: torch.Tensor, other: torch.Tensor) -> Any:
            column.mul_(2)
            return column * other

        matrix = leaf(4, 4) * 1
        other = leaf(4)
        result = compile(run)(matrix[:, 1], other)
        result.sum().backward()
        return result, matrix, other.grad

    (compiled,) = both(scenario)
    assert not windfall.explanation(compiled).breaks


SECOND = {
    "exp": lambda x: x.exp_(),
    "tanh": lambda x: x.tanh_(),
    "relu": lambda x: x.relu_(),
    "sin": lambda x: x.sin_(),
    "sigmoid": lambda x: x.sigmoid_(),
    "sqrt": lambda x: x.abs_().sqrt_(),
    "softmax": lambda x: x.copy_(torch.softmax(x, -1)),
}


@pytest.mark.parametrize("kind", ["plain", "result"])
@pytest.mark.parametrize(
    "name, written_again",
    # (Of ops that save their results eager refuses it if these are written.)
    [*((one, False) for one in SECOND), ("sin", True), ("softmax", True)],
)
def test_gradients_of_gradients_go_through_the_input(
    name: str, kind: str, written_again: bool
) -> None:
    """What an op saves of its result is the written input itself: gradients of gradients meet the
    input's hooks."""

    def scenario(compile: Compile) -> Any:
        def run(x: torch.Tensor, y: torch.Tensor) -> Any:
            x.mul_(y)
            SECOND[name](x)
            return x

        y = leaf(4)
        x, _ = _input(kind)
        result = compile(run)(x, y)
        told: list[Any] = []
        x.register_hook(lambda g: told.append(g.detach().clone()) or g * 2)  # type: ignore[func-returns-value]
        if written_again:
            with torch.no_grad():
                x.mul_(3)
        (first,) = torch.autograd.grad(result.sum(), y, create_graph=True)
        return first.detach(), torch.autograd.grad(first.square().sum(), y), told

    both(scenario)


CHANGES = {
    "t_": "h = x * x; h.t_()",
    "transpose_": "h = x * x; h.transpose_(0, 1)",
    "swapaxes_": "h = x * x; h.swapaxes_(0, 1)",
    "unsqueeze_": "h = x * x; h.unsqueeze_(1)",
    "squeeze_": "h = (x * x)[None] * 1; h.squeeze_(0)",
    "twice": "h = x * x; h.t_(); h.unsqueeze_(0); h.squeeze_(0)",
    "a vector and a matrix": "h = x[0] @ x",
    "a matrix and a vector": "h = x @ x[0]",
    "written": "h = x * x; h.t_(); h[1:].mul_(2)",
}
PIECES = (
    ("h[0], h[1]", 0),
    ("h[0].detach(), h[1]", 0),
    ("h, h[1:]", 0),
    ("h.view_as(h), h[0].exp()", 0),
    ("*h.unbind(0),", 0),
    ("b[0], h[0]", 1),
    ("b, h", 1),
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("returned, before", PIECES)
def test_views_of_what_was_changed_in_place(change: str, returned: str, before: int) -> None:
    """The gradients of views of a tensor whose sizes were changed in place."""
    source = CHANGES[change].replace("; ", "\n    ")
    if before:
        source = source.replace("\n", "\n    b = h[:]\n", 1)
        if "b =" not in source:
            source += "\n    b = h[:]"
    namespace: dict[str, Any] = {}
    exec(f"def run(x):\n    {source}\n    return {returned}\n", namespace)

    def scenario(compile: Compile) -> Any:
        x = leaf(3, 3)
        results = compile(namespace["run"])(x)
        told = []
        for result in results:
            if result.requires_grad:
                tangent = torch.arange(1.0, 1 + result.numel(), dtype=result.dtype)
                told.append(
                    torch.autograd.grad(result, x, tangent.reshape(result.shape), retain_graph=True)
                )
        return results, told, [one.stride() for one in results]

    older = before and "_(" in source
    both(scenario, BY_EAGER if older else None)


INPUT_CHANGES = ("x.t_()", "x.squeeze_()", "x.unsqueeze_(0)", "x.t_(); x.t_()", "x.squeeze_(0)")


@pytest.mark.parametrize("change", INPUT_CHANGES)
@pytest.mark.parametrize("order", ["x, y", "y, x"])
@pytest.mark.parametrize("other", ["x.t()", "x[1:]", "x.detach()"])
def test_inputs_that_share_memory_and_are_changed_in_place(
    change: str, order: str, other: str
) -> None:
    """The one or the other may come first, and be the base of both."""
    lines = ["y.sin_()", *change.split("; "), "x.clamp_(min=-1)", "return y * 2, x + 1"]
    namespace: dict[str, Any] = {}
    exec(f"def run({order}):\n    " + "\n    ".join(lines), namespace)

    def scenario(compile: Compile) -> Any:
        x = torch.randn(3, 3, dtype=torch.float64)
        y = eval(other, {"x": x})
        given = (x, y) if order == "x, y" else (y, x)
        results = compile(namespace["run"])(*given)
        return results, x, y, x.stride(), y.stride(), x._version

    _same_as_eager(scenario)


@pytest.mark.parametrize("change", INPUT_CHANGES)
@pytest.mark.parametrize("kind", ["leaf", "result", "view"])
def test_a_change_of_sizes_is_part_of_the_history(change: str, kind: str) -> None:
    """Even if it is undone, or is none: results lead to the input as it is afterwards."""
    source = "\n    ".join(change.split("; "))
    namespace: dict[str, Any] = {}
    exec(f"def run(x):\n    r = x * 2\n    {source}\n    return r, x.sin(), x", namespace)

    def scenario(compile: Compile) -> Any:
        first = leaf(3, 3)
        x = {"leaf": first, "result": first * 1, "view": (first * 1)[:]}[kind]
        results: list[Any] = []
        refused = raised(lambda: results.extend(compile(namespace["run"])(x)))
        if refused is not None:
            return refused
        told: list[Any] = []
        x.register_hook(lambda g: told.append(g.clone()) or g * 2)  # type: ignore[func-returns-value]
        found = torch.autograd.grad(
            [one.sum() for one in results[:2]], [x, first], allow_unused=True
        )
        return found, told, x.shape, x.stride(), x.is_leaf

    _same_as_eager(scenario)


# ------------------------------------------------------------------- views by address, then a write

# What is looked at by address, and how far: whether it shows more than what it was taken from.
BY_ADDRESS = {
    "a column, beyond": ("y[:, 2].as_strided((2,), (1,))", True),
    "a column, all of it": ("y[:, 2].as_strided((3,), (4,))", False),
    "a row, beyond": ("y[1].as_strided((6,), (1,))", True),
    "a row, before": ("y[1].as_strided((2,), (1,), 2)", True),
    "rows, inside": ("y[1:].as_strided((2, 2), (1, 4))", False),
    "a diagonal, beyond": ("y.diagonal().as_strided((3,), (1,))", True),
    "turned": ("y.t().as_strided((2, 2), (1, 3))", False),
    "all": ("y.as_strided((5,), (2,), 1)", False),
}
WRITTEN = {"the view": "v.mul_(2)", "the base": "y.mul_(2)", "a part": "y[0].sin_()"}


@pytest.mark.parametrize("write", WRITTEN)
@pytest.mark.parametrize("name", BY_ADDRESS)
def test_views_by_address_then_a_write(name: str, write: str) -> None:
    """Once the memory is written, eager takes such a view of the base; what was recorded, of what
    it was taken from, lost the gradients of what that does not show."""
    view, beyond = BY_ADDRESS[name]
    scope: dict[str, Any] = {}
    lines = "y = x * 1", f"v = {view}", WRITTEN[write], "return y.sin(), v.exp()"
    exec("def program(x):\n    " + "\n    ".join(lines), scope)
    program = scope["program"]
    compiled = windfall.compile(program)
    for wanted in ((0, 1), (1,), (0,)):
        told = []
        for call in (compiled, program):
            x = torch.linspace(0.1, 1.2, 12, dtype=torch.float64).view(3, 4).requires_grad_()
            results = [call(x)[one] for one in wanted]
            tangents = [torch.arange(1.0, one.numel() + 1).view(one.shape) for one in results]
            told.append((results, torch.autograd.grad(results, x, tangents)))
        torch.testing.assert_close(*told)
    reasons = windfall.explanation(compiled).fallbacks
    assert [one[:5] for one in reasons] == (["W0203"] if beyond else []), reasons
