"""Python programs as text, drawn by hypothesis.

Enters: hypothesis's `draw`. Leaves: the source of a function `program(x, y, w, n, xs, ys, d, box)`
over tensors, numbers, lists, dicts and objects, with control flow, exceptions, generators, effects
and breaks at random places. It may raise: then the uncompiled one raises as well.

Invariant: it ends (loops are bounded, calls do not recurse without end), it is deterministic, and
its tensors hold small whole numbers, so that arithmetic is exact in any order. The first choice of
every table is the simplest, for hypothesis shrinks towards it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

TENSORS = ("x", "y", "t", "w", "box.value", "KEPT")
NUMBERS = ("n", "m", "0", "1", "2", "3")
LISTS = ("xs", "ys")
KEYS = ("'a'", "'b'", "'c'")
ERRORS = ("ValueError", "KeyError", "IndexError", "Failure", "Exception", "(ValueError, Failure)")

Rule = Callable[["Writer"], None]
STATEMENTS: list[Rule] = []


def statement(rule: Rule) -> Rule:
    """A kind of statement, as likely as every other."""
    STATEMENTS.append(rule)
    return rule


class Writer:
    """The text so far, and where in the program we stand."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], size: int) -> None:
        self.draw = draw
        self.size = size  # how many statements may still be written
        self.lines: list[str] = []
        self.depth = 1
        self.loops = 0  # loops around this place, within this function
        self.handlers = 0
        self.functions = 0
        self.names = 0

    # -------------------------------------------------------------------------------- choices

    def one(self, options: tuple[Any, ...] | list[Any]) -> Any:
        """One of these; the first is the simplest."""
        return self.draw(st.sampled_from(options))

    def upto(self, most: int) -> int:
        """A small number."""
        return self.draw(st.integers(0, most))

    def chance(self, outof: int = 3) -> bool:
        """Seldom true."""
        return self.upto(outof) == outof

    def fresh(self, stem: str) -> str:
        """A name of its own."""
        self.names += 1
        return f"{stem}{self.names}"

    # -------------------------------------------------------------------------------- writing

    def put(self, text: str) -> None:
        """One line, at the present depth."""
        self.lines.append("    " * self.depth + text)

    def block(self, head: str, least: str = "pass", most: int = 3) -> None:
        """A head and its indented statements."""
        self.put(head)
        self.depth += 1
        before = len(self.lines)
        self.statements(most)
        if len(self.lines) == before:
            self.put(least)
        self.depth -= 1

    def statements(self, most: int) -> None:
        """Some statements; a zero ends them, so that shrinking can take any of them out."""
        for _ in range(most):
            if self.size <= 0 or self.upto(5) == 0:
                return
            self.size -= 1
            rules = STATEMENTS if self.depth < 5 else FLAT
            self.one(rules)(self)

    # ---------------------------------------------------------------------------- expressions

    def tensor(self, depth: int = 2) -> str:
        """An expression whose value is a tensor."""
        if depth == 0 or self.chance(1):
            return self.one(TENSORS)
        return self.one(TENSOR_RULES)(self, depth - 1)

    def number(self, depth: int = 1) -> str:
        """An expression whose value is an integer."""
        if depth == 0 or self.chance(1):
            return self.one(NUMBERS)
        return self.one(NUMBER_RULES)(self, depth - 1)

    def condition(self, depth: int = 1) -> str:
        """An expression that is used for its truth."""
        return self.one(CONDITION_RULES)(self, depth)

    def text(self) -> str:
        """An expression whose value is a string."""
        number = self.number()
        return self.one((f'f"{{{number}:03d}}"', f'f"{{{number}!r:>4}}"', f"str({number})", '"s"'))


Expression = Callable[[Writer, int], str]

