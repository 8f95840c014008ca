"""Where two implementations compute an operator differently, the summary names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.ops.evaluate import TensorValue
from eqsat.report.table import verification_lines
from eqsat.schema.types import Attrs, OpKey
from eqsat.search import Search
from eqsat.verify import verify
from eqsat.verify.implementations import unlike_operator
from eqsat.verify.oracle import FallbackOracle
from eqsat.verify.programs import Programs


class Strange(FallbackOracle):
    """As the oracle, except for one operator."""

    strange, change = "Exp", 0.5

    def __call__(self, op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[TensorValue, ...]:
        results = super().__call__(op, attrs, inputs, outputs)
        return tuple(r + np.float32(self.change) for r in results) if op.name == self.strange else results


def network() -> Tensor:
    x = eqsat.input("x", (4, 8))
    return op.Tanh(op.Exp(op.Sin(x)) * np.float32(2))


def programs_of(output: Tensor | onnx.ModelProto) -> Programs:
    search = Search.of(eqsat.graph([output]) if isinstance(output, Tensor) else output)
    result = search.extract("best")
    verifier = search.verifier(result.plan, result.model)
    verifier.run()
    return verifier.programs


FEEDS = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}


def test_the_first_operator_that_differs_is_named_with_both_values() -> None:
    found = unlike_operator(programs_of(network()), FEEDS, Strange())
    assert found.startswith("onnxruntime and eqsat compute Exp ")
    assert "32 of 32 elements differ" in found


TEXTS = """<ir_version: 10, opset_import: ["": 21]>
g (string[3] s) => (string[3] y) {
    a = StringConcat(s, s)
    y = StringConcat(a, s)
}"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.astype("U"), ""),
        (
            lambda text: np.array([t.upper() if "b" in t else t for t in text], object),
            "'BÉBÉ' and 'bébé' at [1]; 1 of 3",
        ),
        (lambda text: text[1:], "the shapes of the results are [2] and [3]"),
    ],
)
def test_texts_that_differ_are_not_rounding(change: Callable[[np.ndarray], np.ndarray], said: str) -> None:
    class Other(FallbackOracle):
        def __call__(
            self, op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int
        ) -> tuple[TensorValue, ...]:
            return tuple(change(r) for r in super().__call__(op, attrs, inputs, outputs))

    found = unlike_operator(
        programs_of(onnx.parser.parse_model(TEXTS)), {"s": np.array(["a", "bé", ""], object)}, Other()
    )
    assert said in found if said else not found


def test_implementations_that_agree_are_not_blamed() -> None:
    assert unlike_operator(programs_of(network()), FEEDS, FallbackOracle()) == ""


def test_what_a_tiny_change_of_the_operands_explains_is_not_blamed() -> None:
    """A difference of large numbers, of which only rounding is left."""
    x = eqsat.input("x", (4, 8))
    programs = programs_of(op.Sin(op.Exp(x + np.float32(16)) * np.float32(64)))
    oracle = Strange()
    oracle.strange, oracle.change = "Sin", 1e-3
    assert unlike_operator(programs, FEEDS, oracle) == ""


def test_the_verification_passes_and_says_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "FallbackOracle", Strange)
    seen = eqsat.optimize(eqsat.graph([network()])).summary.verification
    assert seen is not None and seen.agrees and seen.max_rel_error > 1e-4
    assert [note.split(" differently")[0].split(" '")[0] for note in seen.notes] == [
        "onnxruntime and eqsat compute Exp"
    ]
    assert any("note: onnxruntime and eqsat compute Exp" in line for line in verification_lines(seen))


def test_a_verification_without_differences_has_no_note() -> None:
    seen = eqsat.optimize(eqsat.graph([network()])).summary.verification
    assert seen is not None and seen.notes == ()
