"""Resize in C along axes of free sizes, and to sizes or by scales that data says, beside the numpy kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.ways import WAYS

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsanitize=undefined",
          "-fsanitize-undefined-trap-on-error")  # fmt: skip
DIMS = {"b": (1, 2), "s": (1, 20), "u": (1, 20), "v": (1, 40), "w": (1, 40)}
POINTS = ((1, 5, 7, 10, 14), (2, 20, 3, 9, 9), (1, 4, 4, 4, 4), (2, 13, 9, 3, 20), (1, 1, 1, 3, 2))
ALL = "n = Shape<start=0, end=2>(x)  q = Shape<start=2, end=4>(z)  f = Concat<axis=0>(n, q)  y = Resize<{}>(x, , , f)"
TWO = "f = Shape<start=2, end=4>(z)  y = Resize<{}, axes=[2, 3]>(x, , , f)"
BY = "f = Constant<value_floats=[1.0, 1.0, {}]>()  y = Resize<{{}}>(x, , f)"
HALF, TWICE, ODD = (BY.format(scales) for scales in ("0.5, 1.5", "2.0, 2.0", "0.3, 2.7"))

CASES = {
    "twice": TWICE.format('mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"'),
    "twice, linear": TWICE.format('mode="linear"'),
    "half": HALF.format('mode="linear", coordinate_transformation_mode="align_corners"'),
    "half, cubic": HALF.format('mode="cubic", coordinate_transformation_mode="half_pixel_symmetric"'),
    "odd scales": ODD.format('mode="nearest", coordinate_transformation_mode="pytorch_half_pixel"'),
    "odd scales, without aliases": ODD.format('mode="linear", antialias=1'),
    "size of another tensor": ALL.format('mode="linear", coordinate_transformation_mode="pytorch_half_pixel"'),
    "size of another tensor, nearest": ALL.format('mode="nearest", nearest_mode="ceil"'),
    "size of another tensor, without aliases": ALL.format('mode="cubic", antialias=1, cubic_coeff_a=-0.5'),
    "some axes": TWO.format('mode="cubic", exclude_outside=1'),
    "the smaller scale of both": TWO.format('mode="linear", keep_aspect_ratio_policy="not_larger"'),
    "the larger scale of both": TWO.format('mode="nearest", keep_aspect_ratio_policy="not_smaller"'),
    "a part": "r = Constant<value_floats=[0.0, 0.0, 0.1, -0.2, 1.0, 1.0, 0.9, 1.2]>()  n = Shape<start=0, end=2>(x)  "
    "q = Shape<start=2, end=4>(z)  f = Concat<axis=0>(n, q)  "
    'y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", '
    "extrapolation_value=9.0>(x, r, , f)",
    "steps before and after": "a = Exp(x)  f = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>()  "
    'r = Resize<mode="nearest">(a, , f)  y = Neg(r)',
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_at_all_sizes(name: str) -> None:
    text = f"{HEAD} g (float[b,3,s,u] x, float[1,1,v,w] z) => (float[A,B,C,D] y) {{ {CASES[name]} }}"
    loaded = load(onnx.parser.parse_model(text))
    compiled = CModel(loaded, dims=DIMS, isas=WAYS["quick"].isas, flags=STRICT)
    for b, s, u, v, w in POINTS:
        x = np.random.default_rng(s).standard_normal((b, 3, s, u)).astype(np.float32)
        inputs = {"x": x, "z": np.zeros((1, 1, v, w), np.float32)}
        found, wanted = compiled.run(inputs)["y"], Executor(loaded).run(inputs)["y"]
        assert isinstance(wanted, np.ndarray) and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, 1e-4, 2e-5, err_msg=f"{(b, s, u, v, w)}")


FROM_DATA = {
    "sizes": ("int64[2] f", "y = Resize<axes=[2, 3], mode=\"linear\">(x, , , f)", ([6, 9], [1, 2], [10, 10])),
    "scales": ("float[2] f", "y = Resize<axes=[2, 3], mode=\"cubic\">(x, , f)", ([1.5, 2.0], [0.4, 1.0], [2.5, 2.5])),
}  # fmt: skip


@pytest.mark.parametrize("name", FROM_DATA)
def test_data_says_the_size(name: str) -> None:
    given, node, values = FROM_DATA[name]
    loaded = load(onnx.parser.parse_model(f"{HEAD} g (float[1,2,4,4] x, {given}) => (float[1,2,C,D] y) {{ {node} }}"))
    with pytest.raises(CodegenError, match=r"nothing bounds \(give a bound with --dim y=\.\.N\)"):
        generate(loaded)
    compiled = CModel(loaded, dims={"y": (1, 10), "y_1": (1, 10)}, flags=STRICT)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    for value in values:
        inputs = {"x": x, "f": np.array(value, np.int64 if name == "sizes" else np.float32)}
        wanted = Executor(loaded).run(inputs)["y"]
        assert isinstance(wanted, np.ndarray)
        np.testing.assert_allclose(compiled.run(inputs)["y"], wanted, 1e-4, 2e-5)
    with pytest.raises(ExecutionError):
        compiled.run({"x": x, "f": np.array([3, 11], np.int64 if name == "sizes" else np.float32)})
