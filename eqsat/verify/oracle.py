"""Evaluates operators of the input with ONNX Runtime, otherwise with ``onnx.reference``, otherwise with eqsat.

A result is executed with eqsat's kernels, so the input should not be: a kernel that is wrong on both sides in the same
way hides an error. ONNX Runtime evaluates one operator at a time, each in a session without optimizations and on one
thread; a session serves all shapes, so that a network needs few of them. The operators in this file are those for which
one of these implementations violates the standard, or crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir

from eqsat import bounds
from eqsat.check import oracle as standard
from eqsat.ops.evaluate import TensorValue, evaluate
from eqsat.ops.undefined import Undefined, Unrepresentable
from eqsat.schema import opset
from eqsat.schema.attributes import to_protos
from eqsat.schema.declared_operators import find_reference, function_body
from eqsat.schema.types import Attrs, GraphAttr, OpKey

OracleName = Literal["onnxruntime", "onnx.reference", "eqsat"]
ORDER: tuple[OracleName, ...] = ("onnxruntime", "onnx.reference", "eqsat")

_NATIVE = frozenset("biuf")
"""Kinds of numpy's element types that ONNX Runtime accepts from numpy."""


class Failed(Exception):
    """No implementation can evaluate the operator on these inputs, or its result is undefined there."""


class EvaluationRefused(Failed):
    """An implementation has the operator and fails on these inputs."""


class UndefinedConversion(Failed):
    """A float is converted to an integer type that cannot hold it: any result is right."""


