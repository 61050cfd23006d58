"""`DistributedDataParallel`: which wrapper runs, and how much it sends at once.

Enters: a wrapper, or nothing. Leaves: the sizes of its buckets. Invariant: nothing here issues a
collective or changes a wrapper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

# Where wrappers say that one of them runs: an attribute of their class.
ACTIVE_WRAPPER = "_active_ddp_module"
BY_PYTHON = "_use_python_reducer"  # of a wrapper: gradients are exchanged by hooks of Python


class Buckets(NamedTuple):
    """How many bytes of gradients are sent together: the first time, and from then on."""

    first: int
    others: int


def parallel_class() -> type[Any] | None:
    """The class of wrappers; None: this build has none."""
    if not torch.distributed.is_available():
        return None
    return torch.nn.parallel.DistributedDataParallel


def buckets_of(wrapper: Any) -> Buckets | None:
    """Those of a wrapper whose gradients are exchanged; None: nothing is known of them."""
    limit = getattr(wrapper, "bucket_bytes_cap", None)
    first = getattr(torch.distributed, "_DEFAULT_FIRST_BUCKET_BYTES", None)
    if type(limit) is not int or type(first) is not int or limit <= 0:
        return None
    chosen = getattr(wrapper, "bucket_bytes_cap_default", True)  # a limit of the user's is for all
    return Buckets(min(first, limit) if chosen else limit, limit)


def active_buckets() -> Buckets | None:
    """Those of the wrapper inside of whose call we are, if any."""
    kind = parallel_class()
    active = None if kind is None else getattr(kind, ACTIVE_WRAPPER, None)
    return None if active is None else buckets_of(active)
