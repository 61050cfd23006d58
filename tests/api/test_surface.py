"""The smaller names of torch.compiler and torch._dynamo, one by one."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch

import windfall
from windfall.directives import breaks_are_errors

X = torch.linspace(-1, 1, 6)


# -------------------------------------------------------------------------------- default backend


@pytest.fixture
def default_backend() -> Iterator[None]:
    yield
    windfall.set_default_backend(None)


@pytest.mark.usefixtures("default_backend")
def test_the_default_backend() -> None:
    seen: list[Any] = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        seen.append(module)
        return module.forward

    assert windfall.get_default_backend() == "windfall"
    before = windfall.compile(lambda x: x + 1)
    windfall.set_default_backend(backend)
    assert windfall.get_default_backend() is backend
    torch.testing.assert_close(windfall.compile(lambda x: x + 1)(X), X + 1)
    windfall.explain(lambda x: x + 2)(X)
    assert len(seen) == 2
    before(X)
    windfall.compile(lambda x: x + 3, backend="windfall")(X)
    assert len(seen) == 2, "it says nothing of what names a backend, or was compiled before"
    assert windfall.list_backends() == sorted({"eager", "windfall", *windfall.list_backends()})
    assert "eager" not in windfall.list_backends(exclude_tags=("debug",))
    windfall.set_default_backend("eager")
    assert windfall.compile(lambda x: x).options.backend == "eager"
    windfall.set_default_backend(None)
    assert windfall.get_default_backend() == "windfall"


@pytest.mark.usefixtures("default_backend")
def test_a_wrong_default_is_told_at_once() -> None:
    with pytest.raises(
        windfall.UserError, match="'nope' is not known; accepted: 'aot_eager', 'eager'"
    ):
        windfall.set_default_backend("nope")
    with pytest.raises(windfall.UserError, match="is not usable"):
        windfall.set_default_backend(3)
    assert windfall.get_default_backend() == "windfall"


# --------------------------------------------------------------------------- error_on_graph_break


def breaks(x: torch.Tensor) -> torch.Tensor:
    windfall.graph_break()
    return x + 1


@windfall.error_on_graph_break(False)
def may_break(x: torch.Tensor) -> torch.Tensor:
    return breaks(x)


@windfall.error_on_graph_break(True)
def must_not_break(x: torch.Tensor) -> torch.Tensor:
    return breaks(x)


def outside(x: torch.Tensor) -> torch.Tensor:
    with windfall.error_on_graph_break(True):
        x = x.sin()
    return breaks(x)


def inside(x: torch.Tensor) -> torch.Tensor:
    with windfall.error_on_graph_break(True):
        return breaks(x)


def allowed_again(x: torch.Tensor) -> torch.Tensor:
    with windfall.error_on_graph_break(True):
        return may_break(x).cos()


def refused_behind_a_break(x: torch.Tensor) -> torch.Tensor:
    with noted():
        x = may_break(x)
        with windfall.error_on_graph_break(True):
            return breaks(x)


EVENTS: list[str] = []


@contextlib.contextmanager
def noted() -> Iterator[None]:
    EVENTS.append("enter")
    try:
        yield
    finally:
        EVENTS.append("leave")


@pytest.mark.parametrize("program", [outside, allowed_again, may_break])
def test_a_break_where_it_is_no_error(program: Any) -> None:
    compiled = windfall.compile(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), program(X))
        assert not breaks_are_errors()
    assert len(windfall.explanation(compiled).breaks) == 1
    with pytest.raises(windfall.BreakError, match="fullgraph=True"):
        windfall.compile(program, fullgraph=True)(X)


@pytest.mark.parametrize("program", [inside, must_not_break, refused_behind_a_break])
def test_a_break_where_it_is_an_error(program: Any) -> None:
    compiled = windfall.compile(program)
    for _ in range(2):
        with pytest.raises(
            windfall.BreakError, match=r"(?s)error_on_graph_break, but .* W0040"
        ) as e:
            compiled(X)
        assert [one.function for one in e.value.stack] == [program.__name__, "breaks"]
        assert not breaks_are_errors()
    torch.testing.assert_close(program(X), (X + 1) + (program is refused_behind_a_break))


def test_what_the_program_has_begun_it_ends() -> None:
    EVENTS.clear()
    with pytest.raises(windfall.BreakError):
        windfall.compile(refused_behind_a_break)(X)
    assert EVENTS == ["enter", "leave"]


def test_around_a_call_of_compiled_code() -> None:
    with windfall.error_on_graph_break(True), pytest.raises(windfall.BreakError):
        windfall.compile(breaks)(X)
    torch.testing.assert_close(windfall.compile(breaks)(X), X + 1)


# ----------------------------------------------------------------------------------- in the graph


def test_nonstrict_trace_is_one_node_that_is_not_read() -> None:
    @windfall.nonstrict_trace
    def opaque(parts: dict[str, Any], scale: float) -> torch.Tensor:
        windfall.graph_break()  # nobody reads it
        return parts["x"] * scale + parts["more"][0]

    def program(x: torch.Tensor) -> torch.Tensor:
        return opaque({"x": x.sin(), "more": [x]}, 2.0) - 1

    compiled = windfall.compile(program, fullgraph=True)
    x = X.clone().requires_grad_()
    (ours,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(ours, 2 * X.cos() + 1)
    (graph,) = windfall.explanation(compiled).graphs
    assert opaque in [node.target for node in graph.graph.nodes]
    with pytest.raises(windfall.UserError, match="takes a callable"):
        windfall.nonstrict_trace(3)


def test_a_dict_with_other_keys_is_not_cut_down_to_its_strings() -> None:
    opaque = windfall.allow_in_graph(lambda table: sum(table.values()))
    compiled = windfall.compile(lambda x: opaque({0: x, "a": x * 2}))
    torch.testing.assert_close(compiled(X), X * 3)


class Block(torch.nn.Module):
    def __init__(self, mark: Any) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.part = mark(self.layer.forward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x)


@pytest.mark.parametrize("mark", [windfall.nested_compile_region, lambda function: function])
def test_nested_compile_region_is_found_by_itself(mark: Any) -> None:
    """Marked or not, a block that repeats itself is lowered once."""

    def lowered(count: int) -> int:
        model = torch.nn.Sequential(*(Block(mark) for _ in range(count)))
        compiled, x = (
            windfall.compile(model, fullgraph=True, options={"records": True}),
            torch.randn(3, 4, 8),
        )
        torch.testing.assert_close(compiled(x), model(x))
        events = windfall.explanation(compiled).events
        return sum(len(one.record.items) for one in events if one.kind == "lower")

    assert lowered(6) == lowered(1)


def test_marking_a_region_gives_the_function_back() -> None:
    assert windfall.nested_compile_region(breaks) is breaks
    assert windfall.nested_compile_region(max_reuse_entries=2)(breaks) is breaks
    with pytest.raises(windfall.UserError, match="takes a callable"):
        windfall.nested_compile_region(3)


def test_wrap_numpy() -> None:
    @windfall.wrap_numpy
    def of_arrays(a: numpy.ndarray, *, others: list[numpy.ndarray]) -> Any:
        assert isinstance(a, numpy.ndarray) and isinstance(others[0], numpy.ndarray)
        return {"sum": numpy.sum(a * others[0]), "both": (a + 1, 3)}

    def program(x: torch.Tensor) -> torch.Tensor:
        found = of_arrays(x.sin(), others=[x])
        return found["sum"] + found["both"][0] * found["both"][1]

    expected = (X.sin() * X).sum() + (X.sin() + 1) * 3
    torch.testing.assert_close(program(X), expected)
    compiled = windfall.compile(program)
    torch.testing.assert_close(compiled(X), expected)
    (one,) = windfall.explanation(compiled).breaks
    assert one.number == 14 and "NumPy" in one.detail
    assert of_arrays.__name__ == "of_arrays"
    assert torch.is_tensor(windfall.wrap_numpy(numpy.add)(X, X))


# --------------------------------------------------------------------------------------- questions


def test_is_exporting() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if windfall.is_exporting() or torch.compiler.is_exporting() else x - 1

    assert not windfall.is_exporting()
    torch.testing.assert_close(windfall.compile(program, fullgraph=True)(X), X - 1)


@pytest.mark.parametrize(
    "mark", [windfall.cudagraph_mark_step_begin, torch.compiler.cudagraph_mark_step_begin]
)
def test_steps_may_be_marked_and_earlier_results_stay(mark: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        mark()
        return x * 2

    compiled = windfall.compile(program, mode="reduce-overhead", fullgraph=True)
    first = compiled(X)
    second = compiled(first)
    torch.testing.assert_close((first, second), (X * 2, X * 4))
    windfall.cudagraph_mark_step_begin()


def test_every_name_of_torch_compiler_is_here_or_said_to_be_missing() -> None:
    """`docs/api.md` lists those that have no counterpart."""
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for name in torch.compiler.__all__:
        assert hasattr(windfall, name) or f"`{name}`" in text, name


def test_names_that_are_here_take_what_torchs_take() -> None:
    for name in torch.compiler.__all__:
        ours, theirs = getattr(windfall, name, None), getattr(torch.compiler, name)
        if ours is None or not inspect.isfunction(theirs) or name == "compile":
            continue
        taken = inspect.signature(ours).parameters
        for place, one in enumerate(inspect.signature(theirs).parameters.values()):
            if one.kind is one.KEYWORD_ONLY:
                assert one.name in taken, f"{name}({one.name}=)"
            elif one.kind is one.POSITIONAL_OR_KEYWORD:
                assert place < len(taken), f"{name}: {one.name}"
