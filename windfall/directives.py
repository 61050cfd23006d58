"""What users say about single functions: run it natively, put it into the graph, take its answer
as a constant, read another one in its place.

Enters: decorators of the public API, and torch's own marks on functions that the user decorated
with `torch.compiler.disable` and the like (attributes and names are read; nothing is imported for
it). Leaves: `directive_of(function)`, which the front end asks before any rule of its own.
Invariant: a directive says how a function is captured, never what it returns; outside of a capture
a directed function behaves as it did before.

    >>> @disable(reason="it logs")
    ... def report(x): print(x.mean())
    >>> directive_of(report)
    Directive(kind='native', detail='it logs', function=None)
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy
import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import UserError

Kind = Literal[
    "native", "inline", "graph", "constant", "break", "leave", "forbid", "true", "nothing"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Directive:
    """How calls of a function are captured.

    native: called at a break. inline: `function` is read in its place. graph: one node. constant:
    called while capturing, its answer is a constant. break: a break and nothing else. leave: the
    rest of the calling frame runs natively. forbid: an error. true: answers True. nothing: does
    nothing and answers None."""

    kind: Kind
    detail: str = ""
    function: Callable[..., Any] | None = None


class StandIn:
    """A compiled object: when it is called inside of another one, `target` is read instead."""

    target: Any


_given: weakref.WeakKeyDictionary[Any, Directive] = weakref.WeakKeyDictionary()
_given_for_good: dict[Any, Directive] = {}  # of builtins that cannot be referred to weakly
_skipped: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


def give(function: Any, directive: Directive) -> None:
    """Say how calls of `function` are captured from now on."""
    try:
        _given[function] = directive
    except TypeError:
        _given_for_good[function] = directive


def directive_of(function: Any) -> Directive | None:
    """What was said about `function`, to windfall or to torch."""
    try:
        found = _given.get(function) or _given_for_good.get(function)
    except TypeError:  # neither hashable nor directed
        return None
    return found or _said_to_torch(function)


def told() -> tuple[str, ...]:
    """All that users have said of functions, in an order that is the same in every process."""
    given = [*_given.items(), *_given_for_good.items()]
    said = [
        f"{one.kind} {one.detail} {_title(function)} {_title(one.function)}"
        for function, one in given
    ]
    return tuple(sorted((*said, *(f"skip {code.co_qualname}" for code in _skipped))))


def _title(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"


def is_skipped(code: types.CodeType) -> bool:
    """Whether operations of frames of this code stay out of graphs (`disable(recursive=False)`)."""
    return code in _skipped


# --------------------------------------------------------------------------------- torch's marks

# Functions that are known by module and name: torch._dynamo is not loaded for their sake.
_BY_NAME: dict[tuple[str, str], Directive] = {
    ("torch._dynamo.decorators", "graph_break"): Directive("break", "torch._dynamo.graph_break()"),
    ("torch._dynamo.decorators", "skip_frame"): Directive("leave", "torch._dynamo.skip_frame()"),
    ("torch._dynamo.external_utils", "is_compiling"): Directive("true"),
    ("torch._utils", "is_compiling"): Directive("true"),
    # It tells CUDA graphs that a step begins; calling it would load torch's compiler.
    ("torch.compiler", "cudagraph_mark_step_begin"): Directive("nothing"),
}


_MARKS = {
    "_dynamo_marked_constant": Directive("constant"),
    "_dynamo_forbidden": Directive("forbid", "it was forbidden in compiled code"),
}
_REGION = "mark_compile_region.<locals>.wrap.<locals>.inner"


def _said_to_torch(function: Any) -> Directive | None:
    if not isinstance(function, types.FunctionType):
        return Directive("graph") if torch_abi.allowed_in_graph(function) else None
    known = _BY_NAME.get((function.__module__ or "", function.__name__))
    if known is not None:
        return known
    marks = function.__dict__
    for mark, directive in _MARKS.items():
        if marks.get(mark):
            return directive
    return _wrapped_by_torch(function, marks) or (
        Directive("graph") if torch_abi.allowed_in_graph(function) else None
    )


def _wrapped_by_torch(function: types.FunctionType, marks: dict[str, Any]) -> Directive | None:
    """What torch's decorators made. `functools.wraps` copies their marks to other functions, whose
    own work must be done."""
    region = marks.get("__marked_compile_region_fn__")  # `nested_compile_region`
    if region is not None and function.__code__.co_qualname == _REGION:
        return Directive("inline", function=region)
    if marks.get("_torchdynamo_wrapper_id", id(function)) != id(function):
        return None
    inner = marks.get("_torchdynamo_orig_callable")
    if not marks.get("_torchdynamo_disable"):  # what torch.compile made of `inner`
        return Directive("inline", function=inner) if inner is not None else None
    said = marks.get("_torchdynamo_disable_msg") or ""
    if inner is not None and _is_for_torchs_compiler(inner, said):
        return Directive("inline", function=inner)
    if marks.get("_torchdynamo_disable_recursive", True):
        return Directive("native", said)
    if inner is None:
        return None
    _skip(inner)
    return Directive("inline", function=inner)


# What torch's compiler says where it keeps itself away from the parts of torch's own optimizers
# that it cannot read. It does so at its first use, for the whole process.
_OF_OPTIMIZERS = re.compile(
    r"don't trace into fused optimizer|optimizer <class 'torch\.optim\..*'> \w+ not supported"
)


def _is_for_torchs_compiler(inner: Any, said: str) -> bool:
    """Whether nobody but torch's own compiler is kept away."""
    home = str(getattr(inner, "__module__", ""))
    return home.startswith("torch.optim.") and _OF_OPTIMIZERS.fullmatch(said) is not None


