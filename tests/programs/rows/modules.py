"""Rows of the checklist: modules."""

import torch
from torch import nn

from tests.programs.case import Call, Program, ramp, row


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
            Call(ramp(2, 3)),
            Call(ramp(2, 3)),
            Call(ramp(2, 3), before=m.eval),
            Call(ramp(2, 3), before=m.train),
        ],
    )


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
