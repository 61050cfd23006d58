"""Records to plain data and back, without pickle.

Enters: a record of any room (or a tuple of them). Leaves: a `Document`: numbers, texts, bytes and
lists of them, which `dumps` writes as bytes; `decode` makes the record again, in any process that
has the same windfall. Live things stand in it by name: functions and classes by their own
(`names.py`), what only the caller can name (the model that was compiled) by that of the side table
`live`; tensors and machine code by their content. Invariant: equal records give equal documents,
and what was decoded gives the document that it came from. What cannot be named makes the record
`Unstorable`, with the way that leads there and the reason; nothing else of it is lost.

    >>> from windfall.ir.dtype import TensorType
    >>> encode(TensorType.contiguous(torch.float32, (2, 3))).nodes[-1]
    ('TensorType', (0,), (1,), (2,), (3,), False)

A `Kind` is a row of `KINDS`: a tag, how a value is taken apart, how it is made again. Dataclasses
have one by being declared with `record`; every other kind stands in this file. Equal parts are one
node, so that what is shared stays shared, and nothing is written by recursion.

One file: the walk and the kinds that it knows of itself; other kinds are declared where they stand.
"""

from __future__ import annotations

import enum
import json
import operator
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from windfall import jit
from windfall.dataclass import dataclass
from windfall.errors import WindfallError
from windfall.ir import (
    control_flow,
    dtype,
    guard,
    loop,
    node,
    relation,
    role,
    scalar,
    source,
    stages,
    transform,  # noqa: F401  (a row of `control_flow.KINDS`)
)
from windfall.ir.checks import objects, tensors
from windfall.ir.custom import CustomGradient
from windfall.ir.names import (
    Unnameable,
    code_name,
    globals_name,
    name_of,
    operator_name,
    packet_name,
    resolve,
    resolve_code,
    resolve_operator,
    resolve_packet,
)
from windfall.ir.reading import ABSENT, class_name
from windfall.ir.symint import Atom, Expression, payloads
from windfall.ir.symint.expression import make_atom, make_monomial, make_sum

VERSION = 1

# What stands for itself. A part that is a tuple of one number is the node of that number.
Plain = bool | int | str | bytes | None
Part = Plain | tuple[int]
Node = tuple[Any, ...]


class Unstorable(WindfallError):
    """A record with something in it that has no name; `path` leads to it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Document:
    """Nodes, each after those it refers to, and which part is the record."""

    nodes: tuple[Node, ...]
    root: Part


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of one class are taken apart and made. `names` are those of the parts, for people;
    without any, parts are told by their number."""

    tag: str
    take: Callable[[Any], Iterable[Any]]
    make: Callable[..., Any]
    names: tuple[str, ...] = ()


NOTHING: Mapping[str, Any] = types.MappingProxyType({})
KINDS: dict[type, Kind] = {}
MAKERS: dict[str, Callable[..., Any]] = {}


def add(kind: type, row: Kind) -> None:
    """Declare a kind; a tag stands for one class."""
    if MAKERS.setdefault(row.tag, row.make) is not row.make:
        raise TypeError(f"two kinds of record are called {row.tag}")
    KINDS[kind] = row


Class = TypeVar("Class", bound=type)


def record(cls: Class) -> Class:
    """Declare a dataclass: its parts are the fields that its constructor takes. Of those that its
    `identities` name, only identity counts; of `field[]` that of its elements or values."""
    row = _Record(cls)
    plainly = len(row.names) > 1 and not row.live
    take = operator.attrgetter(*row.names) if plainly else row.take
    add(cls, Kind(cls.__name__, take, row.make, row.names))
    return cls


class _Record:
    """How a declared dataclass is taken apart and made."""

    __slots__ = ("cls", "live", "names", "several")

    def __init__(self, cls: Any) -> None:
        live = frozenset(getattr(cls, "identities", ()))
        self.cls = cls
        self.names = tuple(one.name for one in fields(cls) if one.init)
        self.several = frozenset(one.removesuffix("[]") for one in live if one.endswith("[]"))
        self.live = live | self.several

    def take(self, value: Any) -> Iterable[Any]:
        """The parts of one."""
        for name in self.names:
            part = getattr(value, name)
            if name in self.several:
                yield _identities(part)
            else:
                yield Identity(part) if name in self.live else part

    def make(self, *parts: Any) -> Any:
        """One of its parts."""
        pairs = zip(self.names, parts, strict=True)
        return self.cls(*(_live(part) if name in self.live else part for name, part in pairs))


