"""What is read from data: one graph where nobody needs the value, a break where somebody does.

Each program runs eagerly and compiled (`backend="eager"` and the windfall backend), over data that
give 0, 1, 2 and more elements; results, types, strides, and what is raised must be eager's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall

COUNTS = (3, 0, 1, 2, 6, 5, 4)
BACKENDS = ("eager", "windfall")


def inputs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(24.0).view(6, 4), torch.tensor([one < count for one in range(6)])


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call answers, or what it raises."""
    try:
        return function(*arguments)
    except (RuntimeError, LookupError, ValueError, ArithmeticError, AssertionError) as error:
        return type(error), str(error)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.stride() == other.stride()
            and one.requires_grad == other.requires_grad
            and torch.allclose(one, other, equal_nan=True)
        )
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def captures(compiled: Any) -> int:
    return sum(len(one) for one in compiled.entries().values())


def agrees(function: Callable[..., Any], backend: str, **options: Any) -> Any:
    """The compiled object, after it has agreed with eager for all counts."""
    compiled = windfall.compile(function, backend=backend, **options)
    for count in COUNTS:
        expected = outcome(function, *inputs(count))
        found = outcome(compiled, *inputs(count))
        assert torch.is_grad_enabled()
        assert same(found, expected), (count, found, expected)
    return compiled


# ----------------------------------------------------------------------------- one graph, no break

ONE_GRAPH: dict[str, Callable[..., Any]] = {}


def one_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    ONE_GRAPH[function.__name__] = function
    return function


@one_graph
def sliced(x, m):
    n = m.sum().item()
    return x[:n] * 2, x[n:] + 1, x[:, :n]


@one_graph
def sliced_by_tensor(x, m):
    return x[: m.sum()] * 2


@one_graph
def read_twice(x, m):
    n = m.sum()
    both = x[:n] + (x * 2)[:n]
    n.sub_(1)
    return both, x[: n.item()] * 2


@one_graph
def negative_end(x, m):
    n = int(m.sum())
    return x[:-n] * 2, x[n - 4 :] + 1


@one_graph
def made(x, m):
    n = m.sum().item()
    return torch.zeros(n) + 1, torch.arange(n) * 2, torch.full((n, 3), 2.0), torch.ones(n, n)


@one_graph
def returned(x, m):
    n = m.sum().item()
    return x * 2, n, n + 1, n // 2, 2 * n - 7, -n


@one_graph
def as_numbers(x, m):
    n = m.sum().item()
    return x * n + n, x.sum() / n, torch.add(x, n)


@one_graph
def selected(x, m):
    n = m.sum().item()
    return x[n - 1] * 2, x[n]  # 6 is out of range


@one_graph
def counted(x, m):
    n = m.sum().item()  # at least 0
    k = torch.count_nonzero(x > 3).item()
    try:
        y = torch.zeros(n, k)
    except RuntimeError:
        y = x
    return x[:1].expand(n, 4) * 2, y, x[: x[:, 0].argmax().item()]


@one_graph
def narrowed(x, m):
    n = m.sum().item()
    return x.narrow(0, 0, n).sum(), x.narrow(0, n, 1)


@one_graph
def split_at(x, m):
    n = m.sum().item()
    first, second = torch.split(x, [n, 6 - n])
    return first.sum(), second * 2


@one_graph
def listed(x, m):
    a, b = (m[:2].long() + 1).tolist()
    return torch.split(x, [a + b, 6 - a - b])[0] * 2


@one_graph
def padded(x, m):
    return F.pad(x, (0, m.sum().item())), x.repeat(m.sum().item(), 1)


@one_graph
def masked(x, m):
    y = x[m]
    return y * 2, y.sum(0), y.mean(), y.reshape(-1), y.view(-1, 2) + 1, y.t() @ y


@one_graph
def masked_twice(x, m):
    return x[m] + (x * 2)[m]


@one_graph
def shapes(x, m):
    y = x[m]
    return len(y), y.shape, y.numel(), torch.zeros(y.shape[0], 2) + y[:, :2]


@one_graph
def positions(x, m):
    i, j = torch.where(x > 5)
    return x[i, j] * 2, x.nonzero() * 2, torch.argwhere(m), m.nonzero().squeeze(1) + 1


