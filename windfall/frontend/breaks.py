"""The numbered reasons for which capturing stops: one row each, and their page in the docs.

Enters: a fact about an instruction that cannot be captured. Leaves: `Unsupported` with the row's
number; `page()` writes the documentation. Invariant: numbers are never used twice nor changed; a
break is never an error for the user, it only ends a graph.

    >>> stop(TENSOR_BRANCH, "if x.sum() > 0")
    Traceback (most recent call last):
    windfall.errors.Unsupported: W0002: if x.sum() > 0
"""

from __future__ import annotations

from typing import NoReturn

from windfall.dataclass import dataclass
from windfall.directives import breaks_are_errors
from windfall.errors import SourceLine, Unsupported
from windfall.ir.stages import Break

REASONS: dict[int, Reason] = {}


@dataclass(frozen=True, slots=True)
class Reason:
    """One row: what happened, why it ends a graph, what the user can do."""

    number: int
    title: str
    explanation: str
    hint: str
    # The program itself ends here (it raises): not something to be told as a break.
    ends_program: bool = False
    # Not one step but the rest of the frame is run natively.
    leaves_frame: bool = False
    # It says nothing of the next call: only this one runs eagerly.
    passing: bool = False
    # Of the frame, only the loop that it stands in is run natively.
    leaves_loop: bool = False


def declare(
    number: int,
    title: str,
    explanation: str,
    hint: str,
    *,
    ends: bool = False,
    leaves: bool = False,
    passing: bool = False,
    loop: bool = False,
) -> Reason:
    """Add a row; a number stands once."""
    assert number not in REASONS, f"reason {number} is declared twice"
    row = REASONS[number] = Reason(number, title, explanation, hint, ends, leaves, passing, loop)
    return row


def stop(row: Reason, detail: str) -> NoReturn:
    """This instruction cannot be captured."""
    raise Unsupported(row.number, detail)


def described(
    error: Unsupported, where: SourceLine | None, stack: tuple[SourceLine, ...] = ()
) -> Break:
    """The record of a break, for captures and reports."""
    row = REASONS.get(error.number)
    where, refused = error.where or where, breaks_are_errors()
    if row is None:  # a number of another room's table
        return Break(error.number, error.detail, error.detail, "", where, stack, refused)
    return Break(row.number, row.title, error.detail, row.hint, where, stack, refused)


def is_no_break(number: int) -> bool:
    """Whether the reason says nothing against one graph: the program itself ends there, or only
    this call runs eagerly."""
    row = REASONS.get(number)
    return row is not None and (row.ends_program or row.passing)


def page() -> str:
    """The documentation of every reason, as Markdown."""
    parts = [
        "# Breaks\n\nMade from `windfall/frontend/breaks.py`; do not edit.\n\n"
        "At a break the graph captured so far runs, the one step that could not be captured runs "
        "natively, and capturing goes on behind it.\n"
    ]
    for row in sorted(REASONS.values(), key=lambda one: one.number):
        code = f"W{row.number:04d}"
        head, link = f"## {code}: {row.title}", f"([{code}](breaks/{code}.md))"
        parts.append(f"{head}\n\n{row.explanation}\n\n**What to do:** {row.hint} {link}\n")
    return "\n".join(parts)


_WHAT_RUNS = {
    "ends_program": "The program itself ends here: this is told, and is no break.",
    "leaves_frame": "The rest of the function runs natively, then capturing goes on in its caller.",
    "leaves_loop": "The loop runs natively to its end, then capturing goes on behind it.",
    "passing": "Only this call runs eagerly; the next one is looked at anew.",
}


def pages() -> dict[str, str]:
    """A page of each reason, by the name of its file."""
    made = {}
    for row in REASONS.values():
        code = f"W{row.number:04d}"
        special = [text for field, text in _WHAT_RUNS.items() if getattr(row, field)]
        runs = " ".join(special) or (
            "The graph captured so far runs, this one step runs natively, and capturing goes on "
            "behind it."
        )
        made[f"{code}.md"] = (
            f"# {code}: {row.title}\n\nMade from `windfall/frontend/breaks.py`; do not edit.\n\n"
            f"{row.explanation}\n\n## What happens\n\n{runs}\n\n## What to do\n\n{row.hint}\n\n"
            "Where it happens in your program, with the line: `windfall.explain(f)(*args)`, "
            '`windfall.report("out.html")`. As an error: `fullgraph=True`. '
            "[All reasons](../breaks.md).\n"
        )
    return made


