"""python -m tests.replay BASE: did a refactor change what is compiled?

    python -m tests.replay e06e728             the working tree against a commit
    python -m tests.replay BASE --only "op "   items whose name has this in it
    python -m tests.replay BASE --rename 'Answers=ClassAttributesAre'   agreed names (repeatable)
    python -m tests.replay BASE --show 20      kinds of change that are shown
    python -m tests.replay BASE --keep DIR     keep the two recordings there

Compiles the corpus (programs, op samples, models) with the windfall of both commits, one process
each, and shows every difference of captured graphs, guards, generated source, joint and split
graphs, loops, kernels, LLVM, breaks, fall-backs, and of the answers' bits. Exits with 1 if there is
any.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.replay.differences import differences, read, summary

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Record both, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("base")
    parser.add_argument("--only", default="")
    parser.add_argument("--rename", action="append", default=[])
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    renames = [tuple(one.split("=", 1)) for one in chosen.rename]
    with tempfile.TemporaryDirectory() as temporary, checked_out(chosen.base) as tree:
        folder = chosen.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        before, after = folder / "before.jsonl", folder / "after.jsonl"
        record_all({before: tree, after: ROOT}, chosen.only)
        old, new = read(before), read(after)
    found = differences(old, new, renames)
    print(summary(found, len(old.keys() | new.keys()), chosen.show))
    return 1 if found else 0


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A worktree of a commit, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def record_all(trees: dict[Path, Path], only: str) -> None:
    """Record with the windfall of each tree, side by side; the corpus is always this tree's."""
    with contextlib.ExitStack() as stack:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.replay.record", str(out.resolve()), "--only", only],
                cwd=stack.enter_context(path_with(tree)),
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYTHONHASHSEED": "0",
                    "WINDFALL_CACHE": "off",  # stages that are found on disk say nothing
                },
            )
            for out, tree in trees.items()
        ]
        codes = [one.wait() for one in running]
    if any(codes):
        raise SystemExit(f"recording failed: exit codes {codes}")


@contextlib.contextmanager
def path_with(tree: Path) -> Iterator[Path]:
    """A folder that stands first on the path and has nothing but the windfall of this tree."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "windfall").symlink_to(tree / "windfall", target_is_directory=True)
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
