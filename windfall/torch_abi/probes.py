"""How a fact about this process is found: probes, the memory they read, and what they report.

Enters: a function that looks for a fact and raises `NotFound` where it is not there. Leaves: a
function that answers it, or None, once and for all; and `report`, every answer with its reason.
Invariant: a probe compares memory with what public calls answer, on several objects, and takes a
place only if no other fits; reading where nothing is raises instead of crashing.

    @fact
    def tuple_items() -> int:
        pair = (object(), object())
        return word_offset([id(pair)], [id(pair[0])], 5, "a tuple's items")
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from windfall.torch_abi.symbols import NATIVE_SYMBOLS, symbol

# Versions whose tests were run (docs/support.md). Another one is used as far as the probes go.
TRIED = ("2.13.", "2.14.", "2.15.")

Found = TypeVar("Found")


class NotFound(Exception):
    """A probe did not find what it looked for; the text says what."""


class NotThere(NotFound):
    """What a probe looks for does not exist in this version, as is known: nothing is missed."""


def in_fresh_thread(ask: Callable[[], Found]) -> Found:
    """What `ask` answers in a thread that nothing was done to."""
    answers: list[Found] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with _own_memory.opened():
                answers.append(ask())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure
    return answers[0]


_REASONS: dict[str, str] = {}
_EXPECTED: set[str] = set()  # of these: facts that this version is known not to have
_PROBES: list[Callable[[], Any]] = []
_LATE: set[str] = set()  # of these: facts that few programs need, and that take milliseconds


def fact(probe: Callable[[], Found]) -> Callable[[], Found | None]:
    """A probe that runs once: its answer, or None with the reason kept for `report`, however it
    failed. It runs in a thread of its own, where no mode of the caller (inference, dispatch,
    device) changes it."""

    @functools.cache
    def ask() -> Found | None:
        try:
            return in_fresh_thread(probe)
        except NotFound as missing:
            _REASONS[probe.__name__] = str(missing)
            if isinstance(missing, NotThere):
                _EXPECTED.add(probe.__name__)
            return None
        except Exception as error:  # a struct that changed: another torch may break any assumption
            _REASONS[probe.__name__] = f"{type(error).__name__}: {error}"
            return None

    functools.update_wrapper(ask, probe)
    _PROBES.append(ask)
    return ask


def late_fact(probe: Callable[[], Found]) -> Callable[[], Found | None]:
    """A fact that is not looked for until somebody asks for it, or for a whole report."""
    _LATE.add(probe.__name__)
    return fact(probe)


def report(late: bool = True) -> dict[str, str]:
    """Every fact by name: what was found, or `missing: ` and the reason. Without `late`, those that
    are looked for in any program."""
    lines: dict[str, str] = {}
    for ask in _PROBES:
        if ask.__name__ in _LATE and not late:
            continue
        found = ask()
        name = ask.__name__
        why = "none" if name in _EXPECTED else "missing"
        lines[name] = f"{why}: {_REASONS.get(name)}" if found is None else str(found)
    absent = ", ".join(sorted(ABSENT_NAMES))
    lines["names"] = f"missing: {absent}" if absent else "all found"
    lines["symbols"] = ", ".join(
        f"{name} {'found' if symbol(name) else 'missing'}" for name in NATIVE_SYMBOLS
    )
    return lines


def missing(late: bool = True) -> list[str]:
    """What this torch or this CPython should have and was not found, by name."""
    found = [name for name, told in report(late).items() if told.startswith("missing")]
    return found + [name for name in NATIVE_SYMBOLS if symbol(name) is None]


class _Said:
    """Whether it was said, once for the process."""

    already = False


def warn_of_missing() -> None:
    """Say once what is missing, and that this torch was never tried where that is so."""
    if _Said.already:
        return
    _Said.already = True
    lacks, version = missing(late=False), torch.__version__
    tried, known = version.startswith(TRIED), ", ".join(one[:-1] for one in TRIED)
    if tried and not lacks:
        return
    text = "" if tried else f"windfall was never tried with torch {version}, only with {known}. "
    if lacks:
        text += f"Not found in torch {version}: {', '.join(lacks)}; calls take a slower path. "
    warnings.warn(f"{text}See torch_abi.report().", RuntimeWarning, stacklevel=3)


# ------------------------------------------------------------------------------- private names

ABSENT_NAMES: set[str] = set()


class AbsentName:
    """Stands for a private name that this torch does not have. No object of a program is it; who
    needs it gets `NotFound`, which ends in eager."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotFound(f"this torch has no {self.path}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentName(f"{self.path}.{name}")


def named(path: str, find: Callable[[], Any]) -> Any:
    """What `find` finds at import; where it fails, something that is never met."""
    try:
        return find()
    except Exception:  # gone, moved, or no longer what it was
        ABSENT_NAMES.add(path)
        return AbsentName(path)


def c_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """An exported C function, to be called from Python."""
    address = symbol(name)
    if address is None:
        raise NotFound(f"no exported symbol {name}")
    return ctypes.CFUNCTYPE(result, *arguments)(address)


class _OwnMemory(threading.local):
    """The process's memory as a file, open while a probe runs in this thread: reading what is not
    there fails instead of crashing. None where the system has no such file."""

    file: int | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        if self.file is not None:
            yield
            return
        with contextlib.suppress(OSError):
            self.file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield
        finally:
            file, self.file = self.file, None  # first: an interrupt must leave no closed number
            if file is not None:
                os.close(file)


_own_memory = _OwnMemory()


def bytes_at(address: int, count: int) -> bytes:
    """What memory holds; `NotFound` where there is none."""
    file = _own_memory.file
    if file is None:
        with _own_memory.opened():
            file = _own_memory.file
            return ctypes.string_at(address, count) if file is None else _read(file, address, count)
    return _read(file, address, count)


def _read(file: int, address: int, count: int) -> bytes:
    try:
        found = os.pread(file, count, address)
    except (OSError, OverflowError) as error:
        raise NotFound(f"nothing is at {address:#x}") from error
    if len(found) != count:
        raise NotFound(f"nothing is at {address + len(found):#x}")
    return found


def words_at(address: int, count: int) -> list[int]:
    """`bytes_at`, as numbers of eight bytes each."""
    return list(struct.unpack(f"={count}Q", bytes_at(address, count * 8)))


def peek(address: int) -> int | None:
    """A word, where the address itself is only a guess."""
    try:
        return words_at(address, 1)[0]
    except NotFound:
        return None


def only(candidates: Iterable[int], what: str) -> int:
    """The one place that fits; `NotFound` where none or several do."""
    found = list(candidates)
    if len(found) != 1:
        raise NotFound(f"{what}: {len(found)} places fit, at {found}")
    return found[0]


def word_offset(addresses: Sequence[int], values: Sequence[int], count: int, what: str) -> int:
    """The only offset at which every address holds its value."""
    tables = [words_at(address, count) for address in addresses]
    fits = (
        8 * place
        for place in range(count)
        if all(table[place] == value for table, value in zip(tables, values, strict=True))
    )
    return only(fits, what)
