"""`Schedule` + `MemoryPlan` → `LlvmModule`: text of all kernels and of the driver that calls them.

Enters: what runs, and where intermediates live. Leaves: one text, the table of buffers, the steps.
A step is a function `i32 (ptr buffers, ptr sizes)` that runs every kernel and native call up to the
next op that only Python can call; mostly there is one, called `run`. It answers 0, or the number
of an error (see `LlvmModule.errors`).

Invariant: equal kernels are one function, and so are equal parts; the arguments of `run` are all
that it touches.

One file: the driver is written beside the kernels that it calls, into the same tables.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from windfall.codegen import extern, threads
from windfall.codegen.emit_loops import KernelText, stored_in
from windfall.codegen.emit_values import size_operation, size_text
from windfall.codegen.plan import Life, bytes_of, lifetimes
from windfall.errors import InputsWritten, InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.loop import (
    BufferView,
    Call,
    Invocation,
    Kernel,
    Loop,
    MemoryPlan,
    Part,
    PartCall,
    Schedule,
)
from windfall.ir.stages import (
    BufferNote,
    KernelNote,
    LlvmModule,
    NativeStep,
    PythonStep,
    Ref,
    ResultNote,
    Step,
)
from windfall.ir.symint import (
    Atom,
    Expression,
    Size,
    expression_of,
    maximum,
    minimum,
    symbol_atom,
)
from windfall.ir.text import kernel_text, mentioned
from windfall.llvm import NULL, ZERO, Assembly, Code, Value, integer, literal

ERROR, BUFFERS, SIZES = Value("%error", "ptr"), Value("%buffers", "ptr"), Value("%sizes", "ptr")
PARALLEL_FROM = 1 << 19  # work below which one thread is faster
WORK_PER_THREAD = 1 << 18


def emit(schedule: Schedule, plan: MemoryPlan) -> LlvmModule:
    """The module of a schedule."""
    return _Emission(schedule, plan).run()


class _Emission:
    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        self.schedule = schedule
        self.plan = plan
        self.assembly = Assembly()
        self.known: dict[str, str] = {}  # text of a kernel's loops -> its function
        self.errors: dict[tuple[object, ...], int] = {}
        self.sized: set[str] = set()  # functions that take the table of sizes
        self.notes: list[KernelNote] = []
        self.numbers = itertools.count()  # of kernels
        self.parts: dict[int, _Emission] = {}  # by the part's identity
        self.has_written = False  # an input, in place: what fails from there on cannot be retried
        # Parts that write are called several times: nobody begins again after the first of them.
        self.parts_write = any(
            isinstance(item, PartCall) and writes_input(item, schedule) for item in schedule.items
        )
        self.inner: Mapping[str, Size] = {}  # inside a part: offsets of temporaries in its block
        self.names = self._table()
        self.places = {name: place for place, name in enumerate(self.names)}
        self.sizes: dict[Expression, int] = {}  # what is in the table of sizes -> where
        self._life: dict[str, Life] | None = None
        for each in schedule.symbols:
            self.sizes.setdefault(each, len(self.sizes))
        self.symbols = {symbol_atom(each): place for each, place in self.sizes.items()}

    def run(self) -> LlvmModule:
        steps: list[Step] = []
        batch: list[Kernel | Call | PartCall] = []
        from_python: set[str] = set()
        for place, item in enumerate(self.schedule.items):
            if isinstance(item, Call) and item.entry == "python":
                self._flush(batch, steps, place)
                steps.append(self._python_step(item))
                from_python.update(item.results)
            else:
                batch.append(item)
        self._flush(batch, steps, len(self.schedule.items))
        buffers = tuple(self._note(name, name in from_python) for name in self.names)
        results = tuple(self._result(view) for view in self.schedule.results)
        inputs = tuple(self.schedule.buffers[name].type for name in self.schedule.inputs)
        self.note_sizes((inputs, buffers, results, self.plan.arena_bytes))
        return LlvmModule(
            text=f"{self.assembly.text()}\n{ATTRIBUTES}",
            externals=tuple(self.assembly.externals),
            kernels=tuple(self.notes),
            steps=tuple(steps),
            buffers=buffers,
            arena_bytes=self.plan.arena_bytes,
            inputs=inputs,
            results=results,
            errors=_error_table(self.errors),
            symbols=self.schedule.symbols,
            sizes=tuple(self.sizes),
        )

    # ----------------------------------------------------------------------------------- sizes

    def size_place(self, size: Expression) -> int:
        """Where an expression stands in the table of sizes."""
        unknown = [atom.key for atom in size.symbols if atom not in self.symbols]
        if unknown:
            raise InternalError(f"{size} depends on {unknown}, which nobody passes")
        return self.sizes.setdefault(size, len(self.sizes))

    def note_sizes(self, value: Any) -> None:
        """Everything that varies in some records has its place in the table of sizes."""
        if isinstance(value, Expression):
            self.size_place(value)
        elif isinstance(value, TensorType):
            self.note_sizes((value.sizes, value.strides))
        elif isinstance(value, (BufferNote, ResultNote)):
            self.note_sizes((value.type, value.offset))
        elif isinstance(value, (tuple, list)):
            for each in value:
                self.note_sizes(each)

    # --------------------------------------------------------------------------------- buffers

    def _table(self) -> list[str]:
        inputs = set(self.schedule.inputs)
        others = [
            name
            for name, buffer in self.schedule.buffers.items()
            if name not in inputs and buffer.place != "scratch"
        ]
        return [*self.schedule.inputs, *others]

    @property
    def life(self) -> Mapping[str, Life]:
        """When buffers are touched first and last, by places among the schedule's items."""
        if self._life is None:
            self._life = lifetimes(self.schedule)
        return self._life

    def _note(self, name: str, is_from_python: bool) -> BufferNote:
        buffer = self.schedule.buffers[name]
        if buffer.place == "constant":
            return BufferNote(name, buffer.type, "constant", constant=buffer.constant)
        if is_from_python:
            return BufferNote(name, buffer.type, "tensor")
        if buffer.place == "temporary":
            return BufferNote(name, buffer.type, "arena", self.plan.offsets.get(name, 0))
        return BufferNote(name, buffer.type, "input" if buffer.place == "input" else "result")

    def _result(self, view: BufferView | None) -> ResultNote:
        if view is None:
            return ResultNote(None, None)
        return ResultNote(self.places[view.buffer], view.type, view.offset)

    # ----------------------------------------------------------------------------------- steps

    def _python_step(self, call: Call) -> PythonStep:
        invocation = call.attributes
        assert isinstance(invocation, Invocation)

        def place(value: Any) -> Any:
            if isinstance(value, BufferView):
                return Ref(self.places[value.buffer])
            if isinstance(value, tuple):
                return tuple(place(each) for each in value)
            self.note_sizes(value)
            return value

        (arguments,) = call.arguments
        self.notes.append(
            KernelNote(
                str(invocation.target),
                "python call",
                str(invocation.target),
                () if call.origin is None else (call.origin,),
            )
        )
        return PythonStep(
            invocation.target,
            place(arguments),
            {name: place(value) for name, value in invocation.keywords},
            tuple(self.places[name] for name in call.results),
            call.origin,
        )

    def _flush(self, batch: list[Kernel | Call | PartCall], steps: list[Step], end: int) -> None:
        if not batch:
            return
        name = f"run{len(steps)}" if steps else "run"
        Driver(self, name, batch, end - len(batch)).write()
        steps.append(NativeStep(name))
        batch.clear()

    def part(self, part: Part) -> _Emission:
        """What a part was written as: its function has its name, and takes a table of the block and
        of those buffers that are not its own."""
        found = self.parts.get(id(part))
        if found is None:
            found = copy.copy(self)
            found.schedule, found.plan, found.inner = part.schedule, part.plan, part.plan.offsets
            found.notes = []
            found.has_written = False  # each call of the part begins anew
            found._life = None
            found.names = [
                name
                for name, buffer in part.schedule.buffers.items()
                if buffer.place in ("input", "result")
            ]
            found.places = {name: place + 1 for place, name in enumerate(found.names)}
            Driver(found, part.name, part.schedule.items, 0).write()
            self.parts[id(part)] = found
        self.notes.extend(found.notes)
        return found

    def kernel(self, kernel: Kernel) -> tuple[str, list[str]]:
        """The function of a kernel and the buffers that it is called with. `sized` tells of a
        function whether it takes the table of sizes too."""
        order = [
            name
            for name in mentioned(kernel.body)
            if self.schedule.buffers[name].place != "scratch"
        ]
        renamed = {name: f"b{place}" for place, name in enumerate(order)}
        text = kernel_text(kernel, self.schedule.buffers, renamed)
        function = self.known.get(text)
        note = f"{function} again, with {', '.join(order)}"
        if function is None:
            note = kernel_text(kernel, self.schedule.buffers)
            function = self.known[text] = f"kernel{next(self.numbers)}"
            writer = KernelText(
                function, self.schedule.buffers, order, self.assembly, self.errors, self.symbols
            )
            self.assembly.functions[function] = writer.text(kernel.body)
            if writer.uses_sizes:
                self.sized.add(function)
        self.notes.append(KernelNote(function, "generated", note, kernel.origins))
        return function, order


