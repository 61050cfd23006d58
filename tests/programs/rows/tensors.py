# ruff: noqa: SIM, B905
"""Rows of the checklist: tensors, scalars, modules, autograd, random numbers."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.programs.case import Call, Program, plain, ramp, row


@plain("tensors")
def metadata(x):
    facts = (
        x.shape, x.dtype, x.device, x.ndim, x.dim(), x.numel(), x.is_contiguous(), x.requires_grad, x.stride(),
        x.size(0), x.size(-1), len(x), x.element_size(), x.is_floating_point(), x.layout, x.T.is_contiguous(),
        x.storage_offset(), x.itemsize, x.is_leaf, x.names if False else None,
    )  # fmt: skip
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
        x + y, 1 - x, x * 2 / 4, x // 2, x % 3, -x, abs(x), x**2, 2**y, x @ y.T, x < y, x >= 1, (x > 0) & (y > 0),
        ~(x == y), x != y, +x, (x > 0) ^ (y > 0), x.long() << 1, 7 // (y + 3),
    )  # fmt: skip


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
        torch.zeros(n, 2), torch.ones_like(x), x.new_full((2,), 5), torch.arange(n) + 1, torch.tensor([1.0, n]),
        torch.full((2,), n), torch.eye(2, dtype=x.dtype), torch.empty(0), torch.linspace(0, 1, n), torch.tensor(n),
        torch.tensor([[1, 2], [3, n]], dtype=torch.float64), torch.scalar_tensor(2),
    )  # fmt: skip


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
        ],  # fmt: skip
    )


# ------------------------------------------------------------------------------------ modules


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.register_buffer("offset", ramp(3))
        self.scale = 2
        self.extra = nn.ParameterList([nn.Parameter(ramp(3)), nn.Parameter(ramp(3, start=1))])
        self.table = nn.ModuleDict({"act": nn.ReLU(), "drop": nn.Dropout(0.5)})

    def forward(self, x, use=True):
        y = self.norm(self.linear(x)) * self.scale + self.offset
        for one in self.extra:
            y = y + one
        return self.table["drop"](self.table["act"](y)) if use else y


def module_program(make, calls):
    torch.manual_seed(0)
    module = make()
    return Program(module, calls(module), state=module)


@row("modules", graphs=(1, 2))
def module_train_and_eval():
    return module_program(
        Block,
        lambda m: [
            Call(ramp(2, 3)), Call(ramp(2, 3)), Call(ramp(2, 3), before=m.eval), Call(ramp(2, 3), before=m.train),
        ],
    )  # fmt: skip


@row("modules")
def module_gradients():
    def backward(result):
        result.sum().backward()

    return module_program(
        lambda: nn.Sequential(Block(), nn.Linear(3, 2)),
        lambda m: [Call(ramp(2, 3), after=backward), Call(ramp(2, 3), after=backward)],
    )


@row("modules")
def module_without_grad():
    def f(x):
        with torch.no_grad():
            return module(x, use=False)

    torch.manual_seed(0)
    module = Block()
    return Program(f, [Call(ramp(2, 3)), Call(ramp(2, 3))], state=module)


@row("modules")
def module_method():
    torch.manual_seed(0)
    module = Block()

    def f(x):
        names = [name for name, _ in module.named_parameters()]
        total = sum(p.sum() for p in module.parameters())
        return (
            module.linear.weight @ x + total,
            names,
            len(list(module.children())),
            module.training,
        )

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.log = []
        self.linear.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        self.linear.register_forward_hook(self.note)
        self.linear.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True)

    def note(self, module, args, out):
        self.log.append(out.shape)

    def forward(self, x):
        return self.linear(x)


@row("modules", graphs=(1, 2))
def module_hooks():
    return module_program(Hooked, lambda m: [Call(ramp(2, 3)), Call(ramp(2, 3))])


@row("modules", graphs=(1, 6))
def module_hook_later():
    def calls(m):
        def hook():
            m[0].register_forward_hook(lambda one, args, out: out * 3)

        def global_like():
            m[1].register_forward_pre_hook(lambda one, args: (args[0] - 1,))

        return [
            Call(ramp(2, 3)),
            Call(ramp(2, 3), before=hook),
            Call(ramp(2, 3), before=global_like),
        ]

    return module_program(lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()), calls)


@row("modules")
def shared_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, index):
            return self.head(self.embed(index))

    def backward(result):
        result.sum().backward()

    return module_program(
        Tied,
        lambda m: [
            Call(torch.tensor([1, 4]), after=backward),
            Call(torch.tensor([0, 2]), after=backward),
        ],
    )


@row("modules", graphs=(1, 3))
def module_list_and_getattr():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
            self.weights = ramp(3)

        def __getattr__(self, name):
            if name == "computed":
                return 2
            return super().__getattr__(name)

        def forward(self, x, cache=None):
            outs = []
            for index, layer in enumerate(self.layers):
                x = layer(x) * self.computed + self.weights
                if cache is not None:
                    cache[index] = x
                outs.append(x)
            return torch.stack(outs), self.layers[-1].in_features, len(self.layers[1:])

    return module_program(
        Layers, lambda m: [Call(ramp(2, 3)), Call(ramp(2, 3)), Call(ramp(2, 3), cache={})]
    )


@row("modules", graphs=(1, 3))
def counter_in_module():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0
            self.seen = nn.Buffer(torch.zeros(3))

        def forward(self, x):
            self.step += 1
            self.seen += x.sum(0)
            return x * self.step

    return module_program(Counting, lambda m: [Call(ramp(2, 3)) for _ in range(6)])


@row("modules", graphs=(1, 6))
def convolution_and_norm():
    return module_program(
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2)
        ),
        lambda m: [
            Call(ramp(2, 1, 4, 4)),
            Call(ramp(2, 1, 4, 4)),
            Call(ramp(2, 1, 4, 4), before=m.eval),
        ],
    )


@row("modules", graphs=(1, 3))
def recurrent():
    return module_program(
        lambda: nn.LSTM(3, 4, batch_first=True), lambda m: [Call(ramp(2, 5, 3)) for _ in range(2)]
    )


@row("modules", graphs=(1, 3))
def attention_layer():
    return module_program(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        lambda m: [Call(ramp(2, 3, 4)), Call(ramp(2, 3, 4), before=m.eval)],
    )


# ----------------------------------------------------------------------------------- autograd


@row("autograd")
def gradients_of_inputs():
    def f(x, w):
        return (x * w).relu().sum() + (w**2).sum()

    def call():
        return Call(ramp(3, grad=True), ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd")
def gradients_of_several_results():
    def f(x, w):
        y = x * w
        return y, y.detach(), (y * 2).sum(), w

    def look(answer):
        (answer[0].sum() + answer[2]).backward()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=look)

    return Program(f, [call(), call()])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0]


@row("autograd", graphs=(1, 2))
def autograd_function():
    def f(x):
        return Square.apply(x + 1).sum()

    def call():
        return Call(ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd", graphs=(1, 3))
def backward_inside():
    def f(x, w):
        loss = (x * w).sum()
        loss.backward()
        return w.grad * 2, loss.detach()

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(2)])


@row("autograd", graphs=(1, 3))
def autograd_grad_inside():
    def f(x, w):
        (g,) = torch.autograd.grad((x * w**2).sum(), w)
        return g + 1

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(2)])


@row("autograd", graphs=(1, 2))
def checkpointed():
    def f(x, w):
        return checkpoint(lambda t: (t * w).relu(), x, use_reentrant=False).sum()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd", graphs=(1, 2))
def hook_on_input():
    seen = []

    def f(w):
        w.register_hook(lambda grad: seen.append(grad.clone()))
        return (w * 2).sum()

    def call():
        return Call(ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()], state=seen)


@row("autograd", graphs=(1, 2))
def inplace_on_intermediate_with_grad():
    def f(x, w):
        y = x * w
        y.mul_(2)
        y[0] = 5
        return y.sum()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd", graphs=(1, 3))
def optimizer_step():
    torch.manual_seed(0)
    weight = nn.Parameter(ramp(3))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.5)

    def f(x):
        weight.grad = x * 2
        optimizer.step()
        return weight.detach() + 1

    return Program(f, [Call(ramp(3)) for _ in range(3)], state=(weight, optimizer.state_dict))


# ------------------------------------------------------------------------------------- random


@plain("random", calls=3)
def torch_random(x):
    return (
        torch.rand(3),
        torch.randn_like(x),
        F.dropout(x, 0.5),
        torch.randint(0, 9, (2,)),
        torch.randperm(4),
    )


@plain("random", graphs=(1, 3), calls=3)
def seeded_inside(x):
    torch.manual_seed(7)
    return x + torch.rand(2, 3)


@plain("random", graphs=(1, 3), calls=3)
def python_random(x):
    return x * random.random() + random.randint(1, 5), random.choice("abc"), random.uniform(0, 1)


@row("random", graphs=(1, 3))
def own_generators():
    generator = torch.Generator().manual_seed(3)
    source = random.Random(5)

    def f(x):
        return x + torch.rand(3, generator=generator) + source.random()

    return Program(f, [Call(ramp(3)) for _ in range(3)], state=(generator, source.getstate))


@plain("random", calls=3)
def inplace_random(x):
    return (
        x.uniform_() + torch.empty(3).normal_(),
        torch.bernoulli(torch.full((3,), 0.5)),
        torch.multinomial(torch.ones(4), 2),
    )