@one_graph
def written_back(x, m):
    y = x.clone()
    y[m] = x[m] * 2
    z = torch.zeros(6, 4)
    rows = m.nonzero()[:, 0]
    z[rows] = x[rows] + 1
    return y, z, torch.zeros(6, 4).index_add(0, rows, x[rows])


@one_graph
def joined(x, m):
    return torch.cat([x[m], x]) * 2, torch.stack([x[m], x[m]])


@one_graph
def layers(x, m):
    y = x[m]
    weight = torch.ones(3, 4)
    target = torch.zeros(y.shape[0], dtype=torch.long)
    return (
        F.linear(y, weight),
        torch.softmax(y, -1),
        F.layer_norm(y, (4,)),
        F.cross_entropy(y, target),
        F.normalize(y),
        F.mse_loss(y, y * 2),
        F.embedding(m.nonzero().view(-1), x),
    )


@one_graph
def orders(x, m):
    y = x[m]
    return y.max(1)[0], y.sort(1)[0], y.topk(2, 1)[1], y.cumsum(0), y.argmax(1)


@one_graph
def greatest(x, m):
    return x[m].max(0)[0] * 2  # of no row: an error


@one_graph
def first_rows(x, m):
    y = x[m]
    return y[:2] * 2, y[1:] + 1, y[-1:], y[1:3]


@one_graph
def first_row(x, m):
    return x[m][0] * 2, x[m][-1]


@one_graph
def several_masks(x, m):
    a, b = x[x > 3], x[x < 20]
    return torch.cat([a, b]).sum() * 2, a.mean() - b.mean(), torch.masked_select(x, x > 9) + 1


@one_graph
def families(x, m):
    whole = x.long() // 5
    return (
        torch.unique(whole) * 2,
        *torch.unique(whole, return_counts=True),
        *torch.unique(whole, return_inverse=True),
        torch.unique_consecutive(whole) + 1,
        torch.bincount(whole.view(-1)) * 2,
        torch.bincount(m.long(), minlength=4),
        torch.repeat_interleave(x, m.long(), 0) * 2,
    )


@one_graph
def under_no_grad(x, m):
    with torch.no_grad():
        y = x[m] * 2
        z = y + y.shape[0]
    return z + 1, torch.is_grad_enabled()


@one_graph
def checked_under_no_grad(x, m):
    n = m.long().sum().item() - 1
    with torch.no_grad(), torch.enable_grad():
        torch._check(n < 4, lambda: f"{n} of them")
        y = torch.zeros(n) + 1
    return y, torch.is_grad_enabled()


@one_graph
@torch.no_grad()
def decorated(x, m):
    return x[m.long().sum().item()] * 2, x[m].max(0)[0], torch.is_grad_enabled()


@one_graph
def mask_written(x, m):
    before = x[m]
    m[0] = False
    between = x[m]
    m.zero_()
    return before * 2, between * 2, x[m] * 2, m


@one_graph
def argument_written(x, m):
    n = m.sum().item()
    x.add_(n)
    k = x[0].sum().long().item()
    x[0].mul_(2)
    return x + k


@one_graph
def views_written(x, m):
    y = x * 2
    v = y[0]
    n = m.sum().item()
    y.add_(n)
    v.mul_(2)
    return y + 1, v - 1


@one_graph
def checked(x, m):
    n = m.sum().item()
    torch._check(n >= 2)
    torch._check(n < 6, lambda: f"too many: {n}")
    if n > 1:
        x = x + 1
    return x[:1].expand(n, 4) * 2


@one_graph
def checked_otherwise(x, m):
    n = m.sum().item()
    torch._check_value(n != 2, lambda: "two")
    torch._check_index(n != 3, lambda: "three")
    torch._check(n <= x.shape[0])
    torch._check(not n > 5)
    return x[:n] + n


@one_graph
def truths(x, m):
    some, every = m.any().item(), bool(m.all())
    kept = not m[0]
    y = x * some + every + (x > 3) * kept
    return y, some, every, kept, some & every, some | kept, every ^ True, isinstance(some, bool)


@one_graph
def truths_as_numbers(x, m):
    some = m.any().item()
    return x[: some + 1], 2 * some, -some, int(some), x.long() * some, (x > 3) & some


@one_graph
def truth_of_what_is_written(x, m):
    some = m.any()
    before = some.item()
    some.fill_(False)
    m.zero_()
    return before, some, m, x + before


