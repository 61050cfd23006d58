"""The operations of the swap matrix: program text with the operand `a` (and `b`), answer `r`.

Enters: nothing. Leaves: `OPERATIONS` and `TWO_OPERANDS`, by name, and `NAMESPACE`, the globals that
the text refers to. Invariant: an operation ends in eager for every kind, in little time and memory
(no power of a huge number, no loop over a huge range).
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import operator
import types
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from tests.conformance.swap.kinds import Attributes, Colour, Frozen, Plain, Point, Record


@dataclass(frozen=True)
class Operation:
    """One operation: statements that leave the answer in `r`."""

    name: str
    text: str
    writes: bool = False  # it changes the operand: not for kinds that are shared


def takes(*args: Any, **kwargs: Any) -> Any:
    """Show what arrived."""
    return (args, sorted(kwargs.items()))


def takes_one(one: Any) -> Any:
    """Pass on."""
    return (one,)


def twice(one: Any) -> Any:
    """Look at it one call deeper."""
    return bool(one) is True


NAMESPACE: dict[str, Any] = {
    "collections": collections, "copy": copy, "functools": functools, "itertools": itertools,
    "math": math, "operator": operator, "types": types, "numpy": numpy, "torch": torch,
    "takes": takes, "takes_one": takes_one, "twice": twice,
    "Attributes": Attributes, "Colour": Colour, "Frozen": Frozen, "Plain": Plain, "Point": Point,
    "Record": Record,
    "T": torch.arange(6.0).reshape(2, 3), "V": torch.arange(3.0), "S": torch.tensor(2.0),
    "SENTINEL": object(), "LIST": [1, 2, 3], "DICT": {1: "one", "x": "ex", None: "none"},
}  # fmt: skip

OPERATIONS: dict[str, Operation] = {}
TWO_OPERANDS: dict[str, Operation] = {}


def _expressions(table: dict[str, Operation], **texts: str) -> None:
    for name, text in texts.items():
        assert name not in table, name
        table[name] = Operation(name, f"r = {text}")


def _statements(*, writes: bool = False, **texts: str) -> None:
    for name, text in texts.items():
        assert name not in OPERATIONS, name
        OPERATIONS[name] = Operation(name, text.strip("\n"), writes)


_expressions(
    OPERATIONS,
    # Passing on.
    same="a",
    into_tuple="(a, 1)",
    into_list="[a]",
    into_dict="{'k': a}",
    passed="takes_one(a)",
    # Truth.
    truth="bool(a)",
    not_="not a",
    and_="a and 1",
    or_="a or 1",
    and_or="(a and 'yes') or 'no'",
    conditional="'yes' if a else 'no'",
    operator_truth="operator.truth(a)",
    operator_not="operator.not_(a)",
    inner_truth="twice(a)",
    any_of="any([a])",
    all_of="all([a, 1])",
    filter_list="list(filter(None, [a]))",
    comprehension_if="[1 for _ in (0,) if a]",
    # Length, iteration.
    length="len(a)",
    length_hint="operator.length_hint(a, 7)",
    iterated="[one for one in a]",
    iterator="iter(a)",
    iterator_class="type(iter(a)).__name__",
    next_="next(a)",
    next_default="next(a, 'end')",
    next_iter="next(iter(a))",
    next_iter_default="next(iter(a), 'end')",
    enumerated="list(enumerate(a))",
    enumerated_from="list(enumerate('xy', a))",
    zipped="list(zip(a, [1, 2, 3]))",
    zipped_strict="list(zip(a, [1, 2], strict=True))",
    mapped="list(map(str, a))",
    mapped_by="list(map(a, [1, 2]))",
    filtered_by="list(filter(a, [1, 2]))",
    sorted_="sorted(a)",
    sorted_reverse="sorted([3, 1, 2], reverse=a)",
    sorted_key="sorted([3, 1, 2], key=a)",
    reversed_="list(reversed(a))",
    summed="sum(a)",
    summed_from="sum([1, 2], a)",
    minimum="min(a)",
    minimum_two="min(a, 1)",
    maximum="max(a)",
    maximum_default="max([], default=a)",
    any_="any(a)",
    all_="all(a)",
    set_comprehension="{one for one in a}",
    dict_comprehension="{one: 1 for one in a}",
    generator_expression="list(one for one in a)",
    chained="list(itertools.chain(a, [9]))",
    sliced_lazily="list(itertools.islice(a, 1))",
    islice_by="list(itertools.islice([1, 2, 3], a))",
    reduced="functools.reduce(lambda left, right: left, a)",
    repeated="list(itertools.repeat('x', a))",
    product="list(itertools.product(a, repeat=1))",
    # Unpacking, stars.
    starred_list="[*a]",
    starred_tuple="(*a, 1)",
    starred_set="{*a}",
    starred_dict="{**a}",
    star_arguments="takes(*a)",
    star_keywords="takes(**a)",
    both_stars="takes(*a, **{})",
    # Comparison.
    equals_one="a == 1",
    equals_text="a == 'x'",
    equals_none="a == None",
    equals_list="a == [1]",
    equals_tuple="a == (1, 2)",
    equals_itself="a == a",
    one_equals="1 == a",
    differs="a != 1",
    less="a < 2",
    greater="a > 0.5",
    at_most="a <= 'x'",
    chained_comparison="0 <= a < 2",
    is_none="a is None",
    is_not_none="a is not None",
    is_true="a is True",
    is_itself="a is a",
    is_sentinel="a is SENTINEL",
    is_class="a is int",
    none_or="a if a is not None else 'default'",
    # Arithmetic with constants.
    add="a + 1",
    reflected_add="1 + a",
    add_float="a + 0.5",
    add_text="a + 'x'",
    add_list="a + [1]",
    add_tuple="(1,) + a",
    subtract="a - 1",
    reflected_subtract="1 - a",
    multiply="a * 2",
    reflected_multiply="2 * a",
    list_times="[1, 2] * a",
    divide="a / 2",
    reflected_divide="1 / a",
    floor_divide="a // 2",
    modulo="a % 2",
    text_modulo="'%s' % a",
    power="a ** 2",
    negate="-a",
    positive="+a",
    invert="~a",
    absolute="abs(a)",
    shift="a << 1",
    bit_and="a & 1",
    bit_or="a | 1",
    bit_xor="a ^ 1",
    set_union="{1} | a",
    dict_union="{} | a",
    divided="divmod(a, 2)",
    rounded="round(a)",
    rounded_digits="round(1.26, a)",
    floor="math.floor(a)",
    ceiling="math.ceil(a)",
    square_root="math.sqrt(a)",
    is_nan="math.isnan(a)",
    operator_add="operator.add(a, 1)",
    operator_index="operator.index(a)",
    matrix="a @ V",
    # Indexing.
    first="a[0]",
    last="a[-1]",
    item_x="a['x']",
    item_none="a[None]",
    sliced="a[0:1]",
    sliced_all="a[:]",
    sliced_backwards="a[::-1]",
    indexes_list="LIST[a]",
    indexes_tuple="(1, 2, 3)[a]",
    indexes_text="'abc'[a]",
    indexes_dict="DICT[a]",
    slices_list="LIST[a:]",
    slices_to="LIST[:a]",
    slices_step="(1, 2, 3)[::a]",
    indexes_range="range(5)[a]",
    got="DICT.get(a)",
    got_default="DICT.get(a, 'other')",
    got_literal="{1: 'one', 1.5: 'float', 'x': 'ex'}.get(a)",
    method_get="a.get('x', 0)",
    set_default="{}.setdefault(a, 1)",
    dict_key="{a: 1}",
    dict_pop="{1: 'one'}.pop(a, None)",
    # Containment.
    in_list="a in [1, 'x', None]",
    in_tuple="a in (1, 'x')",
    in_set="a in {1, 'x'}",
    in_dict="a in DICT",
    not_in="a not in [1]",
    in_text="a in 'xyz'",
    in_range="a in range(3)",
    contains_one="1 in a",
    contains_text="'x' in a",
    list_index="[1, 'x'].index(a)",
    list_count="[1, 'x', 1].count(a)",
    # Attributes.
    attribute="a.x",
    attribute_real="a.real",
    attribute_shape="a.shape",
    attribute_dtype="a.dtype",
    attribute_class="a.__class__",
    attribute_name="a.__name__",
    attribute_doc="a.__doc__ is None",
    attribute_dict="sorted(a.__dict__) if not isinstance(a, type) else 0",
    attribute_module="a.__module__",
    attribute_len="a.__len__()",
    has_attribute="hasattr(a, 'x')",
    has_length="hasattr(a, '__len__')",
    has_iterator="hasattr(a, '__iter__')",
    has_by_name="hasattr(1, a)",
    got_attribute="getattr(a, 'x')",
    got_attribute_default="getattr(a, 'x', None)",
    got_by_name="getattr(Point, a, None)",
    variables="sorted(vars(a)) if not isinstance(a, type) else 0",
    method_append="a.append",
    method_items="list(a.items())",
    method_keys="list(a.keys())",
    method_upper="a.upper()",
    method_index="a.index(1)",
    method_count="a.count(1)",
    method_copy="a.copy()",
    method_item="a.item()",
    method_sum="a.sum()",
    method_size="a.size()",
    method_join="','.join(a)",
    method_split="'a1b'.split(a)",
    method_startswith="'xyz'.startswith(a)",
    method_replace="'xyz'.replace('y', a)",
    method_value="a.value",
    # Calls.
    called="a()",
    called_with="a(1)",
    called_keyword="a(x=1)",
    called_tensor="a(V)",
    called_stars="a(*[1], **{})",
    callable_="callable(a)",
    # Conversions.
    int_="int(a)",
    int_base="int('11', a)",
    float_="float(a)",
    complex_="complex(a)",
    str_="str(a)",
    repr_="repr(a)",
    ascii_="ascii(a)",
    bytes_="bytes(a)",
    list_="list(a)",
    tuple_="tuple(a)",
    dict_="dict(a)",
    dict_keyword="dict(x=a)",
    set_="set(a)",
    frozenset_="frozenset(a)",
    deque="collections.deque(a)",
    ordered="collections.OrderedDict(a)",
    counted="collections.Counter(a)",
    range_="range(a)",
    range_three="list(range(0, 6, a))",
    slice_="slice(a)",
    binary="bin(a)",
    hexadecimal="hex(a)",
    character="chr(a)",
    ordinal="ord(a)",
    named_tuple="Point(a, 1)",
    named_tuple_made="Point._make(a)",
    data_class="Record(a)",
    frozen_class="Frozen(a).x",
    enum_made="Colour(a)",
    enum_got="Colour[a]",
    copied="copy.copy(a)",
    partial="functools.partial(takes, a)()",
    from_keys="dict.fromkeys(a)",
    numbers="numpy.asarray(a).shape",
    # Formatting.
    formatted="f'{a}'",
    formatted_repr="f'{a!r}'",
    formatted_str="f'{a!s}'",
    formatted_spec="f'{a:5}'",
    formatted_digits="f'{a:.2f}'",
    formatted_integer="f'{a:d}'",
    formatted_by="f'{1:{a}}'",
    format_function="format(a)",
    format_method="'{0} {0!r}'.format(a)",
    format_attribute="'{0.x}'.format(a)",
    percent_integer="'%d' % a",
    percent_float="'%.1f' % a",
    percent_repr="'%r' % (a,)",
    percent_named="'%(x)s' % a",
    # Hashing.
    hashed="hash(a)",
    hashed_tuple="{(a, 1): 2}[(a, 1)]",
    set_of="len({a, 1})",
    # Classes.
    type_="type(a)",
    type_is="type(a) is int",
    type_equals="type(a) == list",
    type_name="type(a).__name__",
    type_in="type(a) in (int, float)",
    instance_int="isinstance(a, int)",
    instance_several="isinstance(a, (list, tuple, str))",
    instance_union="isinstance(a, int | float)",
    instance_mapping="isinstance(a, collections.abc.Mapping)",
    instance_iterable="isinstance(a, collections.abc.Iterable)",
    instance_hashable="isinstance(a, collections.abc.Hashable)",
    instance_tensor="isinstance(a, torch.Tensor)",
    instance_parameter="isinstance(a, torch.nn.Parameter)",
    instance_of="isinstance(1, a)",
    subclass="issubclass(a, int)",
    subclass_of="issubclass(bool, a)",
    # Torch functions that take numbers.
    tensor_times="V * a",
    times_tensor="a * V",
    tensor_plus="V + a",
    plus_tensor="a + V",
    tensor_minus="V - a",
    tensor_over="V / a",
    over_tensor="a / (V + 1)",
    tensor_power="(V + 1) ** a",
    tensor_equals="V == a",
    tensor_less="V < a",
    tensor_and="torch.tensor([1, 2]) & a",
    full="torch.full((2,), a)",
    full_like="torch.full_like(V, a)",
    add_alpha="torch.add(V, V, alpha=a)",
    clamp="torch.clamp(V, max=a)",
    where="torch.where(V > 1, V, a)",
    masked_fill="V.masked_fill(V > 1, a)",
    leaky="torch.nn.functional.leaky_relu(V - 1, a)",
    layer_norm="torch.nn.functional.layer_norm(V, (3,), eps=a)",
    tensor_of="torch.tensor(a)",
    as_tensor="torch.as_tensor(a)",
    item_of="torch.tensor([1.0, 2.0])[0].item() if a else 0",
    # Sizes and dimensions.
    zeros="torch.zeros(a)",
    ones_two="torch.ones(2, a)",
    arange="torch.arange(a)",
    view="T.view(a)",
    view_two="T.view(a, -1)",
    reshape="T.reshape(a)",
    expand="S.expand(a)",
    repeat="V.repeat(a)",
    summed_over="T.sum(a)",
    summed_keeping="T.sum(0, keepdim=a)",
    mean_over="T.mean(dim=a)",
    squeezed="T.unsqueeze(0).squeeze(a)",
    transposed="T.transpose(0, a)",
    permuted="T.permute(a)",
    tensor_item="T[a]",
    tensor_item_two="T[0, a]",
    tensor_slice="V[a:]",
    tensor_slice_to="V[:a]",
    size_of="T.size(a)",
    shape_item="T.shape[a]",
    narrow="V.narrow(0, 0, a)",
    chunked="torch.chunk(V, a)",
    stacked="torch.stack(a)",
    concatenated="torch.cat(a)",
    einsum="torch.einsum(a, V)",
    # Dtypes, devices.
    to="V.to(a)",
    to_dtype="V.to(dtype=a)",
    zeros_of="torch.zeros(2, dtype=a)",
    zeros_on="torch.zeros(2, device=a)",
    type_as="V.type_as(a)",
    is_floating="torch.is_floating_point(a)",
    result_type="torch.result_type(V, a)",
    dtype_item_size="a.itemsize",
    # Tensors.
    sine="torch.sin(a)",
    relu="torch.nn.functional.relu(a)",
    tensor_method="a.relu()",
    is_tensor="torch.is_tensor(a)",
    equal_tensors="torch.equal(V, a)",
    detached="a.detach()",
    requires_grad="a.requires_grad",
    dimensions="a.dim()",
    matmul="torch.matmul(T, a)",
    linear="torch.nn.functional.linear(V, a)",
    numel="torch.numel(a)",
    to_list="a.tolist()",
    as_numpy="a.numpy()",
    zeros_like="torch.zeros_like(a)",
    no_grad="torch.sin(a).requires_grad",
)

_statements(
    if_="""
