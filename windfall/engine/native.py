"""Graphs of nodes compared in machine code: what a key says of them, as words.

Enters: nodes and saved tensors whose pass was recorded. Leaves: tables of words, and functions that
say whether the nodes and tensors of another pass have the same. Invariant: what is compared is what
`backward_graph.py` puts into a key: classes (by their tables of virtual methods), edges, which
hooks there are, what arriving gradients are like; of tensors class, keys, dtype, device, sizes and
strides.
Words are read where `torch_abi` has found them; nothing is written but the addresses of nodes that
were met.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall import jit, torch_abi
from windfall.dataclass import dataclass
from windfall.engine.backward_graph import NodeKey
from windfall.llvm import Assembly, Code, Fields, Struct, Value, integer
from windfall.torch_abi import NodeLayout, TensorLayout

# One node: its class, which hooks, how many edges and arriving gradients; then an `_EDGE` for each
# edge (a child of -1: none) and an `_ARRIVING` for each gradient, with its sizes behind it.
_NODE = Struct("virtuals hooks edges arriving")
_EDGE = Struct("child slot")
_ARRIVING = Struct("options rank")
# One tensor: then its sizes and its strides.
_TENSOR = Struct("keys kind rank")

_OF_DISTINCT = ("ptr", "i64", "ptr", "i64")
_SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)  # a factor that spreads addresses, and its best bits
_BEST_BITS = 40
_PLACES = 8  # at which an address may stand in a table

_MEMBERS = (  # of a node, with the bits of `torch_abi.hook_kinds`
    ("tensor_hooks", torch_abi.TENSOR_HOOKS),
    ("pre_hooks", torch_abi.PRE_HOOKS),
    ("post_hooks", torch_abi.POST_HOOKS),
)


@dataclass(frozen=True, slots=True)
class NativeChecks:
    """Functions of addresses. `nodes(table, found, count)` and `tensors(table, objects, count)`
    answer 0, or one more than the number of the first that differs; `nodes` fills in the addresses
    of what it meets. `distinct(addresses, count, table, last)` answers 0 where no address
    comes twice, less than 0 where it cannot tell: `table` has `last + 1` words that are 0, a power
    of 2 and many more than addresses. `leaves(flags, objects, count)` compares hooks;
    `release(addresses, count)` frees what nodes have saved. Rows of objects are the items of a
    tuple, `tuple_items` bytes behind its address."""

    nodes: Callable[[Any, Any, int], int]
    tensors: Callable[[Any, Any, int], int]
    distinct: Callable[[Any, int, Any, int], int]
    leaves: Callable[[Any, Any, int], int]
    release: Callable[[Any, int], None]
    tuple_items: int
    code: jit.NativeCode  # kept alive


@functools.cache
def native_checks() -> NativeChecks | None:
    """The functions; None where this build is not known well enough."""
    nodes, tensors = torch_abi.node_layout(), torch_abi.tensor_layout()
    objects = torch_abi.object_layout()
    if nodes is None or tensors is None or objects is None:
        return None
    assembly = Assembly()
    with assembly.function("engine.nodes", "i64", "ptr", "ptr", "i64", exported=True) as code:
        _nodes(code, nodes)
    with assembly.function("engine.tensors", "i64", "ptr", "ptr", "i64", exported=True) as code:
        _tensors(code, tensors, objects.type)
    with assembly.function("engine.distinct", "i64", *_OF_DISTINCT, exported=True) as code:
        _distinct(code)
    with assembly.function("engine.leaves", "i64", "ptr", "ptr", "i64", exported=True) as code:
        _leaves(code, nodes, tensors)
    with assembly.function("engine.release", "void", "ptr", "i64", exported=True) as code:
        _release(code, nodes)
    loaded = jit.load(assembly.text(), quick=True)
    compare = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    among = ctypes.PYFUNCTYPE(
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
    )
    free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return NativeChecks(
        compare(loaded.address("engine.nodes")),
        compare(loaded.address("engine.tensors")),
        among(loaded.address("engine.distinct")),
        compare(loaded.address("engine.leaves")),
        free(loaded.address("engine.release")),
        objects.tuple_items,
        loaded,
    )


# ------------------------------------------------------------------------------- machine code


def _vector_size(code: Code, node: Value, offset: int) -> Value:
    """How many bytes a vector of C++ has."""
    begin, end = code.field(node, offset), code.field(node, offset + 8)
    return code.binary("sub", end, begin)


def _low(code: Code, word: Value) -> Value:
    return code.binary("and", word, 0xFFFFFFFF)


def _hooks(code: Code, node: Value, layout: NodeLayout) -> Value:
    found = integer(0)
    for name, bit in _MEMBERS:
        some = code.different(_vector_size(code, node, getattr(layout, name)), 0)
        found = code.binary("or", found, code.select(some, integer(bit), integer(0)))
    some = code.different(code.field(node, layout.retained), 0)
    retained = code.select(some, integer(torch_abi.TENSOR_HOOKS), integer(0))
    return code.binary("or", found, retained)


def _nodes(code: Code, layout: NodeLayout) -> None:
    table, found, count = code.parameters
    with code.repeat(integer(0), count, start=(table,)) as loop:
        wrong = code.binary("add", loop.index, integer(1))
        node = code.word(found, loop.index, "ptr")
        fields = Fields(code, _NODE, loop.carried[0])
        code.require(code.different(node, Value("null", "ptr")), wrong)
        code.require(code.equal(code.field(node, 0), fields["virtuals"]), wrong)
        code.require(code.equal(_hooks(code, node, layout), fields["hooks"]), wrong)
        edges, arriving = fields["edges"], fields["arriving"]
        size = _vector_size(code, node, layout.edges)
        code.require(code.equal(size, code.binary("mul", edges, 16)), wrong)
        begin = code.field(node, layout.edges, "ptr")
        with code.repeat(integer(0), edges, start=(fields.end,)) as inner:
            edge = Fields(code, _EDGE, inner.carried[0])
            _edge(
                code, edge, code.element(begin, code.binary("mul", inner.index, 16)), found, wrong
            )
            inner.carry(edge.end)
        vector = code.field(node, layout.arriving, "ptr")
        some = _low(code, code.field(node, layout.arriving + 8))
        code.require(code.equal(some, arriving), wrong)
        with code.repeat(integer(0), arriving, start=(inner.results[0],)) as last:
            at = code.element(vector, code.binary("mul", last.index, layout.arriving_size))
            last.carry(_arrives(code, Fields(code, _ARRIVING, last.carried[0]), at, wrong))
        loop.carry(last.results[0])
    code.ret(integer(0))


def _edge(code: Code, edge: Fields, at: Value, found: Value, wrong: Value) -> None:
    child, target = edge["child"], code.load("ptr", at)
    absent = code.compare("icmp slt", child, 0)
    with code.when(absent):
        code.require(code.is_null(target), wrong)
    with code.when(code.compare("icmp sge", child, 0)):
        place = code.element(found, child, "ptr")
        known = code.load("ptr", place)
        with code.when(code.is_null(known)):
            code.store(target, place)
        code.require(code.equal(code.load("ptr", place), target), wrong)
        slot = _low(code, code.field(at, 8))
        code.require(code.equal(slot, edge["slot"]), wrong)


def _arrives(code: Code, expected: Fields, at: Value, wrong: Value) -> Value:
    rank = expected["rank"]
    code.require(code.equal(code.load("i64", at), expected["options"]), wrong)
    code.require(code.equal(_low(code, code.field(at, 16)), rank), wrong)
    sizes = code.field(at, 8, "ptr")
    with code.repeat(integer(0), rank) as loop:
        wanted = code.word(expected.end, loop.index)
        code.require(code.equal(code.word(sizes, loop.index), wanted), wrong)
    return code.element(expected.end, rank, "i64")


def _kind(code: Code, tensor: Value, layout: TensorLayout) -> Value:
    """Element type and device, in one word."""
    dtype = code.convert("zext", code.field(tensor, layout.dtype, "i16"), "i64")
    device = code.convert("zext", code.field(tensor, layout.device, "i16"), "i64")
    return code.binary("or", dtype, code.binary("shl", device, 16))


def _tensors(code: Code, layout: TensorLayout, type_offset: int) -> None:
    table, objects, count = code.parameters
    with code.repeat(integer(0), count, start=(table,)) as loop:
        wrong = code.binary("add", loop.index, integer(1))
        object = code.word(objects, loop.index, "ptr")
        kind = code.field(object, type_offset)
        plain = (code.equal(kind, id(one)) for one in (torch.Tensor, torch.nn.Parameter))
        code.require(code.binary("or", *plain), wrong)
        tensor = code.field(object, layout.handle, "ptr")
        fields = Fields(code, _TENSOR, loop.carried[0])
        rank = fields["rank"]
        code.require(code.equal(code.field(tensor, layout.key_set), fields["keys"]), wrong)
        code.require(code.equal(_kind(code, tensor, layout), fields["kind"]), wrong)
        code.require(code.equal(code.field(tensor, layout.rank), rank), wrong)
        inline = code.compare("icmp ule", rank, layout.inline_dims)
        here = code.offset(tensor, layout.rank + 8)
        sizes = code.select(inline, here, code.load("ptr", here))
        strides = code.element(sizes, code.select(inline, integer(layout.inline_dims), rank), "i64")
        with code.repeat(integer(0), rank) as inner:
            wanted = code.word(fields.end, inner.index)
            code.require(code.equal(code.word(sizes, inner.index), wanted), wrong)
            place = code.binary("add", rank, inner.index)
            wanted = code.word(fields.end, place)
            code.require(code.equal(code.word(strides, inner.index), wanted), wrong)
        loop.carry(code.element(fields.end, code.binary("mul", rank, 2), "i64"))
    code.ret(integer(0))


def _distinct(code: Code) -> None:
    """Addresses put into a table; each at one of a few places."""
    addresses, count, table, last = code.parameters
    with code.repeat(integer(0), count) as loop:
        address = code.word(addresses, loop.index)
        mixed = code.binary("lshr", code.binary("mul", address, _SPREAD), _BEST_BITS)
        wrong = code.binary("add", loop.index, integer(1))
        with code.repeat(integer(0), integer(_PLACES), start=(integer(0),), certain=True) as inner:
            (stands,) = inner.carried
            place = code.binary("and", code.binary("add", mixed, inner.index), last)
            slot = code.element(table, place, "i64")
            found = code.load("i64", slot)
            once = code.binary("or", code.different(found, address), code.equal(stands, 1))
            code.require(once, wrong)
            takes = code.both(code.equal(found, 0), code.equal(stands, 0))
            with code.when(takes):
                code.store(address, slot)
            inner.carry(code.select(takes, integer(1), stands))
        code.require(code.equal(inner.results[0], 1), integer(-1))
    code.ret(integer(0))


def _leaves(code: Code, nodes: NodeLayout, tensors: TensorLayout) -> None:
    table, objects, count = code.parameters
    with code.repeat(integer(0), count) as loop:
        wrong = code.binary("add", loop.index, integer(1))
        object = code.word(objects, loop.index, "ptr")
        tensor = code.field(object, tensors.handle, "ptr")
        meta = code.field(tensor, tensors.autograd, "ptr")
        code.require(code.different(meta, Value("null", "ptr")), wrong)
        some = code.different(_vector_size(code, meta, nodes.leaf_hooks), 0)
        hooks = code.select(some, integer(torch_abi.TENSOR_HOOKS), integer(0))
        some = code.different(code.field(meta, nodes.leaf_post_hook), 0)
        post = code.select(some, integer(torch_abi.POST_ACCUMULATE_HOOKS), integer(0))
        found = code.binary("or", hooks, post)
        code.require(code.equal(found, code.word(table, loop.index)), wrong)
    code.ret(integer(0))


def _release(code: Code, layout: NodeLayout) -> None:
    addresses, count = code.parameters
    with code.repeat(integer(0), count) as loop:
        node = code.word(addresses, loop.index, "ptr")
        method = code.word(code.load("ptr", node), layout.release, "ptr")
        code.call(method, "void", node)
    code.leave()


# --------------------------------------------------------------------------------- tables


class WordRow:
    """A row of words in memory that machine code reads."""

    __slots__ = ("_kept", "address", "count")

    def __init__(self, words: Sequence[int]) -> None:
        self._kept = (ctypes.c_uint64 * max(1, len(words)))(*[one & (2**64 - 1) for one in words])
        self.address, self.count = ctypes.addressof(self._kept), len(words)


def node_words(nodes: Sequence[Any], keys: Sequence[NodeKey]) -> list[int]:
    """The table of `NativeChecks.nodes`."""
    layout = torch_abi.node_layout()
    assert layout is not None
    words: list[int] = []
    read = ctypes.c_uint64.from_address
    own = torch_abi.TENSOR_HOOKS | torch_abi.PRE_HOOKS | torch_abi.POST_HOOKS
    for node, key in zip(nodes, keys, strict=True):
        at = torch_abi.node_address(node)
        hooks = key.hooks & own
        if type(node) is torch_abi.AccumulateGrad:
            hooks &= ~torch_abi.TENSOR_HOOKS  # those are of the leaf
        words += _NODE.words(read(at).value, hooks, len(key.edges), len(key.arriving))
        for edge in key.edges:
            words += _EDGE.words(*((-1, 0) if edge is None else edge))
        begin = read(at + layout.arriving).value
        for number, (_, sizes, _) in enumerate(key.arriving):
            options = read(begin + number * layout.arriving_size).value
            words += (*_ARRIVING.words(options, len(sizes)), *sizes)
    return words


def tensor_words(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The table of `NativeChecks.tensors`."""
    layout = torch_abi.tensor_layout()
    assert layout is not None
    words: list[int] = []
    read = ctypes.c_uint64.from_address
    for one in tensors:
        at = read(id(one) + layout.handle).value
        dtype = ctypes.c_uint16.from_address(at + layout.dtype).value
        device = ctypes.c_uint16.from_address(at + layout.device).value
        keys = read(at + layout.key_set).value
        words += _TENSOR.words(keys, dtype | device << 16, one.dim())
        words += [*one.shape, *one.stride()]
    return words
