"""Rows of the checklist: tensors and scalars."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.programs.case import Call, Program, plain, ramp, row


@plain("tensors")
def metadata(x):
    facts = (
        x.shape,
        x.dtype,
        x.device,
        x.ndim,
        x.dim(),
        x.numel(),
        x.is_contiguous(),
        x.requires_grad,
        x.stride(),
        x.size(0),
        x.size(-1),
        len(x),
        x.element_size(),
        x.is_floating_point(),
        x.layout,
        x.T.is_contiguous(),
        x.storage_offset(),
        x.itemsize,
        x.is_leaf,
        x.names if False else None,
    )
    return x + facts[3], facts


@plain("tensors")
def branch_on_metadata(x):
    if (
        x.shape[0] == 2
        and x.dtype is torch.float32
        and not x.requires_grad
        and x.device.type == "cpu"
    ):
        return x * 2
    return x


@plain("tensors")
def identity_kept(x):
    return x if x.contiguous() is x else x + 1, x.to(torch.float32) is x, x.float() is x, x + 1


@plain("tensors")
def views(x):
    return (
        x.view(3, 2),
        x.T,
        x[0],
        x.reshape(-1),
        x.unsqueeze(0),
        x[:, ::2],
        x.expand(2, 2, 3),
        x.detach(),
    )


@plain("tensors")
def view_of_result(x):
    y = x * 2
    z = y.view(-1)
    z.add_(1)
    return y, z, z[1:3]


@plain("tensors")
def operators(x, y):
    return (
        x + y,
        1 - x,
        x * 2 / 4,
        x // 2,
        x % 3,
        -x,
        abs(x),
        x**2,
        2**y,
        x @ y.T,
        x < y,
        x >= 1,
        (x > 0) & (y > 0),
        ~(x == y),
        x != y,
        +x,
        (x > 0) ^ (y > 0),
        x.long() << 1,
        7 // (y + 3),
    )


@plain("tensors")
def iteration_and_unpacking(x):
    first, second = x
    rows = [row * 2 for row in x]
    a, b = x.split(1)
    values, indices = x.max(dim=1)
    return first + second, rows, a - b, values, indices, x.max(1).values, torch.unbind(x, 1)[0]


@plain("tensors")
def returned_structures(x):
    return torch.topk(x, 2), x.sort(), torch.var_mean(x), x.aminmax()


@plain("tensors")
def creation(x, n):
    return (
        torch.zeros(n, 2),
        torch.ones_like(x),
        x.new_full((2,), 5),
        torch.arange(n) + 1,
        torch.tensor([1.0, n]),
        torch.full((2,), n),
        torch.eye(2, dtype=x.dtype),
        torch.empty(0),
        torch.linspace(0, 1, n),
        torch.tensor(n),
        torch.tensor([[1, 2], [3, n]], dtype=torch.float64),
        torch.scalar_tensor(2),
    )


@plain("tensors")
def dtypes(x):
    return (
        x.double() + 1,
        x.to(torch.bfloat16) * 2,
        x.int() + 1,
        x.bool(),
        x.to("cpu"),
        x.type_as(x.half()),
    )


@plain("tensors")
def indexing(x, n):
    index = torch.tensor([0, 1])
    y = x.clone()
    y[index, 0] = 9
    y[y > 5] = -1
    y[..., -1] *= 2
    return (
        x[index],
        x[0, 1:],
        x[:, None].shape,
        x[x.shape[0] - 1],
        y,
        x.index_select(0, index),
        x[:n],
    )


@plain("tensors")
def methods_by_name(x):
    return (
        x.sum(),
        x.mean(dim=-1, keepdim=True),
        x.clamp(min=0),
        x.softmax(-1),
        x.masked_fill(x > 0, 1.0),
        x.cumsum(0),
    )


@plain("tensors")
def torch_functions(x, y):
    stacked = torch.stack([x, y])
    return (
        torch.cat((x, y), dim=0),
        torch.where(x > 0, x, y),
        stacked.sum(0),
        torch.einsum("ij,kj->ik", x, y),
    )


@plain("tensors")
def functional(x):
    y = F.layer_norm(x, (3,))
    return (
        F.gelu(y),
        F.relu(x, inplace=False),
        F.pad(x, (1, 1)),
        F.one_hot(torch.tensor([1, 0]), 3),
        F.softplus(x),
    )


@plain("tensors")
def scalars_of_python(x, n):
    return (
        x * 2.5 + n,
        x.add(1, alpha=2),
        torch.pow(x, n),
        x + True,
        x * float("inf"),
        torch.clamp(x, -1, n),
    )


@plain("tensors")
def tensor_in_boolean_context_of_size(x):
    return x + 1 if x.shape else x, x is not None, x is None, not x.shape


@row("scalars", graphs=(1, 3))
def varied_ints():
    def f(x, n):
        return x * n + n // 2

    return Program(f, [Call(ramp(3), n) for n in (2, 3, 5, 8, 9, 100, -4)])


@row("scalars", graphs=(1, 4))
def varied_floats():
    def f(x, p):
        return x * p + (p if p == p else 0)

    values = (0.5, 1.5, 2.25, float("nan"), float("nan"), -0.0, 0.0, float("inf"))
    return Program(f, [Call(ramp(3), value) for value in values])


@row("scalars", graphs=(4, 8))
def varied_kinds():
    def f(x, flag):
        return x + 1 if flag else x - 1, flag

    kinds = (True, False, None, 1, 0, "", "a", 1.0, True)
    return Program(f, [Call(ramp(3), kind) for kind in kinds])


@row("scalars", graphs=(1, 5))
def varied_shapes():
    def f(x):
        return x * 2 + x.shape[0]

    sizes = ((2, 3), (3, 3), (4, 3), (5, 7), (1, 3), (0, 3), (2, 3))
    return Program(f, [Call(ramp(*size)) for size in sizes])


@row("scalars", graphs=(1, 6))
def varied_tensors():
    def f(x):
        return x + x.T

    return Program(
        f,
        [
            Call(ramp(3, 3)),
            Call(ramp(3, 3).T),
            Call(ramp(3, 3).double()),
            Call(ramp(3, 3, grad=True)),
            Call(nn.Parameter(ramp(3, 3))),
            Call(ramp(3, 3)),
            Call(ramp(3, 3).to(torch.int32)),
        ],
    )