class Identity:
    """An object that may be stored by its name only: an equal one would not do."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _identities(parts: Any) -> Any:
    if isinstance(parts, Mapping):
        return {name: Identity(one) for name, one in parts.items()}
    return tuple(map(Identity, parts))


def _live(part: Any) -> Any:
    """What `Identity` stands for, and containers of it."""
    if isinstance(part, dict):
        return {name: one.value for name, one in part.items()}
    return tuple(one.value for one in part) if isinstance(part, tuple) else part.value


@dataclass(frozen=True, slots=True)
class Live:
    """An object that the caller has named."""

    name: str


# --------------------------------------------------------------------------------- encoding


def encode(value: Any, live: Mapping[str, Any] = NOTHING) -> Document:
    """The document of a record; `Unstorable` where it has something without a name. `live` gives
    names to objects of the caller's."""
    writer = _Encoder(live)
    root = writer.part(value)
    return Document(tuple(writer.nodes), root)


class _Encoder:
    def __init__(self, live: Mapping[str, Any]) -> None:
        self._live = {id(value): Live(name) for name, value in live.items()}
        self.nodes: list[Node] = []
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}  # values by identity; they are held meanwhile
        self._held: list[Any] = []

    def part(self, value: Any) -> Part:
        """What stands for a value; its nodes are written."""
        if type(value) in _PLAIN:
            plain: Plain = value
            return plain
        stack: list[_Open] = []
        self._push(value, stack)
        opened = {id(value)}  # what is on the stack
        while stack:
            one = stack[-1]
            if self._goes_on(one):
                missing = one.parts[one.next]
                if id(missing) in opened:
                    raise Unstorable(_path([*stack, one]), "it is part of itself")
                self._push(missing, stack)
                opened.add(id(missing))
            else:
                self._write(one)
                opened.discard(id(stack.pop().value))
        return (self._known[id(value)],)

    def _push(self, value: Any, stack: list[_Open]) -> None:
        """Take a value apart."""
        live = self._live
        if isinstance(value, Identity) and id(value.value) in live:
            stack.append(_Open(value, "identity", [live[id(value.value)]], ()))
        elif id(value) in live and type(value) is not Live:
            stack.append(_Open(value, "Live", [live[id(value)].name], ()))
        else:
            kind = _kind_of(value, stack)
            try:
                stack.append(_Open(value, kind.tag, list(kind.take(value)), kind.names))
            except Unnameable as reason:
                raise Unstorable(_path([*stack, None]), str(reason)) from None

    def _goes_on(self, one: _Open) -> bool:
        """Whether there is a next part that has no node yet."""
        known, parts = self._known, one.parts
        for place in range(one.next, len(parts)):
            part = parts[place]
            if type(part) not in _PLAIN and id(part) not in known:
                one.next = place
                return True
        return False

    def _write(self, one: _Open) -> None:
        known = self._known
        parts = [part if type(part) in _PLAIN else (known[id(part)],) for part in one.parts]
        written = (one.tag, *parts)
        key = (written, *map(type, parts))  # 1 and True are equal
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.nodes)
            self.nodes.append(written)
        known[id(one.value)] = number
        self._held.append(one.value)


_PLAIN = frozenset({bool, int, str, bytes, type(None)})


class _Open:
    """A value whose parts are being written."""

    __slots__ = ("names", "next", "parts", "tag", "value")

    def __init__(self, value: Any, tag: str, parts: list[Any], names: tuple[str, ...]) -> None:
        self.value = value
        self.tag = tag
        self.parts = parts
        self.names = names
        self.next = 0


def _path(stack: Sequence[_Open | None]) -> str:
    """The way that leads from the record to the last of these."""
    way = "record"
    for one in stack[:-1]:
        assert one is not None
        way += f".{one.names[one.next]}" if one.names else f"[{one.next}]"
    return way


def _kind_of(value: Any, stack: Sequence[_Open]) -> Kind:
    found = KINDS.get(type(value))
    if found is not None:
        return found
    for base, kind in _FAMILIES.items():
        if isinstance(value, base):
            return kind
    raise Unstorable(_path([*stack, None]), f"an object of {class_name(type(value))} is no record")


