"""Plain Python functions that between them use every statement: what the assembler is tested on.

Each takes a `log` and appends what it does, so that the order of effects is compared too. A row of
`PROGRAMS` is a function and its other arguments.
"""

# ruff: noqa: B007, B012, I001, RUF021, SIM222, UP031
from __future__ import annotations

import contextlib
import sys
from typing import Any

COUNTER = 0
Log = list[Any]


class Box:
    """Attributes, items, a context manager, a method."""

    def __init__(self, value: Any, log: Log, swallow: bool = False) -> None:
        self.value, self.log, self.swallow = value, log, swallow

    def __enter__(self) -> Box:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.log.append(("exit", kind, repr(error), handled()))
        return self.swallow

    def __getitem__(self, key: Any) -> Any:
        self.log.append(("get", key))
        return self.value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.log.append(("set", key, value))

    def __delitem__(self, key: Any) -> None:
        self.log.append(("del", key))

    def add(self, *values: Any, scale: int = 1, **more: Any) -> Any:
        self.log.append(("add", values, scale, sorted(more)))
        return sum(values) * scale + self.value

    @property
    def fails(self) -> Any:
        raise LookupError(self.value)


def handled() -> str:
    """The exception being handled."""
    return repr(sys.exc_info()[1])


def note(log: Log, value: Any) -> Any:
    """An effect with a value."""
    log.append(value)
    return value


def straight(log: Log, a: int, b: int) -> Any:
    c = a + b * 2 - (a << 1) ^ b
    d = -c if not a else ~b
    c += d
    c **= 2
    return c, d, a < b <= c, a is b, a in (1, 2), b not in [c], +c


def for_loop(log: Log, n: int) -> Any:
    total = 0
    for i in range(n):
        if i == 2:
            continue
        if i == 5:
            break
        total += i
    else:
        log.append("else")
    return total, i


def for_else_unbound(log: Log, items: list[int]) -> Any:
    for last in items:
        log.append(last)
    else:
        log.append("done")
    return last


def while_loop(log: Log, n: int) -> Any:
    i = 0
    while i < n:
        i += 1
        if i % 2:
            continue
        log.append(i)
        while True:
            if note(log, i) > 3:
                break
            i += 1
    else:
        log.append("else")
    return i


def nested_loops(log: Log, n: int) -> Any:
    found = []
    for i in range(n):
        for j in range(i):
            if (i * j) % 3 == 1:
                break
            found.append((i, j))
        else:
            continue
        log.append((i, j))
    return found


def try_except(log: Log, key: Any) -> Any:
    table = {1: "one"}
    try:
        value = table[key]
        log.append(value)
    except KeyError as error:
        log.append((repr(error), handled()))
        value = None
    except (TypeError, ValueError):
        log.append(handled())
        value = 0
    else:
        log.append("else")
    return value, handled()


def try_finally(log: Log, n: int) -> Any:
    try:
        log.append(handled())
        result = 10 // n
        return result
    finally:
        log.append(("finally", handled()))


def finally_overrides(log: Log, n: int) -> Any:
    for i in range(3):
        try:
            if i == n:
                return 10 // i
            log.append(i)
        except ZeroDivisionError:
            log.append(handled())
            raise ValueError(i) from None
        finally:
            log.append(("finally", handled()))
            if i == 1:
                break
    return "end"


def nested_try(log: Log, n: int) -> Any:
    try:
        try:
            try:
                raise ValueError(n)
            except ValueError as inner:
                log.append(handled())
                if n == 1:
                    raise KeyError(n) from inner
                if n == 2:
                    raise
                {}[n]
        except KeyError as outer:
            log.append((handled(), repr(outer.__cause__), repr(outer.__context__)))
            try:
                raise TypeError("third")
            except TypeError:
                log.append(handled())
            log.append(handled())
        finally:
            log.append(handled())
    except Exception:
        log.append(("outermost", handled()))
        raise
    log.append(handled())
    return n


def raise_in_loop(log: Log, n: int) -> Any:
    errors = []
    for i in range(n):
        try:
            if i % 2:
                raise ValueError(i)
            log.append(i)
        except ValueError as error:
            errors.append(error.args)
            continue
        finally:
            log.append(handled())
    return errors


