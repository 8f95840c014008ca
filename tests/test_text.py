"""What is left of text for each medium: nothing that is obeyed or hidden, and names that people know again."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import pytest

from eqsat.codegen.compiler import find_compiler
from eqsat.errors import ModelError
from eqsat.text import LONGEST, NAME, c_bytes, c_string, json_text, name_of, plain, shown, shown_lines
from tests.hostile_names import EVERY

_ODD = (0xD800, 0xDFFF, 0xFEFF, 0xFFFE, 0x1F642, 0xE0041, 0x10FFFF)
UNICODE = [chr(c) for c in (*range(0x300), *range(0x2000, 0x2070), *_ODD)]


@pytest.mark.parametrize("text", ["/model/layer1.0/conv/Conv_output_0", "x[3], y = (1 + 2); a<b>", "A-b_c:d"])
def test_usual_names_stay(text: str) -> None:
    assert plain(text) == shown(text) == text
    assert c_string(text) == f'"{text}"'


def test_c_gets_letters_digits_and_a_few_marks() -> None:
    for text in (*EVERY, *UNICODE):
        left = plain(text)
        assert left.isascii() and left.isprintable() and len(left) <= LONGEST
        assert not set(left) & set("*\\?\"'#$@{}%&|!~^`")
    assert plain("x" * 1000).endswith("x...")


def test_people_see_everything_and_nothing_is_obeyed() -> None:
    for text in (*EVERY, *UNICODE):
        assert shown(text).isprintable() or shown(text) == ""
        assert shown_lines(text).replace("\n", "").replace("\t", "").isprintable() or not text
        assert shown(shown(text)) == shown(text)
    assert shown("é中文🙂 [red]") == "é中文🙂 [red]"
    assert shown("\x1b[2J\u202e\ud800\U000e0041\n") == "\\x1b[2J\\u202e\\ud800\\U000e0041\\n"
    assert shown_lines("a\n\tb\r") == "a\n\tb\\r"


def test_json_is_printable_and_says_the_same() -> None:
    value = {name: [name, {"é": name}] for name in (*EVERY, *UNICODE)}
    text = json_text(value)
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()
    assert "é中文🙂" in text


def test_strings_of_c_are_exact(tmp_path: Path) -> None:
    texts = [t.replace("\0", "") for t in (*EVERY, *UNICODE) if t[:1] < "\ud800" or t[:1] > "\udfff"]
    lines = ",\n".join(map(c_bytes, texts))
    (tmp_path / "t.c").write_text(f"const char *texts[] = {{\n{lines}\n}};\n", "ascii")
    command = [*find_compiler(), "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-trigraphs", "t.c", "-o", "t.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    found = (ctypes.c_char_p * len(texts)).in_dll(ctypes.CDLL(str(tmp_path / "t.so")), "texts")
    assert [b.decode() for b in found if b is not None] == texts


def test_errors_can_be_printed() -> None:
    for name in (*EVERY, *UNICODE):
        error = ModelError("a name is required", place=name, actual=name, hint=name, excerpt=name)
        assert str(error).replace("\n", "").replace("\t", "").isprintable()
        assert str(error).splitlines()[0].startswith(name_of(name) or "a name")


def test_names_that_nobody_would_read_are_cut() -> None:
    assert name_of("x" * NAME) == "x" * NAME
    long = name_of("\x1b" * 1_000_000 + "end")
    assert len(long) < 5 * NAME and "(1,000,003 characters)" in long and long.endswith("end")
    assert len(str(ModelError("x" * 10**6, place="x" * 10**6, actual="x" * 10**6))) < 4 * NAME
