"""A question asked in a process of its own: a crash, a hang or a broken state is an answer.

Enters: a function that answers a text. Leaves: that text, or how the process ended. Invariant: this
process is as before; the other one is gone when the answer is there.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import time
import warnings
from collections.abc import Callable

import torch

from windfall.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ProcessAnswer:
    """What a question came to: its answer, or (`crashed`) how the process that was asked ended."""

    answer: str
    crashed: bool = False


def asked(question: Callable[[], str], seconds: float = 60.0) -> ProcessAnswer:
    """The answer of a forked process, or how that ended."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads; ours are idle
        child = os.fork()
    if not child:
        _answer(question, writing)
    os.close(writing)
    parts: list[bytes] = []
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(reading, 1 << 16) if ready else b""
        if not part:
            break
        parts.append(part)
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return ProcessAnswer(f"came to no end in {seconds:.0f} s", True)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ProcessAnswer(f"died of {signal.Signals(number).name}", True)
    if os.WEXITSTATUS(status):
        return ProcessAnswer(f"ended with exit code {os.WEXITSTATUS(status)}", True)
    return ProcessAnswer(b"".join(parts).decode())


def _answer(question: Callable[[], str], writing: int) -> None:
    """The child's part: it leaves without running anything of the parent's exit."""
    code = 1
    try:
        faulthandler.disable()  # how it ends is told by the parent, and only there
        torch.set_num_threads(1)  # the parent's workers are not here
        data = question().encode()
        while data:
            data = data[os.write(writing, data) :]
        code = 0
    except BaseException as error:
        os.write(writing, f"{type(error).__name__}: {error}".encode()[:4000])
        code = 3
    finally:
        os._exit(code)
