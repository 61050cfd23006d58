"""Forked processes call and compile, whatever the threads of their parent were doing: a script."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

import windfall

X = torch.randn(4, 6)


def program(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).tanh().sum(-1)


def in_a_child(work: Callable[[], None]) -> None:
    """A child that hangs is ended by its alarm, which is a failure."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, work


def calls_and_compiles() -> None:
    for x in (X, torch.randn(3, 5)):
        torch.testing.assert_close(compiled(x), program(x))
    torch.testing.assert_close(windfall.compile(lambda x: x.sin() + 1)(X), X.sin() + 1)
    windfall.reset()
    torch.testing.assert_close(compiled(X), program(X))


def while_another_thread_compiles() -> None:
    started, released = threading.Event(), threading.Event()

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        started.set()
        assert released.wait(60)
        return module.forward

    waiting = windfall.compile(lambda x: x.cos() + 1, backend=backend)
    thread = threading.Thread(target=waiting, args=(X,))
    thread.start()
    assert started.wait(60)

    def calls_the_same() -> None:
        released.set()
        torch.testing.assert_close(waiting(X), X.cos() + 1)
        calls_and_compiles()

    in_a_child(calls_the_same)
    released.set()
    thread.join()


def while_threads_compile_all_the_time() -> None:
    stop = threading.Event()

    def compiles() -> None:
        while not stop.is_set():
            windfall.compile(lambda x: x.sin() * 2)(X)

    threads = [threading.Thread(target=compiles) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        time.sleep(0.05)
        in_a_child(calls_and_compiles)
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    torch.set_num_threads(1)
    compiled: Any = windfall.compile(program)
    compiled(X)
    in_a_child(calls_and_compiles)
    while_another_thread_compiles()
    while_threads_compile_all_the_time()
