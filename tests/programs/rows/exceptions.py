# ruff: noqa: B012, B018, F821
"""Rows of the checklist: exceptions."""

import sys

from tests.programs.case import Call, Program, plain, ramp, row


@plain("exceptions")
def try_except_else_finally(x, n):
    log = []
    for k in range(n):
        try:
            log.append("try")
            if k == 1:
                raise ValueError(k)
        except ValueError as error:
            log.append(error.args)
        else:
            log.append("else")
        finally:
            log.append("finally")
    return x + len(log), log


@plain("exceptions")
def nested_handlers(x):
    log = []
    try:
        try:
            raise KeyError("k")
        except ValueError:
            log.append("wrong")
        finally:
            log.append("inner finally")
    except (LookupError, TypeError) as error:
        log.append(type(error).__name__)
        try:
            raise
        except KeyError as again:
            log.append(again is error)
    return x + 1, log


@plain("exceptions")
def reraised_and_chained(x):
    try:
        try:
            [][1]
        except IndexError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        return x + 1, repr(error.__cause__), error.__context__ is error.__cause__


@plain("exceptions")
def suppressed_context(x):
    try:
        try:
            {}["a"]
        except KeyError:
            raise RuntimeError("outer") from None
    except RuntimeError as error:
        return x + 1, error.__cause__, repr(error.__context__), error.__suppress_context__


@plain("exceptions")
def finally_overrides(x):
    def inner():
        try:
            raise ValueError
        finally:
            return x * 2

    return inner() + 1


@plain("exceptions")
def python_errors_caught(x, n):
    answers = []
    for action in (
        lambda: 1 // 0,
        lambda: [][n],
        lambda: {}["k"],
        lambda: n.nope,
        lambda: int("z"),
        lambda: n + "s",
        lambda: next(iter(())),
        lambda: len(n),
        lambda: n(),
        lambda: "a" < 1,
        lambda: [1, 2].index(9),
    ):
        try:
            action()
        except Exception as error:
            answers.append((type(error).__name__, str(error)))
    return x + len(answers), answers


@plain("exceptions", graphs=(0, 1))
def torch_errors_caught(x):
    try:
        return x @ x
    except RuntimeError as error:
        return x + 1, str(error)


@plain("exceptions", graphs=(0, 1))
def torch_error_uncaught(x):
    y = x + 1
    return y.view(7)


class Custom(Exception):
    def __init__(self, code):
        self.code = code
        super().__init__(f"code {code}")


def fails(x, seen):
    seen.append(x + 1)
    raise Custom(len(seen))


@row("exceptions", graphs=(0, 1))
def uncaught_user_exception():
    def f(x, seen):
        y = x * 2
        seen.append(y)
        fails(y, seen)

    return Program(f, [Call(ramp(3), []), Call(ramp(3), [])])


@row("exceptions", graphs=(0, 1))
def uncaught_with_cause():
    def f(x, seen):
        try:
            fails(x, seen)
        except Custom as error:
            x.add_(1)
            raise RuntimeError("outer") from error
        finally:
            seen.append("finally")

    return Program(f, [Call(ramp(3), []), Call(ramp(3), [])])


@row("exceptions", graphs=(0, 1))
def uncaught_in_finally():
    def f(x, seen):
        try:
            raise ValueError("first")
        finally:
            seen.append(x + 1)
            seen[5]

    return Program(f, [Call(ramp(3), []), Call(ramp(3), [])])


# The first number is taken as fixed; then, of one that varies, a graph on either side of the `if`.
@row("exceptions", graphs=(0, 3))
def uncaught_sometimes():
    def f(x, n):
        y = x * n
        if n > 2:
            raise ValueError("too big", n)
        return y

    return Program(f, [Call(ramp(3), n) for n in (1, 3, 1, 3, 2)])


@plain("exceptions")
def exception_objects(x):
    error = Custom(3)
    error.add_note("noted")
    return x + error.code, error, str(error), isinstance(error, Exception), error.__notes__


@plain("exceptions")
def exception_variable_deleted(x):
    try:
        raise ValueError
    except ValueError as error:
        kept = error
    try:
        error
    except UnboundLocalError:
        return x + 1, type(kept).__name__


@plain("exceptions")
def stop_iteration_in_generator(x):
    def bad():
        yield x
        raise StopIteration("inside")

    generator = bad()
    next(generator)
    try:
        next(generator)
    except RuntimeError as error:
        return x + 1, str(error), type(error.__cause__).__name__


@plain("exceptions")
def exc_info(x):
    try:
        raise KeyError("k")
    except KeyError:
        kind, value, _ = sys.exc_info()
    return x + 1, kind, value.args, sys.exc_info()
