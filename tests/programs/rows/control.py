# ruff: noqa: B012, B904, B905, SIM, E722, TRY
"""Rows of the checklist: context managers, exceptions, segments, effects."""

import contextlib
import io
import operator
import sys
import warnings
import zlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tests.programs.case import Call, Program, plain, ramp, row

# ---------------------------------------------------------------------------- context managers


@plain("contexts")
def no_grad(x, w):
    with torch.no_grad():
        a = w * 2
    b = w * 3 + x
    return a, b, a.requires_grad, b.requires_grad


@plain("contexts")
def nested_grad_modes(x, w):
    with torch.no_grad():
        with torch.enable_grad():
            a = w * 2
        b = w * 3
        with torch.set_grad_enabled(True):
            c = w + x
        d = w - x
    return a, b, c, d, torch.is_grad_enabled()


@plain("contexts")
def inference_mode(x):
    with torch.inference_mode():
        a = x * 2
    return a, x + 1, torch.is_inference_mode_enabled()


@plain("contexts")
def decorated_no_grad(w):
    @torch.no_grad()
    def inner(t):
        return t * 2

    return inner(w), w * 3


@plain("contexts")
def autocast(x):
    y = x.T.contiguous()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
    return a, x @ y


@plain("contexts")
def sdpa(x):
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q, q, q)


@plain("contexts")
def profiler_range(x):
    with torch.autograd.profiler.record_function("part"):
        return x * 2 + 1


class Scope:
    def __init__(self, log, name, swallow=False):
        self.log = log
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append((self.name, kind.__name__ if kind else None, str(value)))
        return self.swallow


@plain("contexts")
def user_context(x):
    log = []
    with Scope(log, "a") as one, Scope(log, "b"):
        y = x * len(log)
    return y, log, one.name


@plain("contexts")
def user_context_swallows(x):
    log = []
    with Scope(log, "a", swallow=True):
        raise KeyError("inside")
    return x + len(log), log


@plain("contexts")
def user_context_lets_through(x):
    log = []
    try:
        with Scope(log, "outer"), Scope(log, "inner"):
            raise KeyError("inside")
    except KeyError:
        log.append("caught")
    return x + len(log), log


@contextlib.contextmanager
def temporarily(owner, value):
    before, owner["value"] = owner["value"], value
    try:
        yield before
    finally:
        owner["value"] = before


@plain("contexts")
def generator_context(x):
    owner = {"value": 1}
    with temporarily(owner, 5) as before:
        y = x * owner["value"] + before
    return y + owner["value"], owner


@plain("contexts")
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        for name in "ab":
            stack.enter_context(Scope(log, name))
        stack.callback(log.append, "callback")
        y = x + len(log)
    return y, log


@plain("contexts")
def suppress_and_null(x):
    with contextlib.suppress(ZeroDivisionError):
        x = x + 1
        1 // 0
        x = x + 100
    with contextlib.nullcontext(3) as three:
        return x * three


@plain("contexts")
def return_inside_with(x):
    log = []
    for i in range(3):
        with Scope(log, i):
            if i == 1:
                return x * i, log
            continue


@row("contexts", graphs=(1, 3))
def context_argument():
    def f(x, w, scope):
        with scope:
            y = x * w
        return y + 1

    return Program(
        f,
        [
            Call(ramp(3), ramp(3, grad=True), torch.no_grad()),
            Call(ramp(3), ramp(3, grad=True), torch.no_grad()),
            Call(ramp(3), ramp(3, grad=True), contextlib.nullcontext()),
            Call(ramp(3), ramp(3, grad=True), torch.enable_grad()),
        ],
    )


@plain("contexts", graphs=(1, 2))
def set_grad_bare(w):
    previous = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    a = w * 2
    torch.set_grad_enabled(previous)
    return a, w * 3


# --------------------------------------------------------------------------------- exceptions


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
        lambda: 1 // 0, lambda: [][n], lambda: {}["k"], lambda: n.nope, lambda: int("z"), lambda: n + "s",
        lambda: next(iter(())), lambda: len(n), lambda: n(), lambda: "a" < 1, lambda: [1, 2].index(9),
    ):  # fmt: skip
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


@row("exceptions", graphs=(0, 2))
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


# ----------------------------------------------------------------------------------- segments

SINK = io.StringIO()


@plain("segments", graphs=(2, 2))
def break_between(x):
    y = x * 2
    print("between", file=SINK)
    return y + 1