if a:
    r = 1
else:
    r = 2
""",
    while_="""
r = 0
while a:
    r += 1
    if r > 2:
        break
""",
    loop="""
r = []
for one in a:
    r.append(one)
    if len(r) > 2:
        break
else:
    r.append("else")
""",
    unpack_two="""
one, two = a
r = (two, one)
""",
    unpack_one="""
(r,) = a
""",
    unpack_rest="""
one, *rest = a
r = (one, rest)
""",
    unpack_pairs="""
r = []
for one, two in a:
    r.append(two)
""",
    assertion="""
assert a, "no"
r = "passed"
""",
    match_constants="""
match a:
    case 0:
        r = "zero"
    case 1 | 2:
        r = "small"
    case "x":
        r = "text"
    case None:
        r = "none"
    case True:
        r = "true"
    case 1.5:
        r = "float"
    case _:
        r = "other"
""",
    match_sequences="""
match a:
    case []:
        r = "empty"
    case [one]:
        r = ("one", one)
    case [1, *rest]:
        r = ("rest", rest)
    case [one, two]:
        r = ("two", one, two)
    case _:
        r = "other"
""",
    match_mappings="""
match a:
    case {"x": one, **rest}:
        r = (one, rest)
    case {1: 2}:
        r = "number"
    case {}:
        r = "mapping"
    case _:
        r = "other"
