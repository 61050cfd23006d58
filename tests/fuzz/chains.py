"""Chains of operations made by chance: what a user sees of them is as in eager.

Enters: a seed. Leaves: a `Chain` (the text of a program, and how its arguments are made), and what
differs when eager and compiled run it seven times, with other values, sizes, dtypes, without
gradients and on empty tensors. Arguments have mixed dtypes and layouts and may share their memory.
Invariant: a seed is one program; each of its lines ran in eager.

    def program(x0, x1):
        v0 = x0.movedim(1,-1).add_(x1)
        v1 = v0.chunk(2,0)[-1]
        v1.uniform_()
        return v0, v1,

    python -m tests.fuzz.chains --examples 300 --seed 2000 [--size 7] [--no-shrink]

Compared: values (nearly), dtypes, sizes, strides, offsets, identity and shared memory of results
and arguments, gradients, errors with their texts, and the state of the random numbers. Not
compared: warnings, the sign of a zero, and numbers that eager itself changes when its arguments
change by two roundings.
"""

from __future__ import annotations

import argparse
import linecache
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F

import windfall
from tests.conformance.checking import gradients, tensors_in
from tests.conformance.op_db_samples import copied
from tests.fuzz.operations import OF_ONE, OF_TWO, RANDOM, WRITES
from tests.fuzz.running import limit
from tests.programs.observe import Comparison
from tests.seeds import set_seed

_FLOATS = (torch.float32,) * 6 + (torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*_FLOATS, *_INTEGERS, torch.bool, torch.complex64)
MODES: tuple[dict[str, Any], ...] = (
    {}, {"dynamic": True}, {"mode": "reduce-overhead"}, {"dynamic": False},
)  # fmt: skip


# ------------------------------------------------------------------------------------ arguments


