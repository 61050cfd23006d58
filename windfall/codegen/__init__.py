"""Graph → native code. See README.md of this room."""

from windfall.codegen.build import build
from windfall.codegen.emit import emit
from windfall.codegen.full_evaluation import may_fail
from windfall.codegen.fuse import RULES
from windfall.codegen.lower import lower
from windfall.codegen.passes import GRAPH_PASSES, GROUP_PASSES, LOOP_PASSES, arrange
from windfall.codegen.plan import plan
from windfall.codegen.regions import body, divide, join
from windfall.codegen.schedule import schedule

TABLES = (GRAPH_PASSES, LOOP_PASSES, GROUP_PASSES, RULES)  # what decides about code

__all__ = [
    "RULES",
    "TABLES",
    "arrange",
    "body",
    "build",
    "divide",
    "emit",
    "join",
    "lower",
    "may_fail",
    "plan",
    "schedule",
]
