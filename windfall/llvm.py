"""LLVM text, written by calls: values, instructions, branches, loops, functions, structures.

Enters: calls such as `code.binary("add", a, b)` or `with code.repeat(begin, end) as loop`. Leaves:
the text of a module, for `jit.py`. Kernels (`codegen`) and the machine code that all entries share
(`runtime/machine`) are written with it; who writes names no block and no phi: control flow nests,
and what it carries or joins is given and answered as values.

Invariant: a value is written once, before every use of it; a value has one element type and a
number of lanes, 1 standing for a plain scalar.

    >>> assembly = Assembly()
    >>> with assembly.function("sum", "i64", "ptr", "i64", exported=True) as code:
    ...     numbers, count = code.parameters
    ...     with code.repeat(ZERO, count, start=[ZERO]) as loop:
    ...         (total,) = loop.carried
    ...         loop.carry(code.binary("add", total, code.word(numbers, loop.index)))
    ...     code.ret(loop.results[0])
    >>> jit.load(assembly.text()).address("sum")
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from windfall.errors import InternalError

BITS = {
    "double": 64,
    "float": 32,
    "half": 16,
    "i128": 128,
    "i64": 64,
    "i32": 32,
    "i16": 16,
    "i8": 8,
    "i1": 1,
}
SUFFIX = {"double": "f64", "float": "f32", "half": "f16", "ptr": "p0"}


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its text, its element type, its lanes."""

    text: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        """The type as written in LLVM."""
        return vector(self.type, self.lanes)

    def __str__(self) -> str:
        return f"{self.full} {self.text}"