# --------------------------------------------------------------------------------- decoding


def decode(document: Document, live: Mapping[str, Any] = NOTHING) -> Any:
    """The record of a document; `live` has the objects that were named so when it was encoded."""
    table = scalar.Scalars()  # scalars of one document are interned together
    makers: dict[str, Callable[..., Any]] = {
        **MAKERS,
        "Live": live.__getitem__,
        "Scalars": lambda: table,
        "Scalar": lambda op, dtype, arguments, attribute: table.make(
            op, dtype, arguments, attribute
        ),
    }
    values: list[Any] = []

    def value(part: Any) -> Any:
        return values[part[0]] if type(part) is tuple else part

    for tag, *parts in document.nodes:
        values.append(makers[tag](*map(value, parts)))
    return value(document.root)


# ------------------------------------------------------------------------------------ bytes


def dumps(document: Document) -> bytes:
    """A document as bytes: a text of JSON, behind it the bytes that stand in nodes."""
    blobs: list[bytes] = []

    def plain(part: Any) -> Any:
        if type(part) is bytes:
            blobs.append(part)
            return {"bytes": len(part)}
        return [part[0]] if type(part) is tuple else part

    nodes = [[one[0], *map(plain, one[1:])] for one in document.nodes]
    text = json.dumps([VERSION, nodes, plain(document.root)], separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *blobs])


def loads(data: bytes) -> Document:
    """The document of these bytes; `ValueError` where they are none."""
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length]
    if len(data) < 8 or len(text) != length:
        raise ValueError("the data end too early")
    version, nodes, root = json.loads(text)
    if version != VERSION:
        raise ValueError(f"version {version} of records, not {VERSION}")
    place = 8 + length

    def part(value: Any) -> Any:
        nonlocal place
        if type(value) is dict:
            start, place = place, place + value["bytes"]
            if place > len(data):
                raise ValueError("the data end too early")
            return data[start:place]
        return (value[0],) if type(value) is list else value

    made = Document(tuple((one[0], *map(part, one[1:])) for one in nodes), part(root))
    if place != len(data):
        raise ValueError("there is something behind the data")
    return made


# ----------------------------------------------------------------------------- kinds: Python


def _pairs(value: Mapping[Any, Any]) -> Iterable[Any]:
    name = globals_name(value) if type(value) is dict else None
    if name is not None:  # the globals of a module are the module's, now and then
        return (Named(name),)
    return [part for pair in value.items() for part in pair]