class FallbackOracle:
    """Evaluates operators, each by the first implementation that can.

    Args:
        names: The implementations that may be used, in order.

    Attributes:
        used: Number of evaluations by each.
    """

    def __init__(self, names: Sequence[OracleName] = ORDER) -> None:
        self.names = tuple(names)
        self.used: dict[str, int] = dict.fromkeys(names, 0)

    def __call__(self, op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[TensorValue, ...]:
        """Results of one operator.

        Raises:
            Failed: See there.
        """
        body = function_body(op, attrs)
        if body is not None:
            return run_body(body, inputs, self)[:outputs]
        if find_reference(op) is not None:
            return own(op, attrs, inputs, outputs)
        if any(isinstance(value, GraphAttr) for _, value in attrs):
            name, results = _flow(op, attrs, inputs, outputs)
            self.used[name] = self.used.get(name, 0) + 1
            return results
        _require_defined(op, attrs, inputs)
        reasons = []
        refused = False
        for name in self.names:
            try:
                with np.errstate(all="ignore"):
                    results = _CALLS[name](op, attrs, inputs, outputs)
            except Exception as error:  # the implementations' exceptions have no common base
                reasons.append(f"{name}: {_said(error)}")
                refused = refused or not isinstance(error, Failed)
                continue
            self.used[name] += 1
            return tuple(_array(r) if isinstance(r, np.generic | str) else r for r in results)
        raise (EvaluationRefused if refused else Failed)("; ".join(reasons) or "no implementation")

    def said(self) -> tuple[str, ...]:
        """The implementations that have evaluated an operator."""
        return tuple(name for name, count in self.used.items() if count)


def _array(scalar: Any) -> np.ndarray:
    return np.array(scalar, object) if isinstance(scalar, str) else np.asarray(scalar)


def run_body(body: Any, inputs: Sequence[TensorValue], call: Any) -> tuple[TensorValue, ...]:
    """A straight-line program, its operators evaluated by ``call``."""
    values = [*inputs, *[None] * (body.inputs - len(inputs))]
    for node in body.nodes:
        values.extend(call(node.op, node.attrs, [None if i is None else values[i] for i in node.inputs], node.outputs))
    return tuple(values[i] for i in body.results)


def own(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[TensorValue, ...]:
    """eqsat's kernels, except for bodies of control flow.

    Raises:
        UndefinedConversion, Failed: See there.
    """
    if any(isinstance(value, GraphAttr) for _, value in attrs):
        return _flow(op, attrs, inputs, outputs)[1]
    _require_defined(op, attrs, inputs)
    try:
        with np.errstate(all="ignore"):
            return evaluate(op, attrs, inputs, outputs)
    except Exception as error:
        raise Failed(str(error)) from error


def _flow(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[str, tuple[TensorValue, ...]]:
    """Results of an If, Loop or Scan, and who has computed them.

    Raises:
        UndefinedConversion, Failed: See there.
    """
    _require_defined(op, attrs, inputs)
    # ONNX Runtime cannot be told to end a loop, and does not know the shape of a stack of no rounds.
    limit = inputs[0] if op.name == "Loop" and inputs else 1
    bounded = limit is not None and 1 <= int(np.asarray(limit).reshape(-1)[0]) <= MOST_ROUNDS
    asked = bounded and not (op.name == "Scan" and _is_wrong_scan(attrs, inputs))
    reasons = []
    for name in ("onnxruntime", "onnx.reference") if asked else ("onnx.reference",):
        try:
            with np.errstate(all="ignore"):
                return name, _CALLS[name](op, attrs, inputs, outputs)
        except Exception as error:
            reasons.append(f"{name}: {_said(error)}")
    raise Failed("; ".join(reasons))


def _is_wrong_scan(attrs: Attrs, inputs: Sequence[TensorValue]) -> bool:
    """Whether ONNX Runtime 1.31 ends its process (no rounds) or gives no values (for inputs of the body handed on)."""
    if any(isinstance(x, np.ndarray) and not x.size for x in inputs):
        return True
    bodies = [value.graph for _, value in attrs if isinstance(value, GraphAttr)]
    return any(value in body.inputs for body in bodies for value in body.outputs)


def _require_defined(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue]) -> None:
    # An integer division by zero ends the process in ONNX Runtime.
    try:
        if all(isinstance(x, np.ndarray) or x is None for x in inputs):
            standard.require_defined(op, attrs, inputs)
    except Unrepresentable as error:
        raise UndefinedConversion(str(error)) from error
    except Undefined as error:
        raise Failed(str(error)) from error


# ---- ONNX Runtime --------------------------------------------------------------------------------------------------


@cache
def runtime() -> Any:
    """The module ``onnxruntime``, None if it is not installed."""
    try:
        import onnxruntime
    except Exception:  # an installation that is broken, or made for another numpy, raises anything
        return None
    return onnxruntime


@cache
def _options() -> Any:
    ort = runtime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False
    return options


def _said(error: Exception) -> str:
    """The message of an implementation, without ONNX Runtime's prefix of codes and a node name."""
    return str(error).strip().rpartition("Status Message: ")[2]


_sessions: dict[Any, Any] = {}
_MOST_SESSIONS = 2000


def _by_runtime(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[TensorValue, ...]:
    if runtime() is None:
        raise Failed("not installed")
    kinds = []
    for x in inputs:
        if x is not None and (not isinstance(x, np.ndarray) or x.dtype.kind not in _NATIVE):
            raise Failed("element types that numpy lacks")
        kinds.append(None if x is None else x.dtype)
    if op.name in _CRASHING and any(isinstance(x, np.ndarray) and not x.size for x in inputs):
        raise Failed("ONNX Runtime may crash or hang on empty tensors here")
    if _has_short_constants(op, attrs, inputs):
        raise Failed(_SHORT_CONSTANTS)
    key = (op, attrs, tuple(kinds), outputs)
    names = _names(attrs, len(inputs))
    session = _sessions.get(key)
    if session is None:
        if len(_sessions) >= _MOST_SESSIONS:
            _sessions.clear()
        session = _sessions[key] = _session(op, attrs, kinds, outputs, names)
    if isinstance(session, str):
        raise Failed(session)
    given = zip(names, inputs, strict=True)
    feeds = {name: np.ascontiguousarray(x) if x.ndim else x for name, x in given if x is not None}
    found = tuple(session.run(None, feeds))
    if any(x is None for x in found):
        raise Failed("ONNX Runtime gives no result")  # QLinearSoftmax of an empty tensor
    return found


_CRASHING = frozenset(
    {
        *("Attention", "Conv", "ConvTranspose", "DynamicQuantizeLSTM", "FusedConv", "GRU", "GroupNormalization"),
        *("InstanceNormalization", "LSTM", "STFT"),
    }
)
"""Operators whose kernels end the process, or do not end, on empty tensors (ONNX Runtime 1.31)."""


def _names(attrs: Attrs, count: int) -> list[str]:
    """Names of the operands of a model of one operator; its bodies read captured values by the names they have."""
    captured = _captured(attrs)
    return [*(f"i{k}" for k in range(count - len(captured))), *captured]


def _captured(attrs: Attrs) -> list[str]:
    graphs = [value for _, value in attrs if isinstance(value, GraphAttr)]
    return list(dict.fromkeys(name for graph in graphs for name in graph.captured))


def _session(op: OpKey, attrs: Attrs, kinds: Sequence[np.dtype | None], outputs: int, operands: Sequence[str]) -> Any:
    """A session of one operator; a text where there is no kernel for it."""
    own_inputs = len(kinds) - len(_captured(attrs))
    names = ["" if kind is None else name for name, kind in zip(operands[:own_inputs], kinds, strict=False)]
    node = onnx.helper.make_node(op.name, names, [f"o{k}" for k in range(outputs)], domain=op.domain)
    node.attribute.extend(to_protos(attrs, op))
    graph = onnx.helper.make_graph(
        [node],
        "node",
        [
            onnx.helper.make_tensor_value_info(name, ir.DataType.from_numpy(kind).value, None)
            for name, kind in zip(operands, kinds, strict=True)
            if kind is not None
        ],
        [onnx.helper.make_value_info(f"o{k}", onnx.TypeProto()) for k in range(outputs)],
    )
    domains = {"": opset.PINNED_OPSET, op.domain: opset.opset_version(op.domain)}
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in domains.items()],
        ir_version=opset.IR_VERSION,
    )
    ort = runtime()
    try:
        return ort.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__


# ---- the others ----------------------------------------------------------------------------------------------------


def _by_reference(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[TensorValue, ...]:
    problem = fault_of_reference(op, attrs, inputs)
    if problem:
        raise Failed(f"the reference is wrong {problem}")
    from eqsat.ops.reference import ReferenceNode

    names = _captured(attrs)
    own_inputs = len(inputs) - len(names)
    node = ReferenceNode(op, opset.opset_version(op.domain), to_protos(attrs, op), outputs, opset.PINNED_OPSET)
    with bounds.metered(steps=MOST_ROUNDS):
        return node(inputs[:own_inputs], dict(zip(names, inputs[own_inputs:], strict=True)))


def fault_of_reference(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue]) -> str:
    """Why the reference of onnx 1.23 violates the standard here; empty if it does not."""
    if op == OpKey("", "ConvTranspose") and dict(attrs).get("group", 1) != 1:
        return "for groups"
    if op == OpKey("", "QLinearConv") and np.ndim(inputs[0]) != 4 and np.size(inputs[4]) > 1:
        return "for scales per channel without two spatial axes"
    if op == OpKey("ai.onnx.ml", "DictVectorizer"):
        return "because it returns one dimension, where runtimes return a row"
    if op == OpKey("", "Erf") and isinstance(inputs[0], np.ndarray) and inputs[0].dtype == np.float64:
        return "for float64, because it computes in float32"
    return _SHORT_CONSTANTS if _has_short_constants(op, attrs, inputs) else ""


_SHORT_CONSTANTS = "for float64, because the constants of the definition are float32"


def _has_short_constants(op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue]) -> bool:
    """Whether the others compute by the standard's definition, which rounds 2/pi and 0.044715 to float32."""
    if op != OpKey("", "Gelu") or dict(attrs).get("approximate") != "tanh":
        return False
    return isinstance(inputs[0], np.ndarray) and inputs[0].dtype == np.float64


MOST_ROUNDS = 1 << 13
"""Iterations that the loops of one operator may take."""


_CALLS = {"onnxruntime": _by_runtime, "onnx.reference": _by_reference, "eqsat": evaluate}
