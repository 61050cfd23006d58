"""Who is connected to whom: our autograd nodes lead where eager's history leads."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import windfall
from tests.autograd.both import both, leaf, seen
from windfall.events import Eager
from windfall.ops.schema import counts_writes


def grad(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def native(compiled) -> None:
    """Everything ran in native code: nothing op by op, no backward either."""
    assert windfall.explanation(compiled).eager == {}


def one(x, w):
    return (x.detach() * w).sum()


def several(x, w):
    return (x.detach() * w).sum(), w.exp()


def zero(x, w):
    return (x.detach() + w).ceil(), w.exp()


def under_no_grad(x, w):
    with torch.no_grad():
        scale = x.abs().sum()
    return (w * scale).sum()


def written(x, w):
    w = w * 1
    w.mul_(x.detach())
    return w.sum()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [one, several, zero, under_no_grad, written])
def test_inputs_without_a_path_to_the_results_are_not_connected(function, dynamic):
    compiled = windfall.compile(function, dynamic=dynamic)
    w, calls = grad(3), []
    origin = grad(3)
    x = origin.exp()
    x.register_hook(calls.append)
    x.sum().backward()  # from here on the history of x is freed: who walks into it raises
    assert len(calls) == 1
    gradients = []
    for call in (compiled, function):
        w.grad, results = None, call(x, w)
        for result in results if isinstance(results, tuple) else [results]:
            result.sum().backward(retain_graph=True)
        gradients.append(w.grad)
    torch.testing.assert_close(*gradients)
    assert len(calls) == 1
    native(compiled)


def test_steps_of_adversaries():
    """The discriminator's step looks at a detached picture whose history the generator's needs."""
    maker, judge = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
    of_judge = windfall.compile(lambda picture: judge(picture.detach()).mean())
    of_maker = windfall.compile(lambda picture: -judge(picture).mean())
    for step in range(2):
        picture = maker(torch.randn(4, 2))
        of_judge(picture).backward()
        assert maker.weight.grad is None or step == 1
        of_maker(picture).backward()
        of_judge(picture).backward()
    assert maker.weight.grad is not None
    native(of_judge)
    native(of_maker)


def test_what_is_not_connected_is_still_watched_for_writes():
    compiled = windfall.compile(one)
    x, w = grad(3) * 1, grad(3)
    result = compiled(x, w)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_second_derivatives_go_past_what_is_not_connected():
    compiled = windfall.compile(lambda x, w: (x.detach() * w**3).sum())
    x, w = grad(3) * 1, grad(3)
    (first,) = torch.autograd.grad(compiled(x, w), w, create_graph=True)
    first.sum().backward()
    torch.testing.assert_close(w.grad, 6 * w.detach() * x.detach())
    native(compiled)


# -------------------------------------------------------------------------- output to output


def feature(x, w):
    hidden = (x @ w).relu()
    return hidden, hidden.square().sum()


def chain(x, w):
    first = x @ w
    second = first.sin() + first
    return second.sum(), second, first


def past_and_through(x, w):
    hidden = x * w.sum()
    return (hidden * x).sum(), hidden


def two_of_one_node(x, w):
    deviation, mean = torch.std_mean(x @ w, dim=0)
    return deviation, (deviation * 2).sum(), mean


def a_part(x, w):
    hidden = (x @ w)[1:]
    return hidden, hidden.exp().sum()


def dropped(x, w):
    hidden = F.dropout(x @ w, 0.5)
    return hidden, F.dropout(hidden, 0.5).square().sum()


def written_later(x, w):
    hidden = x @ w
    hidden.mul_(w.sum())
    return hidden, hidden.sin().sum()


def around(x, w):
    inner = (x @ w).sin()
    hidden = inner * 2
    return hidden, (hidden.exp() + inner).sum()


def around_twice(x, w):
    stream, maps = x, []
    for _ in range(2):
        scores = torch.softmax(stream @ stream.t(), -1)
        maps.append(scores)
        stream = (scores @ stream + stream).sin() @ w
    return *maps, stream.sum()


def around_each_other(x, w):
    inner = (x @ w).sin()
    first, second = inner * 2, inner.exp()
    third = first * second
    return third + inner, second, first, (third + first * inner + second).sum()


def around_one_of_two(x, w):
    deviation, mean = torch.std_mean(x @ w, dim=0)
    return deviation, (deviation * 2 + mean.exp()).sum()


def around_a_write(x, w):
    inner = x @ w
    inner.mul_(w.sum())
    hidden = inner.exp()
    return hidden, (hidden + inner.sin()).sum()


def around_what_was_overwritten(x, w):
    gates = (x @ w).chunk(2)
    opened = gates[0].clone().sigmoid_()
    kept = gates[1] * 2
    first = kept.exp()
    kept.tanh_()
    return first, (opened * first.sin() + kept).sum(), opened


CONNECTED = [
    feature, chain, past_and_through, two_of_one_node, a_part, dropped, written_later, around,
    around_twice, around_each_other, around_one_of_two, around_a_write,
    around_what_was_overwritten,
]  # fmt: skip


def _doubled(gradient, index, seen):
    if gradient is None:  # eager says so of a node of its own with two results; we have none
        return None
    seen.append((index, gradient))
    return gradient * 2


def looked_at(call, x, w):
    """Each way in which one result is seen in the history of others."""
    answers, seen = [], []
    for way in ("retain", "hook", "grad", "both"):
        torch.manual_seed(5)
        results = call(x, w)
        scalar = next(one for one in results if one.dim() == 0)
        others = [one for one in results if one.dim()]
        if way == "retain":
            for one in others:
                one.retain_grad()
            scalar.backward()
            answers += [one.grad for one in others]
        elif way == "hook":
            for index, one in enumerate(others):
                one.register_hook(lambda given, index=index: _doubled(given, index, seen))
            scalar.backward()
        elif way == "grad":
            answers += torch.autograd.grad(scalar, others, allow_unused=True)
        else:
            torch.autograd.backward([scalar, *others], [None, *map(torch.ones_like, others)])
        answers += [x.grad, w.grad]
        x.grad = w.grad = None
    return [*answers, *(one for _, one in sorted(seen, key=lambda pair: pair[0]))]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", CONNECTED)
def test_a_result_is_part_of_the_history_of_those_made_of_it(function, dynamic):
    x, w = grad(4, 4), grad(4, 4)
    compiled = windfall.compile(function, dynamic=dynamic)
    ours, eager = looked_at(compiled, x, w), looked_at(function, x, w)
    torch.testing.assert_close(ours, eager)
    assert any(one is not None for one in eager[:3])
    native(compiled)


@pytest.mark.parametrize("function", CONNECTED)
def test_second_derivatives_through_several_nodes(function):
    x, w = grad(4, 4), grad(4, 4)
    compiled, answers = windfall.compile(function), []
    for call in (compiled, function):
        torch.manual_seed(5)
        scalar = next(one for one in call(x, w) if one.dim() == 0)
        first = torch.autograd.grad(scalar, [x, w], create_graph=True)
        answers.append([*first, *torch.autograd.grad(sum(one.square().sum() for one in first), w)])
    torch.testing.assert_close(*answers)
    native(compiled)


def test_results_that_others_go_around_are_back_propagated_together():

    def run(x):
        inner = x.exp()
        hidden = inner * 2
        return hidden, (hidden + inner.sin()).sum()

    compiled, gradients = windfall.compile(run), []
    for call in (compiled, run):
        x = torch.ones(3, requires_grad=True)
        hidden, total = call(x)
        (hidden.sum() + total).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)
    native(compiled)


def meeting(x, w):
    inner = (x @ w).exp()
    return inner * 2, inner.sin(), inner.sum()


def test_hooks_of_results_that_are_not_back_propagated_are_not_called():
    compiled, answers = windfall.compile(meeting), []
    x, w = grad(4, 4), grad(4, 4)
    for call in (compiled, meeting):
        seen, x.grad = [], None
        results = call(x, w)
        for index, one in enumerate(results):
            one.register_hook(lambda given, index=index, seen=seen: seen.append((index, given * 1)))
        results[1].sum().backward(retain_graph=True)
        results[2].backward()
        with pytest.raises(RuntimeError, match="second time"):
            results[0].sum().backward()
        answers.append([*(gradient for _, gradient in seen[:2]), x.grad])
        assert [index for index, _ in seen] == [1, 2, 0]
    torch.testing.assert_close(*answers)
    native(compiled)


def two_heads(h, k):
    s = h.exp()
    return s.sin(), (s * k).cos()


def two_heads_and_an_own_leaf(h, k):
    s = h.exp() * h
    return (s * h).sin(), (s * k).cos(), s * k * h


def heads_of_heads(h, k):
    first = (h * k).exp()
    second = (first * h).sin()
    return first, second, (second * k + h.cos()).exp(), h.cos() * 3


def nothing_in_common(h, k):
    s = (h + 1).exp() * (k + 1).exp()
    return (s * h.detach()).sin(), (s.detach() * h * k).cos(), s * k


class Doubled(torch.autograd.Function):
    """A function of the user's, whose backward is given zeros where no gradient arrives."""

    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def hooks_on_tensors(a, b, told):
    h, k = a * 2, b * 2
    for name, one in (("h", h), ("k", k)):
        one.register_hook(lambda gradient, name=name: told.append((name, gradient.clone())))
    return h, k