TENSOR_RULES: tuple[Expression, ...] = (
    lambda w, d: f"({w.tensor(d)} + {w.tensor(d)})",
    lambda w, d: f"({w.tensor(d)} - {w.tensor(d)})",
    lambda w, d: f"({w.tensor(d)} * {w.tensor(d)}).clamp(-9, 9)",
    lambda w, d: f"({w.tensor(d)} + {w.number()})",
    lambda w, d: f"({w.number()} - {w.tensor(d)})",
    lambda w, d: f"(-{w.tensor(d)})",
    lambda w, d: f"torch.relu({w.tensor(d)})",
    lambda w, d: f"abs({w.tensor(d)})",
    lambda w, d: f"{w.tensor(d)}.sum()",
    lambda w, d: f"torch.where({w.tensor(0)} > {w.number()}, {w.tensor(d)}, {w.tensor(0)})",
    lambda w, d: f"torch.maximum({w.tensor(d)}, {w.tensor(d)})",
    lambda w, d: f"{w.one(LISTS)}[{w.one(('0', '-1', '1', w.number()))}]",
    lambda w, d: f"d[{w.one(KEYS)}]",
    lambda w, d: f"d.get({w.one(KEYS)}, {w.tensor(d)})",
    lambda w, d: f"scaled({w.tensor(d)}, {w.number()}, shift={w.number()})",
    lambda w, d: f"scaled(*({w.tensor(d)},), **{{'shift': {w.number()}}})",
    lambda w, d: f"noted({w.tensor(d)}, times={w.number()})",
    lambda w, d: f"loud({w.tensor(d)})",
    lambda w, d: f"deep({w.tensor(d)}, 2)",
    lambda w, d: f"(lambda q, k={w.number()}: q + k)({w.tensor(d)})",
    lambda w, d: f"({w.tensor(d)} if {w.condition()} else {w.tensor(d)})",
    lambda w, d: f"sum([q + k for k, q in enumerate({w.one(LISTS)}[:3])], {w.tensor(d)})",
    lambda w, d: f"sum(q + 1 for q in {w.one(LISTS)}[:3] if {w.condition(0)})",
    lambda w, d: f"sum(parts({w.tensor(d)}, {w.number()}))",
    lambda w, d: f"sum(delegating({w.tensor(d)}, {w.number()}), {w.tensor(0)})",
    lambda w, d: "box.doubled",
    lambda w, d: f"box.shifted({w.number()}, *{w.one(LISTS)}, **CONFIG)",
    lambda w, d: f"box.put({w.tensor(d)}).value",
    lambda w, d: f"next(iter({w.one(LISTS)}))",
    lambda w, d: f"(q := {w.tensor(d)})",
    lambda w, d: f"{w.tensor(0)}.detach()",
    lambda w, d: f"{w.tensor(0)}.view(-1)",
    lambda w, d: f"Box({w.tensor(d)}).value",
)
NUMBER_RULES: tuple[Expression, ...] = (
    lambda w, d: f"({w.number(d)} + {w.number(d)})",
    lambda w, d: f"({w.number(d)} - {w.number(d)})",
    lambda w, d: f"({w.number(d)} * {w.number(d)}) % 7",
    lambda w, d: f"({w.number(d)} // {w.number(d)})",
    lambda w, d: f"len({w.one((*LISTS, 'd', 'LOG'))})",
    lambda w, d: "box.count",
    lambda w, d: "Box.limit",
    lambda w, d: "COUNT",
    lambda w, d: f"CONFIG['{w.one(('scale', 'shift'))}']",
    lambda w, d: f"{w.tensor(0)}.dim()",
    lambda w, d: f"{w.one(('max', 'min'))}({w.number(d)}, {w.number(d)})",
    lambda w, d: f"int({w.tensor(0)}.sum().item()) % 5",
    lambda w, d: f"opaque({w.number(d)})",
    lambda w, d: f"refuse({w.number(d)})",
    lambda w, d: f"int({w.condition(0)})",
    lambda w, d: f"sum(k for k in range({w.number(d)}))",
    lambda w, d: f"len({{k % 2 for k in range({w.number(d)})}})",
)
CONDITION_RULES: tuple[Expression, ...] = (
    lambda w, d: f"{w.number()} > {w.number()}",
    lambda w, d: f"{w.number()} == {w.number()}",
    lambda w, d: f"0 < {w.number()} <= 2",
    lambda w, d: f"{w.one(KEYS)} in d",
    lambda w, d: w.one(LISTS),
    lambda w, d: f"{w.tensor(1)}.sum() > {w.number()}",
    lambda w, d: f"{w.tensor(0)} is {w.tensor(0)}",
    lambda w, d: "xs is ys",
    lambda w, d: f"torch.is_grad_enabled() and {w.number()}",
    lambda w, d: f"not ({w.condition(d - 1)})" if d else "True",
    lambda w, d: f"{w.condition(d - 1)} or {w.condition(d - 1)}" if d else "False",
    lambda w, d: f"hasattr(box, '{w.one(('extra', 'count', 'nope'))}')",
    lambda w, d: f"isinstance({w.one(('n', 'x', 'xs'))}, {w.one(('int', 'torch.Tensor'))})",
)