def uncaught(log: Log, n: int) -> Any:
    box = Box(n, log)
    log.append(1)
    return (
        box.add(1),
        box.fails,
        3,
    )


def uncaught_deep(log: Log, n: int) -> Any:
    def inner(k: int) -> Any:
        if k:
            return inner(k - 1)
        raise RuntimeError(n)

    try:
        inner(2)
    except RuntimeError as error:
        raise ValueError("wrapped") from error


def unbound(log: Log, n: int) -> Any:
    if n:
        value = n
    log.append("before")
    return value


def deletes(log: Log, n: int) -> Any:
    a, b = n, [1, 2, 3]
    box = Box(1, log)
    box.extra = 3
    del b[0], box.extra, box["k"]
    if n:
        del a
    log.append(b)
    return a


def with_statement(log: Log, n: int) -> Any:
    with Box(n, log) as one, Box(2, log, swallow=True) as two:
        log.append((one.value, two.value))
        if n == 1:
            raise ValueError(n)
        if n == 2:
            return "returned"
        log.append("body")
    log.append(handled())
    return "end"


def with_in_loop(log: Log, n: int) -> Any:
    for i in range(n):
        with Box(i, log, swallow=True) as box:
            if i == 1:
                continue
            if i == 2:
                raise KeyError(box.value)
            if i == 3:
                break
        log.append(("after", i))
    return i


def with_raises(log: Log, n: int) -> Any:
    with Box(n, log):
        note(log, "inside")
        raise OSError(n, "no")


def closures(log: Log, n: int) -> Any:
    count = 0

    def bump(by: int = 1) -> int:
        nonlocal count
        count += by
        return count

    def late() -> int:
        return count * n

    for i in range(n):
        log.append(bump(i))
        n = n - 0
    return count, late(), bump()


def cell_deleted(log: Log, n: int) -> Any:
    value = n

    def read() -> Any:
        return value

    log.append(read())
    if n == 1:
        del value
    try:
        log.append(read())
    except NameError as error:
        log.append(str(error))
    return [f() for f in [lambda i=i: (i, n) for i in range(n)]]


def comprehensions(log: Log, n: int) -> Any:
    squares = [i * i for i in range(n) if i != 1]
    table = {k: [v for v in range(k)] for k in squares}
    lazily = sum(x + n for x in squares)
    return squares, table, {i % 2 for i in squares}, lazily, [(a, b) for a in squares for b in "xy"]


