"""The loop IR as text, and back.

Enters: kernels, definitions, scalar expressions. Leaves: text for people, goldens and reports, in
one form that `ir/parse.py` reads again. Invariant: what was read prints the same.

    kernel k0
      parallel o<1000
        for v<1024 lanes 32
          fold $0 = max{v<1024} x[1024*o + v]
        for v<1024 lanes 8
          out[1024*o + v] = exp(sub(x[1024*o + v], $0))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from windfall.ir.dtype import short_name
from windfall.ir.loop import (
    Buffer,
    BufferView,
    Call,
    Definition,
    Fold,
    Invocation,
    Kernel,
    Loop,
    Loops,
    PartCall,
    Scalar,
    Schedule,
    Statement,
    Store,
    children,
    indirect_in,
    walk,
)
from windfall.ir.symint import Expression, Size, hint_of

_LEAVES = ("load", "constant", "index")
DEEP = 30  # levels of one expression on one line


# ------------------------------------------------------------------------------------- printing


class Printer:
    """Prints scalars; remembers the names of those that are used again."""

    def __init__(self, renamed: Mapping[str, str] | None = None) -> None:
        self.renamed = renamed or {}
        self.names: dict[Scalar, str] = {}
        self._count = 0

    def buffer(self, name: str) -> str:
        """The name under which a buffer is printed."""
        return self.renamed.get(name, name)

    def size(self, size: Size) -> str:
        """An index expression; what is computed from data stands in braces."""
        text = str(size)
        for atom in indirect_in(size):
            text = text.replace(atom.key, "{" + self.scalar(atom.payload) + "}")
        return text

    def scalar(self, node: Scalar) -> str:
        """One expression on one line."""
        known = self.names.get(node)
        if known is not None:
            return known
        if node.op == "load":
            name, offset = node.attribute
            return f"{self.buffer(name)}[{self.size(offset)}]:{short_name(node.dtype)}"
        if node.op == "constant":
            return f"{node.attribute!r}:{short_name(node.dtype)}"
        if node.op == "index":
            return f"index({self.size(node.attribute)}):{short_name(node.dtype)}"
        arguments = ", ".join(self.scalar(argument) for argument in node.arguments)
        if node.op == "reduce":
            kind, axes = node.attribute
            return f"{kind}{{{', '.join(map(str, axes))}}}({arguments})"
        if node.op == "cast":
            return f"cast({arguments}):{short_name(node.dtype)}"
        if node.op == "checked":
            size, wrap = node.attribute
            return f"checked({arguments}, {size}, {'wrap' if wrap else 'plain'})"
        return f"{node.op}({arguments})"

    def uses(self, roots: Iterable[Scalar]) -> Counter[Scalar]:
        """How often each node is used by some expressions that stand together."""
        uses: Counter[Scalar] = Counter()
        for root in roots:
            self._visit(root, uses, [])
        return uses

    def shared(self, root: Scalar, uses: Counter[Scalar]) -> Iterator[str]:
        """Lines that name what is used more than once."""
        order: list[Scalar] = []
        self._visit(root, Counter(), order)
        for node in order:
            if uses[node] > 1 and node.op not in (*_LEAVES, "reduce"):
                text = self.scalar(node)
                yield f"{self.name(node)} = {text}"

    def _visit(self, root: Scalar, uses: Counter[Scalar], order: list[Scalar]) -> None:
        """Count uses; operands come first in `order`. What has a name is not looked into. A deep
        expression is cut: a node with many levels below it counts as used twice."""
        depth: dict[Scalar, int] = {}
        stack: list[tuple[Scalar, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                below = max((depth.get(child, 0) for child in children(node)), default=0)
                depth[node] = below + 1 if below < DEEP else 0
                uses[node] += below >= DEEP
                continue
            uses[node] += 1
            if uses[node] == 1 and node not in self.names:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(children(node)))

    def name(self, node: Scalar) -> str:
        """Give a node a name."""
        self._count += 1
        self.names[node] = f"${self._count - 1}"
        return self.names[node]


def _lines(body: Sequence[Statement], printer: Printer, indent: str) -> Iterator[str]:
    uses = printer.uses(each.value for each in body if not isinstance(each, Loop))
    for statement in body:
        if isinstance(statement, Loop):
            word = "parallel" if statement.parallel else "for"
            how = f" lanes {statement.lanes}" if statement.lanes > 1 else ""
            how += " unrolled" if statement.unrolled else ""
            yield f"{indent}{word} {statement.axis}{how}"
            before = dict(printer.names)
            yield from _lines(statement.body, printer, indent + "  ")
            # Values live as long as the loop, finished folds as long as the kernel.
            folds = {n: t for n, t in printer.names.items() if n.op == "reduce"}
            printer.names = {**before, **folds}
        else:
            yield from (indent + line for line in printer.shared(statement.value, uses))
            text = printer.scalar(statement.value)
            place = f"fold {printer.name(statement.value)}" if isinstance(statement, Fold) else ""
            if isinstance(statement, Store):
                place = f"{printer.buffer(statement.buffer)}[{printer.size(statement.offset)}]"
            yield f"{indent}{place} = {text}"


def kernel_text(
    kernel: Kernel, buffers: Mapping[str, Buffer], renamed: Mapping[str, str] | None = None
) -> str:
    """The loops of a kernel."""
    printer = Printer(renamed)
    rows = [
        f"  scratch {name}: {buffers[name].type}"
        for name in mentioned(kernel.body)
        if buffers[name].place == "scratch"
    ]
    name = kernel.name if not renamed else "kernel"
    return "\n".join([f"kernel {name}", *rows, *_lines(kernel.body, printer, "  ")])


def mentioned(body: Sequence[Statement]) -> list[str]:
    """The buffers of some statements, in the order in which they are mentioned."""
    found: dict[str, None] = {}

    for statement in body:
        if isinstance(statement, Loop):
            found.update(dict.fromkeys(mentioned(statement.body)))
        else:
            for node in walk(statement.value):
                if node.op == "load":
                    found.setdefault(node.attribute[0])
            if isinstance(statement, Store):
                found.setdefault(statement.buffer)
    return list(found)


def definition_text(item: Definition) -> str:
    """One definition on one line, or some."""
    printer = Printer()
    axes = ", ".join(map(str, item.axes))
    lines = [*printer.shared(item.value, printer.uses([item.value]))]
    lines.append(f"{item.buffer}[{printer.size(item.offset)}] = {printer.scalar(item.value)}")
    return f"define over {axes or 'nothing'}\n" + "\n".join(f"  {line}" for line in lines)


def call_text(item: Call) -> str:
    """One call on one line."""
    arguments = ", ".join(_argument(argument) for argument in item.arguments)
    attributes = ""
    if isinstance(item.attributes, Invocation):
        attributes = f" {item.attributes.target}{_argument(item.attributes.keywords)}"
    elif item.attributes is not None:
        attributes = f" {item.attributes}"
    return f"call {item.entry}({arguments}) -> {', '.join(item.results)}{attributes}"


def _argument(value: object) -> str:
    if isinstance(value, BufferView):
        return f"{value.buffer}: {value.type}" + (f" at {value.offset}" if value.offset else "")
    if isinstance(value, tuple):
        return f"({', '.join(map(_argument, value))})"
    return str(value) if isinstance(value, Expression) else repr(value)


def _buffer_rows(buffers: Mapping[str, Buffer]) -> list[str]:
    over = {name: f" over {each.over}" for name, each in buffers.items() if each.over}
    return [
        f"{each.place} {name}{over.get(name, '')}: {each.type}" for name, each in buffers.items()
    ]


def _symbol_rows(symbols: Iterable[Expression]) -> list[str]:
    """`symbol s0 = 8 in 2 to any`: the value in the call being compiled, and the range."""
    rows = []
    for each in symbols:
        low, high = each.bounds
        value = hint_of(each)
        ends = ["any" if end is None else str(end) for end in (low, high)]
        rows.append(f"symbol {each} = {value} in {ends[0]} to {ends[1]}")
    return rows


def loops_text(loops: Loops) -> str:
    """All of `Loops`."""
    rows = [*_symbol_rows(loops.symbols), *_buffer_rows(loops.buffers)]
    for item in loops.items:
        rows.append(call_text(item) if isinstance(item, Call) else definition_text(item))
    rows.append("return " + ", ".join(_argument(view) for view in loops.results))
    return "\n".join(rows)


def _part_rows(item: PartCall, written: set[str]) -> list[str]:
    """A call of a part; before the first one, the part itself."""
    rows = []
    if item.part.name not in written:
        written.add(item.part.name)
        inside = schedule_text(item.part.schedule).splitlines()
        rows = [f"{item.part.name}:", *(f"  {row}" for row in inside)]
    given = ", ".join(f"{name}={_argument(view)}" for name, view in item.operands)
    return [*rows, f"call {item.part.name}({given})"]


def schedule_text(schedule: Schedule) -> str:
    """All of a `Schedule`."""
    rows = [*_symbol_rows(schedule.symbols), *_buffer_rows(schedule.buffers)]
    written: set[str] = set()
    for item in schedule.items:
        if isinstance(item, PartCall):
            rows += _part_rows(item, written)
        elif isinstance(item, Call):
            rows.append(call_text(item))
        else:
            rows.append(kernel_text(item, schedule.buffers))
    rows.append("return " + ", ".join(_argument(view) for view in schedule.results))
    return "\n".join(rows)
