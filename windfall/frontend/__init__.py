"""Python → graph, guards, effects, and how to go on. See README.md of this room."""

from windfall.frontend.breaks import ends_program
from windfall.frontend.capture import capture, example_inputs
from windfall.frontend.entry import Compiled
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
    "ends_program",
    "example_inputs",
    "rewrite",
]
