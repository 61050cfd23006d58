"""The records that cross rooms, in the order in which a program travels. Read this file first.

    capture(state, facts)            -> Capture      frontend
    differentiate(graph)             -> Joint        autograd
    split(joint)                     -> Split        autograd
    arrange(graph)                   -> Graph        codegen
    divide(graph)                    -> Division     codegen (None: no block repeats)
    lower(graph)                     -> Loops        codegen
    schedule(loops)                  -> Schedule     codegen
    plan(schedule)                   -> MemoryPlan   codegen
    emit(schedule, plan)             -> LlvmModule   codegen
    build(module)                    -> Program      codegen
    assemble(joint, split, program)  -> Executable   autograd
    rewrite(capture)                 -> Segment      frontend
    link(executable)                 -> callable     link.py: bind(program), with what is around it
    enter(segment, program | callable) -> Entry      runtime

Each stage is a plain function from one frozen record to the next; no stage calls the next one,
`pipeline.py` does. What is compiled at run time (a segment not seen yet, a backward variant not
built yet) is asked of a `compile_missing` function that `pipeline` hands over.

Invariant: records hold no user tensor (constants of the graph excepted) and print themselves.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
import torch.fx

from windfall import locks
from windfall.dataclass import dataclass
from windfall.errors import SEGMENT, InternalError, SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.guard import Guard
from windfall.ir.relation import Relation
from windfall.ir.role import RoleKind, Roles
from windfall.ir.source import Source
from windfall.ir.symint import Expression, Size

# ---------------------------------------------------------------------------------- frontend


@dataclass(frozen=True, slots=True)
class GraphInput:
    """One placeholder of a captured graph: its name, where its value is read on each call, and
    its type: of a tensor, or the symbol that it is the value of. Symbols stand before tensors."""

    name: str
    source: Source
    type: TensorType | Expression
    written: bool = False  # by the graph, as it goes


@dataclass(frozen=True, slots=True)
class Break:
    """Why and where capturing stopped; `number` is a row of `frontend/breaks.py`."""

    number: int
    reason: str
    detail: str
    hint: str
    where: SourceLine | None
    stack: tuple[SourceLine, ...] = ()  # the user's frames there, outermost first
    refused: bool = False  # the program itself says that no break may be here


class Printable(Protocol):
    """A part of a record that only its own room reads, and everybody may print."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Capture:
    """What the front end read between an entry (or a break) and the next break (or the return)."""

    name: str
    graph: torch.fx.Graph  # torch functions and methods; placeholders stand in order of `inputs`
    inputs: tuple[GraphInput, ...]
    guards: tuple[Guard, ...]
    effects: tuple[Printable, ...]  # what is replayed after the graph, in program order
    outputs: Printable  # how live values are rebuilt from graph outputs, sources and constants
    resume: Printable | None  # the native step that follows and where to go on; None: return
    stopped: Break | None = None
    origin: SourceLine | None = None
    operations: int = 0  # how many bytecodes were interpreted
    own: str = ""  # why no other process may use it: what it took from this one besides guards


@dataclass(frozen=True, slots=True)
class Direct:
    """A segment whose whole work is `return structure(graph(inputs))`, with no effect: the runtime
    may do it in one native call. `results` says, for each leaf of the returned value, which graph
    output it is; `structure` is "leaf" for one tensor, else "tuple" or "list" of leaves."""

    results: tuple[int, ...]
    structure: Literal["leaf", "tuple", "list"]


# CPython counts how deep it is in a tree for all threads at once, and a thread may be interrupted
# in between (a round of the collector): the count is wrong then, and it raises SystemError.
_one_tree = locks.recursive_lock()

# Line, last line, column, last column of a piece of the user's source; a column of -1: none.
Span = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A capture as Python source: what users are shown and what runs where no native entry can.

    `source` defines one function `name(*slots)` that assumes its guards hold: it reads the graph's
    inputs, calls `graph_name(*tensors) -> tuple[Tensor, ...]`, replays effects, returns. Names that
    it uses freely stand in `namespace` (`graph_name` is filled in by `enter`)."""

    identities: ClassVar[tuple[str, ...]] = ("namespace[]",)

    name: str
    source: str
    slots: tuple[str, ...]
    graph_name: str
    namespace: Mapping[str, Any]
    capture: Capture
    direct: Direct | None = None
    file: str = "<windfall>"  # the user's file, for tracebacks
    spans: tuple[Span, ...] = ()  # for each line of `source`, what it stands for in that file
    function: str = ""  # the user's function, for tracebacks

    def load(self, graph: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """The function that `source` defines. Its frames show the user's file and lines."""
        with _one_tree:
            try:
                code = self._code()
            except SystemError:  # a thread that is not ours was at a tree of its own
                code = self._code()
        namespace = {**self.namespace, self.graph_name: graph, SEGMENT: True}
        exec(code, namespace)
        function: Any = namespace.get(self.name)
        if function is None:
            raise InternalError(f"the source of segment {self.name} does not define it")
        if self.function:
            function.__code__ = function.__code__.replace(co_name=self.function)
        made: Callable[..., Any] = function
        return made

    def _code(self) -> types.CodeType:
        tree = ast.parse(self.source)
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.expr | ast.ExceptHandler | ast.arg) and self.spans:
                span = self.spans[node.lineno - 1]
                node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = span
        made: types.CodeType = compile(tree, self.file, "exec")
        return made


