"""Rows of the checklist: classes made inside of functions, and attributes of classes written."""

import torch

from tests.programs.case import Call, Program, plain, ramp, row


class Base:
    kind = "base"

    def __init__(self, scale):
        self.scale = scale

    @classmethod
    def made(cls, scale):
        return cls(scale)

    def apply(self, x):
        return x * self.scale


@plain("classes")
def class_with_everything(x, n):
    class Derived(Base):
        """Its text."""

        weight = x * 2
        table = [1, 2]  # noqa: RUF012
        size: int = n

        def __init__(self, scale):
            super().__init__(scale * n)
            self._hidden = 3

        @property
        def hidden(self):
            return self._hidden

        @hidden.setter
        def hidden(self, value):
            self._hidden = value * 2

        @staticmethod
        def twice(t):
            return t * 2

        @classmethod
        def name(cls):
            return cls.__name__

        def apply(self, t):
            return super().apply(t) + self.weight

    one = Derived.made(2)
    one.hidden = 5
    return (
        one.apply(x),
        one.hidden,
        Derived.twice(x),
        one.twice(x),
        Derived.name(),
        Derived.kind,
        Derived.table is one.table,
        Derived.__doc__,
        Derived.__mro__[1] is Base,
        issubclass(Derived, Base),
        isinstance(one, Base),
        type(one) is Derived,
        one.scale,
    )


@row("classes", graphs=(1, 1))
def class_that_leaves():
    def f(x, k):
        class Counter:
            step = k

            def __init__(self):
                self.total = x * 0

            def add(self, t):
                self.total = self.total + t * self.step
                return Counter

        made = Counter()
        made.add(x)
        return made, Counter

    def use(result):
        made, cls = result
        again = cls()
        chained = again.add(torch.ones(3))
        return type(made) is cls, chained is cls, again.total, made.total, sorted(vars(made))

    return Program(f, [Call(ramp(3), 2, after=use), Call(ramp(3), 2, after=use)])


@row("classes", graphs=(1, 4))
def break_in_class_body():
    def f(x):
        y = x + 1

        class Loud:
            print("body")
            value = 3

        return y * Loud.value

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("classes", graphs=(1, 4))
def break_behind_class():
    def f(x):
        class Scale:
            factor = x + 1

            def __call__(self, t):
                return t * self.factor

        scale = Scale()
        print("between")
        return scale(x), isinstance(scale, Scale)

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("classes", graphs=(1, 4))
def classes_left_to_python():
    def f(x):
        class Meta(type):
            pass

        class Strange(metaclass=Meta):
            __slots__ = ("a",)

            def __init_subclass__(cls):
                cls.seen = True

        class Child(Strange):
            pass

        one = Strange()
        one.a = x + 1
        return one.a * 2, Child.seen, type(Strange) is Meta

    return Program(f, [Call(ramp(3)), Call(ramp(3))])


@row("classes", graphs=(1, 3))
def class_attributes_written():
    class Parent:
        count = 0
        last = None

    class Child(Parent):
        pass

    def f(x):
        one = Child()
        Parent.count += 1
        Child.last = x + 1
        before = one.count, Child.count
        Child.count = 10
        one.count += 1
        return one.last * 2, before, one.count, Child.count, Parent.count, Parent.last

    return Program(f, [Call(ramp(3)), Call(ramp(3))], state=(Parent, Child))


@row("classes", graphs=(1, 2))
def list_subclass_written():
    class Stack(list):
        def push(self, item):
            self.append(item)

    def f(x, stack):
        stack.push(x + 1)
        stack[0] = len(stack)
        del stack[1]
        stack.extend(i for i in range(2))
        stack.insert(0, "first")
        return x * len(stack), stack

    return Program(f, [Call(ramp(3), Stack([1, 2])), Call(ramp(3), Stack([1, 2]))])


class Meters:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Meters(self.value + (other.value if isinstance(other, Meters) else other))

    __radd__ = __add__

    def __rmul__(self, other):
        return Meters(self.value * other)

    def __eq__(self, other):
        return "equal"

    def __abs__(self):
        return Meters(abs(self.value))

    __hash__ = None


@plain("classes")
def tensors_beside_objects(x):
    one = Meters(x)
    return (
        (x + one).value,
        (one + x).value,
        (x * one).value,
        x == one,
        one == x,
        abs(one).value,
        sum([one, one], Meters(x * 0)).value,
    )