def hooks_on_leaves(a, b, told):
    for name, one in (("a", a), ("b", b)):
        one.register_hook(lambda gradient, name=name: told.append((name, gradient.clone())))
    return a, b


def hooks_behind_accumulation(a, b, told):
    for name, one in (("a", a), ("b", b)):
        one.register_post_accumulate_grad_hook(
            lambda leaf, name=name: told.append((name, leaf.grad.clone()))
        )
    return a, b


def made_by_the_user(a, b, told):
    return Doubled.apply(a), Doubled.apply(b)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "listen", [hooks_on_tensors, hooks_on_leaves, hooks_behind_accumulation, made_by_the_user]
)
@pytest.mark.parametrize(
    "function", [two_heads, two_heads_and_an_own_leaf, heads_of_heads, nothing_in_common]
)
def test_nobody_hears_of_results_that_lead_elsewhere(function, listen, dynamic):
    """A node with several results would lead to all that one of them leads to."""

    def scenario(compile):
        compiled = compile(function)
        said = []
        for wanted in ((0,), (1,), (2,), (0, 1), (1, 0, 2), (3,)):
            a, b, told = leaf(3), leaf(3), []
            results = compiled(*listen(a, b, told))
            for place in wanted:
                if place < len(results):
                    results[place].sum().backward(retain_graph=True)
                said.append(seen(a, b))
            said.append(sorted(told, key=lambda one: one[0]))
            told.clear()
            chosen = [results[place].sum() for place in wanted if place < len(results)]
            if chosen:
                sum(chosen).backward()
            said += [seen(a, b), sorted(told, key=lambda one: one[0])]
        return said

    both(scenario, dynamic=dynamic)