@one_graph
def texts(x, m):
    n, v, some = m.sum().item(), x.mean().item(), m.any().item()
    one = "n=%d v=%.3f" % (n, v)  # noqa: UP031
    two = "{} of {:>5}".format(n, 8)  # noqa: UP032
    three = str(n) + "/" + repr(n)
    four = f"{n=} {n!r:>4} {v:.2e} {x.shape[0]} {some} {x[:n].shape}"
    five = format(str(n)) + format(three, ">30")
    return x * 2, one, two, three, four, five, ",".join([three, "b"]), f"{one}-{two}"


@one_graph
def place_by_tensor(x, m):
    """An integer tensor without dimensions is a number in a key: the result is a view."""
    best = x.sum(1).argmin() + m.sum()
    y = x.clone()
    y[best.clamp(max=5)].add_(100)
    y[best.clamp(max=5), 1:] = 3.0
    last = best.clamp(max=3)
    y[:, last] *= 2
    rows = torch.tensor([0, 2])
    return (
        y,
        x[..., last],
        x[None, last],
        x[last, rows],
        x[rows, last],
        x[last, None, rows],
        x[best],
    )


@one_graph
def padded_to_the_longest(x, m):
    """Padding to the longest."""
    lengths = torch.stack([m.sum(), m[:2].sum()])
    longest = int(lengths.max())
    present = torch.arange(longest)[None] < lengths[:, None]
    rows = x.T[:2, :longest]
    mask = torch.zeros(2, longest, dtype=torch.bool)
    for row in range(2):
        mask[row, : lengths[row]] = True
    return rows * present, rows.masked_fill(~mask, 0.0).sum(), present, mask


@one_graph
def in_parts(x, m):
    lengths = torch.stack([m.sum(), 6 - m.sum()])
    first, second = x.split(lengths.tolist())
    third, fourth = torch.split(x.T, lengths.tolist(), dim=1)
    return first.sum(0), second * 2, third + 1, fourth.sum(1)


@one_graph
def parts_that_do_not_fit(x, m):
    n = m.sum().item()
    return x.split([n, 3])


@one_graph
def unique_rows(x, m):
    ids = torch.stack([m.long(), m.long() * 2], 1)
    rows = torch.unique(ids, dim=0)
    columns, places, counts = torch.unique(ids.T, dim=1, return_inverse=True, return_counts=True)
    return rows * 2, columns + counts, places, torch.unique_consecutive(ids, dim=0)


@one_graph
def expanded(x, m):
    n = m.long().sum().item()
    return x[:1].expand(n, 4) + 1, x[:1].repeat(n, 1).view(n, 2, 2).transpose(0, 1).reshape(2, -1)


@one_graph
def expanded_as_it_is(x, m):
    return x[:1].expand(m.long().sum().item() - 2, 4) * 2  # -1 leaves the size, -2 is refused


# As text: pytest writes its own code for every `assert` of this file.
_ASSERTED = """
def asserted_tensor(x, m):
    assert m.any(), "none"
    assert (x >= 0).all().item()
    return x[m] * 2

def asserted(x, m):
    n = m.sum().item()
    assert n > 0
    assert n != 5, "five"
    return x[: n - 1] + n
"""
_namespace: dict[str, Any] = {}
exec(_ASSERTED, _namespace)
for _name in ("asserted", "asserted_tensor"):
    one_graph(_namespace[_name])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(ONE_GRAPH))
