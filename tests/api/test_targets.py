"""What `windfall.compile` takes, and that the result looks like what it was made of."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest
import torch

import windfall


def example(x: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    """Scales, then shifts."""
    return x.sin() * scale + shift


class Holder:
    """A class with methods of every kind."""

    factor = 3.0

    def method(self, x: torch.Tensor) -> torch.Tensor:
        """A method."""
        return x.cos() * self.factor

    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.factor

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.factor


X = torch.linspace(-2, 2, 12).reshape(3, 4)
TARGETS: dict[str, Any] = {
    "function": example,
    "lambda": lambda x: x * 2 + 1,
    "method": Holder().method,
    "class method": Holder.of_class,
    "static method": Holder.static,
    "callable object": Holder(),
    "partial": functools.partial(example, scale=3.0),
    "builtin": torch.sinh,
    "module": torch.nn.Linear(4, 2),
    "bound forward": torch.nn.Linear(4, 2).forward,
    "closure": (lambda k: lambda x: x * k)(4.0),
}


@pytest.mark.parametrize("name", TARGETS)
def test_it_is_called_like_the_original(name: str) -> None:
    target = TARGETS[name]
    compiled = windfall.compile(target, fullgraph=True)
    torch.testing.assert_close(compiled(X), target(X))
    torch.testing.assert_close(compiled(X), target(X))
    made = windfall.explanation(compiled)
    assert len(made.graphs) == 1 and not made.fallbacks and not made.breaks


@pytest.mark.parametrize(
    "name", ["function", "lambda", "method", "class method", "static method", "closure"]
)
def test_signature_name_and_text_are_the_originals(name: str) -> None:
    target = TARGETS[name]
    compiled = windfall.compile(target)
    assert inspect.signature(compiled) == inspect.signature(target)
    assert inspect.getdoc(compiled) == inspect.getdoc(target)
    assert compiled.__name__ == target.__name__ and compiled.__qualname__ == target.__qualname__
    assert compiled.__module__ == target.__module__
    assert compiled.__wrapped__ is target or compiled.__wrapped__ == target
    assert inspect.unwrap(compiled) == target


def test_a_module_keeps_the_signature_of_its_forward() -> None:
    module = torch.nn.Linear(4, 2)
    compiled = windfall.compile(module)
    assert inspect.signature(compiled.forward) == inspect.signature(module.forward)
    assert compiled.__doc__ == module.__doc__ and isinstance(compiled, torch.nn.Linear)
    assert repr(compiled) == repr(module)


def test_positional_keyword_and_default_arguments() -> None:
    compiled = windfall.compile(example, fullgraph=True)
    for args, kwargs in [
        ((X,), {}),
        ((X, 3.0), {}),
        ((X,), {"scale": 3.0}),
        ((), {"x": X, "shift": 0.5}),
        ((X,), {"shift": 0.5, "scale": 4.0}),
    ]:
        torch.testing.assert_close(compiled(*args, **kwargs), example(*args, **kwargs))
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        compiled(X, wrong=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        compiled()


def test_decorators_with_and_without_arguments() -> None:
    @windfall.compile
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @windfall.compile(fullgraph=True, dynamic=False)
    def with_arguments(x: torch.Tensor) -> torch.Tensor:
        return x + 2

    assert torch.equal(plain(X), X + 1) and torch.equal(with_arguments(X), X + 2)
    assert plain.__name__ == "plain" and with_arguments.__name__ == "with_arguments"


def test_a_method_that_is_compiled_in_its_class_binds() -> None:
    class Counter:
        def __init__(self, step: float) -> None:
            self.step = step

        @windfall.compile(fullgraph=True)
        def add(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
            """Adds."""
            return x + (2 * self.step if twice else self.step)

        @windfall.compile(fullgraph=True)
        def through(self, x: torch.Tensor) -> torch.Tensor:
            return self.add(x) * 2

    one, two = Counter(1.0), Counter(2.0)
    assert torch.equal(one.add(X), X + 1) and torch.equal(two.add(X), X + 2)
    assert torch.equal(one.add(X, twice=True), X + 2) and torch.equal(Counter.add(two, X), X + 2)
    assert torch.equal(one.through(X), (X + 1) * 2)
    assert one.add.__self__ is one and one.add.__name__ == "add" and one.add.__doc__ == "Adds."
    assert list(inspect.signature(one.add).parameters) == ["x", "twice"]


def test_a_class_is_compiled_in_place() -> None:
    @windfall.compile(fullgraph=True)
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    @windfall.compile(fullgraph=True)
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    assert isinstance(Scaled, type) and torch.equal(Scaled(3.0)(X), X * 3)
    net = Net()
    torch.testing.assert_close(net(X), torch.relu(net.inner(X)))
    assert len(windfall.explanation(Net.forward).graphs) == 1
    with pytest.raises(windfall.UserError, match="cannot be called"):
        windfall.compile(type("Plain", (), {}))


def test_compiling_what_is_compiled() -> None:
    once = windfall.compile(example)
    assert windfall.compile(once) is once
    strict = windfall.compile(once, fullgraph=True)
    assert strict is not once and strict.__wrapped__ is example
    module = windfall.compile(torch.nn.Linear(4, 2))
    assert windfall.compile(module) is module
    other = windfall.compile(module, backend="eager")
    assert other is not module and other.weight is module.weight
    torch.testing.assert_close(other(X), module(X))


def test_disable_gives_the_original_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert windfall.compile(example, disable=True) is example
    monkeypatch.setenv("WINDFALL_DISABLE", "1")
    assert windfall.compile(example) is example


def test_every_argument_of_torch_compile_is_accepted() -> None:
    """By name and default; `backend=None` is the default backend. One argument has another name
    from torch 2.15 on: both are here."""
    ours = inspect.signature(windfall.compile).parameters
    theirs = inspect.signature(torch.compile).parameters
    renamed = {"shapes_spec", "dynamic_shapes"}
    assert len(renamed & set(theirs)) == 1
    shared = [name for name in ours if name in theirs or name not in renamed]
    assert shared == [*theirs, "compiled_autograd", "verify"]
    for name, one in theirs.items():
        assert ours[name].default == one.default and ours[name].kind == one.kind
    compiled = windfall.compile(
        model=example,
        fullgraph=True,
        dynamic=False,
        backend=None,
        mode="reduce-overhead",
        options={"max_autotune": True, "triton.cudagraphs": False, "verify": True},
        name="the example",
        disable=False,
        recompile_limit=3,
        isolate_recompiles=True,
    )
    torch.testing.assert_close(compiled(X), example(X))
    assert "the example" in repr(compiled)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "fast"}, "accepted: 'default'"),
        ({"backend": "nope"}, "accepted: 'aot_eager', 'eager', 'windfall'"),
        ({"backend": 3}, "a callable"),
        ({"options": {"nope": 1}}, "'nope' is not an option"),
        ({"options": [1]}, "options must be a dict"),
        ({"options": {"logs": 3}}, "logs=3 must be names of logs; accepted: timings"),
        ({"options": {"logs": "graph,nope"}}, "logs='nope' is not known"),
        ({"options": {"strict": "yes"}}, "strict='yes' is not known; accepted: False, True"),
        ({"fullgraph": 1}, "fullgraph=1 is not known"),
        ({"dynamic": "yes"}, "dynamic='yes'"),
        ({"recompile_limit": 0}, "must be a positive int"),
        ({"name": 3}, "must be a str"),
        ({"shapes_spec": object()}, "shapes_spec is not supported"),
        ({"dynamic_shapes": object()}, "dynamic_shapes is not supported"),
    ],
)
def test_a_wrong_argument_is_told_at_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(windfall.UserError, match=message):
        windfall.compile(example, **wrong)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(windfall.UserError, match="not int"):
        windfall.compile(3)


def test_generators_and_coroutines_run_as_they_do_in_eager() -> None:
    @windfall.compile
    def items(x: torch.Tensor) -> Any:
        yield x + 1
        yield x * 2

    @windfall.compile
    async def later(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    torch.testing.assert_close(list(items(X)), [X + 1, X * 2])
    torch.testing.assert_close(asyncio.run(later(X)), X - 1)
