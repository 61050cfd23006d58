"""Python → graph, guards, effects, and how to go on. See README.md of this room."""

from windfall.frontend.breaks import described
from windfall.frontend.capture import capture, example_inputs
from windfall.frontend.compiled_object import Compiled
from windfall.frontend.refusal import refuse_break
from windfall.frontend.segment import rewrite
from windfall.frontend.state import Continue, Facts, Position, Start, State

__all__ = [
    "Compiled",
    "Continue",
    "Facts",
    "Position",
    "Start",
    "State",
    "capture",
    "described",
    "example_inputs",
    "refuse_break",
    "rewrite",
]
