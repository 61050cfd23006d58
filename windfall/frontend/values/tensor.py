"""Tensors: a node of the graph and a fake tensor that knows its type.

Enters: tensors of the user, results of torch functions. Leaves: nodes of the graph. Invariant: a
tensor from outside becomes a placeholder (and gets its guard) when it is first used, not before; an
operation that answers the very tensor it was given (in place) answers the same `Tensor` value.

One file: a tensor and the questions that programs ask of it.
"""

from __future__ import annotations

import keyword
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch import nn

from windfall import torch_abi
from windfall.frontend.breaks import (
    ATTRIBUTE_WRITE,
    BODY,
    DATA_READ,
    SUBCLASS,
    TENSOR_BRANCH,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_OPERATION,
    WRITTEN_LATER,
    stop,
)
from windfall.frontend.effects import restore
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Arguments, Keywords, Raised, Value
from windfall.frontend.values.constant import BINARY, COMPARE, IN_PLACE, UNARY
from windfall.frontend.values.counters import question
from windfall.frontend.values.function import bound_class
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.unseen import look, same
from windfall.frontend.values.wrap import wraps
from windfall.ir.dtype import TensorType
from windfall.ir.guard import ABSENT, Equals, HasKey, TensorIs
from windfall.ir.reading import is_among
from windfall.ir.source import Attribute, ByMethod, DictOf, Item, Source
from windfall.ops.fake import fake, storage_of
from windfall.ops.history import entered

if TYPE_CHECKING:
    from windfall.frontend.contents import Formula
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

# Attributes that say something of the type, or are the same for every tensor of one type.
METADATA = words("""
    shape dtype device ndim layout requires_grad is_leaf is_cuda is_cpu is_meta is_mps
    is_mkldnn is_quantized is_sparse is_sparse_csr is_xla is_xpu is_vulkan is_nested
    itemsize nbytes names is_ipu is_mtia is_maia output_nr
""")
SIZED = words("shape ndim nbytes names")  # of these, such that tell sizes
# Attributes that are operations.
VIEWS = words("T mT H mH real imag")
# Methods whose answer depends on the type only.
METADATA_METHODS = words("""
    size dim numel nelement ndimension stride is_contiguous is_floating_point is_complex
    is_signed element_size storage_offset get_device is_inference is_conj is_neg
    has_names __len__ is_non_overlapping_and_dense is_distributed dim_order is_same_size
""")
# Methods that read data, touch autograd's records or memory: called natively.
NATIVE_METHODS = {
    **dict.fromkeys(
        words("""
    item tolist numpy __array__ __bool__ __int__ __float__ __index__ __complex__ equal
    allclose is_nonzero __contains__ __format__ __repr__ __str__ data_ptr
"""),
        DATA_READ,
    ),
    **dict.fromkeys(
        words("""
    backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad_
    storage untyped_storage share_memory_ pin_memory is_pinned set_ resize_ resize_as_
    rename_ __deepcopy__ __reduce_ex__ __setstate__ apply_ map_ map2_ as_subclass
    __dlpack__ __dlpack_device__ detach_ module_load
    unsafe_chunk unsafe_split unsafe_split_with_sizes
"""),
        UNKNOWN_ATTRIBUTE,
    ),
}


_ITEMS = words("item tolist __float__ __int__ __index__")
# Methods and attribute writes with rules of their own, in other files of this folder.
METHOD_RULES: dict[str, Callable[[Tensor, Machine, Arguments, Keywords], Value]] = {}
WRITE_RULES: dict[str, Callable[[Tensor, Machine, Value], None]] = {}


