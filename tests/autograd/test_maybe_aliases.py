"""Ops that may answer their argument, a view of it, or a copy, by how it lies: what is returned
shares memory with what eager's shares it with, and is the same object where eager's is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.autograd.both import raised, same, seen

OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "resolve_conj": lambda x: x.resolve_conj(),
    "resolve_neg": lambda x: x.resolve_neg(),
    "conj, resolved": lambda x: x.conj().resolve_conj(),
    "conj": lambda x: x.conj(),
    "conj twice": lambda x: x.conj().conj(),
    "conj_physical": lambda x: x.conj_physical(),
    "conj twice, resolved": lambda x: x.conj().conj().resolve_conj(),
    "adjoint": lambda x: x.mH if x.dim() > 1 else x.conj(),
    "real": lambda x: torch.real(x),
    "imag": lambda x: torch.imag(x) if x.is_complex() else x.positive(),
    "imag, resolved": lambda x: x.imag.resolve_neg() if x.is_complex() else x,
    "conj, imag, resolved": lambda x: x.conj().imag.resolve_neg() if x.is_complex() else x,
    "view_as_real": lambda x: torch.view_as_real(x.resolve_conj()) if x.is_complex() else x,
    "contiguous": lambda x: x.contiguous(),
    "contiguous, turned": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x.contiguous(),
    "to the same": lambda x: x.to(x.dtype),
    "to the same, copied": lambda x: x.to(x.dtype, copy=True),
    "to a device": lambda x: x.to("cpu"),
    "to like": lambda x: x.to(x),
    "type": lambda x: x.type(x.dtype),
    "type_as": lambda x: x.type_as(x),
    "double": lambda x: x.double() if not x.is_complex() else x.to(torch.complex128),
    "cpu": lambda x: x.cpu(),
    "to preserve": lambda x: x.to(x.dtype, memory_format=torch.preserve_format),
    "reshape the same": lambda x: x.reshape(x.shape),
    "reshape flat": lambda x: x.reshape(-1),
    "reshape_as": lambda x: x.reshape_as(x),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "view the same": lambda x: x.view(x.shape),
    "view_as": lambda x: x.view_as(x),
    "expand_as": lambda x: x.expand_as(x),
    "expand the same": lambda x: x.expand(x.shape),
    "broadcast_to": lambda x: torch.broadcast_to(x, x.shape),
    "broadcast": lambda x: torch.broadcast_tensors(x, x)[1],
    "squeeze": lambda x: x.squeeze(),
    "positive": lambda x: x.positive(),
    "plus": lambda x: +x,
    "atleast_1d": lambda x: torch.atleast_1d(x),
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "alias": lambda x: torch.ops.aten.alias(x),
    "whole slice": lambda x: x[:] if x.dim() else x[...],
    "dots": lambda x: x[...],
    "narrow": lambda x: x.narrow(0, 0, x.shape[0]) if x.dim() else x,
    "movedim": lambda x: x.movedim(0, 0) if x.dim() else x,
    "permute the same": lambda x: x.permute(tuple(range(x.dim()))),
    "t": lambda x: x.t() if x.dim() < 3 else x,
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "as_tensor": lambda x: torch.as_tensor(x),
    "asarray": lambda x: torch.asarray(x),
    "unflatten": lambda x: x.unflatten(0, (-1, 1)) if x.numel() and x.dim() else x,
    "dropout in eval": lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
    "identity": lambda x: torch.nn.Identity()(x),
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "pad nothing": lambda x: torch.nn.functional.pad(x, (0, 0)) if x.dim() else x,
    "chunk": lambda x: x.chunk(1)[0] if x.dim() else x,
    "meshgrid": lambda x: torch.meshgrid(x, indexing="ij")[0] if x.dim() == 1 else x,
    "nan_to_num": lambda x: x.nan_to_num() if not x.is_complex() else x.clone(),
    "real or conj": lambda x: x.mT.resolve_conj().mT if x.dim() > 1 else x.resolve_conj(),
    "select all": lambda x: torch.unbind(x.unsqueeze(0))[0],
    "rot90": lambda x: x.rot90(0) if x.dim() > 1 else x,
    "roll": lambda x: x.roll(0),
    "flip nothing": lambda x: x.flip([]),
    "cat one": lambda x: torch.cat([x]) if x.dim() else x,
    "diag": lambda x: x.diagonal() if x.dim() > 1 else x,
    "swapaxes": lambda x: x.swapaxes(0, 0) if x.dim() else x,
    "channels last": lambda x: x.unsqueeze(0).unsqueeze(0).contiguous(
        memory_format=torch.channels_last) if x.dim() == 2 else x,
}  # fmt: skip

INPUTS: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "contiguous": lambda t: torch.randn(2, 3, dtype=t),
    "turned": lambda t: torch.randn(3, 2, dtype=t).t(),
    "strided": lambda t: torch.randn(4, 6, dtype=t)[::2, ::2],
    "expanded": lambda t: torch.randn(1, 3, dtype=t).expand(2, 3),
    "one row": lambda t: torch.randn(1, 3, dtype=t),
    "flat": lambda t: torch.randn(4, dtype=t),
    "a number": lambda t: torch.randn((), dtype=t),
    "empty": lambda t: torch.randn(0, 3, dtype=t),
    "lazy conjugate": lambda t: torch.randn(2, 3, dtype=t).conj(),
    "lazy sign": lambda t: torch.randn(2, 3, dtype=torch.complex128).conj().imag,
}

# What is handed to the op: the input, or something made inside; and what is returned beside it.
FORMS: dict[str, Callable[[Callable[..., Any], torch.Tensor], Any]] = {
    "of an input": lambda op, x: (op(x),),
    "with the input": lambda op, x: (x, op(x), op(x)),
    "of a value": lambda op, x: (op(x * 2),),
    "with the value": lambda op, x: (lambda y: (op(y), y, op(y)))(x * 2),
    "used further": lambda op, x: (lambda y: (y, y * 3, op(op(x))))(op(x)),
    "written": lambda op, x: (lambda y: (lambda z: (z.add_(1), y, z))(op(y)))(x * 2),
}


def told(call: Callable[..., Any], kind: str, dtype: torch.dtype, needs: bool) -> Any:
    torch.manual_seed(0)
    x = INPUTS[kind](dtype)
    if needs:
        x = x.detach().requires_grad_()
    results = call(x)
    found = [seen(*results, x)]
    if kind == "empty":  # the strides of nothing
        for one in found[0]:
            one.pop("strides") if isinstance(one, dict) else None
    for one in results:
        found.append(raised(lambda one=one: one.data.add_(1)))
        found.append([other.detach().clone() for other in (*results, x)])
    return found


def differences(op: str, form: str) -> list[str]:
    """Over all inputs."""

    def run(x: torch.Tensor) -> Any:
        return FORMS[form](OPS[op], x)

    found = []
    compiled = windfall.compile(run)
    dtypes = torch.float64, torch.complex128
    for kind, dtype, needs in itertools.product(INPUTS, dtypes, (False, True)):
        if (kind == "lazy conjugate" and not dtype.is_complex) or (
            kind == "lazy sign" and dtype.is_complex
        ):
            continue
        try:
            eager = told(run, kind, dtype, needs)
        except RuntimeError:
            continue  # no such op of such an input
        try:
            same(told(compiled, kind, dtype, needs), eager)
        except Exception as error:
            text = " ".join(f"{type(error).__name__} {error}".split())
            found.append(f"{kind}, {dtype}, {needs}: {text[:200]}")
    return found


# Those that look at lazy conjugates and signs, and some of each other kind.
SOME = (
    "conj", "adjoint", "conj, resolved", "conj, imag, resolved", "real", "resolve_neg",
    "contiguous", "to the same", "reshape flat", "expand_as", "positive", "dropout in eval",
)  # fmt: skip


@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=() if op in SOME else pytest.mark.conformance) for op in OPS]
)
def test_memory_is_shared_as_in_eager(op: str) -> None:
    found = differences(op, "with the input")
    assert not found, "\n".join(found)


@pytest.mark.conformance
@pytest.mark.parametrize("form", [one for one in FORMS if one != "with the input"])
@pytest.mark.parametrize("op", OPS)
def test_memory_is_shared_as_in_eager_elsewhere(op: str, form: str) -> None:
    found = differences(op, form)
    assert not found, "\n".join(found)


def test_what_is_lazy_says_so_inside() -> None:
    def asked(z):
        y, part = z.conj(), z.conj().imag
        known = (y.is_conj(), torch.is_conj(y[0]), part.is_neg(), y.conj().is_conj())
        return (y * 2 if known == (True, True, True, False) else y * 3), torch.resolve_neg(part)

    compiled = windfall.compile(asked)
    z = torch.randn(2, 3, dtype=torch.complex128)
    same([*compiled(z)], [*asked(z)])
    assert windfall.explanation(compiled).eager == {}


@pytest.mark.parametrize("form", ["of a value", "with the value", "written"])
def test_a_lone_conjugate_is_lazy(form: str) -> None:
    found = differences("conj", form)
    assert not found, "\n".join(found)
