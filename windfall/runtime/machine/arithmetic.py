"""Integer arithmetic and comparison over words of memory, and the steps of a check that do it, that
read the numbers for it, and that compare floats."""

from __future__ import annotations

import functools

from windfall.llvm import FALSE, TRUE, ZERO, Cases, Fields, Struct, Value
from windfall.runtime.machine.basics import MISS, MachineCode, function, step

# What an instruction does, and where its operands stand, in bytes from a base.
COPY, ADD, MULTIPLY, FLOOR_DIVIDE, MODULO, MINIMUM, MAXIMUM = range(7)
EQUAL, DIFFERENT, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = range(7, 13)
INSTRUCTION = Struct("what target left right")

_COMPARISONS = {
    EQUAL: "eq",
    DIFFERENT: "ne",
    LESS: "slt",
    LESS_OR_EQUAL: "sle",
    GREATER: "sgt",
    GREATER_OR_EQUAL: "sge",
}

# NaN is different from everything, and in no other relation to anything.
_FLOAT_COMPARISONS = {
    EQUAL: "oeq",
    DIFFERENT: "une",
    LESS: "olt",
    LESS_OR_EQUAL: "ole",
    GREATER: "ogt",
    GREATER_OR_EQUAL: "oge",
}


@function("i1", "i64", "ptr", "i64")
def calculate(code: MachineCode, base: Value, instructions: Value, count: Value) -> None:
    """Instructions in turn. False: a comparison does not hold, a number does not fit 64 bits, or
    something is divided by zero."""
    with code.each(instructions, count, INSTRUCTION) as (_, instruction):
        what = instruction["what"]
        target, *places = (
            code.convert("inttoptr", code.binary("add", base, instruction[name]), "ptr")
            for name in ("target", "left", "right")
        )
        left, right = (code.load("i64", place) for place in places)
        code.store(_result(code, what, left, right), target)
    code.ret(TRUE)


def _result(code: MachineCode, what: Value, left: Value, right: Value) -> Value:
    def checked(name: str) -> Value:
        pair = code.call(f"llvm.{name}.with.overflow.i64", "{i64, i1}", left, right)
        result, large = (
            code.write(f"extractvalue {pair}, {n}", t) for n, t in enumerate(("i64", "i1"))
        )
        code.require(code.equal(large, 0), FALSE)
        return result

    def chosen(name: str) -> Value:
        return code.select(code.compare(f"icmp {name}", left, right), left, right)

    def compared(name: str) -> Value:
        code.require(code.compare(f"icmp {name}", left, right), FALSE)
        return left  # which is also the target: nothing new is written

    def unknown() -> Value:
        code.ret(FALSE)
        return ZERO

    def divided() -> Value:
        return code.select(code.equal(what, FLOOR_DIVIDE), *_divided(code, left, right))

    cases: Cases = {
        (COPY,): lambda: left,
        (ADD,): lambda: checked("sadd"),
        (MULTIPLY,): lambda: checked("smul"),
        (FLOOR_DIVIDE, MODULO): divided,
        (MINIMUM,): lambda: chosen("slt"),
        (MAXIMUM,): lambda: chosen("sgt"),
    }
    for number, name in _COMPARISONS.items():
        cases[number,] = functools.partial(compared, name)
    return code.switch(what, cases, unknown)


def _divided(code: MachineCode, left: Value, right: Value) -> tuple[Value, Value]:
    """Quotient and remainder, rounded down as in Python."""
    code.require(code.different(right, 0), FALSE)
    large = code.both(code.equal(right, -1), code.equal(left, -(1 << 63)))
    code.require(code.equal(large, 0), FALSE)
    quotient, rest = (code.binary(name, left, right) for name in ("sdiv", "srem"))
    differ = code.compare("icmp slt", code.binary("xor", rest, right), 0)
    below = code.both(code.different(rest, 0), differ)
    less = code.convert("sext", below, "i64")
    correction = code.select(below, right, ZERO)
    return code.binary("add", quotient, less), code.binary("add", rest, correction)


@step("count ...")
def arithmetic(code: MachineCode, record: Fields) -> None:
    """Instructions whose places are addresses."""
    code.check(calculate(code, ZERO, record.end, record["count"]))


@step("object* target* least greatest")
def number(code: MachineCode, record: Fields) -> None:
    """Read an exact int of this range."""
    object = code.value(record)
    code.check(code.equal(code.type_of(object), code.assembly.outside("PyLong_Type")))
    value, fits = code.integer_of(object)
    code.store(value, record["target"])
    code.check(fits)
    code.check_range(value, record)


@step("object* class* offset target* least greatest")
def count(code: MachineCode, record: Fields) -> None:
    """Read a number that stands in an object of this class."""
    object = code.value(record)
    code.check(code.equal(code.type_of(object), record["class"]))
    value = code.field(object, record["offset"])
    code.store(value, record["target"])
    code.check_range(value, record)


@step("object* comparison other itself outcome")
def float_(code: MachineCode, record: Fields) -> None:
    """Compare an exact float with another one, given by its bits, or with itself."""
    value = _float_value(code, code.value(record))
    given = code.convert("bitcast", record["other"], "double")
    other = code.select(code.different(record["itself"], 0), value, given)
    _check_floats(code, record, value, other)


@step("object* other* comparison outcome")
def floats(code: MachineCode, record: Fields) -> None:
    """Compare an exact float with another object, an exact float too."""
    value = _float_value(code, code.value(record))
    _check_floats(code, record, value, _float_value(code, code.value(record, "other")))


def _float_value(code: MachineCode, object: Value) -> Value:
    code.check(code.equal(code.type_of(object), code.assembly.outside("PyFloat_Type")))
    return code.field(object, code.objects.float_value, "double")


def _check_floats(code: MachineCode, record: Fields, value: Value, other: Value) -> None:
    """Whether the record's comparison of two numbers has the outcome that it says."""

    def compared(name: str) -> Value:
        return code.compare(f"fcmp {name}", value, other)

    def unknown() -> Value:
        code.ret(MISS)
        return FALSE

    cases: Cases = {
        (number,): functools.partial(compared, name) for number, name in _FLOAT_COMPARISONS.items()
    }
    holds = code.switch(record["comparison"], cases, unknown)
    code.check(code.equal(code.outcome(holds), record["outcome"]))