class Tensor(Value):
    """A tensor. `real` is the user's, looked at for its metadata only. `question`: of a comparison,
    what can be known of it."""

    __slots__ = ("_fake", "_mask", "_node", "_type", "children", "exact_class", "question", "real")

    def __init__(
        self,
        source: Source | None = None,
        real: torch.Tensor | None = None,
        node: torch.fx.Node | None = None,
        fake: torch.Tensor | None = None,
    ) -> None:
        super().__init__(source)
        self.real = real
        self.exact_class = type(real) if real is not None else torch.Tensor
        self._node = node
        self._type: TensorType | None = None  # of one from outside, once it is relied upon
        self._fake = fake
        self.children: dict[str, Value] = {}
        self.question: Formula | None = None
        self._mask: Value | None = None

    def python_type(self) -> type:
        """`torch.Tensor` or `nn.Parameter`."""
        return self.exact_class

    def describe(self) -> str:
        """Its name in the graph or outside."""
        return f"tensor {self.source if self.source is not None else self._node}"

    def guard_type(self, machine: Machine) -> None:
        """The class alone is seldom enough: rely on all that the type says."""
        self.fake(machine)

    def fake(self, machine: Machine) -> torch.Tensor:
        """The tensor without data; relies on the type of one from outside."""
        if self._fake is None:
            assert self.real is not None and self.source is not None
            if torch_abi.has_tangent(self.real):
                stop(UNKNOWN_OPERATION, f"{self.describe()}, a dual number of forward_ad")
            type = self._type = machine.symbols.tensor_type(self.real, self.source)
            check = TensorIs(type, self.exact_class, torch_abi.dispatch_keys(self.real))
            self.guard(machine, "tensor", check)
            self._fake = _stand_in(self.real, type)
            machine.graph.fakes[self._fake] = self
        return self._fake

    def node(self, machine: Machine) -> torch.fx.Node:
        """The node of the graph; a placeholder for one from outside."""
        if self._node is None:
            assert self.real is not None and self.source is not None
            self.fake(machine)
            assert self._type is not None
            self._node = machine.graph.placeholder(self.source, self._type)
        return self._node

    @property
    def used(self) -> bool:
        """Whether it stands in the graph."""
        return self._node is not None

    def is_written(self, machine: Machine) -> bool:
        """Whether an operation wrote it in place, or a view of it."""
        return self._fake is not None and storage_of(self._fake) in machine.graph.written

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The node, the fake. What an effect writes behind the graph stands in the next one."""
        if machine.graph.late and storage_of(self.fake(machine)) in machine.graph.late:
            stop(WRITTEN_LATER, self.describe())
        return self.node(machine), self.fake(machine)

    def key(self, machine: Machine) -> Any:
        """Tensors are hashed by identity."""
        return machine.guards.told_apart(self)

    # ------------------------------------------------------------------------------- operations

    def refuse_override(self, machine: Machine) -> None:
        """A plain tensor or parameter overrides nothing."""
        self.guard_type(machine)

    def rely_on(self, machine: Machine, name: str) -> None:
        """Rely on an operator's, or attribute's, being torch's own. One that the user has patched
        is used natively."""
        found = machine.guards.rely_on_answer(self.exact_class, name)
        if not is_untouched(name, found):
            stop(UNKNOWN_ATTRIBUTE, f"{name} of tensors, which was patched")

    def _rely_beside(self, machine: Machine, operation: Any, other: Value) -> None:
        """Rely on an operator with two operands: a tensor of another class is asked too."""
        self.rely_on(machine, _special(operation))
        if isinstance(other, Tensor) and other.exact_class is not self.exact_class:
            other.rely_on(machine, _special(operation, "r"))

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Metadata, views, `grad`, methods, and what the user attached."""
        values = machine.values
        known = self.children.get(name)
        if known is not None:
            return known
        if name in METADATA:
            self.rely_on(machine, name)
            return self._metadata(machine, name)
        if name in VIEWS or name == "data":  # whose writes count no version, unlike `detach()`'s
            self.rely_on(machine, name)
            return values.torch_call("call_function", getattr, [self, values.literal(name)], {})
        if name == "grad":
            self.rely_on(machine, name)
            return self._grad(machine)
        if name == "grad_fn" and not self.fake(machine).requires_grad:
            self.rely_on(machine, name)
            return values.literal(None)
        if name == "__class__":
            self.guard_type(machine)
            return values.known(self.exact_class, self.exact_class.__name__)
        return self._other_attribute(machine, name)

    def _metadata(self, machine: Machine, name: str) -> Value:
        fake = self.fake(machine)
        if name in SIZED:
            machine.graph.look_at_sizes(fake)
        if name in ("requires_grad", "is_leaf") and machine.graph.hides_grad:
            stop(machine.graph.hidden_by, f"{name} is read: eager may run this either way")
        if name in ("requires_grad", "is_leaf") and machine.graph.levels and fake.grad_fn:
            stop(BODY, f"{name} of a computed tensor, by this transform or by one outside")
        if name in ("is_leaf", "output_nr") and self.real is not None and self.real.requires_grad:
            assert self.source is not None
            leaf = self.real.is_leaf
            machine.guards.add(Attribute(self.source, "is_leaf"), Equals(leaf), name)
            if name == "output_nr" and not leaf:
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, which its node tells")
        return machine.values.literal(getattr(fake, name))

    def _grad(self, machine: Machine) -> Value:
        if self.real is None or self.source is None:
            if self.fake(machine).requires_grad:
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.grad")
            return machine.values.literal(None)
        return machine.values.wrap(self.real.grad, Attribute(self.source, "grad"))

    def _other_attribute(self, machine: Machine, name: str) -> Value:
        attached = getattr(self.real, "__dict__", {}) if self.real is not None else {}
        if name in attached and self.source is not None:
            machine.guards.found.append((DictOf(self.source), name))
            return machine.values.wrap(attached[name], Item(DictOf(self.source), name))
        found = machine.guards.rely_on_answer(
            self.exact_class, name
        )  # users patch methods of tensors
        if found is not ABSENT and not is_untouched(name, found):
            if not isinstance(found, types.FunctionType):
                stop(UNKNOWN_ATTRIBUTE, f"{name} of tensors, which was patched")
            self.guard_type(machine)
            return machine.values.class_attribute(self, self.exact_class, name)
        if callable(getattr(torch.Tensor, name, None)):
            return TensorMethod(self, name)
        if hasattr(torch.Tensor, name) or hasattr(self.exact_class, name):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        self.guard_type(machine)
        if self.source is not None and ("absent", name) not in (self.guarded or ()):
            machine.guards.add(DictOf(self.source), HasKey(name, False), "no such attribute")
            self.guarded = {*(self.guarded or ()), ("absent", name)}
        text = f"'{self.exact_class.__name__}' object has no attribute '{name}'"
        raise machine.values.no_attribute(self, name, text)

    def is_flagged(self, machine: Machine, name: str) -> bool:
        """Whether an attribute of its own says so (of a plain tensor: that it is a buffer)."""
        try:
            found = self.get_attribute(machine, name).truth(machine)
        except Raised:
            return False
        if not isinstance(found, bool):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        return found

    def place_of_memory(self, machine: Machine) -> int:
        """Where the memory that it stands in begins, counted from that of its storage: the user may
        have cut the tensor out from whose memory it is."""
        memory = storage_of(self.fake(machine))
        for value in machine.graph.fakes.values():
            if not isinstance(value, Tensor) or value.real is None or value.source is None:
                continue
            if storage_of(value.fake(machine)) is memory:
                if value.fake(machine).dtype != self.fake(machine).dtype:
                    stop(UNKNOWN_ATTRIBUTE, f"storage_offset() in memory of {value.describe()}")
                start = int(value.real.storage_offset())
                place = ByMethod(value.source, torch.Tensor, "storage_offset")
                machine.guards.add(place, Equals(start), "the program asks where it begins")
                return start
        return 0

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """Attributes of the user's own are written back, and `grad` and `data`; others of torch's
        are written natively."""
        rule = WRITE_RULES.get(name)
        if rule is not None:
            rule(self, machine, value)
            return
        if hasattr(torch.Tensor, name) or not name.isidentifier() or keyword.iskeyword(name):
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
        before = self.children.get(name)
        machine.effects.undo(lambda: restore(self.children, name, before))
        self.children[name] = value
        machine.effects.add(f"{{}}.{name} = {{}}", self, value)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A method of `torch.Tensor`."""
        rule = METHOD_RULES.get(name)
        if rule is not None:
            return rule(self, machine, arguments, keywords)
        if name in _ITEMS and not arguments and not keywords:
            number = self._item(machine, name)
            if number is not None:
                return number
        native = NATIVE_METHODS.get(name)
        if native is not None:
            stop(native, f"{self.describe()}.{name}(){machine.symbols.needed}")
        if name in METADATA_METHODS or (name == "type" and not arguments and not keywords):
            return machine.values.torch_fold(name, [self, *arguments], keywords)
        return machine.values.torch_call("call_method", name, [self, *arguments], keywords)

    def _item(self, machine: Machine, name: str) -> Value | None:
        """A number of the data without its value; None: the value is needed."""
        if name == "tolist":
            return machine.values.items(self)
        kind = self.fake(machine).dtype
        if kind is torch.bool and name == "item":
            return machine.values.flag(self)
        whole = not kind.is_floating_point and not kind.is_complex and kind is not torch.bool
        fits = {"item": True, "__float__": not whole}.get(name, whole)
        return machine.values.item(self) if fits else None

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph."""
        self._rely_beside(machine, BINARY[operation], other)
        return machine.values.torch_call(
            "call_function", BINARY[operation], [self, other.operand(machine, self, operation)], {}
        )

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph. (A text that is filled in shows the data.)"""
        if operation == "%" and issubclass(other.python_type(), str | bytes | bytearray):
            stop(UNKNOWN_OPERATION, f"text % {self.describe()}")
        self.rely_on(machine, _special(BINARY[operation], "r"))
        if operation == "/" and isinstance(number := other.operand(machine, self), Tensor):
            # Torch takes the reciprocal and multiplies it: two roundings.
            own = machine.values.torch_call("call_method", "reciprocal", [self], {})
            return machine.values.torch_call("call_function", BINARY["*"], [own, number], {})
        return machine.values.torch_call(
            "call_function", BINARY[operation], [other.operand(machine, self), self], {}
        )

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph: answers this very tensor."""
        name = _special(IN_PLACE[operation])
        self.rely_on(machine, name)
        if not hasattr(torch.Tensor, name):
            self._rely_beside(machine, BINARY[operation], other)
        return machine.values.torch_call(
            "call_function",
            IN_PLACE[operation],
            [self, other.operand(machine, self, operation)],
            {},
        )

    def unary(self, machine: Machine, operation: str) -> Value:
        """In the graph; `not` reads data."""
        if operation == "not":
            stop(TENSOR_BRANCH, f"not {self.describe()}")
        self.rely_on(machine, _special(UNARY[operation]))
        return machine.values.torch_call("call_function", UNARY[operation], [self], {})

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph."""
        self.rely_on(machine, _special(COMPARE[operation]))
        if isinstance(other, Tensor) and other.exact_class is not self.exact_class:
            other.rely_on(machine, _special(COMPARE[_MIRRORED.get(operation, operation)]))
        asked = question(machine, self, operation, other)
        found = machine.values.torch_call(
            "call_function", COMPARE[operation], [self, other.operand(machine, self)], {}
        )
        if isinstance(found, Tensor):
            found.question = asked
        return found

    def get_item(self, machine: Machine, key: Value) -> Value:
        """In the graph."""
        self.rely_on(machine, "__getitem__")
        held, place = _indexed(machine, self, key)
        return machine.values.torch_call("call_function", operator.getitem, [held, place], {})

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """In the graph, in place."""
        self.rely_on(machine, "__setitem__")
        held, place = _indexed(machine, self, key)
        machine.values.torch_call("call_function", operator.setitem, [held, place, value], {})

    def as_mask(self, machine: Machine) -> Value:
        """A truth without dimensions as a mask of one row. It is one view: what is counted twice in
        it is known to be equal."""
        if self._mask is None:
            self._mask = _row(machine, self)
            machine.effects.undo(self._forget_mask)
        return self._mask

    def _forget_mask(self) -> None:
        self._mask = None

    def truth(self, machine: Machine) -> bool | Value:
        """Depends on the data; of a counter that a module keeps it is known."""
        asked = None if self.is_written(machine) else self.question
        told = None if asked is None else asked.decided()
        if told is not None:
            return told
        stop(TENSOR_BRANCH, self.describe())

    def length(self, machine: Machine) -> Value:
        """The first size."""
        self.rely_on(machine, "__len__")
        sizes = self._metadata(machine, "shape").unpack(machine)
        if not sizes:
            raise machine.values.raised(TypeError("len() of a 0-d tensor"))
        return sizes[0]

    def unpack(self, machine: Machine) -> list[Value]:
        """Its rows."""
        self.rely_on(machine, "__iter__")
        if self.fake(machine).dim() == 0:
            raise machine.values.raised(TypeError("iteration over a 0-d tensor"))
        zero = machine.values.literal(0)
        return machine.values.torch_call("call_method", "unbind", [self, zero], {}).unpack(machine)

    def iterate(self, machine: Machine) -> Value:
        """Its rows."""
        return machine.values.iterator(self.unpack(machine))

    def reversed(self, machine: Machine) -> Value:
        """`reversed(self)`: a tensor again, whose rows share nothing with these."""
        self.rely_on(machine, "__reversed__")
        if self.fake(machine).dim() == 0:
            return self
        return machine.values.torch_call(
            "call_method", "flip", [self, machine.values.literal(0)], {}
        )

    def rebuild(self, recipe: Recipe) -> str:
        """A result of the graph."""
        assert self._node is not None
        return recipe.graph_output(self._node)


# What torch's class answers, as it was when we were imported.
_OWN = {
    name: found for base in reversed(torch.Tensor.__mro__) for name, found in vars(base).items()
}


def _is_of_torch(found: Any) -> bool:
    """Whether it is no function of the user. Its globals tell: `functools.wraps` copies names."""
    function = found.fget if isinstance(found, property) else found
    if not isinstance(function, types.FunctionType):
        return True
    return str(function.__globals__.get("__name__")).partition(".")[0] == "torch"


def is_untouched(name: str, found: Any) -> bool:
    """Whether what a class answers for a name is torch's own."""
    return found is _OWN.get(name, ABSENT) and _is_of_torch(found)


