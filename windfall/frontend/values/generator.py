"""Generators: a frame that is kept between items.

Enters: calls of generator functions. Leaves: items, one resumption at a time: the generator's frame
is put on the machine's stack, runs until it yields, and is taken off again. Invariants: a generator
that lives on after the segment is rebuilt as a real one that goes on where this one stands; one
that is running when a break comes stays so if its loop alone holds it, else it is taken back to
before it was resumed, and resumed natively.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from windfall.errors import LeaveReal
from windfall.frontend.assembler import fragment
from windfall.frontend.breaks import GENERATOR, UNKNOWN_ATTRIBUTE, stop
from windfall.frontend.polyfills.iterators import (
    AGAIN,
    CONSTRUCTORS,
    FINISHED,
    FORGETFUL,
    HALF_RUN,
    SHARING,
)
from windfall.frontend.values.base import NULL, Arguments, Keywords, Raised, Value
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.exception import Exception_
from windfall.frontend.values.iterator import Iterator
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import Tuple

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_METHODS = ("__next__", "__iter__", "send", "throw", "close")


class StillRunning(Exception):
    """A generator is asked to be rebuilt while it runs: there is no such object."""


class Generator(Iterator):
    """A generator that the program made, or one of our own that stands for an iterator of C
    (`made_of`, see `polyfills/iterators.py`). `frame` is None when it has finished. `place`: where
    the program makes the iterator that it stands for."""

    __slots__ = (
        "asks_again",
        "frame",
        "handled",
        "made_of",
        "outer",
        "place",
        "running",
        "started",
    )

    def __init__(self, frame: Frame, made_of: type | None = None) -> None:
        super().__init__()
        self.frame: Frame | None = frame
        self.made_of = made_of or types.GeneratorType
        self.running = False
        self.started = False
        self.handled: Value | None = None  # the exception that its frame is handling
        self.outer: Value | None = None  # the one that whoever resumed it is handling
        self.place: str | None = None
        self.asks_again = False  # at its end, what the user made is asked again

    def forget(self) -> None:
        """Let go of the frame, and let it let go: the capture is over."""
        frame, self.frame = self.frame, None
        self.handled = self.outer = None
        if frame is not None:
            frame.generator = None
            frame.stack.clear()
            frame.variables.clear()

    def ended(self) -> None:
        """It has come to its end."""
        if self.made_of in FORGETFUL and self.frame is not None:
            held = [one for one in self.frame.variables if one is not None]
            held += [item for one in held if isinstance(one, Tuple) for item in one._items or ()]
            self.asks_again = any(isinstance(one, Object) for one in held)
        self.frame = None

    def leave_real(self) -> None:
        """If it stands for an iterator of C, begin again with that one itself."""
        if self.place is not None:
            raise LeaveReal(self.place)

    @property
    def sees_its_end(self) -> bool:
        """Whether code of it runs when it is dropped where it stands: a `finally`, a `with`."""
        frame = self.frame
        if frame is None or not self.started or self.running:
            return False
        listing = frame.listing
        handler = listing.handler_at(frame.last)
        # From 3.12 on a `yield from` has one of its own, which passes on that it is dropped.
        while handler and listing.instructions[handler.target].name == "CLEANUP_THROW":
            handler = listing.handler_at(handler.target)
        if handler is not None:
            return True
        held = (*frame.stack, *frame.variables)
        return any(isinstance(one, Generator) and one.sees_its_end for one in held)

    @property
    def delegates(self) -> bool:
        """Whether it stands in a `yield from`: what is thrown in is for the other one first."""
        frame = self.frame
        if frame is None or not self.started or frame.ip >= len(frame.instructions):
            return False
        behind = frame.instructions[frame.ip]
        return behind.name == "RESUME" and behind.argument & 3 >= 2

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Its methods."""
        if name in _METHODS and hasattr(self.made_of, name):
            return machine.values.method(self, name)
        stop(UNKNOWN_ATTRIBUTE, f"{self.made_of.__name__}.{name}")

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`send`, `throw`, `close`."""
        if name == "throw" and 2 <= len(arguments) <= 3 and isinstance(arguments[1], Exception_):
            arguments = [arguments[1]]  # the old form: class, instance, traceback
        if keywords or len(arguments) > (1 if name in ("send", "throw") else 0):
            stop(GENERATOR, f"generator.{name} with odd arguments")
        if name == "send":
            return self._send(machine, arguments[0])
        if name == "throw":
            return self._throw(machine, arguments[0])
        return machine.values.polyfill("close_generator", [self])

    def advance(self, machine: Machine) -> Value | None:
        """Asked item by item by code that cannot wait: refused."""
        stop(GENERATOR, "a generator is asked for items by a builtin")

    def unpack(self, machine: Machine) -> list[Value]:
        """All items at once, by code that cannot wait: refused."""
        stop(GENERATOR, "a generator is unpacked by a builtin")

    def contains(self, machine: Machine, item: Value) -> Value:
        """By asking for items."""
        return machine.values.polyfill("contains", [self, item])

    def _send(self, machine: Machine, value: Value) -> Value:
        if not self.started and value.python_type() is not type(None):
            text = "can't send non-None value to a just-started generator"
            raise machine.values.raised(TypeError(text))
        return machine.frames.resume(self, value, "next")

    def _throw(self, machine: Machine, value: Value) -> Value:
        if isinstance(value, Class):
            value = value.call(machine, [], {})
        if not isinstance(value, Exception_):
            stop(GENERATOR, f"throw of {value.describe()}")
        if self.frame is None:
            raise Raised(value)
        if not self.started:
            machine.frames.finish(self)
            raise Raised(value)
        if self.delegates:
            stop(GENERATOR, "an exception is thrown into what a generator delegates to")
        machine.frames.resume(self, None, "next")
        raise Raised(value)

    def rebuild(self, recipe: Recipe) -> str:
        """A real generator at the same place, or an iterator of the class it stands for."""
        if self.running:
            raise StillRunning
        if self.made_of is types.GeneratorType:
            return self._resumed(recipe)
        if self.asks_again or self.made_of in SHARING:  # what stands in it stands in others too
            self.leave_real()
        if self.frame is None:
            return f"{recipe.known(FINISHED[self.made_of], self.made_of.__name__)}()"
        if not self.started and self.frame.code in CONSTRUCTORS:
            return self._constructed(recipe, CONSTRUCTORS[self.frame.code])
        half = HALF_RUN.get(self.frame.code) if self.started else None
        if half is not None:
            return self._half_run(recipe, self.frame, half)
        again = AGAIN.get(self.made_of)
        text = self._resumed(recipe)
        return f"{recipe.known(again, self.made_of.__name__)}({text})" if again else text

    def _half_run(self, recipe: Recipe, frame: Frame, make: types.FunctionType) -> str:
        """The real class, made of variables of the frame, by their names; `stack` is what loops
        have put there, `phase` says at which `yield` it stands."""
        parts = []
        for name in inspect.getfullargspec(make).args:
            if name == "stack":
                held = [recipe.name(one) for one in frame.stack]
                parts.append(f"({', '.join(held)},)")
            elif name == "phase":
                before = frame.instructions[: frame.last]
                parts.append(str(sum(one.name == "YIELD_VALUE" for one in before)))
            else:
                value = frame.variables[frame.listing.variables.index(name)]
                assert value is not None, f"{name} is bound at each yield"
                parts.append(recipe.name(value))
        return f"{recipe.known(make, self.made_of.__name__)}({', '.join(parts)})"

    def _constructed(self, recipe: Recipe, make: Any) -> str:
        """Not started: the real class, called with the parameters."""
        frame = self.frame
        assert frame is not None
        code = frame.code
        total = code.co_argcount + code.co_kwonlyargcount
        values = [one for one in frame.variables[:total] if one is not None]
        parts = [recipe.name(one) for one in values[: code.co_argcount]]
        if code.co_flags & inspect.CO_VARARGS:
            rest = frame.variables[total]
            assert rest is not None
            parts.append(f"*{recipe.name(rest)}")
        names = code.co_varnames[code.co_argcount : total]
        named = zip(names, values[code.co_argcount :], strict=True)
        parts += [f"{name}={recipe.name(value)}" for name, value in named]
        return f"{recipe.known(make, self.made_of.__name__)}({', '.join(parts)})"

    def _resumed(self, recipe: Recipe) -> str:
        frame = self.frame
        if frame is None:
            return f"{recipe.known(_finished, 'finished_generator')}()"
        bound = tuple(i for i, value in enumerate(frame.variables) if value is not None)
        # One that has begun is started at its yield, with something to yield, and advanced once:
        # then it stands where this one does, for `send` and `throw` too.
        begun = [True] if self.started else []
        start_at = frame.last if self.started else frame.ip + 1
        stack = (*(value is not NULL for value in frame.stack), *begun)
        made = fragment(
            frame.code, start_at, frozenset(), bound, stack, handled=self.handled is not None
        ).bind(frame.globals, frame.builtins)
        names = [recipe.name(frame.variables[index] or NULL) for index in bound]
        names += [recipe.name(value) for value in frame.stack if value is not NULL]
        names += ["None"] if begun else []
        if self.handled is not None:
            names.append(recipe.name(self.handled))
        start = recipe.known(made, f"resume_{frame.code.co_name}")
        text = f"{start}(({', '.join(names)}{',' if names else ''}))"
        return f"{recipe.known(_advanced, 'advanced')}({text})" if begun else text


def _advanced(generator: Any) -> Any:
    """A generator, advanced to its first yield."""
    next(generator)
    return generator


def _finished() -> Any:
    """A generator with nothing left."""
    made = (item for item in [None][1:])
    next(made, None)
    return made
