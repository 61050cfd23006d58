"""Rows of the checklist: effects on whatever the program can reach."""

import operator

import torch

from tests.programs.case import Call, Program, plain, ramp, row

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


@plain("effects", graphs=(1, 2))
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
