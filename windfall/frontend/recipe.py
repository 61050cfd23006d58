"""Source text that rebuilds values: from graph results, sources, constants and containers.

Enters: values that live on after a segment. Leaves: lines of Python, the names they use, and which
nodes of the graph must be returned. Invariant: one value is built once and has one name, so
identity and aliasing are as in the program; sources are read before the graph runs and before any
effect.

    x = a.__dict__['weight']       reads, before the graph
    g0, g1 = graph(x)
    v0 = [g0, g1]                  rebuilt
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch.fx

from windfall.frontend.size_symbols import Symbol
from windfall.frontend.state import HELD
from windfall.frontend.values.base import Value
from windfall.frontend.values.constant import Constant
from windfall.identity_map import IdentityMap
from windfall.ir.source import Slot, Source
from windfall.ir.symint import Atom, Expression, Read

if TYPE_CHECKING:
    from windfall.frontend.values.mapping import Dict


# Names that generated source has for itself.
RESERVED = ("graph", "Continue", "leave", "error", "traceback", "through", "callers", HELD)


class Recipe:
    """Text under construction."""

    def __init__(
        self,
        taken: tuple[str, ...],
        symbols: Mapping[str, Symbol] | None = None,
        read: Callable[[str], torch.fx.Node] | None = None,
    ) -> None:
        self._symbols = symbols or {}
        self._read = read  # the node that answers a number which is read from data
        self.reads: list[str] = []  # before the graph
        self.lines: list[str] = []  # after it
        self.namespace: dict[str, Any] = {}
        self.outputs: list[torch.fx.Node] = []
        self._used = {*taken, *RESERVED}
        self._numbers: dict[str, int] = {}  # of the next fresh name, by how it begins
        self._names: IdentityMap[Value, str] = IdentityMap()
        self._sources: dict[Source, str] = {}
        self._known: dict[int, str] = {}
        self._building: dict[int, str] = {}
        self._asked: set[int] = set()
        self._later: list[tuple[str, Value]] = []
        self._depth = 0
        self._displays: set[str] = set()  # of tuples of literals
        self.own = ""  # as `Capture.own`

    # ---------------------------------------------------------------------------------- values

    def name(self, value: Value) -> str:
        """A name (or literal) of the object that a value stands for."""
        key = id(value)
        known = self._names.get(value)
        if known is not None:
            return known
        if value.source is not None:
            return self._note(value, self.source(value.source))
        if isinstance(value, Constant):
            return value.rebuild(self)
        if key in self._building:
            self._asked.add(key)
            return self._building[key]
        self._depth += 1
        text = value.rebuild(self)
        self._depth -= 1
        name = self._names.get(value) or self.bind(value, text)
        self._finish()
        return name

    def expression(self, value: Value) -> str:
        """The same, where it is used once: a display need not have a name."""
        if value.source is not None or value in self._names or isinstance(value, Constant):
            return self.name(value)
        self._depth += 1
        text = value.rebuild(self)
        self._depth -= 1
        self._finish()
        return self._names.get(value) or text

    def _finish(self) -> None:
        """Fill what had to be made before its parts."""
        if self._depth == 0 and self._later:
            self._depth += 1  # what this needs is made first, and filled after it
            self.settle()
            self._depth -= 1

    def settle(self) -> None:
        """Fill all that was made so far: what is made next looks into it."""
        while self._later:
            template, value = self._later.pop(0)
            name = self.name(value)
            before, _, after = template.rpartition("{}")  # keys may have braces
            self.lines.append(f"{before}{name}{after}")

    def _note(self, value: Value, name: str) -> str:
        self._names[value] = name
        return name

    def alias(self, value: Value, text: str) -> None:
        """A value that a statement has made has this for a name."""
        self._note(value, text)

    def bind(self, value: Value, text: str) -> str:
        """Give what `text` makes a name."""
        if text.isidentifier() and not keyword.iskeyword(text):
            return self._note(value, text)
        name = self.fresh("v")
        self.lines.append(f"{name} = {text}")
        return self._note(value, name)

    def container(self, value: Value, empty: str, display: Callable[[], str], fill: str) -> str:
        """A mutable container: at once, or in two steps if it holds itself."""
        name = self._building[id(value)] = self.fresh("v")
        start = len(self.lines)
        text = display()
        del self._building[id(value)]
        if id(value) in self._asked:
            self.lines.insert(start, f"{name} = {empty}")
            self.lines.append(fill.format(name, text))
        else:
            self.lines.append(f"{name} = {text}")
        return self._note(value, name)

    def later(self, template: str, value: Value) -> None:
        """A line that fills something already made; written when its part can be built. The last
        `{}` of the template is its part."""
        self._later.append((template, value))

    def anew(self, display: str) -> str:
        """A tuple of literals: of equal ones Python's compiler would make one object."""
        if display not in self._displays:
            self._displays.add(display)
            return display
        return f"(*{display},)"

    def line(self, text: str) -> None:
        """A statement."""
        self.lines.append(text)

    def key(self, owner: Dict, key: Any) -> str:
        """The text of a dict's key."""
        found = owner.keys.get(key) or (key if isinstance(key, Value) else None)
        return self.name(found) if found is not None else Constant(key).rebuild(self)

    # ----------------------------------------------------------------------------- names of things

    def fresh(self, start: str) -> str:
        """A name not used yet."""
        number = self._numbers.get(start, 0)  # names are never given back
        while f"{start}{number}" in self._used:
            number += 1
        self._numbers[start] = number + 1
        name = f"{start}{number}"
        self._used.add(name)
        return name

    def known(self, value: Any, hint: str) -> str:
        """A name for an object that generated source finds in its namespace."""
        found = self._known.get(id(value))
        if found is None:
            word = "".join(c if c.isalnum() else "_" for c in hint).strip("_")
            word = word if word.isidentifier() and not keyword.iskeyword(word) else f"k_{word}"
            found = (
                word if word not in self._used and word not in _BUILTINS else self.fresh(word + "_")
            )
            self._used.add(found)
            self._known[id(value)] = found
            self.namespace[found] = value
        return found

    def source(self, source: Source) -> str:
        """A name for what is read from outside."""
        if isinstance(source, Slot):
            return source.name
        name = self._sources.get(source)
        if name is None:
            text = self.source_text(source)
            if text.isidentifier():
                return text
            name = self._sources[source] = self.fresh("s")
            self.reads.append(f"{name} = {text}")
        return name

    def source_text(self, source: Source) -> str:
        """The path as text."""
        base = source.base
        return source.text(self.source_text(base) if base is not None else "", self.known)

    def paths(self, sources: Sequence[Source]) -> tuple[str, ...]:
        """The texts of many paths: what several of them begin with is read once."""
        counts: Counter[Source] = Counter()
        for source in sources:
            step: Source | None = source
            while step is not None:
                counts[step] += 1
                step = step.base if counts[step] == 1 else None
        texts: dict[Source, str] = {}
        return tuple(self._path(one, counts, texts) for one in sources)

    def _path(self, source: Source, counts: Counter[Source], texts: dict[Source, str]) -> str:
        found = texts.get(source)
        if found is None:
            base = source.base
            before = self._path(base, counts, texts) if base is not None else ""
            found = source.text(before, self.known)
            if counts[source] > 1 and not found.isidentifier():
                name = self.fresh("p")
                self.reads.append(f"{name} = {found}")
                found = name
            texts[source] = found
        return found

    def symbol_names(self, size: Expression) -> dict[str, str]:
        """For each symbol of an expression, the name of what is read for it."""
        return {atom.key: self._symbol_name(atom) for atom in size.symbols}

    def _symbol_name(self, atom: Atom) -> str:
        if isinstance(atom.payload, Read):
            assert self._read is not None
            return self.graph_output(self._read(atom.key))
        return self.source(self._symbols[atom.key].source)

    def graph_output(self, node: torch.fx.Node) -> str:
        """The name of a result of the graph."""
        if node not in self.outputs:
            self.outputs.append(node)
        return f"g{self.outputs.index(node)}"


_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
