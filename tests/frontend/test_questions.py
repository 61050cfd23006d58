"""What libraries ask before they compute is no break: each program is one graph."""

from __future__ import annotations

import functools
import inspect
import pickle
from typing import Any

import pytest
import torch
import torch.distributed
import torch.onnx
from torch import nn

import windfall

Tensor = torch.Tensor
LINEAR = nn.Linear(4, 4)
SEEN: set[int] = set()


class Shaped(type):
    """Whoever has a shape is an instance; instances know how many arguments they got."""

    def __instancecheck__(cls, value: Any) -> Any:
        return hasattr(value, "shape")

    def __call__(cls, *arguments: Any) -> Any:
        made = super().__call__(*arguments)
        made.count = len(arguments)
        return made


class Box(metaclass=Shaped):
    def __init__(self, held: Any, scale: float) -> None:
        self.held = held
        self.scale = scale


def asks_torch(x: Tensor) -> Tensor:
    if torch.jit.is_tracing() or torch.jit.is_scripting() or torch.onnx.is_in_onnx_export():
        return x
    return x + 1 if torch.overrides.is_tensor_like(x) else x


def asks_tracer(x: Tensor) -> Tensor:
    return x + 1 if not torch._C._is_tracing() else x


def annotates(x: Tensor) -> Tensor:
    sizes = torch.jit.annotate(list[int], [1, 2])
    return x * sizes[1]


def asks_processes(x: Tensor) -> Tensor:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return x if there else x * 3


def asks_address(x: Tensor) -> Tensor:
    return LINEAR(x) if id(LINEAR) not in SEEN else x


def asks_metaclass(x: Tensor) -> Tensor:
    return x + 1 if isinstance(x, Box) and not isinstance(3, Box) else x


def makes_by_metaclass(x: Tensor) -> Tensor:
    box = Box(x, 2.0)
    return box.held * box.scale + box.count if isinstance(box, Box) else x


def asks_equal(x: Tensor) -> Tensor:
    if not torch.equal(x, x.clone()):
        raise ValueError("other")
    return x + 1


def scaled(x: Tensor, by: float = 2.0, *, shift: float = 1.0) -> Tensor:
    return x * by + shift


def asks_signature(x: Tensor) -> Tensor:
    parameters = inspect.signature(scaled).parameters
    given = {"by": 3.0, "unknown": 1.0, "shift": 4.0}
    known = {name: value for name, value in given.items() if name in set(parameters.keys())}
    return scaled(x, **known) + len(parameters.keys()) + len(list(parameters.items()))


def pickles(x: Tensor) -> Tensor:
    return x + len(pickle.dumps({"a": (1, 2.5), "b": None}))


@pytest.mark.parametrize(
    "program",
    [
        asks_torch,
        asks_tracer,
        annotates,
        asks_processes,
        asks_address,
        asks_metaclass,
        makes_by_metaclass,
        asks_equal,
        asks_signature,
        pickles,
    ],
    ids=lambda one: one.__name__,
)
def test_one_graph(program: Any) -> None:
    compiled = windfall.compile(program)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), program(x))
    told = windfall.explanation(compiled)
    assert (len(told.graphs), told.breaks, told.fallbacks) == (1, [], [])


def test_an_address_is_relied_upon() -> None:
    class Holder:
        part: Any = None

    holder = Holder()

    def f(x: Tensor) -> tuple[Tensor, int]:
        return x + 1, id(holder.part)

    compiled = windfall.compile(f)
    for _ in range(3):
        holder.part = nn.Linear(2, 2)
        assert compiled(torch.ones(2))[1] == id(holder.part)
        assert compiled(torch.ones(2))[1] == id(holder.part)


def test_processes_that_are_started_later_are_noticed(tmp_path: Any) -> None:
    compiled = windfall.compile(asks_processes)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 3)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        assert torch.equal(compiled(x), x)
    finally:
        torch.distributed.destroy_process_group()
    assert torch.equal(compiled(x), x * 3)


def test_a_metaclass_that_changes_its_mind_is_noticed(monkeypatch: Any) -> None:
    compiled = windfall.compile(asks_metaclass)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x + 1)
    monkeypatch.setattr(Shaped, "__instancecheck__", lambda cls, value: False)
    assert torch.equal(compiled(x), x)
    monkeypatch.setattr(Shaped, "__call__", lambda cls, *arguments: 7)
    assert windfall.compile(lambda x: x + Box(x, 1.0))(x).tolist() == [8, 8]


