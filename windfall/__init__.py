"""windfall: an independent compiler for PyTorch programs.

import windfall
model = windfall.compile(model)
"""

import sys
from typing import TYPE_CHECKING

if not (3, 11) <= sys.version_info[:2] <= (3, 13):  # `frontend/bytecode.py` knows no other one
    _present = ".".join(map(str, sys.version_info[:3]))
    raise ImportError(f"windfall reads the bytecode of CPython 3.11 to 3.13; this is {_present}")

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "windfall's machine code relies on the global interpreter lock, which this CPython runs "
        "without: use a build that has it, or start it with PYTHON_GIL=1"
    )

from windfall.doors import door
from windfall.version import VERSION

if TYPE_CHECKING:
    from windfall.api import (
        bisect,
        cache_entries,
        compile,
        disable,
        explain,
        explanation,
        get_default_backend,
        graph_trees,
        list_backends,
        report,
        reset,
        set_default_backend,
        timeline,
    )
    from windfall.backward import compiled_autograd as compiled_autograd
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
        MismatchError,
        RecompileError,
        Unsupported,
        UserError,
        WindfallError,
    )
    from windfall.events import subscribe as subscribe
    from windfall.frontend.marks import mark_dynamic, mark_static, maybe_mark_dynamic
    from windfall.frontend.polyfills.scopes import error_on_graph_break as error_on_graph_break
    from windfall.options import Options, TreeOptions
    from windfall.reporting.trees import tree_picture as tree_picture
    from windfall.saved import load_cache, save_cache
    from windfall.stance import set_stance as set_stance

__version__ = VERSION

__all__ = [
    "BackendError",
    "BreakError",
    "InternalError",
    "MismatchError",
    "Options",
    "RecompileError",
    "TreeOptions",
    "Unsupported",
    "UserError",
    "WindfallError",
    "allow_in_graph",
    "assume_constant_result",
    "bisect",
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
    "report",
    "reset",
    "save_cache",
    "set_default_backend",
    "set_stance",
    "skip_frame",
    "subscribe",
    "substitute_in_graph",
    "timeline",
    "tree_picture",
    "wrap_numpy",
]

# Loaded by their first use: who only imports the package, or asks `is_compiling`, loads no room.
_MODULES = {
    "BackendError": "errors",
    "BreakError": "errors",
    "InternalError": "errors",
    "MismatchError": "errors",
    "Options": "options",
    "RecompileError": "errors",
    "TreeOptions": "options",
    "Unsupported": "errors",
    "UserError": "errors",
    "WindfallError": "errors",
    "allow_in_graph": "directives",
    "assume_constant_result": "directives",
    "bisect": "api",
    "cache_entries": "api",
    "compile": "api",
    "compiled_autograd": "backward",
    "cudagraph_mark_step_begin": "directives",
    "disable": "api",
    "disallow_in_graph": "directives",
    "error_on_graph_break": "frontend.polyfills.scopes",
    "explain": "api",
    "explanation": "api",
    "forbid_in_graph": "directives",
    "get_default_backend": "api",
    "graph_break": "directives",
    "graph_trees": "api",
    "is_compiling": "directives",
    "is_exporting": "directives",
    "list_backends": "api",
    "load_cache": "saved",
    "mark_dynamic": "frontend.marks",
    "mark_static": "frontend.marks",
    "mark_step_begin": "directives",
    "maybe_mark_dynamic": "frontend.marks",
    "nested_compile_region": "directives",
    "nonstrict_trace": "directives",
    "report": "api",
    "reset": "api",
    "save_cache": "saved",
    "set_default_backend": "api",
    "set_stance": "stance",
    "skip_frame": "directives",
    "subscribe": "events",
    "substitute_in_graph": "directives",
    "timeline": "api",
    "tree_picture": "reporting.trees",
    "wrap_numpy": "directives",
}
_LIGHT = ("directives", "errors", "events", "options", "stance")
__getattr__, __dir__ = door(__name__, _MODULES, alone=_LIGHT)
