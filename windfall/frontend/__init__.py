"""Python → graph, guards, effects, and how to go on. See README.md of this room."""

from typing import TYPE_CHECKING

from windfall.doors import door

if TYPE_CHECKING:
    from windfall.frontend.breaks import described as described
    from windfall.frontend.capture_run import capture as capture
    from windfall.frontend.capture_run import example_inputs as example_inputs
    from windfall.frontend.compiled_object import Compiled as Compiled
    from windfall.frontend.foreign import foreign_rules as foreign_rules
    from windfall.frontend.marks import marks_of as marks_of
    from windfall.frontend.refusal import refuse_break as refuse_break
    from windfall.frontend.segment import rewrite as rewrite
    from windfall.frontend.state import Continue as Continue
    from windfall.frontend.state import Facts as Facts
    from windfall.frontend.state import FrameShape as FrameShape
    from windfall.frontend.state import Position as Position
    from windfall.frontend.state import Start as Start
    from windfall.frontend.state import State as State

_MODULES = {
    "Compiled": "compiled_object",
    "Continue": "state",
    "Facts": "state",
    "FrameShape": "state",
    "Position": "state",
    "Start": "state",
    "State": "state",
    "capture": "capture_run",
    "described": "breaks",
    "example_inputs": "capture_run",
    "foreign_rules": "foreign",
    "marks_of": "marks",
    "refuse_break": "refusal",
    "rewrite": "segment",
}
__getattr__, __dir__ = door(__name__, _MODULES)
