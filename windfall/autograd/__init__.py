"""Graph → joint → forward and backward; what stands between them and the user's tensors."""

from windfall.autograd.conventions import is_plain as is_plain
from windfall.autograd.function import bridge as bridge
from windfall.autograd.interpret import interpreter as interpreter
from windfall.autograd.joint import differentiate as differentiate
from windfall.autograd.partition import split as split
from windfall.autograd.passes import draws as draws
