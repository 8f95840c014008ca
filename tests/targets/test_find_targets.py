"""Targets by name, path and composite string."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat.errors import TargetError
from eqsat.rules.reader import read_text
from eqsat.targets.find_targets import list_targets, load_targets, read_target_file

NPU = """
target npu
    peak float32 = 1e12, int8 = 4e12
    bandwidth = 1e10, launch = 10e-6
    link bandwidth = 1e9, latency = 2e-6
    supports Relu
"""
HOST = """
host arm
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-6
    supports *
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my, own npu.target"
    path.write_text(NPU, "utf-8")
    return path


def names(targets: object) -> list[str]:
    return [t.name for t in load_targets(targets)]


def test_the_host_is_always_there_and_first() -> None:
    assert names(()) == ["cpu"]
    assert names("cpu") == ["cpu"]
    assert names("dnnl") == ["cpu", "dnnl"]
    assert names(["dnnl", "cpu", "ccompiler"]) == ["cpu", "dnnl", "ccompiler"]
    assert names("ccompiler, dnnl, cpu") == ["cpu", "ccompiler", "dnnl"]
    assert names(["dnnl", "c"]) == ["c", "dnnl"]
    assert {name for name in list_targets() if load_targets(name)[0].name == name} == {"c", "cpu", "ort"}


def test_the_page_describes_each_shipped_target() -> None:
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text("utf-8")
    table = page.split("## The shipped targets")[1].split("\n\n")[1]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(list_targets())


def test_the_host_by_itself(tmp_path: Path) -> None:
    (tmp_path / "arm.target").write_text(HOST, "utf-8")
    assert [t.name for t in load_targets("dnnl", host="c")] == ["c", "dnnl"]
    assert [t.name for t in load_targets((), host=tmp_path / "arm.target")] == ["arm"]
    assert [t.name for t in load_targets("dnnl", host="c -launch=1e-6")] == ["c", "dnnl"]
    with pytest.raises(TargetError, match=r"one host is required.*`c` and `cpu`"):
        load_targets("cpu", host="c")
    with pytest.raises(TargetError, match=r"a host is required.*`dnnl`, an accelerator"):
        load_targets((), host="dnnl")


def test_paths_also_with_commas_and_blanks(file: Path) -> None:
    assert names(file) == names(str(file)) == names([str(file)]) == ["cpu", "npu"]
    assert names([file, "dnnl"]) == ["cpu", "npu", "dnnl"]


def test_a_path_in_a_composite_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain.target").write_text(NPU, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert names("plain.target, dnnl") == names("./plain.target -launch=1e-6, dnnl") == ["cpu", "npu", "dnnl"]
    assert names(f"{tmp_path}/plain.target -launch=1e-6") == ["cpu", "npu"]


def test_targets_already_read() -> None:
    (npu,) = read_text(NPU, "npu.target").targets
    assert load_targets([npu])[1] is npu
    assert load_targets(npu)[1] is npu


def test_another_host(tmp_path: Path) -> None:
    (tmp_path / "arm.target").write_text(HOST, "utf-8")
    assert names([tmp_path / "arm.target", "dnnl"]) == names(["dnnl", tmp_path / "arm.target"]) == ["arm", "dnnl"]
    with pytest.raises(TargetError, match=r"one host is required.*`cpu`"):
        load_targets([tmp_path / "arm.target", "cpu"])


def test_several_targets_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "all.target").write_text(HOST + NPU, "utf-8")
    assert names(tmp_path / "all.target") == ["arm", "npu"]
    with pytest.raises(TargetError, match="options need a file with one target"):
        load_targets(f"{tmp_path / 'all.target'} -launch=1e-6")


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ("-launch=5e-6", {"launch": 5e-6}),
        ("--bandwidth=1e9 -dispatch=3e-5", {"bandwidth": 1e9, "dispatch": 3e-5}),
        ("-link.bandwidth=2e9", {"link_bandwidth": 2e9}),
        ("-link-latency=0", {"link_latency": 0.0}),
        ("-link_latency=1e-9", {"link_latency": 1e-9}),
        ("-latency=1e-9", {"link_latency": 1e-9}),
        ("-peak=7e9", {"peak": (("float32", 7e9), ("int8", 7e9))}),
        ("-peak.int8=8e9", {"peak": (("float32", 1e12), ("int8", 8e9))}),
        ("-launch=1 -launch=2", {"launch": 2.0}),
    ],
)
def test_options_change_numbers(tmp_path: Path, options: str, changed: dict[str, object]) -> None:
    path = tmp_path / "npu.target"
    path.write_text(NPU, "utf-8")
    (npu,) = read_target_file(path)
    assert load_targets(f"{path} {options}, cpu")[1] == replace(npu, **changed)
    assert load_targets([f"{path}  {options}"])[1] == replace(npu, **changed)


def test_options_of_the_host() -> None:
    host, accelerator = load_targets("dnnl, cpu -launch=3e-6")
    assert (host.launch, accelerator.launch) == (3e-6, 2e-6)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("dnn", "did you mean `dnnl`"),
        ("quantum", "shipped targets: c, ccompiler, cpu, dnnl"),
        ("dnnl, dnnl", "named once; got `dnnl` twice"),
        (["dnnl", "dnnl -launch=1"], "named once"),
        ("dnnl -lunch=1", "did you mean `launch`"),
        ("dnnl -speed=1", "its numbers: bandwidth, launch, dispatch, link.bandwidth, link.latency, peak, peak.float32"),
        ("dnnl -peak.int16=1", "got `-peak.int16`"),
        ("dnnl -launch=fast", "dnnl -launch: a number is required, as in `-launch=5e-6`; got `fast`"),
        ("dnnl -launch", "got nothing"),
        ("dnnl -launch=nan", "a number is required"),
        ("dnnl -launch=-1", "launch must be a number of seconds, 0 or more; got -1"),
        ("dnnl -bandwidth=0", "bandwidth must be more than 0 byte/s; got 0"),
        ("dnnl,", "single commas"),
        ("", "single commas"),
        ("-launch=1", "a target before its options"),
        ("no/such.target", "no/such.target: a target file is required; got no such file"),
        ("/dev/zero", "/dev/zero: a target file is required; got a device or the like"),
        (Path("/dev/zero"), "/dev/zero: a target file is required; got a device or the like"),
        ("/", "/: a target file is required; got Is a directory"),
        ([3], "by name, by path or as read from a file is required; got 3"),
        (None, "got None"),
    ],
)
def test_wrong_requests(asked: object, message: str) -> None:
    with pytest.raises(TargetError) as error:
        load_targets(asked)
    assert message in str(error.value)
    assert "\n" not in message


def test_a_file_without_target(tmp_path: Path) -> None:
    path = tmp_path / "empty.target"
    path.write_text("# nothing\n", "utf-8")
    with pytest.raises(TargetError, match="a file that declares a target is required"):
        load_targets(path)


def test_an_accelerator_must_not_take_the_hosts_name(tmp_path: Path) -> None:
    path = tmp_path / "x.target"
    path.write_text(NPU.replace("target npu", "target cpu"), "utf-8")
    with pytest.raises(TargetError, match="must not be called `cpu`"):
        load_targets(path)
