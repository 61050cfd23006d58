"""Programs whose data ops refuse: an index out of bounds, a matrix that has no inverse.

`good` and `bad` calls alternate: what is compiled for the one is what fails for the other.
"""

import contextlib
import traceback

import torch
import torch.nn.functional as F

from tests.programs.case import Call, Program, ramp, row

REFUSED = "refused"


def good():
    return torch.tensor([0, 1, 1])


def bad():
    return torch.tensor([0, 7, 1])


def calls(*more, table=lambda: ramp(3, 4)):
    """Good, bad, good, bad."""
    return [Call(table(), made(), *more) for made in (good, bad, good, bad)]


def program(function, *more, state=None, table=lambda: ramp(3, 4)):
    return Program(function, calls(*more, table=table), state)


# ------------------------------------------------------------------------- who gets the exception


@row(REFUSED)
def nobody_catches():
    def f(x, i):
        y = x * 2
        return y[i] + 1

    return program(f)


@row(REFUSED)
def caught_at_once():
    def f(x, i):
        try:
            return x[i] + 1
        except IndexError as error:
            return x * 0, str(error)

    return program(f)


@row(REFUSED)
def caught_with_what_came_before():
    def f(x, i):
        y = x + 1
        try:
            y = F.embedding(i, y) * 2
        except IndexError:
            y = y - 5
        return y * 3

    return program(f)


@row(REFUSED)
def not_the_class_that_is_caught():
    def f(x, i):
        try:
            return x[i]
        except ValueError:
            return x

    return program(f)


@row(REFUSED)
def another_is_raised_in_its_place():
    def f(x, i):
        try:
            return x[i]
        except IndexError as error:
            raise ValueError("no such row") from error

    return program(f)


def _row_of(x, i):
    shifted = x + 1
    return shifted.gather(0, i[:, None])


@row(REFUSED)
def in_a_callee():
    def f(x, i):
        return _row_of(x * 2, i) * 2

    return program(f)


