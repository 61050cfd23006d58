"""Torch functions whose C++ reads sizes as integers on its way, made of functions that do not.

Enters: arguments with sizes that vary. Leaves: what the function answers, by other ops; or None: it
is not one of the cases that are known here, and the function itself is called. Invariant: results,
gradients and errors are those of the function for every size; factories are dispatched as they are,
with the size as an expression, so that eager's own kernels make them.

    F.max_pool1d(x, x.shape[2])     x.max(2, keepdim=True).values
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from windfall import torch_abi
from windfall.ir.relation import told
from windfall.ops.symbolic import from_torch

aten = torch.ops.aten
Parts = Callable[..., Any]
BY_PARTS: dict[int, Parts] = {}
ALWAYS: dict[int, Parts] = {}  # also where no size varies: the C++ reads data


def _varies(value: Any) -> bool:
    """Whether a number, a tensor's size, or something in a list varies."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(one, torch.SymInt) for one in value.shape)
    if isinstance(value, list | tuple):
        return any(map(_varies, value))
    return isinstance(value, torch.SymInt)


def parts(*functions: Any, always: bool = False) -> Callable[[Parts], Parts]:
    """A row: what is called in place of a function, where a size varies."""

    def register(rule: Parts) -> Parts:
        table = ALWAYS if always else BY_PARTS
        for function in functions:
            table[id(function)] = functools.partial(_call, function, rule, always)
        return rule

    return register


def _call(function: Any, rule: Parts, always: bool, *args: Any, **kwargs: Any) -> Any:
    if always or _varies(args) or _varies(list(kwargs.values())):
        found = rule(*args, **kwargs)
        if found is not None:
            return found
    return function(*args, **kwargs)


# -------------------------------------------------------------------------------------- factories


