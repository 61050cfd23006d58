"""One frozen record of settings, and the only reader of environment variables.

Enters: the keyword arguments of `windfall.compile` and the `WINDFALL_*` variables. Leaves: an
`Options`, checked, with every value of its own type. Invariant: nobody else reads `os.environ`.

    >>> Options.checked(mode="fast")
    Traceback (most recent call last):
    windfall.errors.UserError: mode='fast' is not known; accepted: 'default', ...
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any

from windfall.dataclass import dataclass
from windfall.errors import UserError
from windfall.events import LOGS

Backend = str | Callable[..., Any]


def _accept(name: str, value: Any, accepted: tuple[Any, ...]) -> None:
    if not any(value is one or (isinstance(one, str) and value == one) for one in accepted):
        listed = ", ".join(map(repr, accepted))
        raise UserError(f"{name}={value!r} is not known; accepted: {listed}")


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """How graph trees work (`docs/graph-trees.md`): what `mode="reduce-overhead"` switches on."""

    # A region is recorded if its pooled results and intermediate values take so many bytes: with
    # fewer, malloc is cheaper than any bookkeeping.
    minimum_bytes: int = 1 << 20
    strict: bool = False  # pooled results that are held over a step are an error, not kept
    rerecord_limit: int = 128  # recordings of one region behind one other
    recordings: int = 1024  # of one thread; past it the least recently used goes
    depth: int = 64  # regions on one path
    sizes: tuple[int, ...] | None = None  # only calls whose sizes that vary are among these

    def __post_init__(self) -> None:
        for name in ("minimum_bytes", "rerecord_limit", "recordings", "depth"):
            least = 0 if name == "minimum_bytes" else 1
            if type(getattr(self, name)) is not int or getattr(self, name) < least:
                raise UserError(f"{name}={getattr(self, name)!r} must be an int from {least} on")
        _accept("strict", self.strict, (False, True))
        if self.sizes is not None and not all(type(one) is int for one in self.sizes):
            raise UserError(f"sizes={self.sizes!r} must be a tuple of ints")


MODES: dict[str, dict[str, Any]] = {
    # As torch.compile's names; each is a set of other options, where the user says nothing else.
    "default": {},
    "reduce-overhead": {"trees": TreeOptions()},
    "max-autotune": {},
    "max-autotune-no-cudagraphs": {},
}
NUMERICS = ("default",)  # "eager" (bit-equal half floats) is refused until it is built
PARTITIONS = ("min-cut", "eager")
CACHES = ("on", "read", "off")
CACHE_ENTRIES = ("second", "always", "off")
OWN_BACKENDS = ("windfall", "eager", "aot_eager")
# Options of torch.compile's own backend that ask for nothing here: what they tune is not there, or
# is always so (random numbers are eager's, guards are never dropped).
TORCH_OPTIONS = frozenset(
    {"epilogue_fusion", "fallback_random", "guard_filter_fn", "max_autotune", "max_autotune_gemm",
     "max_autotune_pointwise", "shape_padding", "trace.enabled", "trace.graph_diagram",
     "triton.cudagraphs"}
)  # fmt: skip


_TRUTHS = (
    *("fullgraph", "disable", "strict", "verify", "native", "records"),
    *("compiled_autograd", "runs", "remote_cache_write"),
)
# A shorter secret than this could be found by trying.
SHORTEST_KEY = 16


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
    verify_calls: int = 0  # of so many first calls, eager runs beside and must agree: `verify=3`
    numerics: str = "default"
    native: bool = True  # use native entries; off: public API only
    logs: tuple[str, ...] = ()
    records: bool = False  # keep what every stage made, for `explanation`: graphs, loops, LLVM
    report: str = ""  # where a report is written when the process ends; records are kept for it
    runs: bool = False  # time each call, for `timeline`
    name: str | None = None  # what reports call the compiled object
    recompile_limit: int = 64  # entries of one point; past it the least recently used goes
    # Of what forward would keep for backward at least cost, the part that it may: 0 is nothing but
    # inputs, the rest is computed again.
    memory_budget: float = 1.0
    compiled_autograd: bool = False  # backward passes inside of a call are recorded and replayed
    partition: str = "min-cut"  # "eager": forward keeps what eager's would
    trees: TreeOptions | None = None  # None: no graph trees
    cache: str = "on"  # what was compiled is kept on disk; "read": only looked up; "off"
    cache_entries: str = "second"  # guards and source too, once a second process asks for them
    cache_dir: str = field(default_factory=lambda: default_cache_dir())  # closed to other users
    cache_bytes: int = 1 << 29  # past it, what was used least recently goes
    remote_cache: str = field(default="", repr=False)  # URL of a store behind it; may name a user
    remote_cache_key: str = field(default="", repr=False)  # known to all who share that store
    remote_cache_write: bool = True  # off: a worker that only reads there
    remote_cache_seconds: float = 0.5  # a store that takes longer is left alone
    backend_options: tuple[tuple[str, Any], ...] = ()  # what a foreign backend gets as `options`

    @classmethod
    def checked(cls, **given: Any) -> Options:
        """Options from the environment and the user's keywords; `UserError` on anything odd."""
        extra = given.pop("options", None) or {}
        if not isinstance(extra, Mapping):
            raise UserError(f"options must be a dict of option names to values, not {extra!r}")
        known = {one.name for one in fields(cls)} - {"backend_options"}
        given = {**_environment(), **{k: v for k, v in given.items() if v is not None}}
        own = {name: value for name, value in extra.items() if name in known}
        rest = {name: value for name, value in extra.items() if name not in known}
        merged = {**given, **own}
        if merged.get("backend", "windfall") not in OWN_BACKENDS:
            merged["backend_options"], rest = tuple(rest.items()), {}
        for name in (merged.keys() - known - {"backend_options"}) | (rest.keys() - TORCH_OPTIONS):
            raise UserError(f"{name!r} is not an option; accepted: {', '.join(sorted(known))}")
        if type(merged.get("verify")) is int:  # not a truth: of how many calls
            merged["verify_calls"], merged["verify"] = merged["verify"], True
        if "logs" in merged:
            merged["logs"] = _logs(merged["logs"])
        options = replace(cls(), **merged)
        options._check()
        implied = {**MODES[options.mode], **({"records": True} if options.report else {})}
        return replace(options, **{k: v for k, v in implied.items() if k not in merged})

    def for_backend(self) -> dict[str, Any]:
        """The keywords that a backend of the user is called with, as torch.compile does it."""
        given: dict[str, Any] = {} if self.mode == "default" else {"mode": self.mode}
        return {**given, "options": dict(self.backend_options)} if self.backend_options else given

    def _check(self) -> None:
        for name in _TRUTHS:
            _accept(name, getattr(self, name), (False, True))
        _accept("dynamic", self.dynamic, (None, False, True))
        _accept("mode", self.mode, tuple(MODES))
        _accept("numerics", self.numerics, NUMERICS)
        if type(self.recompile_limit) is not int or self.recompile_limit < 1:
            raise UserError(f"recompile_limit={self.recompile_limit!r} must be a positive int")
        _accept("partition", self.partition, PARTITIONS)
        if not isinstance(self.trees, TreeOptions | None):
            raise UserError(f"trees={self.trees!r} must be a windfall.TreeOptions or None")
        _accept("cache", self.cache, CACHES)
        _accept("cache_entries", self.cache_entries, CACHE_ENTRIES)
        if not isinstance(self.cache_dir, str):
            raise UserError(f"cache_dir={self.cache_dir!r} must be the path of a folder, a str")
        for name, what in (("cache_bytes", "bytes"), ("verify_calls", "calls")):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise UserError(f"{name}={value!r} must be a number of {what}")
        self._check_budget()
        self._check_texts()
        self._check_remote()
        for log in self.logs:
            _accept("logs", log, tuple(LOGS))
        if not (isinstance(self.backend, str) or callable(self.backend)):
            raise UserError(
                f"backend={self.backend!r} is not usable; accepted: a name (see "
                "windfall.list_backends()) or a callable (graph_module, example_inputs) -> callable"
            )

    def _check_texts(self) -> None:
        if not isinstance(self.name, str | None):
            raise UserError(f"name={self.name!r} must be a str")
        if not isinstance(self.report, str):
            raise UserError(f"report={self.report!r} must be the path of a file, a str")

    def _check_remote(self) -> None:
        """No value is ever shown: a URL may hold a password."""
        for name in ("remote_cache", "remote_cache_key"):
            if not isinstance(getattr(self, name), str):
                raise UserError(f"{name} must be a str")
        seconds = self.remote_cache_seconds
        if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
            raise UserError(f"remote_cache_seconds={seconds!r} must be a number of seconds")
        if not self.remote_cache:
            return
        if "://" not in self.remote_cache:
            raise UserError(
                "remote_cache must be a URL: redis://HOST:PORT, or one that fsspec knows, such as "
                "file:///mnt/team or s3://bucket/folder"
            )
        if len(self.remote_cache_key) < SHORTEST_KEY:
            raise UserError(
                "remote_cache needs remote_cache_key (WINDFALL_REMOTE_CACHE_KEY), of at least "
                f"{SHORTEST_KEY} characters and the same for all who share it: the store holds "
                "machine code, and what was not made with that key is refused"
            )

    def _check_budget(self) -> None:
        budget = self.memory_budget
        if type(budget) not in (int, float) or not 0 <= budget <= 1:
            raise UserError(f"memory_budget={budget!r} must be a number from 0 to 1")
        if budget != 1 and self.partition != "min-cut":
            raise UserError(f"memory_budget={budget!r} needs partition='min-cut'")


