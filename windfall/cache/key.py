"""What shapes code: the key under which something compiled is kept.

Enters: what a compilation is given (graphs, types, relations, options), as records. Leaves: a
digest, or `Unkeyed` with the reason. Invariant: two compilations with one key make the same code.
So everything counts unless it is declared not to: every option but those of `HARMLESS`, the
thread's state, torch's settings, its build, the processor, LLVM, the interpreter, and the text of
windfall itself; and what is not known by its name alone (a user's op, a rule that was added from
outside) has no key.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from windfall import jit, torch_abi
from windfall.errors import WindfallError
from windfall.ir.codec import Document, Unstorable, dumps, encode
from windfall.options import Options

# Options that choose what is told, checked or kept, and no code.
HARMLESS = frozenset(
    {"fullgraph", "disable", "strict", "verify", "logs", "records", "name", "recompile_limit"}
    | {"report", "runs", "verify_calls"}
    | {"backend_options", "cache", "cache_entries", "cache_dir", "cache_bytes"}
    | {"remote_cache", "remote_cache_key", "remote_cache_write", "remote_cache_seconds"}
)

# Where named things may stand that a graph refers to: what they are is told by torch's build, the
# interpreter's version and windfall's own text.
OWN_MODULES = ("torch", "windfall", "_operator", "operator", "math", "builtins", "types")
OWN_LIBRARIES = ("aten", "prims", "prim", "_c10d_functional")
# What another library than those of torch itself may have changed; any makes a graph unkeyed.
NAMED_TAGS = {"name", "code"}
OPERATOR_TAGS = {"op": "::", "packet": "."}


class Unkeyed(WindfallError):
    """Nothing tells whether another compilation is the same; the text says why."""


def key_of(kind: str, given: Any, options: Options) -> str:
    """The key of what is made of `given`, a tuple of records."""
    try:
        document = encode(given)
    except Unstorable as error:
        raise Unkeyed(str(error)) from None
    check_names(document)
    made = hashlib.blake2b(digest_size=24)
    told = (repr(settings(options)), repr(torch_abi.ambient()), own_functions())
    for part in (kind, surroundings(), *told):
        made.update(part.encode())
        made.update(b"\0")
    made.update(dumps(document))
    return made.hexdigest()


def entry_key(told: tuple[Any, ...], options: Options) -> str:
    """The key of an entry, of what can be told of a call before it is captured. It need not cover
    what was relied upon: that is looked at when the entry is loaded (`windfall/whole_entries.py`);
    it covers what no guard speaks of."""
    made = hashlib.blake2b(digest_size=24)
    parts = (repr(told), repr(settings(options)), repr(torch_abi.ambient()), own_functions())
    for part in ("entry", surroundings(), *parts):
        made.update(part.encode())
        made.update(b"\0")
    return made.hexdigest()


def text_key(text: str) -> str:
    """The key of what LLVM makes of a text, for this processor."""
    made = hashlib.blake2b(digest_size=24)
    for part in ("text", *jit.versions(), text):
        made.update(part.encode())
        made.update(b"\0")
    return made.hexdigest()


def own_functions() -> str:
    """What torch's functions do, where that is not as its build says; `Unkeyed` where nothing tells
    it. (They call each other by names that anyone may give to something else.)"""
    if torch_abi.python_kernels():
        raise Unkeyed(f"kernels of {', '.join(torch_abi.python_kernels())} were registered")
    found = torch_abi.patched_functions()
    if found.foreign:
        raise Unkeyed(f"{', '.join(found.foreign[:3])}: patched, or added from outside")
    return repr(found.moved)


def check_names(document: Document) -> None:
    """`Unkeyed` where a document refers to something of the user's."""
    for tag, *parts in document.nodes:
        name = parts[0] if parts else ""
        if tag in NAMED_TAGS and str(name).partition(":")[0].partition(".")[0] not in OWN_MODULES:
            raise Unkeyed(f"{name} is not torch's")
        if tag in OPERATOR_TAGS:
            library = str(name).partition(OPERATOR_TAGS[tag])[0]
            if library not in OWN_LIBRARIES:
                raise Unkeyed(f"the op {name} is not torch's")


def settings(options: Options) -> tuple[Any, ...]:
    """What may be changed while the process runs, and shapes code."""
    chosen = (
        (one.name, getattr(options, one.name))
        for one in fields(options)
        if one.name not in HARMLESS
    )
    return (*chosen, *torch_abi.process_settings(), jit.vector_bits())


@functools.cache
def surroundings() -> str:
    """What is the same for the whole process."""
    return "\n".join(
        [
            *(_source_digest(), sys.version, platform.machine()),
            *jit.versions(),
            *(torch.__version__, str(torch.version.git_version), torch.__config__.show()),
            torch.backends.cpu.get_cpu_capability(),
        ]
    )


def _source_digest(root: str = str(Path(__file__).parents[1])) -> str:
    """Of the text of windfall: another version of it makes other code. (Each process reads all of
    it, so `os.walk` and plain reads: `Path.rglob` takes three times as long.)"""
    made = hashlib.blake2b(digest_size=24)
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(one for one in inner if one != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb", buffering=0) as file:
                    text = file.read()
                made.update(f"{path[len(root) :]}\0{len(text)}\0".encode())
                made.update(text)
    return made.hexdigest()
