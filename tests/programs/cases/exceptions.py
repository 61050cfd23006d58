# ruff: noqa: B012, B904
"""Hard cases: exceptions."""

import torch

from tests.programs.case import Call, Program, hard, ramp


@hard(13, "`break` in finally overriding return", torch="1")
def break_in_finally():
    def f(x, log):
        for index in range(3):
            try:
                log.append(index)
                return x * 100
            finally:
                log.append("finally")
                break
        return x + len(log)

    return Program(f, [Call(ramp(3), []), Call(ramp(3, start=0), [])])


class Wrapped(Exception):
    def __init__(self, text, tensor):
        super().__init__(text, 3)
        self.tensor = tensor


def inner(x, table):
    y = x * 2
    try:
        return y + table["missing"]
    except KeyError as error:
        raise Wrapped("no such row", y + 1) from error


@hard(14, "`raise … from`, cause and context", torch="1")
def raise_from():
    def f(x, log):
        try:
            inner(x, {})
        except Wrapped as error:
            log.append(type(error.__cause__).__name__)
            log.append(repr(error.__cause__))
            log.append(error.__suppress_context__)
            log.append(type(error.__context__).__name__)
            kept = error.tensor
        try:
            try:
                raise ValueError(1)
            except ValueError:
                raise TypeError(2)
        except TypeError as error:
            log.append(type(error.__context__).__name__)
            log.append(error.__cause__)
        return kept - 1

    return Program(f, [Call(ramp(3), []), Call(ramp(3, start=0), [])])


@hard(15, "`except*`", torch="0")
def except_star():
    def f(x, log):
        y = x + 1
        try:
            raise ExceptionGroup("both", [ValueError("v"), TypeError("t"), ValueError("w")])
        except* ValueError as group:
            log.append([str(one) for one in group.exceptions])
            y = y * 2
        except* TypeError as group:
            log.append([str(one) for one in group.exceptions])
            y = y * 3
        return y

    return Program(f, [Call(ramp(3), []), Call(ramp(3, start=0), [])])


class Refused(RuntimeError):
    pass


def check(total, log):
    log.append("checked")
    if log.count("checked") > 1:
        raise Refused("too often", len(log))
    return total


@hard(16, "user exception after append and add_", torch="0", graphs=(1, 2))
def late_exception():
    def f(x, log):
        x.add_(1)
        log.append(x.sum())
        check(x, log)
        x.mul_(2)
        log.append("between")
        check(x, log)
        x.zero_()
        return x

    return Program(f, [Call(ramp(3), []), Call(ramp(3, start=0), []), Call(torch.ones(3), ["a"])])
