"""Leaves that nobody listens to: their gradient may be accumulated without autograd's engine.

Enters: a tensor. Leaves: whether it is a leaf, no view, and neither it nor the node that
accumulates its gradient has a hook, of Python or of C++ (`torch.nn.parallel` registers such).
Invariant: the places were found by watching words change; where they are not, `leaf_layout()` is
None and no tensor is known to be such a leaf.
"""

from __future__ import annotations

import ctypes

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.nodes import node_address, node_layout
from windfall.torch_abi.probes import NotFound, fact, only, words_at
from windfall.torch_abi.tensors import tensor_layout


@dataclass(frozen=True, slots=True)
class LeafLayout:
    """Byte offsets in the autograd part of a tensor, and the word that it begins with, of a tensor
    that is no view. A vector is empty where it ends as it begins."""

    kind: int
    function: int  # the node that made the tensor; null: it is a leaf
    accumulator: int  # the node that accumulates its gradient, held weakly
    hooks: int  # a vector
    post_hook: int
    count: int  # in a node: how many hold it, four bytes
    node_hooks: tuple[int, ...]  # in a node: vectors


_WORDS = 16


def _meta(tensor: torch.Tensor) -> int:
    layout = tensor_layout()
    if layout is None:
        raise NotFound("no layout of tensors")
    return words_at(tensor._cdata + layout.autograd, 1)[0]


@fact
def leaf_layout() -> LeafLayout:
    """Where a leaf keeps what listens to it."""
    with torch.enable_grad():
        return _leaf_layout()


def _leaf_layout() -> LeafLayout:
    nodes = node_layout()
    if nodes is None:
        raise NotFound("no layout of nodes")
    leaf = torch.ones(3, requires_grad=True)
    made = leaf.sin()
    node = made.grad_fn
    function = _place(_meta(made), node_address(node), "the node of a result")
    accumulator = torch.autograd.graph.get_gradient_edge(leaf).node
    address = node_address(accumulator)
    place = _place(_meta(leaf), address, "the accumulator of a leaf")
    del made, node
    held = words_at(address, 4)
    other = torch.autograd.graph.get_gradient_edge(leaf).node.next_functions  # makes no new one
    if other or node_address(torch.autograd.graph.get_gradient_edge(leaf).node) != address:
        raise NotFound("a leaf has two accumulators")
    del accumulator
    freed = words_at(address, 4)  # a weak reference keeps its memory
    low = 0xFFFFFFFF
    count = 8 * only(
        (i for i in range(1, 4) if held[i] & low == 1 and freed[i] & low == 0),
        "how many hold a node",
    )
    kinds = {words_at(_meta(one), 1)[0] for one in (leaf, torch.nn.Parameter(torch.ones(2)))}
    view = torch.ones(2, 2).requires_grad_().clone()[0]
    if len(kinds) != 1 or words_at(_meta(view), 1)[0] in kinds:
        raise NotFound("the autograd parts of leaves and views are alike")
    vectors = (nodes.pre_hooks, nodes.tensor_hooks, nodes.post_hooks)
    (kind,) = kinds
    layout = LeafLayout(
        kind, function, place, nodes.leaf_hooks, nodes.leaf_post_hook, count, vectors
    )
    _verify(layout)
    return layout


def _place(meta: int, address: int, what: str) -> int:
    words = words_at(meta, _WORDS)
    return 8 * only((i for i, word in enumerate(words) if word == address), what)


def _verify(layout: LeafLayout) -> None:
    """On tensors of each sort."""
    plain, view = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    accumulated = torch.ones(2, requires_grad=True)
    accumulated.sum().backward()  # type: ignore[no-untyped-call]
    alive = torch.ones(2, requires_grad=True)
    node = torch.autograd.graph.get_gradient_edge(alive).node
    found = [_is_plain(layout, one) for one in (plain, accumulated, alive, view.sin(), view[0])]
    if found != [True, True, True, False, False]:
        raise NotFound(f"leaves are not told from results: {found}")
    node.register_hook(_nothing)
    hooked, after = (torch.ones(2, requires_grad=True) for _ in range(2))
    hooked.register_hook(_nothing)  # type: ignore[no-untyped-call]
    after.register_post_accumulate_grad_hook(_nothing)  # type: ignore[no-untyped-call]
    if any(_is_plain(layout, one) for one in (alive, hooked, after)):
        raise NotFound("hooks of leaves are not seen")


def _nothing(*_: object) -> None:
    return None


def _is_plain(layout: LeafLayout, tensor: torch.Tensor) -> bool:
    tensors, read = tensor_layout(), ctypes.c_uint64.from_address
    assert tensors is not None
    meta = read(tensor._cdata + tensors.autograd).value
    if not meta or read(meta).value != layout.kind or read(meta + layout.function).value:
        return False
    hooks = meta + layout.hooks
    if read(hooks).value != read(hooks + 8).value or read(meta + layout.post_hook).value:
        return False
    node = read(meta + layout.accumulator).value
    if not node or not ctypes.c_uint32.from_address(node + layout.count).value:
        return True
    vectors = (node + one for one in layout.node_hooks)
    return all(read(one).value == read(one + 8).value for one in vectors)


def is_plain_leaf(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a leaf that nobody listens to."""
    layout = leaf_layout()
    return layout is not None and _is_plain(layout, tensor)