def _factory(function: Any, packet: Any) -> None:
    """A function of numbers alone: the overload that takes them, told of the size as it is."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        options = {name: one for name, one in kwargs.items() if name in _OPTIONS}
        rest = {name: one for name, one in kwargs.items() if name not in _OPTIONS}
        if options.pop("requires_grad", False) or options.pop("out", None) is not None:
            return None
        if any(isinstance(one, torch.Tensor | torch.SymFloat) for one in (*args, *rest.values())):
            return None
        for name in packet.overloads():
            overload = getattr(packet, name)
            given = _bound(overload, args, rest)
            if given is not None:
                return torch_abi.dispatched(overload, given, options)
        return None

    parts(function)(rule)


_OPTIONS = ("dtype", "layout", "device", "pin_memory", "requires_grad", "out")


def _bound(overload: Any, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...] | None:
    """The positional arguments of an overload; None: it takes others."""
    wanted = [one for one in overload._schema.arguments if not one.kwarg_only]
    found = list(args)
    for one in wanted[len(args) :]:
        if one.name in named:
            found.append(named[one.name])
        elif one.has_default_value():
            found.append(one.default_value)
        else:
            return None
    fits = len(found) == len(wanted) and set(named) <= {one.name for one in wanted}
    kinds = all(_KINDS.get(str(a.type), _any)(b) for a, b in zip(wanted, found, strict=False))
    return tuple(found) if fits and kinds else None


def _any(value: Any) -> bool:
    return True


_KINDS: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) in (int, torch.SymInt),
    "bool": lambda value: type(value) is bool,
    "float": lambda value: type(value) in (int, float),
    "number": lambda value: type(value) in (int, float),
    "Tensor": lambda value: False,
}
for _name in ("linspace", "logspace", "hann_window", "hamming_window", "blackman_window",
              "bartlett_window", "kaiser_window"):  # fmt: skip
    _factory(getattr(torch, _name), getattr(aten, _name))


# ------------------------------------------------------------------------------------ by an index


@parts(F.one_hot, always=True)
def _one_hot(index: Any, num_classes: Any = -1) -> Any:
    """By a scatter, which refuses a class that is too large, as eager does; the parts into which
    torch takes it for a tensor without data do not look."""
    counted = isinstance(num_classes, torch.SymInt) or (
        type(num_classes) is int and num_classes > 0
    )
    if not counted or index.dtype != torch.int64:
        return None
    zeros = torch.zeros((*index.shape, num_classes), dtype=torch.int64, device=index.device)
    return zeros.scatter(-1, index.unsqueeze(-1), 1)


@parts(torch.take_along_dim, torch.Tensor.take_along_dim)
def _take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    if indices.dtype != torch.int64:
        return None
    if dim is None:
        flat = input.reshape(-1)
        return flat.gather(0, _counted(indices.reshape(-1), flat.shape[0]))
    if input.dim() != indices.dim():
        return None
    dim = dim % input.dim() if -input.dim() <= dim < input.dim() else None
    if dim is None:
        return None
    pairs = list(zip(input.shape, indices.shape, strict=True))
    common = [_wider(one, two) for one, two in pairs]
    mine = [size if place == dim else common[place] for place, (size, _) in enumerate(pairs)]
    theirs = [size if place == dim else common[place] for place, (_, size) in enumerate(pairs)]
    return input.expand(mine).gather(dim, _counted(indices.expand(theirs), input.shape[dim]))


def _counted(indices: Any, size: Any) -> Any:
    """Indices below 0 count from the end."""
    return torch.where(indices < 0, indices + size, indices)


def _wider(one: Any, two: Any) -> Any:
    return two if type(one) is int and one == 1 else one


# -------------------------------------------------------------------------------- linear algebra


@parts(torch.kron)
def _kron(input: Any, other: Any) -> Any:
    rank = max(input.dim(), other.dim())
    mine = [1] * (rank - input.dim()) + list(input.shape)
    theirs = [1] * (rank - other.dim()) + list(other.shape)
    left = input.reshape([part for one in mine for part in (one, 1)])
    right = other.reshape([part for one in theirs for part in (1, one)])
    return (left * right).reshape([a * b for a, b in zip(mine, theirs, strict=True)])


@parts(torch.cov, torch.Tensor.cov, always=True)
def _cov(input: Any, *, correction: Any = 1, fweights: Any = None, aweights: Any = None) -> Any:
    if fweights is not None or aweights is not None or not 1 <= input.dim() <= 2:
        return None
    if not input.is_floating_point() or type(correction) is not int:
        return None
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    count = rows.shape[1]
    if told(">", from_torch(count), correction) is not True:
        return None
    centred = rows - (rows.sum(1) / count).unsqueeze(1)
    return ((centred @ centred.t()) / (count - correction)).squeeze()


@parts(torch.corrcoef, torch.Tensor.corrcoef, always=True)
def _corrcoef(input: Any) -> Any:
    found = _cov(input)
    if found is None:
        return None
    if not found.dim():
        return found / found
    deviation = found.diag().sqrt()
    return (found / deviation.view(-1, 1) / deviation.view(1, -1)).clip(-1, 1)


@parts(torch.prod, torch.Tensor.prod, always=True)
def _prod(input: Any, *args: Any, **kwargs: Any) -> Any:
    """The gradient of a product without factors is made of the factors in eager, and so has a
    history; torch's formula for tensors without data leaves them out."""
    if not isinstance(input, torch.Tensor) or not input.requires_grad:
        return None
    if not any(one.__class__ is int and one == 0 for one in input.shape):
        return None
    kwargs = {name: one for name, one in kwargs.items() if name != "dtype" or one is not None}
    found = torch.ops.aten.prod(input, *args, **kwargs)
    return found + torch.ops.aten.sum(input * input, *args, **kwargs) * 0


# ---------------------------------------------------------------------------------------- pooling


def _pools_all(input: Any, window: Any, rest: Sequence[Any], count: int) -> bool:
    """Whether a window of pooling is all of the last dimensions, and nothing else is said."""
    if any(rest) or input.dim() < count + 1:
        return False
    sizes = list(window) if isinstance(window, list | tuple) else [window] * count
    if len(sizes) != count:
        return False
    pairs = zip(sizes, input.shape[-count:], strict=True)
    return all(told("==", from_torch(one), from_torch(two)) is True for one, two in pairs)


