"""Graph → joint → forward and backward; what stands between them and the user's tensors."""

from typing import TYPE_CHECKING

# Of the module's own name: a door would find the module.
from windfall.autograd.assemble import assemble as assemble
from windfall.autograd.assemble import placed_writes as placed_writes
from windfall.doors import door

if TYPE_CHECKING:
    from windfall.autograd.compiled_graph import differentiable as differentiable
    from windfall.autograd.compiled_graph import operations_of as operations_of
    from windfall.autograd.compiled_graph import region_of as region_of
    from windfall.autograd.conventions import written_in_place as written_in_place
    from windfall.autograd.interpret import interpreter as interpreter
    from windfall.autograd.joint import differentiate as differentiate
    from windfall.autograd.partition import split as split
    from windfall.autograd.passes import PASSES as PASSES
    from windfall.autograd.passes import draws as draws
    from windfall.autograd.special_backward import VariantCompiler as VariantCompiler
    from windfall.autograd.variant import Variant as Variant
    from windfall.autograd.wrappers import Flat as Flat
    from windfall.autograd.wrappers import flatten as flatten
    from windfall.autograd.wrappers import holds_wrapped as holds_wrapped

_MODULES = {
    "Flat": "wrappers",
    "PASSES": "passes",
    "Variant": "variant",
    "VariantCompiler": "special_backward",
    "differentiable": "compiled_graph",
    "differentiate": "joint",
    "draws": "passes",
    "flatten": "wrappers",
    "holds_wrapped": "wrappers",
    "interpreter": "interpret",
    "operations_of": "compiled_graph",
    "region_of": "compiled_graph",
    "split": "partition",
    "written_in_place": "conventions",
}
__getattr__, __dir__ = door(__name__, _MODULES)
