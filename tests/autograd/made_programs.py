"""Programs made by chance: views, writes, arithmetic, and what a user does with the results.

Enters: a `random.Random` (hypothesis has one that it can shrink). Leaves: a `Made`: the source of a
function, how its arguments lie, and a list of things that are done before and after it is called.
Invariant: the same `Made` is the same program; it is text, so a failure can be read and run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_PREFACE = "import torch\nimport torch.nn.functional as F\n\n"


@dataclass(frozen=True)
class Made:
    """A program. `arguments` and `actions` are words that `Stage` knows."""

    source: str
    arguments: tuple[str, str, str]
    actions: tuple[tuple[Any, ...], ...]

    def function(self) -> Callable[..., Any]:
        """The function of the source."""
        namespace: dict[str, Any] = {}
        exec(compile(_PREFACE + self.source, "<made>", "exec"), namespace)
        found: Callable[..., Any] = namespace["run"]
        return found

    def __str__(self) -> str:
        return f"{self.source}\narguments {self.arguments}\nactions {self.actions}"


# How the first argument is made, the second one (which may share its memory), and the third.
FIRST = ("leaf", "result", "plain", "turned", "view of a result")
SECOND = ("leaf", "result", "plain", "the first", "rows of the first", "the first, turned",
          "the first, detached", "row of the first")  # fmt: skip
THIRD = ("leaf", "result", "plain", "rest of the first")


def arguments(made: Made) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """The arguments by name, and the leaves behind them."""
    leaves: list[torch.Tensor] = []

    def fresh(kind: str, *sizes: int) -> torch.Tensor:
        needs = kind not in ("plain",)
        one = torch.randn(*sizes, dtype=torch.float64, requires_grad=needs)
        if needs:
            leaves.append(one)
        if kind == "result":
            return one * 1
        if kind == "turned":
            return (one * 1).t().contiguous().t()
        if kind == "view of a result":
            return (one * 2)[:]
        return one

    x = fresh(made.arguments[0], 4, 4)
    kinds: dict[str, Callable[[], torch.Tensor]] = {
        "the first": lambda: x,
        "rows of the first": lambda: x[1:3],
        "the first, turned": lambda: x.t(),
        "the first, detached": lambda: x.detach(),
        "row of the first": lambda: x[2],
        "rest of the first": lambda: x[3],
    }
    second, third = made.arguments[1:]
    y = kinds[second]() if second in kinds else fresh(second, 4, 4)
    z = kinds[third]() if third in kinds else fresh(third, 4)
    return {"x": x, "y": y, "z": z}, leaves


VIEWS = (
    "{a}.view(-1)", "{a}.t()", "{a}[1:]", "{a}[0]", "{a}.select(-1, 1)", "{a}.unsqueeze(0)",
    "{a}.detach()", "{a}.unbind(0)[1]", "{a}.diagonal()", "{a}.chunk(2)[0]", "{a}.view_as({a})",
    "{a}.transpose(0, -1)", "{a}[..., ::2]", "{a}.squeeze()", "{a}.expand_as({a})",
    "{a}.split(2)[1]", "{a}.narrow(0, 1, 1)", "{a}.unfold(0, 2, 1)", "{a}.flatten()",
)  # fmt: skip
PURE = (
    "{a} * 2", "{a}.sin()", "{a}.exp().clamp(max=3)", "{a} + {b}", "{a} * {b}", "{a}.clone()",
    "torch.softmax({a}, -1)", "{a}.cumsum(-1)", "{a}.sum()", "{a}.mean(0)", "F.relu({a})",
    "{a} @ {b}", "{a}.contiguous()", "F.dropout({a}, 0.5)", "{a}.detach() * {b}",
    "{a} + {b}.sum()", "torch.cat([{a}, {b}])", "torch.where({a} > 0, {a}, {b})", "{a}.tanh()",
    "torch.zeros_like({a})", "{a}.max(0).values", "{a}.sort(0).values",
    "torch.stack([{a}, {b}])[1]", "{a} * {a}.sum()",
)  # fmt: skip
WRITES = (
    "{a}.mul_(2)", "{a}.add_(1)", "{a}.sin_()", "{a}.zero_()", "{a}.relu_()", "{a}.mul_({b})",
    "{a}.add_({b}.sum())", "{a}.copy_({b}.clone())", "{a}[1:].mul_(3)", "{a}[0] = 1",
    "{a}[..., 0] = {b}.sum()", "{a}.masked_fill_({a} > 0, 0.5)", "{a}.data.mul_(2)",
    "{a}.detach().add_(1)", "{a}.clamp_(min=-1)", "torch._foreach_mul_([{a}], 2)",
    "{a}.add_({b}, alpha=2)",
)  # fmt: skip


# Changes of sizes in place: the programs of older seeds do without.
CHANGES = (
    "{a}.t_()", "{a}.transpose_(0, -1)", "{a}.squeeze_()", "{a}.unsqueeze_(0)", "{a}.squeeze_(0)",
    "{a}.swapaxes_(0, -1)",
)  # fmt: skip


def make(r: random.Random, changes: bool = False) -> Made:
    """A program, by chance; `changes`: with such of sizes. Lines that eager refuses are not
    taken."""
    given = r.choice(FIRST), r.choice(SECOND), r.choice(THIRD)
    empty = Made("def run(x, y, z):\n    pass\n", given, ())
    torch.manual_seed(0)
    values, _ = arguments(empty)
    lines: list[str] = []
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, **values}
    for count in range(r.randrange(2, 11)):
        kind = r.random()
        a, b = r.choice(sorted(values)), r.choice(sorted(values))
        table = VIEWS if kind < 0.3 else WRITES if kind < 0.6 else PURE
        if changes and r.random() < 0.2:
            table = CHANGES
        text = r.choice(table).format(a=a, b=b)
        name = f"v{count}"
        line = text if table in (WRITES, CHANGES) else f"{name} = {text}"
        blind = r.random() < 0.12
        if _works(line, scope, blind):
            lines += ["with torch.no_grad():", f"    {line}"] if blind else [line]
            if name in scope:
                values[name] = scope[name]
    names = [r.choice(sorted(values)) for _ in range(r.randrange(1, 5))]
    looked_at = list(range(len(names)))
    body = "\n    ".join([*lines, f"return {', '.join(names)},"])
    return Made(f"def run(x, y, z):\n    {body}\n", given, _actions(r, len(names), looked_at))


def _works(line: str, scope: dict[str, Any], blind: bool) -> bool:
    try:
        with torch.set_grad_enabled(not blind):
            exec(line, scope)
        for one in scope.values():
            if isinstance(one, torch.Tensor):
                one.grad_fn  # noqa: B018 (of a view whose base was written: it may raise)
    except (RuntimeError, IndexError, TypeError):
        return False
    return True


def _actions(r: random.Random, results: int, looked_at: list[int]) -> tuple[tuple[Any, ...], ...]:
    """What is done with three arguments and so many results; the gradients of some may be looked
    at."""
    found: list[tuple[Any, ...]] = []
    for name in ("x", "y", "z"):
        if r.random() < 0.35:
            found.append((r.choice(["retain", "hook", "doubling hook"]), name))
    found.append(("call",))
    places = list(range(results))
    for place in looked_at:
        if r.random() < 0.35:
            found.append((r.choice(["retain", "hook", "doubling hook"]), place))
    if r.random() < 0.15:
        found.append(("write", r.choice([*places, "x", "y", "z"])))
    for _ in range(r.randrange(1, 4)):
        chosen = tuple(sorted(r.sample(places, r.randrange(1, results + 1))))
        retain = r.random() < 0.6
        kind = r.random()
        if kind < 0.45:
            found.append(("backward", chosen, retain))
        elif kind < 0.7:
            found.append(("gradients", chosen, retain))
        elif kind < 0.8 and looked_at:
            others = tuple(sorted(r.sample(looked_at, r.randrange(1, len(looked_at) + 1))))
            found.append(("of results", chosen, others, retain))
        else:
            found.append(("again", chosen, retain))
    return tuple(found)


class Stage:
    """One run of a program: does the actions, and writes down what is seen."""

    def __init__(self, made: Made, call: Callable[..., Any]) -> None:
        self.made = made
        self.call = call
        self.told: list[Any] = []
        self.hooked: list[tuple[str, torch.Tensor]] = []
        torch.manual_seed(0)
        self.values, self.leaves = arguments(made)
        self.results: tuple[torch.Tensor, ...] = ()

    def run(self, seen: Callable[..., Any]) -> list[Any]:
        """All that is seen."""
        for action, *rest in self.made.actions:
            try:
                getattr(self, "_" + action.replace(" ", "_"))(*rest)
            except RuntimeError as error:
                self.told.append((action, _kind(error)))
                if action not in ("retain", "hook", "doubling hook", "write"):
                    return self.told  # how far such a pass came, nobody promises
            given = (*self.values.values(), *self.leaves)
            self.told.append(seen(*self.results, *given))
            self.told.append([one._version for one in given])
        # Which of several hooks is first is nobody's promise.
        self.told.append(sorted(name for name, _ in self.hooked))
        self.told += [one for _, one in sorted(self.hooked, key=lambda pair: pair[0])]
        self.told.append(torch.rand(1))
        return self.told

    def _tensor(self, where: Any) -> torch.Tensor:
        return self.values[where] if isinstance(where, str) else self.results[where]

    def _call(self) -> None:
        torch.manual_seed(1)
        self.results = tuple(self.call(**self.values))

    def _retain(self, where: Any) -> None:
        self._tensor(where).retain_grad()

    def _hook(self, where: Any) -> None:
        def note(gradient: torch.Tensor) -> None:
            self.hooked.append((str(where), gradient.detach().clone()))

        self._tensor(where).register_hook(note)

    def _doubling_hook(self, where: Any) -> None:
        def double(gradient: torch.Tensor) -> torch.Tensor:
            self.hooked.append((str(where), gradient.detach().clone()))
            return gradient * 2

        self._tensor(where).register_hook(double)

    def _write(self, where: Any) -> None:
        with torch.no_grad():
            self._tensor(where).mul_(2)

    def _roots(self, places: tuple[int, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        roots = [self.results[place] for place in places if self.results[place].requires_grad]
        with _own_stream(7):
            return roots, [torch.randn(one.shape, dtype=one.dtype) for one in roots]

    def _backward(self, places: tuple[int, ...], retain: bool) -> None:
        roots, tangents = self._roots(places)
        if roots:
            torch.autograd.backward(roots, tangents, retain_graph=retain)

    def _gradients(self, places: tuple[int, ...], retain: bool) -> None:
        roots, tangents = self._roots(places)
        if roots and self.leaves:
            self.told += torch.autograd.grad(
                roots, self.leaves, tangents, retain_graph=retain, allow_unused=True
            )

    def _of_results(self, places: tuple[int, ...], others: tuple[int, ...], retain: bool) -> None:
        roots, tangents = self._roots(places)
        wanted = [self.results[one] for one in others if self.results[one].requires_grad]
        if roots and wanted:
            self.told += torch.autograd.grad(
                roots, wanted, tangents, retain_graph=retain, allow_unused=True
            )

    def _again(self, places: tuple[int, ...], retain: bool) -> None:
        roots, tangents = self._roots(places)
        if not roots or not self.leaves:
            return
        found = torch.autograd.grad(
            roots, self.leaves, tangents, create_graph=True, allow_unused=True
        )
        self.told += [None if one is None else (one.detach(), one.requires_grad) for one in found]
        first = [one for one in found if one is not None and one.requires_grad]
        if first:
            self.told += torch.autograd.grad(
                [one.square().sum() for one in first],
                self.leaves,
                allow_unused=True,
                retain_graph=retain,
            )


# What eager says; other words of its messages name its own nodes.
_SAYINGS = ("second time", "modified by an inplace", "is a view and", "does not require grad",
            "appears to not have been used", "cannot register a hook", "can't retain_grad",
            "a leaf Variable", "no grad mode", "use_reentrant=True")  # fmt: skip


def _kind(error: RuntimeError) -> str:
    return next((one for one in _SAYINGS if one in str(error)), str(error))


@contextmanager
def _own_stream(seed: int) -> Iterator[None]:
    kept = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(kept)
