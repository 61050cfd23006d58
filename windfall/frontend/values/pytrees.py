"""Trees of values, as `torch.func` takes and answers them: tuples, lists and dicts of leaves.

Enters: a value. Leaves: its leaves in order and a `Tree`, of which the same is built with other
leaves. Invariant: what is taken apart is what torch's `tree_flatten` would take apart, in its
order; a class that it knows and this file does not is refused.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.frontend.breaks import BODY, stop
from windfall.frontend.values.base import Value
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.ordered import Ordered
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.torchapi import Record
from windfall.frontend.values.unseen import look

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@dataclass(frozen=True, slots=True)
class Tree:
    """How leaves stand together. `kind`: the class of a container, None for a leaf; `keys`: those
    of a dict, in its order."""

    kind: type | None
    parts: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind is None else sum(one.count for one in self.parts)

    @property
    def key_set(self) -> frozenset[Any]:
        """The keys; torch tells dicts of another order apart no more than dicts are told apart."""
        return frozenset(self.keys)


LEAF = Tree(None)


def taken_apart(machine: Machine, value: Value, leaves: list[Value]) -> Tree:
    """The tree of a value; its leaves go to `leaves`."""
    value = look(value)
    kind = type(value)
    if kind in (Tuple, List, Record):
        parts = tuple(taken_apart(machine, one, leaves) for one in value.unpack(machine))
        return Tree(value.python_type(), parts)
    if kind in (Dict, Ordered):
        assert isinstance(value, Dict)
        held = {key: one for key, one in value.load(machine).items() if one is not None}
        if any(isinstance(key, Value) for key in held):
            stop(BODY, f"{value.describe()} with keys that are no constants")
        parts = tuple(taken_apart(machine, one, leaves) for one in held.values())
        return Tree(value.python_type(), parts, tuple(held))
    if torch_abi.is_tree_node(value.python_type()):
        stop(BODY, f"{value.describe()} is taken apart by torch")
    leaves.append(value)
    return LEAF


def put_together(machine: Machine, tree: Tree, leaves: Iterator[Value]) -> Value:
    """The value of a tree, with these leaves."""
    if tree.kind is None:
        return next(leaves)
    parts = [put_together(machine, one, leaves) for one in tree.parts]
    if tree.kind is dict:
        return machine.values.created_dict(dict(zip(tree.keys, parts, strict=True)))
    if tree.kind is collections.OrderedDict:
        return Ordered(dict(zip(tree.keys, parts, strict=True)))
    if tree.kind is list:
        return List(parts)
    return Tuple(parts) if tree.kind is tuple else Record(tree.kind, parts)


def nested(outer: Tree, inner: Tree) -> Tree:
    """A tree with another one at each leaf."""
    if outer.kind is None:
        return inner
    return Tree(outer.kind, tuple(nested(one, inner) for one in outer.parts), outer.keys)


def spread(given: Any, tree: Tree, name: str) -> list[Any]:
    """Plain data that is a tree's, or that of its upper part: what each leaf gets of it."""
    if not isinstance(given, tuple | list | dict):
        return [given] * tree.count
    if tree.kind is not type(given) or len(given) != len(tree.parts):
        stop(BODY, f"{name} that do not fit")
    if isinstance(given, dict):
        if given.keys() != tree.key_set:
            stop(BODY, f"{name} that do not fit")
        items: Sequence[Any] = [given[key] for key in tree.keys]
    else:
        items = given
    pairs = zip(items, tree.parts, strict=True)
    return [one for item, part in pairs for one in spread(item, part, name)]
