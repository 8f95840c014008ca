"""C whose arguments have sizes that have to agree: one size where nothing else is possible, compared at run time where
one of them may be 1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.cli import main
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError, ModelError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.model.running import run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
CACHE = """(float[1, 2, P, 4] past, float[1, 2, S, 4] k, float[1, 2, S, 4] q, float[1, 1, S, T] mask)
    => (float[1, 2, S, 4] y, float[1, 2, U, 4] present) { present = Concat<axis=2>(past, k)
    kt = Transpose<perm=[0,1,3,2]>(present) s = MatMul(q, kt) a = Add(s, mask) p = Softmax<axis=3>(a)
    y = MatMul(p, present) }"""
LAYERS = {
    "added": "(float[N, 8] x, float[M, 8] z) => (float[N, 8] y) { a = Add(x, z) b = Relu(a) y = Mul(b, z) }",
    "selected": "(float[N, 4] x, bool[M, 4] c, float[K, 4] z) => (float[N, 4] y) { y = Where(c, x, z) }",
    "multiplied": "(float[N, K] x, float[L, 6] w, float[M, 6] z) => (float[N, 6] y) { a = MatMul(x, w) y = Add(a, z) }",
    "recurrent": "(float[S, B, 5] x, float[1, 12, 5] w, float[1, 12, 3] r, float[1, C, 3] h, float[1, D, 3] c)"
    " => (float[S, 1, B, 3] y) { y = LSTM<hidden_size=3>(x, w, r, , , h, c) }",
}


def check(compiled: CModel, text: str, sizes: dict[str, int]) -> None:
    given = complete_inputs(load(text), dims=sizes, seed=sum(sizes.values()))
    for wanted, found in zip(run_ort(onnx.parser.parse_model(text), given), compiled.run(given).values(), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=str(sizes))


@pytest.mark.parametrize("past", [1, 3, 16])
def test_a_mask_follows_from_the_cache(past: int) -> None:
    text = HEAD + CACHE
    for total in ("P + S", (2, 19)):
        compiled = CModel(load(text), dims={"P": (1, 16), "S": (1, 3), "T": total})
        assert [size.name for size in compiled.emitted.sizes] == ["P", "S"]
        for new in (1, 3):
            check(compiled, text, {"P": past, "S": new, "T": past + new})


def test_a_mask_may_be_one_for_all() -> None:
    """What may broadcast is compared by the program."""
    text = HEAD + CACHE
    compiled = CModel(load(text), dims={"P": (1, 16), "S": (1, 3), "T": (1, 19)})
    assert [size.name for size in compiled.emitted.sizes] == ["P", "S", "T"]
    for past, new, total in ((1, 1, 2), (7, 1, 8), (16, 3, 19), (7, 2, 1), (1, 1, 1)):
        check(compiled, text, {"P": past, "S": new, "T": total})
    given = complete_inputs(load(text), dims={"P": 5, "S": 2, "T": 6})
    with pytest.raises(ExecutionError, match=r"sizes of the inputs that agree.*P \+ S = 7 and T = 6"):
        compiled.run(given)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_at_all_sizes(name: str) -> None:
    text = HEAD + LAYERS[name]
    loaded = load(text)
    names = list(dict.fromkeys(d for v in loaded.graph.inputs if v.shape for d in sorted(v.shape.free_symbols())))
    compiled = CModel(loaded, dims=dict.fromkeys(names, (1, 9)))
    for size in (1, 2, 7, 9):
        check(compiled, text, dict.fromkeys(names, size))
    if name in ("added", "selected"):
        for alone in names[1:]:
            check(compiled, text, dict.fromkeys(names, 5) | {alone: 1})


def test_the_option_that_is_missing_is_the_expression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CodegenError, match=r"(?s)`T` without one.*give it, such as --dim T=P\+1"):
        eqsat.write_c(HEAD + CACHE, tmp_path / "out", dims={"P": (1, 16), "S": 1})
    with pytest.raises(ModelError, match=r"`P \+ 1` and `T` have to agree"):
        eqsat.write_c(HEAD + CACHE, tmp_path / "out", dims={"P": (1, 16), "S": 1, "T": (30, 60)})
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + CACHE), path)
    given = ["--dim", "P=1..16", "--dim", "S=1", "--dim", "T=P+1"]
    assert main(["codegen", str(path), *given, "-o", str(tmp_path / "out"), "-q"]) == 0
    assert "mask: float[1, 1, 1, P + 1]" in (tmp_path / "out" / "model.h").read_text("utf-8")
    assert main(["run", str(path), "--dim", "P=3", "--dim", "S=2", "--dim", "T=P+S", "--backend", "c"]) == 0
    assert main(["run", str(path), "--dim", "P=3", "--dim", "T=5"]) == 0
    assert "mask" in capsys.readouterr().err
