"""One frozen record of settings, and the only reader of environment variables.

Enters: the keyword arguments of `windfall.compile` and the `WINDFALL_*` variables. Leaves: an
`Options`, checked, with every value of its own type. Invariant: nobody else reads `os.environ`.

    >>> Options.checked(mode="fast")
    Traceback (most recent call last):
    windfall.errors.UserError: mode='fast' is not known; accepted: 'default', ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from windfall.errors import UserError

Backend = str | Callable[..., Any]

MODES: dict[str, dict[str, Any]] = {
    # As torch.compile's names; each is a set of other options.
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {},
    "max-autotune-no-cudagraphs": {},
}
NUMERICS = ("default",)  # "eager" (bit-equal half floats) is refused until it is built
LOG_NAMES = (
    "graph", "guards", "breaks", "source", "joint", "split", "loops", "kernels", "llvm", "timings",
    "fallbacks", "recompiles",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """How one compiled object is compiled."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: Backend = "windfall"
    mode: str = "default"
    disable: bool = False
    strict: bool = False  # an internal error is raised instead of falling back to eager
    verify: bool = False  # check every record between stages
    numerics: str = "default"
    native: bool = True  # use native entries; off: public API only
    logs: tuple[str, ...] = ()

    @classmethod
    def checked(cls, **given: Any) -> Options:
        """Options from the environment and the user's keywords; `UserError` on anything odd."""
        extra = given.pop("options", None) or {}
        if not isinstance(extra, Mapping):
            raise UserError(f"options must be a dict of option names to values, not {extra!r}")
        merged = {**_environment(), **{k: v for k, v in given.items() if v is not None}, **extra}
        known = {field.name for field in fields(cls)}
        for name in merged.keys() - known:
            raise UserError(f"{name!r} is not an option; accepted: {', '.join(sorted(known))}")
        options = replace(cls(), **merged)
        options._check()
        return replace(options, **MODES[options.mode])

    def _check(self) -> None:
        for name in ("fullgraph", "disable", "strict", "verify", "native"):
            _accept(name, getattr(self, name), (False, True))
        _accept("dynamic", self.dynamic, (None, False, True))
        _accept("mode", self.mode, tuple(MODES))
        _accept("numerics", self.numerics, NUMERICS)
        for log in self.logs:
            _accept("logs", log, LOG_NAMES)
        if not (isinstance(self.backend, str) or callable(self.backend)):
            raise UserError(
                f"backend={self.backend!r} is not usable; accepted: a name (see "
                "windfall.list_backends()) or a callable (graph_module, example_inputs) -> callable"
            )


def _accept(name: str, value: Any, accepted: tuple[Any, ...]) -> None:
    if not any(value is one or (isinstance(one, str) and value == one) for one in accepted):
        listed = ", ".join(map(repr, accepted))
        raise UserError(f"{name}={value!r} is not known; accepted: {listed}")


def _flag(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


# Environment variable -> (option, how its text is read).
VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "WINDFALL_DISABLE": ("disable", _flag),
    "WINDFALL_STRICT": ("strict", _flag),
    "WINDFALL_VERIFY": ("verify", _flag),
    "WINDFALL_NATIVE": ("native", _flag),
    "WINDFALL_NUMERICS": ("numerics", str),
    "WINDFALL_LOGS": ("logs", _names),
}


def _environment() -> dict[str, Any]:
    return {
        option: read(os.environ[variable])
        for variable, (option, read) in VARIABLES.items()
        if variable in os.environ
    }
