"""`compile(f, verify=3)`: eager runs beside the first calls, and must agree.

Enters: calls of a compiled object. Leaves: what the compiled object answers; `MismatchError` where
eager answers something else: results, what was written to arguments, parameters and buffers,
gradients, random numbers drawn, errors raised. Invariant: eager runs on copies
(`state_copies.py`), with the random numbers and the output of the program restored; the program
goes on as if it had not run. What cannot be compared is noted in the log, and nothing is compared.

The gradients of the real result are asked for once more to be compared (`autograd.grad`, which
adds to no `.grad`); where tensors have hooks, these would notice, and gradients are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from windfall import locks
from windfall.around import Around
from windfall.diagnosis.bisection import Diagnosis, bisect
from windfall.diagnosis.comparison import differences
from windfall.diagnosis.state_copies import Copies, Uncopied, unnoticed
from windfall.diagnosis.trial import gradients, tensors_in
from windfall.directives import is_compiling
from windfall.errors import MismatchError
from windfall.events import EventKind, EventLog
from windfall.options import Options

_SECONDS = 60.0


class Verified(Around):
    """A compiled object whose first calls are compared."""

    def __init__(self, compiled: Any, options: Options, log: EventLog) -> None:
        super().__init__(compiled)
        self._left, self._options, self._log = options.verify_calls, options, log
        self._lock = locks.lock()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it; compare, if it is one of the first."""
        if not self._takes():
            return self.compiled(*args, **kwargs)
        name = getattr(self, "__name__", "call")
        try:
            call = _Call(self.target, args, kwargs)
        except Uncopied as reason:
            self._log.add(EventKind.VERIFY, name, how="not compared", reason=str(reason))
            return self.compiled(*args, **kwargs)
        result, error = call.ours(self.compiled)
        found = call.compared(result, error)
        self._log.add(
            EventKind.VERIFY, name, how="parted" if found else "agreed", reason="; ".join(found)
        )
        if found:
            raise self._mismatch(name, found, call) from error
        if error is not None:
            raise error
        return result

    def _takes(self) -> bool:
        if self._left <= 0 or is_compiling():
            return False
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def _mismatch(self, name: str, found: list[str], call: _Call) -> MismatchError:
        """What parts, and the operation and line where it does, if a fresh compilation shows it."""
        where = call.located(self._options)
        told = [f"{name}: eager and compiled part: {'; '.join(found[:3])}"]
        if where is None:
            told.append("calls with keyword arguments are not looked into: see windfall.bisect")
        elif where.found:
            told.append(str(where))
        else:
            told.append("a fresh compilation of this call is right: see windfall.bisect")
        known = where or Diagnosis()
        return MismatchError("\n".join(told), tuple(found), known.stage, known.operations)


class _Call:
    """One call, with copies of all that it starts from."""

    def __init__(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self._copies, self._spare = Copies(), Copies()
        self._target, self._copied = self._copies.of((_HeldTarget(target), (args, kwargs)))
        self._fresh = self._spare.of((_HeldTarget(target), args))
        self._before = torch.get_rng_state()
        self._grad = torch.is_grad_enabled()

    def ours(self, compiled: Any) -> tuple[Any, Exception | None]:
        """The real call."""
        try:
            return compiled(*self._args, **self._kwargs), None
        except Exception as error:
            return None, error

    def compared(self, result: Any, error: Exception | None) -> list[str]:
        """How eager's answer is another one."""
        drawn = torch.get_rng_state()
        with unnoticed():
            torch.set_rng_state(self._before)
            args, kwargs = self._copied
            try:
                expected = self._target.value(*args, **kwargs)
            except Exception as raised:
                return _of_errors(raised, error)
            if error is not None:
                return _of_errors(None, error)
            found = [*differences(expected, result)]
            if not torch.equal(drawn, torch.get_rng_state()):
                found.append("another number of random numbers was drawn")
            found += self._written()
            found += self._gradients(expected, result)
        return found

    def _written(self) -> Iterator[str]:
        for at, (original, copied) in enumerate(self._copies.pairs):
            what = f"tensor {at} ({[*original.shape]}), afterwards"
            yield from differences(copied.detach(), original.detach(), what)
            if original.is_leaf and copied.is_leaf:
                yield from differences(copied.grad, original.grad, f"{what}: grad")

    def _gradients(self, expected: Any, result: Any) -> Iterator[str]:
        if not self._grad or not any(one.requires_grad for one in tensors_in(result)):
            return
        pairs = [pair for pair in self._copies.pairs if pair[0].requires_grad]
        if any(_has_hooks(one) for one, _ in pairs):
            return
        theirs = gradients(expected, iter([copied for _, copied in pairs]))
        mine = gradients(result, iter([original for original, _ in pairs]))
        yield from differences(theirs, mine, "gradient")

    def located(self, options: Options) -> Diagnosis | None:
        """Where a fresh compilation goes wrong; None: that was not looked for."""
        if self._kwargs:
            return None
        target, args = self._fresh
        with unnoticed():
            torch.set_rng_state(self._before)
            return bisect(target.value, args, options=options, seconds=_SECONDS)


class _HeldTarget:
    """A target among other things to copy: functions are copied our way only in containers."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _has_hooks(tensor: torch.Tensor) -> bool:
    hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return any(getattr(tensor, name, None) for name in hooks)


def _of_errors(expected: Exception | None, actual: Exception | None) -> list[str]:
    if type(expected) is type(actual) and str(expected) == str(actual):
        return []
    return [f"it raises {actual!r}, eager {expected!r}"]