@pytest.mark.parametrize("listen", [hooks_on_tensors, made_by_the_user])
@pytest.mark.parametrize("function", [two_heads, two_heads_and_an_own_leaf, nothing_in_common])
def test_second_derivatives_where_somebody_listens(function, listen):
    def scenario(compile):
        compiled = compile(function)
        a, b, told = leaf(3), leaf(3), []
        said = []
        for place in (0, 1):
            results = compiled(*listen(a, b, told))
            gradients = torch.autograd.grad(
                results[place].sum(), [a, b], create_graph=True, allow_unused=True
            )
            told.clear()
            sum(one.square().sum() for one in gradients if one is not None).backward()
            said += [*gradients, seen(a, b)]
        return said

    both(scenario)


def test_one_of_several_results_is_changed_in_place():
    compiled, answers = windfall.compile(meeting), []
    x, w = grad(4, 4), grad(4, 4)
    for call in (compiled, meeting):
        x.grad, results = None, call(x, w)
        results[0].mul_(3)
        (results[0].sum() + results[2]).backward()
        answers.append(x.grad)
    torch.testing.assert_close(*answers)
    native(compiled)


@pytest.mark.parametrize("function", [*CONNECTED, meeting])
def test_connected_nodes_do_not_keep_each_other_alive(function):
    compiled = windfall.compile(function)
    gc.collect()
    gc.disable()
    try:
        x = grad(4, 4) * 1
        results = compiled(x, grad(4, 4))
        watched = [weakref.ref(x), *map(weakref.ref, results)]
        del x, results
        assert [one() for one in watched] == [None] * len(watched)
    finally:
        gc.enable()


