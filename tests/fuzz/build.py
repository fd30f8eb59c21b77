"""Builds the program of the search in one process (in_process.py): tests/fuzz/c, the executor and the simulator."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.fuzz.grammar import write_grammar
from tests.races.build import LAYOUT, SESSIONS

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "shim"))

from native import GEN, Toolchain, is_older  # noqa: E402

HERE = Path(__file__).parent
INCLUDES = [ROOT / name for name in ("daemon/executor", "daemon/vgpusim/device", "protocol/c", "build/gen")]


def write_driver(path: Path) -> None:
    """VGT_DRIVER(name, (parameters), (arguments)) for each function of struct vgx_backend that can fail."""
    text = (GEN / "vgx_backend.h").read_text()
    lines = []
    for name, parameters in re.findall(r"^  CUresult \(\*(\w+)\)\(([^()]*)\);", text, re.MULTILINE):
        of = [] if parameters == "void" else [re.findall(r"\w+", each)[-1] for each in parameters.split(",")]
        lines.append(f"VGT_DRIVER({name}, ({' '.join(parameters.split())}), ({', '.join(of)}))\n")
    assert len(lines) > 200
    if not path.exists() or path.read_text() != "".join(lines):
        path.write_text("".join(lines))


# Whether a session's threads ended in time, the program learns from this call (vgt_fuzz_session.c).
ENDED = "-Wl,--wrap=vgx_handles_free"
SHORT_OF_MEMORY = [f"-Wl,--wrap={name}" for name in ("vgx_charge_add", "vgx_charge_map", "writev")]  # vgt_fuzz_short.c
NVML = "-Wl,--export-dynamic-symbol=nvml*"  # vgt_fuzz_nvml.c, which is loaded as a library


def build(name: str, *, sanitize: str = "", more: tuple[str, ...] = (), all_traced: bool = False) -> Path:
    """Build the program; return its path. `more`: options for the executor's files, or with all_traced for the
    simulator's, too. Raises subprocess.CalledProcessError."""
    toolchain = Toolchain.from_environment(sanitize, whole_program=False)
    # With so much instrumentation the compiler wrongly warns of uninitialised variables.
    layout = (*LAYOUT, *SESSIONS) if "thread" in sanitize else ()
    toolchain = replace(toolchain, cflags=(*toolchain.cflags, "-Wno-maybe-uninitialized", *layout))
    folder = toolchain.objects(name)
    write_grammar(folder / "vgt_grammar.h")
    write_driver(folder / "vgt_driver.h")
    includes = [*INCLUDES, folder, HERE / "c"]
    executor = [*sorted((ROOT / "daemon/executor").glob("*.c")), *sorted(GEN.glob("vgx_*.c"))]
    others = [*sorted((ROOT / "daemon/vgpusim/device").glob("*.c")), ROOT / "tests/vgpusim/device/vgt_kernels.c"]
    traced = replace(toolchain, cflags=(*toolchain.cflags, *(flag for flag in more if not flag.startswith("-Wl"))))
    if all_traced:
        executor, others = [*executor, *others], []
    objects = [*traced.compile(executor, folder, includes).values()]
    defined = replace(toolchain, cflags=(*toolchain.cflags, *(flag for flag in more if flag.startswith("-D"))))
    objects += defined.compile([*others, *sorted((HERE / "c").glob("*.c"))], folder, includes).values()
    target = folder / "vgt_fuzz"
    if is_older(target, objects):
        flags = [
            *toolchain.cflags,
            ENDED,
            *SHORT_OF_MEMORY,
            NVML,
            *(flag for flag in more if flag == "--coverage" or flag.startswith("-Wl")),
        ]
        subprocess.run([*toolchain.compiler, *flags, *map(str, objects), "-ldl", "-lm", "-o", str(target)], check=True)
    return target


WRAPPED = ["malloc", "calloc", "realloc", "mmap", "memfd_create", "pthread_create", "sendmsg", "fallocate", "mprotect"]
FAILING = [*WRAPPED, "driver"]  # the last: all functions of the driver's table together

FAULTS = ("-DVGT_FAULTS", *(f"-Wl,--wrap={name}" for name in WRAPPED))