""",
    match_classes="""
match a:
    case bool():
        r = "bool"
    case int(one):
        r = ("int", one)
    case str() | bytes():
        r = "text"
    case Point(x=1, y=two):
        r = ("point", two)
    case Record(one, two):
        r = ("record", one, two)
    case list() | tuple():
        r = "sequence"
    case dict():
        r = "dict"
    case torch.Tensor():
        r = "tensor"
    case _:
        r = "other"
""",
    match_values="""
match a:
    case Colour.RED:
        r = "red"
    case torch.float32:
        r = "float"
    case math.inf:
        r = "infinite"
    case _:
        r = "other"
""",
    match_guard="""
match a:
    case one if one:
        r = "true"
    case _:
        r = "false"
""",
    match_attributes="""
match a:
    case object(x=1):
        r = "one"
    case object(x=other):
        r = ("x", other)
    case _:
        r = "none"
""",
    with_="""
with a as entered:
    r = entered
""",
    raise_="""
raise a
""",
    raised_from="""
try:
    raise KeyError(1) from a
except KeyError as error:
    r = error.__cause__
""",
    caught="""
try:
    raise ValueError("x")
except a:
    r = "caught"
""",
    tried_int="""
try:
    r = int(a)
except (TypeError, ValueError):
    r = "no number"
