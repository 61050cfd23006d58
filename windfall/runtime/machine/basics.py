"""What the functions of the machine are written with.

Enters: Python functions marked `@function` or `@step`. Leaves: `FUNCTIONS`, all of them, which
`support.py` writes into one assembly. Invariant: a table that machine code reads has one `Struct`,
by which Python fills it: that of a step stands at the function that carries it out.

    @step("object* class*")
    def type_(code: MachineCode, record: Fields) -> None:
        code.check(code.equal(code.type_of(code.value(record)), record["class"]))

A record of a check: address of its step, its size in bytes, then the words of the step's structure.
A step that holds goes on to the next record itself, so nothing stands between two of them; the last
is `end`. Answers: 0 miss, 1 all hold, 2 start the check again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from windfall.dataclass import dataclass
from windfall.llvm import FALSE, NULL, ZERO, Assembly, Code, Fields, Struct, Value, integer
from windfall.torch_abi import ObjectLayout, StorageCount, TensorLayout, ThreadLayout

MISS, HOLDS, AGAIN = (integer(answer, "i32") for answer in range(3))
RECORD_WORDS = 2  # before the operands


@dataclass(frozen=True, slots=True)
class AbiFacts:
    """Where this build of CPython and torch has things."""

    objects: ObjectLayout
    tensors: TensorLayout
    thread: ThreadLayout
    dict_version: int | None  # None: every read looks its keys up again: slower, equally right
    storage_count: StorageCount | None


class MachineCode(Code):
    """A function of the machine under construction."""

    def __init__(self, assembly: Assembly, facts: AbiFacts, parameters: Sequence[str]) -> None:
        super().__init__(assembly, parameters)
        self.facts = facts
        self.objects, self.tensors = facts.objects, facts.tensors

    def value(self, record: Fields, name: str = "object") -> Value:
        """The value that an operand stands for: what is in its cell."""
        return self.load("ptr", record[name])

    def type_of(self, object: Value) -> Value:
        """The class of a Python object."""
        return self.field(object, self.objects.type, "ptr")

    def check(self, condition: Value) -> None:
        """The guard fails unless this holds."""
        self.require(condition, MISS)

    def check_range(self, number: Value, record: Fields) -> None:
        """The guard fails unless the number is from `least` to `greatest`."""
        enough = self.compare("icmp sge", number, record["least"])
        self.check(self.both(enough, self.compare("icmp sle", number, record["greatest"])))

    def check_words(self, *pairs: tuple[Value, Value]) -> None:
        """The guard fails unless the words of each pair are the same; one branch for all."""
        differences = [self.binary("xor", have, wanted) for have, wanted in pairs]
        either = functools.partial(self.binary, "or")
        self.check(self.equal(functools.reduce(either, differences), 0))

    def small(self, symbol: str, *arguments: Value) -> Value:
        """What a function of torch answers as 8 bits, as a word."""
        return self.convert("zext", self.call(symbol, "i8", *arguments), "i64")

    def flag(self, symbol: str, *arguments: Value) -> Value:
        """What a function of torch answers as a C++ bool, as a word."""
        return self.binary("and", self.small(symbol, *arguments), 1)

    def outcome(self, condition: Value) -> Value:
        """Whether something holds, as a word."""
        return self.convert("zext", condition, "i64")

    def hold(self, object: Value) -> None:
        """One more reference."""
        self.call("Py_IncRef", "void", object)

    def drop(self, object: Value) -> None:
        """One reference less."""
        self.call("Py_DecRef", "void", object)

    def integer_of(self, object: Value) -> tuple[Value, Value]:
        """The value of a Python integer, and whether it fits 64 bits."""
        overflow = self.reserve("i32", 4)
        value = self.call("PyLong_AsLongLongAndOverflow", "i64", object, overflow)
        return value, self.equal(self.load("i32", overflow), 0)

    def raise_error(self, name: str, text: str) -> None:
        """Set an exception of Python's own."""
        kind = self.load("ptr", self.assembly.outside(f"PyExc_{name}"))
        self.call("PyErr_SetString", "void", kind, self.assembly.string(text))

    def vectorcall(
        self, function: Value, arguments: Value, count: Value | int, names: Value = NULL
    ) -> Value:
        """Call a Python object."""
        return self.call("PyObject_Vectorcall", "ptr", function, arguments, count, names)

    def copy(self, target: Value, source: Value, words: Value) -> None:
        """Copy words."""
        bytes = self.binary("mul", words, 8)
        self.call("llvm.memcpy.p0.p0.i64", "void", target, source, bytes, FALSE)

    def clear(self, target: Value, words: Value) -> None:
        """Set words to zero."""
        bytes, zero = self.binary("mul", words, 8), integer(0, "i8")
        self.call("llvm.memset.p0.i64", "void", target, zero, bytes, FALSE)

    def reserve_words(self, count: Value) -> Value:
        """Words on the stack, as many as a value says; not in a loop."""
        return self.write(f"alloca i64, {count}, align 8", "ptr")

    @contextmanager
    def each(self, rows: Value, count: Value, struct: Struct) -> Iterator[tuple[Value, Fields]]:
        """A loop over rows of a table."""
        with self.repeat(ZERO, count) as loop:
            first = self.binary("mul", loop.index, struct.size)
            yield loop.index, Fields(self, struct, self.element(rows, first, "i64"))


