"""Inputs are written where they stand: kinds of writes × what else happens × how the input lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import windfall
from windfall.events import EventKind
from windfall.ir.stages import Program

Write = Callable[[Tensor, Tensor, Tensor], Any]


def _two(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[0] = s[0]
    x[1] = x[0] * 2


def _three(x: Tensor, s: Tensor, i: Tensor) -> None:
    x.mul_(2)
    x[1] = s[1]
    x.add_(1)


def _row(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[1] = s[0]


def _slice(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[:, 2:4] = s[:, :2]


def _stepped(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[::2, 1] = s[::2, 0]


def _nested(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[1:][0][2:4] = s[0, :2]


def _transposed(x: Tensor, s: Tensor, i: Tensor) -> None:
    x.t()[2] = s[:, 0]


def _put(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[i] = s[:2]


def _put_column(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[:, i] = s[:, :2]


def _mask(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[s > 0] = 2.0


def _shift(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[1:] = x[:-1].clone()


def _cast(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[1] = s[0].double()


def _own_row(x: Tensor, s: Tensor, i: Tensor) -> None:
    x[1] += 1


# What can be written without a copy of the whole.
IN_PLACE: dict[str, Write] = {
    "row": _row,
    "slice": _slice,
    "stepped": _stepped,
    "nested": _nested,
    "transposed": _transposed,
    "row of its own": _own_row,
    "narrow": lambda x, s, i: x.narrow(1, 2, 3).copy_(s[:, :3]),
    "diagonal": lambda x, s, i: x.diagonal().copy_(s.diagonal()),
    "cast": _cast,
    "copy_": lambda x, s, i: x.copy_(s),
    "average": lambda x, s, i: x.mul_(0.9).add_(s, alpha=0.1),
    "masked_fill_": lambda x, s, i: x.masked_fill_(s > 0, 1.5),
    "mask": _mask,
    "zero_": lambda x, s, i: x.zero_(),
    "shift": _shift,
    "softmax": lambda x, s, i: x.copy_(x.softmax(-1)),
    "softmax of columns": lambda x, s, i: x.copy_(x.softmax(0)),
    "matrix product": lambda x, s, i: x.copy_((s @ x.t() @ x * 0.01).tanh()),
    "foreach": lambda x, s, i: torch._foreach_lerp_([x], [s], 0.3),
    "index_copy_": lambda x, s, i: x.index_copy_(0, i, s[:2]),
    "index_copy_ of columns": lambda x, s, i: x.index_copy_(1, i, s[:, :2]),
    "index_put_": _put,
    "index_put_ of columns": _put_column,
    "index_put_, added": lambda x, s, i: x.index_put_((i,), s[:2], accumulate=True),
    "index_add_": lambda x, s, i: x.index_add_(0, i, s[:2], alpha=2),
    "index_fill_": lambda x, s, i: x.index_fill_(1, i, 7.0),
    "scatter_": lambda x, s, i: x.scatter_(0, i.expand(2, 2), s[:2]),
    "scatter_ of a number": lambda x, s, i: x.scatter_(1, i.expand(2, 2), 3.0),
    "scatter_add_": lambda x, s, i: x.scatter_add_(0, i.expand(2, 2), s[:2]),
    "two rows": _two,
    "three writes": _three,
}


def _alone(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)


def _twice(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    write(x, s + 1, i)


def _read_before(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    total = x.sum(0)
    write(x, s, i)
    return total


def _old(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    old = x.clone()
    write(x, s, i)
    return old


def _read_after(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    return x.sum(0), x * 2


def _product_after(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    return x @ s.t()


def _product_around(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    before = x @ s.t()
    write(x, s, i)
    return before - x @ s.t()


def _both(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    old = x.clone()
    write(x, s, i)
    return old * x, old.t() @ x


def _view_of_old(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    row = x[1] * 1
    write(x, s, i)
    return row + x[1], torch.outer(row, x[0])


def _returned(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    return x


def _view_returned(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    return x[1:], x.t()


def _part_copied(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    part = x[1:]
    part[0] = s[0]
    write(x, s, i)
    part[-1] = s[1]
    return part.clone(), x.sum()


def _copied(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    """Copies have memory of their own, though the contents stand where the input does."""
    write(x, s, i)
    return x.clone()


def _all_copied(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    copies = x.clone(), x[:2].clone(), x.t().clone(), x.detach().to(x.dtype, copy=True)
    return *copies, torch.empty_like(x).copy_(x), x[:1].contiguous().mul_(2), x[torch.arange(2)]


def _copied_between(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    between = x.clone()
    write(x, s + 1, i)
    return between, x[0].clone()


def _refused_later(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s, i)
    return torch.nn.functional.embedding(i + 1, x), s.gather(1, i.expand(2, 2))


def _checked_before(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    rows = s[i + 1]
    write(x, s, i)
    return rows


def _source_is_made(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, x.sin() + s.mean(), i)


def _source_is_gathered(write: Write, x: Tensor, s: Tensor, i: Tensor) -> Any:
    write(x, s[torch.arange(s.shape[0]) // 2 + i[0]], i)


ELSE: dict[str, Callable[..., Any]] = {
    "alone": _alone,
    "twice": _twice,
    "read before": _read_before,
    "old value returned": _old,
    "read after": _read_after,
    "matrix product after": _product_after,
    "matrix product around": _product_around,
    "old and new value": _both,
    "part of the old value": _view_of_old,
    "returned": _returned,
    "view returned": _view_returned,
    "part copied": _part_copied,
    "copied": _copied,
    "copied in many ways": _all_copied,
    "copied between": _copied_between,
    "indices after": _refused_later,
    "indices before": _checked_before,
    "made of itself": _source_is_made,
    "gathered": _source_is_gathered,
}
# Memory, and the input in it, of so many rows and columns.
LAYOUTS: dict[str, Callable[[int, int], tuple[Tensor, Tensor]]] = {
    "dense": lambda n, m: _in(torch.randn(n, m), lambda base: base),
    "transposed": lambda n, m: _in(torch.randn(m, n), lambda base: base.t()),
    "columns": lambda n, m: _in(torch.randn(n, 2 * m), lambda base: base[:, ::2]),
    "inside": lambda n, m: _in(torch.randn(n + 5, m + 3), lambda base: base[2 : n + 2, 1 : m + 1]),
}


def _in(base: Tensor, view: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    return base, view(base)


def run_both(
    run: Callable[..., Any],
    make: Callable[[int, int], tuple[Tensor, Tensor]],
    rows: int = 4,
    columns: int = 6,
    calls: int = 2,
) -> list[Program]:
    """Eager and compiled, on equal tensors: what is answered, what is written, versions. The
    programs that were compiled."""
    seen: list[Any] = []
    report = windfall.explain(run)
    for function in (run, report):
        torch.manual_seed(7)
        (base, x), s, i = make(rows, columns), torch.randn(rows, columns), torch.tensor([0, 2])
        answers = []
        for _ in range(calls):
            found = function(x, s, i)
            if function is report:
                last, found = found, found.result
            one = found if isinstance(found, tuple) else (found,)
            same = [isinstance(t, Tensor) and _memory(t) == _memory(x) for t in one]
            answers.append([t.detach().clone() if isinstance(t, Tensor) else t for t in one])
            seen.append((same, found is x, x._version, base._version))
        seen.append((answers, base.clone()))
    torch.testing.assert_close(seen[calls], seen[-1], rtol=1e-5, atol=1e-5)
    assert seen[:calls] == seen[calls + 1 : -1]
    assert not last.fallbacks, last.fallbacks
    built = [one.record for one in last.events if one.kind is EventKind.BUILD]
    return [one for one in built if isinstance(one, Program)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def is_in_place(program: Program) -> bool:
    """Whether the first result is the input itself."""
    (first, *_) = program.results
    return first.buffer is not None and program.buffers[first.buffer].place == "input"


CASES = [(kind, other, layout) for kind in IN_PLACE for other in ELSE for layout in LAYOUTS]


def check(kind: str, other: str, layout: str, rows: int, columns: int) -> None:
    write, around = IN_PLACE[kind], ELSE[other]

    def run(x: Tensor, s: Tensor, i: Tensor) -> Any:
        return around(write, x, s, i)

    with torch.no_grad():
        for program in run_both(run, LAYOUTS[layout], rows, columns):
            assert is_in_place(program)


@pytest.mark.parametrize(("kind", "other", "layout"), CASES[::23])
def test_as_eager(kind: str, other: str, layout: str) -> None:
    check(kind, other, layout, 4, 6)


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_copy_of_what_was_written_is_no_alias(kind: str) -> None:
    check(kind, "copied", "dense", 4, 6)


@pytest.mark.conformance
@pytest.mark.parametrize(("kind", "other", "layout"), CASES)
def test_all_as_eager(kind: str, other: str, layout: str) -> None:
    check(kind, other, layout, 37, 70)


# ------------------------------------------------------------------------------------ in training


def _beside(write: Write, x: Tensor, h: Tensor, i: Tensor) -> Tensor:
    write(x, h.detach(), i)
    return (h * h).sum()


def _old_in_loss(write: Write, x: Tensor, h: Tensor, i: Tensor) -> Tensor:
    loss = (h * x.clone()).sin().sum()
    write(x, h.detach(), i)
    return loss


def _new_in_loss(write: Write, x: Tensor, h: Tensor, i: Tensor) -> Tensor:
    write(x, h.detach(), i)
    return (h - x.clone()).pow(2).sum()


def _without_grad(write: Write, x: Tensor, h: Tensor, i: Tensor) -> Tensor:
    loss = h.exp().sum()
    with torch.no_grad():
        write(x, h, i)
    return loss


TRAINING = {
    "beside": _beside,
    "old value in the loss": _old_in_loss,
    "new value in the loss": _new_in_loss,
    "under no_grad": _without_grad,
}
TRAINED = [(kind, other, layout) for kind in IN_PLACE for other in TRAINING for layout in LAYOUTS]


def check_training(kind: str, other: str, layout: str) -> None:
    """Two steps, the second forward before the first backward: gradients, contents, versions."""
    write, around = IN_PLACE[kind], TRAINING[other]

    def loss(x: Tensor, w: Tensor, s: Tensor, i: Tensor) -> Tensor:
        return around(write, x, s * w, i)

    compiled = windfall.compile(loss)
    seen = []
    for function in (loss, compiled):
        torch.manual_seed(7)
        (base, x), s, i = LAYOUTS[layout](4, 6), torch.randn(4, 6), torch.tensor([0, 2])
        w = torch.randn(6, requires_grad=True)
        losses = [function(x, w, s, i), function(x, w, s + 1, i)]
        seen.append([x._version, base._version])
        for one in losses:
            one.backward()
        seen.append([*(one.detach() for one in losses), w.grad, base.clone()])
    torch.testing.assert_close(seen[1], seen[3], rtol=1e-4, atol=1e-4)
    assert seen[0] == seen[2]
    assert windfall.explanation(compiled).eager == {}


@pytest.mark.parametrize(("kind", "other", "layout"), TRAINED[::13])
def test_in_training(kind: str, other: str, layout: str) -> None:
    check_training(kind, other, layout)


@pytest.mark.conformance
@pytest.mark.parametrize(("kind", "other", "layout"), TRAINED)
def test_all_in_training(kind: str, other: str, layout: str) -> None:
    check_training(kind, other, layout)


def test_a_buffer_in_training_is_not_copied() -> None:
    def loss(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        hidden = s * w
        x[3] = hidden.detach()[0]
        return hidden.sum()

    report = windfall.explain(loss)
    x = torch.zeros(64, 6)
    report = report(x, torch.randn(6, requires_grad=True), torch.randn(4, 6))
    program, *_ = [one.record for one in report.events if one.kind is EventKind.BUILD]
    assert is_in_place(program)
    assert all(one.type.elements < x.numel() for one in program.buffers if one.place != "input")


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_leaf_that_needs_a_gradient(kind: str) -> None:
    """Written under `no_grad`, as optimizers do."""

    def step(x: Tensor, s: Tensor, i: Tensor) -> None:
        with torch.no_grad():
            IN_PLACE[kind](x, s, i)

    def make(rows: int, columns: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(rows, columns, requires_grad=True)
        return x.detach(), x

    for program in run_both(step, make):
        assert is_in_place(program)


# ---------------------------------------------------------------------------------- what fails


@pytest.mark.parametrize(
    "kind", ["average", "row", "index_add_", "index_put_, added", "three writes"]
)
@pytest.mark.parametrize("place", ["before", "after", "itself"])
def test_what_is_refused_leaves_inputs_as_eager_does(kind: str, place: str) -> None:
    """An index out of bounds, before the write, after it, or in it."""

    def run(x: Tensor, s: Tensor, i: Tensor, j: Tensor) -> Any:
        if place == "before":
            found = s[j]
        IN_PLACE[kind](x, s, j if place == "itself" else i)
        if place == "after":
            found = x @ torch.nn.functional.embedding(j, s).t()
        return found if place != "itself" else None

    compiled = windfall.compile(run)
    seen = []
    for function in (run, compiled):
        torch.manual_seed(3)
        x, s, i = torch.randn(4, 6), torch.randn(4, 6), torch.tensor([0, 2])
        function(x, s, i, i)
        errors: list[type[Exception]] = []
        try:
            function(x, s, i, torch.tensor([1, 9]))
        except (IndexError, RuntimeError) as error:
            errors.append(type(error))
        seen.append((x.clone(), x._version, errors))
    torch.testing.assert_close(seen[0][0], seen[1][0])
    assert seen[0][1:] == seen[1][1:]


# ------------------------------------------------------------------------------------ positions


@pytest.mark.parametrize("places", [[3], [0, 4, 2], [1, 1, 1], []])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("layout", ["dense", "transposed", "inside"])
def test_rows_are_copied_in_order(places: list[int], dim: int, layout: str) -> None:
    """Equal places as well: the last one stays."""
    make = {
        "dense": lambda: torch.zeros(5, 6, 7),
        "transposed": lambda: torch.zeros(6, 5, 7).transpose(0, 1),
        "inside": lambda: torch.zeros(8, 8, 8)[1:6, 2:8, :7],
    }[layout]

    def copy(x: Tensor, rows: Tensor, i: Tensor) -> None:
        x.index_copy_(dim, i, rows)

    def put(x: Tensor, rows: Tensor, i: Tensor) -> None:
        x[(slice(None),) * dim + (i - 5,)] = rows

    index = torch.tensor(places, dtype=torch.int64)
    sizes = [5, 6, 7]
    sizes[dim] = len(places)
    rows = torch.randn(sizes)
    for write in (copy, put):
        if write is put and dim:
            continue
        x, y = make(), make()
        with torch.no_grad():
            write(x, rows, index)
            compiled = windfall.compile(write)
            compiled(y, rows, index)
        assert torch.equal(x, y)
        assert x._version == y._version
        assert windfall.explanation(compiled).fallbacks == []


def test_a_position_that_varies() -> None:
    """A step of decoding: the place in the cache is a number that grows."""

    def decode(cache: Tensor, key: Tensor, query: Tensor, at: int) -> Tensor:
        cache[:, at : at + 1] = key
        return query @ cache.transpose(1, 2)

    compiled = windfall.compile(decode)
    caches = [torch.zeros(2, 40, 8) for _ in range(2)]
    for at in range(3, 12):
        key, query = torch.randn(2, 1, 8), torch.randn(2, 1, 8)
        with torch.no_grad():
            found = [f(c, key, query, at) for f, c in zip((decode, compiled), caches, strict=True)]
        torch.testing.assert_close(*found)
        torch.testing.assert_close(*caches)
    assert caches[0]._version == caches[1]._version
    explanation = windfall.explanation(compiled)
    assert explanation.fallbacks == []
    assert len(explanation.graphs) <= 2


def test_an_optimizers_step_is_one_kernel_for_each_parameter() -> None:
    def adam(p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor]) -> None:
        for one, gradient, mean, square in zip(p, g, m, v, strict=True):
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            one.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1e-3)

    report = windfall.explain(adam)
    seen = []
    for function in (adam, report):
        torch.manual_seed(1)
        lists = [[torch.rand(33) for _ in range(20)] for _ in range(4)]
        with torch.no_grad():
            found = function(*lists)
        seen.append([one for tensors in lists for one in tensors])
    torch.testing.assert_close(*seen)
    assert [one._version for one in seen[0]] == [one._version for one in seen[1]]
    (program,) = (one.record for one in found.events if one.kind is EventKind.BUILD)
    assert len(program.kernels) == 20
    assert {one.place for one in program.buffers} == {"input"}


def test_versions_of_changed_sizes_are_counted_once_beside_writes() -> None:
    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        y.t_()
        y.t_()
        return (w * y).sum()

    versions = []
    for function in (loss, windfall.compile(loss)):
        x, y, w = torch.ones(3), torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)
        function(x, y, w).backward()
        versions.append((x._version, y._version))
    assert versions[0] == versions[1]
