"""Programs that cannot be one graph, each with a mark on the line that is to blame."""

from __future__ import annotations

import datetime
import gc
import io
import json
import os
import re
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import torch

import windfall

PROGRAMS: list[Callable[[torch.Tensor], Any]] = []
LOCK = threading.Lock()
SINK = io.StringIO()


def seeded(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS.append(function)
    return function


@seeded
def prints(x):
    y = x + 1
    print("shape", y.shape, file=SINK)  # break
    return y * 2


@seeded
def prints_a_tensor(x):
    y = x + 1
    print(y, file=SINK)  # break
    return y * 2


@seeded
def item(x):
    y = x + 1
    total = y.sum().item()  # break
    return y * len(str(total))


@seeded
def tolist(x):
    y = x + 1
    values = y.tolist()  # break
    return y * len(values)


@seeded
def to_numpy(x):
    y = x + 1
    array = y.numpy()  # break
    return y * array.shape[0]


@seeded
def to_int(x):
    y = x + 1
    count = int(y.abs().sum())  # break
    return [y] * min(count, 2)


@seeded
def to_float(x):
    y = x + 1
    mean = float(y.mean())  # break
    return y, str(mean)[:1]


@seeded
def branch(x):
    y = x + 1
    if y.sum() > 0:  # break
        return y * 2
    return y * 3


@seeded
def branch_in_a_callee(x):
    def callee(y):
        z = y.sin()
        return z if z.sum() > 0 else -z  # break

    return callee(x + 1) * 2


@seeded
def loop_on_data(x):
    y = x + 1
    while y.sum() < 100:  # break
        y = y * 2
    return y


@seeded
def truth(x):
    y = x + 1
    flag = bool((y > 0).all())  # break
    return y, flag


@seeded
def negation(x):
    y = x + 1
    flag = not (y > 0).any()  # break
    return y, flag


@seeded
def conjunction(x):
    y = x + 1
    flag = y.sum() > 0 and y.mean() > 0  # break
    return y, flag


@seeded
def ternary(x):
    y = x + 1
    return y if (y > 0).all() else -y  # break


@seeded
def assertion(x):
    y = x + 1
    assert (y > -100).all()  # break
    return y * 2


@seeded
def text_of_a_tensor(x):
    y = x + 1
    text = str(y)  # break
    return y, len(text) > 3


@seeded
def formatted(x):
    y = x + 1
    text = f"{y.sum()}"  # break
    return y, len(text) > 3


@seeded
def comparison_of_tensors(x):
    y = x + 1
    same = torch.equal(y, y.clone())  # break
    return y, same


@seeded
def closeness(x):
    y = x + 1
    same = torch.allclose(y, y)  # break
    return y, same


@seeded
def address(x):
    y = x + 1
    where = y.data_ptr()  # break
    return y, where > 0


@seeded
def opens_a_file(x):
    y = x + 1
    with open(os.devnull) as file:  # break
        text = file.read()
    return y * (1 + len(text))


@seeded
def reads_the_clock(x):
    y = x + 1
    now = time.time()  # break
    return y, now > 0


@seeded
def reads_the_date(x):
    y = x + 1
    now = datetime.datetime.now()  # break
    return y, now.year > 2000


@seeded
def asks_the_system(x):
    y = x + 1
    here = os.getcwd()  # break
    return y, len(here) > 0


@seeded
def process_number(x):
    y = x + 1
    number = os.getpid()  # break
    return y, number > 0


@seeded
def temporary_file(x):
    y = x + 1
    place = tempfile.gettempdir()  # break
    return y, len(place) > 0


@seeded
def encodes(x):
    y = x + 1
    text = json.dumps({"a": 1})  # break
    return y * len(text)


@seeded
def matches(x):
    y = x + 1
    found = re.compile("a+").match("aaa")  # break
    return y, found is not None


@seeded
def checksum(x):
    y = x + 1
    number = zlib.crc32(b"abc")  # break
    return y, number > 0


@seeded
def collects(x):
    y = x + 1
    gc.collect()  # break
    return y * 2


@seeded
def takes_a_lock(x):
    y = x + 1
    with LOCK:  # break
        y = y * 2
    return y


@seeded
def sees_its_names(x):
    y = x + 1
    names = locals()  # break
    return y * len(names)


@seeded
def evaluates(x):
    y = x + 1
    return y, eval("y * 2")  # break


@seeded
def executes(x):
    y = x + 1
    exec("pass")  # break
    return y * 2


@seeded
def sees_its_frame(x):
    y = x + 1
    frame = sys._getframe()  # break
    return y, frame.f_code.co_name


@seeded
def imports(x):
    y = x + 1
    import nturl2path  # break

    return y * len(nturl2path.__name__)


@seeded
def seeds(x):
    y = x + 1
    torch.manual_seed(3)  # break
    return y * 2


@seeded
def changes_the_default(x):
    y = x + 1
    torch.set_default_dtype(torch.float32)  # break
    return y * 2


@seeded
def saves(x):
    y = x + 1
    torch.save(y, io.BytesIO())  # break
    return y * 2


@seeded
def asks_for_a_break(x):
    y = x + 1
    windfall.graph_break()  # break
    return y * 2


@seeded
def leaves(x):
    y = x + 1
    windfall.skip_frame()  # break
    return y * 2


@windfall.disable(reason="seeded")
def disabled(x):
    return x.sin()


@seeded
def calls_a_disabled_function(x):
    y = x + 1
    z = disabled(y)  # break
    return z * 2


@seeded
def calls_it_in_a_comprehension(x):
    y = x + 1
    return [disabled(y * k) for k in (1, 2)]  # break


@seeded
def in_a_method(x):
    class Model:
        def step(self, y):
            z = y.cos()
            return disabled(z)  # break

    return Model().step(x + 1) * 2


@seeded
def in_a_module(x):
    class Part(torch.nn.Module):
        def forward(self, y):
            z = y.cos()
            return disabled(z)  # break

    part = Part()
    return torch.nn.Sequential(part)(x + 1)
