"""Integer arithmetic and comparison over words of memory, and the steps of a check that do it, that
read the numbers for it, and that compare floats."""

from __future__ import annotations

from windfall.runtime.machine.basics import NEXT
from windfall.torch_abi import ObjectLayout

# What an instruction does. Its words: what, and where the target, the left and the right stand.
COPY, ADD, MULTIPLY, FLOOR_DIVIDE, MODULO, MINIMUM, MAXIMUM = range(7)
EQUAL, DIFFERENT, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = range(7, 13)
INSTRUCTION_WORDS = 4

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


def text(objects: ObjectLayout) -> str:
    """All of it."""
    targets = "\n".join(f"    i64 {code}, label %{name}" for code, name in _COMPARISONS.items())
    comparisons = "\n".join(
        f"{name}:\n  %{name}.holds = icmp {name} i64 %left, %right\n"
        f"  br i1 %{name}.holds, label %next, label %fail"
        for name in _COMPARISONS.values()
    )
    floats = {code: f"{_FLOAT_COMPARISONS[code]}.float" for code in _COMPARISONS}
    float_targets = "\n".join(f"    i64 {code}, label %{name}" for code, name in floats.items())
    float_comparisons = "\n".join(
        f"{name}:\n  %{name}.holds = fcmp {_FLOAT_COMPARISONS[code]} double %value, %other\n"
        "  br label %judge"
        for code, name in floats.items()
    )
    float_answers = ", ".join(f"[ %{name}.holds, %{name} ]" for name in floats.values())
    return f"""
declare {{i64, i1}} @llvm.sadd.with.overflow.i64(i64, i64)
declare {{i64, i1}} @llvm.smul.with.overflow.i64(i64, i64)
; Instructions in turn; places are counted in bytes from the base. 0: a comparison does not hold, a
; number does not fit 64 bits, or something is divided by zero. Division rounds down, as in Python.
define internal i1 @calculate(i64 %base, ptr %instructions, i64 %count) {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %index.next, %next ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %one, label %done
one:
  %first = mul i64 %index, {INSTRUCTION_WORDS}
  %at = getelementptr i64, ptr %instructions, i64 %first
  %what = call i64 @word(ptr %at, i64 0)
  %target.place = call i64 @word(ptr %at, i64 1)
  %left.place = call i64 @word(ptr %at, i64 2)
  %right.place = call i64 @word(ptr %at, i64 3)
  %target.at = add i64 %base, %target.place
  %left.at = add i64 %base, %left.place
  %right.at = add i64 %base, %right.place
  %target = inttoptr i64 %target.at to ptr
  %left.cell = inttoptr i64 %left.at to ptr
  %right.cell = inttoptr i64 %right.at to ptr
  %left = load i64, ptr %left.cell
  %right = load i64, ptr %right.cell
  switch i64 %what, label %fail [
    i64 {COPY}, label %copy
    i64 {ADD}, label %add
    i64 {MULTIPLY}, label %multiply
    i64 {FLOOR_DIVIDE}, label %divide
    i64 {MODULO}, label %divide
    i64 {MINIMUM}, label %minimum
    i64 {MAXIMUM}, label %maximum
{targets}
  ]
copy:
  br label %store
add:
  %sum.pair = call {{i64, i1}} @llvm.sadd.with.overflow.i64(i64 %left, i64 %right)
  %sum = extractvalue {{i64, i1}} %sum.pair, 0
  %sum.large = extractvalue {{i64, i1}} %sum.pair, 1
  br i1 %sum.large, label %fail, label %store
multiply:
  %product.pair = call {{i64, i1}} @llvm.smul.with.overflow.i64(i64 %left, i64 %right)
  %product = extractvalue {{i64, i1}} %product.pair, 0
  %product.large = extractvalue {{i64, i1}} %product.pair, 1
  br i1 %product.large, label %fail, label %store
divide:
  %no.divisor = icmp eq i64 %right, 0
  %negates = icmp eq i64 %right, -1
  %lowest = icmp eq i64 %left, {-(1 << 63)}
  %too.large = and i1 %negates, %lowest
  %impossible = or i1 %no.divisor, %too.large
  br i1 %impossible, label %fail, label %divided
divided:
  %towards.zero = sdiv i64 %left, %right
  %rest = srem i64 %left, %right
  %uneven = icmp ne i64 %rest, 0
  %signs = xor i64 %rest, %right
  %differ = icmp slt i64 %signs, 0
  %below = and i1 %uneven, %differ
  %one.less = sext i1 %below to i64
  %quotient = add i64 %towards.zero, %one.less
  %correction = select i1 %below, i64 %right, i64 0
  %remainder = add i64 %rest, %correction
  %wants.quotient = icmp eq i64 %what, {FLOOR_DIVIDE}
  %division = select i1 %wants.quotient, i64 %quotient, i64 %remainder
  br label %store
minimum:
  %less = icmp slt i64 %left, %right
  %least = select i1 %less, i64 %left, i64 %right
  br label %store
maximum:
  %greater = icmp sgt i64 %left, %right
  %greatest = select i1 %greater, i64 %left, i64 %right
  br label %store
{comparisons}
store:
  %result = phi i64 [ %left, %copy ], [ %sum, %add ], [ %product, %multiply ],
    [ %division, %divided ], [ %least, %minimum ], [ %greatest, %maximum ]
  store i64 %result, ptr %target
  br label %next
next:
  %index.next = add i64 %index, 1
  br label %loop
done:
  ret i1 1
fail:
  ret i1 0
}}
; Record: 2 how many, then instructions whose places are addresses.
define i32 @op.arithmetic(ptr %record, ptr %args) {{
  %count = call i64 @word(ptr %record, i64 2)
  %instructions = getelementptr i64, ptr %record, i64 3
  %true = call i1 @calculate(i64 0, ptr %instructions, i64 %count)
  br i1 %true, label %go, label %miss
{NEXT}
}}
; Record: 2 the cell of an object, 3 the cell of its number, 4 the least, 5 the greatest.
define i32 @op.number(ptr %record, ptr %args) {{
  %overflow = alloca i32
  %object = call ptr @value(ptr %record, i64 2)
  %type = call ptr @behind(ptr %object, i64 {objects.type})
  %typed = icmp eq ptr %type, @PyLong_Type
  br i1 %typed, label %read, label %miss
read:
  %number = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %outside = load i32, ptr %overflow
  %fits = icmp eq i32 %outside, 0
  %least = call i64 @word(ptr %record, i64 4)
  %greatest = call i64 @word(ptr %record, i64 5)
  %enough = icmp sge i64 %number, %least
  %small = icmp sle i64 %number, %greatest
  %between = and i1 %enough, %small
  %good = and i1 %fits, %between
  %cell = call ptr @pointer(ptr %record, i64 3)
  store i64 %number, ptr %cell
  br i1 %good, label %go, label %miss
{NEXT}
}}
; Record: 2 the cell of an object, 3 its class, 4 where in it the number stands, 5 the cell of its
; number, 6 the least, 7 the greatest.
define i32 @op.count(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %type = call i64 @field(ptr %object, i64 {objects.type})
  %class = call i64 @word(ptr %record, i64 3)
  %typed = icmp eq i64 %type, %class
  br i1 %typed, label %read, label %miss
read:
  %offset = call i64 @word(ptr %record, i64 4)
  %number = call i64 @field(ptr %object, i64 %offset)
  %cell = call ptr @pointer(ptr %record, i64 5)
  store i64 %number, ptr %cell
  %least = call i64 @word(ptr %record, i64 6)
  %greatest = call i64 @word(ptr %record, i64 7)
  %enough = icmp sge i64 %number, %least
  %small = icmp sle i64 %number, %greatest
  %good = and i1 %enough, %small
  br i1 %good, label %go, label %miss
{NEXT}
}}
; Record: 2 the cell of a float, 3 the comparison, 4 the bits of the other, 5 whether that is the
; float itself, 6 what comes of it.
define i32 @op.float(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %type = call ptr @behind(ptr %object, i64 {objects.type})
  %typed = icmp eq ptr %type, @PyFloat_Type
  br i1 %typed, label %read, label %miss
read:
  %bits = call i64 @field(ptr %object, i64 {objects.float_value})
  %value = bitcast i64 %bits to double
  %given.bits = call i64 @word(ptr %record, i64 4)
  %given = bitcast i64 %given.bits to double
  %itself = call i64 @word(ptr %record, i64 5)
  %by.itself = icmp ne i64 %itself, 0
  %other = select i1 %by.itself, double %value, double %given
  %what = call i64 @word(ptr %record, i64 3)
  switch i64 %what, label %miss [
{float_targets}
  ]
{float_comparisons}
judge:
  %holds = phi i1 {float_answers}
  %seen = zext i1 %holds to i64
  %wanted = call i64 @word(ptr %record, i64 6)
  %right = icmp eq i64 %seen, %wanted
  br i1 %right, label %go, label %miss
{NEXT}
}}
"""
