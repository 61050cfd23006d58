"""Whole training loops as users write them, each small.

Enters: who is compiled (`Ways`: the model, the step, the optimizer's step). Leaves: a `Loop`: its
batches, what happens before a step, the step, and what a user can look at afterwards. Invariant:
two loops made by one function begin equal, and draw the same random numbers if the generator stands
at the same place. Batches come from a generator of their own, outside of the step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint


def _as_it_is(one: Any) -> Any:
    return one


@dataclass(frozen=True)
class Ways:
    """Who is compiled: each answers what stands for its argument."""

    model: Callable[[Any], Any] = _as_it_is
    step: Callable[[Any], Any] = _as_it_is
    update: Callable[[Any], Any] = _as_it_is  # `optimizer.step`


@dataclass
class Loop:
    """One loop. `others` have a `state_dict`; `extra` is the user's own."""

    step: Callable[..., Any]
    batch: Callable[[int], tuple[Any, ...]]
    modules: list[nn.Module]
    optimizers: list[torch.optim.Optimizer]
    others: list[Any] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    before: Callable[[int], None] = lambda _: None
    after: Callable[[int], None] = lambda _: None

    def seen(self) -> dict[str, Any]:
        """What a user can look at."""
        return {
            "parameters": [dict(one.named_parameters()) for one in self.modules],
            "buffers": [dict(one.named_buffers()) for one in self.modules],
            "gradients": [[p.grad for p in one.parameters()] for one in self.modules],
            "optimizers": [one.state_dict() for one in self.optimizers],
            "others": [plain_state(one) for one in self.others],
            "extra": self.extra,
        }


def plain_state(one: Any) -> dict[str, Any]:
    """A state without functions, which each loop has of its own."""
    return {key: value for key, value in dict(one.state_dict()).items() if not callable(value)}