def _largest(count: int) -> Parts:
    def rule(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        rest = (padding, dilation != 1, return_indices)
        if not _varies(kernel_size) or not _pools_all(input, kernel_size, rest, count):
            return None
        found = input.flatten(-count).max(-1).values
        return found[(..., *(None for _ in range(count)))]

    return rule


def _average(count: int) -> Parts:
    def rule(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        rest = (padding, divisor_override)
        if not _varies(kernel_size) or not _pools_all(input, kernel_size, rest, count):
            return None
        return input.mean(tuple(range(-count, 0)), keepdim=True)

    return rule


def _largest_in_rows(function: Any) -> Parts:
    """`max_pool1d` without indices: a kernel of its own, whose result is contiguous, unless a
    gradient is wanted, where it is `max_pool2d`."""
    of_all = _largest(1)

    def rule(input: Any, *rest: Any, **named: Any) -> Any:
        if named.get("return_indices") or len(rest) > 5:
            return None
        varying = of_all(input, *rest, **named) if _varies([*rest, *named.values()]) else None
        if varying is not None:
            return varying
        found = function(input, *rest, **named)
        if input.is_contiguous() or (input.requires_grad and torch.is_grad_enabled()):
            return found
        return found.clone(memory_format=torch.contiguous_format)

    return rule


parts(F.max_pool1d, always=True)(_largest_in_rows(F.max_pool1d))
parts(torch.max_pool1d, always=True)(_largest_in_rows(torch.max_pool1d))
parts(F.max_pool2d)(_largest(2))
parts(F.avg_pool1d)(_average(1))
parts(F.avg_pool2d)(_average(2))


# ------------------------------------------------------------------------------ recurrent cells


def _gates(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Any, Any]:
    return F.linear(input, w_ih, b_ih), F.linear(hx, w_hh, b_hh)


@parts(torch.gru_cell)
def _gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    mine, theirs = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    r, z, n = mine.chunk(3, 1)
    reset, update, new = theirs.chunk(3, 1)
    reset, update = (reset + r).sigmoid(), (update + z).sigmoid()
    new = (n + new * reset).tanh()
    return (hx - new) * update + new


def _plain_cell(activation: Callable[[Any], Any]) -> Parts:
    """A cell without gates."""

    def rule(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        mine, theirs = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
        return activation(mine + theirs)

    return rule


_tanh_cell = parts(torch.rnn_tanh_cell)(_plain_cell(torch.tanh))
_relu_cell = parts(torch.rnn_relu_cell)(_plain_cell(torch.relu))


@parts(torch.lstm_cell)
def _lstm_cell(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    hidden, cell = hx
    mine, theirs = _gates(input, hidden, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = (mine + theirs).chunk(4, 1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


# ---------------------------------------------------------------------------------------- signals


@parts(torch.stft)
def _stft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    plain = all(type(one) in (int, type(None)) for one in (n_fft, hop_length, win_length))
    real = input.dtype in (torch.float32, torch.float64) and input.dim() in (1, 2)
    if not plain or not real or not return_complex or align_to_window is not None:
        return None
    if window is not None and (window.dtype != input.dtype or window.dim() != 1):
        return None
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    if not 0 < width <= n_fft or (window is not None and _varies(window)):
        return None
    if window is not None and window.shape[0] != width:
        return None
    batch = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        batch = F.pad(batch.unsqueeze(0), (n_fft // 2, n_fft // 2), mode=pad_mode).squeeze(0)
    if told(">=", from_torch(batch.shape[1]), n_fft) is not True:
        return None
    if window is None:
        window = torch.ones(width, dtype=input.dtype, device=input.device)
    before = (n_fft - width) // 2
    if width < n_fft:
        window = F.pad(window, (before, n_fft - width - before))
    frames = batch.unfold(-1, n_fft, hop) * window
    norm = "ortho" if normalized else None
    one_sided = onesided is None or onesided
    found = (torch.fft.rfft if one_sided else torch.fft.fft)(frames, dim=-1, norm=norm)
    found = found.transpose(1, 2)
    return found if input.dim() == 2 else found.squeeze(0)
