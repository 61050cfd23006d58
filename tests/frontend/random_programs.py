"""Random functions of (log, n): structured, terminating, often raising."""

from __future__ import annotations

import linecache
import random
import warnings
from typing import Any

from tests.frontend.native_programs import Box, handled, note

_VARIABLES = "abcde"
_ERRORS = ("ValueError", "KeyError", "TypeError", "ZeroDivisionError", "(LookupError, NameError)")


class Generator:
    """One source text from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.budget = self.random.randint(6, 30)
        self.counter = 0

    def source(self) -> str:
        self.line(0, "def program(log, n):")
        for name in self.random.sample(_VARIABLES, self.random.choice([4, 5, 5, 5])):
            self.line(1, f"{name} = {self.random.randint(0, 4)}")
        if self.random.random() < 0.4:
            name = self.random.choice(_VARIABLES)
            self.line(1, f"def bump(by, *more, k={self.expression(1)}):")
            self.line(2, f"nonlocal {name}")
            self.line(2, f"{name} = by + {name}")
            self.line(2, f"return {name}, k")
            self.line(1, f"{name} = 2")
            self.line(1, f"log.append(bump({self.expression(1)}, k=3))")
        self.block(1, loop=False)
        self.line(1, "return " + ", ".join(self.random.sample(_VARIABLES, 2)))
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, loop: bool) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.budget -= 1
            kinds = self.simple if self.budget < 0 or depth > 5 else self.all
            self.random.choice(kinds)(self, depth, loop)

    # ------------------------------------------------------------------------------ expressions

    def expression(self, depth: int = 0) -> str:
        if depth > 3:
            return self.random.choice([*_VARIABLES, "n", "0", "1", "n", "2", "3", "len(log)"])
        one, two = self.expression(depth + 1), self.expression(depth + 1)
        name = self.random.choice(_VARIABLES)
        return self.random.choice(
            [
                one,
                name,
                str(self.random.randint(0, 3)),
                f"({one} + {two})",
                f"({one} // ({two} or 1))",
                f"({one} if {two} else {name})",
                f"({one} and {two})",
                f"({one} < {two} <= 3)",
                f"note(log, {one})",
                f"Box({one}, log).add({two}, scale={name})",
                f"Box({one}, log).add(*[{two}], **{{'scale': {name}}})",
                f"Box({one}, log)[{two}]",
                f"sum([{one} + i for i in range({self.random.randint(0, 3)})])",
                f"len(f'{{{name}!r}}-{{n:>3}}')",
                f"max({one}, {two}, key=lambda v: -v)",
                f"({name} := {two})",
                f"[{one}, {two}].count(1 if {name} else 0)",
                f"{{{one}: {two}}}.get({name}, 1)",
                f"(lambda q, w=3: q + {name})({one})",
                f"(not {one} is {two})",
            ]
        )

    # -------------------------------------------------------------------------------- statements

    def assign(self, depth: int, loop: bool) -> None:
        name, other = self.random.sample(_VARIABLES, 2)
        self.line(
            depth,
            self.random.choice(
                [
                    f"{name} = {self.expression()}",
                    f"{name} += {self.expression()}",
                    f"{name}, {other} = {self.expression()}, {self.expression()}",
                    f"{name}, *{other} = 1, {self.expression()}, 2; {other} = len({other})",
                ]
            ),
        )

    def tell(self, depth: int, loop: bool) -> None:
        self.line(depth, f"log.append(({self.expression()}, handled()))")

    def raise_(self, depth: int, loop: bool) -> None:
        self.line(depth, f"if {self.expression(1)}:")
        error = f"ValueError({self.expression(2)})"
        self.line(
            depth + 1,
            self.random.choice(
                [f"raise {error}", "raise KeyError(n)", "raise", f"raise {error} from OSError(1)"]
            ),
        )

    def leave(self, depth: int, loop: bool) -> None:
        self.line(depth, f"if {self.expression(1)}:")
        ways = ["break", "continue"] if loop else []
        self.line(depth + 1, self.random.choice([*ways, f"return {self.expression(1)}"]))

    def delete(self, depth: int, loop: bool) -> None:
        name = self.random.choice(_VARIABLES)
        self.line(depth, f"del {name}" + self.random.choice(["", f"; {name} = 1", f"; {name} = 0"]))

    def if_(self, depth: int, loop: bool) -> None:
        self.line(depth, f"if {self.expression()}:")
        self.block(depth + 1, loop)
        if self.random.random() < 0.5:
            self.line(depth, "else:")
            self.block(depth + 1, loop)

    def for_(self, depth: int, loop: bool) -> None:
        name = self.random.choice(_VARIABLES)
        self.line(depth, f"for {name} in range({self.random.randint(0, 3)}):")
        self.block(depth + 1, True)
        if self.random.random() < 0.4:
            self.line(depth, "else:")
            self.block(depth + 1, loop)

    def while_(self, depth: int, loop: bool) -> None:
        self.counter += 1
        name = f"w{self.counter}"
        self.line(depth, f"{name} = 0")
        self.line(
            depth, f"while {name} < {self.random.randint(1, 3)} and ({self.expression(1)}, 1):"
        )
        self.line(depth + 1, f"{name} += 1")
        self.block(depth + 1, True)

    def try_(self, depth: int, loop: bool) -> None:
        self.line(depth, "try:")
        self.block(depth + 1, loop)
        count = self.random.randint(0, 2)
        for error in self.random.sample(_ERRORS, count):
            self.line(depth, f"except {error}" + self.random.choice([":", ":", " as error:"]))
            self.block(depth + 1, loop)
        if count and self.random.random() < 0.3:
            self.line(depth, "else:")
            self.block(depth + 1, loop)
        if not count or self.random.random() < 0.5:
            self.line(depth, "finally:")
            self.block(depth + 1, loop)

    def with_(self, depth: int, loop: bool) -> None:
        swallow = self.random.choice(["True", "False"])
        name = self.random.choice(_VARIABLES)
        self.line(depth, f"with Box({self.expression(2)}, log, {swallow}) as {name}:")
        self.line(depth + 1, f"{name} = 1")
        self.block(depth + 1, loop)

    simple = (assign, tell, raise_, leave, delete, *(assign, tell) * 3)
    all = (*simple, *(if_, for_, while_, try_, try_, with_) * 2)


def program(seed: int) -> Any:
    """A random function; its file is `<random seed>`."""
    name = f"<random {seed}>"
    source = Generator(seed).source()
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {"Box": Box, "handled": handled, "note": note}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # `is` with a literal, a literal called
        exec(compile(source, name, "exec"), space)
    return space["program"]
