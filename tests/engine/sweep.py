"""Gradients of torch's own samples of ops through one engine, whose programs all share one cache.

python -m tests.engine.sweep [--native] [--few] [name …]      prints what differs from eager

Each sample is back-propagated twice: a stale answer to another sample's program shows in the first,
a wrong recording in the second. Graphs run op by op, so that a sweep tests keys and recordings and
takes minutes; `--native` compiles them. `--few`: six samples of each op.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tests.conformance.op_db_samples import UNINITIALISED, copied, table
from tests.seeds import set_seed
from windfall import autograd, backward, torch_abi
from windfall.engine import CompiledSegment, Engine, VaryingSegment
from windfall.engine.engine import BY_TORCH, DEPARTED, RECORDED, REPLAYED
from windfall.events import EventLog
from windfall.options import Options
from windfall.reporting.explain import explanation_of

# Their gradients are not determined, or their samples raise by themselves.
SKIPPED = UNINITIALISED | {"linalg.eig"}
HOW = (RECORDED, REPLAYED, DEPARTED, BY_TORCH)


class OpByOp:
    """Graphs are interpreted."""

    def __call__(self, graph: torch.fx.Graph, types: Sequence[Any], name: str) -> CompiledSegment:
        outputs: Any = graph.output_node().args[0]
        return CompiledSegment(autograd.interpreter(graph), (False,) * len(outputs))

    def varying(
        self, graph: torch.fx.Graph, types: Sequence[Any], name: str
    ) -> VaryingSegment | None:
        return VaryingSegment(self(graph, types, name), ())


def engine(native: bool = False) -> Engine:
    """A new one."""
    log = EventLog(records=False)
    if native:
        return backward.engine_for(Options.checked(), log)
    return Engine(OpByOp(), log)


def names() -> list[str]:
    """Ops that have gradients."""
    return [name for name, info in table().items() if info.supports_autograd]


def _tensors(value: Any) -> list[torch.Tensor]:
    found, _ = torch.utils._pytree.tree_flatten(value)
    return [one for one in found if isinstance(one, torch.Tensor)]


def gradients(run: Callable[[], Any], leaves: list[torch.Tensor]) -> list[Any] | None:
    """Those of all leaves, by `backward()`; None: nothing needs one."""
    for one in leaves:
        one.grad = None
    set_seed(1)
    results = [one for one in _tensors(run()) if one.requires_grad]
    if not results or not leaves:
        return None
    given = []
    for one in results:
        set_seed(len(given))
        given.append(torch.randn(one.shape, dtype=one.dtype).as_subclass(type(one)))
    torch.autograd.backward(results, given)
    return [None if one.grad is None else one.grad.clone() for one in leaves]


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if one.layout is not other.layout or one.dtype is not other.dtype or one.shape != other.shape:
        return False
    one, other = one.to_dense(), other.to_dense()
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def check(shared: Engine, name: str, dtype: torch.dtype, limit: int = 1000) -> Iterator[str]:
    """What differs from eager in the samples of one op."""
    info = table()[name]
    if dtype not in info.dtypes:
        return
    set_seed(0)
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=True)):
        if number >= limit:
            return
        first, rest, named = copied((sample.input, sample.args, sample.kwargs))
        function = info.op
        leaves = [one for one in _tensors((first, rest, named)) if one.requires_grad]

        def run(f: Any = function, given: Any = (first, rest, named)) -> Any:
            one, more, by_name = given
            return f(one, *more, **by_name)

        try:
            expected = gradients(run, leaves)
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            continue  # of a sample that eager refuses
        if expected is None:
            continue
        for time in ("first", "second"):
            with torch_abi.taken_over(shared):
                found = gradients(run, leaves)
            assert found is not None
            if not all(map(_same, found, expected)):
                yield f"{name} sample {number} {dtype}, {time} time: {found}, not {expected}"
                break


def main(arguments: Sequence[str]) -> int:
    warnings.simplefilter("ignore")
    native, limit = "--native" in arguments, 6 if "--few" in arguments else 1000
    chosen = [one for one in arguments if not one.startswith("--")] or names()
    shared, wrong = engine(native), 0
    for name in chosen:
        if name in SKIPPED:
            continue
        for dtype in (torch.float32, torch.float64, torch.complex64):
            try:
                for text in check(shared, name, dtype, limit):
                    wrong += 1
                    print(text[:400], flush=True)
            except Exception as error:
                wrong += 1
                print(
                    f"{name} {dtype} raised {type(error).__name__}: {str(error)[:300]}", flush=True
                )
    told = explanation_of(shared.log)
    print(f"{wrong} differ; passes: {told.passes}")
    calls = Counter(reason for reason in told.pass_reasons if reason.startswith(BY_TORCH))
    print(dict(calls))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