@row(REFUSED)
def caught_by_a_caller():
    def f(x, i):
        try:
            return _row_of(x, i) * 2
        except RuntimeError as error:
            lines = [(one.name, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
            return x.sum(), lines

    return program(f)


@row(REFUSED)
def caught_by_a_callee():
    def rows(x, i):
        try:
            return x.index_select(0, i)
        except IndexError:
            return x[:1]

    def f(x, i):
        return rows(x, i) + rows(x + 1, i).sum()

    return program(f)


@row(REFUSED)
def in_each_round_of_a_loop():
    def f(x, i):
        found = []
        for step in range(3):
            try:
                found.append(x[i - step])
            except IndexError:
                found.append(x[:1])
        return torch.cat(found)

    return program(f)


@row(REFUSED)
def the_second_of_two_may_fail():
    def f(x, i):
        first = x[i % 3]
        try:
            second = x[i]
        except IndexError:
            second = first * 10
        return first + second

    return program(f)


@row(REFUSED)
def retried_with_other_data():
    def f(x, i):
        while True:
            try:
                return x[i], i
            except IndexError:
                i = i // 2

    return program(f)


# ----------------------------------------------------------------- what else the program has done


@row(REFUSED)
def effects_before_it_and_none_behind():
    log = []

    def f(x, i):
        log.append("before")
        y = x[i]
        log.append("behind")
        return y

    return program(f, state=log)


@row(REFUSED)
def finally_is_run():
    log = []

    def f(x, i):
        try:
            y = x[i]
            log.append("fine")
        finally:
            log.append("finally")
        return y

    return program(f, state=log)


class Counter:
    def __init__(self):
        self.entered = self.left = 0

    def __enter__(self):
        self.entered += 1

    def __exit__(self, kind, error, trace):
        self.left += 1 if kind is None else 100
        return False


@row(REFUSED)
def a_with_block_ends():
    counter = Counter()

    def f(x, i):
        with counter:
            y = x[i] * 2
        return y + counter.left

    return program(f, state=counter)


@row(REFUSED)
def suppressed():
    def f(x, i):
        y = x
        with contextlib.suppress(IndexError):
            y = x[i]
        return y * 2

    return program(f)


@row(REFUSED)
def modes_are_put_back():
    def f(x, i):
        with torch.no_grad():
            return x[i]

    return program(f, table=lambda: ramp(3, 4, grad=True))


@row(REFUSED)
def an_input_is_written_before_it():
    def f(x, i):
        x.add_(1)
        return x[i] * 2

    return program(f)


@row(REFUSED)
def an_input_is_written_before_it_is_caught():
    def f(x, i):
        x.mul_(2)
        try:
            x[i] = 0
        except IndexError:
            x.sub_(1)
        return x + 1

    return program(f)


@row(REFUSED)
def random_numbers_are_drawn_once():
    def f(x, i):
        y = F.dropout(x, 0.5)
        try:
            return y[i], torch.rand(2)
        except IndexError:
            return y, torch.rand(2)

    return program(f)


@row(REFUSED)
def random_numbers_are_drawn_and_nobody_catches():
    def f(x, i):
        return F.dropout(x, 0.5)[i]

    return program(f)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.calls = 0

    def forward(self, x, i):
        self.calls += 1
        y = self.norm(x)
        return y + self.table(i)


@row(REFUSED, graphs=(1, 2))
def a_module_with_statistics_and_a_counter():
    return program(Layer())


# ------------------------------------------------------------------------------------- breaks


@row(REFUSED, graphs=(2, 2))
def behind_a_break():
    def f(x, i):
        y = x + 1
        print("break")
        return _row_of(y, i) * 2

    return program(f)


@row(REFUSED, graphs=(1, 2))
def behind_a_break_in_a_callee():
    def inner(y, i):
        print("break")
        return y[i] * 2

    def middle(y, i):
        return inner(y + 1, i) + 1

    def f(x, i):
        return middle(x, i)

    return program(f)


@row(REFUSED, graphs=(1, 3))
def behind_a_break_and_caught_further_out():
    def inner(y, i):
        print("break")
        return y[i] * 2

    def middle(y, i):
        return inner(y + 1, i) + 1

    def f(x, i):
        try:
            return middle(x, i)
        except IndexError as error:
            frames = traceback.extract_tb(error.__traceback__)
            return x + 1, [(one.name, one.lineno) for one in frames]

    return program(f)


@row(REFUSED, graphs=(1, 3))
def before_a_break():
    log = []

    def f(x, i):
        y = x[i] + 1
        print("break")
        log.append(1)
        return y * 2

    return program(f, state=log)


@row(REFUSED, graphs=(1, 4))
def a_break_inside_the_try():
    def f(x, i):
        try:
            y = x + 1
            print("break")
            y = y[i]
        except IndexError:
            y = x * 2
        else:
            y = y + 10
        return y * 3

    return program(f)


@row(REFUSED, graphs=(1, 4))
def in_a_loop_with_breaks():
    def f(x, i):
        total = x.sum()
        for step in range(3):
            print(step)
            try:
                total = total + x[i + step - step].sum()
            except IndexError:
                total = total - 1
        return total

    return program(f)


@row(REFUSED, graphs=(1, 4))
def in_a_generator():
    def rows(x, i):
        for step in range(2):
            yield x[i] + step

    def f(x, i):
        try:
            return [one * 2 for one in rows(x, i)]
        except IndexError:
            return [x]

    return program(f)


@row(REFUSED, graphs=(1, 3))
def numbers_are_read_before_it():
    def f(x, i):
        n = i.max().item()
        y = x * n
        try:
            return y[i], n
        except IndexError:
            return y, n

    return program(f)


@row(REFUSED, graphs=(1, 3))
def masks_before_it():
    def f(x, i):
        chosen = x[x[:, 0] > -5]
        try:
            return chosen[i] * 2
        except IndexError:
            return chosen

    return program(f)


# --------------------------------------------------------------- what nobody reads, or in part


@row(REFUSED)
def nobody_reads_it():
    def f(x, i):
        x[i]
        return x + 1

    return program(f)


@row(REFUSED)
def nobody_reads_what_is_made_of_it():
    def f(x, i):
        y = (x * 2).gather(0, i[:, None]) + 1
        y.sum()
        return x + 1

    return program(f)


@row(REFUSED)
def a_test_whether_it_can_be():
    def f(x, i):
        try:
            F.embedding(i, x)
            fine = True
        except IndexError:
            fine = False
        return x + 1, fine

    return program(f)


@row(REFUSED)
def one_row_is_read():
    def f(x, i):
        return x[i][0] + 1

    return program(f)


@row(REFUSED)
def a_part_is_read():
    def f(x, i):
        return (F.embedding(i, x) * 2 + 1)[:1, :2]

    return program(f)


@row(REFUSED)
def written_and_not_read():
    def f(x, i):
        y = x.clone()
        y[i] = 0
        return x + 1

    return program(f)


# ----------------------------------------------------------------------------------- gradients


@row(REFUSED)
def in_training():
    def f(x, i):
        return (x * 2)[i].sum()

    return Program(
        f,
        [
            Call(ramp(3, 4, grad=True), made(), after=lambda loss: loss.backward())
            for made in (good, bad, good)
        ],
    )


@row(REFUSED, graphs=None)
def a_step_of_training():
    weight = ramp(3, 4, grad=True)

    def f(x, i):
        try:
            loss = F.nll_loss((x @ weight).log_softmax(-1), i)
        except IndexError:
            loss = (x @ weight).sum()
        loss.backward()
        return loss.detach()

    return program(f, state=weight, table=lambda: ramp(3, 3))


@row(REFUSED, graphs=None)
def under_a_checkpoint():
    weight = ramp(4, 4, grad=True)

    def block(x, i):
        return (x @ weight)[i].relu()

    def f(x, i):
        y = torch.utils.checkpoint.checkpoint(block, x, i, use_reentrant=False)
        return y.sum()

    made = [
        Call(ramp(3, 4, grad=True), one(), after=lambda loss: loss.backward())
        for one in (good, bad, good)
    ]
    return Program(f, made, weight)


# ------------------------------------------------------------------------------------- the rest


@row(REFUSED, graphs=(1, 2))
def sizes_vary():
    def f(x, i):
        try:
            return x[i] * 2
        except IndexError:
            return x.sum()

    made = [
        Call(ramp(rows, 4), torch.tensor(index))
        for rows, index in ((3, [0, 1]), (4, [3, 1]), (5, [9, 1]), (6, [5, 1]), (7, [1, -9]))
    ]
    return Program(f, made)


@row(REFUSED, graphs=None)
def no_inverse():
    def f(x, i):
        square = x[:, :3] * (i < 3).all()
        try:
            return torch.linalg.inv(square + 0 * torch.eye(3))
        except torch.linalg.LinAlgError:
            return x

    return program(f, table=lambda: torch.tensor([[2.0, 1, 0, 0], [0, 3, 1, 0], [1, 0, 2, 0]]))


@row(REFUSED)
def divided_by_zero():
    def f(x, i):
        try:
            return (x[:, 0].long() // (i - 7))[0]
        except RuntimeError as error:
            return str(error)

    return program(f)


@row(REFUSED, graphs=(1, 3))
def written_before_a_read_and_caught():
    def f(x, i):
        n = i.max().item()
        x.add_(n)
        least = i.min().item()
        try:
            y = x[i] * least
        except IndexError:
            y = x - 1
        x.mul_(2)
        return y, n

    return program(f)


@row(REFUSED, graphs=(1, 3))
def history_changes_before_it():
    def f(x, i):
        y = x * 2
        y.add_(1)
        return y[i].sum()

    return program(f, table=lambda: ramp(3, 4, grad=True))
