"""C memory that Python owns, and builtin functions whose body is machine code.

Enters: the address of a function, the words that it reads. Leaves: a builtin that Python calls.
Invariant: what the code reads lives as long as the builtin, and the cycle collector clears none of
it under the code's feet.

    >>> block = memory((7).to_bytes(8, "little"))
    >>> read_word(block)
    7
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

METH_FASTCALL = 0x0080
METH_KEYWORDS = 0x0002

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]

_untrack = ctypes.pythonapi.PyObject_GC_UnTrack
_untrack.restype, _untrack.argtypes = None, [ctypes.py_object]


def untracked(value: Any) -> Any:
    """The same object, which the cycle collector no longer sees: its `__del__` runs when nothing
    refers to it, and not before. (Instances of any class that is written in Python are tracked,
    also those of a class that derives from int.) Only for what refers to no other object."""
    _untrack(value)
    return value


class CMemory(int):
    """C memory that lives as long as this number, which is its address. The cycle collector does
    not see it: it is freed by its count, and a builtin may be read up to that moment."""

    __slots__ = ()

    def __del__(self, free: Callable[[int], None] = libc.free) -> None:
        free(int(self))


def memory(contents: bytes) -> CMemory:
    """C memory with these contents."""
    address = libc.malloc(max(len(contents), 1))
    if not address:
        raise MemoryError(f"{len(contents)} bytes")
    ctypes.memmove(address, contents, len(contents))
    made: CMemory = untracked(CMemory(address))
    return made


def write_word(address: int, value: int) -> None:
    """Change a word of C memory."""
    ctypes.c_uint64.from_address(address).value = value


def read_word(address: int) -> int:
    """A word of C memory."""
    return ctypes.c_uint64.from_address(address).value


class _Pointer(ctypes.c_void_p):
    __slots__ = ()


_make_builtin = ctypes.pythonapi.PyCMethod_New
_make_builtin.restype = ctypes.py_object
_make_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p]


def make_builtin(
    name: str, address: int, block: CMemory, keep: tuple[Any, ...], *, keywords: bool = False
) -> Callable[..., Any]:
    """A builtin function whose body is the machine code at `address`.

    Its `__self__` is a tuple: a pointer to `block`, for the code to read, then what must live as
    long as the builtin (a tuple, since the cycle collector does not clear one under our feet)."""
    text = name.encode() + b"\0"
    title = memory(text)
    flags = METH_FASTCALL | (METH_KEYWORDS if keywords else 0)
    definition = memory(b"".join(w.to_bytes(8, "little") for w in (title, address, flags, 0)))
    owner = (_Pointer(block), block, definition, title, *keep)
    made: Callable[..., Any] = _make_builtin(int(definition), owner, None, None)
    return made