def test_a_written_feature_is_noticed_by_the_node_behind_it():
    hidden, total = windfall.compile(feature)(grad(4, 4), grad(4, 4))
    with torch.no_grad():
        hidden.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def _written(x, w):
    x.mul_(w.sum())
    return x.sin().sum()


def _written_and_around(x, w):
    before = x.exp() * w
    x.mul_(before)
    return (x * before).sum()


def _written_in_part(x, w):
    x[1:].mul_(w[1:])
    return (x @ w).sum()


def _written_and_returned(x, w):
    x.add_(w.sin())
    hidden = x * 2
    return (hidden * x).sum(), hidden


WRITTEN = [_written, _written_and_around, _written_in_part, _written_and_returned]
GIVEN = {
    "result": lambda x: x * 1,
    "view": lambda x: (x * 1)[:],
    "plain": lambda x: x.detach() * 1,
    "part": lambda x: torch.cat([x, x])[2:6],
}


@pytest.mark.parametrize("look", ["grad", "retain", "hook", "before: hook", "before: retain"])
@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("function", WRITTEN)
def test_an_input_that_is_written_is_part_of_the_history(function, kind, look):
    """Of what was made of it after the write; hooks that it has before belong to eager."""
    compiled, answers = windfall.compile(function), []
    torch.manual_seed(3)
    origin, w = grad(4, 4), grad(4, 4)
    for call in (compiled, function):
        origin.grad = w.grad = None
        seen, x = [], GIVEN[kind](origin)
        if look.startswith("before") and kind != "plain":
            _look_at(x, look, seen)
        found = call(x, w)
        loss = found[0] if isinstance(found, tuple) else found
        if look == "grad":
            seen += torch.autograd.grad(loss, [x, w], retain_graph=True, allow_unused=True)
        elif look in ("retain", "hook"):
            _look_at(x, look, seen)
        loss.backward(retain_graph=True)
        seen += [x.grad if x.retains_grad else None, origin.grad, w.grad]
        seen[:] = [None if one is None else one.clone() for one in seen]
        if x.requires_grad:
            x.sum().backward()
        answers.append([*seen, origin.grad, w.grad, x._version, x.is_leaf])
    assert len(answers[0]) == len(answers[1])
    for one, other in zip(*answers, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)
    if look.startswith("before") and kind != "plain":
        assert windfall.explanation(compiled).eager == {str(Eager.GRAPH): 1}
    else:
        native(compiled)


def _look_at(x, look, seen):
    if "retain" in look:
        x.retain_grad()
    else:
        x.register_hook(lambda given: (seen.append(given.clone()), given * 2)[1])


# ----------------------------------------------------------------------------------- versions


def _each(x, y):
    torch._foreach_mul_([x, y], 2.0)
    torch._foreach_copy_([x], [y])
    return x + y


def _library(x, y):
    return torch.ops.windfall_connections.twice(x) + y


def _hidden(x, y):
    x.data.mul_(2)
    return x + y


def _hidden_and_seen(x, y):
    x.data.mul_(2)
    x.add_(1)
    x.data[1:].mul_(3)
    y.detach().mul_(2)
    return x + y


def _hidden_twice(x, y):
    x.data.data.mul_(y)
    return x.data + y


def _each_of_views(x, y):
    torch._foreach_add_([x[:1], x[1:]], 1.0)
    return x + y


WRITES = [_each, _library, _hidden, _hidden_and_seen, _hidden_twice, _each_of_views]