""",
    tried_length="""
try:
    r = len(a)
except TypeError:
    r = "no length"
""",
    yielded="""
def inner():
    yield from a
r = list(inner())
""",
    captured="""
def inner():
    return a or "false"
r = inner()
""",
    default_value="""
def inner(one=a):
    return not one
r = inner()
""",
    counted_loop="""
r = 0
for one in range(a):
    r += one
    if one > 3:
        break
""",
    add_in_place="""
r = 1
r += a
""",
    class_base="""
class Inner(a):
    pass
r = Inner.__mro__[1:]
""",
    decorated="""
@a
def inner(*args):
    return 1
r = inner
""",
    branch_between="""
r = V + 1
if a:
    r = r * 2
r = r + 1
""",
    counted_tensor="""
r = V
for one in a:
    r = r + 1
""",
    defaulted_tensor="""
scale = getattr(a, "x", None)
r = V * 2 if scale is None else V
""",
)

_statements(
    writes=True,
    in_place_add="""
a += 1
r = a
""",
    in_place_list="""
a += [1]
r = a
""",
    in_place_or="""
a |= {1: 2}
r = a
""",
    in_place_times="""
a *= 2
r = a
""",
    set_item="""
a[0] = 5
r = a
""",
    set_text_item="""
a["x"] = 5
r = len(a)
""",
    delete_item="""
