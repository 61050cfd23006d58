"""LLVM text in, machine code out; nothing else knows llvmlite.

Enters: a module as text, and absolute addresses for symbols that no loaded library exports.
Leaves: a `NativeCode` that owns the code: when it is dropped, the code is unloaded. Code is for
`target()`, one for the process: the host's, or the one that `WINDFALL_TARGET` names.

Invariant: the process is untouched but for the code itself: no child process, no file, no global
LLVM context shared between threads (each module is parsed in a context of its own).

LLVM is half of what compiling a small graph takes, and equal graphs become equal text (functions
that are compiled again, layers, closures made in a loop): the latest object files are kept, up to
`_REMEMBERED_BYTES`, and equal text is not compiled twice (ADR 92).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import platform
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding.ffi import ObjectRef

from windfall import locks, options, targets, torch_abi
from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.targets import Processor

_SYMBOL_LOCK = locks.lock()  # llvmlite's symbol table is one per process
locks.adopt(llvm.ffi.lib._lock._lock)  # held by whoever is in LLVM


@functools.cache
def _prepare() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for path in torch_abi.libraries():
        llvm.load_library_permanently(path)


@functools.cache
def _prepare_others() -> None:
    """Machines that are not the host's: their code can be made, not run."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.cache
def target() -> Processor:
    """What code is made for; `UserError` where the one asked for is none of this processor's."""
    host = targets.of_host(
        platform.machine(),
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )
    return targets.chosen(options.chosen_target(), host)


@functools.cache
def versions() -> tuple[str, ...]:
    """What the same text may become other machine code by."""
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    made_for = target()
    return (
        *(llvmlite.__version__, llvm_version),
        *(made_for.name, made_for.triple, made_for.cpu, made_for.features),
    )


@functools.cache
def vector_bits() -> int:
    """The width of the vectors worth using on the target."""
    return target().vector_bits


class _Loaded(int):
    """The number of a loaded object file; when the number goes, the file is unloaded.

    An engine has to go before the context that its module lives in, and code must not go while a
    finaliser of the same dead cycle may still call it. The collector keeps neither order among
    objects that it tracks; this one it does not see (`untracked`): it is freed last, by count."""

    __slots__ = ()
    _held: ClassVar[dict[int, tuple[llvm.ExecutionEngine, llvm.ModuleRef, llvm.ContextRef]]] = {}
    _numbers = itertools.count()

    @classmethod
    def keep(
        cls, engine: llvm.ExecutionEngine, module: llvm.ModuleRef, context: llvm.ContextRef
    ) -> _Loaded:
        """Hold these until the answer is dropped."""
        number = next(cls._numbers)
        cls._held[number] = (engine, module, context)
        made: _Loaded = torch_abi.untracked(cls(number))
        return made

    @property
    def engine(self) -> llvm.ExecutionEngine:
        """The engine that holds the code."""
        return self._held[int(self)][0]

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # by then this module may have lost its names
            # The engine owns the module, which is only marked.
            for one in self._held.pop(int(self)):
                one.close()


class NativeCode:
    """Machine code that lives as long as this object."""

    def __init__(self, loaded: _Loaded, compiled: CompiledObject) -> None:
        self._loaded = loaded
        self._addresses: dict[str, int] = {}
        self.object = compiled  # what was loaded: it can be stored

    def address(self, name: str) -> int:
        """Where the function `name` starts."""
        found = self._addresses.get(name)
        if found is None:
            found = self._addresses[name] = self._loaded.engine.get_function_address(name)
        if not found:
            raise InternalError(f"machine code has no function {name!r}")
        return found


def load(
    text: str,
    symbols: Mapping[str, int] | None = None,
    *,
    optimise: int = 2,
    quick: bool = False,
    want_assembly: bool = False,
) -> NativeCode:
    """Compile `text` for this processor and link it: `compile_object`, then `link`."""
    compiled = compile_object(text, optimise=optimise, quick=quick, want_assembly=want_assembly)
    return link(compiled, symbols)


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """An object file for processors like this one, not bound to any process: fit to be stored."""

    data: bytes
    needs: tuple[str, ...] = ()  # names that are defined elsewhere
    assembly: str | None = None


_REMEMBERED_BYTES = 1 << 20  # some 500 small graphs


