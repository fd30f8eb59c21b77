"""`python tests/ecosystem/samples.py CHECKOUT [NAME...]` updates docs/samples.md: cuda-samples on the simulator.

Each sample is compiled by nvcc from PyPI for compute_90, and run under `vgpu run` in its own folder. What was built is
kept in build/samples, and built again when the sources or options change. Nothing of the checkout is kept in this
repository.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.conftest import VGPU, merged  # noqa: E402
from tests.ecosystem.requirements import CUBLAS_WITH_PTX, NPP, REQUIREMENTS  # noqa: E402
from tests.programs.toolchain import cuda13  # noqa: E402
from tests.pypi import INSTALLED, SITE, environment, packages  # noqa: E402

OTHERS = (("nvidia-cuda-profiler-api==13.0.*",), ("nvidia-nvjpeg==13.*",), ("nvidia-nvtx==13.*",))
IMPLIED = {"cusolver": "cusparse"}  # libraries that CMake's CUDA package links implicitly
DOCUMENT = ROOT / "docs/samples.md"
BUILT = ROOT / "build/samples"
BUILD_TIMEOUT_S, RUN_TIMEOUT_S = 600, 400
OPTIONS = {"UnifiedMemoryPerf": ("-kernel-iterations=2",)}  # a sample's own switches; HEAD names them
WAIVED = 2  # exit code of a sample whose feature the device lacks
RIGHT, REFUSED, WRONG, SLOW, UNBUILT = "right", "refused", "wrong", "no end", "does not build"
HEAD = """# NVIDIA's samples on the simulator

`python tests/ecosystem/samples.py CHECKOUT` writes this table: each program of a checkout of
NVIDIA's cuda-samples, compiled by nvcc 13.0 with PTX for compute_90, run on two `forward` devices.
Those that draw (OpenGL, Vulkan, EGL) or need another system, compiler or library (MPI, FreeImage)
are left out. A program's own verdict and exit code count; one that gives no end did not end in the
time that its row names, which is {limit} s today. UnifiedMemoryPerf multiplies each matrix 2 times,
not 20 (`-kernel-iterations`). {counts}.