def shadowing(log: Log, n: int) -> Any:
    """Comprehensions whose variables are the function's own: bound, unbound, in a cell."""
    x = note(log, n)
    a = [note(log, x) for x in range(n)]
    b = [lambda: x for x in range(n)]  # noqa: B023
    try:
        c: Any = [note(log, x) // z for x, z in zip(range(n), (1, 0), strict=False)]
    except ZeroDivisionError as error:
        c = repr(error), note(log, x)
    d = {y: [x + y for x in a if x] for y in a}
    if n > 5:
        y = n
        e = [y for y in "ab"]
        log.append((y, e))
    return x, a, [f() for f in b], c, d, (lambda: x)()


def strings(log: Log, n: int) -> Any:
    name = "n"
    return f"{name}={n!r:>{n + 3}} {n:03d} {name!s}{{}}", "%s-%d" % (name, n), "ab" + name


def star_arguments(log: Log, n: int) -> Any:
    def show(*args: Any, **more: Any) -> Any:
        log.append((args, more))
        return len(args) + len(more)

    items, names = [1, 2], {"x": 1, "y": n}
    first = show(*items, n, *range(n), **names, z=3)
    second = show(0, *items)
    third = show(**names)
    fourth = show(1, 2, key=show(3, other=n))
    return (
        first,
        second,
        third,
        fourth,
        [*items, *range(n)],
        {**names, "q": 1},
        (*items, 5),
        {*items},
    )


def methods(log: Log, n: int) -> Any:
    box = Box(n, log)
    a = box.add(n if n > 1 else note(log, 7), box.add(1), scale=2 or n)
    b = box.add(*[1, 2], **{"scale": 3}, other=1)
    c = "abc".join(["x" if i else "y" for i in range(n)]).replace("b", str(n) if n else "z")
    d = [].append(n and note(log, n))
    return a, b, c, d, max([3, 1, 2], key=lambda v: -v if n else v, default=None)


def method_loop(log: Log, n: int) -> Any:
    box, items = Box(n, log), []
    for i in range(n):
        items.append(box.add(i if i % 2 else -i, items.count(i or 0), scale=i or 1))
    return items


def unpacking(log: Log, n: int) -> Any:
    a, b = n, n + 1
    a, b = b, a
    first, *middle, last = range(n + 3)
    (c, d), [e, *f] = (1, 2), "xyz"
    for i, (j, k) in enumerate(zip("ab", [1, 2], strict=True)):
        log.append((i, j, k))
    box = Box(0, log)
    box.value, box[n], (g, h) = 5, 6, (7, 8)
    try:
        a, b = [1, 2, 3]
    except ValueError as error:
        log.append(str(error))
    return a, b, first, middle, last, c, d, e, f, g, h, box.value


def walrus(log: Log, n: int) -> Any:
    if (m := n * 2) > 4 and (k := m + 1):
        log.append(k)
    while (n := n - 1) > 0:
        log.append(n)
    return m, n, [y := 1, y + 1]


def globals_(log: Log, n: int) -> Any:
    global COUNTER
    before = COUNTER
    COUNTER = before + n
    log.append(COUNTER)
    COUNTER = before
    try:
        return missing_name
    except NameError as error:
        return str(error), len(log)


def boolean(log: Log, n: int) -> Any:
    a = n and note(log, "a") or note(log, "b")
    b = not n or (n > 1 and n < 5)
    c = None if n is None else (n if n is not None else 0)
    d = 1 < n < 4
    assert n != 3, f"n is {n}"
    return a, b, c, d, (1 if n else 2) if a else 3


def matching(log: Log, n: Any) -> Any:
    match n:
        case 0 | 1:
            return "small"
        case int(value) if value > 10:
            return "big", value
        case [x, y, *rest]:
            return "sequence", x, y, rest
        case {"kind": kind, **rest}:
            return "mapping", kind, rest
        case Box(value=inner):
            return "box", inner
        case str() as text:
            return "text", text
        case None:
            return None
        case _:
            log.append("other")
    return n


def exception_group(log: Log, n: int) -> Any:
    try:
        errors: list[Exception] = [ValueError(1), TypeError(2), KeyError(3)]
        raise ExceptionGroup("group", errors[:n])
    except* ValueError as group:
        log.append((repr(group), handled()))
    except* TypeError:
        log.append(handled())
    log.append("after")
    return n


def local_class(log: Log, n: int) -> Any:
    class Local(Box):
        factor = n

        def add(self, *values: Any, **more: Any) -> Any:
            return super().add(*values) * self.factor

    return Local(1, log).add(2, 3), Local.__name__


class Derived(Box):
    """Uses `super()` without arguments, and captures its first argument."""

    def add(self, *values: Any, scale: int = 1, **more: Any) -> Any:
        self.log.append("derived")
        before = super().add(*values, scale=scale)
        later = [lambda: self.value + before]
        for call in later:
            self.value += 1
            before += call()
        return super().add(before), sorted(locals())


def derived(log: Log, n: int) -> Any:
    return Derived(n, log).add(n, 2)


def names_of_locals(log: Log, n: int) -> Any:
    cell = n

    def use() -> int:
        return cell

    for i in range(2):
        log.append(sorted(locals()))
        log.append((locals()["n"], locals()["cell"], sorted(sys._getframe().f_locals)))
    return use(), i


def imports(log: Log, n: int) -> Any:
    import math
    from os import path, sep as separator

    return math.floor(n + 0.5), path.join("a", "b"), separator


def slices(log: Log, n: int) -> Any:
    items = list(range(10))
    items[n:4] = [7]
    del items[::3]
    items[-1] += n
    return items[n:], items[:n], items[1:n:2], items[0]


def annotated(log: Log, n: int) -> Any:
    value: int = n
    other: dict[str, int] = {"a": value}
    other["b"] = value
    other["a"] += 1
    return other


def suppressed(log: Log, n: int) -> Any:
    with contextlib.suppress(ValueError), contextlib.ExitStack() as stack:
        stack.callback(log.append, "callback")
        if n:
            raise ValueError(n)
        log.append("quiet")
    return handled()


def return_in_handlers(log: Log, n: int) -> Any:
    try:
        try:
            1 // n
        except ZeroDivisionError as error:
            return repr(error), handled()
        finally:
            log.append(handled())
    finally:
        log.append(("last", handled()))
    return "no"


def handler_of_handler(log: Log, n: int) -> Any:
    try:
        raise ValueError("first")
    except ValueError as error:
        saved = error
        for i in range(n):
            try:
                raise KeyError(i)
            except KeyError as inner:
                log.append((repr(inner.__context__), handled()))
                if i == 1:
                    raise saved from None
            log.append(handled())
    return handled()


def nothing(log: Log) -> None:
    pass


def generator_inside(log: Log, n: int) -> Any:
    def count() -> Any:
        for i in range(n):
            got = yield i
            log.append(got)
        return "end"

    def delegate() -> Any:
        log.append((yield from count()))

    steps = delegate()
    total = next(steps)
    try:
        while True:
            total += steps.send(total)
    except StopIteration:
        log.append(handled())
    return total, list(x for x in count())


def no_variables(log: Log) -> Any:
    return [print, len][1]("abc")


# Long enough for EXTENDED_ARG in jumps, constants and names.
_LINES = "\n".join(
    f"        total += {1000 + i} if i != {2000 + i} else log.append(Box({i}.5, log).value)"
    for i in range(150)
)
_SPACE: dict[str, Any] = {"Box": Box}
exec(
    compile(
        f"def long(log, n):\n    total = 0\n    for i in range(n):\n{_LINES}\n"
        "        if i == 1:\n            break\n    else:\n        log.append('else')\n"
        "    return total\n",
        __file__,
        "exec",
    ),
    _SPACE,
)
long = _SPACE["long"]


PROGRAMS: list[tuple[Any, tuple[Any, ...]]] = [
    (straight, (3, 5)),
    (straight, (0, "x")),
    *[(for_loop, (n,)) for n in (0, 3, 7)],
    (for_else_unbound, ([1, 2],)),
    (for_else_unbound, ([],)),
    (while_loop, (0,)),
    (while_loop, (5,)),
    (nested_loops, (5,)),
    *[(try_except, (key,)) for key in (1, 2, [])],
    *[(try_finally, (n,)) for n in (0, 3)],
    *[(finally_overrides, (n,)) for n in (0, 1, 2, 9)],
    *[(nested_try, (n,)) for n in (0, 1, 2)],
    (raise_in_loop, (4,)),
    (uncaught, (4,)),
    (uncaught_deep, (4,)),
    *[(unbound, (n,)) for n in (0, 1)],
    *[(deletes, (n,)) for n in (0, 1)],
    *[(with_statement, (n,)) for n in (0, 1, 2)],
    (with_in_loop, (5,)),
    (with_raises, (5,)),
    (closures, (3,)),
    *[(cell_deleted, (n,)) for n in (1, 2)],
    (comprehensions, (4,)),
    *[(shadowing, (n,)) for n in (1, 3, 6)],
    (strings, (4,)),
    (star_arguments, (2,)),
    *[(methods, (n,)) for n in (0, 2)],
    (method_loop, (3,)),
    (unpacking, (2,)),
    (walrus, (3,)),
    (globals_, (3,)),
    *[(boolean, (n,)) for n in (0, 2, 3)],
    *[(matching, (n,)) for n in (0, 11, [1, 2, 3], {"kind": 1, "b": 2}, "s", None, 5.0)],
    *[(exception_group, (n,)) for n in (1, 2, 3)],
    (local_class, (3,)),
    (derived, (3,)),
    (names_of_locals, (3,)),
    (imports, (3,)),
    (slices, (2,)),
    (annotated, (2,)),
    *[(suppressed, (n,)) for n in (0, 1)],
    *[(return_in_handlers, (n,)) for n in (0, 1)],
    *[(handler_of_handler, (n,)) for n in (1, 3)],
    (nothing, ()),
    (no_variables, ()),
    (generator_inside, (3,)),
]

# Functions whose arguments need the log: (function, arguments of it).
METHODS: list[tuple[Any, Any]] = [
    (Derived.add, lambda log: (Derived(3, log), 3, 2)),
    (Box.add, lambda log: (Box(3, log), 3, 2)),
    (Box.__exit__, lambda log: (Box(3, log), None, None, None)),
]
