"""Random objects, random guards, random changes: the native check, whose caches live from call to
call, always says what a fresh reading of every guard says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.runtime.programs import tensor_guard
from windfall import runtime
from windfall.ir.guard import (
    Check,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    SameObjects,
    TypeIs,
    first_failure,
)
from windfall.ir.source import DictOf, Item, Slot, Source, TypeOf

NAMES = ("a", "b", "c", "weight", "training")
X = Slot(0, "x")


class Node:
    """An object with attributes."""


class Other:
    """Another class of objects."""


def leaf(dice: random.Random) -> Any:
    return dice.choice(
        [
            lambda: dice.randrange(-3, 4),
            lambda: dice.choice([True, False, None]),
            lambda: float(dice.randrange(3)) / 2,
            lambda: dice.choice(["x", "y", "".join(["lo", "ng"])]),
            lambda: torch.zeros(dice.randrange(1, 4)),
            lambda: torch.zeros(2, requires_grad=dice.random() < 0.5),
            lambda: dice.randrange(2**60, 2**60 + 3),
            lambda: (1, "x"),
        ]
    )()


def tree(dice: random.Random, depth: int) -> Any:
    if depth == 0 or dice.random() < 0.2:
        return leaf(dice)
    kind = dice.randrange(4)
    if kind == 0:
        return {name: tree(dice, depth - 1) for name in dice.sample(NAMES, dice.randrange(1, 5))}
    if kind == 1:
        return [tree(dice, depth - 1) for _ in range(dice.randrange(1, 4))]
    if kind == 2:
        return tuple(tree(dice, depth - 1) for _ in range(dice.randrange(1, 4)))
    node = dice.choice([Node, Other])()
    for name in dice.sample(NAMES, dice.randrange(1, 5)):
        setattr(node, name, tree(dice, depth - 1))
    return node


def places(source: Source, value: Any) -> Iterator[tuple[Source, Any]]:
    """Every place of a tree, with what stands there."""
    yield source, value
    if isinstance(value, dict):
        for key in list(value):
            yield from places(Item(source, key), value[key])
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from places(Item(source, index), one)
    elif isinstance(value, Node | Other):
        yield from places(DictOf(source), value.__dict__)


def checks(value: Any, dice: random.Random) -> list[Check]:
    found: list[Check] = [TypeIs(type(value))]
    if isinstance(value, dict):
        found += [LengthIs(len(value)), KeysAre(tuple(value))]
        found += [HasKey(name, name in value) for name in NAMES[:3]]
    elif isinstance(value, list | tuple):
        found += [LengthIs(len(value))]
    elif isinstance(value, Node | Other):
        found += [IdentityIs(value)]
    elif not isinstance(value, torch.Tensor):
        found += [Equals(value)]
    return dice.sample(found, dice.randrange(1, len(found) + 1))


def guards_of(root: Any, dice: random.Random) -> list[Guard]:
    everything = list(places(X, root))
    guards: list[Guard] = []
    for source, value in dice.sample(everything, min(len(everything), 25)):
        guards += [Guard(source, check, "") for check in checks(value, dice)]
        if isinstance(value, torch.Tensor):
            guards.append(tensor_guard(source, value))
        if dice.random() < 0.1:
            guards.append(Guard(TypeOf(source), IdentityIs(type(value)), ""))
            other, held = dice.choice(everything)
            guards.append(Guard(source, SameObjects((other,), held is value), ""))
    dice.shuffle(guards)
    return guards


def change(root: Any, dice: random.Random) -> None:
    """Change something in a tree, or change it and change it back."""
    boxes = [v for _, v in places(X, root) if isinstance(v, dict | list) and v]
    tensors = [v for _, v in places(X, root) if isinstance(v, torch.Tensor)]
    if tensors and dice.random() < 0.2:
        tensor = dice.choice(tensors)
        if dice.random() < 0.5:
            tensor.data = torch.zeros(dice.randrange(1, 4))
        else:
            tensor.requires_grad_(not tensor.requires_grad)
        return
    if not boxes:
        return
    box = dice.choice(boxes)
    key = dice.choice(list(box) if isinstance(box, dict) else range(len(box)))
    action = dice.randrange(5)
    if action == 0:
        box[key] = box[key]
    elif action == 1:
        box[key] = tree(dice, 1)
    elif action == 2 and isinstance(box, dict):
        box[dice.choice(NAMES)] = leaf(dice)
    elif action == 3:
        held = box[key]
        box[key] = None
        box[key] = held
    elif len(box) > 1:
        del box[key]


@pytest.mark.parametrize("seed", range(60))
def test_native_and_fresh_readings_agree(seed: int) -> None:
    dice = random.Random(seed)
    root = tree(dice, 4)
    guards = guards_of(root, dice)
    # One check for all guards, and one for each: a failing guard must not hide another.
    checks_made = [guards, *[[one] for one in guards]]
    calls = [runtime.compile_check(some, 1).call for some in checks_made]
    others = [tree(dice, 3) for _ in range(2)]
    for step in range(12):
        for value in (root, *others):
            for some, call in zip(checks_made, calls, strict=True):
                wanted = all(first_failure([one], (value,)) is None for one in some)
                assert call(value) is wanted, (seed, step, [str(one) for one in some])
        change(root, dice)
