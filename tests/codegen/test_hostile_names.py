"""Names of a model never become C, CMake or file names: every byte and what attackers write, wherever names go."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.codegen.call_text import is_plain_call
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.hostile_names import BYTES, CLASHES, EVERY, INSTRUCTIONS, PLANTED


def named(names: list[str], graph: str = "g") -> onnx.ModelProto:
    """Each name is that of an input, a node, its documentation and metadata; those of outputs have a prime."""
    names = [n for n in dict.fromkeys(names) if n]
    nodes, inputs, outputs = [], [], []
    for k, name in enumerate(names):
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
        outputs.append(helper.make_tensor_value_info(f"{name}'", TensorProto.FLOAT, [2]))
        node = helper.make_node(["Relu", "Softmax"][k % 2], [name], [f"{name}'"], name=name, doc_string=name)
        node.metadata_props.add(key=name, value=name)
        nodes.append(node)
    made = helper.make_graph(nodes, graph, inputs, outputs, doc_string=graph)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name=graph)
    model.doc_string = graph
    model.metadata_props.add(key=graph, value=graph)
    return model


def check_text(text: str, generated: bool = True) -> None:
    assert text.isascii()
    assert "\\\n" not in text.replace(" \\\n", "") or not generated
    assert not re.search(r"\?\?[=/'()!<>-]", text)
    for comment in re.findall(r"/\*.*?\*/", text, re.DOTALL):
        assert "/*" not in comment[2:]


@pytest.mark.parametrize("name", INSTRUCTIONS, ids=range(len(INSTRUCTIONS)))
def test_comments_and_strings_hold_what_is_left(name: str) -> None:
    emitted = generate(load(named([name], graph=name)))
    for text in (emitted.source, emitted.header):
        check_text(text)
        assert "system(" not in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


@pytest.mark.slow
def test_compiled_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One program with every name at once, by every way in which it is compiled."""
    monkeypatch.chdir(tmp_path)
    model = load(named(list(EVERY), graph=INSTRUCTIONS[0]))
    inputs = complete_inputs(model)
    compiled = CModel(model).run(inputs)
    for name, array in inputs.items():
        wanted = [np.maximum(array, 0), np.exp(array) / np.exp(array).sum()]
        found = compiled[f"{name}'"]
        assert min(np.abs(found - w).max() for w in wanted) < 1e-6
    folder = tmp_path / "out"
    write_program(model, folder, isas=[])
    files = {"model.h", "model.c", "model_weights.c", "model_example.c", "main.c", "CMakeLists.txt"}
    assert {p.name for p in folder.iterdir()} == files
    for path in folder.iterdir():
        check_text(path.read_text("utf-8"), generated=path.name != "main.c")
    sources = sorted(str(p) for p in folder.glob("*.c"))
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-trigraphs"]
    subprocess.run([*find_compiler(), *strict, *sources, "-lm", "-o", "check"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert [line[-6:] for line in done.stdout.splitlines()] == ["PASSED"] * len(inputs)
    assert not list(tmp_path.rglob(PLANTED))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
@pytest.mark.parametrize("name", [n for n in INSTRUCTIONS if "execute_process" in n or "$" in n])
def test_cmake_obeys_nothing(name: str, tmp_path: Path) -> None:
    write_program(load(named([name], graph=name)), tmp_path / "out", isas=[])
    subprocess.run(["cmake", "-S", tmp_path / "out", "-B", tmp_path / "build"], cwd=tmp_path, check=True, timeout=100)
    assert not list(tmp_path.rglob(PLANTED))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_header_is_cplusplus(tmp_path: Path) -> None:
    emitted = generate(load(named([*CLASHES, "class", "co_await", "concept", "char8_t", "this"])))
    (tmp_path / "model.h").write_text(emitted.header, "utf-8")
    (tmp_path / "use.cpp").write_text(
        '#include <cmath>\n#include <cstdio>\n#include <cfloat>\n#include "model.h"\n', "utf-8"
    )
    command = ["g++", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", "use.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.slow
def test_macros_of_the_headers_are_no_arguments(tmp_path: Path) -> None:
    """Every macro that a generated program can see, as the name of an input."""
    headers = "float math stddef stdint stdio stdlib string time immintrin"
    text = "".join(f"#include <{h}.h>\n" for h in headers.split() if h != "immintrin")
    done = subprocess.run(
        [*find_compiler(), "-std=c11", "-O3", "-dM", "-E", "-"],
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    macros = sorted(set(re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE)))
    assert len(macros) > 300
    emitted = generate(load(named(macros)))
    (tmp_path / "model.h").write_text(emitted.header, "utf-8")
    (tmp_path / "model.c").write_text(emitted.source, "utf-8")
    subprocess.run([*find_compiler(), "-std=c11", "-Werror", "-fsyntax-only", "model.c"], cwd=tmp_path, check=True)


@pytest.mark.slow
def test_one_macro_an_argument_and_none_of_the_programs_own() -> None:
    header = generate(load(named(list(EVERY)))).header
    sizes = re.findall(r"#define (\w+_SIZE) ", header)
    assert len(sizes) == len(set(sizes))
    (arena,) = re.findall(r"#define MODEL_ARENA_SIZE (\d+)", header)
    assert int(arena) > 2


# ---- calls of vendors -----------------------------------------------------------------------------------------


def with_call(call: str, target: str = "kiwi") -> ir.Model:
    """A model as somebody may write it by hand: a composite's function, and a call of it with C in its metadata."""
    domain = "eqsat.kiwi.composite"
    function = helper.make_function(
        domain, "act", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    function.metadata_props.add(key="eqsat.target", value=target)
    node = helper.make_node("act", ["x"], ["y"], domain=domain, name="n")
    for key, value in (("eqsat.call", call), ("eqsat.target", target), ("eqsat.composite", "act")):
        node.metadata_props.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    made = helper.make_model(
        helper.make_graph([node], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)],
        functions=[function],
        ir_version=10,
    )
    return load(made)


def test_a_plain_call_of_a_file_is_written() -> None:
    assert 'kiwi_act(x0, 2, "SAME", y0);' in generate(with_call('kiwi_act({0}, 2, "SAME", {result})')).source


@pytest.mark.parametrize(
    "call",
    [
        f'system("touch {PLANTED}")',
        'kiwi_act({0});\n#endif\nsystem("x");\n#ifdef X\n',
        'kiwi_act({0}, system("x"))',
        'kiwi_act({0}, ({{ system("x"); 1; }}))',
        "kiwi_act({0}); abort()",
        "kiwi_act({0}) + abort()",
        "kiwi_act(*(int *)0 = 1)",
        'kiwi_act("\\")',
        'kiwi_act("a??/")',
        'kiwi_act("%n")',
        "kiwi_act(__FILE__)",
        "kiwi_act\n({0})",
        "kiwi_act({0}, /* */ 1)",
        "kiwi({0})",
        "do { kiwi_act({0}); } while (1)",
        "KIWI_ACT({0}),",
        "kiwi_act({0}) \\",
        "kiwi_act(" + "1," * 4000 + "1)",
        "",
    ],
)
def test_other_text_of_a_file_is_refused(call: str) -> None:
    with pytest.raises(CodegenError, match="one function of its target"):
        generate(with_call(call))


@pytest.mark.parametrize("target", ["posix", "Pthread", "", "a b", "ki-wi", "x*/", "é", "s(ystem|x"])
def test_targets_of_files_are_no_patterns_and_no_systems(target: str) -> None:
    assert not is_plain_call(f"{target}_spawn()", target)
    with pytest.raises(CodegenError, match="one function of its target"):
        generate(with_call(f"{target}_spawn()", target))


def test_what_a_target_file_says_is_c_as_it_stands(tmp_path: Path) -> None:
    """Its author is trusted, and so is a model of this process that has the call from there; a file is not."""
    (tmp_path / "kiwi.target").write_text(
        "target kiwi\n"
        '    summary "an accelerator"\n'
        "    peak float32 = 4e13\n"
        "    bandwidth = 8e11, launch = 1e-9, dispatch = 1e-9\n"
        "    link bandwidth = 4e11, latency = 1e-9\n"
        "    composite lrelu : exact\n"
        "        let c = Relu(x)\n"
        "        Exp(c)\n"
        '        call "do {{ two({x}); calls({y}); }} while (0)"\n',
        "utf-8",
    )
    x = eqsat.input("x", (4, 64))
    model = eqsat.graph(eqsat.op.Exp(eqsat.op.Relu(x)))
    result = eqsat.optimize(model, targets=[tmp_path / "kiwi.target"])
    assert "do { two(x0); calls(" in generate(result.model).source
    result.save(tmp_path / "model.onnx")
    with pytest.raises(CodegenError, match="one function of its target"):
        generate(eqsat.load(tmp_path / "model.onnx"))


def test_targets_that_differ_in_case_have_files_of_their_own() -> None:
    from eqsat.codegen.c_names import unique

    assert unique(["kiwi", "KIWI", "Kiwi", "ki-wi", "dnnl"], "t") == ["kiwi", "KIWI_2", "Kiwi_3", "ki_wi", "dnnl"]


@pytest.mark.parametrize("name", [*BYTES[1:], *INSTRUCTIONS], ids=lambda name: ascii(name)[:30])
def test_oneDNN_gets_names_as_text(name: str) -> None:
    from eqsat.text import c_string

    assert re.fullmatch(r'"[0-9A-Za-z _.,:;+=()\[\]<>/-]{1,160}"', c_string(name))
