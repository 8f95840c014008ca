"""Arguments that are not numbers, are not sizes, or are too many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.hostile.case import add, write
from tests.hostile.sizes import declared


def _arguments(name: str, *arguments: str) -> None:
    def build(folder: Path) -> Sequence[str]:
        write(folder, declared("N", 4))
        return [arguments[0], "model.onnx", *arguments[1:]]

    add(f"arguments-{name}", build, refused=True)


_arguments("time_limit_nan", "optimize", "--dim", "N=2", "--time-limit", "nan")
_arguments("time_limit_zero", "optimize", "--dim", "N=2", "--time-limit", "0")
_arguments("time_limit_negative", "run", "--dim", "N=2", "--time-limit", "-1")
_arguments("time_limit_of_run_nan", "run", "--dim", "N=2", "--time-limit", "nan")
_arguments("memory_limit_text", "run", "--dim", "N=2", "--memory-limit", "much")
_arguments("memory_limit_zero", "run", "--dim", "N=2", "--memory-limit", "0")
_arguments("memory_limit_negative", "optimize", "--dim", "N=2", "--memory-limit", "-8GB")
_arguments("memory_limit_infinite", "optimize", "--dim", "N=2", "--memory-limit", "inf")
_arguments("memory_limit_of_a_byte", "run", "--dim", "N=2", "--memory-limit", "1")
_arguments("steps_zero", "run", "--dim", "N=2", "--steps", "0")
_arguments("steps_one", "run", "--dim", "N=2", "--steps", "1")
_arguments("dimension_of_10_to_30", "run", "--dim", f"N={10**30}")
_arguments("dimension_of_10_to_12", "run", "--dim", f"N={10**12}")
_arguments("dimension_of_many_digits", "run", "--dim", "N=" + "9" * 6000)
_arguments("dimension_negative", "run", "--dim", "N=-1")
_arguments("iterations_negative", "optimize", "--dim", "N=2", "--iterations", "-1")
_arguments("target_zero", "optimize", "--dim", "N=2", "-t", "/dev/zero")
_arguments("rules_zero", "optimize", "--dim", "N=2", "-r", "/dev/zero")
_arguments("path_with_bell", "compare", "\x07.onnx")