def _values(shape: list[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Small numbers that each dtype holds exactly."""

    def drawn(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_complex:
        return torch.complex(drawn(-8, 9).float() / 4, drawn(-8, 9).float() / 4)
    if dtype.is_floating_point:
        return (drawn(-16, 17).double() / 8).to(dtype)
    return (drawn(0, 9) if dtype is torch.uint8 else drawn(-6, 7)).to(dtype)


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    larger = tensor.new_zeros([size * 2 + 1 for size in tensor.shape])
    return larger[tuple(slice(1, None, 2) for _ in tensor.shape)].copy_(tensor)


def _behind_others(tensor: torch.Tensor) -> torch.Tensor:
    larger = tensor.new_zeros(tensor.numel() + 3)
    larger[3:] = tensor.flatten()
    return larger[3:].view(tensor.shape)


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand(tensor.shape)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() != 4:
        return tensor.flip(0)
    return tensor.contiguous(memory_format=torch.channels_last)


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    order = range(tensor.dim())[::-1]
    return tensor.permute(*order).contiguous().permute(*order)


# How an argument lies in memory: up to which draw of [0, 1).
_LAYOUTS: tuple[tuple[float, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    (0.45, lambda tensor: tensor), (0.55, _turned), (0.63, _with_gaps), (0.71, _behind_others),
    (0.78, _expanded), (0.85, _channels_last), (0.9, lambda tensor: tensor.flip(0)),
    (0.95, _reversed), (1.0, lambda tensor: tensor),
)  # fmt: skip


def _laid_out(tensor: torch.Tensor, chance: random.Random) -> torch.Tensor:
    draw = chance.random()
    if not tensor.dim() or not tensor.numel():
        return tensor
    return next(layout for bound, layout in _LAYOUTS if draw < bound)(tensor)


@dataclass(frozen=True)
class Argument:
    """`wants`: it has a gradient where the program is differentiated and its dtype can have one."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    wants: bool


@dataclass(frozen=True)
class Plan:
    """How one call's arguments differ from the first call's."""

    seed: int
    sizes: dict[int, int] = field(default_factory=dict)
    dtype: torch.dtype | None = None  # in place of float32
    gradient: bool = True


@dataclass(frozen=True)
class Recipe:
    """How the arguments are made. `alias`: the second one is a view of the first."""

    arguments: tuple[Argument, ...]
    base: tuple[int, ...]
    alias: bool
    gradient: bool

    def make(self, plan: Plan) -> tuple[torch.Tensor, ...]:
        """The arguments of a call."""
        chance, generator = random.Random(plan.seed), torch.Generator().manual_seed(plan.seed)
        made = []
        differentiated = self.gradient and plan.gradient
        for one in self.arguments:
            shape = [plan.sizes.get(size, size) for size in one.shape]
            dtype = plan.dtype if plan.dtype and one.dtype == torch.float32 else one.dtype
            tensor = _laid_out(_values(shape, dtype, generator), chance)
            if differentiated and one.wants and (dtype.is_floating_point or dtype.is_complex):
                tensor = tensor.detach().requires_grad_()
            made.append(tensor)
        if self.alias and len(made) > 1 and not differentiated:
            made[1] = made[0][...,]
        return tuple(made)

    def plans(self, seed: int) -> tuple[Plan, ...]:
        """The calls."""
        chance = random.Random(seed + 99)
        sizes = sorted(set(self.base))
        other = {size: chance.choice([1, 2, 3, 6, 7, 9]) for size in sizes}
        return (
            Plan(seed),
            Plan(seed + 1),
            Plan(seed + 2, other),
            Plan(seed + 3, gradient=False),
            Plan(seed + 4, {size: size + 3 for size in sizes}),
            Plan(seed, dtype=torch.float64),
            Plan(seed + 5, {sizes[0]: 0}),
        )


def _recipe(chance: random.Random) -> Recipe:
    count = chance.randint(1, 3)
    rank = chance.choice([1, 2, 2, 2, 3, 4])
    base = [chance.choice([1, 2, 3, 4, 4, 5, 8]) for _ in range(rank)]
    arguments = []
    for _ in range(count):
        draw = chance.random()
        if draw < 0.55:
            shape = list(base)
        elif draw < 0.7:
            shape = [1 if chance.random() < 0.4 else size for size in base]
        elif draw < 0.9:
            shape = base[1:] if draw < 0.8 else base[::-1]
        else:
            shape = [chance.choice([1, 2, 3, 5]) for _ in range(chance.randint(0, 3))]
        arguments.append(Argument(tuple(shape), chance.choice(DTYPES), chance.random() < 0.5))
    return Recipe(tuple(arguments), tuple(base), chance.random() < 0.12, False)


# ------------------------------------------------------------------------------------ the program


@dataclass(frozen=True)
class Chain:
    """A program and its arguments."""

    seed: int
    recipe: Recipe
    lines: tuple[str, ...]
    returned: tuple[str, ...]

    @property
    def source(self) -> str:
        """The text of the program."""
        names = ", ".join(f"x{index}" for index in range(len(self.recipe.arguments)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program({names}):\n{body}    return {', '.join(self.returned)},\n"

    @property
    def mode(self) -> dict[str, Any]:
        """How it is compiled."""
        return MODES[0] if self.seed % 3 else MODES[self.seed % 4]

    def function(self) -> Callable[..., Any]:
        """The program; its text can be read by its name."""
        source, name = self.source, f"<chain {self.seed}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(source, name, "exec"), namespace)
        found: Callable[..., Any] = namespace["program"]
        return found


_ASSIGNMENT = re.compile(r"^\w+(\[.*\])?\s*(\+|-|\*|/|//|\||&)?=")
_AUGMENTED = re.compile(r"^a\s*(\+|-|\*|/|//|\||&)?=")
_KEYWORD_TOO = re.compile(r"\b([abc])\b")
_OPERAND = re.compile(r"\b([abc])\b(?!\s*=[^=<>])(?<!\.)")  # no keyword, no attribute


def _filled(template: str, chance: random.Random, operands: dict[str, str]) -> str:
    """The template with tensors and numbers in its places."""
    places = {
        "f": chance.choice(["0.5", "1.5", "-0.75", "2.0", "0.0"]),
        "k": chance.choice(["1", "2", "3", "-1", "0"]),
        "d": chance.choice(["0", "-1", "1"]),
        "e": chance.choice(["0", "-1", "1"]),
    }
    text = template.format(**places)
    pattern = _KEYWORD_TOO if _AUGMENTED.match(text) else _OPERAND
    return pattern.sub(lambda found: operands[found[1]], text)


def _wild(value: Any) -> bool:
    """Too large, in its sizes or numbers, to be compared with profit."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return False
    if value.numel() > 20000:
        return True
    if not value.is_floating_point() and not value.is_complex():
        return False
    numbers = value.detach().resolve_conj()
    plain = torch.view_as_real(numbers).nan_to_num(0) if value.is_complex() else numbers.double()
    return float(plain.abs().nan_to_num(0, 1e9, 1e9).max()) > 1e4


class _Writer:
    """A chain as it grows: a line stays when eager takes it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        gradient = self.chance.random() < 0.5
        self.recipe = replace(_recipe(self.chance), gradient=gradient)
        self.plan = Plan(seed)
        self.arguments = [f"x{index}" for index in range(len(self.recipe.arguments))]
        self.names = list(self.arguments)
        self.lines: list[str] = []
        self.world = self.executed()

    def executed(self) -> dict[str, Any]:
        """What the lines so far make."""
        set_seed(7)
        made = self.recipe.make(self.plan)
        world = {"torch": torch, "F": F, **dict(zip(self.arguments, made, strict=True))}
        for line in self.lines:
            exec(line, world)
        return world

    def proposed(self) -> tuple[str, str | None]:
        """A line, and the name that it gives its result."""
        chance = self.chance
        draw = chance.random()
        pool = next(
            rows
            for bound, rows in ((0.5, OF_ONE), (0.75, OF_TWO), (0.96, WRITES), (1.0, RANDOM))
            if draw < bound
        )
        template = chance.choice(pool)
        operands = {name: chance.choice(self.names[-6:]) for name in "abc"}
        if chance.random() < 0.3:
            operands["a"] = self.names[-1]
        text, name = _filled(template, chance, operands), f"v{len(self.lines)}"
        named = pool is not WRITES or (
            chance.random() < 0.3 and not _ASSIGNMENT.match(text) and "=" not in text.split("(")[0]
        )
        return (f"{name} = {text}", name) if named else (text, None)

    def takes(self, line: str, name: str | None) -> bool:
        """Whether eager runs it, with a result that is worth to go on with."""
        try:
            exec(line, self.world)
            if name is None:
                return not any(_wild(self.world[one]) for one in self.names)
            result = self.world[name]
            if isinstance(result, int | float | bool):
                return self.chance.random() >= 0.7
            return isinstance(result, torch.Tensor) and not _wild(result)
        except Exception:  # whatever eager refuses is no line of a program
            return False

    def extend(self) -> None:
        """Try one more line."""
        line, name = self.proposed()
        if not self.takes(line, name):
            self.world = self.executed()
            return
        self.lines.append(line)
        if name is not None and isinstance(self.world[name], torch.Tensor):
            self.names.append(name)


def chain(seed: int, size: int = 7) -> Chain:
    """The chain of a seed, of at most `size` lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = _Writer(seed)
        for _ in range(size * 12):
            if len(writer.lines) == size:
                break
            writer.extend()
    returned = [name for name in writer.names[:-1] if writer.chance.random() < 0.5]
    return Chain(seed, writer.recipe, tuple(writer.lines), (*returned, writer.names[-1]))


# ------------------------------------------------------------------------------------ comparison

_NEAR = {
    torch.float64: (1e-9, 1e-10), torch.float32: (1e-4, 1e-5), torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2), torch.complex64: (1e-4, 1e-5), torch.complex128: (1e-9, 1e-10),
}  # fmt: skip


_ENGINES = ("strides", "idle strides", "aliasing")  # of gradients


class Nearly(Comparison):
    """Numbers as near as the chain's coarsest dtype lets them be, for the largest among them."""

    def __init__(self, least: float) -> None:
        super().__init__("", exact=False)
        self.least = least

    def strides(self, expected: torch.Tensor, actual: torch.Tensor, path: str) -> None:
        """Apart: strides by which no element is found."""
        found = zip(expected.shape, expected.stride(), actual.stride(), strict=True)
        reached = expected.numel() and any(size > 1 and one != other for size, one, other in found)
        aspect = "strides" if reached else "idle strides"
        self.equal(aspect, f"{path}.stride()", expected.stride(), actual.stride())

    def close(self, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        """Whether two tensors are nearly equal."""
        relative, absolute = _NEAR.get(expected.dtype, (0.0, 0.0))
        if expected.dtype in _NEAR:
            relative, absolute = max(relative, self.least), max(absolute, self.least)
        if expected.numel() and expected.is_floating_point():
            largest = float(expected.double().abs().nan_to_num(posinf=0.0).max())
            absolute *= max(1.0, min(largest, 1e6))
        return torch.allclose(
            actual.resolve_conj().resolve_neg(),
            expected.resolve_conj().resolve_neg(),
            rtol=relative, atol=absolute, equal_nan=True,
        )  # fmt: skip


@dataclass
class Observed:
    """What one call showed."""

    result: Any = None
    error: tuple[str, str] | None = None
    gradients: tuple[Any, ...] = ()
    inputs: tuple[torch.Tensor, ...] = ()
    random_state: torch.Tensor | None = None


def observed(
    call: Callable[..., Any], inputs: tuple[torch.Tensor, ...], gradient: bool
) -> Observed:
    """Call and differentiate."""
    set_seed(7)
    seen = Observed(inputs=inputs)
    step = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            seen.result = call(*inputs)
            if gradient:
                step = "gradient: "
                wanted = [one for one in tensors_in(inputs) if one.is_leaf or one.requires_grad]
                seen.gradients = gradients(seen.result, wanted)
        except Exception as error:
            seen.error = (step + type(error).__name__, str(error))
    seen.random_state = torch.get_rng_state()
    return seen


def _least(chain: Chain) -> float:
    """The tolerance that the coarsest dtype of a chain asks for everywhere behind it."""
    told = chain.source + str(chain.recipe.arguments)
    return 5e-2 if "bfloat16" in told else 8e-3 if "half" in told or "float16" in told else 0.0


def _differences(least: float, expected: Observed, given: Observed) -> list[Any]:
    """What differs between two calls that did not fail."""
    comparison = Nearly(least)
    with torch._C.DisableTorchFunction():
        comparison.walk(expected.result, given.result, "result")
        comparison.walk(expected.inputs, given.inputs, "inputs")
        for number, pair in enumerate(zip(expected.gradients, given.gradients, strict=True)):
            alone = Nearly(least)  # whether two gradients are one tensor is the engine's affair
            alone.walk(*pair, f"gradient {number}")
            comparison.differences += [
                one for one in alone.differences if one.aspect not in _ENGINES
            ]
    return comparison.differences


def _unstable(chain: Chain, plan: Plan, expected: Observed) -> bool:
    """Whether eager's own numbers change with arguments that are two roundings larger."""
    inputs = copied(chain.recipe.make(plan))
    with torch.no_grad(), suppress(RuntimeError):  # some memory is written through several places
        for one in inputs:
            if one.is_floating_point() or one.is_complex():
                one.copy_(one * (1 + 2 * torch.finfo(one.dtype).eps))
    moved = observed(chain.function(), inputs, chain.recipe.gradient and plan.gradient)
    if moved.error:
        return True
    found = _differences(_least(chain), expected, moved)
    return any(one.aspect == "value" and not one.path.startswith("inputs") for one in found)


@dataclass(frozen=True)
class Problem:
    """What differs in a call."""

    aspect: str
    call: int
    text: str

    @property
    def open(self) -> str:
        """Why it is left as it is; an empty text where it is news."""
        return next((reason for reason, fits in OPEN.items() if fits(self)), "")

    def __str__(self) -> str:
        return f"call {self.call}: {self.text}" + (f" ({self.open})" if self.open else "")


# What kernels raise, of empty tensors, and the ops' rules do not.
_OF_KERNELS = ("setStorage: ", "Only zero batch or zero channel")


def _raises_alone(problem: Problem) -> bool:
    of_data = any(text in problem.text for text in _OF_KERNELS)
    return problem.aspect == "error" and problem.text.endswith("compiled None") and of_data


# What is known to differ, with its reason: it is printed and counted, and no failure of a test.
OPEN: dict[str, Callable[[Problem], bool]] = {
    "an op whose result nobody uses is not run: it does not raise what its meta kernel does not": (
        _raises_alone
    ),
    "a view that was written has memory of its own where nothing else of its base is seen": (
        lambda problem: (
            problem.aspect == "strides"
            and "storage_offset()" in problem.text
            and problem.text.endswith("got 0")
        )
    ),
    "strides by which no element is found, after a write or of an empty tensor": (
        lambda problem: problem.aspect == "idle strides"
    ),
}


def compared(chain: Chain, number: int, plan: Plan, compiled: Callable[..., Any]) -> list[Problem]:
    """What differs in one call."""
    gradient = chain.recipe.gradient and plan.gradient
    made = chain.recipe.make(plan)
    expected = observed(chain.function(), copied(made), gradient)
    given = observed(compiled, copied(made), gradient)
    if expected.error != given.error:
        return [Problem("error", number, f"eager {expected.error}, compiled {given.error}")]
    if expected.error:
        return []
    found = _differences(_least(chain), expected, given)
    if any(one.aspect == "value" for one in found) and _unstable(chain, plan, expected):
        found = [one for one in found if one.aspect != "value"]
    problems = [Problem(one.aspect, number, str(one)) for one in found[:3]]
    assert expected.random_state is not None and given.random_state is not None
    if not torch.equal(expected.random_state, given.random_state):
        problems.append(Problem("random", number, "the state of the random numbers"))
    return problems


def problems(chain: Chain) -> tuple[list[Problem], windfall.Explanation]:
    """What differs in the calls of a chain, and how it ran."""
    compiled = windfall.compile(chain.function(), **chain.mode)
    found: list[Problem] = []
    for number, plan in enumerate(chain.recipe.plans(chain.seed)):
        found += compared(chain, number, plan, compiled)
    return found, windfall.explanation(compiled)


# ------------------------------------------------------------------------------------ the command


def shrunk(whole: Chain, wanted: Problem) -> Chain:
    """The chain without the lines and results that a problem does not need."""

    def shows(candidate: Chain) -> bool:
        found, _ = problems(candidate)
        alike = [one for one in found if (one.aspect, one.call) == (wanted.aspect, wanted.call)]
        return bool(alike) and not any("NameError" in one.text for one in found)

    smallest, before = whole, None
    while smallest != before:
        before = smallest
        for name in smallest.returned if len(smallest.returned) > 1 else ():
            fewer = tuple(one for one in smallest.returned if one != name)
            if fewer and shows(tried := replace(smallest, returned=fewer)):
                smallest = tried
        for index in reversed(range(len(smallest.lines))):
            lines = smallest.lines[:index] + smallest.lines[index + 1 :]
            if shows(tried := replace(smallest, lines=lines)):
                smallest = tried
    return smallest


def _told(seed: int, size: int, shrink: bool, counts: Counter[str]) -> None:
    """Run one seed, count it, print what differs."""
    made = chain(seed, size)
    try:
        with limit(120):
            found, explained = problems(made)
    except TimeoutError as error:
        counts["late"] += 1
        print(f"=== seed {seed}: {error}\n{made.source}")
        return
    counts.update({"programs": 1, "graphs": len(explained.graphs)})
    counts.update({"breaks": len(explained.breaks), "fallbacks": len(explained.fallbacks)})
    if not found:
        return
    news = [one for one in found if not one.open]
    counts["wrong" if news else "open"] += 1
    if shrink and news:
        with suppress(TimeoutError), limit(200):
            made = shrunk(made, news[0])
            found, _ = problems(made)
            news = [one for one in found if not one.open]
    print(f"=== seed {seed}: {made.mode} {made.recipe}\n{made.source}")
    for one in [*news, *(one for one in found if one.open)][:3]:
        print(f"  {one}")
    sys.stdout.flush()


def main() -> None:
    """Run, shrink, print; the exit status says whether something new differs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=100)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options.add_argument("--size", type=int, default=7)
    options.add_argument("--no-shrink", action="store_false", dest="shrink")
    chosen = options.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.examples):
        _told(seed, chosen.size, chosen.shrink, counts)
    print(f"seed {chosen.seed}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    raise SystemExit(bool(counts["wrong"] or counts["late"]))


if __name__ == "__main__":
    main()