# ------------------------------------------------------------------------------ plain statements

_TARGETS = ("t", "x", "y", "box.value")


@statement
def assign_tensor(w: Writer) -> None:
    w.put(f"{w.one(_TARGETS)} = {w.tensor()}")


@statement
def assign_number(w: Writer) -> None:
    w.put(f"{w.one(('m', 'n', 'box.count'))} = {w.number(2)}")


@statement
def augmented(w: Writer) -> None:
    target = w.one(("m", "n", "COUNT", "box.count", 'CONFIG["scale"]'))
    w.put(f"{target} {w.one(('+=', '-=', '*='))} {w.number()}")
    w.put(f"{target} %= 7")


@statement
def in_place(w: Writer) -> None:
    target = w.one(("x", "y", "t", "KEPT", "xs[0]", 'd["a"]'))
    forms = (
        f"{target}.add_({w.tensor(0)})",
        f"{target} += {w.tensor(0)}",
        f"{target}[0] = {w.number()}",
        f"{target}.clamp_(-3, 3)",
        f"{target}.copy_({w.tensor(0)})",
        f"{target}.view(-1)[1:].mul_(2)",
        f"torch.add({w.tensor(0)}, 1, out={target})",
    )
    w.put(w.one(forms))


@statement
def list_change(w: Writer) -> None:
    items, value = w.one(LISTS), w.tensor(1)
    forms = (
        f"{items}.append({value})",
        f"{items}[0] = {value}",
        f"{items}.pop()",
        f"{items}.insert(0, {value})",
        f"del {items}[-1]",
        f"{items}.extend([{value}, {w.tensor(0)}])",
        f"{items}.reverse()",
        f"{items}[1:] = [{value}]",
        f"{items} += [{value}]",
        f"t = {items}.pop(0)",
        f"{items}.clear()",
        f"{items} = [*{items}[:2], {value}]",
        f"{items} = [q for q in {items} if q is not x][:4]",
        f"first, *others = {items}; t = first + len(others)",
        f"{items}[:], t = list({items}[::-1]), {value}",
    )
    w.put(w.one(forms))


@statement
def dict_change(w: Writer) -> None:
    key, value = w.one(KEYS), w.tensor(1)
    forms = (
        f"d[{key}] = {value}",
        f"d.pop({key}, None)",
        f"del d[{key}]",
        f"d.update({{{key}: {value}}})",
        f"t = d.setdefault({key}, {value})",
        f"d[{key}] = d.pop({key})",
        f"d = {{**d, {key}: {value}}}",
        f"d = {{k: q + 1 for k, q in d.items() if k != {key}}}",
        "d.clear()",
        f"d |= {{{key}: {value}}}",
        "LOG.append(list(d))",
    )
    w.put(w.one(forms))


@statement
def object_change(w: Writer) -> None:
    forms = (
        f"box.extra = {w.tensor(1)}",
        "del box.extra",
        f"setattr(box, 'count', {w.number()})",
        "box.me = box",
        f"box = Box({w.tensor(1)}, {w.number()})",
        f"Box.limit = {w.number()}",
        "box.held = xs",
        "box.__dict__['direct'] = 1",
    )
    w.put(w.one(forms))


