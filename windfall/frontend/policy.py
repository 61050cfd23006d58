"""What to do with a callable: put it into the graph, fold it, inline it, or call it natively.

Enters: a function, builtin or class. Leaves: a `Treatment`. The table has rows for objects, then
for modules by their name; a special rule for a callable is a row of `values/calls.py` and goes
first. Invariant: what stands in the graph is a public torch function that depends on its arguments
only (and on ambient state that is guarded).
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import operator
import types
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional

from windfall import torch_abi
from windfall.frontend.name_tables import words


class Treatment(enum.Enum):
    """What is done with a call."""

    GRAPH = "a node of the graph"
    FOLD = "computed now, of constants"
    INLINE = "interpreted"
    NATIVE = "called natively, at a break"
    WATCHER = "called natively, with all that it calls: it looks at frames"


# torch functions by name that answer a plain value; of tensors they ask the type only.
_FOLDED = words("""
    is_floating_point is_complex is_signed numel get_default_dtype promote_types
    result_type can_cast broadcast_shapes is_same_size
    are_deterministic_algorithms_enabled is_inference is_conj is_neg typename is_storage
""")

# torch functions by name that change or read global state, or read data; or whose results share
# memory without saying so (`unsafe_split`).
_NATIVE = words("""
    set_default_dtype set_default_device set_default_tensor_type manual_seed seed
    initial_seed get_rng_state set_rng_state save load compile set_num_threads
    set_num_interop_threads set_flush_denormal set_printoptions set_warn_always
    use_deterministic_algorithms from_numpy frombuffer from_file from_dlpack to_dlpack
    asarray as_tensor_not equal allclose is_nonzero import_ir_module fork wait
    autocast_increment_nesting autocast_decrement_nesting clear_autocast_cache
    set_autocast_enabled set_autocast_cache_enabled set_autocast_dtype init_num_threads
    cond while_loop export set_deterministic_debug_mode set_float32_matmul_precision
    unsafe_chunk unsafe_split unsafe_split_with_sizes
""")

# Modules by the start of their name, longest first: what is done with their Python functions.
_MODULES: tuple[tuple[str, Treatment], ...] = (
    ("torch.nn.functional", Treatment.GRAPH),
    ("torch.nn.modules", Treatment.INLINE),
    ("torch.nn.init", Treatment.NATIVE),
    ("torch.nn.utils.rnn", Treatment.NATIVE),  # packing looks at lengths, which are data
    ("torch.nn.utils", Treatment.INLINE),
    ("torch.backends.mha", Treatment.INLINE),
    ("torch.autograd.grad_mode", Treatment.INLINE),
    ("torch.optim.lbfgs", Treatment.NATIVE),  # each of its many branches looks at data
    ("torch.optim.sparse_adam", Treatment.NATIVE),  # no graph holds a sparse tensor
    ("torch.optim", Treatment.INLINE),
    ("torch.utils._foreach_utils", Treatment.INLINE),
    ("torch.fx.graph_module", Treatment.INLINE),  # a graph module's call
    ("torch.amp.autocast_mode", Treatment.INLINE),
    ("torch.amp.grad_scaler", Treatment.INLINE),
    ("torch.nn.attention", Treatment.INLINE),
    ("torch.distributions", Treatment.INLINE),
    ("torch.utils._pytree", Treatment.INLINE),
    ("torch.utils.checkpoint", Treatment.INLINE),
    ("torch.utils._contextlib", Treatment.INLINE),
    ("torch.func", Treatment.INLINE),  # the functions that they make have rules
    ("torch._functorch.apis", Treatment.INLINE),
    ("torch._functorch.vmap", Treatment.INLINE),
    ("torch.functional", Treatment.GRAPH),
    ("torch.masked", Treatment.GRAPH),
    ("torch.signal.windows", Treatment.GRAPH),
    ("torch._lowrank", Treatment.GRAPH),
    ("torch", Treatment.NATIVE),
    ("windfall.frontend.polyfills", Treatment.INLINE),
    ("windfall", Treatment.NATIVE),
    ("warnings", Treatment.NATIVE),
    ("logging", Treatment.NATIVE),
    ("traceback", Treatment.NATIVE),
    ("threading", Treatment.NATIVE),
    ("inspect", Treatment.NATIVE),
    ("random", Treatment.NATIVE),  # each draw is one native step, whatever it takes inside
    ("importlib", Treatment.NATIVE),
    ("numpy", Treatment.NATIVE),
    # Trainers: what modules ask of them (`self.log`) is bookkeeping.
    ("lightning.pytorch", Treatment.NATIVE),
    ("lightning.fabric", Treatment.NATIVE),
    ("pytorch_lightning", Treatment.NATIVE),
    ("lightning_fabric", Treatment.NATIVE),
    ("unittest", Treatment.NATIVE),
    ("pytest", Treatment.NATIVE),
)

# Callables that give a function of constants: pure, without a frame of their own.
_PURE_MODULES: tuple[types.ModuleType, ...] = (math, operator)


def _builtins(space: Any) -> Iterable[Any]:
    for name, value in vars(space).items():
        if isinstance(value, types.BuiltinFunctionType) and not name.startswith("_"):
            yield value


@functools.cache
def _table() -> dict[Any, Treatment]:
    table: dict[Any, Treatment] = {}
    for space in (torch, torch.nn.functional, torch.special, torch.linalg, torch.fft):
        for value in _builtins(space):
            table.setdefault(value, Treatment.GRAPH)
    for module in _PURE_MODULES:
        for value in _builtins(module):
            table[value] = Treatment.FOLD
    for names, how in ((_FOLDED, Treatment.FOLD), (_NATIVE, Treatment.NATIVE)):
        for name in names:
            value = getattr(torch, name, None)
            if value is not None:
                table[value] = how
    for value in _EXPLICIT_FOLDS:
        table[value] = Treatment.FOLD
    for value in _FOLLOWED:
        table[value] = Treatment.INLINE
    return table


_EXPLICIT_FOLDS: tuple[Any, ...] = (
    torch_abi.infer_size,
    abs, bin, chr, divmod, format, hex, oct, ord, pow, round, ascii, repr,
    torch.finfo, torch.iinfo, torch.device, complex, bytes,
)  # fmt: skip


# Functions of torch in Python that are followed, unlike their modules.
_FOLLOWED: tuple[Any, ...] = (
    torch_abi.ASSERT,
    torch.overrides.is_tensor_like,
    torch.nn.utils.rnn.pad_sequence,
    torch.nn.utils.rnn.unpad_sequence,
    torch.nn.functional.gaussian_nll_loss,  # it refuses negative variances, which are data
    torch.__future__.get_swap_module_params_on_conversion,
    torch.__future__.get_overwrite_module_params_on_conversion,
)

# Who names one of these asks for frames that run, for what stands in them, or for frames that an
# exception has passed. It must have such a frame of its own, as must all that it calls.
_OF_FRAMES = words("""
    _getframe _getframemodulename currentframe _current_frames getouterframes getinnerframes
    f_back f_locals f_lineno f_lasti tb_frame clear_frames
    extract_stack format_stack print_stack walk_stack walk_tb
    cr_origin set_coroutine_origin_tracking_depth excepthook __excepthook__ setrecursionlimit
