"""Which classes of autograd nodes may be traced: those whose whole state can be read.

Enters: a class of nodes. Leaves: a `Visibility`. Invariant: a white list. What the header of the
installed torch does not declare, or declares with a member that nothing tells, is called live; so
is everything where the header is not there.

A recorded node is replayed for any node of equal state, so state that cannot be read would be a
stale answer. Members are readable as `_saved_…`, or they are of a type that the edges imply: the
dtype, layout and sizes of an input are those of the gradient that goes to it.
"""

from __future__ import annotations

import enum
import functools
import re
from pathlib import Path

import torch

from windfall import torch_abi

_HEADER = "include/torch/csrc/autograd/generated/Functions.h"

# Facts of an input that matter for its own gradient alone, which the edge to it describes.
_BY_EDGE = frozenset(
    {
        "at::ScalarType",
        "at::Layout",
        "at::TensorOptions",
        "torch::autograd::generated::TypeAndSize",
        "size_t",  # of a list: how many there are
    }
)
# Facts of all inputs, which matter for each gradient: implied where every input has an edge.
_BY_ALL_EDGES = frozenset(
    {
        "::std::vector<at::ScalarType>",
        "::std::vector<::std::vector<c10::SymInt>>",
        "::std::vector<::std::vector<int64_t>>",
    }
)
_MEMBER = re.compile(r"\s*(.+?)\s+(\w+)(?: = [^;]+)?;$")


class Visibility(enum.Enum):
    """Whether a node's state is told by what can be read of it."""

    WHOLE = "whole"
    WITH_ALL_EDGES = "if every input has an edge"
    HIDDEN = "hidden"


@functools.cache
def visibility(kind: type) -> Visibility:
    """Whether nodes of a class may be traced."""
    members = _members(kind.__name__)
    if members is None or getattr(_namespace(), kind.__name__, None) is not kind:
        return Visibility.HIDDEN
    names, _ = torch_abi.saved_names(kind)
    readable = {one.removeprefix("_saved_") for one in names}
    found = Visibility.WHOLE
    for type, name in members:
        if name in readable or name.removesuffix("_") in readable or type in _BY_EDGE:
            continue
        if name.endswith("_released_"):
            continue
        if type not in _BY_ALL_EDGES:
            return Visibility.HIDDEN
        found = Visibility.WITH_ALL_EDGES
    return found


def _namespace() -> object:
    return torch_abi.node_classes


@functools.cache
def _header() -> str:
    path = Path(torch.__file__).parent / _HEADER
    return path.read_text() if path.exists() else ""


def _members(name: str) -> list[tuple[str, str]] | None:
    """Types and names of the members of a generated class; None: there is no such class."""
    text = _header()
    start = text.find(f"struct TORCH_API {name} : public ")
    if start < 0:
        return None
    body = text[start : text.index("\n};", start)]
    declared = body.rpartition("override;")[2].splitlines()
    return [(found[1], found[2]) for line in declared if (found := _MEMBER.match(line))]