@statement
def note(w: Writer) -> None:
    values = (w.number(), w.text(), w.tensor(1), "len(LOG)", "torch.is_grad_enabled()")
    w.put(f"LOG.append({w.one(values)})")


@statement
def break_here(w: Writer) -> None:
    forms = (
        'print("here", file=SINK)',
        "SINK.write('w')",
        f"m = int({w.tensor(1)}.sum())",
        f"print({w.number()}, {w.one(TENSORS)}.sum().item(), file=SINK)",
        f"m = opaque({w.number()})",
        f"LOG.append({w.tensor(0)}.tolist())",
    )
    w.put(w.one(forms))


@statement
def set_change(w: Writer) -> None:
    w.put(f"s = {{{w.number()}, {w.number()}}} {w.one(('|', '&', '-'))} {{1, 2}}")
    w.put(w.one(("m = len(s)", "LOG.append(sorted(s))", f"s.add({w.number()}); m = sum(s)")))


@statement
def leave(w: Writer) -> None:
    if w.loops:
        w.put(f"if {w.condition()}: {w.one(('break', 'continue'))}")
    elif w.chance(2) or w.functions:
        w.put(f"if {w.condition()}: return {w.tensor(1)}")


@statement
def fail(w: Writer) -> None:
    how = w.one((f"raise Failure({w.number()})", 'raise ValueError("bad")', "raise KeyError('k')"))
    if w.handlers and w.chance(1):
        how = w.one(
            ("raise", "raise Failure(9) from error", "raise ValueError('new')", "raise error")
        )
    w.put(f"if {w.condition()}: {how}")


@statement
def unpack(w: Writer) -> None:
    forms = (
        f"t, m = {w.tensor(1)}, {w.number()}",
        "x, y = y, x",
        f"(t, *_), m = [{w.tensor(0)}, 1, 2], 3",
        "t, _ = [x, y]",
        "xs, ys = ys, xs",
    )
    w.put(w.one(forms))


@statement
def assertion(w: Writer) -> None:
    w.put(f"assert {w.condition()} or {w.condition()} or {w.condition()}, {w.text()}")


FLAT: list[Rule] = list(STATEMENTS)

# --------------------------------------------------------------------------- compound statements


@statement
def branch(w: Writer) -> None:
    w.block(f"if {w.condition()}:")
    if w.chance(2):
        w.block(f"elif {w.condition()}:")
    if w.chance(1):
        w.block("else:")


@statement
def loop(w: Writer) -> None:
    name = w.fresh("k")
    heads = (
        f"for {name} in range({w.upto(3)}):",
        f"for {name}, t in enumerate({w.one(LISTS)}[:3]):",
        f"for t, {name} in zip(list(xs)[:3], range(3)):",
        f"for {name}, t in list(d.items()):",
        f"for t in parts({w.tensor(1)}, {w.number()}):",
        f"for {name} in range({w.number()} % 4):",
        f"for {name} in sorted(d):",
        f"for t in reversed({w.one(LISTS)}[:2]):",
        f"for m in map(lambda q: q + 1, range({w.upto(2)})):",
    )
    head = w.one(heads)
    w.loops += 1
    w.block(head)
    w.loops -= 1
    if w.chance(3):
        w.block("else:")


@statement
def while_loop(w: Writer) -> None:
    name = w.fresh("k")
    w.put(f"{name} = 0")
    w.loops += 1
    w.put(f"while {name} < {w.upto(3)} and ({w.condition()}):")
    w.depth += 1
    w.put(f"{name} += 1")
    w.statements(3)
    w.depth -= 1
    w.loops -= 1


@statement
def attempt(w: Writer) -> None:
    w.block("try:")
    caught = w.upto(2)
    w.handlers += 1
    for _ in range(caught):
        w.block(f"except {w.one(ERRORS)} as error:", "LOG.append(repr(error))")
    w.handlers -= 1
    if caught and w.chance(2):
        w.block("else:")
    if not caught or w.chance(2):
        loops, w.loops = w.loops, 0
        w.block("finally:", "LOG.append('finally')")
        w.loops = loops


