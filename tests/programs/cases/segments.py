# ruff: noqa: B905
"""Hard cases: a break anywhere. The fewest graphs that each can have are counted."""

import torch

from tests.programs.case import Call, Program, hard, ramp


@hard(6, "break inside no_grad; the mode after it", torch="2", graphs=(2, 2))
def break_in_no_grad():
    def f(x, w):
        with torch.no_grad():
            y = x * w
            print("inside", torch.is_grad_enabled())
            y = y + 1
        return y, y * w, torch.is_grad_enabled()

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(3)])


@hard(7, "break in try, later raise caught, else and finally", torch="0", graphs=(2, 2))
def break_in_try():
    def f(x, log, bad):
        try:
            y = x + 1
            print("in try")
            y = y * 2
            if bad:
                raise ValueError("bad")
        except ValueError as error:
            log.append(str(error))
            y = x - 1
        else:
            log.append("else")
        finally:
            log.append("finally")
        return y

    return Program(f, [Call(ramp(3), [], True), Call(ramp(3, start=0), [], True)])


# Ideal: the body up to the print on values known at the start, and behind the print (the rest of
# the body, then the loop's next step on a real iterator, then the body again): at most one each.
@hard(8, "break in an enumerate/zip loop", torch="0", graphs=(1, 4))
def break_in_loop():
    def f(xs, ys):
        total = torch.zeros(3)
        for index, (x, y) in enumerate(zip(xs, ys)):
            total = total + x * y
            print(index)
            total = total * 2 + index
        return total

    def ten(start):
        return [ramp(3, start=start) for _ in range(10)]

    return Program(f, [Call(ten(-2), ten(1)), Call(ten(-1), ten(0))])


@hard(9, "break in the middle of an expression, with a live stack", torch="3", graphs=(1, 2))
def break_mid_expression():
    def f(x, y):
        return [x + 1, (x * 2, torch.relu(y) + float((x + y).sum()), {"k": x - y}), x @ y]

    return Program(f, [Call(ramp(3), ramp(3, start=1)) for _ in range(2)])


def level_three(x):
    y = x * 3
    print("deep")
    return y + 1


def level_two(x):
    return level_three(x + 2) * 2


def level_one(x):
    return level_two(x - 1) + x


@hard(10, "break three calls deep, called twice", torch="7", graphs=(3, 3))
def break_deep():
    def f(x):
        return level_one(x) + level_one(x * 2)

    return Program(f, [Call(ramp(3)), Call(ramp(3, start=0))])


@hard(46, "break three calls deep, called once", graphs=(2, 2))
def break_deep_once():
    def f(x):
        return level_one(x) * 5

    return Program(f, [Call(ramp(3)), Call(ramp(3, start=0))])


def positive(x):
    print("asked")
    return x.sum() > 0


@hard(11, "break in a filtered comprehension", torch="2", graphs=(1, 4))
def break_in_comprehension():
    def f(xs):
        chosen = [x * 2 for x in xs if positive(x)]
        return chosen, sum(x.sum() for x in chosen)

    def some():
        return [ramp(3, start=start) for start in (-5, 1, -4, 2, 3)]

    return Program(f, [Call(some()), Call(some())])


@hard(12, "while x.sum() < 100", torch="3", graphs=(1, 3))
def while_on_data():
    def f(x):
        steps = 0
        while x.sum() < 100:
            x = x * 2 + 1
            steps += 1
        return x / 2, steps

    return Program(f, [Call(ramp(3, start=1)), Call(ramp(3, start=2)), Call(ramp(3, start=60))])