def _mapping(*parts: Any) -> dict[Any, Any]:
    if len(parts) == 1:
        module: types.ModuleType = resolve(f"{parts[0].name}:")
        return module.__dict__
    return dict(zip(parts[::2], parts[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a module, where its globals are meant."""

    name: str


def _ordered(value: Iterable[Any]) -> list[Any]:
    """Members of a set in an order that does not depend on hashes."""
    return sorted(value, key=lambda one: (class_name(type(one)), str(one)))


def _numbers(value: complex) -> Iterable[Any]:
    return (value.real, value.imag)


add(float, Kind("float", lambda value: (value.hex(),), float.fromhex))
add(complex, Kind("complex", _numbers, complex))
add(tuple, Kind("tuple", tuple, lambda *parts: parts))
add(list, Kind("list", list, lambda *parts: list(parts)))
add(dict, Kind("dict", _pairs, _mapping))
add(set, Kind("set", _ordered, lambda *parts: set(parts)))
add(frozenset, Kind("frozenset", _ordered, lambda *parts: frozenset(parts)))
add(slice, Kind("slice", lambda value: (value.start, value.stop, value.step), slice))
add(range, Kind("range", lambda value: (value.start, value.stop, value.step), range))
add(type(Ellipsis), Kind("Ellipsis", lambda value: (), lambda: Ellipsis))
add(type(NotImplemented), Kind("NotImplemented", lambda value: (), lambda: NotImplemented))
add(type(ABSENT), Kind("absent", lambda value: (), lambda: ABSENT))
KINDS[immutable_list] = KINDS[list]
KINDS[immutable_dict] = KINDS[types.MappingProxyType] = KINDS[dict]

_NAMED = Kind("name", lambda value: (name_of(value),), resolve)
for _type in (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ModuleType, type, staticmethod, classmethod,
):  # fmt: skip
    add(_type, _NAMED)
add(types.CodeType, Kind("code", lambda value: (code_name(value),), resolve_code))


# Immutable, and equal ones are the same to a program, or there is one of each.
_CONSTANTS = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(ABSENT)}
    | {torch.dtype, torch.layout, torch.memory_format, torch.device, types.CodeType}
)


def _by_identity(live: Identity) -> Iterable[Any]:
    value = live.value
    if type(value) is dict:
        name = globals_name(value)
        if name is None:
            raise Unnameable("a dict that is no module's globals")
        return (value,)
    kind = KINDS.get(type(value))
    constant = type(value) in _CONSTANTS or is_dataclass(value)  # a record of ours is one
    if constant or kind in (_NAMED, _OPERATOR, _PACKET) or isinstance(value, type | enum.Enum):
        return (value,)
    raise Unnameable(f"an object of {class_name(type(value))}, of which identity counts")


add(Identity, Kind("identity", _by_identity, Identity))

# ------------------------------------------------------------------------------ kinds: torch


def _attribute_of_torch(text: str) -> Any:
    return getattr(torch, text.removeprefix("torch."))


_BY_STR = (torch.dtype, torch.layout, torch.memory_format)
for _attribute in _BY_STR:
    add(_attribute, Kind("torch", lambda value: (str(value),), _attribute_of_torch))
add(torch.device, Kind("device", lambda value: (str(value),), torch.device))
add(torch.Size, Kind("Size", tuple, lambda *parts: torch.Size(parts)))

_OPERATOR = Kind("op", lambda value: (operator_name(value),), resolve_operator)
add(type(torch.ops.aten.relu.default), _OPERATOR)
_PACKET = Kind("packet", lambda value: (packet_name(value),), resolve_packet)
add(type(torch.ops.aten.relu), _PACKET)


def _content(tensor: torch.Tensor) -> Iterable[Any]:
    """Type and elements; the memory between them does not count."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not plain or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise Unnameable(f"a tensor of {class_name(type(tensor))} on {tensor.device}")
    if _overlaps(tensor):
        raise Unnameable("a tensor whose elements share memory otherwise than by being expanded")
    once = tensor.detach()[_once(tensor.stride())]
    flat = once.resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return (tensor.dtype, shape, strides, tensor.requires_grad, data)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two of the elements that are different ones may stand in one place."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    reach = 0  # from the first element to the last, of the dimensions so far
    for stride, size in sorted((stride, size) for stride, size in pairs if stride and size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _once(strides: tuple[int, ...]) -> tuple[slice, ...]:
    """The elements of an expanded tensor that are different ones."""
    return tuple(slice(None) if stride else slice(1) for stride in strides)


def _tensor(
    kind: torch.dtype,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    data: bytes,
) -> torch.Tensor:
    made = torch.empty_strided(sizes, strides, dtype=kind)
    if data:
        once = made[_once(strides)]
        once.copy_(torch.frombuffer(bytearray(data), dtype=kind).reshape(once.shape))
    return made.requires_grad_(requires_grad)


add(torch.Tensor, Kind("tensor", _content, _tensor))
add(
    torch.nn.Parameter,
    Kind(
        "parameter",
        lambda value: (value.detach(), value.requires_grad),
        lambda tensor, requires_grad: torch.nn.Parameter(tensor, requires_grad),
    ),
)

# ------------------------------------------------------------------------ kinds: integers, loops


def _terms(value: Expression) -> Iterable[Any]:
    return (value.constant, *(part for m, by in value.terms for part in (by, m.atoms)))


def _sum(constant: int, *parts: Any) -> Any:
    terms = zip(parts[1::2], parts[::2], strict=True)
    return make_sum(tuple((make_monomial(atoms), by) for atoms, by in terms), constant)


def _atom_parts(value: Atom) -> Iterable[Any]:
    return (value.operation, value.key, value.arguments, value.low, value.high, value.payload)


def _atom(
    operation: str, key: str, arguments: tuple[Any, ...], low: Any, high: Any, payload: Any
) -> Atom:
    if type(payload) in (payloads.Hint, payloads.Read):
        payloads.varying = True
    return make_atom(operation, key, arguments, (low, high), payload)


def _of_table(*parts: Any) -> Any:
    raise AssertionError("`decode` has one table for all scalars of a document")


add(Expression, Kind("Expression", _terms, _sum))
add(Atom, Kind("Atom", _atom_parts, _atom))
add(
    scalar.Scalar,
    Kind(
        "Scalar",
        lambda value: (value.op, value.dtype, value.arguments, value.attribute),
        _of_table,
        ("op", "dtype", "arguments", "attribute"),
    ),
)
add(scalar.Scalars, Kind("Scalars", lambda value: (), _of_table))

# ----------------------------------------------------------------------------- kinds: graphs


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node of the same graph, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of a graph."""

    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    info: node.NodeInfo | None


def _graph_parts(graph: torch.fx.Graph) -> Iterable[Any]:
    numbers = {one: NodeRef(number) for number, one in enumerate(graph.nodes)}
    rows = tuple(
        GraphNode(
            one.op,
            one.name,
            one.target,
            torch.fx.map_arg(one.args, numbers.__getitem__),  # type: ignore[arg-type]
            torch.fx.map_arg(one.kwargs, numbers.__getitem__),  # type: ignore[arg-type]
            one.meta.get(node.KEY),
        )
        for one in graph.nodes
    )
    constants = {str(one.target): node.constant(one) for one in graph.nodes if one.op == "get_attr"}
    return rows, constants


def _graph(rows: tuple[GraphNode, ...], constants: Mapping[str, Any]) -> torch.fx.Graph:
    owner = torch.nn.Module()
    for path, value in constants.items():
        place: Any = owner
        *parents, name = path.split(".")
        for one in parents:
            if not hasattr(place, one):
                setattr(place, one, torch.nn.Module())
            place = getattr(place, one)
        setattr(place, name, value)
    holder: Any = owner  # typed as a `GraphModule`, of which nothing but attributes is asked
    graph = torch.fx.Graph(holder)
    made: list[torch.fx.Node] = []
    for row in rows:
        args, kwargs = (_with_nodes(part, made) for part in (row.args, row.kwargs))
        added = node.add_node(graph, row.op, row.target, args, kwargs, row.name)
        if row.info is not None:
            node.set_info(added, row.info)
        made.append(added)
    return graph


def _with_nodes(value: Any, made: list[torch.fx.Node]) -> Any:
    match value:
        case NodeRef():
            return made[value.number]
        case tuple() if type(value) is tuple:
            return tuple(_with_nodes(one, made) for one in value)
        case list():
            return [_with_nodes(one, made) for one in value]
        case dict():
            return {key: _with_nodes(one, made) for key, one in value.items()}
        case slice():
            parts = (value.start, value.stop, value.step)
            return slice(*(_with_nodes(one, made) for one in parts))
    return value


add(
    torch.fx.Graph,
    Kind("Graph", _graph_parts, _graph, ("nodes", "constants")),
)
add(
    CustomGradient,
    Kind(
        "CustomGradient",
        lambda value: value.parts,
        CustomGradient,
        ("name", "forward", "backward", "count", "inputs_kept", "constant", "dirty", "once"),
    ),
)

for _kind in control_flow.KINDS.values():
    add(
        _kind,
        Kind(
            _kind.__name__,
            lambda value: (value.graphs, value.symbols, value.facts),
            _kind,
            ("graphs", "symbols", "facts"),
        ),
    )

# ------------------------------------------------------------------- kinds: machine code, records


def _linked(data: bytes, needs: tuple[str, ...]) -> jit.NativeCode:
    return jit.link(jit.CompiledObject(data, needs))


add(
    jit.NativeCode,
    Kind("machine code", lambda code: (code.object.data, code.object.needs), _linked),
)
add(type(source.SYMBOLS), Kind("SYMBOLS", lambda value: (), lambda: source.SYMBOLS))
add(type(source.AMBIENT), Kind("AMBIENT", lambda value: (), lambda: source.AMBIENT))

for _module in (
    stages, loop, node, dtype, relation, role, scalar, source, guard, payloads, objects, tensors,
):  # fmt: skip
    for _found in vars(_module).values():
        if isinstance(_found, type) and is_dataclass(_found) and _found not in KINDS:
            record(_found)
for _own in (Named, Live, NodeRef, GraphNode):
    record(_own)

# Classes with a metaclass, and members of enumerations, by what they are.
_FAMILIES: dict[type, Kind] = {
    enum.Enum: Kind("member", lambda value: (type(value), value.name), getattr),
    type: _NAMED,
}
MAKERS["member"] = getattr
