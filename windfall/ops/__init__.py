"""The dictionary: one record for each ATen overload. Importing this package fills the registry."""

from importlib import import_module

FAMILIES = (
    "pointwise",
    "pointwise_backward",
    "pointwise_special",
    "copying",
    "reduction",
    "softmax",
    "normalisation",
    "batch_norm",
    "loss",
    "indexing",
    "joining",
    "sorting",
    "view_scatter",
    "view_backward",
    "view_copy",
    "native",
    "creation",
    "random",
    "view",
    "matmul",
)
for _family in FAMILIES:
    import_module(f"windfall.ops.{_family}")
