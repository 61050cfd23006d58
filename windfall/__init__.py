"""windfall: an independent compiler for PyTorch programs.

import windfall
model = windfall.compile(model)
"""

import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):  # `frontend/bytecode.py` knows no other one
    _present = ".".join(map(str, sys.version_info[:3]))
    raise ImportError(f"windfall reads the bytecode of CPython 3.11 to 3.13; this is {_present}")

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "windfall's machine code relies on the global interpreter lock, which this CPython runs "
        "without: use a build that has it, or start it with PYTHON_GIL=1"
    )

from windfall.api import (
    cache_entries,
    compile,
    disable,
    explain,
    explanation,
    get_default_backend,
    graph_trees,
    list_backends,
    reset,
    set_default_backend,
)
from windfall.backward import compiled_autograd
from windfall.directives import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    is_compiling,
    is_exporting,
    mark_step_begin,
    nested_compile_region,
    nonstrict_trace,
    skip_frame,
    substitute_in_graph,
    wrap_numpy,
)
from windfall.errors import (
    BackendError,
    BreakError,
    InternalError,
    RecompileError,
    Unsupported,
    UserError,
    WindfallError,
)
from windfall.frontend.marks import mark_dynamic, mark_static, maybe_mark_dynamic
from windfall.frontend.polyfills.scopes import error_on_graph_break
from windfall.options import Options, TreeOptions
from windfall.report.trees import tree_picture
from windfall.saved import load_cache, save_cache
from windfall.stance import set_stance

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BreakError",
    "InternalError",
    "Options",
    "RecompileError",
    "TreeOptions",
    "Unsupported",
    "UserError",
    "WindfallError",
    "allow_in_graph",
    "assume_constant_result",
    "cache_entries",
    "compile",
    "compiled_autograd",
    "cudagraph_mark_step_begin",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "explanation",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "graph_trees",
    "is_compiling",
    "is_exporting",
    "list_backends",
    "load_cache",
    "mark_dynamic",
    "mark_static",
    "mark_step_begin",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "reset",
    "save_cache",
    "set_default_backend",
    "set_stance",
    "skip_frame",
    "substitute_in_graph",
    "tree_picture",
    "wrap_numpy",
]
