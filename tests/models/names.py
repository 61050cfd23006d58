"""The models that tests run: tiny ones always, real sizes in `make conformance`."""

from __future__ import annotations

import pytest

TINY = ("tiny bert", "tiny gpt2", "tiny resnet")
REAL = ("bert-4", "bert-12", "gpt2-6", "resnet-18")
EVERY = [*TINY, *(pytest.param(name, marks=pytest.mark.conformance) for name in REAL)]