@plain("segments", graphs=(2, 2))
def break_by_item(x):
    k = (x * 2).sum().item()
    return x + k


@plain("segments", graphs=(2, 2))
def break_by_branch(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y * 3


@row("segments", graphs=(3, 3))
def both_branches():
    def f(x):
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        else:
            y = y - 7
        return y

    return Program(f, [Call(ramp(3, start=start)) for start in (1, -9, 2, -8)])


@plain("segments", graphs=(2, 2))
def break_by_opaque_call(x):
    y = x + 1
    k = zlib.crc32(b"windfall") % 7
    return y * k


@plain("segments", graphs=(1, 3))
def break_in_loop_of_ten(x):
    for i in range(10):
        x = x + 1
        print(i, file=SINK)
        x = x * 2 % 5
    return x


@plain("segments", graphs=(2, 2))
def break_in_with(x):
    log = []
    with Scope(log, "a"):
        y = x * 2
        print("in with", file=SINK)
        y = y + 1
    return y, log


@plain("segments", graphs=(2, 2))
def break_in_with_then_raise(x):
    log = []
    with Scope(log, "a", swallow=True):
        y = x * 2
        print("in with", file=SINK)
        y = y + 1
        raise ValueError("swallowed")
    return y, log


@plain("segments", graphs=(2, 2))
def break_in_except(x):
    try:
        y = x + 1
        raise ValueError("v")
    except ValueError as error:
        print("handling", file=SINK)
        y = y * 2
        kept = str(error), type(sys.exc_info()[1]).__name__
    return y, kept


@plain("segments", graphs=(2, 2))
def break_in_finally(x):
    try:
        y = x + 1
    finally:
        print("finally", file=SINK)
    return y * 2


@plain("segments", graphs=(2, 2))
def break_in_generator(x):
    def parts():
        yield x + 1
        print("between yields", file=SINK)
        yield x * 2

    return sum(parts())


@plain("segments", graphs=(1, 3))
def break_in_comprehension(xs):
    def noted(t):
        print("noted", file=SINK)
        return t + 1

    return [noted(t) * 2 for t in xs]


@plain("segments", graphs=(2, 2))
def break_in_call_arguments(x):
    def combine(a, b, *, c):
        return a * b - c

    return combine(x + 1, (x.sum()).item(), c=x * 2)


@plain("segments", graphs=(2, 2))
def break_with_closure_cells(x):
    total = x * 1

    def add(value):
        nonlocal total
        total = total + value

    add(x)
    print("between", file=SINK)
    add(x * 2)
    return total, add


@plain("segments", graphs=(2, 2))
def break_with_effects_on_both_sides(x, xs):
    xs.append(x[0] + 1)
    print(len(xs), file=SINK)
    xs.append(x[1] * 2)
    return xs.pop(0)


@plain("segments", graphs=(2, 2))
def break_inside_no_grad_three_deep(w):
    def deep(t):
        y = t * 2
        print(torch.is_grad_enabled(), file=SINK)
        return y * 3

    def middle(t):
        with torch.no_grad():
            return deep(t) + 1

    return middle(w), w * 2


@plain("segments", graphs=(2, 2))
def break_by_warning(x):
    y = x + 1
    warnings.warn("look here", stacklevel=2)
    return y * 2


@plain("segments", graphs=(2, 2))
def break_by_tolist(x):
    values = (x + 1).tolist()
    return x * len(values), values


@plain("segments", graphs=(1, 2))
def data_dependent_shape(x):
    chosen = x[x > 0]
    return chosen * 2, chosen.shape[0], torch.nonzero(x).sum()


@row("segments", graphs=(1, 4))
def break_in_recursion():
    def walk(x, depth):
        if depth == 0:
            print("bottom", file=SINK)
            return x + 1
        return walk(x * 2, depth - 1) + depth

    return Program(walk, [Call(ramp(3), 3), Call(ramp(3), 3)])


@row("segments")
def tensor_free_loop():
    def f(x, n):
        total = 0
        for i in range(n):
            total = (total * 31 + i) % 1000003
        return x + total

    return Program(f, [Call(ramp(3), 20000), Call(ramp(3), 20000)])


@row("segments")
def loop_unrolled():
    def f(x, n):
        for _ in range(n):
            x = x * 2 % 7
        return x

    return Program(f, [Call(ramp(3), 20), Call(ramp(3), 20)])


@plain("segments", graphs=(1, 5))
def sort_key_reads_data(xs):
    order = sorted(xs, key=lambda one: float(one.sum()))
    return order[0] + 1, order[-1] * 2


@plain("segments", graphs=(1, 2))
def print_of_tensor(x):
    y = x + 1
    print(y, y.sum(), file=SINK)
    return y * 2


@plain("segments", graphs=(2, 2))
def while_with_else(x):
    k = 0
    while k < 3:
        k += 1
        if k == 2:
            print("two", file=SINK)
        x = x + k
    else:
        x = x * 2
    return x


@plain("segments", graphs=(2, 4))
def break_while_mapping_is_iterated(x, d):
    total = x.sum()
    for key, value in d.items():
        if key == "b":
            print(key, file=SINK)
        total = total + value.sum()
    return total


# ------------------------------------------------------------------------------------ effects

GLOBAL_LIST = []
GLOBAL_TENSOR = ramp(3)


class Node:
    def __init__(self, value=None, next=None):
        self.value = value
        self.next = next


@plain("effects", graphs=(1, 2))
def global_list_appended(x):
    GLOBAL_LIST.append(x + 1)
    return x * len(GLOBAL_LIST[:0])


@plain("effects")
def global_tensor_rebound(x):
    global GLOBAL_TENSOR
    GLOBAL_TENSOR = GLOBAL_TENSOR + x
    return GLOBAL_TENSOR * 2


@plain("effects")
def global_created_and_deleted(x):
    global CREATED
    CREATED = x + 1
    y = CREATED * 2
    del CREATED
    try:
        return CREATED
    except NameError:
        return y


@row("effects")
def linked_objects():
    def f(head, x):
        node = head
        while node.next is not None:
            node.value = node.value + x
            node = node.next
        node.next = Node(x * 2)
        node.next.back = node
        return node.value

    def made():
        return Node(ramp(3), Node(ramp(3, start=0)))

    return Program(f, [Call(made(), ramp(3)), Call(made(), ramp(3))])


@row("effects", graphs=(1, 2))
def order_of_effects():
    class Observed(list):
        pass

    def f(x, one, other):
        one.append("a")
        other.append(len(one))
        one.append(x + 1)
        other.append(one[-1] * 2)
        one.clear()
        one.append("last")
        return len(one) + len(other) + x

    return Program(f, [Call(ramp(3), [], []), Call(ramp(3), Observed(), [])])


@plain("effects")
def inplace_on_arguments(x, y):
    x.add_(y)
    y.mul_(2).sub_(x)
    x[0] = 0
    x[:, 1] += y[:, 1]
    x += 1
    return x.sum() + y.sum()


@plain("effects")
def inplace_on_views(x):
    row = x[0]
    flat = x.view(-1)
    row.add_(10)
    flat[3:].zero_()
    return row.sum(), flat


@plain("effects")
def out_argument(x, y):
    out = torch.empty(2, 3)
    torch.add(x, y, out=out)
    torch.mul(x, y, out=y)
    return out


@plain("effects")
def tensor_attributes(x):
    x.tag = "seen"
    y = x + 1
    y.origin = x
    return y, y.origin is x, x.tag


@plain("effects")
def gradients_set_and_read(w):
    w.grad = torch.ones(3)
    w.grad.add_(1)
    g = w.grad
    w.grad = None
    return g * 2, w.grad


@plain("effects")
def requires_grad_changed(x):
    x.requires_grad_()
    y = x * 2
    return y, x.requires_grad, y.requires_grad, y.detach().requires_grad


@plain("effects")
def escaping_objects(x):
    shared = Node(x + 1)
    return [shared, {"same": shared}, Node(shared, shared)]


@plain("effects")
def nested_mutation(x, d):
    d["inner"] = inner = {}
    inner["up"] = d
    inner["list"] = [x + 1]
    inner["list"].append(inner)
    return x + len(d)


@plain("effects")
def delattr_and_delitem(x, d):
    node = Node(x)
    del node.next
    del d["a"]
    node.__dict__["direct"] = 3
    return x + node.direct, hasattr(node, "next"), node


@plain("effects")
def data_assigned(x, y):
    x.data = y * 2
    return x + 1


@plain("effects", graphs=(0, 0))
def returned_inputs(x, xs, d):
    return x, xs, d, xs[0], (x, x)


@plain("effects")
def itemsetter_of_operator(x, d):
    operator.setitem(d, "new", x + 1)
    operator.delitem(d, "a")
    return operator.getitem(d, "new") * 2
