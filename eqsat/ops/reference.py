"""Operators without a kernel in eqsat, evaluated by ``onnx.reference``, the specification's own implementation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import onnx
import onnx.helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpFunction, OpRun
from onnx.reference.ops.op_loop import Loop as ReferenceLoop
from onnx.reference.ops.op_non_max_suppression import NonMaxSuppression as ReferenceSuppression
from onnx.reference.ops.op_scan import Scan as ReferenceScan

from eqsat import bounds
from eqsat.schema.types import OpKey


class ReferenceNode:
    """One node, built for its actual inputs.

    Operators that ONNX defines as functions of their types have another body for other types, so one instance is kept
    for each signature; for others, only the presence of inputs matters.

    Args:
        op: The operator.
        version: Opset of its domain.
        attributes: Its attributes.
        outputs: Number of its outputs.
        opset: Opset of the default domain, for operators of another domain.
    """

    def __init__(
        self, op: OpKey, version: int, attributes: Sequence[onnx.AttributeProto], outputs: int, opset: int | None = None
    ) -> None:
        self._op = op
        self._attributes = attributes
        self._outputs = [f"output_{i}" for i in range(outputs)]
        opsets = {op.domain: version}
        opsets.setdefault("", opset if opset is not None else onnx.defs.onnx_opset_version())
        self._opsets = [onnx.helper.make_opsetid(domain, number) for domain, number in opsets.items()]
        self._typed = False
        self._instances: dict[tuple[Any, ...], OpRun] = {}
        self._evaluators: dict[tuple[Any, ...], ReferenceEvaluator] = {}

    def __call__(self, inputs: Sequence[Any], captured: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """Evaluates the node.

        Args:
            inputs: Arrays, lists for sequences, None for absent inputs.
            captured: Outer values that the node's subgraphs read, by name.
        """
        if captured:
            return self._with_graphs(inputs, captured)
        key = tuple([_signature(x) for x in inputs] if self._typed else [x is None for x in inputs])
        instance = self._instances.get(key)
        if instance is None:
            instance = self._build(_names(inputs), inputs, {}).rt_nodes_[0]
            if isinstance(instance, OpFunction) and not self._typed:
                self._typed = True
                key = tuple([_signature(x) for x in inputs])
            self._instances[key] = instance
        with _quiet() if any(isinstance(x, np.ndarray) and not x.size for x in inputs) else nullcontext():
            results = instance.run(*inputs, context={}) if instance.need_context() else instance.run(*inputs)
        return tuple([_with_objects(x) for x in results])

    def _with_graphs(self, inputs: Sequence[Any], captured: Mapping[str, Any]) -> tuple[Any, ...]:
        names = _names(inputs)
        feeds = {name: x for name, x in zip(names, inputs, strict=True) if name} | dict(captured)
        key = tuple((name, _signature(x)) for name, x in feeds.items())
        evaluator = self._evaluators.get(key)
        if evaluator is None:
            evaluator = self._evaluators[key] = self._build(names, inputs, captured)
        return tuple(_with_objects(x) for x in evaluator.run(None, feeds))

    def _build(self, names: Sequence[str], inputs: Sequence[Any], captured: Mapping[str, Any]) -> ReferenceEvaluator:
        node = onnx.helper.make_node(self._op.name, names, self._outputs, domain=self._op.domain)
        node.attribute.extend(self._attributes)
        feeds = {name: x for name, x in zip(names, inputs, strict=True) if name} | dict(captured)
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.helper.make_value_info(name, _type_proto(x)) for name, x in feeds.items()],
            [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in self._outputs],
        )
        return ReferenceEvaluator(
            onnx.helper.make_model(graph, opset_imports=self._opsets),
            new_ops=[Loop, NonMaxSuppression, Scan],
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses numpy's warnings that no error state turns off, such as that of the mean of no elements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class _Metered:
    """Each round is a step of the meter, so that it ends."""

    op_domain = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        run_body = self._run_body

        def metered(*args: Any, **options: Any) -> Any:
            bounds.current().step(1, type(self).__name__)
            return run_body(*args, **options)

        self._run_body = metered


class Loop(_Metered, ReferenceLoop):
    """The reference's loop, metered. That of onnx 1.23 makes no round if the condition is absent, and joins rows that
    it should stack.
    """

    def _run(
        self, trips: Any, go: Any, *states: Any, context: Any = None, attributes: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        body = self.__dict__["body"]
        given, made = body.input_names, body.output_names
        going, current = True if go is None else bool(np.asarray(go).reshape(-1)[0]), list(states)
        rows: list[list[Any]] = [[] for _ in made[1 + len(states) :]]
        limit = None if trips is None else int(np.asarray(trips).reshape(-1)[0])
        trip = 0
        while going and (limit is None or trip < limit):
            inputs = {**(context or {}), **dict(zip(given, [np.array(trip), np.array(True), *current], strict=True))}
            outputs = self._run_body(inputs, attributes=attributes)
            going, current = bool(np.asarray(outputs[0]).reshape(-1)[0]), list(outputs[1 : 1 + len(states)])
            for row, value in zip(rows, outputs[1 + len(states) :], strict=True):
                row.append(value)
            trip += 1
        return (*current, *(np.stack(row) for row in rows))


class Scan(_Metered, ReferenceScan):
    """The reference's scan, metered."""


class NonMaxSuppression(ReferenceSuppression):
    """The reference's suppression, also of no boxes."""

    op_domain = ""

    def _run(self, boxes: np.ndarray, scores: np.ndarray, *limits: Any, **attributes: Any) -> tuple[Any, ...]:
        if not scores.size:
            return (np.zeros((0, 3), np.int64),)
        return super()._run(boxes, scores, *limits, **attributes)


def _names(inputs: Sequence[Any]) -> list[str]:
    return ["" if x is None else f"input_{i}" for i, x in enumerate(inputs)]


def _with_objects(value: Any) -> Any:
    """Strings as arrays of objects, as in the rest of eqsat."""
    if isinstance(value, list):
        return [_with_objects(v) for v in value]
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind in "US" else value


def _signature(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        return ("sequence", _signature(value[0]) if value else None)
    array = np.asarray(value)
    return (array.dtype, array.shape)


def _type_proto(value: Any) -> onnx.TypeProto:
    if isinstance(value, list):
        element = _type_proto(value[0]) if value else onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        if element.HasField("tensor_type"):
            element.tensor_type.ClearField("shape")
        return onnx.helper.make_sequence_type_proto(element)
    array = np.asarray(value)
    kind = onnx.TensorProto.STRING if array.dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(kind, array.shape)
