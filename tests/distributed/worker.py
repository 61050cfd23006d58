"""One of the processes: all checks in turn, what each answered as a line.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.distributed.worker FOLDER
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as distributed

from tests.distributed.checks import CHECKS
from windfall import backward


def main(folder: Path, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    results: dict[str, object] = {}
    path = folder / f"{distributed.get_rank()}.json"
    for name in names or list(CHECKS):
        backward.forget()
        try:
            results[name] = {"answer": CHECKS[name]()}
        except Exception:
            results[name] = {"error": traceback.format_exc()}
        path.write_text(json.dumps(results))
        # Both know whether either failed: what one of them still waits for would never come.
        failed = torch.tensor(float("error" in results[name]))  # type: ignore[operator]
        distributed.all_reduce(failed)
    gc.collect()  # models in cycles hold the group: then torch may abort at exit, in eager too
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