def vector(type: str, lanes: int) -> str:
    """The type of `lanes` elements."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def align_of(type: str) -> int:
    """The bytes that a scalar takes in memory, to whose multiples it is aligned."""
    return max(BITS.get(type, 64) // 8, 1)


def mangled(type: str, lanes: int) -> str:
    """The type inside the name of an intrinsic."""
    short = SUFFIX.get(type, type)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: float | int | bool, type: str) -> str:
    """A number as LLVM writes it."""
    if type == "i1":
        return "true" if value else "false"
    if type in ("float", "double"):
        if type == "float":
            value = _rounded(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


def _rounded(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def integer(value: int, type: str = "i64") -> Value:
    """An integer."""
    return Value(str(value), type)


ZERO, NULL = integer(0), Value("null", "ptr")
TRUE, FALSE = Value("true", "i1"), Value("false", "i1")


# ----------------------------------------------------------------------------------- structures


class Struct:
    """Words of memory with names: one declaration for Python, which writes them, and for machine
    code, which reads them. `name*` is an address, `name?` a number that may vary (two words: itself
    and 0, or where it stands in a table and 1), `...` at the end means that more words follow.

    >>> PAIR = Struct("count rows*")
    >>> PAIR.words(2, address)
    """

    def __init__(self, names: str, first: int = 0) -> None:
        self.places: dict[str, int] = {}
        self.types: dict[str, str] = {}
        place = first
        parts = names.split()
        self._open = parts[-1] == "..."
        for name in parts[: len(parts) - self._open]:
            key = name.rstrip("*?")
            self.places[key], self.types[key] = place, "ptr" if name.endswith("*") else "i64"
            place += 2 if name.endswith("?") else 1
        self.size = place  # in words, with those before the first name
        self._count = place - first

    def words(self, *words: int) -> tuple[int, ...]:
        """The words as they stand in memory, if they are as many as the names."""
        count = self._count
        if len(words) != count and not (self._open and len(words) > count):
            raise InternalError(f"{len(words)} words for {', '.join(self.places)}")
        return words

    def named(self, **words: int | tuple[int, int]) -> tuple[int, ...]:
        """The words, each given by its name."""
        if words.keys() != self.places.keys():
            raise InternalError(f"not the same words: {words.keys() ^ self.places.keys()}")
        flat: list[int] = []
        for name in self.places:
            word = words[name]
            flat.extend(word if isinstance(word, tuple) else (word,))
        return self.words(*flat)


class Fields:
    """A structure at an address, as `code` sees it: `fields[name]` reads, `fields[name] = value`
    writes."""

    def __init__(self, code: Code, struct: Struct, base: Value) -> None:
        self.code, self.struct, self.base = code, struct, base

    def at(self, name: str) -> Value:
        """Where a word stands."""
        return self.code.offset(self.base, 8 * self.struct.places[name])

    def get(self, name: str) -> Value:
        """Read a word."""
        return self[name]

    def __getitem__(self, name: str) -> Value:
        return self.code.load(self.struct.types[name], self.at(name))

    def __setitem__(self, name: str, value: Value) -> None:
        self.code.store(value, self.at(name))

    @property
    def end(self) -> Value:
        """Where what follows the named words begins."""
        return self.code.offset(self.base, 8 * self.struct.size)


# -------------------------------------------------------------------------------------- modules


class Assembly:
    """Functions under construction and what they mention: constants, and declarations of what is
    defined elsewhere."""

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}  # text -> name
        self.declared: dict[str, str] = {}  # name -> line
        self.functions: dict[str, str] = {}  # name -> text

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> str:
        """Declare a function; the answer is its name."""
        if name not in self.declared:
            self.declared[name] = f"declare {result} @{name}({', '.join(arguments)})"
        return name

    def constant(self, text: str) -> Value:
        """The address of a constant, given as LLVM text."""
        return Value(self.constants.setdefault(text, f"@constant{len(self.constants)}"), "ptr")

    def octets(self, data: bytes) -> Value:
        """The address of some bytes."""
        quoted = "".join(f"\\{byte:02X}" for byte in data)
        return self.constant(f'[{len(data)} x i8] c"{quoted}"')

    def string(self, text: str) -> Value:
        """The address of a text that ends with a zero."""
        return self.octets(text.encode() + b"\0")

    @contextmanager
    def function(
        self, name: str, result: str, *parameters: str, exported: bool = False, attributes: str = ""
    ) -> Iterator[Code]:
        """Write a function, given the types of its parameters."""
        code = Code(self)
        code.parameters = tuple(Value(f"%p{place}", type) for place, type in enumerate(parameters))
        yield code
        linkage = "" if exported else "internal "
        head = f"{linkage}{result} @{name}({', '.join(map(str, code.parameters))}){attributes}"
        self.functions[name] = code.text(head)

    @property
    def externals(self) -> Iterator[str]:
        """Names that others must define."""
        return (
            name
            for name in self.declared
            if name not in self.functions and not name.startswith("llvm.")
        )

    def text(self) -> str:
        """All of it."""
        constants = [f"{name} = internal constant {text}" for text, name in self.constants.items()]
        declared = [line for name, line in self.declared.items() if name not in self.functions]
        return "\n".join([*constants, *self.functions.values(), *declared])


# ---------------------------------------------------------------------------------------- code


@dataclass(slots=True)
class Block:
    """Lines that run together; `label` is that of the last basic block among them, `ended` whether
    nothing more can be reached in it."""

    label: str
    lines: list[str] = field(default_factory=list)
    ended: bool = False


@dataclass(slots=True)
class Repeat:
    """A loop that is open: its index, and what it carries from one iteration to the next. When it
    is closed, `after` is the first index that it did not do and `results` what it carried last."""

    index: Value
    carried: tuple[Value, ...]
    following: tuple[Value, ...]
    after: Value
    results: tuple[Value, ...] = ()

    def carry(self, *values: Value) -> None:
        """What the next iteration starts with."""
        self.following = values


# Rounds of `Code.transpose`: lanes for the first and the second of a pair, and how far it is apart.
_TRANSPOSE = (
    ((0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15), 1),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15), 2),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15), 4),
)


class Code:
    """A function under construction: a stack of blocks, the innermost loop's last."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.parameters: tuple[Value, ...] = ()
        self.blocks: list[Block] = [Block("entry")]
        self.at = 0  # the block that is written to
        self.active: Value | None = None  # lanes that count; None: all of them
        self._count = 0
        self._exits: dict[str, str] = {}  # answer -> the block that returns it

    # ------------------------------------------------------------------------------- writing

    def fresh(self) -> str:
        """A name not used yet."""
        self._count += 1
        return f"%v{self._count}"

    def label(self, hint: str) -> str:
        """A label not used yet."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """One line at the end of the block."""
        self.blocks[self.at].lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin a basic block."""
        block = self.blocks[self.at]
        block.lines.append(f"{label}:")
        block.label, block.ended = label, False

    def write(self, text: str, type: str, lanes: int = 1) -> Value:
        """An instruction with a result."""
        name = self.fresh()
        self.blocks[self.at].lines.append(f"  {name} = {text}")
        return Value(name, type, lanes)

    def push(self) -> None:
        """Write inside: into a block that is put where it belongs by `pop`."""
        self.blocks.append(Block(""))
        self.at = len(self.blocks) - 1

    def pop(self) -> Block:
        """The innermost block; what follows is written outside it."""
        block = self.blocks.pop()
        self.at = len(self.blocks) - 1
        return block

    def put(self, block: Block) -> None:
        """Write a finished block here."""
        here = self.blocks[self.at]
        here.lines.extend(block.lines)
        if block.label:
            here.label, here.ended = block.label, block.ended

    def text(self, head: str) -> str:
        """The whole function, its head being what stands before the body."""
        for answer, label in self._exits.items():
            self.start(label)
            self.line(f"ret {answer}")
        body = "\n".join(self.blocks[0].lines)
        return f"define {head} {{\nentry:\n{body}\n}}\n"

    # -------------------------------------------------------------------------- control flow

    def jump(self, label: str) -> None:
        """Go on there, unless this place cannot be reached."""
        if not self.blocks[self.at].ended:
            self.line(f"br label %{label}")
            self.blocks[self.at].ended = True

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Go on at one of two labels."""
        self.line(f"br {condition}, label %{yes}, label %{no}")
        self.blocks[self.at].ended = True

    def ret(self, value: Value | None = None) -> None:
        """Leave the function."""
        self.line("ret void" if value is None else f"ret {value}")
        self.blocks[self.at].ended = True

    def require(self, condition: Value, answer: Value) -> None:
        """Leave the function with `answer` unless the condition holds."""
        leave = self._exits.get(str(answer))
        if leave is None:
            leave = self._exits[str(answer)] = self.label("leave")
        fine = self.label("fine")
        self.branch(condition, fine, leave)
        self.start(fine)

    @contextmanager
    def when(self, condition: Value, inside: str = "then", after: str = "after") -> Iterator[None]:
        """What is written inside is done only where the condition holds."""
        yes, no = self.label(inside), self.label(after)
        self.branch(condition, yes, no)
        self.start(yes)
        yield
        self.jump(no)
        self.start(no)

    def either(
        self,
        condition: Value,
        yes: Callable[[], Value],
        no: Callable[[], Value] | Value,
        names: tuple[str, ...] = ("then", "else", "joined"),
    ) -> Value:
        """What one of two pieces of code answers; a value stands for a piece that does nothing."""
        if isinstance(no, Value):
            before, (inside, after) = self.blocks[self.at].label, map(self.label, names[::2])
            self.branch(condition, inside, after)
            edges = [(no, before)]
            pieces = [(inside, yes)]
        else:
            inside, other, after = map(self.label, names)
            self.branch(condition, inside, other)
            edges, pieces = [], [(inside, yes), (other, no)]
        return self._join(pieces, after, edges)

    def one_of(
        self,
        condition: Value,
        yes: Callable[[], object],
        no: Callable[[], object],
        names: tuple[str, str, str] = ("then", "else", "joined"),
    ) -> None:
        """Do one of two things."""
        inside, other, after = map(self.label, names)
        self.branch(condition, inside, other)
        for label, piece in ((inside, yes), (other, no)):
            self.start(label)
            piece()
            self.jump(after)
        self.start(after)

    def switch(
        self,
        number: Value,
        cases: Mapping[int, Callable[[], Value]],
        otherwise: Callable[[], Value | None],
    ) -> Value:
        """What the piece of code for this number answers."""
        labels = {case: self.label("case") for case in cases}
        default, after = self.label("otherwise"), self.label("joined")
        rows = " ".join(f"{number.full} {case}, label %{labels[case]}" for case in cases)
        self.line(f"switch {number}, label %{default} [ {rows} ]")
        pieces = [(labels[case], piece) for case, piece in cases.items()]
        return self._join([*pieces, (default, otherwise)], after, [])

    def _join(
        self,
        pieces: Sequence[tuple[str, Callable[[], Value | None]]],
        after: str,
        edges: list[tuple[Value, str]],
    ) -> Value:
        for label, piece in pieces:
            self.start(label)
            value = piece()
            if not self.blocks[self.at].ended:
                assert value is not None, "a piece that goes on answers something"
                edges.append((value, self.blocks[self.at].label))
                self.jump(after)
        self.start(after)
        return self._phi(edges)

    def _phi(self, edges: Sequence[tuple[Value, str]]) -> Value:
        first = edges[0][0]
        text = ", ".join(f"[{value.text}, %{label}]" for value, label in edges)
        return self.write(f"phi {first.full} {text}", first.type, first.lanes)

    @contextmanager
    def repeat(
        self,
        begin: Value,
        end: Value,
        step: int = 1,
        start: Sequence[Value] = (),
        certain: bool = False,
    ) -> Iterator[Repeat]:
        """A loop over `begin`, `begin + step`, … while a whole step fits below `end`; `start` is
        what it carries into the first iteration; `certain`: there is one."""
        head, leave = self.label("loop"), self.label("done")
        index = Value(self.fresh(), "i64")
        carried = tuple(Value(self.fresh(), one.type, one.lanes) for one in start)
        loop = Repeat(index, carried, carried, begin)
        self.push()
        self.start(head)
        yield loop
        following = self.write(f"add nuw nsw i64 {index.text}, {step}", "i64")
        self.branch(self._fits(following, end, step, "add nuw nsw"), head, leave)
        block = self.pop()
        before, last = self.blocks[self.at].label, block.label
        if certain:
            self.jump(head)
        else:
            self.branch(self._fits(begin, end, step, "add"), head, leave)
        edges = [(index, begin, following), *zip(carried, start, loop.following, strict=True)]
        block.lines[1:1] = [
            f"  {name.text} = phi {name.full} [{first.text}, %{before}], [{final.text}, %{last}]"
            for name, first, final in edges
        ]
        self.put(block)
        self.start(leave)
        loop.after, loop.results = following, loop.following
        if not certain:
            loop.after, *results = (
                self._phi([(first, before), (final, last)]) for _, first, final in edges
            )
            loop.results = tuple(results)

    @contextmanager
    def once(
        self, begin: Value, end: Value, start: Sequence[Value], certain: bool
    ) -> Iterator[Repeat]:
        """The rest of a loop, done in one piece if there is any: `certain`, that there is."""
        head, leave = self.label("tail"), self.label("whole")
        loop = Repeat(begin, (*start,), (*start,), end)
        self.push()
        self.start(head)
        yield loop
        self.jump(leave)
        block = self.pop()
        before, last = self.blocks[self.at].label, block.label
        if certain:
            self.jump(head)
        else:
            self.branch(self.compare("icmp ult", begin, end), head, leave)
        self.put(block)
        self.start(leave)
        loop.results = loop.following
        if not certain:
            loop.results = tuple(
                self._phi([(first, before), (final, last)])
                for first, final in zip(start, loop.following, strict=True)
            )

    def _fits(self, index: Value, end: Value, step: int, add: str) -> Value:
        """Whether a whole step from `index` on does not go past the end."""
        if step == 1:
            return self.compare("icmp ult", index, end)
        return self.compare("icmp ule", self.binary(add, index, integer(step)), end)

    # ------------------------------------------------------------------------------ operands

    def constant(self, value: float | int | bool, type: str, lanes: int = 1) -> Value:
        """A number, in every lane."""
        text = literal(value, type)
        return Value(text if lanes == 1 else f"splat ({type} {text})", type, lanes)

    def like(self, value: float | int | bool, other: Value) -> Value:
        """A number of the type of `other`."""
        return self.constant(value, other.type, other.lanes)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, f"{value} has lanes already"
        if not value.text.startswith("%"):
            return Value(f"splat ({value.type} {value.text})", value.type, lanes)
        one = self.write(
            f"insertelement {vector(value.type, lanes)} poison, {value}, i64 0",
            value.type,
            lanes,
        )
        return self.write(
            f"shufflevector {one}, {one.full} poison, <{lanes} x i32> zeroinitializer",
            value.type,
            lanes,
        )

    def _pair(self, left: Value, right: Value | int) -> tuple[Value, Value]:
        if isinstance(right, int):
            return left, self.like(right, left)
        if left.lanes == right.lanes:
            return left, right
        lanes = max(left.lanes, right.lanes)
        return self.splat(left, lanes), self.splat(right, lanes)

    def same_lanes(self, *values: Value) -> tuple[Value, ...]:
        """The values, scalars spread to the lanes of the others."""
        lanes = max(value.lanes for value in values)
        return tuple(self.splat(value, lanes) for value in values)

    # -------------------------------------------------------------------------- instructions

    def binary(self, name: str, left: Value, right: Value | int) -> Value:
        """`name left, right`."""
        left, right = self._pair(left, right)
        return self.write(f"{name} {left}, {right.text}", left.type, left.lanes)

    def unary(self, name: str, value: Value) -> Value:
        """`name value`."""
        return self.write(f"{name} {value}", value.type, value.lanes)

    def add(self, left: Value, right: Value) -> Value:
        """A floating sum that may contract with a product."""
        return self.binary("fadd contract", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        """A floating difference that may contract with a product."""
        return self.binary("fsub contract", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        """A floating product that may contract with a sum."""
        return self.binary("fmul contract", left, right)

    def div(self, left: Value, right: Value) -> Value:
        """A floating quotient."""
        return self.binary("fdiv", left, right)

    def compare(self, name: str, left: Value, right: Value | int) -> Value:
        """`fcmp olt`, `icmp slt` and so on."""
        left, right = self._pair(left, right)
        return self.write(f"{name} {left}, {right.text}", "i1", left.lanes)

    def equal(self, left: Value, right: Value | int) -> Value:
        """Whether two integers, or two addresses, are the same."""
        return self.compare("icmp eq", left, right)

    def different(self, left: Value, right: Value | int) -> Value:
        """Whether they are not."""
        return self.compare("icmp ne", left, right)

    def both(self, *conditions: Value) -> Value:
        """Whether all of them hold."""
        return functools.reduce(functools.partial(self.binary, "and"), conditions)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where the condition holds, else `no`."""
        lanes = max(condition.lanes, yes.lanes, no.lanes)
        yes, no = self.splat(yes, lanes), self.splat(no, lanes)
        if condition.lanes not in (1, lanes):
            raise AssertionError(f"{condition} selects from {yes}")
        return self.write(f"select {condition}, {yes}, {no}", yes.type, lanes)

    def convert(self, name: str, value: Value, type: str) -> Value:
        """`sext`, `fptosi`, `bitcast` and so on."""
        return self.write(f"{name} {value} to {vector(type, value.lanes)}", type, value.lanes)

    def intrinsic(self, name: str, *values: Value, result: str = "") -> Value:
        """An overloaded LLVM intrinsic of its first argument's type."""
        values = self.same_lanes(*values)
        first = values[0]
        type = result or first.type
        full = f"llvm.{name}.{mangled(first.type, first.lanes)}"
        arguments = [value.full for value in values]
        self.assembly.declare(full, vector(type, first.lanes), arguments)
        text = ", ".join(map(str, values))
        flags = "contract " if first.type in ("float", "double") and name == "fma" else ""
        return self.write(
            f"call {flags}{vector(type, first.lanes)} @{full}({text})", type, first.lanes
        )

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def call(
        self, function: str | Value, result: str, *values: Value | int, lanes: int = 1
    ) -> Value:
        """Call a function, by its name or its address."""
        full = vector(result, lanes)
        given = [integer(value) if isinstance(value, int) else value for value in values]
        if isinstance(function, str):
            self.assembly.declare(function, full, [value.full for value in given])
            function = Value(f"@{function}", "ptr")
        text = f"call {full} {function.text}({', '.join(map(str, given))})"
        if result == "void":
            self.line(text)
            return Value("", "void")
        return self.write(text, result, lanes)

    def tail_call(self, function: Value, result: str, *values: Value) -> None:
        """Leave the function by another one of the same type, in place of this one."""
        given = ", ".join(map(str, values))
        self.ret(self.write(f"musttail call {result} {function.text}({given})", result))

    # -------------------------------------------------------------------------------- memory

    def element(self, base: Value, place: Value | int, type: str = "i8") -> Value:
        """The address of an element of a row."""
        if isinstance(place, int):
            place = integer(place)
        return self.write(f"getelementptr {type}, ptr {base.text}, {place}", "ptr")

    def offset(self, base: Value, bytes: int) -> Value:
        """An address so many bytes further on."""
        return base if bytes == 0 else self.element(base, bytes)

    def load(self, type: str, address: Value, lanes: int = 1) -> Value:
        """What stands in memory; it is aligned as one element is."""
        full = vector(type, lanes)
        return self.write(f"load {full}, ptr {address.text}, align {align_of(type)}", type, lanes)

    def store(self, value: Value, address: Value) -> None:
        """Write to memory."""
        self.line(f"store {value}, ptr {address.text}, align {align_of(value.type)}")

    def word(self, base: Value, place: Value | int, type: str = "i64") -> Value:
        """An element of a row of words: a number or an address."""
        return self.load(type, self.element(base, place, type) if place != 0 else base)

    def field(self, object: Value, bytes: int, type: str = "i64") -> Value:
        """What stands so many bytes behind an address."""
        return self.load(type, self.offset(object, bytes))

    def reserve(self, type: str, align: int = 8) -> Value:
        """Memory on the stack, for as long as the function runs."""
        name = self.fresh()
        self.blocks[0].lines.insert(0, f"  {name} = alloca {type}, align {align}")
        return Value(name, "ptr")

    # --------------------------------------------------------------------------------- lanes

    def part(self, value: Value, start: int, count: int) -> Value:
        """Some neighbouring lanes of a vector; one lane gives a scalar."""
        if value.lanes == count:
            return value
        if count == 1:
            return self.write(f"extractelement {value}, i64 {start}", value.type)
        mask = ", ".join(f"i32 {start + lane}" for lane in range(count))
        return self.write(
            f"shufflevector {value}, {value.full} poison, <{count} x i32> <{mask}>",
            value.type,
            count,
        )

    def join(self, parts: list[Value]) -> Value:
        """Vectors (or scalars) of one size one after the other; their number is a power of 2."""
        if len(parts) > 1 and parts[0].lanes == 1:
            result = Value("poison", parts[0].type, len(parts))
            for lane, part in enumerate(parts):
                result = self.write(
                    f"insertelement {result}, {part}, i64 {lane}", part.type, len(parts)
                )
            return result
        while len(parts) > 1:
            lanes = parts[0].lanes * 2
            mask = ", ".join(f"i32 {lane}" for lane in range(lanes))
            parts = [
                self.write(f"shufflevector {a}, {b}, <{lanes} x i32> <{mask}>", a.type, lanes)
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def shuffle(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        """Chosen lanes of two vectors, those of the second counted after those of the first."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {left}, {right}, <{len(lanes)} x i32> <{mask}>"
        return self.write(text, left.type, len(lanes))

    def transpose(self, rows: list[Value]) -> list[Value]:
        """Eight vectors of eight lanes, rows made columns: three rounds that x86 has instructions
        for."""
        for low, high, distance in _TRANSPOSE:
            made: dict[int, Value] = {}
            for place in range(8):
                if not place & distance:
                    pair = rows[place], rows[place | distance]
                    made[place] = self.shuffle(*pair, low)
                    made[place | distance] = self.shuffle(*pair, high)
            rows = [made[place] for place in range(8)]
        return rows

    def reverse(self, value: Value) -> Value:
        """The lanes in opposite order."""
        mask = ", ".join(f"i32 {lane}" for lane in reversed(range(value.lanes)))
        return self.write(
            f"shufflevector {value}, {value.full} poison, <{value.lanes} x i32> <{mask}>",
            value.type,
            value.lanes,
        )

    def iota(self, type: str, lanes: int, step: int = 1) -> Value:
        """`0, step, 2 * step, …`."""
        if lanes == 1:
            return Value("0", type)
        numbers = ", ".join(f"{type} {lane * step}" for lane in range(lanes))
        return Value(f"<{numbers}>", type, lanes)
