"""Einstein summations in C: two operands are a matrix product, and every equation gives numpy's values."""

from __future__ import annotations

import string

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqsat.codegen.runtime import CModel
from eqsat.model.load import load

PRODUCTS = [
    "bij,bkj->bik",
    "bhcn,bhcm->bhnm",
    "abcd,ced->abce",
    "ij,kj->ki",
    "ij,j->i",
    "i,i->",
    "...ij,...jk->...ik",
    "bqhd,bkhd->bhqk",
    "bhqk,bkhd->bqhd",
    "ij,ij->i",
    "bij,bjk",
    "ijk,kl->ijl",
    "abc,cd->dba",
    "aib,bja->ija",
    "i,ij->j",
]
IN_PAIRS = [
    *("ij,jk,kl->il", "ab,bc,cd,de->ae", "i,ij,j->", "ij,ij,ij->i", "abc,cd,bd->a", "bij,jk,bkl,l->bi", "i,j,k->kij"),
    *(
        "a,a,a->a",
        "...ij,jk,...kl->...il",
        "ab,cd,ef->",
        "bi,j->b",
        "ij,kj->",
        "i,j->ij",
        "ij,j->ij",
        "ij,kj->kji",
        "i,->i",
    ),
]
SUMS = ["ij->i", "ij->", "abc->cb", "abcd->db", "...ij->i..."]
LOOPS = ["ii->i", "ii,ij->j", "ij,jj,jk->ik"]


def _model(equation: str, arrays: list[np.ndarray], constant: int | None = None) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(arrays))]
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    shape = np.einsum(equation, *arrays).shape
    graph = helper.make_graph(
        [helper.make_node("Einsum", names, ["y"], equation=equation)],
        "sum",
        [helper.make_tensor_value_info(n, kind, x.shape) for i, (n, x) in enumerate(zip(names, arrays, strict=True))
         if i != constant],
        [helper.make_tensor_value_info("y", kind, shape)],
        [] if constant is None else [numpy_helper.from_array(arrays[constant], names[constant])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _families(equation: str, arrays: list[np.ndarray], constant: int | None = None) -> set[str]:
    """The kernels of the program, after a look at its values."""
    compiled = CModel(load(_model(equation, arrays, constant)))
    feeds = {f"x{i}": x for i, x in enumerate(arrays) if i != constant}
    expected = np.einsum(equation, *(x.astype(np.float64) for x in arrays))
    np.testing.assert_allclose(compiled.run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)
    return {kernel.family for kernel in compiled.emitted.kernels}


def _drawn(equation: str, rng: np.random.Generator, dtype: type = np.float32) -> list[np.ndarray]:
    sizes = {label: int(rng.integers(1, 9)) for label in string.ascii_letters}
    wide = tuple(int(n) for n in rng.integers(1, 4, 2))
    terms = equation.partition("->")[0].split(",")
    shapes = [(*(wide if "..." in t else ()), *(sizes[k] for k in t.replace("...", ""))) for t in terms]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.slow
@pytest.mark.parametrize("equation", PRODUCTS)
def test_two_operands_are_a_matrix_product(equation: str):
    arrays = _drawn(equation, np.random.default_rng(1))
    for constant in (None, 0, 1):
        found = _families(equation, arrays, constant)
        assert "Einstein summation" not in found
        assert found & {"packed matrix product", "matrix loops"}, found


@pytest.mark.parametrize("equation", LOOPS)
def test_other_equations_are_loops(equation: str):
    assert "Einstein summation" in _families(equation, _drawn(equation, np.random.default_rng(2)))


@pytest.mark.slow
@pytest.mark.parametrize("equation", IN_PAIRS)
def test_operands_are_taken_two_by_two(equation: str):
    arrays = _drawn(equation, np.random.default_rng(5))
    for constant in (None, len(arrays) - 1):
        assert "Einstein summation" not in _families(equation, arrays, constant)


def test_constants_are_multiplied_when_the_program_is_written():
    equation = "ij,jk,kl->il"
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (4, 6), (6, 3))]
    model = _model(equation, arrays)
    for name in ("x1", "x2"):
        model.graph.initializer.append(numpy_helper.from_array(arrays[int(name[1])], name))
    del model.graph.input[1:]
    compiled = CModel(load(model))
    assert len(compiled.emitted.kernels) == 1
    np.testing.assert_allclose(compiled.run({"x0": arrays[0]})["y"], np.einsum(equation, *arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", SUMS)
def test_labels_of_one_operand_are_summed_first(equation: str):
    arrays = _drawn(equation, np.random.default_rng(7))
    for dtype in (np.float32, np.float64):
        found = _families(equation, [x.astype(dtype) for x in arrays])
        assert "Einstein summation" not in found
        assert found & {"reducing vectors", "reducing loops"}, found


def test_one_operand_is_a_transposition():
    x = np.random.default_rng(3).standard_normal((3, 4, 5)).astype(np.float32)
    assert "Einstein summation" not in _families("abc->cab", [x])


def test_float64():
    _families("bij,bkj->bik", _drawn("bij,bkj->bik", np.random.default_rng(4), np.float64))


@pytest.mark.parametrize("seed", range(12))
def test_random_equations(seed: int):
    rng = np.random.default_rng(seed)
    labels = list("abcdef")
    left, right = (list(rng.permutation(labels)[: int(rng.integers(1, 5))]) for _ in range(2))
    known = sorted({*left, *right})
    result = list(rng.permutation(known)[: int(rng.integers(0, len(known) + 1))])
    equation = f"{''.join(left)},{''.join(right)}->{''.join(result)}"
    _families(equation, _drawn(equation, rng), [None, 0, 1][seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_equations_of_many_operands(seed: int):
    rng = np.random.default_rng(100 + seed)
    terms = [list(rng.permutation(list("abcdef"))[: int(rng.integers(1, 4))]) for _ in range(3 + seed % 3)]
    known = sorted({label for term in terms for label in term})
    result = list(rng.permutation(known)[: int(rng.integers(0, len(known) + 1))])
    equation = f"{','.join(''.join(term) for term in terms)}->{''.join(result)}"
    assert "Einstein summation" not in _families(equation, _drawn(equation, rng), [None, 0, 1][seed % 3])