def _flag(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def _number(text: str) -> Any:
    return int(text) if text.strip().isdecimal() else text


def _seconds(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text  # refused with the option's name


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _logs(value: Any) -> tuple[str, ...]:
    """Names in a sequence, or in one text as WINDFALL_LOGS has them."""
    if isinstance(value, str):
        return _names(value)
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(value)
    raise UserError(f"logs={value!r} must be names of logs; accepted: {', '.join(LOGS)}")


# Environment variable -> (option, how its text is read).
VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "WINDFALL_DISABLE": ("disable", _flag),
    "WINDFALL_STRICT": ("strict", _flag),
    "WINDFALL_VERIFY": ("verify", _flag),
    "WINDFALL_VERIFY_CALLS": ("verify_calls", _number),
    "WINDFALL_NATIVE": ("native", _flag),
    "WINDFALL_NUMERICS": ("numerics", str),
    "WINDFALL_LOGS": ("logs", _names),
    "WINDFALL_REPORT": ("report", str),
    "WINDFALL_CACHE": ("cache", lambda text: {"0": "off", "1": "on"}.get(text, text)),
    "WINDFALL_CACHE_ENTRIES": (
        "cache_entries",
        lambda text: {"0": "off", "1": "always"}.get(text, text),
    ),
    "WINDFALL_CACHE_DIR": ("cache_dir", str),
    "WINDFALL_CACHE_BYTES": ("cache_bytes", _number),
    "WINDFALL_REMOTE_CACHE": ("remote_cache", str),
    "WINDFALL_REMOTE_CACHE_KEY": ("remote_cache_key", str),
    "WINDFALL_REMOTE_CACHE_WRITE": ("remote_cache_write", _flag),
    "WINDFALL_REMOTE_CACHE_SECONDS": ("remote_cache_seconds", _seconds),
}


def chosen_target() -> str:
    """The processor that code is for (`targets.py`), one for the process; "": the host's."""
    return os.environ.get("WINDFALL_TARGET", "").strip()


def default_cache_dir() -> str:
    """Where the cache is kept: in the user's folder for such things; "": there is none."""
    home = os.environ.get("HOME", "")
    folder = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    return os.path.join(folder, "windfall") if os.path.isabs(folder) else ""


def _environment() -> dict[str, Any]:
    return {
        option: read(os.environ[variable])
        for variable, (option, read) in VARIABLES.items()
        if variable in os.environ
    }
