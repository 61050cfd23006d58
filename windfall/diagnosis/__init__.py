"""Where eager and compiled part: verify mode and bisect. See README.md of this room."""

from windfall.diagnosis.bisection import Diagnosis, bisect
from windfall.diagnosis.verification import Verified

__all__ = ["Diagnosis", "Verified", "bisect"]
