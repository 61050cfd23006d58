"""Functions: control flow that nests, and the assembly that they are put together in.

Enters: calls such as `with code.repeat(begin, end) as loop`. Leaves: the text of a module.
Invariant: who writes names no block and no phi: what control flow carries or joins is given and
answered as values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from windfall.dataclass import dataclass
from windfall.llvm.instructions import Instructions
from windfall.llvm.values import Struct, Value, integer


@dataclass(slots=True)
class CountedLoop:
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


# Of `Code.switch`: for one or more numbers each, what is done then.
Cases = dict[tuple[int, ...], Callable[[], Value]]


class Code(Instructions):
    """A function under construction."""

    def __init__(self, assembly: Assembly, parameters: Sequence[str] = ()) -> None:
        super().__init__(assembly, parameters)
        self._exits: dict[str, str] = {}  # answer -> the block that returns it

    def text(self, head: str) -> str:
        """The whole function, its head being what stands before the body."""
        for answer, label in self._exits.items():
            self.start(label)
            self.line(f"ret {answer}")
        body = "\n".join(self.blocks[0].lines)
        return f"define {head} {{\nentry:\n{body}\n}}\n"

    def jump(self, label: str) -> None:
        """Go on there, unless this place cannot be reached."""
        if self.open:
            self.line(f"br label %{label}")
            self.blocks[self.at].ended = True

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Go on at one of two labels."""
        self.line(f"br {condition}, label %{yes}, label %{no}")
        self.blocks[self.at].ended = True

    @property
    def open(self) -> bool:
        """Whether what is written next can be reached."""
        return not self.blocks[self.at].ended

    def leave(self) -> None:
        """Leave a function that answers nothing, if that has not been done."""
        if self.open:
            self.ret()

    def ret(self, value: Value | None = None) -> None:
        """Leave the function."""
        self.line("ret void" if value is None else f"ret {value}")
        self.blocks[self.at].ended = True

    def tail_call(self, function: Value, result: str, *values: Value) -> None:
        """Leave the function by another one of the same type, in place of this one."""
        given = ", ".join(map(str, values))
        self.ret(self.write(f"musttail call {result} {function.text}({given})", result))

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
        cases: Cases,
        otherwise: Callable[[], Value | None],
    ) -> Value:
        """What the piece of code for this number answers; each piece is for one or more."""
        labels = [self.label("case") for _ in cases]
        default, after = self.label("otherwise"), self.label("joined")
        rows = " ".join(
            f"{number.full} {one}, label %{label}"
            for numbers, label in zip(cases, labels, strict=True)
            for one in numbers
        )
        self.line(f"switch {number}, label %{default} [ {rows} ]")
        pieces = zip(labels, cases.values(), strict=True)
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
            if self.open:
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
    ) -> Iterator[CountedLoop]:
        """A loop over `begin`, `begin + step`, … while a whole step fits below `end`; `start` is
        what it carries into the first iteration; `certain`: there is one."""
        head, leave = self.label("loop"), self.label("done")
        index = Value(self.fresh(), "i64")
        carried = tuple(Value(self.fresh(), one.type, one.lanes) for one in start)
        loop = CountedLoop(index, carried, carried, begin)
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
    ) -> Iterator[CountedLoop]:
        """The rest of a loop, done in one piece if there is any: `certain`, that there is."""
        head, leave = self.label("tail"), self.label("whole")
        loop = CountedLoop(begin, (*start,), (*start,), end)
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


class Fields:
    """A structure at an address, as `code` sees it: `fields[name]` reads, `fields[name] = value`
    writes."""

    def __init__(self, code: Code, struct: Struct, base: Value) -> None:
        self.code, self.struct, self.base = code, struct, base

    def at(self, name: str) -> Value:
        """Where a word stands."""
        return self.code.offset(self.base, self.struct.offset(name))

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


class Assembly:
    """Functions under construction and what they mention: constants, and declarations of what is
    defined elsewhere."""

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}  # text -> name
        self.variables: dict[str, str] = {}  # name -> line
        self.declared: dict[str, str] = {}  # name -> line
        self.functions: dict[str, str] = {}  # name -> text

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> Value:
        """The address of a function, defined here or elsewhere."""
        if name not in self.declared:
            self.declared[name] = f"declare {result} @{name}({', '.join(arguments)})"
        return Value(f"@{name}", "ptr")

    def outside(self, name: str) -> Value:
        """The address of data that are defined elsewhere."""
        self.declared.setdefault(name, f"@{name} = external global ptr")
        return Value(f"@{name}", "ptr")

    def variable(self, name: str, type: str) -> Value:
        """The address of memory of this module, zeros at first."""
        self.variables[name] = f"@{name} = internal global {type} zeroinitializer"
        return Value(f"@{name}", "ptr")

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
        code = Code(self, parameters)
        yield code
        self.add(code, name, result, exported=exported, attributes=attributes)

    def add(
        self, code: Code, name: str, result: str, *, exported: bool, attributes: str = ""
    ) -> None:
        """Add a function that has been written."""
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
        data = [*constants, *self.variables.values()]
        return "\n".join([*data, *self.functions.values(), *declared])