@pytest.fixture(scope="module", autouse=True)
def library():
    def twice(x):
        x.mul_(2)
        return x + 1

    with torch.library._scoped_library("windfall_connections", "DEF") as made:
        made.define("twice(Tensor(a!) x) -> Tensor")
        made.impl("twice", twice, "CPU")
        made.impl("twice", torch.empty_like, "Meta")
        yield torch.ops.windfall_connections.twice  # torch makes it when it is first asked for


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", WRITES)
def test_versions_count_what_eager_counts(function, dynamic):
    compiled, found = windfall.compile(function, dynamic=dynamic), []
    for call in (compiled, function):
        x, y = torch.arange(3.0), torch.arange(3.0) + 2
        factor = torch.ones(3, requires_grad=True)
        loss, needs_x, needs_y = call(x, y), factor * x, factor * y
        before = x._version, y._version
        call(x, y)
        refused = []
        for one in (needs_x, needs_y):
            try:
                one.sum().backward()
            except RuntimeError as error:
                refused.append("modified by an inplace operation" in str(error))
            else:
                refused.append(None)
        found.append((loss.tolist(), x.tolist(), before, x._version, y._version, refused))
    assert found[0] == found[1]
    native(compiled)


def test_what_is_answered_as_data_counts_for_itself():
    for call in (windfall.compile(lambda x: x.data), windfall.compile(lambda x: x.data[1:])):
        x = torch.ones(3)
        call(x).mul_(2)
        assert x._version == 0
        assert x[2] == 2


def test_each_op_over_lists_counts_once_for_each_tensor():
    """What `counts_writes` says of torch's family is what eager does."""
    names = {one[6:].split(".")[0] for one in torch._C._dispatch_get_all_op_names()}
    family = [getattr(torch.ops.aten, one) for one in names if one.startswith("_foreach_")]
    seen = 0
    for func in (getattr(packet, one) for packet in family for one in packet.overloads()):
        given = [_given(str(one.type)) for one in func._schema.arguments if not _optional(one)]
        if not func.overloadpacket.__name__.endswith("_") or "Tensor" in func._overloadname:
            continue
        assert counts_writes(func), func
        func(*given)
        assert [one._version for one in given[0]] == [1, 1], func
        seen += 1
    assert seen > 60


def _optional(argument):
    return argument.has_default_value() or argument.kwarg_only


def _given(type):
    if type == "List[Tensor]":
        return [torch.ones(2), torch.ones(3)]
    return [0.5, 2.0] if type.startswith("List") else 0.5


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_node_that_keeps_nothing_runs_again(dynamic):
    """As in eager, where a graph that was freed is missed only by who needs something of it."""

    def several(x, w):
        return x.sum(), (x + 1).sum(0), w.exp()

    compiled = windfall.compile(several, dynamic=dynamic)
    for call in (several, compiled):
        x, w = grad(3, 4), grad(3)
        total, rows, needs = call(x, w)
        for _ in range(2):
            total.backward()
            rows.sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3, 4), 4.0, dtype=torch.float64))
        needs.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            needs.sum().backward()
    native(compiled)


def test_results_that_lead_nowhere_call_nobodys_hooks():
    """A view that is made under no_grad needs a gradient, and so does what is made of it."""

    def run(x):
        with torch.no_grad():
            flat = x.flatten()
        return flat * flat, (x * 2).sin()

    compiled = windfall.compile(run)
    for call in (run, compiled):
        calls, x = [], grad(2, 2) * 1
        x.register_hook(calls.append)
        first, second = call(x)
        assert first.requires_grad
        assert not first.is_leaf
        first.sum().backward(retain_graph=True)
        assert calls == []
        with pytest.raises(RuntimeError, match="to not have been used"):
            torch.autograd.grad(first.sum(), x, retain_graph=True)
        (gradient,) = torch.autograd.grad(first.sum(), x, retain_graph=True, allow_unused=True)
        assert gradient is None
        (first.sum() + second.sum()).backward()
        assert len(calls) == 1
    native(compiled)


def test_who_needs_nothing_keeps_nothing():
    """What one result has saved is freed with it, and the other one needs nothing of it."""

    def run(y, z):
        return z * z.sum(), torch.cat([y.select(-1, 1), z]).select(-1, 1)

    compiled = windfall.compile(run)
    gradients = []
    for call in (compiled, run):
        torch.manual_seed(0)
        y, z = grad(4, 4), grad(4)
        first, second = call(y, z)
        torch.autograd.backward([first.sum(), second.sum()])
        gradients.append(torch.autograd.grad(second, [y, z]))  # nothing that was freed is needed
        with pytest.raises(RuntimeError, match="second time"):
            first.sum().backward()
    torch.testing.assert_close(*gradients)
    native(compiled)