| sample | result | why | time | renewed |
|---|---|---|---|---|
"""
ELSEWHERE = re.compile(
    r"find_package\((OpenGL|GLUT|Vulkan|EGL|MPI|FreeImage|OpenCV)|NvSci|add_subdirectory|GLES|D3D1", re.I
)
LIBRARY = re.compile(r"CUDA::(\w+)|\b(nvrtc|cublas|cufft|cusolver|cusparse|curand|nvJitLink|cuda)\b")
REFUSAL = re.compile(
    r"vgpu\[.*(801|not supported|unsupported|cannot)|NotSupported|NOT_SUPPORTED|NOT_IMPLEMENTED|not supported", re.I
)
FAILURE = re.compile(r"\b(FAIL|FAILED|FAILURE)\b|Test failed|\bResult = FAIL")


def samples(checkout: Path) -> dict[str, Path]:
    """Folders of programs that build here, by name."""
    found = {}
    for lists in sorted((checkout / "Samples").glob("[0-6]_*/*/CMakeLists.txt")):
        if "add_executable" in lists.read_text() and not ELSEWHERE.search(lists.read_text()):
            found[lists.parent.name] = lists.parent
    return found


def library_folders() -> list[Path]:
    if INSTALLED:
        return [cuda13().root, Path(sys.prefix) / SITE / "nvidia/cu13"]
    sites = [environment(*CUBLAS_WITH_PTX) / SITE, environment(*REQUIREMENTS["cupy"]) / SITE, packages(*NPP)]
    sites += [packages(*each) for each in OTHERS]
    return [site / "nvidia/cu13" for site in sites]


def linked(text: str) -> list[str]:
    """Linker options for the libraries of a CMakeLists.txt, as paths: wheels lack the unversioned file names."""
    names = {
        name for match in LIBRARY.findall(re.sub(r"[\s\S]*?target_link_libraries", "", text, count=1)) for name in match
    }
    names = {name.removesuffix("_static") for name in names} | ({"nvJitLink"} if "NVJITLINK" in text else set())
    names |= {IMPLIED[name] for name in names & IMPLIED.keys()}
    options = []
    for name in sorted(names - {"", "cudart", "cuda", "cuda_driver", "cudadevrt"}):
        found = [path for folder in library_folders() for path in sorted(folder.glob(f"lib*/lib{name}.so.*"))]
        options += [f"-Xlinker={path}" for path in found[:1]]
    if names & {"cuda", "cuda_driver"}:
        options.append(f"-Xlinker={ROOT / 'build/guest/libcuda.so'}")
    if "OpenMP" in text:
        options.append("-Xcompiler=-fopenmp")
    return options


def provide(nvcc: str, folder: Path, lists: str, includes: list[str]) -> None:
    """Create what a sample expects in its folder: NAME.fatbin or NAME64.ptx of NAME.cu, headers that NVRTC reads."""
    headers = set(re.findall(r"\$\{CUDA_INCLUDE_DIR\}/(\w[\w.]*)", lists))
    for name in headers | ({"nv", "cuda"} if headers else set()):  # the headers of cooperative groups include these
        header = cuda13().root / "include" / ("cccl" if name in ("nv", "cuda") else ".") / name
        if header.is_dir():
            shutil.copytree(header, folder / name, dirs_exist_ok=True)
        elif header.exists():
            shutil.copy(header, folder)
    for name, kind in sorted(set(re.findall(r"(\w+)\.(fatbin|ptx)\b", lists))):
        source = folder / f"{name.removesuffix('64')}.cu"
        if source.exists():
            made = [nvcc, f"-{kind}", "-gencode", "arch=compute_90,code=compute_90", *includes]
            made = [*made[:2], "-arch=compute_90", *includes] if kind == "ptx" else made
            made += ["-o", str(folder / f"{name}.{kind}"), str(source)]
            subprocess.run(made, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)


def build(checkout: Path, folder: Path) -> tuple[Path | None, str]:
    """Build a sample; return the program, or None and the reason."""
    toolchain, lists = cuda13(), (folder / "CMakeLists.txt").read_text()
    BUILT.mkdir(parents=True, exist_ok=True)
    named = re.search(r"add_executable\(\s*\S+\s+([^)]*)\)", lists)
    names = named[1].split() if named else []
    sources = [str(folder / name) for name in names if re.search(r"\.(cu|cpp|cc|c)$", name)]
    nvcc = str(toolchain.root / "bin/nvcc")
    relocatable = len(sources) > 1 or "SEPARABLE_COMPILATION ON" in lists
    includes = [
        folder,
        folder / "inc",
        checkout / "Common",
        toolchain.root / "include",
        *(p / "include" for p in library_folders()),
    ]
    command = [nvcc, "-std=c++17", "-O2", "--extended-lambda", "-Wno-deprecated-gpu-targets"]
    command += ["-gencode", "arch=compute_90,code=compute_90", f"-L{toolchain.library_folder()}"]
    command += ["-Xlinker", "--allow-shlib-undefined", *(["-rdc=true", "-lcudadevrt"] if relocatable else [])]
    command += [f"-I{path}" for path in includes]
    command += [*sources, *linked(lists)]
    state = hashlib.sha256(repr(command).encode())
    for path in sorted(folder.glob("*")):
        if path.suffix in (".cu", ".cpp", ".c", ".cuh", ".h", ".txt"):
            state.update(path.read_bytes())
    program = BUILT / f"{folder.name}-{state.hexdigest()[:12]}"
    provide(nvcc, folder, lists, [f"-I{path}" for path in includes])
    if program.exists():
        return program, ""
    try:
        done = subprocess.run(
            [*command, "-o", str(program)], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no end in {BUILD_TIMEOUT_S} s"
    if done.returncode:
        said = done.stderr.splitlines()
        errors = [line for line in said if re.search(r"error|undefined", line)] or said
        return None, (errors or ["?"])[0].strip()[-120:]
    return program, ""


def run(program: Path, folder: Path) -> tuple[str, str]:
    """Run a sample; return its verdict, and the reason if it is not RIGHT."""
    paths = ":".join(str(path) for folder in library_folders() for path in sorted(folder.glob("lib*")))
    toolkit = library_folders()[0 if INSTALLED else 1]  # whose headers samples give to NVRTC
    variables = {**merged(None), "LD_LIBRARY_PATH": paths, "VGPU_LOG": "error", "CUDA_PATH": str(toolkit)}
    command = [*VGPU, "run", "--gpu", "forward:2"]
    command += ["--timeout", str(RUN_TIMEOUT_S), "--", str(program), *OPTIONS.get(folder.name, ())]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=RUN_TIMEOUT_S + 60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return SLOW, f"no end in {RUN_TIMEOUT_S} s"
    text = (done.stdout + done.stderr).replace(f"{folder}/", "")
    (BUILT / f"{folder.name}.log").write_text(f"exit {done.returncode}\n{text}")
    if done.returncode == 0:
        return (WRONG, last_word(text)) if FAILURE.search(text) else (RIGHT, "")
    if done.returncode == 124:
        return SLOW, f"no end in {RUN_TIMEOUT_S} s"
    refused = done.returncode == WAIVED or REFUSAL.search(text)
    return (REFUSED if refused else WRONG), f"exit {done.returncode}: {last_word(text)}"


def last_word(text: str) -> str:
    """The line of output that best explains why a program ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("vgpu[")]
    telling = telling or [line for line in lines if re.search(r"error|fail|not supported|waiv|needs", line, re.I)]
    line = re.sub(r"^vgpu\[\d+\]: ", "", (telling or lines[-1:] or ["silent"])[0])
    return re.sub(r"(\()[^()]{40,}(\))", r"\1…\2", line).replace("|", "/")[:150]


def counted(rows: dict[str, str]) -> str:
    results = Counter(row.split(" | ")[1] for row in rows.values())
    return f"Of {len(rows)}: " + ", ".join(f"{results[r]} {r}" for r in (RIGHT, REFUSED, WRONG, SLOW, UNBUILT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    found = samples(checkout)
    text = options.document.read_text() if options.document.exists() else ""
    rows = {name: row for row, name in re.findall(r"^(\| (\S+) \|.*)$", text, re.MULTILINE) if name in found}
    for name in options.names or found:
        start = time.monotonic()
        program, why = build(checkout, found[name])
        built = time.monotonic()
        result, why = run(program, found[name]) if program else (UNBUILT, why.replace("|", "/"))
        day = datetime.now(UTC).date().isoformat()
        rows[name] = f"| {name} | {result} | {why} | {time.monotonic() - built:.0f} s | {day} |"
        print(f"{rows[name]} built in {built - start:.0f} s", flush=True)
        known = {each: rows[each] for each in sorted(found) if each in rows}
        head = HEAD.format(limit=RUN_TIMEOUT_S, counts=counted(known))
        options.document.write_text(head + "".join(f"{row}\n" for row in known.values()))


if __name__ == "__main__":
    main()