Body = Callable[..., None]


class MachineFunction:
    """A function of the machine; calling it writes a call."""

    def __init__(
        self, body: Body, name: str, result: str, parameters: Sequence[str], exported: bool
    ) -> None:
        self.body, self.name = body, name
        self.result, self.parameters, self.exported = result, parameters, exported

    def __call__(self, code: Code, *values: Value | int) -> Value:
        """Write a call."""
        return code.call(self.name, self.result, *values)

    @property
    def address(self) -> Value:
        """For those who call it back."""
        return Value(f"@{self.name}", "ptr")

    def write(self, assembly: Assembly, facts: AbiFacts) -> None:
        """Write the function itself."""
        code = MachineCode(assembly, facts, self.parameters)
        self.body(code, *code.parameters)
        if self.result == "void":
            code.leave()
        assembly.add(code, self.name, self.result, exported=self.exported)


class CheckStep(MachineFunction):
    """A step of a check: `i32 (ptr record, ptr args)`."""

    def __init__(self, body: Body, name: str, struct: Struct) -> None:
        self.struct, self.walk = struct, body
        super().__init__(self._whole, f"op.{name}", "i32", ("ptr", "ptr"), True)

    def _whole(self, code: MachineCode, record: Value, arguments: Value) -> None:
        self.walk(code, Fields(code, self.struct, record))
        if code.open:
            following = code.element(record, code.word(record, 1))
            code.tail_call(code.load("ptr", following), "i32", following, arguments)


FUNCTIONS: list[MachineFunction] = []
STEPS: dict[str, CheckStep] = {}


def function(
    result: str, *parameters: str, name: str = "", exported: bool = False
) -> Callable[[Body], MachineFunction]:
    """Make a Python function one of the machine: it is given code and its parameters."""

    def made(body: Body) -> MachineFunction:
        full = name or f"{body.__module__.rpartition('.')[2]}.{body.__name__}"
        FUNCTIONS.append(MachineFunction(body, full, result, parameters, exported))
        return FUNCTIONS[-1]

    return made


def step(fields: str) -> Callable[[Body], CheckStep]:
    """Make a Python function a step, given the words of its record."""

    def made(body: Body) -> CheckStep:
        name = body.__name__.rstrip("_")
        found = STEPS[name] = CheckStep(body, name, Struct(fields, RECORD_WORDS))
        FUNCTIONS.append(found)
        return found

    return made
