"""A device that is added from outside: graphs of its tensors are split, and it runs the halves."""

from __future__ import annotations

import pytest

from tests.test_independence import run_in_a_bare_process
from windfall.backends import DeviceBackend, NativeBackend
from windfall.errors import Unsupported


def test_a_device_is_a_class_with_compile() -> None:
    report = run_in_a_bare_process(
        """
        import torch
        own = set(sys.modules)
        import windfall
        from windfall import devices
        from windfall.ir.codec import decode, dumps, encode, loads
        from windfall.ir.node import tensor_type

        halves = []

        class Meta:
            type = "meta"
            def compile(self, graph, symbols):
                halves.append([str(node.target) for node in graph.nodes if "call" in node.op])
                output = next(iter(reversed(graph.nodes)))
                types = [tensor_type(one) for one in output.args[0]]
                return lambda *inputs: tuple(
                    torch.empty_strided(one.sizes, one.strides, device="meta") for one in types
                )

        devices.add_device(Meta())
        assert "meta" in windfall.list_backends()
        run = lambda x, w: (x * w).sin()
        x = torch.empty(4, 8, device="meta")
        w = torch.empty(8, device="meta", requires_grad=True)
        for backend in ("windfall", "meta"):
            options = {"records": True, "verify": True}
            compiled = windfall.compile(run, backend=backend, options=options)
            y = compiled(x, w)
            (gradient,) = torch.autograd.grad(y, w, torch.empty(4, 8, device="meta"))
            assert y.device.type == "meta" and gradient.shape == w.shape
            forward, backward = halves
            assert forward == ["aten.mul.Tensor", "aten.sin.default"], forward
            assert "aten.cos.default" in backward and "aten.sum.dim_IntList" in backward
            halves.clear()
            explanation = windfall.explanation(compiled)
            assert not explanation.fallbacks
            (made,) = (one.record for one in explanation.events if one.kind == "assemble")
            assert decode(loads(dumps(encode(made)))).program.device == "meta"
        """
    )
    assert report["loaded"] == []


def test_tensors_of_a_device_without_a_compiler_run_eagerly_and_are_counted() -> None:
    """As tensors on a GPU do; a meta tensor is one that every machine has."""
    import torch

    import windfall

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * w + 1).sum(-1)

    compiled = windfall.compile(function)
    x = torch.empty(4, 8, device="meta")
    w = torch.empty(8, device="meta", requires_grad=True)
    answer = compiled(x, w)
    assert answer.device.type == "meta" and answer.shape == (4,) and answer.requires_grad
    answer.sum().backward()
    assert w.grad is not None and w.grad.shape == (8,)
    told = windfall.explanation(compiled)
    assert not told.graphs and told.breaks and sum(told.eager.values()) > 0
    # What the same function answers for the CPU is not concerned.
    on_cpu = torch.linspace(-1, 1, 32).reshape(4, 8), torch.ones(8)
    torch.testing.assert_close(compiled(*on_cpu), function(*on_cpu))


def test_a_graph_runs_on_one_device() -> None:
    assert NativeBackend().device_of({"cpu"}) == NativeBackend().device_of(set()) == ""
    assert DeviceBackend("xpu").device_of({"xpu"}) == "xpu"
    for backend, found in ((NativeBackend(), {"xpu"}), (DeviceBackend("xpu"), {"cpu", "xpu"})):
        with pytest.raises(Unsupported, match="tensors of"):
            backend.device_of(found)