def test_one_graph(name: str, backend: str) -> None:
    compiled = agrees(ONE_GRAPH[name], backend, fullgraph=True)
    assert captures(compiled) == 1
    assert len(compiled.log.snapshot("capture")) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_negative_size(backend: str) -> None:
    def f(x, m):
        return torch.zeros(m.sum().item() - 3) + 1

    assert captures(agrees(f, backend, fullgraph=True)) == 1


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("backend", BACKENDS)
def test_check_is_size(backend: str) -> None:
    def f(x, m):
        n = m.sum().item() - 1
        torch._check_is_size(n, max=4)
        return x[:1].expand(n, 4) * 2

    assert captures(agrees(f, backend, fullgraph=True)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_constants_without_dimensions(backend: str) -> None:
    """Sizes computed by torch's own functions; a view of a constant that is written is none."""

    def f(x):
        half = torch.div(x.size(0), 2, rounding_mode="trunc") - 1
        two = torch.tensor(2)
        two.view(()).add_(1)
        wrote = torch.div(6, 2, rounding_mode="trunc")
        wrote.view(()).add_(1)
        return (
            *(x[:half] * 2, x.view(2, half + 1, 4), x[half - 1 : half + 1]),
            *(two.item(), x[:wrote], torch.tensor([1, 2]).tolist()),
        )

    compiled = windfall.compile(f, backend=backend, fullgraph=True)
    x = torch.randn(6, 4)
    assert same(compiled(x), f(x))
    assert same(compiled(x), f(x))


def test_large_integers() -> None:
    def f(t):
        n = t.item()
        return n * n, n + 1, n < 1 << 63

    compiled = windfall.compile(f, backend="eager", fullgraph=True)
    for value in (5, -(1 << 63), (1 << 63) - 1):
        assert compiled(torch.tensor(value)) == f(torch.tensor(value))


@pytest.mark.parametrize("value", [5, 0, 1, -3, 1 << 40, -(1 << 40)])
def test_large_integers_in_pieces(value: int) -> None:
    def f(x, t):
        n = t.item()
        return (x + 1).long() * n + n, x * 2 - n

    compiled = windfall.compile(f, fullgraph=True)
    for each in (7, value, 9, value):
        expected, found = f(torch.ones(3), torch.tensor(each)), None
        found = compiled(torch.ones(3), torch.tensor(each))
        assert same(found, expected)


# -------------------------------------------------------------------------------- breaks, as before


def branch(x, m):
    n = m.sum().item()
    return x + 1 if n > 2 else x - 1


def loop(x, m):
    for _ in range(m.sum().item()):
        x = x + 1
    return x


def text_looked_at(x, m):
    s = f"{m.sum().item()}"
    return x * len(s), s == "3"


def text_that_may_raise(x, m):
    return x * 2, f"{m.sum().item() + 65:c}"


def truth(x, m):
    return x * 2 if m.all().item() else x + 1


def truth_by_identity(x, m):
    n = m.sum().item()
    return (x * 2 if (n > 2) is True else x), bool(m.any()) is False


def empty(x, m):
    y = x[m]
    return y.sum() if y.numel() > 0 else x.sum()


def squeezed(x, m):
    return x[m].squeeze() * 2


def unequal(x, m):
    return x[m] + x[x[:, 0] >= 0][: m.sum()]


def caught(x, m):
    n = m.sum().item()
    try:
        torch._check(n != 2, lambda: "two")
        y = torch.zeros(n - 3)
    except RuntimeError as error:
        return x - 1, str(error)
    return x + n, y


def asserted_with_value(x, m):
    n = m.sum().item()
    assert n != 2, f"{n} is wrong"
    return x[:n]


def caught_outside(x, m):
    n = m.long().sum().item()
    try:
        with torch.no_grad():
            return torch.zeros(n - 3), x
    except RuntimeError:
        return x, torch.is_grad_enabled()


class _Swallows:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def swallowed(x, m):
    n = m.long().sum().item()
    with _Swallows():
        x = torch.zeros(n - 3)
    return x


def effect_before(x, m, log=[]):  # noqa: B006
    n = m.sum().item()
    log.append(n)
    torch._check(n != 2)
    return x[:n], list(log)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [
        branch,
        loop,
        text_looked_at,
        text_that_may_raise,
        truth,
        truth_by_identity,
        empty,
        squeezed,
        unequal,
        caught,
        asserted_with_value,
        caught_outside,
        swallowed,
    ],
)
def test_break(function: Callable[..., Any], backend: str) -> None:
    compiled = agrees(function, backend)
    assert any(one.record.stopped for one in compiled.log.snapshot("capture") if one.record)
    with pytest.raises(windfall.BreakError):
        windfall.compile(function, backend=backend, fullgraph=True)(*inputs(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_effect_before_a_check(backend: str) -> None:
    compiled = windfall.compile(effect_before, backend=backend)
    log: list[int] = []
    assert compiled(*inputs(3), log)[1] == [3]
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        compiled(*inputs(2), log)
    assert log == [3, 2]


# ----------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(4, 4, requires_grad=True)

    def step(x, m):
        y = torch.tanh(x @ weight)
        chosen = y[m]
        n = m.sum().item()
        rest = y[n:] * n
        return (F.relu(chosen) * 2).sum() + (rest * rest).sum() + chosen.mean(0).sum()

    compiled = windfall.compile(step, backend=backend, fullgraph=True)
    for count in COUNTS:
        x, m = torch.randn(6, 4), inputs(count)[1]
        results = []
        for function in (step, compiled):
            weight.grad = None
            given = x.clone().requires_grad_()
            function(given, m).backward()
            results.append((given.grad, weight.grad.clone()))
        torch.testing.assert_close(results[1], results[0], equal_nan=True)
    assert captures(compiled) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_of_a_write(backend: str) -> None:
    def step(x, m):
        y = x * 2
        y[m] = (x[m] * 3).sin()
        n = m.sum().item()
        y[:n] *= 2
        return (y * y).sum()

    compiled = windfall.compile(step, backend=backend, fullgraph=True)
    for count in COUNTS:
        x, m = inputs(count)
        found = []
        for function in (step, compiled):
            given = x.clone().requires_grad_()
            function(given, m).backward()
            found.append(given.grad)
        torch.testing.assert_close(*found)
    assert not compiled.log.snapshot("fallback")


def test_a_module_with_experts() -> None:
    """The usual router: each expert gets the tokens that chose it."""

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(8, 3)
            self.experts = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
                for _ in range(3)
            )

        def forward(self, x):
            scores = self.gate(x).softmax(-1)
            best = scores.argmax(-1)
            out = torch.zeros_like(x)
            for index, expert in enumerate(self.experts):
                (rows,) = torch.where(best == index)
                out[rows] = expert(x[rows]) * scores[rows, index, None]
            return out

    torch.manual_seed(0)
    model = Experts()
    compiled = windfall.compile(model, fullgraph=True)
    for size in (7, 7, 1, 16, 2):
        x = torch.randn(size, 8)
        expected, found = model(x), compiled(x)
        torch.testing.assert_close(found, expected)
        model.zero_grad()
        expected.square().sum().backward()
        wanted = [one.grad.clone() for one in model.parameters() if one.grad is not None]
        model.zero_grad()
        found.square().sum().backward()
        have = [one.grad.clone() for one in model.parameters() if one.grad is not None]
        torch.testing.assert_close(have, wanted)


# -------------------------------------------------------------------------------------- how often


def test_compilations_are_bounded() -> None:
    def f(x, m):
        y = (x * 2)[m]
        n = m.sum().item()
        return (y.sin() + 1).sum(0) * n + x[:n].sum(0)

    compiled = windfall.compile(f, fullgraph=True)
    for count in [*range(50), *range(50)]:
        x, m = torch.randn(60, 4), torch.arange(60) < count
        torch.testing.assert_close(compiled(x, m), f(x, m))
    assert captures(compiled) == 1
    assert len(compiled.log.snapshot("capture")) == 1
    assert len(compiled.log.snapshot("build")) <= 8
    assert not compiled.log.snapshot("fallback")


def test_sizes_and_reads_vary_together() -> None:
    def f(x, m):
        y = x[m]
        return (y * 2 + y.shape[0]).sum(0) + x.shape[0]

    compiled = windfall.compile(f)
    for size in (6, 7, 9, 12, 2, 30):
        for count in (3, 0, 1, 2, size):
            x, m = torch.randn(size, 4), torch.arange(size) < count
            torch.testing.assert_close(compiled(x, m), f(x, m))
    assert captures(compiled) <= 2


def test_threads() -> None:
    def f(x, m):
        y = (x + 1)[m]
        return (y * 2 + 1).sum(0) * m.sum().item()

    compiled = windfall.compile(f, fullgraph=True)
    wrong: list[int] = []

    def work(start: int) -> None:
        for step in range(30):
            count = (start + step) % 7
            x, m = inputs(count)
            if not torch.allclose(compiled(x, m), f(x, m)):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    assert captures(compiled) == 1


def test_a_backend_of_the_user_sees_the_reads() -> None:
    seen: list[Any] = []

    def backend(module, examples):
        seen.append([str(node.target) for node in module.graph.nodes if node.op == "call_method"])
        return module.forward

    def f(x, m):
        n = m.sum().item()
        return x[:n] * 2

    agrees(f, backend)
    assert seen == [["sum", "item"]]
