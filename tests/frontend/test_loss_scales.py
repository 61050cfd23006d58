"""Gradients are divided by a loss scale and looked at: as torch's one kernel does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall

UNSCALE: Any = torch._amp_foreach_non_finite_check_and_unscale_
VALUES = {
    "finite": [1.5, -0.0, 3e-6],
    "infinite": [1.0, float("-inf"), 2.0],
    "no number": [float("nan"), 1.0, 2.0],
    "infinite once scaled": [3e38, 1.0, 2.0],
}


def _lists(dtype: torch.dtype, values: str) -> dict[str, list[torch.Tensor]]:
    def one(*numbers: float) -> torch.Tensor:
        return torch.tensor(numbers, dtype=dtype)

    first, last = one(*VALUES[values]), one(*VALUES[values])
    return {
        "one": [first],
        "several": [one(1.0, 2.0), first, one(4.0)[0]],
        "strided": [torch.stack([one(1.0, 2.0, 3.0), first]).t()],
        "one tensor twice": [last, last],
        "nothing in it": [one(), first],
    }


@pytest.mark.parametrize("scale", [1.0, 0.25, 4.0])
@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_as_the_kernel(dtype: torch.dtype, values: str, found: float, scale: float) -> None:
    run = windfall.compile(lambda *given: UNSCALE(*given))
    for name in _lists(dtype, values):
        worlds = []
        for call in (UNSCALE, run):
            gradients, flag = _lists(dtype, values)[name], torch.tensor(found)
            assert call(gradients, flag, torch.tensor(scale)) is None
            versions = [one._version for one in (*gradients, flag)]
            worlds.append((gradients, flag, versions))
        (wanted, flag, versions), (other, its, its_versions) = worlds
        assert its.equal(flag) and its_versions == versions, name
        for one, its_one in zip(wanted, other, strict=True):
            torch.testing.assert_close(its_one, one, rtol=0, atol=0, equal_nan=True)
            assert its_one.signbit().equal(one.signbit()), name
    told = windfall.explanation(run)
    assert not told.breaks and not told.eager and not told.fallbacks


@pytest.mark.parametrize(
    "given",
    [
        ([torch.ones(2)], torch.zeros(1), torch.ones(1)),  # of one dimension
        ([], torch.zeros(()), torch.ones(())),
    ],
    ids=["dimensions", "no list"],
)
def test_what_the_rule_does_not_know_is_torchs(given: Any) -> None:
    run = windfall.compile(lambda *given: UNSCALE(*given))
    run(*given)
    assert {one.number for one in windfall.explanation(run).breaks} == {9}


@pytest.mark.parametrize(
    "given",
    [
        ([torch.ones(2)], torch.zeros((), dtype=torch.float64), torch.ones(())),
        ([torch.ones(2, dtype=torch.int64)], torch.zeros(()), torch.ones(())),
        ([torch.ones(2)], torch.zeros(3), torch.ones(())),
    ],
    ids=["found", "integers", "numbers"],
)
def test_what_torch_refuses_is_refused(given: Any) -> None:
    with pytest.raises(RuntimeError) as wanted:
        UNSCALE(*given)
    with pytest.raises(RuntimeError) as found:
        windfall.compile(lambda *given: UNSCALE(*given))(*given)
    assert str(found.value) == str(wanted.value)


# --------------------------------------------------------------------------- devices as keys


def _looked_up(table: Any, x: torch.Tensor) -> Any:
    return table.get(x.device), table.get(torch.device("meta"), 0), torch.device("cpu", 0) in table


def _gone_through(table: Any, x: torch.Tensor) -> Any:
    return [(key, key == x.device, x * value) for key, value in table.items()]


def _made(table: Any, x: torch.Tensor) -> Any:
    made = {x.device: x + 1, **table}
    made.setdefault(torch.device("meta"), []).append(2)
    return made, x.device in {torch.device("cpu")}


@pytest.mark.parametrize("program", [_looked_up, _gone_through, _made])
def test_devices_are_keys(program: Any) -> None:
    run = windfall.compile(program)
    cpu, first, meta = torch.device("cpu"), torch.device("cpu:0"), torch.device("meta")
    tables = [{cpu: 2.0}, {cpu: 2.0, first: 3.0}, {first: 4.0}, {first: 2.0, cpu: 3.0}, {}]
    for table in (*tables, {"cpu": 5.0, cpu: 1.0}):
        for more in ({}, {meta: [1]} if program is _made else {meta: 7.0}):
            x = torch.ones(2)
            wanted, found = program({**table, **more}, x), run({**table, **more}, x)
            assert str(found) == str(wanted)
    told = windfall.explanation(run)
    assert not told.breaks and not told.eager and not told.fallbacks
