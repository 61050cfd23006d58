"""windfall: an independent compiler for PyTorch programs.

import windfall
model = windfall.compile(model)
"""

from windfall.api import cache_entries, compile, explain, list_backends
from windfall.errors import InternalError, Unsupported, UserError, WindfallError
from windfall.options import Options

__version__ = "0.1.0"

__all__ = [
    "InternalError",
    "Options",
    "Unsupported",
    "UserError",
    "WindfallError",
    "cache_entries",
    "compile",
    "explain",
    "list_backends",
]
