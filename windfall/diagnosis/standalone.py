"""A program that shows a mistake alone: one file, nothing but torch and windfall needed.

Enters: source that defines `program`, and its arguments. Leaves: text of a script that runs it in
eager and compiled, and exits with 1 where they differ. Invariant: the arguments are the very values
that were seen to go wrong: small ones as lists, others packed.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import torch

_LISTED = 64  # elements

_UNPACK = """
def unpacked(data, dtype, sizes, strides, offset):
    raw = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(data))), dtype=torch.uint8)
    return raw.view(dtype).as_strided(sizes, strides, offset)
"""

_CHECK = """

def differs(expected, actual):
    if isinstance(expected, torch.Tensor):
        if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
            return True
        wide = torch.complex128 if expected.is_complex() else torch.float64
        pair = (one.detach().to(wide) for one in (expected, actual))
        return not torch.allclose(*pair, rtol=1e-3, atol=1e-4, equal_nan=True)
    if isinstance(expected, (list, tuple)):
        return any(differs(*pair) for pair in zip(expected, actual, strict=True))
    return expected is not None and expected != actual


def run(function):
    torch.manual_seed(0)
    given = arguments()
    results = function(*given)
    wanted = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    roots = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
    if not roots or not wanted:
        return results, given, ()
    tangents = [torch.randn(one.shape).to(one.dtype) for one in roots]
    return results, given, torch.autograd.grad(roots, wanted, tangents, allow_unused=True)


def main():
    expected, actual = run(program), run(windfall.compile(program, {settings}))
    if differs(expected, actual):
        print("eager:   ", *expected, sep="\\n")
        print("compiled:", *actual, sep="\\n")
        return 1
    print("they agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
"""


def program_text(
    source: str, inputs: Sequence[Any], values: Sequence[Any], told: str, dynamic: bool | None
) -> str:
    """The script."""
    imports, _, body = source.partition("\n\n\n")
    needed = {*imports.splitlines(), "import sys", "import windfall"}
    lines = [f"        {_value(one)},  # {name}" for name, one in zip(inputs, values, strict=True)]
    packed = any("unpacked(" in one for one in lines)
    needed |= {"import base64", "import zlib"} if packed else set()
    given = "\n".join(["def arguments():", "    return (", *lines, "    )"])
    settings = f"dynamic={dynamic}, " * (dynamic is not None) + 'options={"strict": True}'
    about = "\n".join(f"# {line}" for line in told.splitlines())
    head = f'"""Found by windfall bisect: eager and compiled part here."""\n\n{about}\n'
    return (
        f"{head}\n{chr(10).join(sorted(needed))}\n\n\n{body}\n{_UNPACK if packed else ''}\n"
        f"{given}\n{_CHECK.replace('{settings}', settings)}"
    )


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({''.join(f'{_value(one)}, ' for one in value)})"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    needs = ".requires_grad_()" if value.requires_grad else ""
    value = value.detach()
    plain = value.is_contiguous() and value.numel() <= _LISTED
    if plain and bool(torch.isfinite(value).all()) and not value.is_complex():
        text = f"torch.tensor({value.tolist()!r}, dtype={value.dtype})"
        return f"{text if value.numel() else f'{text}.reshape({[*value.shape]})'}{needs}"
    return f"{_packed(value)}{needs}"


def _packed(value: torch.Tensor) -> str:
    raw = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
    data = base64.b64encode(zlib.compress(bytes(raw.tolist()))).decode()
    shape = f"{tuple(value.shape)}, {value.stride()}, {value.storage_offset()}"
    return f"unpacked({data!r}, {value.dtype}, {shape})"