UNKNOWN_CALL = declare(
    1,
    "a function that windfall cannot read is called",
    "It is written in C, or it does input and output, and there is no rule for it. It is called "
    "natively, with real values, at its place in the program.",
    "Move it out of the compiled function, or behind the tensor work, if the break costs too much.",
)
TENSOR_BRANCH = declare(
    2,
    "a branch depends on a tensor's data",
    "Which way the program goes is known only when the tensor has been computed.",
    "Use torch.where, or compute the condition outside; a condition on shapes is no break.",
)
DATA_READ = declare(
    3,
    "a tensor's data is read into Python",
    "`tolist()`, `numpy()`, printing and the like need the computed value. So does `item()` where "
    "the program looks at the number: a branch, a `range`, a key. A number that only goes into "
    "operations, slices and sizes is no break.",
    "Keep the value in a tensor, or read it after the compiled function has returned. What a "
    "branch asks of an integer, `torch._check` can tell beforehand.",
)
DATA_SIZE = declare(
    33,
    "the program needs to know how many elements the data select",
    "`x[mask]`, `nonzero()`, `unique()` and the like are no breaks by themselves: how many "
    "elements they answer is known when they have run. Here something that follows depends on "
    "the number: a branch, or an operation of which 0, 1 and more elements are different cases.",
    "Tell what is known of `y.shape[0]` by `torch._check`, or use `torch.where` and keep the size.",
)
UNKNOWN_OPCODE = declare(
    4,
    "a bytecode without a handler",
    "The interpreter has no rule for this instruction yet; it is executed natively.",
    "Report it, with the line.",
)
UNKNOWN_ATTRIBUTE = declare(
    5,
    "an attribute that cannot be read symbolically",
    "Reading it would run code that windfall cannot follow.",
    "Read it before the compiled function and pass the value.",
)
UNKNOWN_OPERATION = declare(
    6,
    "an operation on values for which there is no rule",
    "An operator, a subscript or a comparison on objects that windfall does not model.",
    "Report it, with the line.",
)
NOT_A_GRAPH_ARGUMENT = declare(
    7,
    "a torch function gets an argument that cannot stand in a graph",
    "Graph arguments are tensors, numbers, strings, dtypes, devices and lists or tuples of them.",
    "Pass plain values.",
)
OPERATION_FAILS = declare(
    8,
    "a torch function raises, or cannot run without data",
    "It was tried on tensors without data and raised; it is called on real ones, so that the "
    "program sees what eager does.",
    "If eager succeeds here, report it, with the line.",
)
TORCH_CALL = declare(
    9,
    "a torch function that must not stand in a graph",
    "It changes global state, or its result is not a tensor.",
    "Call it outside of the compiled function.",
)
UNCAUGHT = declare(
    10,
    "an exception leaves the compiled function",
    "The instruction that raises is executed natively, so that the exception is the one that eager "
    "raises.",
    "Nothing: this is the program's own exception.",
    ends=True,
)
SUBCLASS = declare(
    11,
    "a tensor subclass or an object with its own torch function protocol",
    "Its methods may do anything with an operation. A class that says what its tensors are made of "
    "(`__tensor_flatten__`) and whose methods only compute is compiled.",
    "Unwrap it before the compiled function.",
)
GENERATOR = declare(
    12,
    "a generator or coroutine that cannot be followed",
    "Its frame outlives the segment, or it awaits.",
    "Use a list.",
)
FOREIGN_ITERATOR = declare(
    13,
    "an iterator from outside",
    "What it will give is known only to itself (a generator, a `map`), or it goes over what "
    "the program has just written, or has many items; it is advanced natively. Iterators over "
    "lists, tuples, ranges, texts, dicts and sets, `enumerate` and `zip` of them are no break.",
    "Nothing: this costs one native step for each item.",
)
NATIVE_FUNCTION = declare(
    14,
    "a function that is not to be captured",
    "It is marked as one to run natively, or belongs to a library whose code windfall does not "
    "read.",
    "Nothing, unless its tensors should be compiled.",
)
ATTRIBUTE_WRITE = declare(
    15,
    "an attribute write that cannot be replayed",
    "The class overrides `__setattr__`, or the write reaches into a tensor or a module's registry.",
    "Write plain attributes.",
)
UNKNOWN_VALUE = declare(
    16,
    "a value that windfall does not model takes part in an operation",
    "There is no rule for objects of this class.",
    "Report it, with the class.",
)
RECURSION = declare(
    17,
    "calls are nested too deeply",
    "The stack of inlined calls reached its limit; the call is made natively.",
    "Nothing, unless the recursion carries the tensor work.",
)
REBUILD = declare(
    18,
    "a value that cannot be rebuilt at a break",
    "It exists only symbolically and there is no recipe for it.",
    "Report it, with the line.",
)
IMPORT = declare(
    19,
    "an import inside of the function",
    "Importing may run any code; a module that is loaded already is no break.",
    "Import at the top of the file.",
)
BUDGET = declare(
    20,
    "too many bytecodes without a tensor",
    "The frame is run by CPython itself from here on.",
    "Nothing: plain Python loops run at plain speed.",
    leaves=True,
)
FRAME_BOUND = declare(
    21,
    "a function that looks at its caller's frame",
    "`locals`, `eval`, `exec`, `sys._getframe` see the frame in which they are called; the rest of "
    "that frame is run by CPython itself.",
    "Avoid them in compiled functions.",
    leaves=True,
)
CONTEXT_MANAGER = declare(
    22,
    "a context manager that cannot be followed",
    "Its `__enter__` or `__exit__` is written in C and there is no rule for it.",
    "Enter it outside of the compiled function.",
)
OVERLAP = declare(
    24,
    "tensors that share memory are written",
    "An argument that the program writes overlaps another one, and sizes vary or data are read on "
    "the way; such a call runs eagerly.",
    "Pass a copy, or let the views be made inside of the compiled function.",
    passing=True,
)
AMBIENT_MODE = declare(
    25,
    "a dispatch mode, a function mode or the profiler is active",
    "It wants to see every operation as eager does it, so the call runs eagerly.",
    "Nothing: calls outside of the mode are compiled.",
    passing=True,
)
EXCEPTION_GROUP = declare(
    26,
    "`except*`",
    "Exception groups are split by CPython itself: the rest of the frame runs natively.",
    "Nothing, unless tensor work follows in the same function: move it into one of its own.",
    leaves=True,
)
ASKED_BREAK = declare(
    40,
    "a break that the program asks for",
    "`graph_break()` is called: the graph ends here and another one begins behind.",
    "Remove the call where one graph is wanted.",
)
ASKED_LEAVE = declare(
    41,
    "the program asks to leave the frame",
    "`skip_frame()` is called: the rest of the calling function is run by CPython itself.",
    "Remove the call where the function is to be compiled.",
    leaves=True,
)
TYPE_PARAMETERS = declare(
    42,
    "a function, class or type alias with type parameters is defined",
    "CPython itself makes it; capturing goes on behind the definition.",
    "Define it outside of the compiled function, if the break costs too much.",
    leaves=True,
)
ARGUMENTS = declare(
    23,
    "a call whose arguments do not fit",
    "The call is made natively, so that the program sees Python's own TypeError.",
    "Nothing: this is the program's own exception.",
    ends=True,
)
WATCHED_DEATH = declare(
    29,
    "an object is deleted that has weak references or a `__del__`",
    "Whoever watches it must see it go at this line, so nothing of the segment may hold it.",
    "Nothing: this costs one native step.",
)
IDLE_LOOP = declare(
    30,
    "a loop that does nothing with tensors",
    "After some hundred rounds without an operation on tensors the loop is run by CPython itself, "
    "to its end; capturing goes on behind it.",
    "Nothing: plain Python loops run at plain speed.",
    leaves=True,
    loop=True,
)
LEFT_GENERATOR = declare(
    31,
    "a function returns that holds a generator before its end",
    "When the generator goes with the frame, its `finally` or `with` runs: CPython itself returns.",
    "Exhaust the generator, or close it.",
    leaves=True,
)
RECURRENT = declare(
    32,
    "a recurrent layer is trained on sequences that are long, or of a length that varies",
    "Taken apart, its gradient would be as many operations as the sequence has steps, and another "
    "graph for each length. The layer is called natively, with torch's own gradient; without "
    "gradients it is one operation of the graph.",
    "Nothing: the layer runs at eager's speed.",
)
TOO_MANY_VALUES = declare(
    34,
    "the value of a size or number is needed that is another one in each call",
    "A loop of so many rounds, a list of that length, an integer made of a fraction: the program "
    "was compiled for several values already. Instead of one more compilation for each value the "
    "step that needs it runs natively, and what it gives varies.",
    "Use operations on tensors in place of the loop; windfall.mark_static, if the values are few.",
)
TOO_LARGE = declare(
    35,
    "more elements than a capture models",
    "A container of some thousand elements, a text or an integer of as many bits is not taken "
    "apart: the step that makes it or goes through it is run by CPython itself, at its speed, and "
    "its result is an object like one from outside.",
    "Nothing: the step runs at plain speed. Use a tensor where the elements are numbers to "
    "compute with.",
)
HOT_RECURSION = declare(
    36,
    "a recursion that does nothing with tensors",
    "After some thousand calls of one function without an operation on tensors its outermost call "
    "is run by CPython itself, to its end; capturing goes on behind it.",
    "Nothing: plain Python calls run at plain speed.",
    leaves=True,
)
LARGE_GRAPH = declare(
    37,
    "a loop that goes on after some thousand operations",
    "The graph ends at the end of a round, so that compiling it does not take longer than the "
    "program: the rounds that follow share what is compiled for one of them.",
    "Use operations on whole tensors in place of the loop.",
)
BODY = declare(
    49,
    "a body of torch.cond, torch.func.grad or their like that is no function of tensors alone",
    "Bodies are captured as graphs of their own: they may use tensors from outside, but not write "
    "them, change other objects, or read data; those of control flow return new tensors. torch "
    "raises for most of these. (So does a transform of `torch.func` with arguments that are not "
    "known here, or `functional_call` of a module that replaces its own tensors.)",
    "Return new tensors of one type from each body; do what has an effect outside of it.",
)
WATCHER = declare(
    43,
    "a function that looks at frames",
    "It names `sys._getframe`, `traceback.walk_stack`, `tb_frame`, `f_locals` or their like. Calls "
    "that are captured have no frames of their own: the function is called natively, with all that "
    "it calls, so that what it looks at is there.",
    "Keep what looks at frames in functions that do nothing else.",
)
CHECKPOINT = declare(
    48,
    "a checkpoint whose function cannot be run a second time unseen, or that eager refuses",
    "What stands in `torch.utils.checkpoint` is run again by eager, in backward. A function that "
    "writes to tensors or objects from outside does so twice, and one with "
    "`preserve_rng_state=False` draws other numbers; warnings and refusals are torch's own too. "
    "The call is made natively, at its place in the program.",
    "Let the checkpointed function only compute; give use_reentrant=False.",
)
WRITTEN_LATER = declare(
    53,
    "a tensor is used that a fused step of an optimizer has written",
    "`torch._fused_adam_` and its like run behind the graph, on the tensors themselves and by "
    "torch's own kernel. What comes after and looks at these tensors stands in another graph.",
    "Nothing, or let the fused step be the last thing that the function does with them.",
)
BACKWARD = declare(
    60,
    "a backward pass that is not captured",
    "A pass is part of the graph where all that it goes through was computed in the same graph, "
    "from leaves that nobody listens to. Passes through tensors with a history from before the "
    "graph, hooks on leaves or on what the graph computes, `create_graph` in `backward()`, and "
    "what torch refuses are done by torch's engine, natively; there too, gradients of our graphs "
    "are compiled.",
    "Compute the loss in the function that calls `backward()`; call hooks' work directly.",
)
SCHEDULE = declare(
    61,
    "a schedule of rates takes its step",
    "Most of `torch.optim.lr_scheduler` look at the number of the epoch in Python. Such a step is "
    "an effect: CPython takes it behind the graph, so that nothing is compiled again as rates "
    "change. It is a break where it gets a tensor, runs a function of the user's, raises (beyond "
    "the end of `OneCycleLR`), or is the second one of a schedule in the same segment.",
    "Nothing, or let it be the last thing that the function does.",
)