# ---------------------------------------------------------------------------------- autograd


@dataclass(frozen=True, slots=True)
class InputFact:
    """What a graph does with one of its inputs."""

    type: TensorType
    mutated: bool = False  # its data are written: `Signature.writes` says with what
    needs_grad: bool = False
    versions: int = 0  # by how much eager raises its version counter
    visible: bool = False  # autograd sees it being written: its history changes
    whole: bool = False  # it stands for all memory from its start on, as one dimension (`type`)
    becomes: TensorType | None = None  # with the sizes and strides that it has afterwards
    alone: bool = False  # it must be no view in a call: eager's history would be another one
    looked_past: bool = False  # it must be no view of what needs no gradient: results would not too


@dataclass(frozen=True, slots=True)
class OutputFact:
    """What one result of a graph is.

    fresh: a new tensor. input: the very object given at `base`. view_of_input: a view of input
    `base` with `type`'s sizes and strides at `offset`. view_of_output: likewise of the fresh result
    `base` (hidden ones count after those that are outputs). view_of_view: of the output `base`,
    which is a view itself. constant: `value`, not a tensor of the graph. A view is made again by
    `views`, ATen view ops one upon the other as (overload, further arguments, keywords). `same_as`:
    the very object that an earlier output is. `refused`: autograd refuses writes to it, for it is a
    view that was made so (`torch_abi.refused_view`). `spent`: a backward pass inside of the graph
    has freed its history, which led to these inputs. `piece`: the last of `views` answers several,
    once for all outputs with this first number; this is the one at the second."""

    kind: Literal["fresh", "input", "view_of_input", "view_of_output", "view_of_view", "constant"]
    type: TensorType | None = None
    base: int = -1
    offset: Size = 0
    value: Any = None
    needs_grad: bool = False
    views: tuple[tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], ...] = ()
    same_as: int = -1
    refused: str = ""
    spent: tuple[int, ...] = ()
    piece: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The calling convention between the user's side and the compiled graphs.

    The forward graph returns, in order: the new contents of mutated inputs (`writes`), the fresh
    results, then what is saved for backward."""

    inputs: tuple[InputFact, ...]
    outputs: tuple[OutputFact, ...]
    writes: tuple[int, ...] = ()  # indices of mutated inputs, in order of the graph's results
    hidden: int = 0  # fresh results after those of `outputs`: bases of views that are outputs
    # Outputs that other results are made of, and that are no results of forward as they are (views,
    # mostly): they are made before the autograd nodes of those others are attached, in this order.
    between: tuple[int, ...] = ()

    @property
    def fresh(self) -> int:
        """How many fresh results there are, hidden ones included."""
        return sum(one.kind == "fresh" for one in self.outputs) + self.hidden


@dataclass(frozen=True, slots=True)
class Joint:
    """Forward and backward as one SSA graph of ATen overloads, with no mutation.

    Placeholders: the primals (as `Signature.inputs`), then the tangents. Results: writes, fresh
    results, then one gradient (or None) for each of `gradients_for`: inputs, then results of which
    other results are made (their numbers follow those of the inputs), then views of which they are
    (`Signature.between`; theirs follow those of the results). `tangents_for` numbers
    the fresh results that have a tangent; before those come the tangents of the writes that
    autograd sees, numbered in `write_tangents_for`. A graph that needs no gradient has neither."""

    graph: torch.fx.Graph
    signature: Signature
    tangents_for: tuple[int, ...] = ()
    gradients_for: tuple[int, ...] = ()
    write_tangents_for: tuple[int, ...] = ()
    captured: torch.fx.Graph | None = None  # what was differentiated
    grad_enabled: bool = True  # the grad mode that the graph is entered with
    autocast: torch.dtype | None = None  # the CPU autocast that it is entered with, if any
    symbols: tuple[Expression, ...] = ()  # sizes that vary: callers pass them before all tensors
    relations: tuple[Relation, ...] = ()  # what was assumed of them while recording
    # Inputs that a function with a backward of its own takes and gives no gradient to: it may still
    # use them, and gradients of gradients go there.
    ungiven: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A joint graph cut in two. `forward` returns writes, fresh results, then the `saved` values;
    `backward` takes the saved values (primals, then results, then `saved`) and the tangents and
    returns the gradients."""

    forward: torch.fx.Graph
    backward: torch.fx.Graph | None
    signature: Signature
    saved: tuple[TensorType, ...] = ()
    saved_inputs: tuple[int, ...] = ()  # primals that backward takes as they are, before `saved`
    tangents_for: tuple[int, ...] = ()
    gradients_for: tuple[int, ...] = ()
    write_tangents_for: tuple[int, ...] = ()
    saved_results: tuple[int, ...] = ()  # of writes and fresh results, those that backward takes
    symbols: tuple[Expression, ...] = ()  # passed before all tensors, to forward and to backward
    ungiven: tuple[int, ...] = ()  # as in `Joint`
    remade: tuple[int, ...] = ()  # of writes and fresh results, those that backward computes again

    @property
    def visible(self) -> int:
        """How many results of forward come before those that are saved."""
        return len(self.signature.writes) + self.signature.fresh

    @property
    def tangent_results(self) -> tuple[int, ...]:
        """For each tangent, the result of forward that it belongs to."""
        writes = len(self.signature.writes)
        return (*self.write_tangents_for, *(writes + one for one in self.tangents_for))