del a[0]
r = a
""",
    set_attribute="""
a.x = 5
r = a.x
""",
    delete_attribute="""
del a.x
r = hasattr(a, "x")
""",
    appended="""
a.append(3)
r = len(a)
""",
    added="""
a.add(3)
r = len(a)
""",
    updated="""
a.update({"z": 1})
r = a
""",
    popped="""
r = a.pop()
""",
    extended="""
r = [0]
r.extend(a)
""",
    extended_slice="""
r = [0, 1, 2]
r[1:] = a
""",
    cleared="""
a.clear()
r = not a
""",
    sorted_in_place="""
a.sort()
r = a
""",
    consumed="""
next(a)
r = list(a)
""",
    sent="""
r = a.send(None)
""",
    tensor_added="""
a.add_(1)
r = a * 2
""",
    tensor_filled="""
r = torch.zeros(3)
r[0] = a
""",
    tensor_multiplied="""
r = torch.ones(3)
r *= a
""",
)

_expressions(
    TWO_OPERANDS,
    add="a + b",
    subtract="a - b",
    multiply="a * b",
    divide="a / b",
    floor_divide="a // b",
    modulo="a % b",
    matrix="a @ b",
    bit_and="a & b",
    bit_or="a | b",
    equals="a == b",
    differs="a != b",
    less="a < b",
    at_least="a >= b",
    is_="a is b",
    is_not="a is not b",
    in_="a in b",
    not_in="a not in b",
    and_="a and b",
    or_="a or b",
    conditional="a if b else 0",
    both_not="not a and not b",
    item="a[b]",
    sliced="LIST[a:b]",
    attribute="getattr(a, b, 'none')",
    has_attribute="hasattr(a, b)",
    instance="isinstance(a, b)",
    subclass="issubclass(a, b)",
    called="a(b)",
    minimum="min(a, b)",
    maximum="max(a, b)",
    zipped="list(zip(a, b))",
    mapped="list(map(a, b))",
    filtered="list(filter(a, b))",
    divided="divmod(a, b)",
    tuples="(a, b) == (b, a)",
    lists="[a] < [b]",
    dictionary="{a: b}",
    got="{1: a}.get(b, 'none')",
    set_of="len({a, b})",
    formatted="format(a, b)",
    percent="b % a",
    summed="sum(a, b)",
    stars="takes(*a, **b)",
    nexted="next(a, b)",
    ranged="list(range(a, b))",
    chained="list(itertools.chain(a, b))",
    type_is="type(a) is type(b)",
    joined="a.join(b)",
    union="{**a, **b}",
    torch_add="torch.add(a, b)",
    torch_where="torch.where(V > 1, a, b)",
    torch_clamp="torch.clamp(V, a, b)",
    torch_full="torch.full((a,), b)",
    torch_zeros="torch.zeros(a, dtype=b)",
    torch_sum="T.sum(a, b)",
    torch_view="T.view(a, b)",
    torch_matmul="torch.matmul(a, b)",
    torch_item="T[a, b]",
    torch_to="a.to(b)",
    copied_in="V.clone().fill_(a) + b",
)