class _Remembered:
    """The object files that were asked for last, by what they were made of."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._objects: OrderedDict[bytes, CompiledObject] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> CompiledObject | None:
        with self._lock:
            found = self._objects.get(key)
            if found is not None:
                self._objects.move_to_end(key)
            return found

    def add(self, key: bytes, made: CompiledObject) -> None:
        with self._lock:
            if key in self._objects:  # another thread was as fast
                return
            self._objects[key] = made
            self._bytes += _size(made)
            while self._bytes > _REMEMBERED_BYTES:
                self._bytes -= _size(self._objects.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._objects.clear()
            self._bytes = 0


def _size(one: CompiledObject) -> int:
    return len(one.data) + len(one.assembly or "")


_remembered = _Remembered()


def forget() -> None:
    """Text that was compiled before is compiled anew."""
    _remembered.clear()


def compile_object(
    text: str,
    *,
    optimise: int = 2,
    quick: bool = False,
    want_assembly: bool = False,
    made_for: Processor | None = None,
) -> CompiledObject:
    """LLVM text to an object file; any number of threads at once. `made_for`: another target, whose
    code is looked at and never loaded.

    `optimise` 0 runs no pass; 1 to 3 run LLVM's pipeline without auto-vectorisation, which explicit
    vectors do not need and which costs most of it. `quick` runs none either and takes the fastest
    instruction selection: a fifth of the time, for code that is not a kernel."""
    how = repr((optimise, quick, want_assembly, made_for or target()))
    key = hashlib.blake2b(f"{how}\n{text}".encode()).digest()
    made = _remembered.get(key)
    if made is None:
        _prepare()
        machine = _machine(0 if quick else min(optimise, 2) or 1, made_for)
        with _parsed(text) as module:
            made = _compiled(module, machine, 0 if quick else optimise, want_assembly)
        _remembered.add(key, made)
    return made


@contextmanager
def _parsed(text: str) -> Iterator[llvm.ModuleRef]:
    """A module in a context of its own, closed in the order that LLVM needs, whatever happens: left
    to the collector, a context may go before its module."""
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(text, context)
        try:
            module.verify()
            yield module
        finally:
            module.close()
    except RuntimeError as error:
        raise InternalError(f"generated LLVM text is wrong: {error}") from error
    finally:
        context.close()


def _compiled(
    module: llvm.ModuleRef, machine: llvm.TargetMachine, optimise: int, want_assembly: bool
) -> CompiledObject:
    if optimise:
        tuning = llvm.create_pipeline_tuning_options(speed_level=optimise)
        tuning.loop_vectorization = False
        tuning.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, tuning)
        _run(builder.getModulePassManager(), module, builder)
    assembly = machine.emit_assembly(module) if want_assembly else None
    declared = [
        value.name
        for value in (*module.functions, *module.global_variables)
        if value.is_declaration and not value.name.startswith("llvm.")
    ]
    data = machine.emit_object(module)
    return CompiledObject(data, tuple(dict.fromkeys([*declared, *_undefined(data)])), assembly)


_ELF = b"\x7fELF\x02\x01"  # of 64 bits, little-endian
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size


def _undefined(data: bytes) -> list[str]:
    """The names that an object file leaves open. More than the text declares: where the target has
    no instruction for something (`llvm.fma`, half floats), LLVM calls a function by itself."""
    if not data.startswith(_ELF):
        return []
    sections = {one.name(): one.data() for one in llvm.ObjectFileRef.from_data(data).sections()}
    names, found = sections.get(b".strtab", b""), []
    for name, _, _, section, _, _ in _SYMBOL.iter_unpack(sections.get(b".symtab", b"")):
        if name and not section:
            found.append(names[name : names.index(b"\0", name)].decode())
    return found


def _run(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Run passes and free them, which llvmlite (0.50) forgets: its classes are in an order in which
    the method that frees is never found, and each run loses 64 KB."""
    passes.run(module, builder)
    if type(passes)._dispose is ObjectRef._dispose:
        llvm.NewPassManager._dispose(passes)
        passes.detach()


def link(compiled: CompiledObject, symbols: Mapping[str, int] | None = None) -> NativeCode:
    """Load an object file into the process; its outside names are looked up in `symbols`, then
    among what torch's libraries and the interpreter export."""
    _prepare()
    with _SYMBOL_LOCK:
        for symbol, address in (symbols or {}).items():
            llvm.add_symbol(symbol, address)
        # LLVM ends the process on a name that it cannot find: look first.
        missing = [name for name in compiled.needs if not _found(name)]
        if missing:
            raise InternalError(f"machine code needs what nobody exports: {', '.join(missing)}")
        context = llvm.create_context()
        empty = llvm.parse_assembly("", context)
        engine = llvm.create_mcjit_compiler(empty, _machine(0))
        engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.data))
        engine.finalize_object()
    return NativeCode(_Loaded.keep(engine, empty, context), compiled)


def _found(name: str) -> bool:
    """Whether LLVM knows this name, told of it now if need be: it looks at the interpreter's own
    names only once an engine exists."""
    if llvm.address_of_symbol(name):
        return True
    address = torch_abi.symbol(name)
    if address is not None:
        llvm.add_symbol(name, address)
    return address is not None


def _machine(level: int, made_for: Processor | None = None) -> llvm.TargetMachine:
    if made_for is not None:
        _prepare_others()
    to = made_for or target()
    return llvm.Target.from_triple(to.triple).create_target_machine(
        cpu=to.cpu, features=to.features, opt=level, jit=True
    )
