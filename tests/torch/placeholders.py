"""Placeholders for libraries with which torch's CUDA build is linked but which it never calls here.

cuBLAS, cuDNN, cuFFT, cuSPARSE, NCCL and others are 2 GB of downloads, and none of their code runs on a simulated
device. Each placeholder has the name, the version nodes and the functions that torch needs. A function that is called
nevertheless prints its name and aborts. torch is unchanged: its RPATH finds the placeholders in torch/lib.
"""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

# Libraries by prefix of a symbol, for symbols without a version that names the library.
PREFIXES = {
    "nccl": "libnccl.so.2",
    "cusparseLt": "libcusparseLt.so.0",
    "curand": "libcurand.so.10",
    "cuFile": "libcufile.so.0",
    "nvshmem": "libnvshmem_host.so.3",
    "cublasLt": "libcublasLt.so.13",
}
LIBRARIES = {
    *PREFIXES.values(),
    "libcublas.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcusparse.so.12",
}
# Functions that torch calls when imported, choosing an implementation or describing itself (torch.__config__.show());
# they return the versions of torch's build.
ANSWERS = {
    "cudnnGetCudartVersion": "size_t cudnnGetCudartVersion(void) { return 13000; }",
    "cudnnGetVersion": "size_t cudnnGetVersion(void) { return 92400; }",
    "cudnnGetProperty": "int cudnnGetProperty(int part, int *value) { *value = (int[]){9, 24, 0}[part]; return 0; }",
}
BODY = """\
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
static void *called(const char *name) {
  static const char text[] = ": called in a placeholder of the tests\\n";
  if (write(2, name, strlen(name)) >= 0 && write(2, text, sizeof text - 1) >= 0) abort();
  abort();
}
"""


def place(torch_lib: Path) -> None:
    """Write a placeholder into torch/lib for each library, unless one of the same source exists."""
    wanted: dict[str, set[tuple[str, str]]] = {library: set() for library in LIBRARIES}
    for file in sorted(torch_lib.glob("libtorch*.so")):
        for library, symbol, version in _undefined(file):
            wanted[library].add((symbol, version))
    for library, symbols in wanted.items():
        _build(torch_lib, library, symbols)


def _undefined(file: Path) -> set[tuple[str, str, str]]:
    listing = subprocess.run(["readelf", "-W", "--dyn-syms", file], capture_output=True, text=True, check=True).stdout
    found = set()
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] != "UND":
            continue
        symbol, _, version = fields[7].partition("@")
        version = version.lstrip("@")
        by_prefix = next((PREFIXES[p] for p in sorted(PREFIXES, key=len, reverse=True) if symbol.startswith(p)), None)
        library = version if version in LIBRARIES else by_prefix
        if library is not None and re.fullmatch(r"\w+", symbol):
            found.add((library, symbol, version))
    return found


def _build(folder: Path, library: str, symbols: set[tuple[str, str]]) -> None:
    source, script = folder / f".{library}.c", folder / f".{library}.map"
    lines = [BODY]
    for symbol in sorted({symbol for symbol, _ in symbols}):
        body = ANSWERS.get(symbol, f'void *{symbol}(void) {{ return called("{symbol}"); }}')
        lines.append(f"{body}\n")
    text = "".join(lines)
    if (folder / library).exists() and source.exists() and source.read_text() == text:
        return
    source.write_text(text)
    nodes: dict[str, list[str]] = defaultdict(list)
    for symbol, version in sorted(symbols):
        nodes[version].append(symbol)
    texts = [f"{node} {{ global: {' '.join(f'{s};' for s in names)} }};\n" for node, names in nodes.items() if node]
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-w",
        "-O0",
        f"-Wl,-soname,{library}",
        "-o",
        folder / f".{library}.so",
        source,
    ]
    if texts:
        script.write_text("".join(texts))
        command += [f"-Wl,--version-script={script}"]
    subprocess.run(command, check=True, timeout=60)
    (folder / f".{library}.so").replace(folder / library)
