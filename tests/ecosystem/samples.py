"""`python tests/ecosystem/samples.py CHECKOUT [NAME...]` renews docs/samples.md: cuda-samples on the simulator.

Each sample is compiled by nvcc from PyPI for compute_90, and run under `vgpu run` in its own folder. Nothing of the
checkout is kept in this repository.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.ecosystem.requirements import CUBLAS_WITH_PTX, NPP, REQUIREMENTS  # noqa: E402
from tests.programs.toolchain import cuda13  # noqa: E402
from tests.pypi import SITE, environment, packages  # noqa: E402

DOCUMENT = ROOT / "docs/samples.md"
BUILT = ROOT / "build/samples"
BUILD_TIMEOUT_S, RUN_TIMEOUT_S = 900, 300
WAIVED = 2  # a sample's exit code where the device lacks what it shows
HEAD = """# NVIDIA's samples on the simulator

`python tests/ecosystem/samples.py CHECKOUT` writes this table: each program of a checkout of NVIDIA's cuda-samples,
compiled by nvcc 13.0 with PTX for compute_90, run on the `forward` device. Those that draw (OpenGL, Vulkan, EGL) or
need another system or compiler are left out. The verdict is the program's own.

| sample | builds | runs | verdict | time | renewed |
|---|---|---|---|---|---|
"""
ELSEWHERE = re.compile(
    r"find_package\((OpenGL|GLUT|Vulkan|EGL|MPI|OpenMP|FreeImage|OpenCV)|NvSci|add_subdirectory|GLES", re.I
)
LIBRARY = re.compile(r"CUDA::(\w+)|\b(nvrtc|cublas|cufft|cusolver|cusparse|curand|nvJitLink|cuda)\b")


def samples(checkout: Path) -> dict[str, Path]:
    """Folders of programs that build here, by name."""
    found = {}
    for lists in sorted((checkout / "Samples").glob("[0-6]_*/*/CMakeLists.txt")):
        if "add_executable" in lists.read_text() and not ELSEWHERE.search(lists.read_text()):
            found[lists.parent.name] = lists.parent
    return found


def library_folders() -> list[Path]:
    sites = [environment(*CUBLAS_WITH_PTX) / SITE, environment(*REQUIREMENTS["cupy"]) / SITE, packages(*NPP)]
    return [site / "nvidia/cu13" for site in sites]


def linked(text: str) -> list[str]:
    """Options for the libraries that a CMakeLists.txt links; wheels have them without their unversioned names."""
    names = {
        name for match in LIBRARY.findall(re.sub(r"[\s\S]*?target_link_libraries", "", text, count=1)) for name in match
    }
    options = []
    for name in sorted(names - {"", "cudart", "cudart_static", "cuda", "cuda_driver", "cudadevrt"}):
        found = [path for folder in library_folders() for path in sorted((folder / "lib").glob(f"lib{name}.so.*"))]
        options += [f"-Xlinker={path}" for path in found[:1]]
    if names & {"cuda", "cuda_driver"}:
        options.append(f"-Xlinker={ROOT / 'build/guest/libcuda.so'}")
    return [*options, "-lcudadevrt"] if "cudadevrt" in names else options


def build(checkout: Path, folder: Path) -> tuple[Path | None, str]:
    """The program, or none and why."""
    toolchain, lists = cuda13(), (folder / "CMakeLists.txt").read_text()
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / folder.name
    named = re.search(r"add_executable\(\s*\S+\s+([^)]*)\)", lists)
    sources = [str(folder / name) for name in (named[1].split() if named else ()) if re.search(r"\.(cu|cpp|c)$", name)]
    includes = [
        folder,
        checkout / "Common",
        toolchain.root / "include",
        *(path / "include" for path in library_folders()),
    ]
    command = [
        str(toolchain.root / "bin/nvcc"),
        "-std=c++17",
        "-O2",
        "-gencode",
        "arch=compute_90,code=compute_90",
        "-rdc=true",
    ]
    command += [
        "--extended-lambda",
        "-Wno-deprecated-gpu-targets",
        f"-L{toolchain.library_folder()}",
        "-Xlinker",
        "--allow-shlib-undefined",
    ]
    command += [f"-I{path}" for path in includes] + ["-o", str(program), *sources, *linked(lists)]
    for name, kind in set(re.findall(r"(\w+)\.(fatbin|ptx)\b", lists)):  # what a sample loads from its folder
        source = folder / f"{name.removesuffix('64')}.cu"
        if source.exists():
            made = [command[0], f"-{kind}", "-arch=compute_90", *(f"-I{path}" for path in includes)]
            made += ["-o", str(folder / f"{name}.{kind}"), str(source)]
            subprocess.run(made, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no end in {BUILD_TIMEOUT_S} s"
    if done.returncode:
        errors = [
            line for line in done.stderr.splitlines() if "error" in line or "undefined" in line
        ] or done.stderr.splitlines()
        return None, (errors or ["?"])[0].strip()[-120:]
    return program, ""


def run(program: Path, folder: Path) -> tuple[str, str]:
    """Exit code, and the program's own verdict."""
    paths = ":".join(str(path / "lib") for path in library_folders())
    variables = {**os.environ, "LD_LIBRARY_PATH": paths, "VGPU_LOG": "error"}
    command = [str(Path(sys.executable).parent / "vgpu"), "run", "--timeout", str(RUN_TIMEOUT_S), "--", str(program)]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RUN_TIMEOUT_S + 60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no", f"no end in {RUN_TIMEOUT_S} s"
    text = (done.stdout + done.stderr).replace(f"{folder}/", "")
    if done.returncode == 0:
        return "yes", "wrong" if re.search(r"\bFAIL(ED)?\b|Test failed", text) else "passed"
    if done.returncode == WAIVED:
        return "waived", last_word(text)
    return f"exit {done.returncode}", last_word(text)


def last_word(text: str) -> str:
    """The line that says most of why a program ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"vgpu\[|error|fail|not supported|waiv", line, re.I)] or lines[-1:]
    return (telling[0] if telling else "silent").replace("|", "/")[:140]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    found = samples(options.checkout.resolve())
    text = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    rows = {name: row for row, name in re.findall(r"^(\| (\S+) \|.*)$", text, re.MULTILINE)}
    for name in options.names or found:
        start = time.monotonic()
        program, why = build(options.checkout.resolve(), found[name])
        built, ran, verdict = ("yes", *run(program, found[name])) if program else ("no", "", why.replace("|", "/"))
        day = datetime.now(UTC).date().isoformat()
        rows[name] = f"| {name} | {built} | {ran} | {verdict} | {time.monotonic() - start:.0f} s | {day} |"
        print(rows[name], flush=True)
        DOCUMENT.write_text(HEAD + "".join(f"{rows[each]}\n" for each in sorted(found) if each in rows))


if __name__ == "__main__":
    main()
