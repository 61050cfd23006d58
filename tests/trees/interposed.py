"""Counts calls of the C library's allocator, in a process of its own.

Enters: a script. Leaves: what it printed; in it `allocations()` tells how often memory was asked
for so far, by anything in the process. The counter is a library of a few lines of C that is loaded
before all others; Python's own small objects come from its arenas and are not counted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COUNTER = r"""
#define _GNU_SOURCE
#include <stddef.h>
#include <errno.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static unsigned long count;
unsigned long allocations(void) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }
static void one(void) { __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED); }
void *malloc(size_t n) { one(); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { one(); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { one(); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { one(); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { one(); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
  one();
  *p = __libc_memalign(a, n);
  return *p ? 0 : ENOMEM;
}
"""

START = """
import ctypes, gc
import torch, windfall
_counted = ctypes.CDLL(None).allocations
_counted.restype = ctypes.c_ulong
def allocations(ask=_counted):
    return ask()
"""


def counted(script: str, folder: Path) -> str:
    """What a script prints."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler, or no way to interpose")
    library, source = folder / "counter.so", folder / "counter.c"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", START + script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
