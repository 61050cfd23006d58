"""The whole sequence with one thread and two, in a second thread, and after a fork."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests.models.names import EVERY, TINY
from tests.models.sequence import (
    Pair,
    check_again,
    check_gradients,
    check_inference,
    check_whole,
    recipe_of,
)

ROOT = Path(__file__).resolve().parents[2]


LONGER = pytest.mark.conformance


@pytest.mark.parametrize("first", [1, pytest.param(2, marks=LONGER)])
@pytest.mark.parametrize("name", EVERY)
def test_with_one_thread_and_two(name: str, first: int) -> None:
    """Compiled with as many as `first`, then called with the other number."""
    torch.set_num_threads(first)
    pairs = check_whole(name, steps=5)
    torch.set_num_threads(3 - first)
    check_again(name, pairs, steps=5)


@pytest.mark.parametrize("name", TINY)
def test_threads_changed_between_calls(name: str) -> None:
    recipe = recipe_of(name)
    pair, inputs = Pair.of(recipe.model), recipe.inputs(8)
    for threads in (2, 1, 2):
        torch.set_num_threads(threads)
        check_inference(pair, inputs)


def in_a_thread(*work: object) -> None:
    """Run callables in a second thread; what they raise is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            for one in work:
                one()  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("name", EVERY)
def test_in_a_second_thread(name: str) -> None:
    in_a_thread(lambda: check_whole(name, steps=5))


@pytest.mark.parametrize("name", TINY)
def test_compiled_here_and_called_in_a_second_thread(name: str) -> None:
    recipe = recipe_of(name)
    inference, objective = Pair.of(recipe.model), Pair.of(recipe.objective)
    inputs, batch = recipe.inputs(2), recipe.batch(4)

    def both() -> None:
        check_inference(inference, inputs)
        check_gradients(objective, *batch)

    both()
    in_a_thread(both)
    both()


@pytest.mark.parametrize("threads", [pytest.param(1, marks=LONGER), 2])
@pytest.mark.parametrize(
    "name", ["tiny bert", "tiny resnet", pytest.param("tiny gpt2", marks=LONGER), *EVERY[3:]]
)
def test_after_a_fork(name: str, threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.sequence", name, str(threads)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120 if name in TINY else 1200,
    )
    assert done.returncode == 0, done.stderr
