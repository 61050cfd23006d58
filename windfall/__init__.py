"""windfall: an independent compiler for PyTorch programs.

import windfall
model = windfall.compile(model)
"""

from windfall.api import (
    cache_entries,
    compile,
    disable,
    explain,
    explanation,
    list_backends,
    reset,
)
from windfall.directives import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    is_compiling,
    skip_frame,
    substitute_in_graph,
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
from windfall.options import Options
from windfall.stance import set_stance

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BreakError",
    "InternalError",
    "Options",
    "RecompileError",
    "Unsupported",
    "UserError",
    "WindfallError",
    "allow_in_graph",
    "assume_constant_result",
    "cache_entries",
    "compile",
    "disable",
    "disallow_in_graph",
    "explain",
    "explanation",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "reset",
    "set_stance",
    "skip_frame",
    "substitute_in_graph",
]
