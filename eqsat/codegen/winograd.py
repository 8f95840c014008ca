"""Which convolutions of a program may be computed by Winograd's algorithm: an option, as it costs accuracy.

Its relative error is about 1e-5 where direct convolution has 1e-6, and its weights take four times the memory, hence
it is for programs whose numerics need to be those of real arithmetic only.
"""

from __future__ import annotations

from eqsat.codegen.kernels.winograd import ASKED, pays
from eqsat.codegen.program import Program
from eqsat.model.types import OpKey

_CONV = OpKey("", "Conv")


def ask_for_winograd(program: Program) -> int:
    """Marks the convolutions that are estimated to become faster; before fusion, as families decide about that.

    Args:
        program: Its nodes are changed in place.

    Returns:
        How many there are.
    """
    asked = [n for n in program.nodes if n.operator == _CONV and n.group is None and pays(n.provisional_task())]
    for node in asked:
        node.attributes = {**node.attributes, ASKED: 1}
    return len(asked)
