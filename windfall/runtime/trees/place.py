"""Where a region stands in a call of the user's: said without trees too, so it loads none."""

from __future__ import annotations

from windfall.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RegionPlace:
    """Whether the call begins with the region, and whether its results go on to a break (else they
    are the user's)."""

    starts: bool = False
    crosses: bool = False