def _generator(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def numbers(number: int, *shape: int) -> torch.Tensor:
    """A batch, the same for all."""
    return torch.randn(*shape, generator=_generator(number))


def rows(number: int, high: int, *shape: int) -> torch.Tensor:
    """A batch of classes or words."""
    return torch.randint(high, shape, generator=_generator(number))


LOOPS: dict[str, Callable[[Ways], Loop]] = {}


def loop(made: Callable[[Ways], Loop]) -> Callable[[Ways], Loop]:
    """A row of the table."""
    LOOPS[made.__name__] = made
    return made


# ----------------------------------------------------------------------------------- transformers


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout = heads, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attend(self.first(x)).split(width, dim=2)
        query, key, value = (
            one.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for one in parts
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


class _GPT(nn.Module):
    def __init__(self, dropout: float = 0.1, again: bool | None = None) -> None:
        super().__init__()
        words, width = 17, 8
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(12, width)
        self.blocks = nn.ModuleList(_Block(width, 2, dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.words.weight = self.head.weight
        self.again = again

    def forward(self, given: torch.Tensor, targets: torch.Tensor) -> tuple[Any, Any]:
        places = torch.arange(given.shape[1], device=given.device)
        x = self.words(given) + self.places(places)
        for block in self.blocks:
            x = block(x) if self.again is None else checkpoint(block, x, use_reentrant=self.again)
        found = self.head(self.norm(x))
        loss = F.cross_entropy(found.view(-1, found.size(-1)), targets.reshape(-1), ignore_index=-1)
        return found, loss


def _two_groups(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    given = [one for one in model.parameters() if one.requires_grad]
    groups = [
        {"params": [one for one in given if one.dim() >= 2], "weight_decay": 0.1},
        {"params": [one for one in given if one.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), **options)


def _language(model: nn.Module, ways: Ways, **options: Any) -> Loop:
    """nanoGPT's loop: micro-batches, clipping, a cosine computed in Python, two groups."""
    optimizer = _two_groups(model, **options)
    run, update = ways.model(model), ways.update(optimizer.step)

    def set_rate(number: int) -> None:
        rate = 1e-2 * (number + 1) / 3
        if number >= 2:
            rate = 1e-3 + 0.5 * (1 + math.cos(math.pi * (number - 2) / 10)) * 9e-3
        for group in optimizer.param_groups:
            group["lr"] = rate

    def batch(number: int) -> tuple[Any, ...]:
        return ([rows(10 * number + micro, 17, 3, 9) for micro in range(2)],)

    def step(batches: list[torch.Tensor]) -> Any:
        total = []
        for one in batches:
            _, loss = run(one[:, :-1], one[:, 1:])
            loss = loss / len(batches)
            loss.backward()
            total.append(loss.detach())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update()
        optimizer.zero_grad(set_to_none=True)
        return total, norm

    return Loop(ways.step(step), batch, [model], [optimizer], before=set_rate)


@loop
def nano_gpt(ways: Ways) -> Loop:
    return _language(_GPT(), ways)


@loop
def nano_gpt_fused(ways: Ways) -> Loop:
    return _language(_GPT(), ways, fused=True)


@loop
def checkpoints(ways: Ways) -> Loop:
    return _language(_GPT(again=False), ways)


@loop
def reentrant_checkpoints(ways: Ways) -> Loop:
    return _language(_GPT(again=True), ways)


@loop
def frozen_parts(ways: Ways) -> Loop:
    """Of another length each step; half of the model is frozen after the third."""
    model = _GPT(dropout=0.0)
    made = _language(model, ways)

    def freeze(number: int) -> None:
        if number == 2:
            model.blocks[0].requires_grad_(False)
            model.words.requires_grad_(False)

    made.after = freeze
    return made


# ------------------------------------------------------------------------------------- classifiers


class _Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.second, self.head = nn.Conv2d(4, 4, 3, stride=2), nn.Linear(4, 5)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = F.adaptive_avg_pool2d(F.relu(self.second(x)), 1).flatten(1)
        return self.head(self.dropout(x))  # type: ignore[no-any-return]


def _images(number: int) -> tuple[Any, ...]:
    return numbers(number, 6, 3, 8, 8), rows(number, 5, 6)


@loop
def image_classifier(ways: Ways) -> Loop:
    """SGD with momentum, label smoothing, mixup, a schedule."""
    model = _Images()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(images: torch.Tensor, classes: torch.Tensor) -> Any:
        share = torch.distributions.Beta(0.4, 0.4).sample()
        order = torch.randperm(images.shape[0])
        mixed = share * images + (1 - share) * images[order]
        found = run(mixed)
        loss = share * criterion(found, classes) + (1 - share) * criterion(found, classes[order])
        optimizer.zero_grad()
        loss.backward()
        update()
        right = (found.argmax(1) == classes).sum()
        return loss.item(), right

    return Loop(
        ways.step(step),
        _images,
        [model],
        [optimizer],
        [schedule],
        after=lambda _: schedule.step(),
    )


@loop
def one_cycle(ways: Ways) -> Loop:
    """Rates and betas of each step, the schedule inside of it."""
    model = _Images()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=20)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(images: torch.Tensor, classes: torch.Tensor) -> Any:
        loss = F.cross_entropy(run(images), classes)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        update()
        schedule.step()
        optimizer.zero_grad()
        return loss.detach()

    return Loop(ways.step(step), _images, [model], [optimizer], [schedule])


@loop
def plateau(ways: Ways) -> Loop:
    """The rate follows the loss; momentum is cycled by another schedule."""
    model = _Images()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    cycle = lr_scheduler.CyclicLR(
        optimizer, 0.01, 0.1, step_size_up=2, cycle_momentum=True, base_momentum=0.7
    )
    lower = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    run, update = ways.model(model), ways.update(optimizer.step)
    losses: list[float] = []

    def step(images: torch.Tensor, classes: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(run(images), classes)
        loss.backward()
        update()
        return loss.detach()

    def after(number: int) -> None:
        cycle.step()
        lower.step(float(model.norm.weight.sum()))  # type: ignore[arg-type]

    made = Loop(ways.step(step), _images, [model], [optimizer], [lower], after=after)
    made.extra = {"losses": losses}
    return made


@loop
def scaled_autocast(ways: Ways) -> Loop:
    """bfloat16 under a scaler that is on, with unscaling and clipping."""
    model = _Images()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    run, update = ways.model(model), ways.update(optimizer.step)
    optimizer.step = update  # type: ignore[method-assign]

    def step(images: torch.Tensor, classes: torch.Tensor) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(run(images), classes)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), norm

    return Loop(ways.step(step), _images, [model], [optimizer], [scaler])


# --------------------------------------------------------------------------------- generative


@loop
def adversaries(ways: Ways) -> Loop:
    """Two networks, two optimizers, a gradient penalty every other way of the loss."""
    maker = nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 6)
    )
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(8, 1))
    first = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.999))
    second = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
    make, say = ways.model(maker), ways.model(judge)
    update_maker, update_judge = ways.update(first.step), ways.update(second.step)
    criterion = nn.BCEWithLogitsLoss()

    def step(real: torch.Tensor, noise: torch.Tensor) -> Any:
        ones, zeros = torch.ones(real.shape[0], 1), torch.zeros(real.shape[0], 1)
        second.zero_grad()
        on_real = criterion(say(real), ones)
        on_real.backward()
        false = make(noise)
        on_false = criterion(say(false.detach()), zeros)
        on_false.backward()
        update_judge()
        first.zero_grad()
        fooled = criterion(say(false), ones)
        fooled.backward()
        update_maker()
        return on_real.item() + on_false.item(), fooled.item()

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 5, 6), numbers(number + 100, 5, 4)

    return Loop(ways.step(step), batch, [maker, judge], [first, second])


