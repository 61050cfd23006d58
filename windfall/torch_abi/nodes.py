"""Autograd's nodes as the engine sees them: edges, saved values, hooks, what frees them.

Enters: a node (`tensor.grad_fn`, or the accumulator of a leaf). Leaves: what public calls do not
tell of it, read where this build keeps it (`NodeLayout`). Invariant: the layout was found by
watching words change while hooks were registered; where it is not found `node_layout()` is None,
and who needs it leaves backward passes to torch's own engine.

    >>> y = x * 2; y.register_hook(print)
    >>> hook_kinds(y.grad_fn) == TENSOR_HOOKS
    True
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.probes import NotFound, bytes_at, fact, named, only, words_at
from windfall.torch_abi.tensors import tensor_layout

# What hooks a node has: bits of `hook_kinds`.
TENSOR_HOOKS = 1  # of its results: `register_hook`, `retain_grad`; of a leaf, of the tensor itself
PRE_HOOKS = 2
POST_HOOKS = 4
POST_ACCUMULATE_HOOKS = 8

# Those that C++ generates have a name there.
node_classes: Any = named("_functions", lambda: torch._C._functions)
AccumulateGrad: Any = node_classes.AccumulateGrad
PythonNode: Any = torch.autograd.function.BackwardCFunction
SavedTensor: Any = named("SavedTensor", lambda: torch._C._autograd.SavedTensor)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Byte offsets: of the node behind its Python object (one of C++, one of an
    `autograd.Function`, which also has a byte that says whether gradients are materialised); of
    vectors of hooks in a node; of the same in the autograd part of a leaf. `release` is the place
    of the method that frees saved values in the table of virtual methods."""

    handle: int
    function_handle: int
    materialises: int
    edges: int
    pre_hooks: int
    tensor_hooks: int
    retained: int  # how many retain_grad hooks
    post_hooks: int
    leaf_hooks: int
    leaf_post_hook: int
    release: int
    arriving: int  # a vector: where it begins, a word whose lower half is its size
    arriving_size: int  # of an element: a word of options, then sizes as such a vector


_WORDS = 40  # of a node
_VIRTUALS = 16


def _nothing(*_: Any) -> None:
    return None


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2 + 0 * ctx.saved_tensors[0]


def _filled(before: list[int], after: list[int], what: str) -> int:
    """Where a vector was empty and is not: three words that were null."""
    return only(
        (
            8 * place
            for place in range(len(before) - 2)
            if not any(before[place : place + 3]) and all(after[place : place + 3])
        ),
        what,
    )


