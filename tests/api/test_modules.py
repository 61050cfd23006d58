"""A compiled module is used like the original: one state, hooks, modes, parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from tests.api.things import Net

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def compiled_net() -> tuple[Net, Any]:
    torch.manual_seed(0)
    net = Net()
    return net, windfall.compile(net)


def test_keys_names_and_objects_are_the_originals() -> None:
    net, compiled = compiled_net()
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [name for name, _ in compiled.named_modules()] == [n for n, _ in net.named_modules()]
    for ours, theirs in zip(compiled.parameters(), net.parameters(), strict=True):
        assert ours is theirs
    assert compiled._orig_mod is net and isinstance(compiled, Net)


def test_train_and_eval_on_either_is_seen_by_both() -> None:
    net, compiled = compiled_net()
    compiled.eval()
    assert not net.training
    assert torch.equal(compiled(X), compiled(X))
    net.train()
    assert compiled.training
    torch.manual_seed(3)
    ours = compiled(X)
    torch.manual_seed(3)
    torch.testing.assert_close(ours, net(X))
    assert not torch.equal(compiled(X), compiled(X)), "dropout is back"


def test_buffers_are_written() -> None:
    net, compiled = compiled_net()
    before = net.norm.running_mean.clone()
    compiled(X)
    compiled(X)
    assert net.calls.item() == 2 and not torch.equal(net.norm.running_mean, before)


def test_moving_to_another_dtype() -> None:
    net, compiled = compiled_net()
    compiled.eval()(X)
    compiled.double()
    assert net.first.weight.dtype == torch.float64
    torch.testing.assert_close(compiled(X.double()), net(X.double()))
    compiled.to(torch.float32)
    torch.testing.assert_close(compiled(X), net(X))


def test_a_parameter_may_be_replaced_or_written() -> None:
    net, compiled = compiled_net()
    compiled.eval()(X)
    net.last.weight = torch.nn.Parameter(torch.zeros(2, 8))
    torch.testing.assert_close(compiled(X), net.last.bias.expand(5, 2))
    with torch.no_grad():
        net.last.bias.fill_(3.0)
    assert torch.equal(compiled(X), torch.full((5, 2), 3.0))
    net.last.weight.data = torch.ones(2, 8)
    torch.testing.assert_close(compiled(X), net(X))
    compiled.last = torch.nn.Linear(8, 3)
    torch.testing.assert_close(compiled(X), net(X))
    assert compiled(X).shape == (5, 3)


def test_parameters_are_inputs_of_the_graph_and_not_constants() -> None:
    _, compiled = compiled_net()
    compiled.eval()(X)
    (graph,) = windfall.explanation(compiled).graphs
    text = " ".join(str(one.source) for one in graph.inputs)
    for name in ("first", "last", "running_mean"):
        assert name in text
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"]


def test_training_gives_the_same_parameters() -> None:
    results = []
    for is_compiled in (False, True):
        net, compiled = compiled_net()
        model = (compiled if is_compiled else net).train()
        model.drop.p = 0.0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()
        results.append({name: value.clone() for name, value in net.state_dict().items()})
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value)


REGISTER = {
    "forward": lambda m, hook: m.register_forward_hook(hook),
    "forward pre": lambda m, hook: m.register_forward_pre_hook(
        lambda mod, args: hook(mod, args, None)
    ),
    "full backward": lambda m, hook: m.register_full_backward_hook(hook),
}


@pytest.mark.parametrize("kind", REGISTER)
@pytest.mark.parametrize("where", ["root", "child"])
@pytest.mark.parametrize("when", ["before compile", "after compile", "after a call"])
def test_hooks_run_whenever_they_were_registered(kind: str, where: str, when: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    target = net if where == "root" else net[0]
    seen: list[str] = []
    x = X.clone().requires_grad_()

    def hook(module: torch.nn.Module, *args: Any) -> None:
        seen.append(type(module).__name__)

    handle = REGISTER[kind](target, hook) if when == "before compile" else None
    compiled = windfall.compile(net)
    if when == "after compile":
        handle = REGISTER[kind](compiled if where == "root" else compiled[0], hook)
    if when == "after a call":
        compiled(x).sum().backward()
        assert not seen
        handle = REGISTER[kind](target, hook)
    compiled(x).sum().backward()
    assert len(seen) == 1
    assert handle is not None
    handle.remove()
    compiled(x).sum().backward()
    assert len(seen) == 1, "a hook that was removed does not run"


def test_a_hook_may_change_the_result() -> None:
    net = torch.nn.Linear(4, 2)
    compiled = windfall.compile(net)
    compiled(X)
    handle = compiled.register_forward_hook(lambda module, args, out: out * 0)
    assert torch.equal(compiled(X), torch.zeros(5, 2))
    handle.remove()
    torch.testing.assert_close(compiled(X), net(X))


def test_compiled_modules_nest() -> None:
    inner = windfall.compile(torch.nn.Linear(4, 4))
    outer = windfall.compile(torch.nn.Sequential(inner, torch.nn.ReLU()), fullgraph=True)
    torch.testing.assert_close(outer(X), torch.relu(inner(X)))
    assert list(outer.state_dict()) == ["0.weight", "0.bias"]
    assert len(windfall.explanation(outer).graphs) == 1


def test_attributes_set_on_either_are_seen_by_both() -> None:
    net, compiled = compiled_net()
    compiled.note = "here"
    assert net.note == "here"
    del net.note
    assert not hasattr(compiled, "note")
    compiled.requires_grad_(False)
    assert not any(one.requires_grad for one in net.parameters())


def lazy() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.ReLU())


def scripted() -> torch.nn.Module:
    return torch.jit.script(torch.nn.Linear(4, 2))


def parametrised() -> torch.nn.Module:
    return torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 2))


def graph_module() -> torch.nn.Module:
    return torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()))


def with_its_own_call() -> torch.nn.Module:
    class Doubled(torch.nn.Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) * 2

    return Doubled(4, 2)


def with_slots() -> torch.nn.Module:
    class Slotted(torch.nn.Module):
        __slots__ = ("factor",)

        def __init__(self) -> None:
            super().__init__()
            self.factor = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    return Slotted()


ODD = [lazy, scripted, parametrised, graph_module, with_its_own_call, with_slots]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_modules_of_unusual_kinds(make: Any) -> None:
    module = make()
    compiled = windfall.compile(module)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), module(X))
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert not windfall.explanation(compiled).fallbacks or make is scripted


def test_hooks_that_are_always_called() -> None:
    """torch itself leaves them out where code is being compiled."""

    class Strict(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 2:
                raise ValueError("two")
            return x + 1

    seen: list[Any] = []
    module = Strict()
    module.register_forward_hook(lambda module, args, out: seen.append(out), always_call=True)
    compiled = windfall.compile(module)
    for size in (2, 3, 2):
        if size == 2:
            with pytest.raises(ValueError, match="two"):
                compiled(torch.ones(size))
        else:
            torch.testing.assert_close(compiled(torch.ones(size)), torch.full((size,), 2.0))
    assert [one is None for one in seen] == [True, False, True]


def test_what_a_module_makes_of_its_own_class_is_another_module() -> None:
    """A slice of a compiled `Sequential` called the whole of it."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    compiled = windfall.compile(model)
    x = torch.randn(3, 6)
    torch.testing.assert_close(compiled[:2](x), model[:2](x))
    torch.testing.assert_close((compiled + model[:0])(x), model(x))
    made = type(compiled)(torch.nn.ReLU())
    torch.testing.assert_close(made(x), x.relu())
    assert type(made) is type(compiled.__class__()) is torch.nn.Sequential
    assert isinstance(model, compiled.__class__)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_class_that_listens_for_subclasses() -> None:
    heard: list[str] = []

    class Listening(torch.nn.Module):
        def __init_subclass__(cls, *, tag: str) -> None:
            heard.append(tag)

    class Plain(Listening, tag="plain"):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    compiled = windfall.compile(Plain())
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert heard == ["plain"] and isinstance(compiled, Plain)


def test_state_in_slots_and_a_class_that_changes() -> None:
    class Scaled(torch.nn.Module):
        __slots__ = ("by",)

        def __init__(self) -> None:
            super().__init__()
            self.by = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    class Shifted(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.by

    module, x = Scaled(), torch.ones(3)
    compiled = windfall.compile(module)
    torch.testing.assert_close(compiled(x), x * 2)
    compiled.by = 3.0
    assert module.by == 3.0
    torch.testing.assert_close(compiled(x), x * 3)
    compiled.__class__ = Shifted
    assert type(module) is Shifted
    torch.testing.assert_close(compiled(x), x + 3)