@loop
def gradient_penalty(ways: Ways) -> Loop:
    """WGAN-GP's critic: a gradient of a gradient in each step."""
    judge = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(judge.parameters(), lr=1e-2)
    say, update = ways.model(judge), ways.update(optimizer.step)

    def step(real: torch.Tensor, false: torch.Tensor) -> Any:
        share = torch.rand(real.shape[0], 1)
        between = (share * real + (1 - share) * false).requires_grad_()
        (slope,) = torch.autograd.grad(say(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = say(false).mean() - say(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        update()
        return loss.detach(), penalty.detach()

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 5, 6), numbers(number + 100, 5, 6)

    return Loop(ways.step(step), batch, [judge], [optimizer])


class _Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mean, self.spread = nn.Linear(9, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.outer = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 9), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = F.relu(self.inner(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        drawn = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
        return self.outer(drawn), mean, spread


@loop
def variational(ways: Ways) -> Loop:
    model = _Variational()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, weight: float) -> Any:
        optimizer.zero_grad()
        again, mean, spread = run(x)
        lost = F.binary_cross_entropy(again, x, reduction="sum")
        apart = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        loss = lost + weight * apart
        loss.backward()
        update()
        return loss.item()

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 7 if number == 3 else 4, 9).sigmoid(), min(1.0, number / 4)

    return Loop(ways.step(step), batch, [model], [optimizer])


# ------------------------------------------------------------------------------ self-supervised


@loop
def teacher_and_student(ways: Ways) -> Loop:
    """Contrastive, with a queue of keys and a teacher that follows (MoCo)."""
    student = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    learn, update = ways.model(student), ways.update(optimizer.step)
    kept = {"queue": F.normalize(numbers(77, 4, 12), dim=0), "place": 0}

    def step(one: torch.Tensor, other: torch.Tensor) -> Any:
        query = F.normalize(learn(one), dim=1)
        with torch.no_grad():
            for mine, its in zip(student.parameters(), teacher.parameters(), strict=True):
                its.data.mul_(0.9).add_(mine.data, alpha=0.1)
            key = F.normalize(teacher(other), dim=1)
        positive = torch.einsum("nc,nc->n", query, key).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", query, kept["queue"].clone().detach())
        found = torch.cat([positive, negative], dim=1) / 0.2
        loss = F.cross_entropy(found, torch.zeros(found.shape[0], dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        update()
        with torch.no_grad():
            place = kept["place"]
            kept["queue"][:, place : place + key.shape[0]] = key.T
            kept["place"] = (place + key.shape[0]) % 12
        return loss.detach()

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 4, 6), numbers(number + 50, 4, 6)

    return Loop(ways.step(step), batch, [student, teacher], [optimizer], extra=kept)


@loop
def averaged(ways: Ways) -> Loop:
    """An average of the model by `swa_utils`, buffers too, validated every other step."""
    model = _Images()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)
    scores: list[float] = []

    def step(images: torch.Tensor, classes: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(run(images), classes)
        loss.backward()
        update()
        average.update_parameters(model)
        return loss.detach()

    def validate(number: int) -> None:
        if number % 2:
            model.eval()
            with torch.no_grad():
                images, classes = _images(1000)
                scores.append(F.cross_entropy(run(images), classes).item())
            model.train()

    made = Loop(ways.step(step), _images, [model, average], [optimizer], after=validate)
    made.extra = {"scores": scores}
    return made


# --------------------------------------------------------------------- reinforcement, recurrence


class _Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.actor, self.critic = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(x)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


@loop
def policy_gradient(ways: Ways) -> Loop:
    """PPO: several epochs of minibatches over one rollout."""
    model = _Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(seen: torch.Tensor, rewards: torch.Tensor) -> Any:
        with torch.no_grad():
            found, values = run(seen)
            chosen = torch.distributions.Categorical(logits=found)
            actions = chosen.sample()
            before = chosen.log_prob(actions)
            gains = torch.zeros_like(rewards)
            last = torch.zeros(())
            for at in reversed(range(rewards.shape[0])):
                follows = values[at + 1] if at + 1 < rewards.shape[0] else values[at]
                last = rewards[at] + 0.99 * follows - values[at] + 0.99 * 0.95 * last
                gains[at] = last
            returns = gains + values
        told = []
        for _ in range(2):
            order = torch.randperm(seen.shape[0])
            for start in range(0, seen.shape[0], 4):
                part = order[start : start + 4]
                found, value = run(seen[part])
                chosen = torch.distributions.Categorical(logits=found)
                ratio = (chosen.log_prob(actions[part]) - before[part]).exp()
                gain = gains[part]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = torch.clamp(ratio, 0.8, 1.2)
                lost = torch.max(-gain * ratio, -gain * clipped).mean()
                apart = 0.5 * (value - returns[part]).pow(2).mean()
                loss = lost + 0.5 * apart - 0.01 * chosen.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                update()
                told.append(loss.detach())
        return told

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 8, 4), numbers(number + 30, 8)

    return Loop(ways.step(step), batch, [model], [optimizer])


class _Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.body = nn.LSTM(6, 5, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(5, 11)

    def forward(self, x: torch.Tensor, state: Any) -> Any:
        found, state = self.body(self.words(x), state)
        return self.head(found), state


@loop
def truncated(ways: Ways) -> Loop:
    """A recurrent net whose state goes from batch to batch, detached."""
    model = _Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    run, update = ways.model(model), ways.update(optimizer.step)
    kept: dict[str, Any] = {"state": (torch.zeros(2, 3, 5), torch.zeros(2, 3, 5))}

    def step(given: torch.Tensor) -> Any:
        optimizer.zero_grad()
        found, state = run(given[:, :-1], kept["state"])
        kept["state"] = tuple(one.detach() for one in state)
        loss = F.cross_entropy(found.reshape(-1, 11), given[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        update()
        return loss.item()

    def batch(number: int) -> tuple[Any, ...]:
        return (rows(number, 11, 3, 6),)

    return Loop(ways.step(step), batch, [model], [optimizer], extra=kept)


# ------------------------------------------------------------------------------- other optimizers


@loop
def second_order(ways: Ways) -> Loop:
    """LBFGS: a closure that is called often."""
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            return loss

        return update(closure).detach()

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 6, 4), numbers(number + 9, 6, 2)

    return Loop(ways.step(step), batch, [model], [optimizer])


@loop
def sparse_and_dense(ways: Ways) -> Loop:
    """SparseAdam for the table, Adagrad for the rest."""
    table, head = nn.EmbeddingBag(13, 4, mode="sum", sparse=True), nn.Linear(4, 2)
    model = nn.ModuleList([table, head])
    both = [
        torch.optim.SparseAdam(table.parameters(), lr=0.01),
        torch.optim.Adagrad(head.parameters(), lr=0.01),
    ]
    look, run = ways.model(table), ways.model(head)
    updates = [ways.update(one.step) for one in both]

    def step(given: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(look(given)), y)
        loss.backward()
        for update, one in zip(updates, both, strict=True):
            update()
            one.zero_grad()
        return loss.detach()

    def batch(number: int) -> tuple[Any, ...]:
        return rows(number, 13, 5, 3), numbers(number, 5, 2)

    return Loop(ways.step(step), batch, [model], both)


@loop
def resumed(ways: Ways) -> Loop:
    """States are saved and loaded between steps; a group is added."""
    model = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2))
    late = nn.Parameter(torch.ones(2))
    model.register_parameter("late", late)
    first = [one for one in model.parameters() if one is not late]
    optimizer = torch.optim.AdamW(first, lr=1e-2, amsgrad=True)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(run(x) * late, y)
        loss.backward()
        update()
        return loss.detach()

    def after(number: int) -> None:
        if number == 2:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            model.load_state_dict(copy.deepcopy(model.state_dict()))
        if number == 3:
            optimizer.add_param_group({"params": [late], "lr": 0.1, "betas": (0.8, 0.9)})

    def batch(number: int) -> tuple[Any, ...]:
        return numbers(number, 6, 4), numbers(number + 9, 6, 2)

    return Loop(ways.step(step), batch, [model], [optimizer], after=after)