@statement
def within(w: Writer) -> None:
    managers = (
        'Scope("a")',
        "torch.no_grad()",
        f'Scope("b", {w.one(("ValueError", "Failure", "LookupError"))})',
        'managed("c") as m',
        'Scope("d"), managed("e")',
        "torch.enable_grad()",
        f"torch.set_grad_enabled(bool({w.condition(0)}))",
        "contextlib.suppress(KeyError)",
    )
    w.block(f"with {w.one(managers)}:")


@statement
def function(w: Writer) -> None:
    name = w.fresh("inner")
    loops, handlers, w.loops, w.handlers = w.loops, w.handlers, 0, 0
    w.functions += 1
    w.put(f"def {name}(t, m={w.number()}, *rest):")
    w.depth += 1
    w.put("global COUNT")
    w.put("nonlocal n, x, xs, ys, d, box")
    w.put("y = t")
    w.statements(3)
    w.put(f"return {w.tensor(1)}")
    w.depth -= 1
    w.functions -= 1
    w.loops, w.handlers = loops, handlers
    calls = (
        f"t = {name}({w.tensor(0)})",
        f"t = {name}({w.tensor(0)}, {w.number()}, 1, 2)",
        f"xs = [{name}(q) for q in xs[:2]]",
        f"LOG.append({name}); t = {name}(x)",
        f"t = [{name}({w.tensor(0)}), {name}({w.tensor(0)})][-1]",
    )
    w.put(w.one(calls))


@statement
def generator(w: Writer) -> None:
    name = w.fresh("gen")
    loops, handlers, w.loops, w.handlers = w.loops, w.handlers, 0, 0
    w.functions += 1
    w.put(f"def {name}(t):")
    w.depth += 1
    w.put("global COUNT")
    w.put("nonlocal n, x, xs, ys, d, box")
    w.put("m, y = 0, t")
    w.statements(2)
    w.put(f"m = yield {w.tensor(1)}")
    w.statements(2)
    w.put(f"yield {w.tensor(0)}")
    w.depth -= 1
    w.functions -= 1
    w.loops, w.handlers = loops, handlers
    it = w.fresh("it")
    calls = (
        f"xs = list({name}(x))",
        f"t = sum({name}({w.tensor(0)}))",
        f"{it} = {name}(y); t = next({it})",
        f"{it} = {name}(y); next({it}); t = {it}.send(2); {it}.close()",
        f"for t in {name}(x): LOG.append(m)",
        f"{it} = {name}(x); next({it}); {it}.throw(ValueError('thrown'))",
        f"t, *ys = {name}(x)",
        f"LOG.append([q for q in {name}(x)])",
        f"{it} = {name}(x); box.it = [next({it}), {it}][0]",
    )
    w.put(w.one(calls))


@statement
def match_statement(w: Writer) -> None:
    w.put(
        f"match {w.one(('n', '(n, m)', '[1, n, m]', 'd', 'box', '{}'))}:".replace("{}", "{'k': n}")
    )
    w.depth += 1
    cases = (
        "case 1 | 2:",
        "case (1, k):",
        "case [1, *rest]:",
        "case {'a': t, **rest}:",
        "case Box(count=0):",
        "case {'k': int(k)} if k > 1:",
        "case int(m):",
    )
    for _ in range(1 + w.upto(1)):
        w.block(w.one(cases))
    w.block("case _:")
    w.depth -= 1


# ------------------------------------------------------------------------------------- programs

HEAD = """
def program(x, y, w, n, xs, ys, d, box):
    global COUNT
    t, m, q, s = x, 1, y, {1}
"""
TAIL = "return dict(x=x, y=y, t=t, n=n, m=m, xs=xs, ys=ys, d=d, box=box, s=s)"


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any], size: int = 14) -> str:
    """The text of a function `program`."""
    writer = Writer(draw, size)
    writer.statements(8)
    writer.put(TAIL)
    return textwrap.dedent(HEAD).lstrip() + "\n".join(writer.lines) + "\n"
