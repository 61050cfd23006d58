"""What stands around a pure graph: inputs that share memory, records of conventions."""

from __future__ import annotations

import pytest
import torch

from tests.autograd.harness import Compiled, flat
from windfall.autograd.overlap import overlap_check
from windfall.ir.dtype import TensorType
from windfall.ir.stages import InputFact, Signature


def written(*flags: bool) -> Signature:
    type = TensorType.contiguous(torch.float32, (4,))
    return Signature(tuple(InputFact(type, mutated=flag) for flag in flags), ())


def test_overlap_is_seen_by_address():
    base = torch.zeros(12)
    one, two, three = base[0:4], base[3:7], base[8:12]
    check = overlap_check(written(True, False))
    assert check([one, two])
    assert check([two, one])
    assert check([one, one])
    assert not check([one, three])
    assert not check([one, torch.zeros(4)])
    assert not overlap_check(written(False, False))([one, two])


@pytest.mark.parametrize("places", [((0, 9), (1, 10)), ((0, 9), (0, 9)), ((1, 10), (0, 9))])
def test_overlapping_inputs_written_as_in_eager(places):
    def run(x, y):
        x.mul_(2)
        y.add_(1)
        return x + y, y[2:]

    compiled = Compiled(run, [torch.randn(9), torch.randn(9)])
    start = torch.randn(10)
    answers = []
    for function in (run, compiled):
        base = start.clone()
        outputs = function(*(base[a:b] for a, b in places))
        answers.append([base, *flat(outputs)])
    for ours, eagers in zip(*answers, strict=True):
        torch.testing.assert_close(ours, eagers)


def test_the_same_tensor_given_twice_and_written():
    def run(x, y):
        x.mul_(2)
        return x + y

    compiled = Compiled(run, [torch.randn(3), torch.randn(3)])
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x, x)[0], torch.full((3,), 4.0))


def test_written_view_of_an_intermediate_gives_its_base_a_history():
    def run(x, w):
        x.mul_(w)
        return x.sum()

    answers = []
    for function in (run, Compiled(run, [torch.randn(3, requires_grad=True)] * 2)):
        torch.manual_seed(0)
        leaf, w = torch.randn(4, requires_grad=True), torch.randn(3, requires_grad=True)
        base = leaf * 2
        function(base[1:], w)
        base.sum().backward()
        answers.append((leaf.grad, w.grad))
    for ours, eagers in zip(*answers, strict=True):
        torch.testing.assert_close(ours, eagers)