def _handle(node: Any, address: int) -> int:
    words = words_at(id(node), type(node).__basicsize__ // 8)
    return only((8 * place for place, word in enumerate(words) if word == address), "a node")


def _edges(parent: int, count: int) -> int:
    """The vector of edges: its size is known."""
    words = words_at(parent, _WORDS)
    return only(
        (
            8 * place
            for place in range(2, _WORDS - 2)
            if words[place] and words[place + 1] - words[place] == 16 * count
        ),
        "edges",
    )


@fact
def node_layout() -> NodeLayout:
    """Where nodes keep their hooks, and how their saved values are freed."""
    with torch.enable_grad():
        return _node_layout()


def _node_layout() -> NodeLayout:
    x = torch.ones(3, requires_grad=True)
    y = x.sin().cos().atan2(x)
    node = y.grad_fn
    assert node is not None
    (handle,) = {_cpp_handle(one) for one in (node, (x + x).grad_fn)}
    address = words_at(id(node) + handle, 1)[0]
    edges = _edges(address, 2)
    before = words_at(address, _WORDS)
    y.register_hook(_nothing)  # type: ignore[no-untyped-call]
    tensor_hooks = _filled(before, after := words_at(address, _WORDS), "tensor hooks")
    node.register_prehook(_nothing)
    pre_hooks = _filled(after, after := words_at(address, _WORDS), "hooks before a node")
    node.register_hook(_nothing)
    post_hooks = _filled(after, after := words_at(address, _WORDS), "hooks behind a node")
    y.retain_grad()
    retained = _count(after, words_at(address, _WORDS))
    function = _Twice.apply(x)  # type: ignore[no-untyped-call]
    above = function.sin().grad_fn  # its edge leads to the node of the function
    inner = words_at(words_at(words_at(id(above) + handle, 1)[0] + edges, 1)[0], 1)[0]
    function_handle = _handle(function.grad_fn, inner)
    layout = NodeLayout(
        handle,
        function_handle,
        _materialises(),
        edges,
        pre_hooks,
        tensor_hooks,
        retained,
        post_hooks,
        *_leaf_places(),
        _release_slot(handle),
        *_arriving_places(handle),
    )
    _verify(layout)
    return layout


def _cpp_handle(node: Any) -> int:
    """The only word behind a Python object's head."""
    size = type(node).__basicsize__
    if size != 24:
        raise NotFound(f"objects of nodes have {size} bytes")
    return 16


def _count(before: list[int], after: list[int]) -> int:
    return only(
        (8 * place for place in range(_WORDS) if (before[place], after[place]) == (0, 1)),
        "a count of retain_grad",
    )


def _materialises() -> int:
    function = _Twice.apply(torch.ones(1, requires_grad=True)).grad_fn  # type: ignore[no-untyped-call]
    size = type(function).__basicsize__
    on = bytes_at(id(function), size)
    function.set_materialize_grads(False)
    off = bytes_at(id(function), size)
    places = (i for i in range(16, size) if (on[i], off[i]) == (1, 0))
    return only(places, "materialize_grads")


def _meta(leaf: torch.Tensor) -> int:
    layout = tensor_layout()
    if layout is None:
        raise NotFound("no layout of tensors")
    return words_at(leaf._cdata + layout.autograd, 1)[0]


def _leaf_places() -> tuple[int, int]:
    words = 16
    leaf, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    before = words_at(_meta(leaf), words)
    leaf.register_hook(_nothing)  # type: ignore[no-untyped-call]
    hooks = _filled(before, words_at(_meta(leaf), words), "hooks of a leaf")
    before = words_at(_meta(other), words)
    other.register_post_accumulate_grad_hook(_nothing)  # type: ignore[no-untyped-call]
    after = words_at(_meta(other), words)
    changed = [i for i in range(words) if not before[i] and after[i]]
    return hooks, 8 * only(iter(changed), "a hook behind the accumulation")


def _arriving_places(handle: int) -> tuple[int, int]:
    """A vector whose elements stand behind it in the node itself; they have sizes, which are
    written likewise."""
    x = torch.ones(11, 13, 17, requires_grad=True)
    one, two = (x * 2).grad_fn, torch.std_mean(x, (0,))[0].grad_fn

    def address(node: Any) -> int:
        return words_at(id(node) + handle, 1)[0]

    def inside(node: Any, count: int) -> list[int]:
        start = address(node)
        words = words_at(start, _WORDS)
        return [
            8 * place
            for place in range(_WORDS - 1)
            if words[place] == start + 8 * place + 16 and words[place + 1] & 0xFFFFFFFF == count
        ]

    vector = only(iter(set(inside(one, 1)) & set(inside(two, 2))), "what arrives at a node")

    def has_sizes(at: int, sizes: list[int]) -> bool:
        begin, count, *found = words_at(at + 8, 2 + len(sizes))
        return begin == at + 24 and count & 0xFFFFFFFF == len(sizes) and found == sizes

    if not has_sizes(address(one) + vector + 16, [11, 13, 17]):
        raise NotFound("sizes of what arrives at a node")
    first = address(two) + vector + 16
    steps = (step for step in range(48, 240, 8) if has_sizes(first + step, [13, 17]))
    return vector, only(steps, "the second of what arrives at a node")


def _release_slot(handle: int) -> int:
    """Two classes without saved values each have a method of their own that does nothing but
    return; those with saved values have one that does more. No other virtual method is so."""
    x = torch.ones(3, requires_grad=True)
    tables = [
        words_at(words_at(words_at(id(one.grad_fn) + handle, 1)[0], 1)[0], _VIRTUALS)
        for one in (x + x, x - x, x * x, x.sin())
    ]
    returns = [[_only_returns(entry) for entry in table] for table in tables]
    return only(
        (
            slot
            for slot in range(_VIRTUALS - 1)
            if len({table[slot] for table in tables}) == len(tables)
            and [one[slot] for one in returns] == [True, True, False, False]
        ),
        "the method that frees saved values",
    )


def _only_returns(address: int) -> bool:
    try:
        code = bytes_at(address, 5)
    except NotFound:
        return False
    return code[:1] == b"\xc3" or code == b"\xf3\x0f\x1e\xfa\xc3"


def _verify(layout: NodeLayout) -> None:
    """Each kind of hook shows alone; a freed node says so, one of Python too."""
    x = torch.ones(3, requires_grad=True)
    samples: list[tuple[torch.Tensor, int]] = []
    for made in (x * x, _Twice.apply(x), x.sum()):  # type: ignore[no-untyped-call]
        samples.append((made, 0))
    ways: tuple[tuple[int, Callable[[Any], Any]], ...] = (
        (TENSOR_HOOKS, lambda y: y.register_hook(_nothing)),
        (TENSOR_HOOKS, lambda y: y.retain_grad()),
        (PRE_HOOKS, lambda y: y.grad_fn.register_prehook(_nothing)),
        (POST_HOOKS, lambda y: y.grad_fn.register_hook(_nothing)),
    )
    for kind, register in ways:
        for made in (x * x, _Twice.apply(x)):  # type: ignore[no-untyped-call]
            register(made)
            samples.append((made, kind))
    for made, kind in samples:
        if _kinds(layout, made.grad_fn) != kind:
            raise NotFound(f"hooks of {made.grad_fn} read as {_kinds(layout, made.grad_fn)}")
    for made in (x * x, _Twice.apply(x)):  # type: ignore[no-untyped-call]
        _release(layout, made.grad_fn)
        try:
            made.sum().backward()
        except RuntimeError:
            continue
        raise NotFound("saved values are not freed")


def _address(layout: NodeLayout, node: Any) -> int:
    handle = layout.function_handle if isinstance(node, PythonNode) else layout.handle
    return ctypes.c_uint64.from_address(id(node) + handle).value


def _kinds(layout: NodeLayout, node: Any) -> int:
    """The bits of one node; of a leaf's accumulator those of the tensor too."""
    address = _address(layout, node)
    read = ctypes.c_uint64.from_address
    found = 0
    begin = read(address + layout.tensor_hooks)
    if begin.value != read(address + layout.tensor_hooks + 8).value:
        found |= TENSOR_HOOKS
    if read(address + layout.retained).value:
        found |= TENSOR_HOOKS
    if read(address + layout.pre_hooks).value != read(address + layout.pre_hooks + 8).value:
        found |= PRE_HOOKS
    if read(address + layout.post_hooks).value != read(address + layout.post_hooks + 8).value:
        found |= POST_HOOKS
    return found


def node_address(node: Any) -> int:
    """Where a node is, which its Python objects (there may be several, in turn) stand for."""
    layout = node_layout()
    assert layout is not None, "asked for without a layout of nodes"
    return _address(layout, node)


def hook_kinds(node: Any) -> int:
    """Which hooks a node has, those of C++ too."""
    layout = node_layout()
    assert layout is not None, "asked for without a layout of nodes"
    found = _kinds(layout, node)
    return found | leaf_hook_kinds(node.variable) if type(node) is AccumulateGrad else found


def is_hooked_above(view: torch.Tensor) -> bool:
    """Whether somebody is told of a gradient on the way from a view to what it is a view of, both
    ends apart."""
    base, layout = view._base, node_layout()
    assert base is not None, "asked of what is no view"
    end, node = base.grad_fn, view.grad_fn
    above: Any = None if node is None else node.next_functions[0][0]
    while above is not None and above is not end and type(above) is not AccumulateGrad:
        if layout is None or _kinds(layout, above):
            return True
        above = above.next_functions[0][0]
    return False


def leaf_hook_kinds(leaf: torch.Tensor) -> int:
    """Which hooks a leaf has itself."""
    layout, tensors = node_layout(), tensor_layout()
    assert layout is not None and tensors is not None, "asked for without a layout of nodes"
    read = ctypes.c_uint64.from_address
    meta = read(leaf._cdata + tensors.autograd).value
    if not meta:
        return 0
    hooks, post = meta + layout.leaf_hooks, read(meta + layout.leaf_post_hook).value
    found = TENSOR_HOOKS if read(hooks).value != read(hooks + 8).value else 0
    return found | POST_ACCUMULATE_HOOKS if post else found


_method = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _release(layout: NodeLayout, node: Any) -> None:
    address = _address(layout, node)
    table = ctypes.c_uint64.from_address(address).value
    _method(ctypes.c_uint64.from_address(table + 8 * layout.release).value)(address)


def release_saved(nodes: Iterable[Any]) -> None:
    """Free what nodes have saved, as torch's engine does behind a node that it has run: whoever
    asks for it again is told that it is gone."""
    layout = node_layout()
    assert layout is not None, "asked for without a layout of nodes"
    for one in nodes:
        _release(layout, one)


def function_of(node: Any) -> type:
    """The `autograd.Function` that a node of Python's belongs to."""
    found: type = type(node)._forward_cls
    return found


def materialises(node: Any) -> bool:
    """Whether the backward of an `autograd.Function` is given zeros where there is no gradient."""
    layout = node_layout()
    assert layout is not None, "asked for without a layout of nodes"
    return bool(ctypes.c_uint8.from_address(id(node) + layout.materialises).value)


def sequence_of(node: Any) -> int:
    """The number by which the engine prefers nodes that are ready, the largest first."""
    return int(node._sequence_nr())


def arriving(node: Any) -> tuple[Any, ...]:
    """What gradients that arrive at a node are like: one for each result of its forward; each has
    `shape`, `dtype`, `device`, `is_nested_tensor`."""
    found: tuple[Any, ...] = node._input_metadata
    return found


@functools.cache
def saved_names(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Attributes of a class of nodes: of the values that it has saved, and of the wrappers of those
    among them that are tensors (or lists of them)."""
    names = dir(kind)
    return (
        tuple(one for one in names if one.startswith("_saved_")),
        tuple(one for one in names if one.startswith("_raw_saved_")),
    )


def saved_wrappers(node: Any) -> tuple[Any, ...]:
    """The wrappers of what an `autograd.Function` has saved."""
    found: tuple[Any, ...] = node._raw_saved_tensors
    return found


def saved_values(node: Any, checked: Sequence[int], own: Container[int]) -> list[Any] | None:
    """What an `autograd.Function` has saved, where no hooks have packed it. It raises if one of
    `checked` was written since, whatever became of the others; None: it cannot be told. Of its
    `own` results, which come without a history here, it can if nobody has ever written them."""
    wrappers = saved_wrappers(node)
    if any(index in own and wrappers[index].data._version for index in checked):
        return None
    return [
        one.unpack() if index in checked and index not in own else one.data
        for index, one in enumerate(wrappers)
    ]


def node_hooks(node: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """The hooks in front of a node and behind it, in their order; empty where there are none."""
    kinds = hook_kinds(node)
    before: dict[int, Any] = {}
    behind: dict[int, Any] = {}
    if kinds & PRE_HOOKS:
        handle = node.register_prehook(_nothing)
        before = handle.hooks_dict_ref()
        handle.remove()
    if kinds & POST_HOOKS:
        handle = node.register_hook(_nothing)
        behind = handle.hooks_dict_ref()
        handle.remove()
    return before, behind
