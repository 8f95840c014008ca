"""The C compiler: found, asked for its version, and run once for each text.

Shared libraries are kept in the user's cache under the hash of their inputs and of their content. They are put there by
renaming, so that processes that compile the same model at the same time never see half a file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from eqsat.codegen import cache
from eqsat.codegen.isa import ALL, PORTABLE, Isa
from eqsat.errors import CodegenError
from eqsat.files import cache_folder

FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""How generated code is compiled: C's own arithmetic, without features that the code does not use (errno,
floating-point traps).
"""


def find_compiler() -> list[str]:
    """The command of the compiler: ``$CC``, else ``cc``, ``gcc`` or ``clang``.

    Raises:
        CodegenError: There is no compiler.
    """
    named = os.environ.get("CC", "").strip()
    candidates = [shlex.split(named)] if named else [["cc"], ["gcc"], ["clang"]]
    for command in candidates:
        if command and shutil.which(command[0]):
            return command
    raise CodegenError(
        "a C compiler is required to run a model as C",
        actual=f"CC={named!r}, which is not a command" if named else "neither cc nor gcc nor clang",
        hint='install gcc or clang, set CC, or run with numpy: backend="numpy"',
    )


@lru_cache(maxsize=8)
def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, encoding="utf-8", check=False)
    return done.stdout


@lru_cache(maxsize=1)
def native_isas() -> tuple[Isa, ...]:
    """The best instruction set of this machine, and no others, which would be compiled in vain."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return (PORTABLE,)
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return tuple(isa for isa in ALL if isa.vectors)
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    flags = {flag.replace("_", "") for flag in line.split()}
    best = next((isa for isa in ALL if isa.x86 and flags.issuperset(isa.features)), None)
    return (PORTABLE,) if best is None else (best,)


def compile_library(files: dict[str, str], *, flags: tuple[str, ...] = (), libraries: tuple[str, ...] = ()) -> Path:
    """Compiles C files to a shared library, or finds it in the cache.

    Args:
        files: Text by file name; those that end in ``.c`` are compiled.
        flags: Further flags.
        libraries: Further libraries for the linker.

    Raises:
        CodegenError: There is no compiler, it fails, or the library cannot be written.
    """
    command = find_compiler()
    arguments = [*FLAGS, *flags, "-fPIC", "-shared"]
    key = hashlib.sha256()
    for part in (
        " ".join(command),
        _version(tuple(command)),
        f"{sys.platform} {platform.machine()}",
        " ".join((*arguments, *libraries)),
        *sum(sorted(files.items()), ()),
    ):
        key.update(part.encode() + b"\0")
    folder = cache_folder()
    suffix = ".dll" if sys.platform == "win32" else ".so"
    known = key.hexdigest()[:32]
    most = cache.limit()
    library = cache.find(folder, known, suffix)
    if library is not None:
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
            for name, text in files.items():
                (Path(work) / name).write_text(text, "utf-8", newline="\n")
            built = Path(work) / f"built{suffix}"
            sources = [name for name in sorted(files) if name.endswith(".c")]
            done = subprocess.run(
                [*command, *arguments, *sources, "-o", built.name, "-lm", *libraries],
                cwd=work, capture_output=True, encoding="utf-8", errors="replace", check=False,
            )  # fmt: skip
            if done.returncode:
                raise CodegenError(
                    "a C compiler that accepts the generated code is required",
                    place=" ".join(command),
                    actual=f"exit code {done.returncode}",
                    excerpt="\n".join(done.stderr.splitlines()[:12]),
                    hint="`eqsat doctor` tries the compiler; the environment variable CC names another one",
                )
            library = cache.keep(built, folder, known, suffix)
        cache.prune(folder, most)
    except OSError as error:
        raise CodegenError(
            "a folder for compiled models is required",
            place=str(folder),
            actual=str(error),
            hint="set EQSAT_CACHE to one that can be written to",
        ) from error
    return library
