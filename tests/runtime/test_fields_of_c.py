"""Fields that C keeps as null where Python reads None: a guard in machine code reads None too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall

FIELDS: list[tuple[type[BaseException], str]] = [
    (ImportError, "name"), (ImportError, "path"), (ImportError, "msg"), (OSError, "errno"),
    (OSError, "strerror"), (SystemExit, "code"), (StopIteration, "value"), (AttributeError, "obj"),
    (NameError, "name"), (SyntaxError, "text"),
]  # fmt: skip


@pytest.mark.parametrize("native", [True, False], ids=["native", "public"])
@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_null_is_none(kind: type[BaseException], name: str, native: bool) -> None:
    own = type("Own", (kind,), {"__init__": BaseException.__init__})

    def program(x: torch.Tensor, error: Any) -> Any:
        return x + 1, getattr(error, name)

    compiled = windfall.compile(program, backend="eager", options={"native": native})
    written = own()
    for error in (own(), kind(), own(), kind(2), written):
        for _ in range(2):
            assert repr(compiled(torch.ones(2), error)) == repr(program(torch.ones(2), error))
            setattr(written, name, "now")
    told = windfall.explanation(compiled)
    assert told.graphs and not told.fallbacks