def _special(operation: Any, side: str = "") -> str:
    """The name under which a class has an operator."""
    return f"__{side}{operation.__name__.strip('_')}__"


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _indexed(machine: Machine, held: Tensor, key: Value) -> tuple[Value, Value]:
    """What is indexed, and by which key. A truth without dimensions takes all of the tensor or
    nothing: torch reads it to tell which. As a mask of one row it is not read."""
    truth = look(key)
    if not isinstance(truth, Tensor):
        return held, _place(machine, key)
    known = truth.fake(machine)
    if known.dim() or known.dtype is not torch.bool:
        return held, _place(machine, key)
    return _row(machine, held), truth.as_mask(machine)


def _row(machine: Machine, tensor: Tensor) -> Value:
    """`tensor[None]`."""
    zero = machine.values.literal(0)
    return machine.values.torch_call("call_method", "unsqueeze", [tensor, zero], {})


def _place(machine: Machine, key: Value) -> Value:
    """A key of a tensor: an integer tensor without dimensions is the number that it holds."""
    if type(look(key)) is Tuple:
        assert isinstance(key, Tuple)
        parts = key.items(machine)
        read = [_place(machine, one) for one in parts]
        unchanged = all(same(one, other) for one, other in zip(read, parts, strict=True))
        return key if unchanged else Tuple(read)
    if _is_taken_for_tuple(machine, key):
        stop(UNKNOWN_OPERATION, f"an index that is {key.describe()}")
    if not isinstance(key, Tensor):
        return key
    known = key.fake(machine)
    # One of bytes is a mask.
    return key if known.dim() or known.dtype is torch.uint8 else machine.values.index(key)


