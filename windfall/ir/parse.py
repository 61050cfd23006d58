"""Text → the loop IR: what `ir/text.py` prints, read again.

Enters: the text of an index expression, of a kernel or of a whole schedule. Leaves: the records.
Invariant: printing what was read gives the same text.

    >>> parse_size("4*i + j", {"i": symbol("i"), "j": symbol("j")})
    Expression(4*i + j)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, cast

import torch

from windfall.dataclass import dataclass
from windfall.ir.dtype import BY_SHORT_NAME, TensorType, contiguous_strides
from windfall.ir.loop import (
    REDUCTIONS,
    Axis,
    Buffer,
    BufferView,
    Call,
    Fold,
    Invocation,
    Kernel,
    Loop,
    Place,
    Scalar,
    Scalars,
    Schedule,
    Statement,
    Store,
    axis,
)
from windfall.ir.symint import REBUILD, Expression, Size, size_symbol

Symbols = Mapping[str, Expression]

_TOKEN = re.compile(
    r"\s*(\d+\.?\d*(?:e[-+]?\d+)?|[A-Za-z_][\w.]*|\$\d+|//|->|'[^']*'|[-+*%(){}\[\],:<=@])"
)


class _Tokens:
    """The tokens of one line, taken from the left."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)
        if "".join(self.tokens) != re.sub(r"\s+", "", text):
            raise ValueError(f"not the loop IR: {text!r}")
        self.position = 0

    def peek(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise ValueError(f"{wanted or 'more'} wanted at {token!r} in {self.text!r}")
        self.position += 1
        return token

    def takes(self, wanted: str) -> bool:
        if self.peek() != wanted:
            return False
        self.position += 1
        return True

    def separated(self, read: Callable[[], Any], end: str) -> list[Any]:
        """`read, read, …` up to `end`, which is taken too."""
        found = []
        while not self.takes(end):
            found.append(read())
            self.takes(",")
        return found

    def finish(self) -> None:
        if self.peek():
            raise ValueError(f"unread text {self.peek()!r} in {self.text!r}")


# ------------------------------------------------------------------------------- index expressions


class _Sizes:
    """Index expressions: sums of products, the usual order of operations."""

    def __init__(self, tokens: _Tokens, symbols: Symbols) -> None:
        self.tokens = tokens
        self.symbols = symbols

    def total(self) -> Size:
        value = self._term()
        while self.tokens.peek() in ("+", "-"):
            value = value + self._term() if self.tokens.take() == "+" else value - self._term()
        return value

    def _term(self) -> Size:
        value = self._factor()
        while self.tokens.peek() in ("*", "//", "%"):
            operation = self.tokens.take()
            right = self._factor()
            value = value * right if operation == "*" else REBUILD[operation](value, right)
        return value

    def _factor(self) -> Size:
        token = self.tokens.take()
        if token == "-":
            return -self._factor()
        if token == "(":
            inner = self.total()
            self.tokens.take(")")
            return inner
        if token in ("min", "max"):
            self.tokens.take("(")
            return REBUILD[token](*self.tokens.separated(self.total, ")"))
        if token == "{":
            return self._from_data()
        return int(token) if token.isdigit() else self.symbols[token]

    def _from_data(self) -> Size:
        raise ValueError(f"an index from data outside a kernel: {self.tokens.text!r}")


def parse_size(text: str, symbols: Symbols) -> Size:
    """The index expression that `str` printed; its symbols are looked up by name."""
    tokens = _Tokens(text)
    value = _Sizes(tokens, symbols).total()
    tokens.finish()
    return value


# --------------------------------------------------------------------------------------- scalars


class _Line(_Sizes):
    """One statement of a kernel."""

    def __init__(self, text: str, state: _State) -> None:
        super().__init__(_Tokens(text), state.symbols)
        self.state = state

    def _from_data(self) -> Size:
        value = self.scalar()
        self.tokens.take("}")
        size, _ = value.attribute
        return self.state.scalars.indirect(value, size - 1 if isinstance(size, int) else None)

    def _dtype(self) -> torch.dtype:
        self.tokens.take(":")
        return BY_SHORT_NAME[self.tokens.take()]

    def scalar(self) -> Scalar:
        token = self.tokens.take()
        if token.startswith("$"):
            return self.state.names[token]
        if token == "-" or token[0].isdigit() or token in _WORDS:
            return self._constant(token)
        if self.tokens.peek() == "[":
            return self._load(token)
        if token in REDUCTIONS and self.tokens.peek() == "{":
            return self._reduce(token)
        self.tokens.take("(")
        special = _FORMS.get(token)
        if special is not None:
            return special(self)
        arguments = self.tokens.separated(self.scalar, ")")
        return self.state.scalars.apply(token, *arguments)

    def _constant(self, token: str) -> Scalar:
        sign = ""
        if token == "-":
            sign, token = "-", self.tokens.take()
        value: Any = _WORDS[token] if token in _WORDS else ast.literal_eval(token)
        return self.state.scalars.constant(-value if sign else value, self._dtype())

    def _load(self, buffer: str) -> Scalar:
        self.tokens.take("[")
        offset = self.total()
        self.tokens.take("]")
        return self.state.scalars.load(buffer, offset, self._dtype())

    def axis(self) -> Axis:
        name = self.tokens.take()
        self.tokens.take("<")
        found = axis(name, self.total())
        self.state.symbols[name] = found.symbol
        return found

    def _reduce(self, kind: str) -> Scalar:
        self.tokens.take("{")
        axes = tuple(self.tokens.separated(self.axis, "}"))
        self.tokens.take("(")
        body = self.scalar()
        self.tokens.take(")")
        dtype = torch.int64 if kind.startswith("arg") else body.dtype
        return self.state.scalars.make("reduce", dtype, (body,), (kind, axes))

    def _index(self) -> Scalar:
        size = self.total()
        self.tokens.take(")")
        return self.state.scalars.make("index", self._dtype(), (), size)

    def _cast(self) -> Scalar:
        value = self.scalar()
        self.tokens.take(")")
        return self.state.scalars.make("cast", self._dtype(), (value,))

    def _checked(self) -> Scalar:
        value = self.scalar()
        self.tokens.take(",")
        size = self.total()
        self.tokens.take(",")
        wrap = self.tokens.take() == "wrap"
        self.tokens.take(")")
        return self.state.scalars.make("checked", torch.int64, (value,), (size, wrap))

    def _masked(self) -> Scalar:
        condition, body, otherwise = self.tokens.separated(self.scalar, ")")
        return self.state.scalars.make("masked", body.dtype, (condition, body, otherwise))


_WORDS = {"True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
_FORMS: dict[str, Callable[[_Line], Scalar]] = {
    "index": _Line._index,
    "cast": _Line._cast,
    "checked": _Line._checked,
    "masked": _Line._masked,
}


# --------------------------------------------------------------------------------------- kernels


@dataclass(slots=True)
class _State:
    """What has been read so far."""

    scalars: Scalars = field(default_factory=Scalars)
    symbols: dict[str, Expression] = field(default_factory=dict)
    names: dict[str, Scalar] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _body(lines: list[str], depth: int, state: _State) -> tuple[Statement, ...]:
    """The statements at `depth`, taken from the front of `lines`."""
    found: list[Statement] = []
    while lines and _indent(lines[0]) == depth:
        text = lines.pop(0).strip()
        word, _, rest = text.partition(" ")
        if word in ("for", "parallel"):
            found.append(_loop(word, rest, lines, depth, state))
        elif word == "scratch":
            _add_buffer(text, state)
        elif word == "fold":
            name, _, value = rest.partition(" = ")
            state.names[name] = _whole(value, state)
            found.append(Fold(state.names[name]))
        else:
            place, _, value = text.partition(" = ")
            if place.startswith("$"):
                state.names[place] = _whole(value, state)
            else:
                found.append(_store(place, value, state))
    return tuple(found)


def _whole(text: str, state: _State) -> Scalar:
    line = _Line(text, state)
    value = line.scalar()
    line.tokens.finish()
    return value


def _store(place: str, value: str, state: _State) -> Store:
    line = _Line(place, state)
    buffer = line.tokens.take()
    line.tokens.take("[")
    offset = line.total()
    line.tokens.take("]")
    line.tokens.finish()
    return Store(buffer, offset, _whole(value, state))


def _loop(word: str, rest: str, lines: list[str], depth: int, state: _State) -> Loop:
    line = _Line(rest, state)
    found = line.axis()
    lanes = int(line.tokens.take()) if line.tokens.takes("lanes") else 1
    unrolled = line.tokens.takes("unrolled")
    line.tokens.finish()
    body = _body(lines, depth + 2, state)
    return Loop(found, body, lanes, word == "parallel", unrolled)


def parse_type(text: str, symbols: Symbols = MappingProxyType({})) -> TensorType:
    """A tensor's type, as printed: `f32[2, 3]`, with strides in parentheses if not row-major."""
    found = re.fullmatch(r"(\w+)\[([^\]]*)\](?:\((.*)\))?", text.strip())
    if found is None:
        raise ValueError(f"not a type: {text!r}")
    name, sizes, strides = found.groups()
    numbers = _sizes(sizes, symbols)
    step = contiguous_strides(numbers) if strides is None else _sizes(strides, symbols)
    return TensorType(BY_SHORT_NAME[name], numbers, step)


def _sizes(text: str, symbols: Symbols) -> tuple[Size, ...]:
    return tuple(parse_size(part, symbols) for part in split(text))


def _add_buffer(text: str, state: _State) -> None:
    pattern = r"(\w+) (\w+)(?: over (\w+))?: (.*)"
    place, name, over, type = re.fullmatch(pattern, text.strip()).groups()  # type: ignore[union-attr]
    held = parse_type(type, state.symbols)
    state.buffers[name] = Buffer(name, held, cast(Place, place), over=over)


def _add_symbol(text: str, state: _State) -> Expression:
    found = re.fullmatch(r"(\w+) = (\d+) in (-?\w+) to (-?\w+)", text)
    if found is None:
        raise ValueError(f"not a symbol: {text!r}")
    name, value, *ends = found.groups()
    low, high = (None if end == "any" else int(end) for end in ends)
    made = state.symbols[name] = size_symbol(name, int(value), low, high)
    return made


def parse_schedule(text: str) -> Schedule:
    """The schedule that `schedule_text` printed."""
    state = _State()
    lines = [line for line in text.splitlines() if line.strip()]
    items: list[Kernel | Call] = []
    symbols: list[Expression] = []
    results: tuple[BufferView | None, ...] = ()
    while lines:
        line = lines.pop(0)
        word, _, rest = line.partition(" ")
        if word == "kernel":
            state.names.clear()
            items.append(Kernel(rest, _body(lines, 2, state)))
        elif word == "call":
            items.append(_call(rest, state))
        elif word == "return":
            results = tuple(_views(f"({rest})", state.symbols))
        elif word == "symbol":
            symbols.append(_add_symbol(rest, state))
        else:
            _add_buffer(line, state)
    inputs = tuple(name for name, each in state.buffers.items() if each.place == "input")
    return Schedule(state.buffers, inputs, tuple(items), results, state.scalars, tuple(symbols))


# ----------------------------------------------------------------------------------------- calls


def _call(text: str, state: _State) -> Call:
    found = re.fullmatch(r"(\w+)(\(.*\)) -> ([\w, ]*?)(?: (\{.*\}|[\w.]+\(.*\)))?", text)
    if found is None:
        raise ValueError(f"not a call: {text!r}")
    entry, arguments, results, attributes = found.groups()
    names = tuple(name.strip() for name in results.split(",") if name.strip())
    given = tuple(_views(arguments, state.symbols))
    return Call(entry, given, names, _attributes(attributes, state.symbols))


def _attributes(text: str | None, symbols: Symbols) -> Any:
    if text is None or text.startswith("{"):
        return None if text is None else ast.literal_eval(text)
    name, _, rest = text.partition("(")
    target: Any = torch.ops
    for part in name.split("."):
        target = getattr(target, part)
    keywords = [tuple(each) for each in _views(f"({rest}", symbols)]
    return Invocation(target, tuple(keywords))


def _views(text: str, symbols: Symbols) -> list[Any]:
    """The arguments of a call: views, tuples of them, plain values."""
    parts = split(text.strip()[1:-1])
    return [_argument(part, symbols) for part in parts]


def split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _argument(text: str, symbols: Symbols) -> Any:
    view = re.fullmatch(r"(\w+): (\w+\[.*)", text)
    if view is not None:
        buffer, rest = view.groups()
        type, _, offset = rest.partition(" at ")
        return BufferView(buffer, parse_type(type, symbols), parse_size(offset or "0", symbols))
    if text in _NAMED:
        return _NAMED[text]
    if symbols.keys() & set(re.findall(r"\w+", text)) and not text.startswith("("):
        return parse_size(text, symbols)
    if text.startswith("("):
        return tuple(_views(text, symbols))
    return ast.literal_eval(text)


_NAMED: dict[str, Any] = {
    str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)
}
