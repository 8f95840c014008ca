"""Whether the call of a composite may become C: it does not matter what a model says, but who has written it.

A target file is its author's program, and its calls are C as they stand. A model that eqsat has partitioned in this
process has them from there. A model that was read from a file may have them from anybody: there a call must be one
function of the target, by its name, on tensors and constants, which is what the calls of most targets are.
"""

from __future__ import annotations

import re

import onnx_ir as ir

from eqsat.errors import CodegenError
from eqsat.partition.emit import CALL, TRUSTED_CALL
from eqsat.text import shown

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fFuUlL]{0,3}"
_STRING = r'"(?:[0-9A-Za-z _.,:;+=()<>-]|\\[0-7]{3})*"'
_NAMES = "INFINITY|-INFINITY|NAN|NULL"
_SYSTEM = re.compile(
    "aio|clock|dl|if|inet|lio|mq|ns|posix|pthread|res|sched|sem|shm|stdc|thrd|timer|tss|wcs", re.IGNORECASE
)
"""What functions of systems begin with whose names have an underscore; no target is called like that."""
_LONGEST = 4000


def trusted_call(node: ir.Node, target: str) -> str:
    """The text of a node's call.

    Args:
        node: With a call.
        target: Whose composite it is.

    Raises:
        CodegenError: The text comes from a file and is more than a call of the target's function.
    """
    text = node.metadata_props[CALL]
    if node.meta.get(TRUSTED_CALL) == text or is_plain_call(text, target):
        return text
    raise CodegenError(
        "what a file has for a call is one function of its target, with tensors and constants",
        place=f"{CALL} of node {node.name!r}",
        actual=repr(text if len(text) <= 200 else f"{text[:200]}..."),
        hint=f"the function begins with `{shown(target)[:40]}_`; other calls are written only where they come from the "
        "target's file: eqsat.optimize(..., targets=[...]).codegen(...)",
    )


def is_plain_call(text: str, target: str) -> bool:
    """Whether a text calls a function of the target on holes, numbers, names of the target, and harmless strings."""
    if not re.fullmatch(r"[A-Za-z][0-9A-Za-z_]*", target) or _SYSTEM.fullmatch(target) or len(text) > _LONGEST:
        return False
    own = rf"(?i:{target}_)[0-9A-Za-z_]+"
    argument = rf" *(?:\{{(?:\d+|result)\}}|{_NUMBER}|{_NAMES}|{_STRING}|{own}) *"
    return re.fullmatch(rf" *{own} *\((?: *|{argument}(?:,{argument})*)\) *;? *", text, re.ASCII) is not None
