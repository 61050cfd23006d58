"""Backward passes, compiled: torch's engine is replaced by one that records and replays."""

from windfall.engine.engine import PASS as PASS
from windfall.engine.engine import Engine as Engine
from windfall.engine.program import PassProgram as PassProgram
from windfall.engine.replay import CompiledSegment as CompiledSegment
from windfall.engine.replay import VaryingSegment as VaryingSegment