# ------------------------------------------------------------------------------------- decorators


def _checked(what: str, function: Any) -> None:
    if not callable(function):
        raise UserError(f"{what} takes a callable, not {function!r}")


def _skip(function: Any) -> None:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None:
        _skipped.add(code)


def disabled(function: Callable[..., Any], reason: str | None, recursive: bool) -> Any:
    """A function that does what `function` does, natively: with all that it calls, or (not
    `recursive`) only with its own operations."""
    _checked("disable", function)

    @functools.wraps(function)
    def native(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    if not hasattr(function, "__name__"):  # a module, or another object that is called
        native.__name__ = native.__qualname__ = type(function).__qualname__
    if recursive:
        give(native, Directive("native", reason or ""))
    else:
        _skip(function)
        give(native, Directive("inline", reason or "", function))
    return native


def allow_in_graph(function: Any) -> Any:
    """Put calls of `function` into the graph as one node, without reading its body.

    It must be a function of its arguments alone: tensors, numbers, strings, lists and tuples of
    them, in and out. The compiler behind the front end still looks inside. A list or tuple of
    functions is accepted too.
    """
    if isinstance(function, list | tuple):
        return [allow_in_graph(one) for one in function]
    _checked("allow_in_graph", function)
    give(function, Directive("graph"))
    return function


def nonstrict_trace(function: Any) -> Any:
    """Put calls of `function` into the graph as one node; whatever it does is recorded, not read.

    So it may do what cannot be read (a break is none inside of it), as long as its results depend
    on its arguments alone: tensors, numbers, strings, lists, tuples and dicts of them. A module or
    another object as an argument is a break. This is what `allow_in_graph` does here.
    """
    _checked("nonstrict_trace", function)
    return allow_in_graph(function)


def nested_compile_region(
    function: Any = None,
    *,
    options: Any = None,
    max_reuse_entries: int = 8,
    reuse_hash_fn: Any = None,
) -> Any:
    """Say that a function or module is repeated; without one, a decorator.

    It changes nothing: blocks that repeat themselves are found in the graph and compiled once,
    marked or not, and what they share is checked there. The other arguments are torch's own and
    ask for nothing.
    """
    if function is None:
        return nested_compile_region
    _checked("nested_compile_region", function)
    return function


def wrap_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors: arguments and results are converted, also in
    lists, tuples and dicts, without copying. In compiled code it runs natively, at a break; no
    gradient flows through it."""
    _checked("wrap_numpy", function)

    @functools.wraps(function)
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        given, named = _converted((args, kwargs), torch.Tensor, torch.Tensor.numpy)
        result = function(*given, **named)
        return _converted(result, (numpy.ndarray, numpy.generic), torch.as_tensor)

    give(of_tensors, Directive("native", "it is a function of NumPy arrays"))
    return of_tensors


def _converted(value: Any, kind: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with everything of a kind changed, in lists, tuples and dicts of any depth."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return type(value)({key: _converted(one, kind, change) for key, one in value.items()})
    if isinstance(value, list | tuple):
        parts = [_converted(one, kind, change) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def disallow_in_graph(function: Any) -> Any:
    """Call `function` natively, at a break, although it could stand in a graph."""
    if isinstance(function, list | tuple):
        return [disallow_in_graph(one) for one in function]
    _checked("disallow_in_graph", function)
    give(function, Directive("native", "it is not allowed in graphs"))
    return function


def forbid_in_graph(function: Any) -> Any:
    """Calling `function` inside of compiled code is an error."""
    if isinstance(function, list | tuple):
        return [forbid_in_graph(one) for one in function]
    _checked("forbid_in_graph", function)
    give(function, Directive("forbid", "it was forbidden in compiled code"))
    return function


def assume_constant_result(function: Any) -> Any:
    """Call `function` once while capturing and take its answer as a constant."""
    _checked("assume_constant_result", function)
    give(function, Directive("constant"))
    return function


def substitute_in_graph(
    original: Callable[..., Any],
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the decorated function is read wherever compiled code calls `original`.

    Both must take the same arguments and give the same answers. `can_constant_fold_through` is
    accepted and not needed: what is read with constants becomes a constant.
    """
    _checked("substitute_in_graph", original)
    if isinstance(original, type):
        raise UserError("substitute_in_graph takes a function, not a class")

    def decorate(substitute: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(substitute, types.FunctionType):
            raise UserError("substitute_in_graph takes a Python function as the substitute")
        if not skip_signature_check:
            _check_signatures(original, substitute)
        give(original, Directive("inline", function=substitute))
        return substitute

    return decorate


def _check_signatures(original: Any, substitute: Any) -> None:
    try:
        wanted = inspect.signature(original)
    except (TypeError, ValueError):  # many builtins have none
        return
    given = inspect.signature(substitute)
    shape = [(one.name, one.kind, one.default) for one in wanted.parameters.values()]
    if shape != [(one.name, one.kind, one.default) for one in given.parameters.values()]:
        raise UserError(
            f"{substitute.__name__}{given} does not take what {original.__name__}{wanted} takes; "
            "skip_signature_check=True if that is as it should be"
        )


# ------------------------------------------------------------------------------ questions, breaks


def graph_break(message: str = "") -> None:
    """End the graph here and begin another one behind; outside of compiled code, nothing."""


def skip_frame(message: str = "") -> None:
    """Run the rest of the calling function natively; outside of compiled code, nothing."""


_breaking = threading.local()


def breaks_are_errors() -> bool:
    """Whether this thread is where `error_on_graph_break(True)` stands."""
    return getattr(_breaking, "errors", False)


def set_breaks_are_errors(value: bool) -> bool:
    """Say so from here on; answers what stood before."""
    before = breaks_are_errors()
    _breaking.errors = value
    return before


# A capture puts it back, and a segment leaves it as the program did, as with torch's own modes.
torch_abi.SWITCHES["breaks_are_errors"] = torch_abi.Switch(breaks_are_errors, set_breaks_are_errors)

_capturing = threading.local()


@contextmanager
def capturing() -> Iterator[None]:
    """While this thread captures, `is_compiling()` is true for what capturing calls."""
    before = is_compiling()
    try:
        _capturing.now = True
        yield
    finally:
        _capturing.now = before


def _set_compiling(value: bool) -> None:
    _capturing.now = value


def is_compiling() -> bool:
    """True in code that is being captured (torch.compiler.is_compiling() says the same there)."""
    return getattr(_capturing, "now", False)


torch_abi.FENCED["compiling"] = torch_abi.Switch(is_compiling, _set_compiling)


def is_exporting() -> bool:
    """Whether a program is being exported: never, windfall has no export yet."""
    return False


class StepMarks:
    """Counts the steps that the program marks, by our name or by torch's."""

    def __init__(self) -> None:
        self._own = 0

    def mark(self) -> None:
        """A step begins."""
        self._own += 1

    @property
    def count(self) -> int:
        """All marks so far."""
        return self._own + torch_abi.torch_step_marks()


STEP_MARKS = StepMarks()


def mark_step_begin() -> None:
    """Say that a step of the program begins: graph trees (`mode="reduce-overhead"`) begin a path
    anew, whatever of the last one is alive. Results of earlier steps stay what they are, said or
    not. Inside of compiled code it does nothing: a step begins where a call begins."""
    STEP_MARKS.mark()


def cudagraph_mark_step_begin() -> None:
    """`mark_step_begin` by torch's name."""
    STEP_MARKS.mark()


give(graph_break, Directive("break", "windfall.graph_break()"))
give(skip_frame, Directive("leave", "windfall.skip_frame()"))
give(is_compiling, Directive("true"))
give(mark_step_begin, Directive("nothing"))
give(cudagraph_mark_step_begin, Directive("nothing"))