@pytest.mark.parametrize("other", ["same", "different", "shape", "nan", "dtype"])
def test_equal_is_eagers(other: str) -> None:
    x = torch.ones(3)
    others = {
        "same": torch.ones(3),
        "different": torch.zeros(3),
        "shape": torch.ones(4),
        "nan": torch.full((3,), float("nan")),
        "dtype": torch.ones(3, dtype=torch.float64),
    }

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Any]:
        return x + 1, torch.equal(x, y) if y.numel() else x.equal(y)

    compiled = windfall.compile(f)
    one = x if other != "nan" else others["nan"]
    try:
        wanted: Any = f(one, others[other])[1]
    except RuntimeError as error:
        wanted = type(error)
    try:
        found: Any = compiled(one, others[other])[1]
    except RuntimeError as error:
        found = type(error)
    assert found is wanted
    if other != "dtype":
        assert not windfall.explanation(compiled).breaks


def test_texts_that_may_be_one_object_are_pickled_by_cpython() -> None:
    def f(x: Tensor, a: str, b: str) -> tuple[Tensor, bytes]:
        return x + 1, pickle.dumps((a, b))

    compiled = windfall.compile(f)
    text = "".join(["long", " text"])
    for other in (text, "".join(["long", " text"])):
        assert compiled(torch.ones(2), text, other)[1] == f(torch.ones(2), text, other)[1]


def test_a_cached_function_of_the_users_is_still_called_by_cpython() -> None:
    calls = []

    @functools.lru_cache(8)
    def computed(n: int) -> int:
        calls.append(n)
        return n + 1

    def f(x: Tensor) -> Tensor:
        return x + computed(2)

    compiled = windfall.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert calls == [2] and computed.cache_info().hits == 2


def test_addresses_of_tensors_that_come_anew_are_not_relied_upon() -> None:
    """Each call brings another tensor: an entry for each would never be met again."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x + 1, id(x) == id(x)

    compiled = windfall.compile(program)
    kept = [torch.randn(3) for _ in range(5)]
    for x in kept:
        y, same = compiled(x)
        assert torch.equal(y, x + 1) and same
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and "id of" in told.breaks[0].detail


# ------------------------------------------------------- addresses of objects that come anew


class Anew:
    pass


MEMO: dict[int, int] = {}


def _passed_on(x: torch.Tensor, one: Any, other: Any) -> Any:
    return x * 2, id(one), [id(other)]


def _compared(x: torch.Tensor, one: Any, other: Any) -> Any:
    return x + 1 if id(one) == id(other) else x + 2


def _looked_up(x: torch.Tensor, one: Any, other: Any) -> Any:
    return x + MEMO.get(id(one), 5)


def _written(x: torch.Tensor, one: Any, other: Any) -> Any:
    MEMO[id(other)] = 7
    return x + 1


def _shown(x: torch.Tensor, one: Any, other: Any) -> Any:
    return x + 1, f"{id(one):x}", id(one) % 16


@pytest.mark.parametrize("use", [_passed_on, _compared, _looked_up, _written, _shown])
@pytest.mark.parametrize("kind", [Anew, dict, object, torch.nn.Identity], ids=lambda k: k.__name__)
def test_the_address_of_what_comes_anew_is_not_compiled_for_each(use: Any, kind: type) -> None:
    compiled = windfall.compile(use)
    x, kept = torch.ones(2), []
    for place in range(24):
        one = kind()
        other = one if place % 3 == 2 else kind()
        kept += [one, other]
        answers = []
        for call in (use, compiled):
            MEMO.clear()
            MEMO[id(kept[0])] = 3
            answers.append(str(call(x, one, other)) + str(MEMO))
        assert answers[0] == answers[1]
    told = windfall.explanation(compiled)
    if kind is Anew:
        assert len(told.graphs) <= 6 and not told.fallbacks
        assert {one.number for one in told.breaks} <= {34}
    if kind is Anew and use is _passed_on:
        assert not told.breaks and len(told.graphs) <= 2