""")


_ASKED_OF = frozenset({("inspect", "stack"), ("inspect", "trace")})  # torch has such names too


def looks_at_frames(code: types.CodeType) -> bool:
    """Whether a function, or one that is written inside of it, names frames."""
    names = code.co_names
    if not _OF_FRAMES.isdisjoint(names) or not _ASKED_OF.isdisjoint(itertools.pairwise(names)):
        return True
    return any(
        looks_at_frames(one)
        if isinstance(one, types.CodeType)
        else one == _KEYWORD or (isinstance(one, tuple) and _KEYWORD in one)
        for one in code.co_consts
    )


_KEYWORD = "capture_locals"  # of functions of `traceback`


def treatment(function: Any) -> Treatment:
    """What to do with a call of this callable; by default a Python function is inlined and
    everything else called natively."""
    try:
        known = _table().get(function)
    except TypeError:  # not hashable
        known = None
    if known is not None:
        return known
    if isinstance(function, types.FunctionType):
        how = _by_module(function.__module__ or "")
        is_watcher = how is Treatment.INLINE and looks_at_frames(function.__code__)
        return Treatment.WATCHER if is_watcher else how
    if isinstance(function, types.BuiltinFunctionType) and torch_abi.is_operator_function(function):
        return Treatment.GRAPH  # `torch._chunk_cat` and its like
    return Treatment.NATIVE


@functools.cache
def _by_module(name: str) -> Treatment:
    for start, how in _MODULES:
        if name == start or name.startswith(start + "."):
            return how
    return Treatment.INLINE


# Functions behind `functools.lru_cache` that are known to compute from their arguments alone:
# of constants, the answer that the cache holds is computed now; others are followed.
_CACHED: dict[tuple[str, str], Treatment] = {
    ("einops.einops", "_prepare_transformation_recipe"): Treatment.FOLD,
    ("einops.einops", "_compactify_pattern_for_einsum"): Treatment.FOLD,
    ("einops.einops", "_reconstruct_from_shape_uncached"): Treatment.INLINE,
    ("einops.packing", "analyze_pattern"): Treatment.FOLD,
}


def cached_treatment(cached: Any) -> Treatment | None:
    """What to do with a call of a cached function of a library, if that is known."""
    wrapped = getattr(cached, "__wrapped__", None)
    return _CACHED.get((getattr(wrapped, "__module__", ""), getattr(wrapped, "__qualname__", "")))


def is_query(cached: Any) -> bool:
    """Whether a cached function of a library asks what is installed: its answer is the same for as
    long as the process lives, and asking changes nothing."""
    wrapped = getattr(cached, "__wrapped__", None)
    module, name = getattr(wrapped, "__module__", ""), getattr(wrapped, "__name__", "")
    return module == "transformers.utils.import_utils" and name.startswith("is_")
