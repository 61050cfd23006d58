"""The dictionary: one record for each ATen overload. Importing this package fills the registry."""

from importlib import import_module

# In order: a family may look up the records of those before it.
FAMILIES = (
    "pointwise",
    "pointwise_special",
    "pointwise_backward",
    "copying",
    "reduction",
    "extremes",
    "moments",
    "softmax",
    "normalisation",
    "batch_norm",
    "loss",
    "matmul",
    "view",
    "view_scatter",
    "view_backward",
    "view_copy",
    "indexing",
    "joining",
    "sorting",
    "called",
    "pooling",
    "factorisation",
    "bags",
    "fourier",
    "recurrent",
    "attention",
    "creation",
    "random",
    "foreach",
    "conditions",
    "calm",
)
for _family in FAMILIES:
    import_module(f"windfall.ops.{_family}")
