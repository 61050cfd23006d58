"""The reference of options and environment variables, as Markdown: `docs/options.md`.

Enters: `Options`, `TreeOptions` and `VARIABLES` of `options.py`. Leaves: the page. Invariant: every
field and every variable stands in it, with its default; one that nobody has described is an error,
and so is a description of one that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from windfall.errors import InternalError
from windfall.options import CACHES, MODES, PARTITIONS, VARIABLES, Options, TreeOptions

_FLAG = "`1` or `0`"

OPTIONS: dict[str, str] = {
    "fullgraph": "a break is a `BreakError`, before anything has run",
    "dynamic": "sizes that change become symbols (`None`), are from the start, or never",
    "backend": "who makes captured graphs callable: `windfall.list_backends()`, or a callable",
    "mode": "torch.compile's names: " + ", ".join(f"`{one}`" for one in MODES),
    "disable": "`compile` gives its target back",
    "strict": "an error of windfall's own is raised; else eager runs, and it is counted",
    "verify": "check what stages hand to each other; a number also sets `verify_calls`",
    "verify_calls": "of so many first calls eager runs beside, on copies, and must agree",
    "numerics": "only `default`",
    "native": "use native entries; off: public API of torch only, slower",
    "logs": "names of what is printed as it happens: see `WINDFALL_LOGS` in the [API](api.md)",
    "records": "keep what every stage made; nothing comes from the cache then",
    "report": "where a report is written when the process ends (`%p`: its number), with `records`",
    "runs": "time each call, for `timeline`",
    "name": "what reports and logs call the object",
    "recompile_limit": "entries of one point of the program; past it the least recently used goes",
    "memory_budget": "from 0 to 1: of what forward would keep for backward, the part that it may",
    "compiled_autograd": "backward passes inside of a call are recorded and replayed",
    "partition": "what forward keeps for backward: " + ", ".join(f"`{one}`" for one in PARTITIONS),
    "trees": "a `TreeOptions`, or `None`: no graph trees. `mode=\"reduce-overhead\"` sets it",
    "cache": "the cache on disk: " + ", ".join(f"`{one}`" for one in CACHES),
    "cache_entries": "guards and source are kept too, so that nothing is captured again: "
    "once a `second` process asks, `always`, `off`",
    "cache_dir": "its folder, closed to others: `$XDG_CACHE_HOME/windfall`, `~/.cache/windfall`",
    "cache_bytes": "past it, what was used least recently goes",
    "remote_cache": "URL of a [store that machines share](api.md#a-store-that-machines-share)",
    "remote_cache_key": "the secret that its values are signed with, at least 16 characters",
    "remote_cache_write": "off: this process only reads there",
    "remote_cache_seconds": "a store that takes longer for an answer is left alone",
    "backend_options": "not to be set: what of `options` a backend of your own is given",
}  # fmt: skip

TREES: dict[str, str] = {
    "minimum_bytes": "smaller regions are not recorded; objects of their results serve again",
    "strict": "results of a pool that are held over a step are an error, not kept",
    "rerecord_limit": "recordings of one region behind one other",
    "recordings": "of one thread; past it the least recently used goes",
    "depth": "regions on one path",
    "sizes": "only calls whose varying sizes are among these are recorded",
}

_SET_BY_TEXT: dict[str, str] = {
    "WINDFALL_LOGS": "names, with commas",
    "WINDFALL_REPORT": "a path",
    "WINDFALL_NUMERICS": "`default`",
    "WINDFALL_CACHE": "`on`, `read`, `off` (also `1`, `0`)",
    "WINDFALL_CACHE_DIR": "a path",
    "WINDFALL_CACHE_BYTES": "a number",
    "WINDFALL_REMOTE_CACHE": "a URL: `redis://…`, or one that fsspec knows",
    "WINDFALL_REMOTE_CACHE_KEY": "a secret text",
    "WINDFALL_REMOTE_CACHE_SECONDS": "a number, `0.5`",
    "WINDFALL_VERIFY_CALLS": "a number",
}


def page() -> str:
    """All options and variables as one page in Markdown: `docs/options.md`."""
    return "\n".join(
        [
            "# Options and environment variables",
            "",
            "Made from `windfall/options.py` and `windfall/reporting/reference.py`; do not edit.",
            "",
            "## `options=` of `compile`",
            "",
            "Fields of `windfall.Options`; some are arguments of `compile` too.",
            "",
            *_table(Options, OPTIONS),
            "",
            "## `TreeOptions`",
            "",
            "What the option `trees` takes; see [graph trees](graph-trees.md).",
            "",
            *_table(TreeOptions, TREES),
            "",
            "## Environment variables",
            "",
            "Read when something is compiled; arguments of `compile` win.",
            "",
            "| variable | sets | takes |",
            "|---|---|---|",
            *(
                f"| `{name}` | `{option}` | {_SET_BY_TEXT.get(name, _FLAG)} |"
                for name, (option, _) in VARIABLES.items()
            ),
            "",
        ]
    )  # fmt: skip


def _table(record: Any, told: dict[str, str]) -> Iterator[str]:
    names = [one.name for one in fields(record)]
    if {*names} != {*told}:
        raise InternalError(f"not described, or gone: {sorted({*names} ^ {*told})}")
    yield "| option | default | |"
    yield "|---|---|---|"
    for one in fields(record):
        yield f"| `{one.name}` | {_default(one)} | {told[one.name]} |"


def _default(one: Field[Any]) -> str:
    if one.default is MISSING:
        return "see there"
    return f"`{one.default!r}`"
