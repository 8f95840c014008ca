"""oneDNN on this machine: whether a program can be compiled for it and linked with it, and in which version."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from eqsat.errors import CodegenError

LIBRARIES = ("-ldnnl",)
"""Libraries to link."""
INSTALL = "apt-get install libdnnl-dev"
"""The command that installs it on Debian and Ubuntu."""

_PROBE = """
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
int main(void) {
    const dnnl_version_t *v = dnnl_version();
    printf("%d.%d.%d\\n", v->major, v->minor, v->patch);
    return v->major == DNNL_VERSION_MAJOR ? 0 : 1;
}
"""


def require_onednn(compiler: Sequence[str]) -> str:
    """The version of oneDNN.

    Args:
        compiler: Command of the C compiler.

    Raises:
        CodegenError: The compiler does not find oneDNN.
    """
    version, reason = _probe(tuple(compiler))
    if not version:
        raise CodegenError(
            "oneDNN's header and library are required to call it", actual=reason, hint=f"install them: {INSTALL}"
        )
    return version


@lru_cache(maxsize=4)
def _probe(command: tuple[str, ...]) -> tuple[str, str]:
    """Version, or, without one, the last line of the compiler's or the program's output."""
    with tempfile.TemporaryDirectory(prefix="onednn-") as folder:
        (Path(folder) / "probe.c").write_text(_PROBE, "utf-8")
        steps = [[*command, "probe.c", "-o", "probe", *LIBRARIES], ["./probe"]]
        output = ""
        for step in steps:
            try:
                done = subprocess.run(
                    step, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", check=False
                )
            except OSError as error:
                return "", str(error)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line or "cannot" in line]
                return "", (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0].strip()
            output = done.stdout.strip()
    return output, ""