def _is_taken_for_tuple(machine: Machine, key: Value) -> bool:
    """Whether torch may take a sequence of other things than numbers for a tuple. It warns of it
    each time, and the capture is not to warn once more."""
    if is_among(key.python_type(), (str, bytes)):
        return True
    if key.python_type() is not list or len(items := key.unpack(machine)) >= _LONG:
        return False
    return not all(is_among(one.python_type(), (int, bool)) for one in items)


_LONG = 32  # from this length on, torch takes every sequence for numbers


def _stand_in(real: torch.Tensor, type: TensorType) -> torch.Tensor:
    """A fake for a user's tensor. One that is no leaf stands for no leaf, so that in-place
    operations are allowed as they are on the real one."""
    made = fake(type)
    return made if real.is_leaf else entered((made,))[0]


class TensorMethod(Value):
    """A method bound to a tensor."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Tensor, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        """A method in Python, or a builtin one."""
        return bound_class(type(_OWN.get(self.name)))

    def describe(self) -> str:
        """The method's name."""
        return f"{self.owner.describe()}.{self.name}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """In the graph, folded, or natively."""
        return self.owner.call_method(machine, self.name, arguments, keywords)

    def rebuild(self, recipe: Recipe) -> str:
        """The method, read again."""
        return f"{recipe.name(self.owner)}.{self.name}"


class ForeignTensor(Value):
    """A tensor of a class of its own: everything about it is done natively."""

    __slots__ = ("real",)

    def __init__(self, real: torch.Tensor, source: Source | None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        """The user's class."""
        return type(self.real)

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """Refused."""
        stop(SUBCLASS, self.describe())

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Refused."""
        stop(SUBCLASS, f"{self.describe()}.{name}")

    def guard_attributes(self, machine: Machine) -> None:
        """Refused."""
        stop(SUBCLASS, self.describe())

    def rebuild(self, recipe: Recipe) -> str:
        """The object itself under a name."""
        return recipe.known(self.real, "tensor")


def of_graph(machine: Machine, value: Any) -> Value:
    """The value that stands for a tensor without data."""
    known = machine.graph.fakes.get(value)
    assert known is not None, "a tensor comes from outside or from the graph"
    return known


@wraps(torch.Tensor, nn.Parameter)
def _wrap_tensor(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is None:
        return of_graph(machine, value)
    if not torch_abi.is_plain_tensor(value):
        return machine.values.remember(value, ForeignTensor(value, source))
    return machine.values.remember(value, Tensor(source, value))