@dataclass(frozen=True, slots=True)
class Component:
    """Positions among the tangents, among what is saved, and among the graph's inputs (then its
    results and views, as in `gradients_for`), of those that belong together: gradients that share
    no computation with others."""

    tangents: tuple[int, ...]
    saved: tuple[int, ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Saves:
    """What a component saves: primals, then results of forward, by their positions."""

    inputs: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BackwardRegion:
    """What one autograd node of a compiled graph stands for: `component` of the backward graph of
    `split`, given the tensors that it saved (in the order of `saves`) and its tangents. Each such
    node carries one, so that the graph behind it can be found from a `grad_fn`."""

    split: Split
    component: Component
    saves: Saves
    captured: torch.fx.Graph  # what other backward passes are recorded from (`higher.py`)
    autocast: torch.dtype | None = None  # the CPU autocast that forward ran under
    relations: tuple[Relation, ...] = ()  # what is known of sizes that vary
    grad_enabled: bool = True  # the grad mode that forward was entered in

    @property
    def results(self) -> tuple[int, ...]:
        """The results of forward that belong to the node."""
        positions = self.split.tangent_results
        return tuple(positions[index] for index in self.component.tangents)


# ----------------------------------------------------------------------------------- codegen
# Loops, Kernel, Schedule and MemoryPlan are records of `ir/loop.py`.


@dataclass(frozen=True, slots=True)
class LlvmModule:
    """LLVM text of every kernel of a graph and of the driver that calls them."""

    text: str
    externals: tuple[str, ...]  # C symbols it refers to
    kernels: tuple[KernelNote, ...]
    steps: tuple[Step, ...]
    buffers: tuple[BufferNote, ...]
    arena_bytes: Size
    inputs: tuple[TensorType, ...]
    results: tuple[ResultNote, ...]
    errors: Mapping[int, tuple[type[Exception], str]] = field(default_factory=dict)
    symbols: tuple[Expression, ...] = ()  # as in `Program`
    sizes: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelNote:
    """What reports say of one kernel."""

    name: str
    kind: str  # "generated", "native call", "python call"
    text: str  # loop IR, or the name of the entry that is called
    origins: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferNote:
    """Storage that steps read and write: position = its index in the driver's pointer table."""

    name: str
    type: TensorType
    place: Literal["input", "result", "arena", "constant", "tensor"]
    offset: Size = 0  # into the arena, in bytes
    constant: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class NativeStep:
    """`function` is a symbol `i32 (ptr buffers, ptr sizes)`; non-zero: look up its error text."""

    function: str


@dataclass(frozen=True, slots=True)
class PythonStep:
    """An ATen op without a native entry, called from the driver in Python: slower, never wrong.

    `arguments` holds `Ref(index)` where a buffer is meant; the op's results go to `results`."""

    target: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    results: tuple[int, ...]
    origin: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer by its index, inside the arguments of a `PythonStep`."""

    index: int


Step = NativeStep | PythonStep


@dataclass(frozen=True, slots=True)
class ResultNote:
    """One result of a program: a buffer, seen with `type`'s sizes and strides at `offset`
    elements (so that a view as result needs no copy); `buffer` None means the result is None."""

    buffer: int | None
    type: TensorType | None
    offset: Size = 0


class LoadedCode(Protocol):
    """Machine code that lives as long as this object (see `jit.py`)."""

    def address(self, name: str) -> int:
        """Where a function of the module starts."""


@dataclass(frozen=True, slots=True)
class Program:
    """Native code and what is needed to run it: flat steps over a table of buffers.

    `symbols` are the sizes that vary; the caller passes their values before all tensors. `sizes` is
    the table of integers that every native step is given: the symbols' values, then each symbolic
    expression that stands anywhere in `inputs`, `buffers`, `results` or `arena_bytes` or that
    kernels ask for, evaluated in order before the first step."""

    code: LoadedCode
    steps: tuple[Step, ...]
    buffers: tuple[BufferNote, ...]
    arena_bytes: Size
    inputs: tuple[TensorType, ...]
    results: tuple[ResultNote, ...]
    kernels: tuple[KernelNote, ...] = ()
    errors: Mapping[int, tuple[type[Exception], str]] = field(default_factory=dict)
    symbols: tuple[Expression, ...] = ()
    sizes: tuple[Size, ...] = ()
    retry_in_eager: bool = (
        False  # what its steps raise is `GraphFailed`: eager is to do the same again
    )
    roles: Roles = field(default_factory=Roles)

    @property
    def native(self) -> bool:
        """Whether the whole program is one native step, with no Python in between."""
        return len(self.steps) <= 1 and all(isinstance(step, NativeStep) for step in self.steps)


# ---------------------------------------------------------------------------------- backends

GraphCallable = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """A graph that runs op by op; or that a device compiles, of this type and for these symbols
    (`devices.py`)."""

    graph: torch.fx.Graph
    device: str = ""
    symbols: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionedProgram:
    """A captured graph that reads data on its way: its parts are compiled when they are reached."""

    graph: torch.fx.Graph
    given: tuple[Relation, ...] = ()  # what is known of sizes


@dataclass(frozen=True, slots=True)
class ForeignProgram:
    """What a backend of the user answered."""

    call: Callable[..., Any]


class Convention(Protocol):
    """One difference between the two sides of a call, as data that says how to bridge it."""

    def around(self, call: GraphCallable) -> GraphCallable:
        """A callable of the outer side, from one of the inner side."""


@runtime_checkable
class ChoosesEager(Protocol):
    """A convention that leaves some calls to eager."""

    def counting(self, call: GraphCallable, count: Callable[[str], None]) -> GraphCallable:
        """As `Convention.around`; `count` is told why a call was eager."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Executable:
    """A captured graph that can be called, once it is linked: `conventions`, outermost first,
    around autograd's nodes around a program. Where sizes vary, symbols come before all tensors."""

    name: str
    program: Program | GraphProgram | PartitionedProgram | ForeignProgram
    roles: Roles  # seen from outside
    conventions: tuple[Convention, ...] = ()
    node: tuple[BackwardRegion, ...] = ()
    relations: tuple[Relation, ...] = ()  # what it assumes of sizes, besides what was known
    keeps: bool = False  # it makes gradients: memory of large results is used again by later calls

    @property
    def bare(self) -> Program | None:
        """The program, where there is nothing else: then an entry may contain it."""
        alone = isinstance(self.program, Program) and not self.conventions and not self.node
        return self.program if alone else None  # type: ignore[return-value]

    @property
    def native_calls(self) -> int | None:
        """How many calls from Python one run of its program is; None: it has none of its own."""
        return len(self.program.steps) if isinstance(self.program, Program) else None

    @property
    def written_tensors(self) -> tuple[int, ...]:
        """Which of the tensors that it is given it writes: their positions among these."""
        tensors = [one for one in self.roles.inputs if one.kind is not RoleKind.SIZE]
        return tuple(index for index, one in enumerate(tensors) if one.written)

    def __str__(self) -> str:
        around = [type(one).__name__ for one in self.conventions]
        nodes = [f"node of results {', '.join(map(str, one.results))}" for one in self.node]
        what = type(self.program).__name__
        return f"{self.name}{self.roles}: {' > '.join([*around, *nodes, what])}"


# ----------------------------------------------------------------------------------- runtime

# What an entry returns when its guards do not hold.
MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS", "__slots__": ()})()


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled segment, ready: `call(*slots)` answers the segment's result, or MISS."""

    call: Callable[..., Any]
    segment: Segment
    native: bool  # guards and program are one builtin made from machine code
    write_check: Callable[[], str] = str  # writes `check_text`, which few ask for
    last_use: Callable[[], int] = int  # larger: used later than others; 0: never

    @property
    def check_text(self) -> str:
        """The Python text of the guard check, for people."""
        return self.write_check()
