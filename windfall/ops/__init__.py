"""The dictionary: one record for each ATen overload. Importing this package fills the registry."""

from windfall.ops import (
    pointwise as pointwise,
)