def _error_table(errors: dict[tuple[object, ...], int]) -> dict[int, tuple[type[Exception], str]]:
    table: dict[int, tuple[type[Exception], str]] = {1: (RuntimeError, "ZeroDivisionError")}
    for (kind, what), number in errors.items():
        table[number] = _ERRORS[str(kind)](what)
    return table


_ERRORS: dict[str, Callable[[object], tuple[type[Exception], str]]] = {
    "index": lambda size: (IndexError, f"index out of range for a dimension of size {size}"),
    "call": lambda name: (RuntimeError, f"{name} failed"),
    "call after writes": lambda name: (InputsWritten, f"{name} failed"),
}


def writes_input(item: Kernel | Call | PartCall, schedule: Schedule) -> bool:
    """Whether an item writes an input in place."""
    if isinstance(item, PartCall):
        inner = item.part.schedule
        return any(writes_input(one, inner) for one in inner.items)
    if isinstance(item, Kernel):
        return any(schedule.buffers[name].place == "input" for name in stored_in(item.body))
    return item.entry in extern.IN_PLACE


class Driver:
    """The text of one step. Its items stand in the schedule one after the other, the first of them
    at `start`."""

    def __init__(
        self, emission: _Emission, name: str, items: Sequence[Kernel | Call | PartCall], start: int
    ) -> None:
        self.emission = emission
        self.name = name
        self.code = Code(emission.assembly)
        self._items = list(items)
        self._start = start
        self._owned: dict[str, Value] = {}  # buffers that stand where a tensor has them
        self._constants: dict[tuple[str, str], Value] = {}
        self._slots: list[str] = []
        self._spare: Value | None = None
        self._row: Value | None = None  # the table that parts are called with
        self._handles: list[Value] = []  # where handles that own buffers are kept; null: none is
        self._ending: dict[int, list[Value]] = {}  # those that are deleted after an item

    def write(self) -> None:
        """The whole function."""
        for place, item in enumerate(self._items, self._start):
            if not self.emission.has_written and writes_input(item, self.emission.schedule):
                self._leave_if_failed()
                self.emission.has_written = True
            if isinstance(item, Kernel):
                self.kernel(item, *self.emission.kernel(item))
            elif isinstance(item, PartCall):
                self.part(item)
            else:
                self.external(item)
            self._release(place)
        code = self.code
        code.jump("leave")
        code.start("leave")
        for slot in self._handles:
            self._delete_if_any(slot)
        code.ret(code.load("i32", ERROR))
        slots = ["  %error = alloca i32, align 4", "  store i32 0, ptr %error, align 4"]
        code.blocks[0].lines[:0] = [*slots, *self._slots]
        head = f"i32 @{self.name}(ptr %buffers, ptr %sizes) #1"
        self.emission.assembly.functions[self.name] = code.text(head)

    # --------------------------------------------------------------------------- writes of inputs

    def _leave_if_failed(self) -> None:
        """End the step where a kernel has refused its data: inputs are as they were."""
        error = self.code.load("i32", ERROR)
        self._fail_with(error, error)

    # ----------------------------------------------------------------------- what is owned here

    def is_local(self, name: str) -> bool:
        """Whether only the items of this step touch a buffer."""
        if self.emission.schedule.buffers[name].place != "temporary":
            return False
        first, last = self.emission.life[name]
        return self._start <= first and last < self._start + len(self._items)

    def adopt(self, name: str, pointer: Value, handle: Value) -> None:
        """A local buffer stands where a tensor has it; the tensor is deleted after its last use."""
        slot = self.reserve("ptr", 8)
        self._slots.append(f"  store ptr null, ptr {slot.text}, align 8")
        self.code.store(handle, slot)
        self._owned[name] = pointer
        self._handles.append(slot)
        _, last = self.emission.life[name]
        self._ending.setdefault(last, []).append(slot)

    def _release(self, place: int) -> None:
        for slot in self._ending.pop(place, ()):
            self._delete_if_any(slot)
            self.code.store(NULL, slot)

    def _delete_if_any(self, slot: Value) -> None:
        code = self.code
        handle = code.load("ptr", slot)
        with code.when(code.different(handle, NULL), "free"):
            self.call("aoti_torch_delete_tensor_object", [handle])

    # --------------------------------------------------------------------------------- operands

    def buffer(self, name: str) -> Value:
        """The address of a buffer, from the table."""
        found = self._owned.get(name)
        if found is None:
            # Read again at each use: hundreds of addresses kept in registers would be spilled.
            offset = self.emission.inner.get(name)
            place = self.emission.places[name] if offset is None else 0
            found = self.code.load("ptr", self.code.element(BUFFERS, place, "ptr"))
            if offset is not None:
                found = self._at(found, offset)
        return found

    def _at(self, base: Value, count: Size) -> Value:
        """An address so many bytes further on."""
        if count == 0:
            return base
        return self.code.element(base, self.size(count))

    def pointer(self, view: BufferView) -> Value:
        """The address of a view's first element."""
        return self._at(self.buffer(view.buffer), view.offset * view.type.dtype.itemsize)

    def size(self, size: Size) -> Value:
        """An integer: a constant, or computed from the symbols in the table of sizes. (An entry of
        that table for it would cost every call something.)"""
        if isinstance(size, int):
            return Value(str(size), "i64")
        return size_text(self.code, size, lambda atoms: [self._atom(atom) for atom in atoms])

    def _atom(self, atom: Atom) -> Value:
        if atom.operation:
            return size_operation(self.code, atom, *map(self.size, atom.arguments))
        place = self.emission.size_place(expression_of(atom))
        return self.code.load("i64", self.code.element(SIZES, place, "i64"))

    def result(self, call: Call, place: int) -> BufferView:
        """A result of a call as a view of its buffer."""
        name = call.results[place]
        return BufferView(name, self.emission.schedule.buffers[name].type)

    def _slot(self, type: str, text: str) -> Value:
        """A constant in memory, for functions that take addresses."""
        found = self._constants.get((type, text))
        if found is None:
            name = self.code.fresh()
            size = {"i8": 1, "i32": 4, "float": 4}.get(type, 8)
            self._slots.append(f"  {name} = alloca {type}, align {size}")
            self._slots.append(f"  store {type} {text}, ptr {name}, align {size}")
            found = self._constants[type, text] = Value(name, "ptr")
        return found

    def word(self, number: Size) -> Value:
        """The address of a 32-bit integer."""
        if isinstance(number, int):
            return self._slot("i32", str(number))
        value = self.code.convert("trunc", self.size(number), "i32")
        slot = self.reserve("i32", 4)
        self.code.store(value, slot)
        return slot

    def number(self, number: float, type: str) -> Value:
        """The address of a floating number."""
        return self._slot(type, literal(number, type))

    def letter(self, letter: str) -> Value:
        """The address of a character."""
        return self._slot("i8", str(ord(letter)))

    # ------------------------------------------------------------------------------------ calls

    def reserve(self, type: str, align: int) -> Value:
        """Memory on the stack."""
        name = self.code.fresh()
        self._slots.append(f"  {name} = alloca {type}, align {align}")
        return Value(name, "ptr")

    def slot(self) -> Value:
        """Memory for one pointer, which the next user may overwrite."""
        if self._spare is None:
            self._spare = self.reserve("ptr", 8)
        return self._spare

    def numbers(self, numbers: Sequence[Size]) -> Value:
        """The address of 64-bit integers."""
        if not all(isinstance(number, int) for number in numbers):
            row = self.reserve(f"[{len(numbers)} x i64]", 8)
            self.store(row, map(self.size, numbers))
            return row
        rows = ", ".join(f"i64 {number}" for number in numbers) or "i64 0"
        return self.emission.assembly.constant(f"[{max(len(numbers), 1)} x i64] [{rows}]")

    def store(self, row: Value, words: Iterable[Value]) -> None:
        """Write words one after the other."""
        for place, word in enumerate(words):
            self.code.store(word, self.code.element(row, place, word.type))

    def call(self, symbol: str, arguments: Sequence[Value]) -> Value:
        """Call a C function that answers 0 if all is well."""
        return self.code.call(symbol, "i32", *arguments)

    def checked(self, symbol: str, arguments: Sequence[Value], what: str) -> None:
        """Call a C function; if it fails, the step ends with an error."""
        final = self.emission.has_written or self.emission.parts_write
        kind = "call after writes" if final else "call"
        number = self.emission.errors.setdefault((kind, what), len(self.emission.errors) + 2)
        self._fail_with(self.call(symbol, arguments), integer(number, "i32"))

    def _fail_with(self, answer: Value, error: Value) -> None:
        """End the step with an error if a function did not answer 0."""
        code = self.code
        with code.when(code.different(answer, 0), "failed", "fine"):
            code.store(error, ERROR)
            code.jump("leave")

    def copy_bytes(self, target: Value, source: Value, type: TensorType) -> None:
        """Copy the memory that a dense tensor covers."""
        self.code.call("memcpy", "ptr", target, source, self.size(bytes_of(type)))

    def batches(
        self,
        count: Size,
        operands: Sequence[tuple[BufferView, Size]],
        write: Callable[..., None],
    ) -> None:
        """Do something for each matrix of a batch."""
        code = self.code
        if count == 0:
            return
        bases = [self.pointer(view) for view, _ in operands]
        steps = [self.size(stride * view.type.dtype.itemsize) for view, stride in operands]
        end = self.size(count)
        with code.repeat(ZERO, end, certain=isinstance(count, int)) as loop:
            places = [code.binary("mul", loop.index, step) for step in steps]
            write(*map(code.element, bases, places))

    def external(self, call: Call) -> None:
        """A row of the table of native entries."""
        extern.ENTRIES[call.entry].write(self, call)
        origins = () if call.origin is None else (call.origin,)
        op = isinstance(call.attributes, Invocation)
        name = str(call.attributes) if op else call.entry
        self.emission.notes.append(KernelNote(name, "native call", name, origins))

    def part(self, item: PartCall) -> None:
        """Call a part; what fails in it fails here."""
        code = self.code
        emission = self.emission.part(item.part)
        given = dict(item.operands)
        if self._row is None:
            parts = [each for each in self._items if isinstance(each, PartCall)]
            most = max(len(each.operands) for each in parts) + 1
            self._row = self.reserve(f"[{most} x ptr]", 8)
        self._fill(self._row, item.block, [given[name] for name in emission.names])
        name = item.part.name
        answer = code.call(name, "i32", self._row, SIZES)
        self._fail_with(answer, answer)

    def body(
        self, part: Part, block: Value, operands: Sequence[Value], results: Sequence[Value]
    ) -> None:
        """Call a part with addresses; what fails in it fails here."""
        emission = self.emission.part(part)
        given = dict(zip(part.schedule.inputs, operands, strict=True))
        for view, address in zip(part.schedule.results, results, strict=True):
            if view is not None:
                given[view.buffer] = address
        row = self.reserve(f"[{len(emission.names) + 1} x ptr]", 8)
        self.store(row, [block, *(given[name] for name in emission.names)])
        answer = self.code.call(part.name, "i32", row, SIZES)
        self._fail_with(answer, answer)

    def _fill(self, row: Value, block: str | None, views: Sequence[BufferView]) -> None:
        """Put the addresses of a block and of views into a table. Those that stand in the table of
        buffers are gathered by a loop over constants: a model calls its parts often, and each line
        of text costs compile time."""
        code = self.code
        fixed = [(0, 0) if block is None else self._fixed(block, 0)]
        fixed += [self._fixed(one.buffer, one.offset * one.type.dtype.itemsize) for one in views]
        words = [word for each in fixed if each is not None for word in each]
        if len(words) == 2 * len(fixed):
            if "gather" not in self.emission.assembly.functions:
                _write_gather(self.emission.assembly)
            code.call("gather", "void", row, BUFFERS, self.numbers(words), len(fixed))
            return
        self.store(row, [NULL if block is None else self.buffer(block), *map(self.pointer, views)])

    def _fixed(self, name: str, offset: Size) -> tuple[int, int] | None:
        """Where a buffer stands in the table of buffers, and a number of bytes; None: elsewhere, or
        the number varies."""
        if name in self._owned or name in self.emission.inner or not isinstance(offset, int):
            return None
        return self.emission.places[name], offset

    # ---------------------------------------------------------------------------------- kernels

    def kernel(self, kernel: Kernel, function: str, order: list[str]) -> None:
        """Call a kernel, on several threads where its work is worth them."""
        pointers = [*(self.buffer(name) for name in order), ERROR]
        if function in self.emission.sized:
            pointers.append(SIZES)
        first = kernel.body[0]
        loop = first if isinstance(first, Loop) and first.parallel else None
        extent: Size = loop.axis.extent if loop is not None else 0
        if (
            loop is None
            or not self._is_much(kernel.work)
            or (isinstance(extent, int) and extent < 2)
        ):
            self.code.call(function, "void", *pointers, ZERO, self.size(extent))
            return
        self._thread_body(function, len(pointers), loop)
        most = self._most_threads(kernel.work)
        self._start_threads(function, pointers, self.size(extent), most)

    def _is_much(self, work: Size) -> bool:
        """Whether several threads may be worth starting."""
        return not isinstance(work, int) or work >= PARALLEL_FROM

    def _most_threads(self, work: Size) -> Value:
        """How many threads so much work is worth; for work that varies, 1 where it is little."""
        if isinstance(work, int):
            return integer(min(max(work // WORK_PER_THREAD, 2), 1 << 20), "i32")
        count = minimum(maximum(work // WORK_PER_THREAD, 1), 1 << 20)
        return self.code.convert("trunc", self.size(count), "i32")

    def _thread_body(self, function: str, count: int, loop: Loop) -> None:
        """What each thread runs: its part of the iterations, in whole vectors."""
        name = f"{function}.thread"
        if name in self.emission.assembly.functions:
            return
        extent, unit = loop.axis.extent, loop.lanes
        with self.emission.assembly.function(name, "void", "ptr", attributes=" #1") as code:
            (given,) = code.parameters
            values = [code.word(given, place, "ptr") for place in range(count)]
            if isinstance(extent, int):
                end, units = integer(extent), integer(-(-extent // unit))
            else:
                end = code.word(given, count)
                units = code.binary("udiv", code.binary("add", end, unit - 1), unit)
            begin, stop = (code.binary("mul", one, unit) for one in threads.share(code, units))
            over = code.compare("icmp ugt", stop, end)
            code.call(function, "void", *values, begin, code.select(over, end, stop))
            code.ret()

    def in_threads(self, function: str, known: Sequence[Value], work: Size) -> None:
        """Call `void function(ptr)` with a block of what it must know: on as many threads as the
        work is worth, or, outside of any team, as the only thread."""
        code = self.code
        block = self.reserve(f"[{len(known)} x i64]", 8)
        self.store(block, known)
        most = self._most_threads(work) if self._is_much(work) else integer(1, "i32")
        threads.start(code, function, block, threads.count(code, most))

    def _start_threads(
        self, function: str, pointers: list[Value], extent: Value, most: Value
    ) -> None:
        """Call a kernel on several threads, where there are several and none of them runs this."""
        code = self.code
        row = [*pointers, *([extent] if extent.text.startswith("%") else [])]
        block = self.reserve(f"[{len(row)} x ptr]", 8)

        def ask() -> Value:
            self.store(block, row)
            return threads.count(code, most)

        if most.text.startswith("%"):
            much = code.compare("icmp sgt", most, 1)
            count = code.either(much, ask, integer(1, "i32"), ("ask", "", "asked"))
        else:
            count = ask()
        code.one_of(
            code.compare("icmp sgt", count, 1),
            lambda: threads.start(code, f"{function}.thread", block, count),
            lambda: code.call(function, "void", *pointers, ZERO, extent),
            ("split", "alone", "joined"),
        )


def _write_gather(assembly: Assembly) -> None:
    """Fill a row of addresses from a table: for each, its place among the buffers and a number of
    bytes."""
    types = ("ptr", "ptr", "ptr", "i64")
    with assembly.function("gather", "void", *types, attributes=" #1") as code:
        row, buffers, table, count = code.parameters
        with code.repeat(ZERO, count, certain=True) as loop:
            entry = code.element(table, code.binary("shl", loop.index, 1), "i64")
            place, offset = code.word(entry, 0), code.word(entry, 1)
            address = code.element(code.word(buffers, place, "ptr"), offset)
            code.store(address, code.element(row, loop.index, "ptr"))
        code.ret()


ATTRIBUTES = "attributes #0 = { nounwind }\nattributes #1 = { nounwind }\n"
