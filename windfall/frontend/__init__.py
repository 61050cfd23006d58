"""Python → graph, guards, effects, and how to go on. See README.md of this room."""

from windfall.frontend.breaks import described
from windfall.frontend.capture import capture, example_inputs
from windfall.frontend.compiled_object import Compiled
from windfall.frontend.foreign import foreign_rules
from windfall.frontend.marks import marks_of as marks
from windfall.frontend.refusal import refuse_break
from windfall.frontend.segment import rewrite
from windfall.frontend.state import Continue, Facts, FrameShape, Position, Start, State

__all__ = [
    "Compiled",
    "Continue",
    "Facts",
    "FrameShape",
    "Position",
    "Start",
    "State",
    "capture",
    "described",
    "example_inputs",
    "foreign_rules",
    "marks",
    "refuse_break",
    "rewrite",
]
