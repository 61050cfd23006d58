"""Backward passes, compiled: torch's engine is replaced by one that records and replays."""

from typing import TYPE_CHECKING

from windfall.doors import door

if TYPE_CHECKING:
    from windfall.engine.engine import Engine as Engine
    from windfall.engine.program import PassProgram as PassProgram
    from windfall.engine.replay import CompiledSegment as CompiledSegment
    from windfall.engine.replay import VaryingSegment as VaryingSegment

_MODULES = {
    "CompiledSegment": "replay",
    "Engine": "engine",
    "PassProgram": "program",
    "VaryingSegment": "replay",
}
__getattr__, __dir__ = door(__name__, _MODULES)
